"""Rules over paths, checked against what a stored run did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from graphagent.errors import StrategyChangedError
from graphagent.graph import START, BrokenRule, Outline, Strategy
from graphagent.graph.rules._proof import check_named
from graphagent.log._log import Log
from graphagent.log._replay import Replay
from graphagent.run._ruled import known_in, rules_in, scopes_of

if TYPE_CHECKING:
    from graphagent.graph import PathRule
    from graphagent.log._executed import Executed, RuleScope
    from graphagent.log._replay import Begun
    from graphagent.log._visits import Visit
    from graphagent.protocols import Store


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
    own = rules_in(strategy) if strategy is not None and rules is None else {"": rules or ()}
    elements: dict[str, Any] = {"": known, **dict(known.walk())}
    for path, each in own.items():
        check_named(elements[path], each)
    scopes = scopes_of(known, own)
    ruled = known_in(scopes)
    outline = known if isinstance(known, Outline) else known.outline
    broken: list[BrokenRule] = []

    def declared(begun: Begun, place: str) -> str:
        agent = begun.frame.agent
        if agent.parent is not None or begun.called:
            return agent.declared.get(place, "")
        try:
            outline.find(begun.path)
        except LookupError:
            led = f"- node {begun.path!r}, to which entry {begun.number} led"
            raise StrategyChangedError(run_id, [led]) from None
        return strategy.declarations.get(place, "") if strategy is not None else ""

    def begins(executed: Executed, begun: Begun, scope: RuleScope, around: str, names: list[str]) -> None:
        path = f"{begun.frame.path}{begun.visit.node}: {begun.called}" if begun.called else begun.path
        standing = executed.standing(scope, begun.last)
        for rule, after in scopes[around].broken(names, standing):
            broken.append(BrokenRule(rule, path, after or START.name, begun.number))

    def skipped(path: str, visit: Visit) -> None:  # it has not been executed, so it has not broken a rule
        broken[:] = [each for each in broken if each.node != path or each.at < visit.entered]

    replay = Replay(
        lambda agent: ruled if agent.parent is None else {}, declared=declared, begins=begins, skipped=skipped
    )
    replay.begin_items((await Log.read(store, owner, run_id, watch=replay.watch)).state)
    return broken
