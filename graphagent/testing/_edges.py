"""Which edge of a strategy takes an output, without executing anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphagent._raised import one_of
from graphagent.errors import NoPathError
from graphagent.graph import Strategy
from graphagent.run._final_errors import matching

if TYPE_CHECKING:
    from graphagent.graph._strategy import Edge


def next_node(strategy: Strategy[Any, Any], node: str, output: object, *, ctx: Any = None) -> str:
    """Return the name of the node that follows in a strategy when a node returns an output, or `END`. Nothing is executed.

    Args:
        strategy: The strategy.
        node: The path of a node or tap in it, such as `ask` or `count/words`.
        output: The output of the node; or an error that it raises, which takes the edges of `.on_error`.
        ctx: The context for conditions of `(ctx, output)`: any object with the attributes that they read.

    Raises:
        LookupError: the node does not exist.
        NoPathError: no edge takes the output.
    """
    *around, name = node.split("/")
    for part in around:
        inner = strategy.elements_by_name.get(part)
        if not isinstance(inner, Strategy):
            raise LookupError(f"no strategy {part!r} in {_contents(strategy)}")  # noqa: TRY004  the path is wrong, not a type
        strategy = inner
    element = strategy.elements_by_name.get(name)
    if element is None:
        raise LookupError(f"no node {name!r} in {_contents(strategy)}")
    output = one_of(output) if isinstance(output, BaseException) else output
    edges = [each for each in strategy.edges if each.source is element]
    for edge in edges:
        if _takes(edge, output, ctx):
            return getattr(edge.target, "name", "END")
    raise NoPathError(node, output, [each.label for each in edges])


def _takes(edge: Edge, value: object, ctx: Any) -> bool:
    """Return whether an edge takes a value, as the engine decides it."""
    rules = edge.outlet.rules if edge.outlet is not None else ()
    errors = tuple(rule.error for rule in rules if rule.error is not None)
    if isinstance(value, Exception) or errors:
        caught = matching(value, errors, ("",)) if isinstance(value, Exception) else None
        if caught is None:
            return False
        value = caught
    for rule in rules:
        if rule.test is not None and not (rule.test(ctx, value) if rule.takes_context else rule.test(value)):
            return False
        if rule.change is not None:
            value = rule.change(value)
    return True


def _contents(strategy: Strategy[Any, Any]) -> str:
    return f"{strategy.name!r}; it has {', '.join(map(repr, strategy.elements_by_name))}"
