"""The runs of a store at a glance: their headers alone are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphagent._options import check_store
from graphagent.errors import DamagedStoreError
from graphagent.log._header import HEADERS, ROOM, RunHeader, child_of

if TYPE_CHECKING:
    from graphagent.protocols import Store


async def list_runs(store: Store, *, owner: str = "", thread: str | None = None) -> list[RunHeader]:
    """Return the headers of an owner's runs, or of those of one thread, the newest first. Damaged ones are the last.

    Runs of sub-agents are among them: they have a `parent`.

    Raises:
        StoreError: the store cannot be read.
    """
    check_store(store)
    found: dict[str, RunHeader] = {}
    children: list[RunHeader] = []
    async for item in store.scan((ROOM, owner, HEADERS)):
        run_id = str(item.key[3])
        try:
            if len(item.key) == 4:
                found[run_id] = RunHeader.unpack(item.value, run_id)
            else:
                children.append(RunHeader.unpack(item.value, run_id, child=True))
        except DamagedStoreError as error:
            found[run_id] = RunHeader(run_id=run_id, owner=owner, damaged=str(error))
    for child in children:
        found[child.run_id] = child_of(child, found.get(child.run_id.partition("/")[0]))
    heads = sorted(found.values(), key=lambda head: head.started, reverse=True)
    return heads if thread is None else [head for head in heads if head.thread == thread]
