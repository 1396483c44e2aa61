"""The entries of a run while another process commits them."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import TYPE_CHECKING, Self, final

from graphagent.history._entries import Reader, read_for
from graphagent.history._inspect import next_row
from graphagent.log._changes import Changes
from graphagent.log._header import RunHeader, header_key, rows_key
from graphagent.log._segments import read_written
from graphagent.run._reading import look_up_references
from graphagent.store._bulk import get_many

if TYPE_CHECKING:
    from graphagent.history._entries import Entry
    from graphagent.log._header import Status
    from graphagent.run._config import RunConfig


@final
class Following:
    """The entries of a run after one of them, each when it is committed, until the run has another status than some.

    Without new entries, a look is one read of two items. It is not an async generator: the garbage collector would have to
    close one that a loop abandons.
    """

    def __init__(self, config: RunConfig, owner: str, run_id: str, goes_on: Collection[Status], *, after: int) -> None:
        self._config, self._owner, self._run_id, self._goes_on, self._after = config, owner, run_id, goes_on, after
        self._reader: Reader | None = None
        self._seen = 0
        self._new: deque[Entry] = deque()
        self._changes: Changes | None = None
        self._found = self._over = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Entry:
        while not self._new:
            if self._over:
                raise StopAsyncIteration
            if self._changes is None:
                self._changes = Changes(self._config.runs, self._owner, self._run_id, "log")
            else:
                await self._changes.next(found=self._found)
            await self._look()
        return self._new.popleft()

    async def _look(self) -> None:
        """Read what was committed since."""
        config, store, reader = self._config, self._config.runs, self._reader
        keys = [header_key(self._owner, self._run_id)]  # before the entries, so that the last ones are seen
        if reader is not None:
            keys.append((*rows_key(reader.log.header), reader.log.state.number + 1))
        there = await get_many(store, keys)
        if keys[0] in there:
            header = RunHeader.unpack(there[keys[0]].value, self._run_id)
        else:
            header, _ = await read_written(store, self._owner, self._run_id)
        if reader is None and header.begun:
            reader = self._reader = await read_for(config, self._owner, self._run_id)
        elif reader is not None and keys[1] in there:
            log = reader.log
            while (row := await next_row(store, log)) is not None:
                await look_up_references(config.features_at, self._owner, log.codec, [row])
                log.fold_row(header, log.state.number + 1, row, watch=reader.watch)
        entries = [] if reader is None else reader.entries[self._seen :]
        self._seen += len(entries)
        self._new.extend(each for each in entries if each.number > self._after)
        self._found = bool(entries)
        self._over = header.status not in self._goes_on
