"""Asking a model, once or until an answer fits: as a turn, which is a step of the transcript, or as a decision, which is not.

A request passes middleware, budgets, streaming and events; what it costs is collected for the entry that records the answer.

The file is long because a turn is read from its prompt to its entry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeAlias, cast

from anyio.lowlevel import checkpoint

from graphagent import _clock
from graphagent._article import kind_of
from graphagent.errors import FeatureError, ModelError, ModelRequestError, OutputError, PromptTooLongError
from graphagent.events import (
    AnswerTruncated,
    ModelRequested,
    ModelRequestFailed,
    ModelResponded,
    OutputStreamed,
    TextStreamed,
)
from graphagent.llm import Message, ModelResponse, Usage
from graphagent.llm._attempts import failures
from graphagent.llm._context_overflow import is_overflow
from graphagent.llm._output import PartialOutput
from graphagent.llm._tools import fitted
from graphagent.llm._whole import asked_again, check_answered, check_whole, empty_answer, response_of
from graphagent.log._entries import EffectRecorded, LibraryObject, Spent
from graphagent.log._header import header_key
from graphagent.log._visits import Charge, spent
from graphagent.memory.steps._types import ActionStep, PlanningStep, StepFailure, Timing
from graphagent.run._effects import close_open, finish_step
from graphagent.run._final_errors import Suspend
from graphagent.run._middleware import pass_through
from graphagent.run._walk import REFUSED, HeldBack, report
from graphagent.store._cache import Asker, asker

if TYPE_CHECKING:
    from graphagent.events import Event, ModelOutput
    from graphagent.llm import FailedRequest, ModelRequest
    from graphagent.log._visits import Effect
    from graphagent.protocols import Model
    from graphagent.run._effects import Effects


@dataclass(slots=True, eq=False)
class ModelCall:
    """One request of a node, which middleware may change, make several times, or answer itself."""

    effects: Effects
    key: str
    purpose: ModelOutput
    model: Model | None
    counts: bool
    """Whether it counts as a model turn."""
    effect: tuple[str, str] | None
    """The kind and the key under which the answer is recorded, if it is."""
    waiting: tuple[type[Event], ...] = ()
    """The events of an answer that are held back until the caller has accepted it."""
    charges: list[Charge] = field(default_factory=list[Charge])
    """What it cost so far."""
    turns: int = 0
    """How many model turns were made."""
    sent: ModelRequest | None = None
    """What the model was really sent."""
    waits: bool = False
    """Whether nobody hears of the answer before middleware has passed it."""
    held_back: HeldBack = field(init=False)
    """The text that may still be taken back."""

    def __post_init__(self) -> None:
        self.held_back = HeldBack(self.effects.walk.held_back, self.waiting)

    async def respond(self, request: ModelRequest) -> ModelResponse:
        """Return the answer to a request.

        What was spent counts with the entry that records the answer or a ModelError, and at once if anything else is raised.
        """
        try:
            response = await self._respond(request)
        except ModelError:
            raise
        except BaseException:
            if self.effects.log.stale is None:
                self.count_spent()
            raise
        if response.message.tool_calls:  # text beside tool calls is not an answer
            self.held_back.release()
            self.held_back.release_earlier()
        elif not self.waiting:
            self.held_back.release()
        return response

    def entry(self, kind: str, key: str, **fields: Any) -> EffectRecorded:
        """Return the entry of an outcome, with what it cost."""
        at, charges = self.effects.frame.path, tuple(self.charges)
        return EffectRecorded(at=at, kind=kind, key=key, turns=self.turns, charges=charges, **fields)

    def count_spent(self) -> None:
        """Count what was spent in the budgets and the ledger, though no answer is recorded with it."""
        if self.charges or self.turns:
            effects = self.effects
            effects.record(Spent(at=effects.frame.path, charges=tuple(self.charges), turns=self.turns))
            self.charges, self.turns = [], 0

    async def _respond(self, request: ModelRequest) -> ModelResponse:
        effects, run = self.effects, self.effects.run
        recorded = run.session.recorded
        if recorded is not None:
            if self.effect is None:
                recorded.refuse(effects.frame, "it asks a model")
            elif (found := recorded.answer(effects.frame, *self.effect)) is not None:
                self.charges, self.turns = list(found.charges), found.turns
                if found.response is None:
                    raise PromptTooLongError(found.error)
                if self.counts:
                    effects.walk.limits.check_turn()
                return found.response
        features = run.plan.around_model
        # What middleware asks a model itself does not pass through middleware: it would do so without end.
        if not features or effects.is_in_middleware:
            return await self._answer(request)
        answers: list[ModelResponse] = []
        self.waits = any(getattr(each, "changes_answers", True) for each in features)

        async def proceed(request: ModelRequest) -> ModelResponse:
            answers.append(await self._answer(request))
            return answers[-1]

        around = effects.within(f"{self.key}:around")
        around.model, around.purpose = self.model, self._purpose
        response = await pass_through(
            features, "around_model", around, request, proceed, kind=ModelResponse, kept_on=(Suspend,)
        )
        if not any(response.message is each.message for each in answers):
            response = run.with_ids(fitted(response, request.tools))
        if self.waits:
            self._report_passed(request, response, asked=bool(answers))
        return response

    def _report_passed(self, request: ModelRequest, response: ModelResponse, *, asked: bool) -> None:
        """Report an answer as it came out of middleware: at once, and not piece by piece."""
        run, node, purpose, text = self.effects.run, self.effects.node, self._purpose, response.message.text
        if text and run.streams(purpose):
            self._report(TextStreamed(run.run_id, node, text, purpose))
        if request.output is not None and run.streams(purpose, OutputStreamed) and not response.message.tool_calls:
            self._report_output(PartialOutput(request.output).end(text))
        if asked:
            run.emit(ModelResponded(run.run_id, node, response))

    async def _answer(self, request: ModelRequest) -> ModelResponse:
        effects, run, node = self.effects, self.effects.run, self.effects.node
        model = self.model or effects.walk.model
        if model is None:
            raise no_model(node)
        purpose = self._purpose
        self.count_spent()  # middleware asks again
        for feature in run.features.having("check_request"):
            feature.check_request(effects.context(), request, purpose)
        limits = effects.walk.limits
        limits.check_spending()
        limits.check_priced(model)
        self.sent = request
        if self.counts:
            self.held_back.release_earlier()
            limits.enter_turn()
        token = asker.set(Asker(run.owner, run.log.store, header_key(run.owner, run.session.run_id)))
        try:
            if self.counts:
                await checkpoint()  # one that is cancelled by what happens beside it was not made
            partial: PartialOutput | None = None
            if request.output is not None and run.streams(purpose, OutputStreamed) and not self.waits:
                partial = PartialOutput(request.output)
            listening = not self.waits and (partial is not None or run.streams(purpose))
            run.emit(ModelRequested(run.run_id, node, request))
            if self.counts:
                self.turns += 1
            on_text = self._stream(partial) if listening else None
            response = await _response_of(model, model.respond(request, on_text))
            response = run.with_ids(fitted(response, request.tools))
        except BaseException as error:
            self.held_back.drop()
            if isinstance(error, ModelRequestError) and not error.sent and self.counts:
                self.turns -= 1
            if isinstance(error, ModelError):
                self._report_failed(failures(model, error))
            raise
        finally:
            asker.reset(token)
            if self.counts:
                limits.count_asking(-1)
        if response.failed:
            self._report_failed(response.failed)
        self.charges.append(Charge(node, self.key, response.model, response.usage))
        self._report_answer(response, partial)
        # Before it is recorded: a run that is resumed with a higher limit asks again.
        check_whole(response, request, half_text=purpose != "summary")
        return response

    def _report_failed(self, failed: tuple[FailedRequest, ...]) -> None:
        """Count what requests took that failed, and say that they did."""
        run, node = self.effects.run, self.effects.node
        for each in failed:
            if each.usage is not None:
                self.charges.append(Charge(node, self.key, each.model, each.usage))
            run.emit(ModelRequestFailed(run.run_id, node, each.model, each.reason))

    def _report_answer(self, response: ModelResponse, partial: PartialOutput | None) -> None:
        """Report an answer as the model gave it, as far as no middleware is still to pass it."""
        run, node = self.effects.run, self.effects.node
        if partial is not None and not response.message.tool_calls:
            self._report_output(partial.end(response.message.text))
        if not self.waits:
            run.emit(ModelResponded(run.run_id, node, response))
        if response.finish_reason == "length":
            run.emit(AnswerTruncated(run.run_id, node, response.usage.output_tokens, self._purpose))

    @property
    def _purpose(self) -> ModelOutput:
        """What its text belongs to, for those who hear it."""
        effects = self.effects
        inside = effects.call is not None and not effects.is_in_middleware
        return "tool" if inside and self.purpose in ("answer", "draft", "decision") else self.purpose

    def _stream(self, partial: PartialOutput | None) -> Callable[[str], None]:
        """Return a function that reports the pieces of an answer, and with `partial` the value so far."""
        run, node, purpose = self.effects.run, self.effects.node, self._purpose
        tells_text = run.streams(purpose)

        def tell(text: str) -> None:
            if tells_text:
                self._report(TextStreamed(run.run_id, node, text, purpose))
            if partial is not None:
                self._report_output(partial.add(text))

        return tell

    def _report_output(self, found: tuple[Any] | None) -> None:
        if found is not None:
            self._report(OutputStreamed(self.effects.run.run_id, self.effects.node, found[0], self._purpose))

    def _report(self, event: Event) -> None:
        report(self.effects.run.emit, self.held_back, event)


async def _response_of(model: Model, answer: object) -> ModelResponse:
    """Return the response of a model, which users may have written."""
    response = await response_of(model, answer) if isawaitable(answer) else answer
    if isinstance(response, ModelResponse) and response is not answer:
        return response
    sync = "is not async, and " if response is answer else ""
    raise FeatureError(
        f"the respond of {kind_of(model)} {sync}returned {kind_of(response)}; write `async def respond(self, request, on_text=None)`, "
        f"which returns a ModelResponse"
    )


def no_model(node: str) -> FeatureError:
    """Return the error of a node that asks a model where there is none, with the line to write."""
    return FeatureError(f"node {node!r} asks a model, and there is none; write Agent(strategy, model=…)")


Parse: TypeAlias = Callable[[Message], object] | None
"""Returns the value of an answer, or raises OutputError; None: the value is the text."""


class _Turn(NamedTuple):
    """A turn that is being taken, or a plan that is being made."""

    key: str
    kind: type[Any]
    """The class of its step."""
    request: ModelRequest
    asking: ModelCall
    number: int
    """The number of the turn; 0 for a plan."""
    started: int
    """When it began, in milliseconds UTC."""
    before: Usage
    """What the answers before it took, which did not fit."""

    def step(self, usage: Usage, response: ModelResponse | None = None, **fields: Any) -> Any:
        """Return its step."""
        prompt = self.asking.effects.transcript.prompt()[1].differing((self.asking.sent or self.request).messages)
        message = None if response is None else response.message
        made: dict[str, Any] = {
            "model_output_message": message, "prompt": prompt, "timing": Timing(self.started, _clock.now()),
            "token_usage": self.before + usage, **fields,
        }  # fmt: skip
        if self.kind is PlanningStep and message is not None:
            return PlanningStep(message.text, **made)
        return ActionStep(step_number=self.number, **made)


async def turn(
    effects: Effects, request: ModelRequest, step: type[Any], parse: Parse, attempts: int, purpose: ModelOutput
) -> Any:
    """Ask a model until an answer fits, and return the step of the answer: see `Context.turn`."""
    key, spent, started = effects.next("turn"), Usage(), 0
    for attempt in range(1, attempts + 1):
        name = key if attempt == 1 else f"{key}.{attempt}"
        found = effects.find("turn", name)
        if found is None:
            started = started or _clock.now()
            asking, response, problem = await _take_turn(
                effects, request, name, step, parse, purpose, spent, started, last=attempt == attempts
            )
            if problem is None:
                finished = await finish_step(effects, "turn", name, fresh=True)
                asking.held_back.release()  # no callback has refused it
                return finished
        elif found.error is not None:
            raise _too_long(found)
        elif isinstance(found.value, int):
            return await finish_step(effects, "turn", name)
        else:
            response = cast("ModelResponse", found.value)
            _, problem = _parsed(parse, response)
        assert problem is not None
        spent += response.usage
        request = _asked_again(request, response.message, problem)
    raise AssertionError


async def _take_turn(
    effects: Effects, request: ModelRequest, key: str, kind: type[Any], parse: Parse, purpose: ModelOutput, before: Usage,
    started: int, *, last: bool,
) -> tuple[ModelCall, ModelResponse, OutputError | None]:  # fmt: skip
    """Ask the model, and record what came of it. Return the request and the answer, and why it does not fit, where it does not."""
    await effects.before_live()
    await close_open(effects)
    counts = kind is ActionStep
    if not counts:
        effects.walk.limits.check_turn()  # a plan that nothing could carry out is not made
    name = f"{'model' if counts else 'plan'}:{key}"
    waiting = REFUSED if effects.run.plan.calls_back(kind) else ()
    asking = ModelCall(effects, name, purpose, None, counts=counts, effect=("turn", key), waiting=waiting)
    number = effects.memory.turns + 1 if counts else 0
    taken = _Turn(key, kind, request, asking, number, started, before)
    try:
        response, value, problem = await _answer(asking, request, parse)
        if problem is not None and last:
            raise problem
    except ModelError as error:
        await _record_failed(taken, error)
        raise
    if problem is None:
        calls = response.message.tool_calls
        output = {"action_output": value} if counts and not calls else {}
        made = taken.step(response.usage, response, **output)
        is_open = bool(calls and counts) or effects.run.plan.calls_back(kind)
        finish = response.finish_reason if purpose in ("answer", "draft") and effects.call is None else None
        effects.record(asking.entry("turn", key, step=made, open=is_open, finish=finish))
    else:
        effects.record(asking.entry("turn", key, held=LibraryObject(response)))
    await effects.log.commit()
    return asking, response, problem


async def _record_failed(taken: _Turn, error: ModelError) -> None:
    """Record a request that failed: as an outcome if the prompt was too long and can be shortened, else as a step that stays."""
    asking, effects = taken.asking, taken.asking.effects
    if isinstance(error, ModelRequestError) and is_overflow(error) and effects.run.features.having("make_room"):
        await _fail_as_too_long(asking, "turn", taken.key, error)
    if taken.kind is not ActionStep:
        asking.count_spent()
        return
    failed = taken.step(spent(asking.charges), error=StepFailure(type(error).__name__, str(error)))
    name = f"{taken.key}:{effects.log.state.number}"
    effects.record(
        asking.entry("failed", name, step=failed, lasting=True, open=effects.run.plan.calls_back(taken.kind))
    )
    await finish_step(effects, "failed", name, fresh=True)


async def decide(
    effects: Effects, request: ModelRequest, key: str, parse: Parse, attempts: int, purpose: ModelOutput,
    model: Model | None, *, counts: bool, record: bool,
) -> ModelResponse:  # fmt: skip
    """Ask a model until an answer fits, and return it: see `Context.request`."""
    key, spent = key or effects.next("decision"), Usage()
    for attempt in range(1, attempts + 1):
        name = key if attempt == 1 else f"{key}.{attempt}"
        found = effects.find("decision", name) if record else None
        if found is not None and found.error is not None:
            raise _too_long(found)
        if found is not None:
            response = cast("ModelResponse", found.value)
            problem = _parsed(parse, response)[1]
        else:
            await effects.before_live()
            asking = ModelCall(
                effects, name, purpose, model, counts=counts, effect=("decision", name) if record else None
            )
            response, problem = await _decided(asking, request, parse, record=record, last=attempt == attempts)
        spent += response.usage
        if problem is None:
            return response if attempt == 1 else replace(response, usage=spent)
        request = _asked_again(request, response.message, problem)
    raise AssertionError


async def _decided(
    asking: ModelCall, request: ModelRequest, parse: Parse, *, record: bool, last: bool
) -> tuple[ModelResponse, OutputError | None]:
    """Ask the model, and record its answer, or else what that cost. Return the answer, and why it does not fit."""
    effects, key = asking.effects, asking.key
    try:
        response, _, problem = await _answer(asking, request, parse)
        if problem is not None and last:
            raise problem
    except ModelError as error:
        if record and isinstance(error, ModelRequestError) and is_overflow(error):
            await _fail_as_too_long(asking, "decision", key, error)
        asking.count_spent()
        raise
    if record:
        finish = response.finish_reason if asking.counts and effects.call is None else None
        effects.record(asking.entry("decision", key, held=LibraryObject(response), finish=finish))
    else:
        asking.count_spent()
        effects.memory.lower_trust("inferred")  # the node knows what the model said, though the log does not
    await effects.log.commit()
    return response, problem


def _too_long(found: Effect) -> PromptTooLongError:
    """Return the error that is the recorded outcome."""
    assert found.error is not None
    return PromptTooLongError(found.error[1])


async def _fail_as_too_long(asking: ModelCall, kind: str, key: str, error: ModelRequestError) -> NoReturn:
    """Record that a prompt was too long, and raise that."""
    asking.effects.record(asking.entry(kind, key, error=("PromptTooLongError", str(error))))
    await asking.effects.log.commit()
    if isinstance(error, PromptTooLongError):
        raise error
    raise PromptTooLongError(str(error), status=error.status, detail=error.detail) from error


async def _answer(
    asking: ModelCall, request: ModelRequest, parse: Parse
) -> tuple[ModelResponse, Any, OutputError | None]:
    """Ask the model. Return the answer with its value, or with the reason why it has none."""
    try:
        response = await asking.respond(request)
    except OutputError as error:
        return empty_answer(error), None, error
    return response, *_parsed(parse, response)


def _parsed(parse: Parse, response: ModelResponse) -> tuple[Any, OutputError | None]:
    """Return the value of an answer, or why it has none."""
    message = response.message
    try:
        check_answered(response)
        return (message.text if parse is None else parse(message)), None
    except OutputError as error:
        return None, error


def _asked_again(request: ModelRequest, message: Message, problem: OutputError) -> ModelRequest:
    """Return a request with the answer that does not fit, and the reason."""
    return asked_again(request, message, problem, ActionStep(model_output_message=message).to_messages())
