"""Removing the runs that are over and whose time to be kept has passed."""

from __future__ import annotations

import logging
from collections.abc import Collection
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING

from graphagent.errors import DamagedStoreError
from graphagent.history._removing import prune_fitting
from graphagent.log._header import RETAINED, Due, RunHeader, all_due, header_key
from graphagent.store._bulk import get_many

if TYPE_CHECKING:
    from graphagent.protocols import Store

_log = logging.getLogger("graphagent.work")
_TOGETHER = 1000
"""How many runs are looked at together."""


async def remove_expired(store: Store, strategies: Collection[str], now: int) -> int:
    """Remove runs of some strategies that were to be kept until now, up to a thousand. Return how many; 0 if none is left.

    Raises:
        StoreError: the store cannot be read or written.
    """
    page: list[Due] = []
    async with aclosing(all_due(store, now)) as due:
        async for each in due:
            if each.strategy in strategies:
                page.append(each)
            if len(page) == _TOGETHER:
                if gone := await _remove(store, page, now):
                    return gone
                page = []
    return await _remove(store, page, now)


async def _remove(store: Store, due: list[Due], now: int) -> int:
    """Remove those of some runs that have expired, and that no process executes."""
    names = {header_key(each.owner, each.run_id): each for each in due}
    found: dict[str, list[str]] = {}
    for key, item in (await get_many(store, names)).items():
        owner, run_id = names[key].owner, names[key].run_id
        try:
            header = RunHeader.unpack(item.value, run_id)
        except DamagedStoreError as error:
            _log.warning("a run whose time has passed is kept: %s", error)
            continue
        if _has_expired(header, now):
            found.setdefault(owner, []).append(run_id)
    fits = partial(_has_expired, now=now)
    return sum([await prune_fitting(store, owner, run_ids, fits) for owner, run_ids in found.items()])


def _has_expired(header: RunHeader, now: int) -> bool:
    # A run that came to its end since it was found due is kept: it was due to go on.
    return header.written in RETAINED and 0 < header.due <= now
