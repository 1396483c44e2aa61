"""Nodes that fork: several branches at once, over items, or for the first to succeed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from graphagent.graph import _types
from graphagent.graph._node import Node

if TYPE_CHECKING:
    from graphagent.errors import NodeFailedError

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
F = TypeVar("F")
G = TypeVar("G")

Failures = Literal["cancel", "collect"]
"""When a branch fails: `cancel` the others and fail, or `collect` its NodeFailedError in the place of its result."""
Transcript = Literal["drop", "keep"]
"""What the branches said: `drop` it at the join, or `keep` it in the parent's transcript, in the order of the branches."""


class _Fork(Node[Any, Any]):
    __slots__ = ("branches", "failures", "limit", "transcript")

    def __init__(
        self,
        branches: tuple[Node[Any, Any], ...],
        *,
        name: str,
        takes: Any,
        gives: Any,
        limit: int | None,
        failures: Failures,
        transcript: Transcript,
    ) -> None:
        if limit is not None and limit < 1:
            raise ValueError(f"{name!r}: limit={limit} would run no branch; give 1 or more, or None for no limit")
        super().__init__(_engine_only, name=name, takes=takes, gives=gives)
        self.branches = branches
        """What is executed, in the order of their numbers."""
        self.limit = limit
        """How many branches run at once; None means all."""
        self.failures: Failures = failures
        self.transcript: Transcript = transcript


async def _engine_only(ctx: Any, value: Any) -> Any:
    raise TypeError("a fork has no function of its own; run it in a strategy")


class Parallel(_Fork):
    """Every branch gets the input; the results come as a tuple, in the order of the branches."""

    __slots__ = ()


class Each(_Fork):
    """One branch, once for every item of the input; the results come as a list, in the order of the items."""

    __slots__ = ()


class Race(_Fork):
    """Every branch gets the input; the first that succeeds gives the result, the others are cancelled."""

    __slots__ = ()


@overload
def parallel(
    a: Node[A, B],
    b: Node[A, C],
    /,
    *,
    limit: int | None = None,
    failures: Literal["cancel"] = "cancel",
    transcript: Transcript = "drop",
    name: str = ...,
) -> Node[A, tuple[B, C]]: ...
@overload
def parallel(
    a: Node[A, B],
    b: Node[A, C],
    c: Node[A, D],
    /,
    *,
    limit: int | None = None,
    failures: Literal["cancel"] = "cancel",
    transcript: Transcript = "drop",
    name: str = ...,
) -> Node[A, tuple[B, C, D]]: ...
@overload
def parallel(
    a: Node[A, B],
    b: Node[A, C],
    c: Node[A, D],
    d: Node[A, F],
    /,
    *,
    limit: int | None = None,
    failures: Literal["cancel"] = "cancel",
    transcript: Transcript = "drop",
    name: str = ...,
) -> Node[A, tuple[B, C, D, F]]: ...
@overload
def parallel(
    a: Node[A, B],
    b: Node[A, C],
    c: Node[A, D],
    d: Node[A, F],
    e: Node[A, G],
    /,
    *,
    limit: int | None = None,
    failures: Literal["cancel"] = "cancel",
    transcript: Transcript = "drop",
    name: str = ...,
) -> Node[A, tuple[B, C, D, F, G]]: ...
@overload
def parallel(
    *nodes: Node[A, B],
    limit: int | None = None,
    failures: Literal["cancel"] = "cancel",
    transcript: Transcript = "drop",
    name: str = ...,
) -> Node[A, tuple[B, ...]]: ...
@overload
def parallel(
    a: Node[A, B],
    b: Node[A, C],
    /,
    *,
    limit: int | None = None,
    failures: Literal["collect"],
    transcript: Transcript = "drop",
    name: str = ...,
) -> Node[A, tuple[B | NodeFailedError, C | NodeFailedError]]: ...
@overload
def parallel(
    a: Node[A, B],
    b: Node[A, C],
    c: Node[A, D],
    /,
    *,
    limit: int | None = None,
    failures: Literal["collect"],
    transcript: Transcript = "drop",
    name: str = ...,
) -> Node[A, tuple[B | NodeFailedError, C | NodeFailedError, D | NodeFailedError]]: ...
@overload
def parallel(
    *nodes: Node[A, B],
    limit: int | None = None,
    failures: Literal["collect"],
    transcript: Transcript = "drop",
    name: str = ...,
) -> Node[A, tuple[B | NodeFailedError, ...]]: ...
def parallel(
    *nodes: Node[Any, Any],
    limit: int | None = None,
    failures: Failures = "cancel",
    transcript: Transcript = "drop",
    name: str = "parallel",
) -> Node[Any, Any]:
    """Make a node that executes several nodes at once on the same input and gives their results as a tuple.

    Each branch has its own transcript, which begins with what was said before the fork.

    Args:
        nodes: The branches; they may give different types.
        limit: How many run at once; None means all.
        failures: What a failing branch does: `cancel` the others and fail, or `collect` its NodeFailedError in its place.
        transcript: What happens to the branches' transcripts at the join: `drop` them, or `keep` them in order.
        name: How the node is called.
    """
    _check_branches(nodes, name)
    found = [branch.gives for branch in nodes]
    gives = _types.tuple_of(map(_or_failed, found) if failures == "collect" else found)
    return Parallel(
        nodes, name=name, takes=_common(nodes, name), gives=gives, limit=limit, failures=failures, transcript=transcript
    )


