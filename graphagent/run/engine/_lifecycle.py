"""A run in a store: begun, claimed, released, concluded."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio

from graphagent import _clock
from graphagent.codec._internal import HeldBlobs
from graphagent.errors import GraphAgentError, RunClaimedError, RunExistsError, SerializationError
from graphagent.run.engine._recorder import Recorder
from graphagent.run.engine._stored_refs import StoredRef
from graphagent.run.engine._threads import Continued, StoredTranscript, continued, keep
from graphagent.run.journal._claim import Claim, Token
from graphagent.run.journal._header import RunHeader
from graphagent.run.journal._keys import head_key
from graphagent.run.journal._reader import read_header
from graphagent.run.journal._references import look_up
from graphagent.run.journal._writer import JournalWriter
from graphagent.run.state._state import RunState

if TYPE_CHECKING:
    from graphagent.memory import FinalAnswerStep
    from graphagent.protocols import Store
    from graphagent.run.engine._context import LiveFrame
    from graphagent.run.engine._driver import RunDriver
    from graphagent.run.journal._reader import JournalReader
    from graphagent.run.state._status import Status

_log = logging.getLogger("graphagent")
_TITLE = 80
"""The number of characters of a text task that are the title of a run."""


async def create(run: RunDriver, store: Store) -> None:
    """Write the first entry of a run.

    Raises:
        RunExistsError: there is a run of this id.
        ThreadBusyError: the last run of its thread has not ended.
        StoreError: it could not be read or written.
    """
    config, runtime, frame = run.config, run.runtime, run.frame
    while True:
        token = Token(runtime.journal.writer.token if runtime.journal is not None else None)
        journal = runtime.journal
        before = await continued(run, store) if journal is None else Continued()
        await run.begin_features()
        if journal is None:  # else this was interrupted before, and the run may be in the store as it was written then
            last, now = 0 if before.origin is None else before.origin[1], _clock.now()
            header = RunHeader(
                runtime.run_id, runtime.owner, config.strategy.name, config.strategy.outline.digest, now, now,
                title=run.task[:_TITLE] if isinstance(run.task, str) else "", parent=run.parent, claim=Claim.of(token),
                origin=before.origin, first=last + 1, thread=run.thread,
            )  # fmt: skip
            writer = JournalWriter(store, header, token.id, last=last)
            writer.along(*before.changes)
            journal = runtime.journal = Recorder(writer, RunState(frame, last), before.identity)
        try:
            with token, anyio.CancelScope(shield=True):  # cancelled in its middle, nobody would release the run
                await journal.start(frame, config.strategy, run.task)
        except RunClaimedError as error:
            runtime.journal = frame.ref = None  # what it refers to was not written
            continues = run.thread or run.earlier is not None
            if continues and await store.get(head_key(runtime.owner, runtime.run_id)) is None:
                continue  # someone else continued the thread, or removed the earlier run, since it was read
            raise RunExistsError(runtime.run_id, runtime.owner) from error
        except SerializationError:
            runtime.journal = None
            raise
        run.token = token
        return


async def claim(run: RunDriver, store: Store) -> None:
    """Claim a run that nobody executes, and write that it is resumed, with the answers to its questions.

    Raises:
        RunClaimedError: someone executes it, or resumed it since it was read.
        StoreError: it could not be read or written.
    """
    runtime, config = run.runtime, run.config
    header, version = await read_header(store, runtime.owner, runtime.run_id)
    if header.claim is not None and header.claim.holds():
        raise RunClaimedError(runtime.run_id, header.claim.holder)
    journal, reader = runtime.journal, run.journal
    known = journal.writer.last if journal is not None else reader.last if reader is not None else 0
    if header.last > known:  # entries alone do not tell: two that are written in one millisecond may be equal
        raise RunClaimedError(runtime.run_id, "someone else, who went on with it")
    token = Token()
    taken = replace(header, claim=Claim.of(token), status="running", reason="")
    if journal is not None and journal.finished:  # the answer has only to be committed
        journal.writer.take(_header_of(run, header, "done", ""), token.id, version)
        run.token = token
        return
    if journal is None:
        assert reader is not None
        if reader.facts or reader.notes:  # some may have been forgotten since it was read
            await look_up(reader, config.features)
        taken = replace(taken, strategy_digest=config.strategy.outline.digest)
        writer = JournalWriter(store, taken, token.id, last=reader.last, version=version)
        if reader.header.origin is None:  # payloads of an origin may be removed with it
            writer.has(reader.blobs.held)
        journal = runtime.journal = recorder_of(reader, writer, run.frame)
        if header.strategy_digest != config.strategy.outline.digest:
            journal.new_strategy = config.strategy.outline
        run.journal = None
    else:
        journal.writer.take(taken, token.id, version)
    journal.resumed(
        run.frame,
        [(runtime.asking[id_], runtime.questions[id_], answer) for id_, answer in runtime.answers.items()],
    )
    note_edits(run, journal)
    with token, anyio.CancelScope(shield=True):
        await journal.commit(header=True)
    run.token = token


def recorder_of(reader: JournalReader, writer: JournalWriter, frame: LiveFrame) -> Recorder:
    """Return a recorder that continues a journal."""
    state = reader.state
    state.root = frame
    recorder = Recorder(writer, state, reader.identity)
    recorder.task = StoredRef.of(reader.value(reader.first), {"$at": [reader.first]}, HeldBlobs(), reader.input_type)
    return recorder


async def release(run: RunDriver, status: Status, reason: str, failure: Exception | None) -> None:
    """Write that a run stops, and release it. If it failed, or was cancelled, no other error is raised."""
    runtime, journal = run.runtime, run.runtime.journal
    if journal is None:
        return
    try:
        if journal.finished:  # no entry may come after the answer
            await journal.commit(header=True)
        else:
            journal.writer.header = _header_of(run, journal.writer.header, status, reason)
            await journal.stopped(run.frame, failure)
    except GraphAgentError as error:
        if status not in ("failed", "cancelled"):
            raise
        _log.warning("run %r could not be let go: %s", runtime.run_id, type(error).__name__)
    finally:
        run.token = None


async def conclude(run: RunDriver, step: FinalAnswerStep) -> None:
    """Write the answer of a run, and release it.

    Raises:
        NodeFailedError: it cannot be stored.
        RunError: it could not be committed. It is when the run is finished again.
    """
    journal = run.runtime.journal
    assert journal is not None
    if not journal.finished:
        journal.final(run.frame, step.output)
        journal.writer.header = _header_of(run, journal.writer.header, "done", "")
    await journal.commit(header=True)
    run.token = None
    memory = run.runtime.memory
    memory.stored = StoredTranscript(journal.writer.store, journal.writer.header, journal.identity)
    if run.thread:
        keep(run)


async def record_edits(run: RunDriver) -> None:
    """Write the changes of the transcripts that were made while the run was not executed.

    Raises:
        RunError: they could not be committed. They are when the run is resumed.
    """
    journal = run.runtime.journal
    if journal is not None and not journal.finished:
        note_edits(run, journal)
        await journal.commit()


def note_edits(run: RunDriver, journal: Recorder) -> None:
    """Record the changes of the transcripts, but for those to which an interrupted node has added."""
    frames: dict[int, LiveFrame] = {}
    adding = set[int]()
    for frame in run.frame.inside_out():
        frames.setdefault(id(frame.memory), frame)
        if frame.savepoint is not None:
            # The node is executed again: what it had asked a model counts no more than what it had added.
            frame.memory.rewind(frame.savepoint)
            if frame.savepoint.added:
                adding.add(id(frame.memory))
    for frame in reversed(frames.values()):  # transcripts of branches begin with those of the enclosing frames
        if id(frame.memory) not in adding:
            journal.edited(frame)


def _header_of(run: RunDriver, header: RunHeader, status: Status, reason: str) -> RunHeader:
    runtime = run.runtime
    return replace(
        header, status=status, reason=reason, claim=None, turns=runtime.meter.turns, tokens=runtime.usage.total_tokens,
        cost=str(runtime.usage.cost), seconds=round(runtime.elapsed, 3),
    )  # fmt: skip
