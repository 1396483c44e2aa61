"""Rules over paths, checked against what a stored run did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from graphagent.errors import StrategyChangedError
from graphagent.graph.rules._internal import RunWatch
from graphagent.log._internal import (
    BranchFailed,
    Log,
    NodeFinished,
    NodeRetried,
    NodeSkipped,
    Placed,
    Resumed,
    Started,
    Stopped,
)

if TYPE_CHECKING:
    from graphagent.graph import BrokenRule, PathRule, Strategy
    from graphagent.log._internal import Entry, State
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
    if strategy is None:
        outline = (await Log.read(store, owner, run_id)).state.run.strategy
        assert outline is not None
        watch = RunWatch(outline, rules)
    else:
        watch = RunWatch(strategy, rules)
    missing: list[StrategyChangedError] = []
    items, skipped = set[str](), set[str]()

    def follow(entry: Entry, number: int, state: State, row: bytes, place: int) -> None:
        try:
            if not missing:
                _follow(watch, entry, number, state, items, skipped)
        except LookupError as error:
            missing.append(StrategyChangedError(run_id, [f"- node {error.args[0]!r}, to which entry {number} led"]))

    await Log.read(store, owner, run_id, watch=follow)
    if missing:
        raise missing[0]
    return watch.broken


def _follow(watch: RunWatch, entry: Entry, number: int, state: State, items: set[str], skipped: set[str]) -> None:
    """Have a run that is watched do what an entry says.

    By their paths, `items` are the branches of `each` that have begun, and `skipped` the nodes that middleware does not execute.
    """
    frame, following = state.frames.get(entry.at), ""
    if isinstance(entry, Started):
        following = entry.first
    elif frame is None or frame.agent.parent is not None or isinstance(entry, Resumed | Stopped):
        return  # what sub-agents do is inside of a node
    else:
        _begin_items(watch, entry.at, number, items)
        path = frame.node_path if not (isinstance(entry, NodeRetried) and entry.first) else entry.at.rstrip("/")
        if isinstance(entry, NodeSkipped):
            skipped.add(path)
        elif isinstance(entry, NodeFinished) and entry.error is None and path not in skipped:
            watch.ended(path)
        elif isinstance(entry, NodeFinished | BranchFailed):
            watch.failed(path)
        if isinstance(entry, NodeFinished | BranchFailed | NodeRetried):
            skipped.discard(path)
            items.difference_update([each for each in items if not path or each.startswith(f"{path}/")])
        if isinstance(entry, NodeRetried):
            watch.left(path)
            for inside in watch.outline.begins(path):
                _begin(watch, inside, number)
        if isinstance(entry, NodeFinished | Placed) and entry.to:
            following = entry.at + entry.to
    if following:
        _begin(watch, following, number)


def _begin(watch: RunWatch, path: str, number: int) -> None:
    """Begin something, and what begins with it."""
    watch.begun(path, number)
    for inside in watch.outline.begins(path):
        _begin(watch, inside, number)


def _begin_items(watch: RunWatch, frame: str, number: int, items: set[str]) -> None:
    """Begin the branches of `each` around a frame that has its first entry."""
    parts = frame.split("/")[:-1]
    place = 1
    while place < len(parts):
        around = "/".join(parts[:place])
        fork = watch.find(around)[1]
        if fork.kind == "each":
            branch = f"{around}/{parts[place]}/{fork.inside[0].name}"
            if branch not in items:
                items.add(branch)
                _begin(watch, branch, number)
        place += 1 if fork.kind == "strategy" else 2  # the path of a branch has its number before its name
