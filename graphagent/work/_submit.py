"""Submitting a run: all of it is committed at once, and any process with the store can begin it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict

from graphagent import _clock
from graphagent._article import kind_of
from graphagent._options import check_limit, check_name, check_whole, check_word, check_zone
from graphagent.errors import RunClaimedError, RunExistsError, RunNotFoundError, ThreadBusyError
from graphagent.log._header import RETAINED, RunHeader, thread_key, time_of, title_of
from graphagent.log._log import Log
from graphagent.log._segments import read_header
from graphagent.log._submitted import DEFAULT, place_at_end, read_line, read_submitted, submitted_key
from graphagent.run._reading import read_log
from graphagent.run._submitting import log_of, submission
from graphagent.run._threads import run_of
from graphagent.run._times import milliseconds_of
from graphagent.store import Put
from graphagent.work._dispatch import tell

if TYPE_CHECKING:
    from graphagent.llm import ImageLike
    from graphagent.log._submitted import Submitted
    from graphagent.memory.transcript._memory import RunMemory
    from graphagent.protocols import Store
    from graphagent.run._agent_run import AgentRun
    from graphagent.run._config import RunConfig

_LONGEST, _URGENT = 128, 2**31
"""The most characters of the name of a queue, and the bound of priorities, as dispatchers can have them."""


class SubmitOptions(TypedDict, total=False):
    """The options of `agent.submit` besides the task. Options without a description are as in `RunOptions`."""

    owner: str
    run_id: str | None
    """The id of the run; by default a new one. The same task submitted again under the same id is the same run."""
    steps: RunMemory | None
    """The transcript of an earlier run, which is put before the task as a copy."""
    thread: str | None
    """The name of a conversation of this owner. Runs submitted to it are executed one after the other, in the order in which they were
    submitted."""
    if_busy: Literal["queue", "refuse", "end"]
    """The treatment of the run if the thread has another one that is not over, or that waits in its queue. By default, `queue`, it
    waits: also for one that waits for a person. With `refuse` it is refused with a ThreadBusyError. With `end` the last run of the thread is
    ended as by `agent.end` if it waits or is paused; one that is being executed is waited for."""
    max_queued: int | None
    """How many runs may wait in the queue of the thread; 100 by default, None means any number."""
    images: Iterable[ImageLike]
    at: datetime | None
    """When it is to begin, with a time zone; by default, or in the past, at once."""
    queue: str
    """The queue in which it waits for a worker: workers may take from some queues alone."""
    priority: int
    """Of runs of a queue that are due, those of a higher priority are begun first; 0 by default."""


class Settings(NamedTuple):
    """The options of a submission that are not those of a run."""

    due: int
    """Milliseconds UTC; 0: at once."""
    queue: str
    priority: int
    if_busy: str
    max_queued: int | None


def check_submission(options: SubmitOptions) -> Settings:
    """Return the options that are not those of a run.

    Raises:
        TypeError, ValueError: one is not valid.
    """
    at, queue, priority = options.get("at"), options.get("queue", DEFAULT), options.get("priority", 0)
    if_busy, most = options.get("if_busy", "queue"), options.get("max_queued", 100)
    if at is not None and not isinstance(at, datetime):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"at= is a time with its zone, such as datetime(…, tzinfo=UTC), not {kind_of(at)}")
    check_zone("at", at)
    check_name("queue", queue, repr(DEFAULT))
    if len(queue) > _LONGEST or "\0" in queue:
        raise ValueError(
            f"the name of a queue has at most {_LONGEST} characters, and no NUL; this one has {len(queue)}"
        )
    check_whole("priority", priority)
    if abs(priority) >= _URGENT:
        raise ValueError(f"priority={priority} is not between -2**31 and 2**31")
    check_word("if_busy", if_busy, ("queue", "refuse", "end"))
    if most is not None:
        check_limit("max_queued", most)
    if options.get("thread") is None:
        for name in ("if_busy", "max_queued"):
            if name in options:
                raise ValueError(f"{name}= is about the other runs of a thread; give thread=, too")
    return Settings(0 if at is None else milliseconds_of(at, 0), queue, priority, if_busy, most)


async def submit(run: AgentRun, settings: Settings) -> RunHeader:
    """Commit a run that has not begun, so that any process can begin it. Return its header.

    Raises:
        RunExistsError: there is a run of this id with another task.
        ThreadBusyError: its thread has a run that is not over, and it is to be refused then.
        StoreError: the store cannot be read or written.
    """
    config, beginning = run.config, run.session.beginning
    store, owner = config.runs, run.owner
    assert beginning is not None
    submitted, now = submission(run), await time_of(store)
    item = Put(submitted_key(owner, run.run_id), submitted.pack(run.run_id), expected=0)
    header = RunHeader(
        run_id=run.run_id, owner=owner, strategy=config.strategy.name, strategy_digest=config.strategy.outline.digest,
        version=config.named_version,
        started=_clock.now(), updated=now, written="queued", title=title_of(run.activation.task), thread=run.session.thread, due=max(settings.due, now),
        queue=settings.queue, priority=settings.priority,
    )  # fmt: skip
    while True:
        if beginning.named and (there := await _same(config, header, submitted)) is not None:
            return there
        log = Log(store, header)
        if run.session.thread and settings.if_busy == "refuse":
            await _check_idle(store, header)
        ends = settings.if_busy == "end"
        log.along(item, *await place_at_end(store, header, ends_busy=ends, most=settings.max_queued))
        try:
            await log.commit(header=True)
        except RunClaimedError:
            continue  # a run of this id, or of this thread, was submitted since these were read
        await tell(store, log.header, config.dispatcher)
        return log.header


async def _same(config: RunConfig, header: RunHeader, submitted: Submitted) -> RunHeader | None:
    """Return the header of the run of an id, which has the same task and thread; None if the run does not exist.

    Raises:
        RunExistsError: it has another task, or another thread.
    """
    store, owner, run_id = config.runs, header.owner, header.run_id
    try:
        there, _ = await read_header(store, owner, run_id)
    except RunNotFoundError:
        return None
    found = None if there.begun else await read_submitted(store, there)
    before = await (log_of(config, there, found[0]) if found else read_log(config, owner, run_id, until=1))
    new = await log_of(config, header, submitted)
    if there.thread == header.thread and _task_of(before) == _task_of(new):
        return there
    raise RunExistsError(run_id, owner)


def _task_of(log: Log) -> tuple[Any, Any]:
    """Return the task of a run as plain data, and the images that were given with it."""
    transcript = log.state.root.transcript
    last = transcript.steps[-1] if len(transcript) else None
    return log.codec.take_plain(log.state.run.task), getattr(last, "task_images", None)


async def _check_idle(store: Store, header: RunHeader) -> None:
    """Check that a thread has no run that is queued or not over, except runs that failed or were cancelled.

    Raises:
        ThreadBusyError: it has one.
    """
    owner, thread = header.owner, header.thread
    if line := await read_line(store, owner, thread):
        raise ThreadBusyError(thread, line[0].run_id, "queued", owner)
    item = await store.get(thread_key(owner, thread))
    if item is None:
        return
    last, _ = await read_header(store, owner, run_of(item.value, thread))
    if last.status not in RETAINED:
        raise ThreadBusyError(thread, last.run_id, last.status, owner)
