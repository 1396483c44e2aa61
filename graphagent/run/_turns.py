"""Asking a model, once or until an answer fits: as a turn, which is a step of the transcript, or as a decision, which is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeAlias, cast

from graphagent import _clock
from graphagent.errors import ModelError, ModelRequestError, OutputError, PromptTooLongError
from graphagent.llm import Message, Usage
from graphagent.llm._context_overflow import is_overflow
from graphagent.llm._whole import asked_again, check_answered, empty_answer
from graphagent.log._entries import LibraryObject
from graphagent.log._visits import spent
from graphagent.memory.steps._types import ActionStep, PlanningStep, StepFailure, Timing
from graphagent.run._held_back import REFUSED
from graphagent.run._requests import ModelCall
from graphagent.run._steps import close_open, finish_step

if TYPE_CHECKING:
    from graphagent.events import ModelOutput
    from graphagent.llm import ModelRequest, ModelResponse
    from graphagent.log._visits import Effect
    from graphagent.protocols import Model
    from graphagent.run._effects import Effects

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
