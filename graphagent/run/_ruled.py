"""What the rules of strategies say of the nodes of an agent, as far as it is known when that compiles its strategy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from graphagent.graph._rules import declaration_of, is_named, is_tool
from graphagent.log._executed import known_as, name_of_tool

if TYPE_CHECKING:
    from graphagent.graph import PathRule, Strategy
    from graphagent.graph._declarations import Declaration
    from graphagent.graph._rules import RuleNode
    from graphagent.graph._strategy import Element


class _Check(NamedTuple):
    """What must not have been executed, or must have been, before something begins."""

    rule: PathRule
    first: frozenset[str]
    """The names after which it may not begin; none: it may not at all."""
    between: frozenset[str]
    """The names of what lets it begin again."""


class ScopeRules:
    """The rules of a strategy, with a name in the log for everything that they name."""

    def __init__(self, strategy: Strategy[Any, Any], names: Mapping[Declaration, str]) -> None:
        self.named: list[tuple[RuleNode, str]] = []
        """What the rules name, and the names."""
        self.known_as: dict[str, frozenset[str]] = {}
        """The names by which a log may know the same, by these names."""
        self._checks: dict[str, list[_Check]] = {}
        for rule in strategy.path_rules:
            parts = [self._name(each, strategy, names) for each in rule.nodes]
            if rule.kind == "precedes":
                self._add(parts[1], rule, [], [parts[0]])
            elif rule.kind == "guarded":
                self._add(parts[2], rule, [parts[0]], [parts[1]])
            else:
                for part in parts:
                    self._add(part, rule, [each for each in parts if each != part], [])

    def _name(self, node: RuleNode, strategy: Strategy[Any, Any], names: Mapping[Declaration, str]) -> str:
        there = {
            each.declaration: names[each.declaration]
            for path, each in strategy.walk()
            if not isinstance(node, str) and is_named(node, path, each.declaration)
        }
        if isinstance(node, str):
            name = f"/{node}"
        elif is_tool(node):
            name = name_of_tool(node.name)
        else:
            name = there.get(declaration_of(node)) or next(iter(there.values()))
        if name not in self.known_as:
            self.named.append((node, name))
        self.known_as[name] = self.known_as.get(name, frozenset()) | known_as(node) | {name, *there.values()}
        return name

    def _add(self, then: str, rule: PathRule, first: Sequence[str], between: Sequence[str]) -> None:
        self._checks.setdefault(then, []).append(_Check(rule, frozenset(first), frozenset(between)))

    def checks(self, names: Sequence[str]) -> tuple[_Check, ...]:
        """Return the checks of something that has these names."""
        return tuple(check for name in names for check in self._checks.get(name, ()))


class Within(NamedTuple):
    """Where something is in a strategy that has rules."""

    rules: ScopeRules
    prefix: str | None
    """What its path there begins with; None in a sub-agent, which is at no place of the strategy."""
    levels: int
    """By how many frames that strategy is around the frame in which it is executed."""

    def below(self, part: str) -> Within:
        """Return the same for a frame inside."""
        return Within(self.rules, None if self.prefix is None else f"{self.prefix}{part}/", self.levels + 1)


class Ruled(NamedTuple):
    """What the rules of a strategy say of something."""

    levels: int
    names: tuple[str, ...]
    checks: tuple[_Check, ...]


def rules_for(element: Element, within: Sequence[Within]) -> list[Ruled]:
    """Return what rules say of an element; nothing if none names it."""
    found: list[Ruled] = []
    for rules, prefix, levels in within:
        path = "" if prefix is None else prefix + element.name
        names = tuple(name for node, name in rules.named if is_named(node, path, element.declaration))
        if names:
            found.append(Ruled(levels, names, rules.checks(names)))
    return found
