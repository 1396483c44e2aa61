"""Which dispatcher an agent has, and telling it of a run that is due."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from graphagent.store._internal import innermost
from graphagent.work._in_process import InProcess

if TYPE_CHECKING:
    from graphagent.protocols import Dispatcher, Store

_log = logging.getLogger("graphagent")


def dispatcher_of(store: Store, given: Dispatcher | None = None) -> Dispatcher:
    """Return the dispatcher of a store: the one that was given, or else the one that the store makes, or else that of this process."""
    if given is not None:
        return given
    make: Any = getattr(innermost(store), "dispatcher", None)
    return InProcess(store) if make is None else make()


async def tell(store: Store, given: Dispatcher | None, owner: str, run_id: str, *, queue: str, priority: int) -> None:
    """Bring word of a run that is due, which was committed. What fails is logged: workers find it in the store."""
    dispatcher = dispatcher_of(store, given)
    if innermost(store) is not store and not isinstance(dispatcher, InProcess):
        owner = run_id = ""  # what is sealed in the store is not to be read in a queue
    try:
        await dispatcher.tell(owner, run_id, queue=queue, priority=priority)
    except Exception as error:  # noqa: BLE001  whatever a dispatcher raises: its word is a hint
        _log.warning("no word was brought of a run that is due: %s", type(error).__name__)
