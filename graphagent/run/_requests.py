"""Requests to a model: middleware, budgets, streaming, events. What they cost is collected for the entry that records the answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from anyio.lowlevel import checkpoint

from graphagent._article import kind_of
from graphagent.errors import FeatureError, ModelError, ModelRequestError, PromptTooLongError
from graphagent.events import (
    AnswerTruncated,
    ModelRequested,
    ModelRequestFailed,
    ModelResponded,
    OutputStreamed,
    TextStreamed,
)
from graphagent.llm import ModelResponse
from graphagent.llm._attempts import failures
from graphagent.llm._json_text import PartialOutput
from graphagent.llm._tools import fitted
from graphagent.llm._whole import check_whole, response_of
from graphagent.log._entries import EffectRecorded, Spent
from graphagent.log._header import header_key
from graphagent.log._visits import Charge
from graphagent.run._held_back import HeldBack, report
from graphagent.run._middleware import pass_through
from graphagent.run._suspend import Suspend
from graphagent.store._cache import Asker, asker

if TYPE_CHECKING:
    from graphagent.events import Event, ModelOutput
    from graphagent.llm import FailedRequest, ModelRequest
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
        around.model = self.model
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
