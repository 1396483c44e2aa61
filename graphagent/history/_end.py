"""Ending a run where it is, without its agent."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from graphagent._options import check_text
from graphagent.errors import RunClaimedError, RunQueuedError
from graphagent.log._header import OVER
from graphagent.log._log import Log
from graphagent.log._submitted import read_unbegun
from graphagent.run._ending import append_end

if TYPE_CHECKING:
    from graphagent.log._header import RunHeader
    from graphagent.protocols import Store


async def end_run(store: Store, run_id: str, reason: str = "", *, owner: str = "") -> RunHeader:
    """End a run where it is, as `agent.end` does, and return its header. No feature looks back at it, since its agent is not at hand.

    Args:
        store: Where it is.
        run_id: Which.
        reason: Why, for people. It is kept with the run.
        owner: Whose.

    Raises:
        RunNotFoundError: the run does not exist.
        RunClaimedError: a process, or another task, executes it.
        DamagedStoreError: it is not what was written.
        StoreError: the store cannot be read or written, or the run has steps of types that were not imported.
    """
    check_text("reason=", reason)
    while True:
        try:
            log = await Log.read(store, owner, run_id)
        except RunQueuedError:
            unbegun = await read_unbegun(store, owner, run_id)
            if unbegun is None:
                continue  # somebody began it meanwhile
            log = unbegun
        if log.state.status in OVER:
            return log.header
        log.executed = partial(float, log.state.ran / 1000)
        append_end(log, reason)
        try:
            await log.commit(header=True)
        except RunClaimedError:
            continue  # somebody ended it meanwhile, or continued it
        return log.header