@overload
def each(
    branch: Node[A, B],
    /,
    *,
    limit: int | None = 8,
    failures: Literal["cancel"] = "cancel",
    transcript: Transcript = "drop",
    name: str = ...,
) -> Node[Iterable[A], list[B]]: ...
@overload
def each(
    branch: Node[A, B],
    /,
    *,
    limit: int | None = 8,
    failures: Literal["collect"],
    transcript: Transcript = "drop",
    name: str = ...,
) -> Node[Iterable[A], list[B | NodeFailedError]]: ...
def each(
    branch: Node[Any, Any],
    /,
    *,
    limit: int | None = 8,
    failures: Failures = "cancel",
    transcript: Transcript = "drop",
    name: str = "each",
) -> Node[Any, Any]:
    """Make a node that executes another for every item of its input and gives the results as a list, in order.

    Args:
        branch: What is executed for an item.
        limit: How many items are worked on at once; None means all.
        failures: What a failing item does: `cancel` the others and fail, or `collect` its NodeFailedError in its place.
        transcript: What happens to the items' transcripts at the join: `drop` them, or `keep` them in order.
        name: How the node is called.
    """
    _check_branches((branch,), name)
    takes = _types.iterable_of(branch.takes)
    gives = _types.list_of(_or_failed(branch.gives) if failures == "collect" else branch.gives)
    return Each((branch,), name=name, takes=takes, gives=gives, limit=limit, failures=failures, transcript=transcript)


@overload
def race(a: Node[A, B], b: Node[A, C], /, *, transcript: Transcript = "drop", name: str = ...) -> Node[A, B | C]: ...
@overload
def race(
    a: Node[A, B], b: Node[A, C], c: Node[A, D], /, *, transcript: Transcript = "drop", name: str = ...
) -> Node[A, B | C | D]: ...
@overload
def race(*nodes: Node[A, B], transcript: Transcript = "drop", name: str = ...) -> Node[A, B]: ...
def race(*nodes: Node[Any, Any], transcript: Transcript = "drop", name: str = "race") -> Node[Any, Any]:
    """Make a node that executes several at once on the same input and gives what the first to succeed gave.

    The others are cancelled. It fails only when all fail, with the error of the first branch; the rest are its notes.

    Args:
        nodes: The branches.
        transcript: What happens to the winner's transcript: `drop` it, or `keep` it in the parent's.
        name: How the node is called.
    """
    _check_branches(nodes, name)
    takes, gives = _common(nodes, name), _types.union(branch.gives for branch in nodes)
    return Race(nodes, name=name, takes=takes, gives=gives, limit=None, failures="collect", transcript=transcript)


def _check_branches(nodes: tuple[object, ...], name: str) -> None:
    if not nodes:
        raise TypeError(f"{name!r} has no branches; give it nodes")
    for branch in nodes:
        if not isinstance(branch, Node):
            raise TypeError(
                f"a branch of {name!r} must be a node or a strategy; got {type(branch).__name__}. See @node"
            )


def _common(nodes: tuple[Node[Any, Any], ...], name: str) -> Any:
    """Give the type that every branch takes: the narrowest of theirs, or what their unions share."""
    kinds = [branch.takes for branch in nodes]
    told = [kind for kind in kinds if kind is not Any] or [Any]
    shared = [part for kind in told for part in (kind, *_types.members(kind))]
    fitting = [kind for kind in shared if all(_types.fits(kind, other) for other in told)]
    if not fitting:
        shown = ", ".join(f"{branch.name!r} takes {_types.show(branch.takes)}" for branch in nodes)
        raise TypeError(f"the branches of {name!r} get the same input, but no type fits all: {shown}")
    return fitting[0] if fitting[0] in told else _types.union(fitting)


def _or_failed(kind: Any) -> Any:
    from graphagent.errors import NodeFailedError

    return _types.union([kind, NodeFailedError])
