"""A run: started, stepped through, paused, answered, gone on with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import anyio

from graphagent import _clock
from graphagent._features import implementing
from graphagent.errors import AnswerError, ArgumentsError, CheckError, GraphAgentError, RunError, SerializationError
from graphagent.events import Event, RunFailed, RunFinished, RunResumed, RunStarted, RunSuspended
from graphagent.graph._internal import fits
from graphagent.llm import Approve
from graphagent.memory import FinalAnswerStep, RunMemory, Step, TaskStep
from graphagent.run._budgets import Meter, check_budgets
from graphagent.run._callbacks import caller
from graphagent.run._context import Context
from graphagent.run._listening import Listener, by_type
from graphagent.run._state import RunState
from graphagent.run._suspend import Halt

if TYPE_CHECKING:
    from decimal import Decimal

    from graphagent.llm import Image
    from graphagent.run._claim import Token
    from graphagent.run._recording import Recording
    from graphagent.run._result import RunResult, Status
    from graphagent.run._setup import Setup
    from graphagent.run._suspend import Question

O = TypeVar("O", covariant=True)
_NO_ANSWER: Any = object()
_WITHOUT_STORE = (
    "it is in no store, so it can be continued in this process alone: run = agent.start(…), or agent.last after agent.run(…); "
    "run.answer(…); await run.finish()"
)


class Run(Generic[O]):
    """One run of an agent. `agent.start(…)` gives one that has not begun, `agent.read(run_id)` one from the store.

    ```text
    run = agent.start("What is new?")
    while (step := await run.step()) is not None:
        …
    print(run.output)
    ```
    """

    # What most runs never have stands here.
    at_rest: RunResult[O] | None = None
    """What it had come to when it came to rest. For the engine, as are the others here."""
    held = False
    """Whether it is this object that goes on with the run, in a store."""
    recording: Recording | None = None
    """What it was read from, until it goes on."""
    token: Token | None = None
    """Its claim, while it is held."""
    untouched = True
    """Whether nothing has happened to it yet but that it was begun."""
    _begun = False
    _idle = False
    _stopped = False
    _final: FinalAnswerStep | None = None
    _looked_back = False

    def __init__(
        self,
        setup: Setup,
        memory: RunMemory,
        task: Any,
        *,
        run_id: str,
        owner: str,
        parent: str = "",
        begun: bool = False,
    ) -> None:
        self.setup = setup
        """What the agent gave it."""
        self.task = task
        """What it was given."""
        self.parent = parent
        """The run that it is a part of."""
        if begun:
            self._begun, self.untouched = True, False
        self._max_seconds = setup.budgets.max_seconds
        self.state: RunState = RunState(
            run_id=run_id, owner=owner, memory=memory, meter=Meter(None, setup.budgets), features=setup.features,
            handlers=setup.handlers, clock=setup.clock, gives=setup.strategy.output_type,
        )  # fmt: skip
        """Its own affairs."""
        self.state.planning_interval, self.state.deps = setup.planning_interval, setup.deps
        if setup.callbacks:
            caller(self.state, setup.callbacks, self)
        root = Context(self.state, setup.model, setup.tools, memory, self.state.meter, "")
        own = setup.strategy.setting
        self.context: Context = root if own is None else root.inside("", own)
        """That of the agent's own strategy."""

    # ---- what it is

    @property
    def run_id(self) -> str:
        """How it is called."""
        return self.state.run_id

    @property
    def owner(self) -> str:
        """For whom it runs; empty where nobody was named."""
        return self.state.owner

    @property
    def memory(self) -> RunMemory:
        """The transcript. Its steps may be changed while nothing is being executed, and by callbacks."""
        return self.state.memory

    @property
    def result(self) -> RunResult[O]:
        """What the run has come to."""
        if self.state.since is not None:
            return self.state.result(status="running", unfinished="it is being executed")
        return self.at_rest or self.state.result(status="ready", unfinished="it has not begun")

    @property
    def status(self) -> Status:
        """Where it is."""
        return self.result.status

    @property
    def done(self) -> bool:
        """Whether it came to END."""
        return self.at_rest is not None and self.at_rest.done

    @property
    def output(self) -> O:
        """What arrived at END.

        Raises:
            RunError: it did not come to END.
        """
        return self.result.output

    @property
    def questions(self) -> tuple[Question, ...]:
        """What it waits for."""
        return tuple(self.state.questions.values())

    @property
    def pending(self) -> Question | None:
        """The first open question."""
        return next(iter(self.state.questions.values()), None)

    def replay(self, *, detailed: bool = False) -> None:
        """Print what happened, step by step; `detailed` adds what the model was sent."""
        self.result.replay(detailed=detailed)

    # ---- what is done with it

    async def step(self) -> Step | None:
        """Go on until the next step stands in the transcript, and give it; None where the run has ended, waits or paused.

        Inside a fork it goes on to the join, and gives the steps of the branches one by one. No task outlives the call. Called
        again behind a None, it goes on with a run that was paused, or that was answered.

        Raises:
            RunError: as `finish` does.
        """
        handed = self.state.handed
        if not (handed or self._stopped or self.done):
            await self._go_on(stepping=True)
        if handed:
            return handed.pop(0)
        self._stopped = False
        return None

    async def finish(self) -> RunResult[O]:
        """Go on until the run has ended, waits for answers, or is paused; give what it has come to.

        Raises:
            NodeFailedError: a node raised; the original exception is the cause.
            NoPathError: no way out of a node takes its output.
            BudgetError: a budget is used up; `.result` is what was done so far.
            RunClaimedError: another process, or another task, has the run.
            StoreError: an entry could not be kept; the run can be resumed.
        """
        self.state.handed.clear()
        if not self.done:
            await self._go_on(stepping=False)
        elif not self._looked_back:
            await self._look_back(self.output)  # the process that it ended in may have died before that
        self._stopped = False
        return self.result

    def pause(self, reason: str = "") -> None:
        """Have the run stop before the next node, model turn or tool call; it can be gone on with. Callbacks may call it too."""
        self.state.pause(reason)

    def allow(
        self,
        *,
        max_nodes: int | None = None,
        max_turns: int | None = None,
        max_tokens: int | None = None,
        max_cost: Decimal | float | None = None,
        max_seconds: float | None = None,
    ) -> None:
        """Set what the run may take in all, after a BudgetError for example. What is left out stays as it is.

        Raises:
            ValueError: one is no budget, or `max_cost` has no prices to count with.
        """
        from graphagent.run._agents import check_prices  # which knows sub-agents, and they are runs

        check_budgets(
            max_nodes=max_nodes, max_turns=max_turns, max_tokens=max_tokens, max_cost=max_cost, max_seconds=max_seconds
        )
        setup = self.setup
        if max_cost is not None:
            check_prices(setup.strategy, setup.tools, setup.model, max_cost)
        meter = self.state.meter
        meter.max_nodes = meter.max_nodes if max_nodes is None else max_nodes
        meter.max_turns = meter.max_turns if max_turns is None else max_turns
        meter.max_tokens = meter.max_tokens if max_tokens is None else max_tokens
        meter.max_cost = meter.max_cost if max_cost is None else max_cost
        self._max_seconds = self._max_seconds if max_seconds is None else max_seconds

    def listen(self, handler: Callable[[Event], None], /, *, all_text: bool = False) -> None:
        """Call a handler for each event of this run alone; else as `agent.on(Event, handler)`."""
        self.state.handlers = by_type([Listener(Event, handler, all_text)], self.state.handlers)

    def answer(self, answer: object = _NO_ANSWER, /, *, answers: Mapping[str, object] | None = None) -> None:
        """Answer the open question, or several by their ids; the run goes on with `finish` or `step`.

        Raises:
            AnswerError: there is no such question, several are open and one answer was given, it is of the wrong type, it changes
                a tool call to what the tool does not take, or the store cannot keep it. None of the answers is taken then.
        """
        if answer is not _NO_ANSWER:
            answers = {self._only(): answer, **(answers or {})}
        elif answers is None:
            raise TypeError("there is no answer: write run.answer(…), or run.answer(answers={id: …})")
        self._check_answers(answers)

    async def release(self) -> None:
        """Let the run go, so that another process may go on with it. A run that ended, waits or paused has been let go."""
        if self.held and self.state.journal is not None:
            await self._stop("paused", "released")

    async def __aenter__(self) -> Run[O]:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.release()

    # ---- how it goes on

    async def _go_on(self, *, stepping: bool) -> None:
        state = self.state
        if state.since is not None:
            raise self._of_run(RunError(f"run {self.run_id!r} is being executed already; await that"))
        if self._idle and not state.answers:
            return
        state.since, state.root = state.clock(), self.context
        try:
            if not self.held:
                await self._take_up()
            state.stepping = stepping
            if state.journal is None or state.around is not None:  # the run around renews its claim
                step = await self._executed()
            else:
                from graphagent.run._heartbeat import claimed

                step = await claimed(self, self._executed)
            await self._ended(step)
        except Halt:
            await self._halted()
        except BaseException as error:
            if self.held:
                await self._broken(error)
            raise
        finally:
            # What is at rest must not stand in a circle, which waits for the garbage collector.
            state.seconds, state.since, state.root, state.stepping = state.elapsed, None, None, False

    async def _take_up(self) -> None:
        """Begin the run, or go on with it. What is raised before it is held changes nothing."""
        state, store = self.state, self.setup.store
        if self.setup.asked:
            from graphagent.run._deps import check_deps  # which knows sub-agents, and they are runs

            check_deps(self.setup.asked, state.deps, "agent.resume(run_id, deps=…)")
        for feature in self.setup.features.values():
            await feature.begin(self.context)
        if self._begun:
            if store is not None:
                from graphagent.run._durable import claim

                await claim(self, store)
            self.held = True
            self._give_answers()
            state.emit(RunResumed(state.run_id, self.setup.strategy.name, state.owner))
        else:
            if store is not None:
                from graphagent.run._durable import create

                await create(self, store)
            self._begun = self.held = True
            if state.handlers:
                state.emit(RunStarted(state.run_id, self.setup.strategy.name, state.owner))

    async def _executed(self) -> FinalAnswerStep:
        """Execute the strategy from its current position."""
        state = self.state
        if state.callbacks is not None and self.untouched:
            self.untouched = False
            for step in self.memory.steps[self.memory.begun :]:
                if isinstance(step, TaskStep) and step.task is self.task:
                    veto = await state.called_back(step)
                    if veto is not None:
                        self.untouched = True  # whoever goes on is asked again
                        state.fail(veto)
        if state.journal is not None:
            from graphagent.run._durable import keep_edits

            await keep_edits(self)
        self.at_rest, self._idle = None, False
        state.attention = state.attention or state.stepping
        return await (self._accepted() if self._max_seconds is None else self._in_time(self._max_seconds))

    async def _in_time(self, budget: float) -> FinalAnswerStep:
        left = budget - self.state.elapsed
        if left > 0:
            with anyio.move_on_after(left):
                return await self._accepted()
        raise self.state.spent("seconds", budget)

    async def _accepted(self) -> FinalAnswerStep:
        """Execute the strategy until its answer passes the final checks, and no callback refuses it."""
        ctx, state, setup = self.context, self.state, self.setup
        memory = state.memory
        if state.attention:
            state.go_on()
        while self._final is None:
            output = await setup.call(ctx, self.task)
            if memory.open is not None:
                await ctx.shut()
            step = FinalAnswerStep(output)
            if setup.checks or state.callbacks is not None:
                refusal = await self._refusal(step)
                if refusal is not None:
                    await self._ask_again(*refusal)
                    continue
            memory.steps.append(step)
            state.added.append(step)
            self._final = step
        return self._final

    async def _refusal(self, step: FinalAnswerStep) -> tuple[RunError, str] | None:
        """Give what refuses an answer, and what the model is told; None where it is accepted."""
        for check in self.setup.checks:
            said = await check.refusal(step.output, self)
            if said is not None:
                return CheckError(check.name), said
        if self.state.callbacks is None:
            return None
        veto = await self.state.called_back(step)
        return None if veto is None else (veto, f"Your answer was refused: {veto.reason}. Answer again.")

    async def _ask_again(self, refusal: RunError, said: str) -> None:
        """Go back to where a model was asked last, or raise the refusal where it cannot be asked again."""
        ctx, state = self.context, self.state
        slot = state.asked
        if slot is None or not fits(str, getattr(slot.element, "input_type", object)):
            raise self._of_run(refusal)
        ctx.at = slot, said
        if state.journal is not None:
            state.journal.moved(ctx, slot, said, str)
            await state.journal.commit()

    async def _halted(self) -> None:
        state = self.state
        if state.stepping:
            state.handed += state.added
        reason, state.pausing = state.pausing, None
        if reason is not None:
            await self._stop("paused", f"it was paused: {reason}")
        elif state.questions:
            asked = "; ".join(question.question for question in state.questions.values())
            how = "" if self.setup.store is not None else f"; {_WITHOUT_STORE}"
            await self._stop("waiting", f"it waits for an answer: {asked}{how}")
            self._idle = True
        else:
            self.at_rest = state.result(status="running", unfinished="it is being stepped through")
            return
        self._stopped = True
        state.told()
        state.emit(RunSuspended(state.run_id, reason if reason is not None else "waiting", self.questions))

    async def _broken(self, error: BaseException) -> None:
        state = self.state
        cancelled = isinstance(error, anyio.get_cancelled_exc_class())
        said = "it was cancelled" if cancelled else f"it failed with {type(error).__name__}"
        said += f": {error}" if isinstance(error, GraphAgentError) else ""  # others may say a value
        state.questions.clear()
        state.pausing, self._idle = None, False
        with anyio.CancelScope(shield=True):
            await self._stop(
                "cancelled" if cancelled else "failed", said, error if isinstance(error, Exception) else None
            )
        state.told()
        state.emit(RunFailed(state.run_id, error))

    async def _stop(self, status: Status, reason: str, failure: Exception | None = None) -> None:
        """Let the run go, with what was said so far."""
        self.at_rest = self.state.result(status=status, unfinished=reason)
        if self.setup.store is not None:
            from graphagent.run._durable import let_go

            await let_go(self, status, reason, failure)
        self.held = False

    async def _ended(self, step: FinalAnswerStep) -> None:
        state = self.state
        state.questions.clear()
        if state.journal is not None:
            from graphagent.run._durable import conclude

            await conclude(self, step)
        self.at_rest, self.held = state.result(step.output), False
        failure, state.failure, state.pausing = state.failure, None, None
        try:
            await self._look_back(step.output)
        finally:
            self.at_rest = state.result(step.output)
            if state.stepping:
                state.handed += state.added
            state.told()
            if state.handlers:
                state.emit(RunFinished(state.run_id, step.output, state.usage))
        if failure is not None:
            raise failure

    async def _look_back(self, output: Any) -> None:
        """Have features look at the run, which has ended."""
        for feature in implementing(self.setup.features, "ended"):
            await feature.ended(self.context, output)
        if self.state.unlearned:
            from graphagent.run._learning import learn_again

            await learn_again(self)
        self._looked_back = True

    # ---- answers

    def _only(self) -> str:
        questions = self.state.questions
        if len(questions) == 1:
            return next(iter(questions))
        if not questions:
            ended = "has ended and " if self.done else ""
            raise self._of_run(AnswerError("", f"run {self.run_id!r} {ended}waits for no answer; leave it out"))
        ids = ", ".join(map(repr, questions))
        raise self._of_run(
            AnswerError("", f"run {self.run_id!r} waits for several answers: give answers={{id: …}}; the ids are {ids}")
        )

    def _check_answers(self, answers: Mapping[str, object]) -> None:
        state = self.state
        checked: dict[str, object] = {}
        for id_, answer in answers.items():
            question = state.questions.get(id_)
            if question is None:
                ids = ", ".join(map(repr, state.questions)) or "none"
                raise self._of_run(
                    AnswerError(id_, f"run {self.run_id!r} has no open question {id_!r}; open are: {ids}")
                )
            try:
                checked[id_] = question.check(answer)
                self._check_use(question, checked[id_])
            except AnswerError as error:
                raise self._of_run(error) from None
        state.answers.update(checked)

    def _check_use(self, question: Question, answer: object) -> None:
        """See that a tool takes the arguments that were changed, and that the store can keep the answer."""
        call, changed = question.call, answer.arguments if isinstance(answer, Approve) else None
        if call is not None and changed is not None:
            for tool in self.state.asking[question.id].tools:
                try:
                    if tool.name == call.name:
                        tool.check(changed)
                except ArgumentsError as error:
                    raise AnswerError(question.id, f"the answer to {question.id!r} changes the call: {error}") from None
        if self.setup.store is not None:
            from graphagent.codec._internal import HeldBlobs, encode

            try:
                encode(answer, HeldBlobs(), question.type)
            except SerializationError as error:
                raise AnswerError(question.id, f"the answer to {question.id!r} cannot be kept: {error}") from None

    def _of_run(self, error: RunError) -> RunError:
        error.run_id = self.run_id
        return error

    def _give_answers(self) -> None:
        """Let those who ask find the answers."""
        state = self.state
        for id_, answer in state.answers.items():
            asking = state.asking[id_]
            if asking.effects is None:
                asking.effects = {}
            asking.effects[state.questions[id_].key] = answer
        state.answers.clear()
        state.questions.clear()
        state.asking.clear()

    def __repr__(self) -> str:
        return f"<run {self.run_id!r}: {self.status}>"


def begin(
    setup: Setup,
    task: Any,
    *,
    run_id: str | None,
    owner: str,
    steps: Iterable[Step],
    images: Iterable[Image],
    parent: str = "",
    trust: str = "trusted",
) -> Run[Any]:
    """Return a run that has not begun, whose task can be trusted as far as `trust` says."""
    memory = RunMemory(setup.system_prompt, steps)
    memory.lower(trust)
    memory.begin(task, images)
    return Run(setup, memory, task, run_id=run_id or _clock.new_id(), owner=owner, parent=parent)
