"""Driving a run: beginning it, resuming it, executing its strategy until its answer is accepted, stopping it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import anyio

from graphagent import _clock
from graphagent._features import implementing
from graphagent.errors import AnswerError, ArgumentsError, CheckError, GraphAgentError, RunError, SerializationError
from graphagent.events import RunFailed, RunFinished, RunResumed, RunStarted, RunSuspended
from graphagent.graph._internal import fits
from graphagent.llm import Approve
from graphagent.memory import FinalAnswerStep, RunMemory, Step, TaskStep
from graphagent.run.engine._budgets import Meter
from graphagent.run.engine._callbacks import call_with
from graphagent.run.engine._context import LiveFrame
from graphagent.run.engine._learning import learn_again
from graphagent.run.engine._runtime import Runtime
from graphagent.run.engine._suspend import Suspend

if TYPE_CHECKING:
    from graphagent.llm import Image
    from graphagent.run._config import RunConfig
    from graphagent.run._result import RunResult
    from graphagent.run.engine._threads import StoredTranscript
    from graphagent.run.journal._claim import Token
    from graphagent.run.journal._reader import JournalReader
    from graphagent.run.journal._writer import JournalWriter
    from graphagent.run.state._questions import Question
    from graphagent.run.state._status import Status

_WITHOUT_STORE = (
    "it is in no store, so it can be continued in this process alone: run = agent.start(…), or agent.last after agent.run(…); "
    "run.answer(…); await run.finish()"
)


class RunDriver:
    """One run, as the engine has it. `Run` is its face for users."""

    # Most runs never have these.
    at_rest: RunResult[Any] | None = None
    """The result when the run came to rest."""
    claimed = False
    """Whether this object executes the run, in a store or in none."""
    journal: JournalReader | None = None
    """The journal from which it was read, until it is resumed."""
    token: Token | None = None
    """The claim, in a store."""
    untouched = True
    """Whether nothing has happened but that the run was begun."""
    begun = False
    known_tools: Mapping[str, Sequence[Mapping[str, Any]]] = MappingProxyType({})
    """The descriptions of tools in the journal of a run that is executed again, by the names of the servers."""
    earlier: StoredTranscript | None = None
    """Where the store has the transcript that was passed as `steps=`."""
    _idle = False
    _stopped = False
    _final: FinalAnswerStep | None = None
    _looked_back = False

    def __init__(
        self,
        config: RunConfig,
        memory: RunMemory,
        task: Any,
        *,
        run_id: str,
        owner: str,
        parent: str = "",
        thread: str = "",
    ) -> None:
        self.config = config
        self.task = task
        self.parent = parent
        """The id of the run of which it is a part."""
        self.thread = thread
        """The thread whose transcript it continues."""
        self.max_seconds = config.budgets.max_seconds
        meter = Meter(None, config.budgets)
        runtime = self.runtime = Runtime(
            run_id=run_id, owner=owner, memory=memory, meter=meter, features=config.features, handlers=config.handlers,
            clock=config.clock, output_type=config.strategy.output_type,
        )  # fmt: skip
        runtime.planning_interval, runtime.deps = config.planning_interval, config.deps
        if config.callbacks:
            call_with(runtime, config.callbacks, partial(config.facade, self))
        outer = LiveFrame(runtime, "", memory, meter, config.model, config.tools)
        setting = config.strategy.setting
        self.frame = outer if setting is None else LiveFrame(runtime, "", memory, *outer.with_setting(setting))
        """The frame of the agent's own strategy."""

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self.runtime.run_id

    @property
    def facade(self) -> Any:
        """The `Run` that users see. It is not kept here: two objects that refer to each other wait for the garbage collector."""
        return self.config.facade(self)

    @property
    def result(self) -> RunResult[Any]:
        """The result of the run, as far as it has come."""
        if self.runtime.since is not None:
            return self.runtime.result(status="running", unfinished="it is being executed")
        return self.at_rest or self.runtime.result(status="ready", unfinished="it has not begun")

    @property
    def status(self) -> Status:
        """Where the run is."""
        return self.result.status

    @property
    def done(self) -> bool:
        """Whether the run came to END."""
        return self.at_rest is not None and self.at_rest.done

    def writers(self) -> Iterator[JournalWriter]:
        """Yield the writer of the run if it is being executed, and then those of the sub-agents' runs that are executed in it."""
        # In this order: where the run is lost, what is a part of it is not renewed, so its next holder need not wait for that.
        runtime = self.runtime
        if self.claimed and runtime.since is not None and runtime.journal is not None:
            yield runtime.journal.writer
        for child in [*runtime.children.values()]:
            yield from child.writers()

    # ---- executing

    async def step(self) -> Step | None:
        """Execute until the next step is in the transcript, and return it; None if the run has ended, waits or is paused."""
        handed = self.runtime.handed
        if not (handed or self._stopped or self.done):
            await self._continue(stepping=True)
        if handed:
            return handed.pop(0)
        self._stopped = False
        return None

    async def finish(self) -> RunResult[Any]:
        """Execute until the run has ended, waits for answers, or is paused; return its result."""
        self.runtime.handed.clear()
        if not self.done:
            await self._continue(stepping=False)
        elif not self._looked_back:
            await self._look_back(self.result.output)  # the process in which it ended may have died before that
        self._stopped = False
        return self.result

    async def release(self) -> None:
        """Release the claim, so that another process can resume the run."""
        if self.claimed and self.runtime.journal is not None:
            await self._stop("paused", "released")

    async def _continue(self, *, stepping: bool) -> None:
        runtime = self.runtime
        if runtime.since is not None:
            raise runtime.of_run(RunError(f"run {runtime.run_id!r} is being executed already; await that"))
        if self._idle and not runtime.answers:
            return
        runtime.since, runtime.root = runtime.clock(), self.frame
        runtime.reexecuting = runtime.reexecuting or self.frame.compiled is not None
        try:
            if not self.claimed:
                await self._take_up()
            runtime.stepping = stepping
            if runtime.journal is None or runtime.parent is not None:  # the enclosing run renews its claim
                step = await self._execute()
            else:
                from graphagent.run.engine._heartbeat import claimed

                step = await claimed(runtime.run_id, self.writers, self._execute)
            await self._end(step)
        except Suspend:
            await self._suspend()
        except BaseException as error:
            if self.claimed:
                await self._fail(error)
            raise
        finally:
            # At rest there must be no circle of references, which waits for the garbage collector.
            runtime.seconds, runtime.since, runtime.root, runtime.stepping = runtime.elapsed, None, None, False
            runtime.backend = None  # it may be continued in another kind of event loop

    async def _take_up(self) -> None:
        """Begin the run, or resume it. Errors before it is claimed change nothing."""
        runtime, config = self.runtime, self.config
        config.check_deps(runtime.deps, "agent.resume(run_id, deps=…)")
        if config.store is None or self.begun:
            await self.begin_features()
        if config.store is not None:
            from graphagent.run.engine import _lifecycle

            await (_lifecycle.claim if self.begun else _lifecycle.create)(self, config.store)
        self.claimed = True
        if not self.begun:
            self.begun = True
            if runtime.handlers:
                runtime.emit(RunStarted(runtime.run_id, config.strategy.name, runtime.owner))
            return
        for id_, answer in runtime.answers.items():  # who asks finds them
            frame, question = runtime.asking[id_], runtime.questions[id_]
            if frame.effects is None or question.key not in frame.effects:  # else the journal has them
                frame.effect_done(question.key, value=answer)
        runtime.answers.clear()
        runtime.close_questions("")
        runtime.emit(RunResumed(runtime.run_id, config.strategy.name, runtime.owner))

    async def begin_features(self) -> None:
        """Show the run to the features, with the transcript that it continues."""
        for feature in self.config.features.values():
            await feature.begin(self.frame.context)

    async def _execute(self) -> FinalAnswerStep:
        """Execute the strategy from its current node until its answer is accepted."""
        runtime = self.runtime
        if self.config.servers:
            from graphagent.run.engine._tool_servers import list_tools

            await list_tools(self.config, runtime, self.known_tools)
        if runtime.callbacks is not None and self.untouched:
            self.untouched = False
            for step in runtime.memory.steps[runtime.memory.begun :]:
                if isinstance(step, TaskStep) and step.task is self.task:
                    veto = await runtime.called_back(step)
                    if veto is not None:
                        self.untouched = True  # whoever resumes the run is asked again
                        runtime.fail(veto)
        if runtime.journal is not None:
            from graphagent.run.engine import _lifecycle

            await _lifecycle.record_edits(self)
        self.at_rest, self._idle = None, False
        runtime.attention = runtime.attention or runtime.stepping
        if self.max_seconds is None:
            return await self._answer()
        left = self.max_seconds - runtime.elapsed
        if left > 0:
            with anyio.move_on_after(left):
                return await self._answer()
        raise runtime.budget_error("seconds", self.max_seconds)

    async def _answer(self) -> FinalAnswerStep:
        """Execute the strategy until its answer passes the final checks, and no callback refuses it."""
        runtime, config, memory = self.runtime, self.config, self.runtime.memory
        if runtime.attention:
            runtime.stop_if_due()
        while self._final is None:
            output = await config.call(self.frame.context, self.task)
            if memory.open is not None:
                await self.frame.close_turn()
            step = FinalAnswerStep(output)
            if config.checks or runtime.callbacks is not None:
                refusal = await self._refusal(step)
                if refusal is not None:
                    await self._ask_again(*refusal)
                    continue
            memory.steps.append(step)
            runtime.added.append(step)
            self._final = step
        return self._final

    async def _refusal(self, step: FinalAnswerStep) -> tuple[RunError, str] | None:
        """Return the refusal of an answer, and the text for the model; None if the answer is accepted."""
        for check in self.config.checks:
            text = await check.refusal(step.output, self.facade)
            if text is not None:
                return CheckError(check.name), text
        if self.runtime.callbacks is None:
            return None
        veto = await self.runtime.called_back(step)
        return None if veto is None else (veto, f"Your answer was refused: {veto.reason}. Answer again.")

    async def _ask_again(self, refusal: RunError, text: str) -> None:
        """Return to the node that asked a model last, or raise the refusal if it cannot be asked again."""
        runtime, node = self.runtime, self.runtime.asked
        if node is None or not fits(str, getattr(node.element, "input_type", object)):
            raise runtime.of_run(refusal)
        if runtime.journal is None:
            self.frame.moved(node.name)
            self.frame.compiled, self.frame.value = node, text
        else:
            runtime.journal.placed(self.frame, node, text, str)
            await runtime.journal.commit()

    # ---- stopping

    async def _suspend(self) -> None:
        runtime = self.runtime
        if runtime.stepping:
            runtime.handed += runtime.added
        reason, runtime.pausing = runtime.pausing, None
        if reason is not None:
            await self._stop("paused", f"it was paused: {reason}")
        elif runtime.questions:
            asked = "; ".join(question.question for question in runtime.questions.values())
            how = "" if self.config.store is not None else f"; {_WITHOUT_STORE}"
            await self._stop("waiting", f"it waits for an answer: {asked}{how}")
            self._idle = True
        else:
            self.at_rest = runtime.result(status="running", unfinished="it is being stepped through")
            return
        self._stopped = True
        runtime.report_steps()
        questions = tuple(runtime.questions.values())
        runtime.emit(RunSuspended(runtime.run_id, reason if reason is not None else "waiting", questions))

    async def _fail(self, error: BaseException) -> None:
        runtime = self.runtime
        cancelled = isinstance(error, anyio.get_cancelled_exc_class())
        reason = "it was cancelled" if cancelled else f"it failed with {type(error).__name__}"
        reason += f": {error}" if isinstance(error, GraphAgentError) else ""  # texts of others may contain a value
        runtime.questions.clear()
        runtime.pausing, self._idle = None, False
        with anyio.CancelScope(shield=True):
            status: Status = "cancelled" if cancelled else "failed"
            await self._stop(status, reason, error if isinstance(error, Exception) else None)
        runtime.report_steps()
        runtime.emit(RunFailed(runtime.run_id, error))

    async def _stop(self, status: Status, reason: str, failure: Exception | None = None) -> None:
        """Release the run, with its transcript so far."""
        self.at_rest = self.runtime.result(status=status, unfinished=reason)
        if self.config.store is not None:
            from graphagent.run.engine import _lifecycle

            await _lifecycle.release(self, status, reason, failure)
        self.claimed = False

    async def _end(self, step: FinalAnswerStep) -> None:
        runtime = self.runtime
        runtime.questions.clear()
        if runtime.journal is not None:
            from graphagent.run.engine import _lifecycle

            await _lifecycle.conclude(self, step)
        self.at_rest, self.claimed = runtime.result(step.output), False
        failure, runtime.failure, runtime.pausing = runtime.failure, None, None
        may_spend = bool(self.config.features or runtime.unlearned)
        try:
            await self._look_back(step.output)
        finally:
            if may_spend:
                self.at_rest = runtime.result(step.output)
            if runtime.stepping:
                runtime.handed += runtime.added
            runtime.report_steps()
            if runtime.handlers:
                runtime.emit(RunFinished(runtime.run_id, step.output, runtime.usage))
        if failure is not None:
            raise failure

    async def _look_back(self, output: Any) -> None:
        """Show the run, which has ended, to the features."""
        for feature in implementing(self.config.features, "ended"):
            await feature.ended(self.frame.context, output)
        if self.runtime.unlearned:
            await learn_again(self.config, self.frame)
        self._looked_back = True

    # ---- answers

    def only_question(self) -> str:
        """Return the id of the only open question.

        Raises:
            AnswerError: there is none, or there are several.
        """
        run_id, questions = self.runtime.run_id, self.runtime.questions
        if len(questions) == 1:
            return next(iter(questions))
        if not questions:
            ended = "has ended and " if self.done else ""
            raise self.runtime.of_run(AnswerError("", f"run {run_id!r} {ended}waits for no answer; leave it out"))
        ids = ", ".join(map(repr, questions))
        text = f"run {run_id!r} waits for several answers: give answers={{id: …}}; the ids are {ids}"
        raise self.runtime.of_run(AnswerError("", text))

    def answer(self, answers: Mapping[str, object]) -> None:
        """Take answers to open questions, by their ids.

        Raises:
            AnswerError: one fits no question, or not its type, or cannot be used or stored. None of the answers is taken then.
        """
        runtime = self.runtime
        checked: dict[str, object] = {}
        for id_, answer in answers.items():
            question = runtime.questions.get(id_)
            if question is None:
                ids = ", ".join(map(repr, runtime.questions)) or "none"
                text = f"run {runtime.run_id!r} has no open question {id_!r}; open are: {ids}"
                raise runtime.of_run(AnswerError(id_, text))
            try:
                checked[id_] = question.check(answer)
                self._check_use(question, checked[id_])
            except AnswerError as error:
                raise runtime.of_run(error) from None
        runtime.answers.update(checked)

    def _check_use(self, question: Question, answer: object) -> None:
        """Check that a tool takes the arguments that were changed, and that the store can hold the answer."""
        call, changed = question.call, answer.arguments if isinstance(answer, Approve) else None
        if call is not None and changed is not None:
            for tool in self.runtime.asking[question.id].tools:
                try:
                    if tool.name == call.name:
                        tool.check(changed)
                except ArgumentsError as error:
                    text = f"the answer to {question.id!r} changes the call: {error}"
                    raise AnswerError(question.id, text) from None
        if self.config.store is not None:
            from graphagent.codec._internal import HeldBlobs, encode

            try:
                encode(answer, HeldBlobs(), question.type)
            except SerializationError as error:
                raise AnswerError(question.id, f"the answer to {question.id!r} cannot be kept: {error}") from None


def begin(
    config: RunConfig,
    task: Any,
    *,
    run_id: str | None,
    owner: str,
    earlier: RunMemory | None = None,
    images: Iterable[Image] = (),
    parent: str = "",
    thread: str = "",
    trust: str = "trusted",
) -> RunDriver:
    """Return a run that has not begun, whose task has a trust."""
    memory = RunMemory(config.system_prompt)
    stored: StoredTranscript | None = None
    if earlier is not None:
        stored = earlier.stored if earlier.is_stored else None
        if stored is not None and (stored.store is not config.store or stored.header.owner != owner):
            stored = None
        memory.follow(earlier, known=stored is not None)
    memory.lower(trust)
    memory.begin(task, images)
    run = RunDriver(config, memory, task, run_id=run_id or _clock.new_id(), owner=owner, parent=parent, thread=thread)
    run.earlier = stored
    return run
