"""Nodes that fork: several branches at once, one branch for each item, or the first branch to succeed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, Unpack, get_args, overload

from graphagent._options import check_whole, check_word
from graphagent.graph import _types
from graphagent.graph._declarations import Declaration
from graphagent.graph._node import Chain, Node
from graphagent.graph._signatures import misplaced

if TYPE_CHECKING:
    from graphagent.errors import NodeFailedError

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
F = TypeVar("F")
G = TypeVar("G")

Failures = Literal["cancel", "collect"]
"""When a branch fails: `cancel` the others and fail, or `collect` its NodeFailedError in place of its result."""
Transcript = Literal["drop", "keep"]
"""The transcripts of the branches: `drop` them at the join, or `keep` them in the parent's, in the order of the branches."""


class _Fork(Node[Any, Any]):
    __slots__ = ("branches", "failures", "limit", "transcript")

    def __init__(
        self,
        branches: tuple[Node[Any, Any], ...],
        *,
        name: str,
        input_type: Any,
        output_type: Any,
        limit: int | None,
        failures: Failures,
        transcript: Transcript,
    ) -> None:
        check_word(f"{name!r}: failures", failures, get_args(Failures))
        check_word(f"{name!r}: transcript", transcript, get_args(Transcript))
        if limit is not None:
            check_whole(f"{name!r}: limit", limit)
        if limit is not None and limit < 1:
            raise ValueError(f"{name!r}: limit={limit} would run no branch; give 1 or more, or None for no limit")
        super().__init__(_engine_only, name=name, input_type=input_type, output_type=output_type)
        self.declaration = Declaration.of_frame(type(self), name, [branch.declaration for branch in branches])
        self.branches = branches
        """The branches, in the order of their numbers."""
        self.limit = limit
        """The largest number of branches that run at once; None means all."""
        self.failures: Failures = failures
        self.transcript: Transcript = transcript

    @property
    def asker(self) -> str:
        """The path of the inner node that asks a person; empty if there is none."""
        found = (f"{self.name}/{number}/{each.asker}" for number, each in enumerate(self.branches) if each.asker)
        return next(found, "")


async def _engine_only(ctx: Any, value: Any) -> Any:
    raise TypeError("a fork has no function of its own; run it in a strategy")


class Parallel(_Fork):
    """Passes its input to every branch and returns a tuple of their results, in the order of the branches."""

    __slots__ = ()


class Each(_Fork):
    """Executes one branch for every item of its input and returns a list of the results, in the order of the items."""

    __slots__ = ()

    @property
    def asker(self) -> str:
        """The path of the inner node that asks a person; empty if there is none."""
        found = self.branches[0].asker
        return found and f"{self.name}/{found}"


class Race(_Fork):
    """Passes its input to every branch and returns the result of the first that succeeds; the others are cancelled."""

    __slots__ = ()


class ForkOptions(TypedDict, total=False):
    """The options that all forms of `parallel` and `each` take."""

    limit: int | None
    transcript: Transcript
    name: str


@overload
def parallel(
    a: Node[A, B], b: Node[A, C], /, *, failures: Literal["cancel"] = "cancel", **options: Unpack[ForkOptions]
) -> Node[A, tuple[B, C]]: ...
@overload
def parallel(
    a: Node[A, B],
    b: Node[A, C],
    c: Node[A, D],
    /,
    *,
    failures: Literal["cancel"] = "cancel",
    **options: Unpack[ForkOptions],
) -> Node[A, tuple[B, C, D]]: ...
@overload
def parallel(
    a: Node[A, B],
    b: Node[A, C],
    c: Node[A, D],
    d: Node[A, F],
    /,
    *,
    failures: Literal["cancel"] = "cancel",
    **options: Unpack[ForkOptions],
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
    failures: Literal["cancel"] = "cancel",
    **options: Unpack[ForkOptions],
) -> Node[A, tuple[B, C, D, F, G]]: ...
@overload
def parallel(
    *nodes: Node[A, B], failures: Literal["cancel"] = "cancel", **options: Unpack[ForkOptions]
) -> Node[A, tuple[B, ...]]: ...
@overload
def parallel(
    a: Node[A, B], b: Node[A, C], /, *, failures: Literal["collect"], **options: Unpack[ForkOptions]
) -> Node[A, tuple[B | NodeFailedError, C | NodeFailedError]]: ...
@overload
def parallel(
    a: Node[A, B], b: Node[A, C], c: Node[A, D], /, *, failures: Literal["collect"], **options: Unpack[ForkOptions]
) -> Node[A, tuple[B | NodeFailedError, C | NodeFailedError, D | NodeFailedError]]: ...
@overload
def parallel(
    *nodes: Node[A, B], failures: Literal["collect"], **options: Unpack[ForkOptions]
) -> Node[A, tuple[B | NodeFailedError, ...]]: ...
def parallel(
    *nodes: Node[Any, Any],
    limit: int | None = None,
    failures: Failures = "cancel",
    transcript: Transcript = "drop",
    name: str = "parallel",
) -> Node[Any, Any]:
    """Make a node that executes several nodes at once on the same input and returns their results as a tuple.

    Each branch has its own transcript, which begins with the transcript before the fork.

    Args:
        nodes: The branches; they may return different types.
        limit: The largest number that run at once; None means all.
        failures: When a branch fails: `cancel` the others and fail, or `collect` its NodeFailedError in the place of its result.
        transcript: Whether to `drop` the branches' transcripts at the join, or to `keep` them in order.
        name: The name of the node.
    """
    _check_branches(nodes, name)
    found = [branch.output_type for branch in nodes]
    output_type = _types.tuple_of(map(_or_failed, found) if failures == "collect" else found)
    return Parallel(
        nodes,
        name=name,
        input_type=_common(nodes, name),
        output_type=output_type,
        limit=limit,
        failures=failures,
        transcript=transcript,
    )


