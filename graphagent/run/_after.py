"""Work after the end of a run: features look back, and learning that is still due is done, at once or later, in any process.

The learning that is due stands in the log of the run and in its header, and an item of its own names the run until nothing is left.
A process that learns claims the run, as a process that continues it does. The costs are an entry of the run.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
from msgspec import structs

from graphagent._raised import awaited
from graphagent.errors import BudgetError, RunClaimedError, RunNotFoundError, StoreError
from graphagent.log._claim import Token
from graphagent.log._entries import Learned, Spent
from graphagent.log._header import LEARNING, cost_of, mark_key, read_marks
from graphagent.log._log import Log
from graphagent.log._segments import read_header
from graphagent.log._visits import TASK, UNSET
from graphagent.run._deps import make_deps
from graphagent.run._effects import Effects
from graphagent.run._final_errors import matching
from graphagent.run._policies import FAILURES, report
from graphagent.run._reading import read_run
from graphagent.run._session import Session, with_heartbeat
from graphagent.run._sites import sites
from graphagent.run._sleep import together
from graphagent.run._walk import Walk
from graphagent.store import Delete

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from graphagent.protocols import Feature, Model, Store
    from graphagent.run._agent_run import AgentRun
    from graphagent.run._config import RunConfig

_log = logging.getLogger("graphagent.run")
_AT_ONCE = 10
"""Owners from whose runs is learned at once. Runs of one owner come one after the other: what was said last holds."""


def learners(run: AgentRun) -> list[Feature]:
    """Return the features that learn from the run when it has ended, if that is committed with the answer."""
    if run.parent is not None or run.session.recorded is not None or not run.log.durable:
        return []
    return [each for each in run.features.having("ended") if _learns(each)]


def _learns(feature: Feature) -> bool:
    return getattr(feature, "learns", getattr(feature, "background", False))


def named(feature: Feature) -> str:
    """Return how the log names a feature that is to learn. No path of a node is like it."""
    return f"/{type(feature).__name__}"


async def look_back(run: AgentRun) -> None:
    """Show the run, which has ended, to the features, and let the taps learn that failed to; in the background it is left to `settle`."""
    if run.session.recorded is None:
        later = learners(run)
        for feature in run.features.having("ended"):
            if feature in later or _ends_outside(run, feature):
                continue
            effects = _after_the_end(run)
            show = partial(feature.ended, effects.context(), run.answer_read())
            try:
                if _learns(feature):
                    await _learned(run, named(feature), show)
                else:
                    await awaited(show(), f"{type(feature).__name__}.ended")
            finally:
                _count(run, effects)
        at_once = {named(each) for each in later if not getattr(each, "background", False)}
        due = [
            each
            for each in run.log.state.unlearned
            if each in at_once or (each in run.session.unlearned and not run.config.learns_later)
        ]
        # What a sub-agent has spent is committed with what its caller does next.
        if run.parent is None and run.log.durable and (due or run.log.state.number > run.log.committed):
            with suppress(RunClaimedError):  # who has it learns
                await _learn_from(run, due)
    run.looked_back = True


def _ends_outside(run: AgentRun, feature: Feature) -> bool:
    """Return whether a run around this one shows its own end to a feature, or to one that does the same."""
    around = run.parent
    while around is not None:
        if any(each is feature for each in around.features.values()) or any(
            each.learns_for(feature) for each in around.features.having("learns_for")
        ):
            return True
        around = around.parent
    return False


async def settle(config: RunConfig, owner: str | None = None) -> int:
    """Do the learning that is due from runs of a strategy, of one owner or of all. Return the number of runs with nothing left to learn.

    The runs of an owner come in the order in which they ended, and are left to whoever learns from one of them already.
    """
    store = config.runs
    failed: list[Exception] = []
    owners = [owner] if owner is not None else sorted({key[1] for key in await _due(config, store)})
    done = 0

    async def learn(number: int) -> None:
        nonlocal done
        tried = set[tuple[str, str]]()
        # Looked up again after each: who came meanwhile has left its run to this task.
        while due := [key for key in await _due(config, store, owners[number]) if key[1:] not in tried]:
            tried.add(due[0][1:])
            try:
                learned = await awaited(_learn_from_stored(config, store, *due[0][1:]), f"run {due[0][2]!r}")
                done += learned
            except RunClaimedError:
                return
            except Exception as error:  # noqa: BLE001  raised again below
                failed.append(error)

    await together(learn, len(owners), _AT_ONCE)
    if failed:
        raise failed[0]
    return done


async def settle_quietly(config: RunConfig, owner: str) -> None:
    """Do the learning that is due from runs of an owner. An error in one owner's runs must not stop the learning of later owners."""
    try:
        await awaited(settle(config, owner), "settle")
    except Exception as error:  # noqa: BLE001  it stays due, and `settle` raises it
        _log.warning(
            "something could not be learned from earlier runs: %s",
            type(error).__name__,
            extra={"error_type": type(error).__name__},
        )


async def _due(config: RunConfig, store: Store, owner: str | None = None) -> list[tuple[int, str, str]]:
    """Return when runs of the strategy ended from which something is to be learned, their owners and their ids, in this order."""
    marks = await read_marks(store, LEARNING, owner)
    return [(ended, whose, run_id) for ended, whose, run_id, strategy in marks if strategy == config.strategy.name]


