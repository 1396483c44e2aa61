"""What waits for people in a store: the open questions of all runs, whoever they belong to."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from graphagent._options import check_store
from graphagent.errors import RunNotFoundError, StoreError
from graphagent.history._entries import questions_of
from graphagent.history._runs import run_owners
from graphagent.log._header import MARKED, WAITING, RunHeader, header_key, mark_key, mark_of, read_marks
from graphagent.log._log import Log
from graphagent.log._segments import list_runs
from graphagent.run._reading import read_log, unchecked_run
from graphagent.store import Put
from graphagent.store._bulk import get_many
from graphagent.store._items import checked

if TYPE_CHECKING:
    from graphagent.protocols import Store
    from graphagent.run._config import RunConfig
    from graphagent.run._questions import Question


@dataclass(frozen=True, slots=True)
class PendingQuestion:
    """A question of a run that waits."""

    run_id: str
    """The run to resume with the answer."""
    owner: str
    """For whom it runs."""
    thread: str
    """The thread of the run; empty without one."""
    strategy: str
    """The name of the strategy of the run."""
    question: Question
    """The question, by whose id it is answered."""

    @property
    def since(self) -> datetime:
        """When it was asked, in UTC."""
        assert self.question.asked is not None
        return self.question.asked

    @property
    def deadline(self) -> datetime | None:
        """Until when it can be answered at least, in UTC; None: for as long as it takes."""
        return self.question.deadline


async def list_questions(store: Store, *, owner: str | None = None) -> list[PendingQuestion]:
    """Return the open questions of all runs that wait, those that have waited longest first. No agent is needed.

    What the types of the answers are is not known here; `agent.questions()` knows them.

    Args:
        store: Where the runs are.
        owner: Whose; by default those of all owners.

    Raises:
        DamagedStoreError: a run that waits is not what was written.
        StoreError: the store cannot be read.
    """
    heads = await waiting_runs(store, owner)
    return _sorted([each for head in heads for each in await questions_in(store, head.owner, head.run_id)])


async def questions_in(store: Store, owner: str, run_id: str) -> list[PendingQuestion]:
    """Return the open questions of a run: none if it does not wait, or was removed.

    Raises:
        DamagedStoreError: the run is not what was written.
        StoreError: the store cannot be read.
    """
    try:
        log = await Log.read(store, owner, run_id, keeps_values=True)
    except RunNotFoundError:
        return []
    return _pending(log, questions_of(log))


async def questions(config: RunConfig, owner: str | None) -> list[PendingQuestion]:
    """Return the open questions of the runs of an agent."""
    found: list[PendingQuestion] = []
    for head in await waiting_runs(config.runs, owner):
        if head.strategy == config.strategy.name:
            with suppress(RunNotFoundError):  # it was removed meanwhile
                log = await read_log(config, head.owner, head.run_id)
                found += _pending(log, unchecked_run(config, log).questions)
    return _sorted(found)


def _pending(log: Log, asked: Sequence[Question]) -> list[PendingQuestion]:
    """Return the questions of a run, unless it continued since it was found."""
    head = log.header
    known = asked if log.state.status == "waiting" else ()
    return [PendingQuestion(head.run_id, head.owner, head.thread, head.strategy, each) for each in known]


def _sorted(found: list[PendingQuestion]) -> list[PendingQuestion]:
    return sorted(found, key=lambda each: each.since)


async def waiting_runs(store: Store, owner: str | None) -> list[RunHeader]:
    """Return the headers of the runs that wait. Each has a mark, unless a version that sets none has written it."""
    check_store(store)
    if await store.get(MARKED) is None:
        return [head for head in await _marked_now(store) if owner in (None, head.owner)]
    keys = [header_key(whose, run_id) for _, whose, run_id, _ in await read_marks(store, WAITING, owner)]
    items = await get_many(store, keys)
    heads = [RunHeader.unpack(item.value, str(key[3])) for key, item in items.items()]
    return [head for head in heads if head.status == "waiting"]


async def _marked_now(store: Store) -> list[RunHeader]:
    """Return those of all owners in a store with runs of such a version, all of whose headers are read. Afterwards, each has a mark."""
    heads = [
        head
        for whose in await run_owners(store)
        for head in await list_runs(store, owner=whose)
        if head.status == "waiting" and not head.parent
    ]
    marks = [Put(mark_key(WAITING, head.owner, head.run_id), mark_of(head)) for head in heads]
    with suppress(StoreError):  # a store that cannot be written is looked through each time
        await store.commit(*marks, Put(MARKED, checked(b"")))
    return heads
