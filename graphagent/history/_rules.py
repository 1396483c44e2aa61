"""Rules over paths, checked against what a stored run did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from graphagent.errors import StrategyChangedError
from graphagent.graph import START, BrokenRule, Outline
from graphagent.graph.rules._internal import resolved
from graphagent.log._internal import Log, Replay, hindrance, name_of_tool, standing

if TYPE_CHECKING:
    from graphagent.graph import PathRule, Strategy
    from graphagent.log._internal import Executing, Frame, Scope
    from graphagent.protocols import Store


class RuleCheck:
    """Finds where a run breaks rules, while it is followed. Of a stored run there may be the outline alone; then rules name paths."""

    def __init__(self, strategy: Strategy[Any, Any] | Outline, rules: Sequence[PathRule]) -> None:
        self._patterns = resolved(strategy, rules, lambda tool: frozenset([name_of_tool(tool.name)]))
        self._outline = strategy if isinstance(strategy, Outline) else strategy.outline
        self._found: dict[str, tuple[str, Outline]] = {}
        self.broken: list[BrokenRule] = []
        """The nodes that were executed against a rule, in the order of the run."""

    def find(self, path: str) -> tuple[str, Outline]:
        """Return what `Outline.find` returns for a path, which occurs again and again."""
        if path not in self._found:
            self._found[path] = self._outline.find(path)
        return self._found[path]

    def begins(self, run: Executing, path: str, at: int, tool: str = "") -> list[tuple[Scope, str]]:
        """Check that the node at a path may begin, or a tool that it calls, and return what it is noted as."""
        place, named = name_of_tool(tool) if tool else self.find(path)[0], False
        for rule, pattern in self._patterns:
            if place in pattern.then:
                after = hindrance(standing(run, ("", 0)), pattern.first, pattern.between)
                if after is not None:
                    self.broken.append(BrokenRule(rule, f"{path}: {tool}" if tool else path, after or START.name, at))
            named = named or place in pattern.first or place in pattern.between
        return [(("", 0), place)] if named else []


async def broken_rules(
    store: Store,
    run_id: str,
    strategy: Strategy[Any, Any] | None = None,
    *,
    rules: Sequence[PathRule] | None = None,
    owner: str = "",
) -> list[BrokenRule]:
    """Return where a stored run broke rules over paths, in the order of the run; none if it kept all of them.

    A node counts as executed from the entry on that led to it. With a fork, all branches of a `parallel` or a `race` begin, and
    an item of an `each` with its first entry.

    Args:
        store: The store that has the run.
        run_id: The id of the run.
        strategy: The strategy of the run. It need not have the rules, and may have been changed where the run did not go. None
            means the one that is stored with the run; then the rules name nodes by their paths.
        rules: The rules; None means those of the strategy, which only a run of another version of it can have broken.
        owner: The owner of the run.

    Raises:
        RunNotFoundError: there is no such run.
        StrategyChangedError: the run executed a node that the strategy does not have.
        StrategyError: a rule names a node that the strategy does not have.
        TypeError: there are neither rules nor a strategy that has some.
        DamagedStoreError: the run is not what was written.
        StoreError: the store cannot be read.
    """
    if rules is None:
        if strategy is None:
            raise TypeError("broken_rules() is passed rules=[…], or the strategy that has them")
        rules = strategy.path_rules
    known = strategy or (await Log.read(store, owner, run_id)).state.run.strategy
    assert known is not None
    check = RuleCheck(known, rules)

    def names(run: Replay, frame: Frame, number: int, tool: str) -> list[tuple[Scope, str]]:
        if frame.agent.parent is not None and not tool:  # the nodes of a sub-agent are inside of the one that calls it
            return []
        try:
            return check.begins(run, frame.node_path, number, tool)
        except LookupError:
            node = f"- node {frame.node_path!r}, to which entry {number} led"
        raise StrategyChangedError(run_id, [node])

    def skipped(frame: Frame) -> None:  # it has not been executed, so it has not broken a rule
        check.broken[:] = [each for each in check.broken if each.node != frame.node_path or each.at < frame.entered]

    run = Replay(names, skipped)
    run.end((await Log.read(store, owner, run_id, watch=run.watch)).state)
    return check.broken
