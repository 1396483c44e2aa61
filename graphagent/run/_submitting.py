"""A run that is submitted and begun later, by any process: what it begins with as bytes, and the run that these make."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphagent import _clock
from graphagent.errors import RunQueuedError
from graphagent.log._bytes import row_of
from graphagent.log._header import RunHeader, time_of
from graphagent.log._log import Log
from graphagent.log._segments import read_header
from graphagent.log._submitted import Submitted, read_submitted, submitted_key
from graphagent.memory.transcript._memory import Detached, RunMemory
from graphagent.memory.transcript._transcript import Transcript
from graphagent.run._beginning import begin, started
from graphagent.run._reading import look_up_references, read_run, unchecked_run, value_at
from graphagent.run._session import Queued
from graphagent.store import Delete

if TYPE_CHECKING:
    from graphagent.run._agent_run import AgentRun
    from graphagent.run._config import RunConfig


def submission(run: AgentRun) -> Submitted:
    """Return what a run that has not begun begins with.

    Raises:
        SerializationError: the task, or a step, cannot be stored.
    """
    config = run.config
    log = Log(config.store, RunHeader(run_id=run.run_id, owner=run.owner), types=config.kind_of_step)
    log.codec.refers_at[""] = config.refers
    begun, task = run.frame.transcript, run.activation.task
    start = started(config, log, task, begun.steps, begun.begun, begun.rules, begun.floor)
    data, _ = log.codec.write(start, log.state)
    return Submitted(row=row_of(_clock.now(), 0, [data]), payloads=dict(log.codec.blobs.new))


async def log_of(config: RunConfig, header: RunHeader, submitted: Submitted) -> Log:
    """Return a log that has what a submitted run begins with, to be read.

    Raises:
        StoreError: facts and notes to which it refers cannot be read.
    """
    log = submitted.opened(config.store, header, config.kind_of_step)
    await look_up_references(config.features_at, header.owner, log.codec, [submitted.row])
    log.fold_row(header, 1, submitted.row)
    return log


async def read_any(config: RunConfig, owner: str, run_id: str, *, allow_changed: bool = False) -> AgentRun:
    """Return a run from the store, as `read_run` does; of one that was submitted and has not begun, a run that can be begun.

    Raises:
        StrategyChangedError: the strategy takes a task of another type, or as `read_run`.
        RunNotFoundError, RunError, DamagedStoreError, StoreError: as `read_run`.
    """
    while True:
        try:
            return await read_run(config, owner, run_id, allow_changed=allow_changed)
        except RunQueuedError:
            run = await _queued(config, owner, run_id)
        if run is not None:
            return run


async def _queued(config: RunConfig, owner: str, run_id: str) -> AgentRun | None:
    """Return a run that was submitted; None if it has begun."""
    header, version = await read_header(config.runs, owner, run_id)
    found = None if header.begun else await read_submitted(config.runs, header)
    if found is None:
        return None
    submitted, line = found
    log = await log_of(config, header, submitted)
    task, begun = value_at(unchecked_run(config, log), log.state.root), log.state.root.transcript
    *steps, last = begun.steps
    run = begin(
        config, task, run_id=run_id, owner=owner, earlier=RunMemory(editor=Detached(Transcript("", steps, begun.floor))),
        images=getattr(last, "task_images", ()), thread=header.thread,
    )  # fmt: skip
    beginning = run.session.beginning
    assert beginning is not None
    ending = [each.due for each in line if each.ends_busy]
    beginning.ends_busy = bool(ending) and min(ending) <= await time_of(config.runs)
    places = [Delete(each.key) for each in line if each.run_id == run_id]
    beginning.queued = Queued(header, version, (Delete(submitted_key(owner, run_id)), *places))
    return run
