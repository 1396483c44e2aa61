"""Which dispatcher a store has, and bringing word of a run that is due."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from graphagent import _clock
from graphagent.errors import RunNotFoundError, StoreError
from graphagent.log._header import time_of
from graphagent.log._segments import read_header
from graphagent.log._submitted import first_in_line
from graphagent.store._claims import innermost
from graphagent.work._in_process import InProcess

if TYPE_CHECKING:
    from graphagent.log._header import RunHeader
    from graphagent.protocols import Dispatcher, Store

_log = logging.getLogger("graphagent.work")
_made: WeakKeyDictionary[Any, Dispatcher] = WeakKeyDictionary()
"""Dispatchers that were made for stores keep their connections as long as the stores exist."""
_LONGEST = 50
"""Letters of the name of a schema that are in that of the jobs, which has at most 63 bytes."""


def dispatcher_of(store: Store, given: Dispatcher | None) -> Dispatcher:
    """Return the dispatcher that an agent was given, or else the one that fits its store."""
    if given is not None:
        return given
    inner: Any = innermost(store)
    postgres = sys.modules.get("graphagent.store.postgres")  # imported by a program with such a store
    if postgres is None or not isinstance(inner, postgres.PostgresStore) or find_spec("procrastinate") is None:
        return InProcess(store)
    made = _made.get(inner)
    if made is None:
        from graphagent.work.procrastinate import Procrastinate

        made = _made[inner] = Procrastinate(inner.dsn, schema=f"{inner.schema[:_LONGEST]}_jobs")
    return made


async def tell(store: Store, header: RunHeader, given: Dispatcher | None = None) -> None:
    """Notify workers of a run that is queued and due. A failure is only logged, since workers look into the store, too.

    Args:
        store: Where the run is.
        header: The run.
        given: The dispatcher of its agent, if its agent has one.
    """
    if header.written != "queued" or header.due > _clock.now():
        return
    dispatcher = dispatcher_of(store, given)
    is_sealed = innermost(store) is not store and not isinstance(dispatcher, InProcess)
    # Data that can be read only with the key is not put into a queue.
    owner, run_id = ("", "") if is_sealed else (header.owner, header.run_id)
    try:
        await dispatcher.tell(owner, run_id, queue=header.queue, priority=header.priority)
    except Exception as error:  # noqa: BLE001  whatever a dispatcher raises: its word is a hint
        _log.warning(
            "no word was brought of a run that is due: %s",
            type(error).__name__,
            extra={"error_type": type(error).__name__},
        )


async def tell_next(store: Store, owner: str, thread: str, given: Dispatcher | None = None) -> None:
    """Notify workers of the next run of a thread, whose last run has ended. If that fails, they find the run in the store."""
    if not thread:
        return
    with suppress(StoreError, RunNotFoundError):
        following = await first_in_line(store, owner, thread, await time_of(store))
        if following:
            await tell(store, (await read_header(store, owner, following))[0], given)
