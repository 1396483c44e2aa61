"""Wrappers that cope with failures: one repeats the request, the other tries the next model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from graphagent._article import counted, kind_of
from graphagent._details import FailedRequest
from graphagent._policies import Retry, before_another, check_errors, is_repeated, may_pass, repeated
from graphagent.errors import (
    AllModelsFailedError,
    ContentFilterError,
    GraphAgentError,
    ModelError,
    ModelRequestError,
    PromptTooLongError,
    RunError,
    ScriptError,
    Veto,
)
from graphagent.llm._context_overflow import is_overflow
from graphagent.llm._whole import response_of
from graphagent.llm._wrappers import TextRelay, check_model, tells_cost

if TYPE_CHECKING:
    from graphagent.llm._messages import ModelRequest, ModelResponse
    from graphagent.protocols import Model

_NEVER = (RunError, ScriptError, Veto)
"""Errors that another model cannot fix: budgets and everything else that ends a run, and an exhausted script."""


class RetryModel:
    """A model that is asked again after an error that may go away: `RetryModel(model, 3)`.

    These are 429, 5xx, 408, 409, 425 and lost connections. Between attempts it waits as a Retry says, or as long as the Retry-After
    of the server where that is longer; if it is longer than `max_wait`, the error is raised. Attempts that failed are in the `failed`
    of the response, or of the error. If streamed text has arrived already, an error is raised at once, since the text would come a
    second time. Models inside do not repeat by themselves (`max_retries=`), and leave the repetition to it.
    """

    def __init__(self, model: Model, retry: Retry | int) -> None:
        """Wrap a model.

        Args:
            model: The model that is asked.
            retry: How often it is asked at the most, the first attempt counted; or a Retry, whose `errors` are a further condition.

        Raises:
            TypeError: `model` is not a model, or `retry` neither a number nor a Retry.
            ValueError: there would be no attempt.
        """
        check_model("a RetryModel", model, "RetryModel(model, 3)")
        if isinstance(retry, int) and not isinstance(retry, bool):
            retry = Retry(retry)
        if not isinstance(retry, Retry):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                f"retry is a number of attempts or a Retry, not {kind_of(retry)}; write RetryModel(model, 3)"
            )
        self.model = model
        """The model that is asked."""
        self.retry = retry
        """The number of attempts, and the delays between them."""

    @property
    def name(self) -> str:
        """The name of the model."""
        return self.model.name

    @property
    def tells_cost(self) -> bool:
        """Whether the answers of the model say what they cost."""
        return tells_cost(self.model)

    async def respond(self, request: ModelRequest, on_text: Callable[[str], None] | None = None) -> ModelResponse:
        """Ask the model, again where that may help.

        Raises:
            ModelRequestError: the last attempt failed, or what failed would fail again.
        """
        token = is_repeated.set(True)
        try:
            return await answered(
                self.model,
                self.retry,
                lambda relay: response_of(self.model, self.model.respond(request, relay)),
                on_text,
            )
        finally:
            is_repeated.reset(token)

    def __repr__(self) -> str:
        return f"<{self.model!r}, asked up to {counted(self.retry.attempts, 'time')}>"


async def answered(
    model: Model,
    retry: Retry,
    ask: Callable[[TextRelay | None], Awaitable[ModelResponse]],
    on_text: Callable[[str], None] | None,
) -> ModelResponse:
    """Return the answer of a model, which is asked again as a Retry says, where that may help.

    Earlier failures are in `failed` of the response, or of the error.

    Raises:
        ModelRequestError: the last attempt failed, or what failed would fail again.
    """
    relay = None if on_text is None else TextRelay(on_text)
    failed: list[FailedRequest] = []
    was_sent = False

    async def attempt() -> ModelResponse:
        nonlocal was_sent
        try:
            return await ask(relay)
        except Exception as error:
            failed.extend(failures(model, error))
            was_sent = was_sent or getattr(error, "sent", True)
            raise

    def may_help(error: Exception) -> bool:
        return not (relay and relay.has_heard) and _may_pass(error)

    try:
        response = await repeated(attempt, retry, may_help)
    except Exception as error:
        _report(error, failed, sent=was_sent)
        raise
    return _reporting(response, failed)


class FallbackModel:
    """A model that asks the next one when one fails: `FallbackModel(first, second)`.

    A model fails if it raises a ModelRequestError: its server refused the request, is overloaded or out of quota, cannot be reached,
    or the prompt is too long for it. `on=` says it otherwise. Cancellation, the end of a budget and a ScriptError are raised
    regardless of `on`. If streamed text has arrived already, the error is raised too, since another model would begin anew.

    `response.model` is the model that answered, as its server names it; the failures before are in `response.failed`, or `error.failed`.
    """

    def __init__(
        self,
        first: Model,
        *others: Model,
        on: type[Exception] | tuple[type[Exception], ...] | Callable[[Exception], bool] = ModelRequestError,
    ) -> None:
        """Join models.

        Args:
            first: The model that is asked first.
            others: The models that are asked after it, in this order.
            on: The errors after which the next one is asked: types, or a function that returns whether an error is one of them.

        Raises:
            TypeError: a value is not a model, only one model is given, or `on` is neither types of errors nor a function.
        """
        example = "FallbackModel(first, second)"
        for each in (first, *others):
            check_model("a FallbackModel", each, example)
        if not others:
            raise TypeError(f"a FallbackModel takes at least two models; write {example}")
        self.models = (first, *others)
        """The models, in the order in which they are asked."""
        self._takes = _test_of(on)

    @property
    def name(self) -> str:
        """The names of its models, joined by `or`."""
        return " or ".join(each.name for each in self.models)

    @property
    def tells_cost(self) -> bool:
        """Whether the answers of all of its models say what they cost."""
        return all(map(tells_cost, self.models))

    async def respond(self, request: ModelRequest, on_text: Callable[[str], None] | None = None) -> ModelResponse:
        """Ask the first model, and after a failure the next.

        Raises:
            AllModelsFailedError: every model failed; it says why each did.
            ModelRequestError: a model failed while its text was being streamed.
        """
        relay = None if on_text is None else TextRelay(on_text)
        errors: list[Exception] = []
        reasons: list[tuple[str, str]] = []
        failed: list[FailedRequest] = []
        for model in self.models:
            if errors:
                await before_another()
            try:
                response = await response_of(model, model.respond(request, relay))
            except Exception as error:
                failed += failures(model, error)
                if isinstance(error, _NEVER) or (relay and relay.has_heard) or not self._takes(error):
                    _report(error, failed, sent=any(getattr(each, "sent", True) for each in (*errors, error)))
                    raise
                errors.append(error)
                reasons.append((model.name, _reason(error)))
            else:
                if not response.model:
                    response = replace(response, model=model.name)
                return _reporting(response, failed)
        all_failed = AllModelsFailedError(reasons, errors)
        _report(all_failed, failed, sent=all_failed.sent)
        raise all_failed from errors[-1]

    def __repr__(self) -> str:
        return f"<{', else '.join(map(repr, self.models))}>"


def _test_of(on: Any) -> Callable[[Exception], bool]:
    if isinstance(on, tuple | type):
        kinds = cast("tuple[type[Exception], ...]", on if isinstance(on, tuple) else (on,))
        for kind in kinds:
            check_errors("FallbackModel(on=)", kind)
        return lambda error: isinstance(error, kinds)
    if not callable(on):
        raise TypeError(f"FallbackModel(on=) takes types of errors or a function of an error, not {kind_of(on)}")
    return cast("Callable[[Exception], bool]", on)


def _may_pass(error: Exception) -> bool:
    """Return whether the same request may succeed a little later."""
    if isinstance(error, AllModelsFailedError):
        return any(map(_may_pass, error.errors))
    if not isinstance(error, ModelRequestError) or isinstance(error, PromptTooLongError | ContentFilterError):
        return False
    return may_pass(error.status, is_final=error.is_final) and not is_overflow(error)


def failures(model: Model, error: Exception) -> tuple[FailedRequest, ...]:
    """Return the requests that had failed when a model raised an error."""
    if not isinstance(error, ModelError):
        return (FailedRequest(model.name, _reason(error)),)
    return error.failed or (FailedRequest(model.name, _reason(error), error.usage),)


def _reason(error: Exception) -> str:
    # The text of an error of another library may repeat the request, and its key.
    return str(error) if isinstance(error, GraphAgentError) else type(error).__name__


def _report(error: Exception, failed: list[FailedRequest], *, sent: bool) -> None:
    if isinstance(error, ModelError):
        error.failed = tuple(failed)
    if isinstance(error, ModelRequestError):
        error.sent = sent


def _reporting(response: ModelResponse, failed: list[FailedRequest]) -> ModelResponse:
    return replace(response, failed=(*failed, *response.failed)) if failed else response
