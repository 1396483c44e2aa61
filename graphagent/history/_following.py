"""The entries of a run while another process commits them."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import TYPE_CHECKING, Self, final

import anyio

from graphagent.history._entries import Reader, read_for
from graphagent.history._inspect import next_row
from graphagent.log._internal import read_header
from graphagent.run._internal import look_up_references

if TYPE_CHECKING:
    from graphagent.history._entries import Entry
    from graphagent.log._internal import Status
    from graphagent.run._internal import RunConfig

_FIRST, _LONGEST, _FACTOR = 0.01, 0.5, 1.5
"""Seconds between two looks for new entries: at first, at most, and by how much they grow."""


@final
class Following:
    """The entries of a run, from the first one on, each when it is committed, until the run has another status than some.

    It is not an async generator: the garbage collector would have to close one that a loop abandons.
    """

    def __init__(self, config: RunConfig, owner: str, run_id: str, goes_on: Collection[Status]) -> None:
        self._config, self._owner, self._run_id, self._goes_on = config, owner, run_id, goes_on
        self._reader: Reader | None = None
        self._seen = 0
        self._new: deque[Entry] = deque()
        self._pause = 0.0
        self._over = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Entry:
        while not self._new:
            if self._over:
                raise StopAsyncIteration
            if self._pause:
                await anyio.sleep(self._pause)
            await self._look()
        return self._new.popleft()

    async def _look(self) -> None:
        """Read what was committed since."""
        config, store = self._config, self._config.runs
        header, _ = await read_header(
            store, self._owner, self._run_id
        )  # before the entries, so that the last ones are seen
        if self._reader is None and header.begun:
            self._reader = await read_for(config, self._owner, self._run_id)
        if self._reader is not None:
            log = self._reader.log
            while (row := await next_row(store, log)) is not None:
                await look_up_references(config.features_at, self._owner, log.codec, [row])
                log.fold_row(header, log.state.number + 1, row, watch=self._reader.watch)
            self._new.extend(self._reader.entries[self._seen :])
            self._seen = len(self._reader.entries)
        self._pause = _FIRST if self._new else min(max(self._pause, _FIRST) * _FACTOR, _LONGEST)
        self._over = header.status not in self._goes_on
