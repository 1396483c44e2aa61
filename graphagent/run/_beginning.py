"""How a run begins, and how it is resumed: its log begins in the store, or is claimed there, before anything is executed."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from msgspec import structs

from graphagent import _clock
from graphagent.errors import (
    ConflictError,
    DeclinedError,
    RunClaimedError,
    RunEndedError,
    RunExistsError,
    RunNotFoundError,
    TooManyDeathsError,
)
from graphagent.events import RunEnded, RunResumed, RunStarted
from graphagent.llm import Deny
from graphagent.log._claim import Token
from graphagent.log._entries import EffectRecorded, Resumed, Started
from graphagent.log._header import RunHeader, header_key, time_of, title_of
from graphagent.log._log import Log
from graphagent.log._segments import read_header
from graphagent.log._submitted import DEFAULT
from graphagent.memory.steps._types import TaskStep
from graphagent.run._after import settle_quietly
from graphagent.run._answering import begin_features
from graphagent.run._deps import SCOPE
from graphagent.run._effects import RunEditor
from graphagent.run._ending import look_back_quietly
from graphagent.run._questions import stored_answer_type
from graphagent.run._reading import look_up_again, look_up_again_in
from graphagent.run._session import Beginning, Session
from graphagent.run._threads import NEXT_CAME, continued, continued_by_steps

if TYPE_CHECKING:
    from graphagent.memory.steps._types import Step
    from graphagent.memory.transcript._memory import RunMemory
    from graphagent.memory.transcript._prompt import Prompt
    from graphagent.protocols import Store
    from graphagent.run._agent_run import AgentRun
    from graphagent.run._config import RunConfig
    from graphagent.run._questions import Question
    from graphagent.run._threads import Continued


def begin(
    config: RunConfig, task: Any, *, run_id: str | None, owner: str, earlier: RunMemory | None = None,
    images: Iterable[Any] = (), thread: str = "", ends_busy: bool = False,
) -> AgentRun:  # fmt: skip
    """Return a run that has not begun. `ends_busy`: whether the last run of its thread is ended if it is not over."""
    steps: list[Step] = []
    floor = "trusted"
    if earlier is not None:
        given = earlier.transcript
        open_ = given.open_step
        steps = [*given.steps, *((open_,) if open_ is not None else ())]
        floor = given.floor
    log = Log()
    log.append(started(config, log, task, [*steps, TaskStep(task, images)], len(steps), config.system_prompt, floor))
    session = Session(config, log, run_id=_clock.new_id() if run_id is None else run_id, owner=owner)
    session.thread = thread
    session.beginning = beginning = Beginning(log)
    beginning.named, beginning.ends_busy = run_id is not None, ends_busy
    beginning.earlier = None if earlier is None else _stored(config, owner, earlier)
    return session.run


def _stored(config: RunConfig, owner: str, memory: RunMemory) -> AgentRun | None:
    """Return the run of a transcript, if it is in the same store, belongs to the same owner, and has ended."""
    editor = memory.editor
    if not isinstance(editor, RunEditor) or config.store is None:
        return None
    run = editor.run
    is_whole = run.parent is None and run.owner == owner and run.log.store is config.store
    return run if is_whole and run.over and run.log.stale is None else None


def started(
    config: RunConfig, log: Log, task: Any, steps: Iterable[Step], begun: int, rules: str, floor: str
) -> Started:  # fmt: skip
    """Return the entry with which a run begins in a log: `begun` of the steps are put before the task.

    Raises:
        SerializationError: the task cannot be stored.
    """
    return Started(
        first=config.compiled.first.name or "", value=log.keep(task, config.strategy.input_type),
        steps=tuple(map(_taken_over, steps)), begun=begun, rules=rules, trust=floor,
        strategy=config.strategy.outline if log.durable else None,
        declared=dict(config.strategy.declarations) if log.durable else {},
    )  # fmt: skip


def _taken_over(step: Step) -> Step:
    """Return a step of an earlier run without what the model was sent for it, if that is in the steps of that run."""
    prompt: Prompt | None = getattr(step, "prompt", None)
    if prompt is None or not prompt.ranges:
        return step
    found = copy.copy(step)
    object.__setattr__(found, "prompt", None)
    return found


async def begin_or_resume(run: AgentRun) -> None:
    """Begin the run, or resume it. Errors before it is claimed change nothing.

    Raises:
        RunClaimedError: somebody executes it, or resumed it since it was read.
        StoreError: it could not be read or written.
    """
    config, session = run.config, run.session
    if session.beginning is not None:
        if config.learns_later:
            await settle_quietly(config, run.owner)
            run.since = _clock.ticks()  # waiting does not count as time of this run
        ended = "" if config.store is None and not run.features else await _begin(run, session.beginning)
        session.beginning, session.claimed = None, True
        if ended:
            run.emit(RunEnded(ended, NEXT_CAME))
            await look_back_quietly(config, run.owner, ended)
        if run.handlers:
            run.emit(RunStarted(run.run_id, config.strategy.name, run.owner))
        return
    config.check_deps(config.deps, "agent.resume(run_id, deps=…)")
    if run.log.stale is not None:
        await run.log.recover()
    await look_up_again_in(run)
    if config.store is not None:
        await _claim(run, config.store)
    else:
        _record_given(run)
        run.log.append(Resumed())
    session.claimed, session.idle, session.unlearned = True, False, run.log.state.unlearned
    await begin_features(run)
    run.emit(RunResumed(run.run_id, config.strategy.name, run.owner))


async def _begin(run: AgentRun, beginning: Beginning) -> str:
    """Begin the run in a log of this attempt. Return the id of the run that ended with it; empty if none did."""
    session, memory, store, begun = run.session, run.memory, run.config.store, beginning.log.state.root.transcript
    if store is not None and run.log.stale is not None:  # an earlier attempt, whose commit failed
        try:
            await run.log.recover()
        except RunClaimedError as error:
            if beginning.queued is not None:
                raise
            raise RunExistsError(run.run_id, run.owner) from error
        if run.log.committed:
            session.beginning = None
            await _claim(run, store)
            return ""
        session.use(beginning.log, beginning.read)
    await look_up_again(run.features, run.owner, [begun])
    beginning.read = [
        (memory.handle(item, begun), place)
        for place, item in enumerate(begun.items)
        if memory.known(item.id) is not None
    ]
    try:
        if store is not None:
            return await _begin_stored(run, beginning, store)
        await _begin_in(run, beginning, Log())
    except BaseException:
        if run.log.stale is None:
            session.use(beginning.log, beginning.read)
        raise
    return ""


async def _begin_in(run: AgentRun, beginning: Beginning, log: Log) -> None:
    """Append the beginning of the run to a log, which may have what the run continues, and let the features see it there."""
    state, recorded, before = beginning.log.state, run.session.recorded, len(log.state.root.transcript)
    # The steps of an earlier run are in the log already, but for those of a thread, whose run has only been given its task.
    known = 0 if run.session.thread else before
    begun = state.root.transcript
    if recorded is not None:
        recorded.begin(log)
    steps, earlier = begun.steps[known:], max(begun.begun - known, 0)
    log.append(started(run.config, log, state.run.task, steps, earlier, begun.rules, begun.floor))
    run.session.use(log, beginning.read, before - known)
    if recorded is not None:
        recorded.begun(log)
    await begin_features(run)


async def _begin_stored(run: AgentRun, beginning: Beginning, store: Store) -> str:
    """Append the beginning of the run, and commit it. Return the id of the run that ended with it; empty if none did."""
    queued = beginning.queued
    if beginning.named and queued is None:
        await _check_free(run, store)
    while True:
        before = await (continued(run, store) if run.session.thread else continued_by_steps(run, beginning, store))
        log, token = _new_log(run, beginning, store, before), Token()
        await _begin_in(run, beginning, log)
        try:
            await log.claim(token)
        except RunClaimedError as error:
            if not isinstance(error.__cause__, ConflictError):  # somebody begins it, or died when it had begun to
                raise
            item = await store.get(header_key(run.owner, run.run_id)) if before is not None else None
            if before is not None and (item.version if item is not None else 0) == (
                queued.version if queued is not None else 0
            ):
                continue  # somebody else continued the thread since it was read, or the earlier run was removed
            if queued is not None:
                raise
            raise RunExistsError(run.run_id, run.owner) from error
        run.session.token = token
        return "" if before is None else before.ended


def _new_log(run: AgentRun, beginning: Beginning, store: Store, before: Continued | None) -> Log:
    """Return the log in which the run begins in a store, with the transcript that it continues."""
    config, queued, now = run.config, beginning.queued, _clock.now()
    earlier = before.header if before is not None else None
    header = structs.replace(
        RunHeader(run_id=run.run_id, owner=run.owner) if queued is None else queued.header,
        strategy=config.strategy.name, strategy_digest=config.strategy.outline.digest, version=config.named_version, written="running",
        started=now, updated=now, title=title_of(beginning.log.state.run.task), thread=run.session.thread,
        previous="" if earlier is None else earlier.run_id,
        first="" if earlier is None else earlier.first or earlier.run_id, place=0 if earlier is None else earlier.place + 1,
    )  # fmt: skip
    log = Log(store, header, types=config.kind_of_step)
    if queued is not None:
        log.is_at(queued.header, queued.version)
        log.header = header
        log.along(*queued.changes)
    if before is not None:
        log.state.root.transcript = before.transcript
        log.along(*before.changes)
        log.codec.blobs.last = before.payloads
    log.codec.refers_at[""] = config.refers
    log.executed = lambda: run.elapsed
    return log


async def _check_free(run: AgentRun, store: Store) -> None:
    """Check that the store has nothing of a run of this id, before the features begin and nodes are executed."""
    try:
        await read_header(store, run.owner, run.run_id)
    except RunNotFoundError:
        return
    raise RunExistsError(run.run_id, run.owner)


async def _claim(run: AgentRun, store: Store) -> None:
    """Claim a run that nobody executes, and write that it is resumed, with the answers to its questions.

    Raises:
        RunClaimedError: somebody executes it, or resumed it since it was read.
        StoreError: it could not be read or written.
    """
    session, log, token = run.session, run.log, Token()
    header = await _free(log, store)
    died = header.deaths + 1 if header.written == "running" and header.claim is not None else 0
    due = await time_of(store) if session.is_left else 0
    log.header = structs.replace(header, written="running", reason="", deaths=died, due=due)
    _record_given(run)
    _append_resumed(log, run.config)
    log.lost = False
    await log.claim(token)
    session.token = token
    if session.most_deaths is not None and died >= session.most_deaths:
        session.claimed = True
        raise TooManyDeathsError(run.run_id, died)


async def queue_again(
    log: Log, answers: Iterable[tuple[Question, object]] = (), config: RunConfig | None = None
) -> RunHeader:
    """Write that a run which nobody executes is to be continued by a worker, with the answers to its questions. Return its header.

    Args:
        log: Its log, as it was read.
        answers: The questions, each with its answer.
        config: Its agent, whose strategy the run continues with; None: its own strategy.

    Raises:
        RunClaimedError: somebody executes it, or resumed it since it was read.
        RunEndedError: it was ended.
        StoreError: it could not be read or written.
    """
    store = log.store
    assert store is not None
    header, due = await _free(log, store), await time_of(store)
    log.header = structs.replace(
        header, claim=None, written="queued", reason="", queue=header.queue or DEFAULT, deaths=0, due=due
    )
    for question, answer in answers:
        _record_answer(log, question, answer)
    _append_resumed(log, config)
    await log.commit(header=True)
    return log.header


async def _free(log: Log, store: Store) -> RunHeader:
    """Return the header of a run that nobody executes, as it is in the store. Its log continues from there.

    Raises:
        RunClaimedError: somebody executes it, or resumed it since it was read.
        RunEndedError: it was ended.
        StoreError: it could not be read.
    """
    owner, run_id = log.header.owner, log.header.run_id
    header, version = await read_header(store, owner, run_id)
    header.check_free()
    if header.written == "ended":
        raise RunEndedError(run_id, header.reason)
    if header.last > log.committed:
        raise RunClaimedError(run_id, "another process, which continued it")
    log.is_at(header, version)
    log.waits_no_more()
    return header


def _append_resumed(log: Log, config: RunConfig | None) -> None:
    """Append that a run continues, with the strategy of its agent, to which a migration may have moved it; or without one, with its own."""
    if config is None:
        log.append(Resumed())
        return
    outline = config.strategy.outline
    changed = outline if outline.digest != log.header.strategy_digest else None
    log.header = structs.replace(log.header, strategy_digest=outline.digest, version=config.named_version)
    log.append(Resumed(strategy=changed, declared=config.declared_since(log.state.run)))


def _record_given(run: AgentRun) -> None:
    """Append the answers that were given to a run of this process."""
    session = run.session
    for id_, answer in session.answers.items():
        if id_ in run.log.state.questions:
            _record_answer(run.log, session.question(id_), answer)
            session.asked.pop(id_, None)
    session.answers.clear()
    session.idle = False  # the commit may fail, and the answers are there all the same


def _record_answer(log: Log, question: Question, answer: object) -> None:
    """Append an answer, at the place where the node that asked finds it."""
    stored = log.state.questions[question.id]
    declined = answer if question.kind == "question" and isinstance(answer, Deny) else None
    kind = stored_answer_type(question.kind, question.type, declined=declined is not None)
    log.append(
        EffectRecorded(
            at=stored.at, kind="answer", key=stored.key, value=log.keep(answer, kind),
            error=None if declined is None else (DeclinedError.__name__, declined.reason),
            lasting=stored.key.startswith(f"{SCOPE}/"),
        )
    )  # fmt: skip
