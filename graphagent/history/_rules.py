"""Rules over paths, checked against what a stored run did."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

from graphagent.errors import StrategyChangedError
from graphagent.graph import START, BrokenRule, Outline, Strategy
from graphagent.graph.rules._proof import resolved
from graphagent.log._executed import known_as, scope_of, violation
from graphagent.log._log import Log
from graphagent.log._replay import Replay

if TYPE_CHECKING:
    from graphagent.graph import PathRule
    from graphagent.log._executed import Executed, RuleScope
    from graphagent.log._replay import Begun
    from graphagent.log._visits import Frame, Visit
    from graphagent.protocols import Store


class RuleCheck:
    """Finds where a run breaks rules, while it is followed. Of a stored run there may be the outline alone; then rules name paths."""

    def __init__(
        self, strategy: Strategy[Any, Any] | Outline, rules: Sequence[PathRule], broken: list[BrokenRule] | None = None
    ) -> None:
        self._patterns = resolved(strategy, rules, known_as)
        self._outline = strategy if isinstance(strategy, Outline) else strategy.outline
        self._found: dict[str, tuple[str, Outline]] = {}
        self.broken: list[BrokenRule] = [] if broken is None else broken
        """The nodes that were executed against a rule, in the order of the run."""

    def find(self, path: str) -> tuple[str, Outline]:
        """Return what `Outline.find` returns for a path, which occurs again and again."""
        if path not in self._found:
            self._found[path] = self._outline.find(path)
        return self._found[path]

    def begins(
        self, executed: Executed, names: AbstractSet[str], path: str, at: int, last: int, scope: RuleScope = ("", 0),
        part_of: AbstractSet[str] = frozenset(),
    ) -> list[tuple[RuleScope, str]]:  # fmt: skip
        """Check that something may begin, and return what it is noted as.

        Args:
            executed: What the run has executed.
            names: Its path in the strategy, or the names by which the log knows it: of its declaration if it is in a sub-agent, of a
                tool, of an agent.
            path: How it is reported.
            at: Where.
            last: The last entry.
            scope: The execution of the strategy.
            part_of: What the node or call is noted as that executes it.
        """
        named = set[str]()
        for rule, pattern in self._patterns:
            if names & pattern.then and not part_of & pattern.then:
                after = violation(executed.standing(scope, last), pattern.first, pattern.between)
                if after is not None:
                    self.broken.append(BrokenRule(rule, path, after or START.name, at))
            named |= names & (pattern.first | pattern.between | pattern.then)
        return [(scope, each) for each in sorted(named)]


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
        rules: The rules; None means those of the strategy and of its subgraphs, which only a run of another version of it can have
            broken.
        owner: The owner of the run.

    Raises:
        RunNotFoundError: the run does not exist.
        StrategyChangedError: the run executed a node that the strategy does not have.
        StrategyError: a rule names a node that the strategy does not have.
        TypeError: there are neither rules nor a strategy that has some.
        DamagedStoreError: the run is not what was written.
        StoreError: the store cannot be read.
    """
    if rules is None and strategy is None:
        raise TypeError("broken_rules() is passed rules=[…], or the strategy that has them")
    known = strategy or (await Log.read(store, owner, run_id)).state.run.strategy
    assert known is not None
    whole = RuleCheck(known, rules if rules is not None else strategy.path_rules if strategy is not None else ())
    checks = {"": whole}
    for path, each in strategy.walk() if strategy is not None and rules is None else ():
        if isinstance(each, Strategy) and each.path_rules:
            checks[path] = RuleCheck(each, each.path_rules, whole.broken)

    def names(executed: Executed, begun: Begun) -> list[tuple[RuleScope, str]]:
        frame, called = begun.frame, begun.called
        name = "" if called else _place(whole, frame, begun.path)
        if name is None:
            raise StrategyChangedError(run_id, [f"- node {begun.path!r}, to which entry {begun.number} led"])
        path = f"{frame.path}{begun.visit.node}: {called}" if called else begun.path
        found: list[tuple[RuleScope, str]] = []
        outer: Frame | None = frame
        while outer is not None:
            around = None if outer.agent.parent is not None else _place(whole, outer, outer.path.rstrip("/"))
            if around is not None and around in checks:
                inside = name.removeprefix(f"{around}/") if around and frame.agent.parent is None else name
                scope = scope_of(outer)
                part_of = frozenset(each for at, each in begun.within if at == scope)
                found += checks[around].begins(
                    executed, begun.known_as or {inside}, path, begun.number, begun.last, scope, part_of
                )
            outer = outer.parent
        return found

    def skipped(path: str, visit: Visit) -> None:  # it has not been executed, so it has not broken a rule
        whole.broken[:] = [each for each in whole.broken if each.node != path or each.at < visit.entered]

    run = Replay(names, skipped)
    run.begin_items((await Log.read(store, owner, run_id, watch=run.watch)).state)
    return whole.broken


def _place(check: RuleCheck, frame: Frame, path: str) -> str | None:
    """Return the path in the strategy of a place in the run; in a sub-agent, the name of its declaration.

    None: the strategy has no such thing.
    """
    agent = frame.agent
    try:
        if agent.parent is None:
            return check.find(path)[0]
        assert agent.strategy is not None
        return agent.declared.get(agent.strategy.find(path[len(agent.frame.path) :])[0], "")
    except LookupError:
        return None if agent.parent is None else ""