@overload
def each(
    branch: Node[A, B], /, *, failures: Literal["cancel"] = "cancel", **options: Unpack[ForkOptions]
) -> Node[Iterable[A], list[B]]: ...
@overload
def each(
    branch: Node[A, B], /, *, failures: Literal["collect"], **options: Unpack[ForkOptions]
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
    """Make a node that executes another node for every item of its input and returns the results as a list, in order.

    Args:
        branch: The node that is executed for each item.
        limit: The largest number of items that are processed at once; None means all.
        failures: When an item fails: `cancel` the others and fail, or `collect` its NodeFailedError in the place of its result.
        transcript: Whether to `drop` the items' transcripts at the join, or to `keep` them in order.
        name: The name of the node.
    """
    _check_branches((branch,), name)
    input_type = _types.iterable_of(branch.input_type)
    output_type = _types.list_of(_or_failed(branch.output_type) if failures == "collect" else branch.output_type)
    return Each(
        (branch,),
        name=name,
        input_type=input_type,
        output_type=output_type,
        limit=limit,
        failures=failures,
        transcript=transcript,
    )


@overload
def race(a: Node[A, B], b: Node[A, C], /, *, transcript: Transcript = "drop", name: str = ...) -> Node[A, B | C]: ...
@overload
def race(
    a: Node[A, B], b: Node[A, C], c: Node[A, D], /, *, transcript: Transcript = "drop", name: str = ...
) -> Node[A, B | C | D]: ...
@overload
def race(*nodes: Node[A, B], transcript: Transcript = "drop", name: str = ...) -> Node[A, B]: ...
def race(*nodes: Node[Any, Any], transcript: Transcript = "drop", name: str = "race") -> Node[Any, Any]:
    """Make a node that executes several nodes at once on the same input and returns the result of the first that succeeds.

    The others are cancelled, and their questions are withdrawn. The node fails only if all branches fail, with the error of the
    first branch; the other errors are notes of that error. A run waits for an answer when no other work is left: a branch that
    asks can win against a branch that sleeps, asks too, or fails.

    Args:
        nodes: The branches.
        transcript: Whether to `drop` the winner's transcript, or to `keep` it in the parent's.
        name: The name of the node.
    """
    _check_branches(nodes, name)
    input_type, output_type = _common(nodes, name), _types.union(branch.output_type for branch in nodes)
    return Race(
        nodes,
        name=name,
        input_type=input_type,
        output_type=output_type,
        limit=None,
        failures="collect",
        transcript=transcript,
    )


def _check_branches(nodes: tuple[object, ...], name: str) -> None:
    if not nodes:
        raise TypeError(f"{name!r} has no branches; give it nodes")
    for branch in nodes:
        if not isinstance(branch, Node):
            found = (
                "a path; make it Strategy('name', START >> … >> END)"
                if isinstance(branch, Chain)
                else misplaced(branch)
            )
            raise TypeError(f"a branch of {name!r} is a node or a strategy, not {found}")


def _common(nodes: tuple[Node[Any, Any], ...], name: str) -> Any:
    """Return the input type that fits every branch: the narrowest of their types, or the common members of their unions."""
    declared = _types.distinct([branch.input_type for branch in nodes if branch.input_type is not Any]) or [Any]
    shared = [part for kind in declared for part in (kind, *_types.members(kind))]
    fitting = [kind for kind in shared if all(_types.fits(kind, other) for other in declared)]
    if not fitting:
        shown = ", ".join(f"{branch.name!r} takes {_types.show(branch.input_type)}" for branch in nodes)
        raise TypeError(f"the branches of {name!r} get the same input, but no type fits all: {shown}")
    return fitting[0] if fitting[0] in declared else _types.union(fitting)


def _or_failed(kind: Any) -> Any:
    from graphagent.errors import NodeFailedError

    return _types.union([kind, NodeFailedError])
