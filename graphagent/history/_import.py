"""Conversations of elsewhere as threads: what was said in them is a run that has ended, after which the next one continues."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from graphagent import _clock
from graphagent._article import kind_of
from graphagent._options import check_name, check_text
from graphagent.errors import RunClaimedError, RunNotFoundError, ThreadExistsError
from graphagent.graph import Outline
from graphagent.log._entries import Started
from graphagent.log._header import RunHeader, title_of
from graphagent.log._log import Log
from graphagent.log._segments import read_header
from graphagent.memory.steps._types import ActionStep, MessageStep, TaskStep
from graphagent.memory.transcript._memory import RunMemory
from graphagent.run._ending import append_end
from graphagent.run._threads import thread_after

if TYPE_CHECKING:
    from collections.abc import Iterable

    from graphagent.memory.steps._types import Step
    from graphagent.protocols import Store

_NOTHING = Outline("strategy", "imported")
"""The outline of the strategy of an imported run, which executed nothing here."""


async def import_thread(store: Store, thread: str, memory: RunMemory, *, owner: str = "") -> RunHeader:
    """Write a conversation as a new thread, and return the header of its one run, which has ended. The next message continues it.

    The run has the steps with their times, began when the first of them was said, if that is known, and cost nothing. It is written
    in one commit. To import the same conversation into the same thread again changes nothing, also when the thread has gone on.

    Args:
        store: Where to.
        thread: The name of the thread.
        memory: The conversation, such as one of `graphagent.migrate`. The next run has the system prompt of its own agent.
        owner: Whose thread it is.

    Raises:
        ThreadExistsError: the thread has begun with something else; nothing was written.
        SerializationError: a step has a value that cannot be stored; nothing was written.
        DamagedStoreError: what the store has of the thread is not what was written.
        StoreError: the store cannot be read or written.
        TypeError: the thread has no name that is text, or the conversation is not a RunMemory.
        ValueError: the name of the thread is empty.
    """
    check_name("thread", thread, "'alice-7'")
    check_text("owner=", owner)
    if not isinstance(memory, RunMemory):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"memory= is a RunMemory, such as load_messages(…) returns, not {kind_of(memory)}")
    digest = hashlib.sha256(f"{thread}\0{memory.to_json()}".encode("utf-8", "surrogatepass")).hexdigest()
    run_id = f"import-{digest[:32]}"
    while True:
        try:
            return (await read_header(store, owner, run_id))[0]
        except RunNotFoundError:
            last, changes = await thread_after(store, owner, thread, run_id)
        if last:
            raise ThreadExistsError(thread, last)
        log = _over(store, run_id, owner, thread, memory)
        log.along(*changes)
        try:
            await log.commit(header=True)
        except RunClaimedError:
            continue  # somebody else began the thread meanwhile
        return log.header


def _over(store: Store, run_id: str, owner: str, thread: str, memory: RunMemory) -> Log:
    """Return the log of a run that has the steps of a conversation and has ended. It is not committed."""
    transcript = memory.transcript
    steps = [*transcript.steps, *((transcript.open_step,) if transcript.open_step is not None else ())]
    task = next((text for step in steps if (text := _asked(step))), "")
    started = min(_times(steps), default=_clock.now())
    header = RunHeader(
        run_id=run_id, owner=owner, thread=thread, strategy=_NOTHING.name, started=started, title=title_of(task)
    )
    log = Log(store, header)
    log.append(
        Started(
            first="", value=log.keep(task), steps=tuple(steps), rules=transcript.rules, trust=transcript.floor, strategy=_NOTHING
        )
    )  # fmt: skip
    append_end(log, "it was imported")
    return log


def _asked(step: Step) -> str:
    """Return the text of a task."""
    if not isinstance(step, TaskStep):
        return ""
    return step.task if isinstance(step.task, str) else getattr(step.task, "text", "")


def _times(steps: Iterable[Step]) -> Iterable[int]:
    """Yield when something was said, as far as the steps know."""
    for step in steps:
        if isinstance(step, TaskStep | MessageStep) and step.at is not None:
            yield step.at
        elif isinstance(step, ActionStep) and step.timing is not None:
            yield step.timing.started
