"""A strategy as lines of text, which tell whether a run can be resumed with it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from graphagent.graph import Each, Node, Parallel, Race, Strategy, Tap, TapOf
from graphagent.graph._internal import show

if TYPE_CHECKING:
    from graphagent.graph import Edge


class StrategyDescription:
    """The names, edges and declared types of a strategy. What its functions do is not part of it."""

    def __init__(self, strategy: Strategy[Any, Any]) -> None:
        self._strategy = strategy

    @cached_property
    def lines(self) -> list[str]:
        """A line for the strategy, each node and each edge."""
        return describe(self._strategy)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the lines."""
        import hashlib

        return hashlib.blake2b("\n".join(self.lines).encode(), digest_size=12).hexdigest()


def describe(strategy: Strategy[Any, Any]) -> list[str]:
    """Return a strategy as lines of text."""
    return [
        f"strategy {strategy.name}: {show(strategy.input_type)} -> {show(strategy.output_type)}",
        *_lines(strategy, ""),
    ]


def _lines(node: Node[Any, Any], path: str) -> Iterator[str]:
    if isinstance(node, Strategy):
        for name, element in node.elements_by_name.items():
            if isinstance(element, Tap | TapOf):
                yield f"tap {path}{name}"
                continue
            kind = type(element).__name__.lower()
            yield f"{kind} {path}{name}: {show(element.input_type)} -> {show(element.output_type)}"
            yield from _lines(element, f"{path}{name}/")
        for edge in node.edges:
            label = _label(edge)
            yield f"edge {path}{edge.source.name} -> {path}{edge.target.name}{f' {label}' if label else ''}"
    elif isinstance(node, Parallel | Each | Race):
        for number, branch in enumerate(node.branches):
            yield f"branch {path}{number}/{branch.name}: {show(branch.input_type)} -> {show(branch.output_type)}"
            yield from _lines(branch, f"{path}{number}/{branch.name}/")


def _label(edge: Edge) -> str:
    rules = edge.outlet.rules if edge.outlet is not None else ()
    return ", ".join(
        rule.label if rule.kinds or rule.error or rule.label == "otherwise" else rule.label.split()[0] for rule in rules
    )
