"""Executing one run that is due: one that was submitted is begun, one that was interrupted or whose time has come continues."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from graphagent.errors import (
    GraphAgentError,
    RunClaimedError,
    RunEndedError,
    RunNotFoundError,
    StoreError,
    StrategyChangedError,
    ThreadBusyError,
)
from graphagent.log._header import RETAINED, time_of
from graphagent.log._segments import read_header
from graphagent.log._submitted import first_in_line
from graphagent.run._ending import refuse
from graphagent.run._submitting import read_any

if TYPE_CHECKING:
    from graphagent._agent import Agent
    from graphagent.log._header import RunHeader
    from graphagent.protocols import Store
    from graphagent.run._agent_run import AgentRun
    from graphagent.run._config import RunConfig

_log = logging.getLogger("graphagent.work")
DEATHS = 5
"""After how many deaths of processes, one after the other, a run fails."""
Doing: TypeAlias = Literal["executed", "left", "claimed", "held", "early", "resting", "changed", "missing"]


class Outcome(NamedTuple):
    """The outcome of an attempt to execute a run."""

    did: Doing
    """`executed`: it came to an end, failed, or waits. `left`: it was interrupted, or lost, and is due still. Nothing was done with one that is
    `claimed` by another process; `held`, since another run of its thread comes before it; too `early`; `resting`, since it is over, waits
    or is paused; `changed`, since this agent has another strategy than it began with; or `missing`."""
    following: str = ""
    """The run of its thread that may be begun next."""
    error: BaseException | None = None
    """The error of the run."""


def config_of(agent: Agent[Any, Any]) -> RunConfig:
    """Return the configuration of the runs of an agent that are in its store."""
    return agent._stored_config()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  workers do the same as its own methods


def can_execute(agent: Agent[Any, Any]) -> bool:
    """Return whether runs of an agent can be executed without passing `deps`: no node takes any, or a factory makes them."""
    try:
        config_of(agent).check_given(None, "Agent(…, deps_factory=…)")
    except TypeError:
        return False
    return True


async def execute(
    agent: Agent[Any, Any],
    owner: str,
    run_id: str,
    *,
    most_deaths: int | None = DEATHS,
    began: Callable[[AgentRun], object] = lambda _: None,
) -> Outcome:
    """Execute a run until it ends, waits or pauses, if it is due and no other process executes it.

    Args:
        agent: Whose run it is: its strategy has the name of that of the run.
        owner: Whose.
        run_id: Which.
        most_deaths: After how many deaths of processes that executed it, one after the other, it fails; None: it never does.
        began: Is called with the run before it is executed, so that it can be paused; see `leave_soon`.

    Raises:
        StoreError: the store cannot be read.
    """
    config = config_of(agent)
    store = config.runs
    try:
        header, _ = await read_header(store, owner, run_id)
        nothing = await _hindrance(store, header)
        if nothing is not None:
            return Outcome(nothing)
        run = await read_any(config, owner, run_id)
    except RunNotFoundError:
        return Outcome("missing")
    except StrategyChangedError as error:
        return Outcome("changed", error=error)
    run.session.by_worker, run.session.most_deaths = True, most_deaths
    began(run)
    return await _finished(run, store)


def leave_soon(run: AgentRun) -> None:
    """Have a run stop before its next effect or node, and leave it to the next worker. Any thread may call it."""
    run.session.leaving = True
    run.session.pause("its worker ends")


async def _finished(run: AgentRun, store: Store) -> Outcome:
    error: BaseException | None = None
    try:
        await run.handle.finish()
    except ThreadBusyError as busy:
        return Outcome("held", error=busy)
    except (RunClaimedError, RunEndedError) as taken:
        return Outcome("left" if run.log.lost else "claimed", error=taken)
    except RunNotFoundError as gone:
        return Outcome("missing", error=gone)
    except Exception as failure:  # noqa: BLE001  the run has recorded it, or the store failed
        error = failure
        _log.warning(
            "run %r: %s", run.run_id, type(failure).__name__,
            extra={"run_id": run.run_id, "error_type": type(failure).__name__},
        )  # fmt: skip
    has_deps = run.config.deps is not None or run.config.make_deps is None
    if (
        run.session.beginning is not None
        and has_deps
        and isinstance(error, GraphAgentError)
        and not isinstance(error, StoreError)
    ):
        await refuse(run, error)  # a feature would not have it: that does not change by itself
        return Outcome("executed", await _following(run, store), error)
    over = run.result.status in RETAINED
    was_not_taken = error is not None and not over
    if run.result.status == "interrupted" or was_not_taken or (isinstance(error, StoreError) and run.session.claimed):
        return Outcome("left", error=error)
    return Outcome("executed", await _following(run, store) if over else "", error)


async def _hindrance(store: Store, header: RunHeader) -> Doing | None:
    """Return why there is nothing to execute of a run; None if there is something."""
    if header.running:
        return "claimed"
    if header.status == "interrupted":
        return None
    if not header.due or header.status in RETAINED:
        return "resting"
    now = await time_of(store)
    if header.due > now:
        return "early"
    if not header.begun and header.thread:
        return None if await first_in_line(store, header.owner, header.thread, now) == header.run_id else "held"
    return None


async def _following(run: AgentRun, store: Store) -> str:
    with suppress(StoreError):  # the next look for due runs finds it
        return (
            await first_in_line(store, run.owner, run.session.thread, await time_of(store))
            if run.session.thread
            else ""
        )
    return ""