async def _learn_from_stored(config: RunConfig, store: Store, owner: str, run_id: str) -> bool:
    """Do the learning that is due from a stored run. Return whether nothing is left.

    Raises:
        RunClaimedError: somebody does.
    """
    try:
        run = await read_run(config, owner, run_id)
    except RunNotFoundError:
        await store.commit(Delete(mark_key(LEARNING, owner, run_id)))
        return False
    if not run.over or not any(_is_known(config, each) for each in run.log.state.unlearned):
        return False
    return await _learn_from(run, run.log.state.unlearned)


def _is_known(config: RunConfig, path: str) -> bool:
    """Return whether the strategy has the tap, or the agent the feature, that is to learn."""
    if path.startswith("/"):
        return any(named(each) == path for each in config.features.values())
    node = config.find(path)
    return node is not None and getattr(getattr(node.element, "function", None), "learns", False)


async def _learn_from(run: AgentRun, due: Collection[str]) -> bool:
    """Let some taps and features learn from a run that has ended. Return whether nothing is left. What fails is reported, and stays due.

    Raises:
        RunClaimedError: somebody does.
    """
    log, token = run.log, Token()
    await make_deps(run)
    try:
        with token:
            if not await _claim(run, token):
                return False
            try:
                await with_heartbeat(run, partial(_learn_all, run, due))
            finally:
                with anyio.CancelScope(shield=True):
                    await _release(run)
                    await log.let_go()
    except RunNotFoundError:
        return False  # it was removed meanwhile
    except StoreError as error:
        report(run, log.state.unlearned[0] if log.state.unlearned else "", error)
        return False
    return not log.state.unlearned


async def _claim(run: AgentRun, token: Token) -> bool:
    """Claim a run that has ended. Return whether something is left to learn from it.

    Raises:
        RunClaimedError: somebody has it.
    """
    log = run.log
    assert log.store is not None
    header, version = await read_header(log.store, run.owner, run.run_id)
    header.check_free()
    if header.last > log.committed:
        return False  # somebody learned from it since it was read
    log.is_at(header, version)
    try:
        await log.claim(token)
    except RunClaimedError:
        log.lost, log.stale = True, None  # nothing of the run itself is unknown
        raise
    return True


async def _release(run: AgentRun) -> None:
    log, usage = run.log, run.frame.usage
    if log.lost or log.stale is not None:
        return
    left = log.state.unlearned
    if not left:
        log.along(Delete(mark_key(LEARNING, run.owner, run.run_id)))
    log.header = structs.replace(log.header, claim=None, unlearned=left, tokens=usage.total_tokens, cost=cost_of(usage))
    await log.commit(header=True)


async def _learn_all(run: AgentRun, due: Collection[str]) -> None:
    config, log = run.config, run.log
    for path in log.state.unlearned:
        if path not in due or not _is_known(config, path):
            continue  # the strategy was changed since
        await log.commit()
        if path.startswith("/"):
            effects = _after_the_end(run)
            feature = next(each for each in config.features.values() if named(each) == path)
            learn: Callable[[], Awaitable[Any]] = partial(feature.ended, effects.context(), run.answer_read())
        else:
            model = next(each.model for each in sites(config.strategy, (), model=config.model) if each.path == path)
            effects, node = _after_the_end(run, path, model), config.find(path)
            assert node is not None
            assert node.learn is not None
            learn = partial(node.learn, effects.walk, None)
        try:
            learned = await _learned(run, path, learn)
        finally:
            _count(run, effects)
        if learned:
            log.append(Learned(node=path))


async def _learned(run: AgentRun, path: str, learn: Callable[[], Awaitable[Any]]) -> bool:
    """Return whether somebody has learned. That a model or a memory failed is reported."""
    try:
        await awaited(learn(), f"{path[1:]}.ended" if path.startswith("/") else f"node {path!r}")
    except (*FAILURES, BudgetError) as error:
        if not isinstance(error, BudgetError) and matching(error, FAILURES, run.lineage) is None:
            raise
        report(run, path, error)
        return False
    return True


def _count(run: AgentRun, effects: Effects) -> None:
    """Count what was spent after the end of the run."""
    charges = tuple(effects.log.state.run.charges)
    if charges:
        run.log.append(Spent(at=run.frame.path, charges=charges))


def _after_the_end(run: AgentRun, path: str = "", model: Model | None = None) -> Effects:
    """Return the effects of a feature, or of the tap at a path, that looks back at a run.

    Their frame has a copy of the transcript, in a log that is in no store. What the run has left of its budgets of tokens and money limits them.
    """
    log, left = Log(), run.limits.remaining()
    budgets = replace(run.config.budgets, max_tokens=left.max_tokens, max_cost=left.max_cost)
    after = Session(replace(run.config, budgets=budgets), log, run_id=run.run_id, owner=run.owner).run
    after.lineage, after.handlers, after.listed = run.lineage, run.handlers, run.listed
    config, frame = after.config, after.frame
    frame.transcript = run.frame.transcript.copied()
    # The same number in each process: a fact that one saved before it died keeps its id.
    frame.moved(path, UNSET, TASK, 0)
    return Effects(Walk(after, frame, config.compiled, after.limits, model or config.model, config.tools, lambda: None))
