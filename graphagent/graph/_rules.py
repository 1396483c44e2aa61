"""Rules over the paths of a strategy. `graph/rules/` proves them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeGuard

from graphagent._article import kind_of
from graphagent.graph._declarations import Declaration
from graphagent.graph._node import End, Node, Start, Tap, TapOf


class RuleTool(Protocol):
    """The parts of a tool that a rule uses, as made by `@tool`."""

    @property
    def name(self) -> str:
        """The name by which the model calls the tool."""
        ...

    @property
    def run(self) -> Callable[..., Any]:
        """The declaration that a call executes."""
        ...


RuleNode = Node[Any, Any] | Tap | TapOf[Any] | RuleTool | str
"""A node, tap, strategy or tool in a rule: the object, which means its declaration with all copies and places; or the path of one
place, such as `mail/send`."""


@dataclass(frozen=True, slots=True)
class PathRule:
    """A rule over the paths of a strategy, made by `precedes`, `never_together` or `guarded`. It is a value, and may be shared."""

    kind: Literal["precedes", "never_together", "guarded"]
    """The function that made it."""
    nodes: tuple[RuleNode, ...]
    """The nodes in the order of the arguments: of `guarded`, the source, the guard and the sink."""

    def __str__(self) -> str:
        names = list(map(name_of, self.nodes))
        if self.kind == "guarded":
            return f"guarded({names[0]}, by={names[1]}, before={names[2]})"
        return f"{self.kind}({', '.join(names)})"


@dataclass(frozen=True, slots=True)
class BrokenRule:
    """A node that a run executed against a rule."""

    rule: PathRule
    node: str
    """The path of the node in the run, such as `each/3/send`."""
    after: str
    """The path of the node after which the node must not be executed; START if another node had to come before it."""
    at: int
    """Where: the number of the entry with which the run came to the node, or its index in `Taken.nodes`."""

    def __str__(self) -> str:
        return f"{self.node!r} breaks the rule {self.rule} at {self.at}: {reason(self.rule, self.after)}"


def reason(rule: PathRule, after: str) -> str:
    """Return why a rule forbids something after the node or tool of a path."""
    names = [repr(name_of(node)) for node in rule.nodes]
    if rule.kind == "precedes":
        return f"{names[0]} has not been executed to its end before"
    if rule.kind == "guarded":
        return f"{names[1]} has not been executed to its end since {after!r}"
    return f"{after!r} has been executed"


def precedes(first: RuleNode, then: RuleNode, /) -> PathRule:
    """Return the rule that `then` is never executed unless `first` has been executed to its end before.

    Raises:
        TypeError: one of them is not a node, tap, strategy, tool or path.
        ValueError: both are one declaration, or two tools of one name.
    """
    return _made("precedes", first, then)


def never_together(*nodes: RuleNode) -> PathRule:
    """Return the rule that no run executes more than one of some nodes, not even in part. One of them may be executed repeatedly.

    Raises:
        TypeError: one of them is not a node, tap, strategy, tool or path.
        ValueError: there are fewer than two, or two are one declaration, or two tools of one name.
    """
    return _made("never_together", *nodes)


def guarded(source: RuleNode, /, *, by: RuleNode, before: RuleNode) -> PathRule:
    """Return the rule that after `source`, `before` is not executed unless `by` has been executed in between, to its end.

    Each execution of the source requires an execution of the guard that begins after it. A run that never executes the source
    may execute `before` freely.

    Raises:
        TypeError: one of them is not a node, tap, strategy, tool or path.
        ValueError: two are one declaration, or two tools of one name.
    """
    return _made("guarded", source, by, before)


def _made(kind: Literal["precedes", "never_together", "guarded"], *nodes: RuleNode) -> PathRule:
    for node in nodes:
        if isinstance(node, Start | End):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"{kind}() names nodes, and every run has {node.name}; name a node, or leave the rule out")
        if not isinstance(node, Node | Tap | TapOf | str) and not is_tool(node):
            raise TypeError(
                f"{kind}() names nodes, taps, strategies and tools, or paths such as 'mail/send', not {kind_of(node)}"
                + ("; write agent.as_tool() or agent.as_node()" if hasattr(node, "as_node") else "")
            )
    rule = PathRule(kind, nodes)
    if len(nodes) < 2:
        raise ValueError(f"{rule} needs at least two nodes")
    for one, other in itertools.combinations(nodes, 2):
        if _is_one(one, other):
            raise ValueError(f"{rule} names {name_of(one)!r} twice; name different nodes")
        if are_alike(one, other):
            raise ValueError(f"{rule} names {ALIKE.format(name_of(one))}")
    return rule


def _is_one(one: RuleNode, other: RuleNode) -> bool:
    """Return whether both are one declaration, or one path."""
    if isinstance(one, str) or isinstance(other, str):
        return one == other
    return is_about(one, other) or is_about(other, one)


def is_tool(node: object) -> TypeGuard[RuleTool]:
    """Return whether something in a rule is a tool."""
    return not isinstance(node, Node | Tap | TapOf | type) and hasattr(node, "parameters") and hasattr(node, "run")


ALIKE = "two tools {!r}, and a stored run knows tools by their names; rename one with @tool(name=…)"


def are_alike(one: RuleNode, other: RuleNode) -> bool:
    """Return whether both are tools, and no run that is stored could tell them apart."""
    return is_tool(one) and is_tool(other) and one.name == other.name and not _is_one(one, other)


def declaration_of(node: RuleNode) -> Declaration:
    """Return the origin of a node, tap, strategy or tool: for a tool, its function, even if it is the method of an object.

    Args:
        node: The object in a rule, not a path.
    """
    found: Any = getattr(node, "declaration", None)
    if isinstance(found, Declaration):
        return found
    tool: Any = node
    function = getattr(tool, "method", None) or getattr(tool, "function", tool.run)
    return Declaration.of_function(function, tool.name)


def is_about(node: RuleNode, other: RuleNode) -> bool:
    """Return whether a rule that names a node, a tap, a strategy or a tool applies to another one, wherever that is."""
    if isinstance(node, str):
        return False
    if is_tool(node) and is_tool(other) and node.run is other.run:
        return True
    return declaration_of(node).covers(declaration_of(other))


def is_named(node: RuleNode, path: str, declaration: Declaration | None) -> bool:
    """Return whether something in a rule names the element at a path, which has a declaration unless only its outline is known."""
    if isinstance(node, str):
        return node == path
    return declaration is not None and declaration_of(node).covers(declaration)


def name_of(node: RuleNode) -> str:
    """Return the name of a node in a rule, or the path that the rule has."""
    return node if isinstance(node, str) else node.name
