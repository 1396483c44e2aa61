"""The runs of a store at a glance: their headers alone are read."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from graphagent._options import check_store
from graphagent.errors import DamagedStoreError
from graphagent.log._header import HEADERS, ROOM, RunHeader, child_of
from graphagent.log._lease import judged
from graphagent.log._status import Status, check_statuses
from graphagent.store._bulk import collect
from graphagent.store._encoding import checked_limit

if TYPE_CHECKING:
    from graphagent.protocols import Store


async def list_runs(
    store: Store,
    *,
    owner: str = "",
    thread: str | None = None,
    status: Collection[Status] | None = None,
    limit: int | None = None,
) -> list[RunHeader]:
    """Return the headers of an owner's runs, the newest first. Damaged ones are the last.

    Runs of sub-agents are among them: they have a `parent`. All headers of the owner are read.

    Args:
        store: Where they are.
        owner: Whose.
        thread: Only the runs of this thread.
        status: Only runs that are there, such as `["waiting", "interrupted"]`.
        limit: At most so many.

    Raises:
        ValueError: a status is not known, or the limit is below 0.
        StoreError: the store cannot be read.
    """
    check_store(store)
    check_statuses(status)
    most = checked_limit(limit)
    found: dict[str, RunHeader] = {}
    children: list[RunHeader] = []
    for item in await collect(store.scan((ROOM, owner, HEADERS))):
        run_id = str(item.key[3])
        try:
            if len(item.key) == 4:
                found[run_id] = RunHeader.unpack(item.value, run_id)
            else:
                children.append(RunHeader.unpack(item.value, run_id, child=True))
        except DamagedStoreError as error:
            found[run_id] = RunHeader(run_id=run_id, owner=owner, damaged=str(error))
    found.update((head.run_id, head) for head in await judged(store, list(found.values())))
    for child in children:
        found[child.run_id] = child_of(child, found.get(child.run_id.partition("/")[0]))
    heads = sorted(found.values(), key=lambda head: head.started, reverse=True)
    if thread is not None or status is not None:
        heads = [head for head in heads if thread in (None, head.thread) and (status is None or head.status in status)]
    return heads[:most]
