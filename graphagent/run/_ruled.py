"""What the rules of strategies say of the nodes of an agent, as far as it is known when that compiles its strategy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from typing import TYPE_CHECKING, Any, NamedTuple

from graphagent.graph import Strategy
from graphagent.graph._rules import declaration_of, is_named, is_tool
from graphagent.log._executed import known_as, name_of_tool, violation

if TYPE_CHECKING:
    from graphagent.graph import Outline, PathRule
    from graphagent.graph._declarations import Declaration
    from graphagent.graph._rules import RuleNode
    from graphagent.graph._strategy import Element
    from graphagent.log._executed import Standing
    from graphagent.log._replay import KnownAs


class _Check(NamedTuple):
    """What must not have been executed, or must have been, before something begins."""

    rule: PathRule
    first: str
    """The name after which it may not begin; empty: it may not at all."""
    between: str
    """The name of what lets it begin again; empty: nothing does."""


class ScopeRules:
    """The rules of a strategy, with a name in the log for everything that they name."""

    def __init__(
        self, strategy: Strategy[Any, Any] | Outline, rules: Sequence[PathRule], names: Mapping[Declaration, str]
    ) -> None:
        self.named: list[tuple[RuleNode, str]] = []
        """What the rules name, and the names."""
        self.known_as: dict[str, frozenset[str]] = {}
        """The names by which a log may know the same, by these names."""
        self._checks: list[tuple[str, _Check]] = []
        """The checks before something begins, in the order of the rules."""
        places: list[tuple[str, Any]] = [*strategy.walk()]
        for rule in rules:
            parts = [self._name(each, places, names) for each in rule.nodes]
            if rule.kind == "precedes":
                self._checks.append((parts[1], _Check(rule, "", parts[0])))
            elif rule.kind == "guarded":
                self._checks.append((parts[2], _Check(rule, parts[0], parts[1])))
            else:
                self._checks += [(then, _Check(rule, first, "")) for first, then in permutations(parts, 2)]

    def _name(self, node: RuleNode, places: Sequence[tuple[str, Any]], names: Mapping[Declaration, str]) -> str:
        there = {
            each.declaration: names[each.declaration]
            for path, each in places
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

    def checks(self, names: Sequence[str]) -> tuple[_Check, ...]:
        """Return the checks of something that has these names."""
        return tuple(check for name, check in self._checks if name in names)

    def broken(self, names: Sequence[str], standing: Mapping[str, Standing]) -> Iterator[tuple[PathRule, str]]:
        """Yield the rules that are broken by something with these names, as things stand, and the paths after which it must not begin."""
        for rule, first, between in self.checks(names):
            after = violation(standing, first, between)
            if after is not None:
                yield rule, after

    def names(self, path: str, declaration: Declaration | None) -> tuple[str, ...]:
        """Return the names of the element at a path."""
        return tuple(name for node, name in self.named if is_named(node, path, declaration))


def rules_in(strategy: Strategy[Any, Any]) -> dict[str, Sequence[PathRule]]:
    """Return the rules of a strategy and of the subgraphs inside it, by their paths."""
    strategies = (("", strategy), *strategy.walk())
    return {path: each.path_rules for path, each in strategies if isinstance(each, Strategy) and each.path_rules}


def declared_in(strategy: Strategy[Any, Any]) -> dict[Declaration, str]:
    """Return the names in the log of the declarations of a strategy."""
    return {each.declaration: strategy.declarations[path] for path, each in strategy.walk()}


def scopes_of(strategy: Strategy[Any, Any] | Outline, rules: Mapping[str, Sequence[PathRule]]) -> dict[str, ScopeRules]:
    """Return rules with names in the log, by the paths of the strategies that have them. Of an outline, only paths are known."""
    elements: dict[str, Any] = {"": strategy, **dict(strategy.walk())}
    names = declared_in(strategy) if isinstance(strategy, Strategy) and rules else {}
    return {path: ScopeRules(elements[path], each, names) for path, each in rules.items()}


def known_in(scopes: Mapping[str, ScopeRules]) -> KnownAs:
    """Return what rules name, with the names by which a log may know it."""
    return {(path, name): known_as for path, each in scopes.items() for name, known_as in each.known_as.items()}


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
        names = rules.names(path, element.declaration)
        if names:
            found.append(Ruled(levels, names, rules.checks(names)))
    return found
