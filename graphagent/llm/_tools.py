"""Tools: functions that a model may call, and the one place where a call becomes a result.

The file is long because the definition of a tool and its calls are read together.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, Concatenate, Generic, Literal, ParamSpec, TypeVar, cast, get_args, overload

import anyio
from anyio import to_thread

from graphagent._article import counted, kind_of
from graphagent._clock import new_id
from graphagent._concurrency import Slots
from graphagent._functions import in_thread
from graphagent._options import check_flag, check_mapping, check_text, check_word, check_zone
from graphagent._policies import CachePolicy, Retry, cache_policy, repeated
from graphagent._raised import translate
from graphagent._tracebacks import error_text, traceback_text
from graphagent.errors import RunError, ScriptError, ToolError, ToolTimeoutError
from graphagent.llm._images import Image, has_pillow, with_images
from graphagent.llm._json_text import unnested
from graphagent.llm._messages import Message, ModelResponse, ToolCall, ToolResult, sendable
from graphagent.llm._tool_arguments import ToolArguments, read_docstring, why_malformed
from graphagent.llm._tool_errors import ErrorText, check_error_text, text_of_error
from graphagent.llm._tool_limits import SHORTEST, capped

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
S = TypeVar("S")


InFlight = Literal["retry", "ask", "fail"]


@dataclass(frozen=True, slots=True)
class Approve:
    """Lets a tool call, or a value that a node asks about, go ahead."""

    arguments: Mapping[str, Any] | None = None
    """Arguments of a tool call that replace those of the model; None keeps them."""
    by: str = field(default="", kw_only=True)
    """Who decided, such as a name."""
    at: datetime | None = field(default=None, kw_only=True, compare=False)
    """When, with a time zone; by default the time at which the run is given it."""

    def __post_init__(self) -> None:
        check_zone("Approve: at", self.at)
        if self.arguments is not None:
            check_mapping("Approve: arguments", self.arguments, "{'amount': 5}")


@dataclass(frozen=True, slots=True)
class Deny:
    """Refuses a tool call, of which the model sees the reason, or a value that a node asks about; or declines any other question."""

    reason: str = ""
    """Why, for the model."""
    by: str = field(default="", kw_only=True)
    """Who decided, such as a name."""
    at: datetime | None = field(default=None, kw_only=True, compare=False)
    """When, with a time zone; by default the time at which the run is given it."""

    def __post_init__(self) -> None:
        check_zone("Deny: at", self.at)
        check_text("Deny: reason", self.reason)


@dataclass(frozen=True, eq=False)
class Tool:
    """Something that a model may call: a value, made by `@tool` from a function, or by hand from a schema and a function.

    Raises:
        TypeError: an argument is not of its type, such as an `approve` that is neither True nor False.
        ValueError: a server would refuse the name: it is not 1 to 64 letters, digits, `_` and `-`. Or `in_flight` is not one of the
            three, `timeout` is not above 0, `concurrency` is below 1, `max_size` below 400, or a deferred tool, which is never
            called, has a `timeout`, a `retry`, a `concurrency` or a `cached`.
    """

    name: str
    """The name under which the model calls it: 1 to 64 letters, digits, `_` and `-`."""
    description: str
    """A description for the model: what it does and when to use it."""
    parameters: Mapping[str, Any]
    """The JSON schema of its arguments, an object."""
    run: Callable[[Mapping[str, Any], Any], Awaitable[Any]] = field(repr=False)
    """Called with the arguments and the run's Context (None outside a run). A ToolResult is shown to the model unchanged."""
    approve: bool = field(default=False, kw_only=True)
    """Whether a person is asked before each call."""
    deferred: bool = field(default=False, kw_only=True)
    """Whether the result comes from outside, when the run is resumed with it; `run` is never called then."""
    in_flight: InFlight = field(default="retry", kw_only=True)
    """How a call is handled during which the process died: it is repeated, a person is asked, or the model gets an error."""
    context: Any = field(default=None, kw_only=True, repr=False)
    """The type of its context, such as `Context[Db]`: a run must be passed `deps=` of that type."""
    timeout: float | None = field(default=None, kw_only=True)
    """Seconds that an attempt may take before it is cancelled with a ToolTimeoutError; None for any time."""
    retry: Retry | None = field(default=None, kw_only=True)
    """How a call that raises is retried; None for no retries."""
    concurrency: int | None = field(default=None, kw_only=True)
    """The maximum number of concurrent calls, over all runs of one event loop; None for no limit."""
    max_size: int | None = field(default=None, kw_only=True)
    """The maximum number of characters of a result that the model sees; None for no limit. `ToolResult.full` has all of it."""
    errors: ErrorText | None = field(default=None, kw_only=True)
    """The text by which the model is told of an exception other than a ToolError; None for that of the agent."""
    cached: CachePolicy | None = field(default=None, kw_only=True)
    """How long a result is reused for calls with the same arguments; None for never."""
    _slots: Slots | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        for option, given in (("name", self.name), ("description", self.description)):
            check_text(f"tool {self.name!r}: {option}", given)
        for option, flag in (("approve", self.approve), ("deferred", self.deferred)):
            check_flag(f"tool {self.name!r}: {option}", flag)
        check_mapping(f"tool {self.name!r}: parameters", self.parameters, "{'type': 'object', 'properties': {…}}")
        if not callable(self.run):
            raise TypeError(
                f"tool {self.name!r}: run is a function of the arguments and the context, not {kind_of(self.run)}"
            )
        check_word(f"tool {self.name!r}: in_flight", self.in_flight, get_args(InFlight))
        if self.errors is not None:
            check_error_text(f"tool {self.name!r}: errors", self.errors)
        self._check_limits()
        if self.concurrency is not None:
            object.__setattr__(self, "_slots", Slots(self.name, self.concurrency))
        if not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", self.name):
            raise ValueError(
                f"{self.name!r} cannot name a tool: servers take 1 to 64 letters, digits, '_' and '-'; pass name="
            )

    def _check_limits(self) -> None:
        for name, limit, least in (("concurrency", self.concurrency, 1), ("max_size", self.max_size, SHORTEST)):
            if limit is not None and (type(limit) is not int or limit < least):
                raise ValueError(
                    f"tool {self.name!r}: {name}={limit!r} is invalid; pass an integer of at least {least}"
                )
        if self.timeout is not None:
            if isinstance(self.timeout, bool) or not isinstance(self.timeout, float | int):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(f"tool {self.name!r}: timeout is seconds or None, not {kind_of(self.timeout)}")
            if not self.timeout > 0:
                raise ValueError(f"tool {self.name!r}: timeout={self.timeout} must be more than 0 seconds")
        if self.retry is not None and not isinstance(self.retry, Retry):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"tool {self.name!r}: retry is a number of attempts or a Retry, not {kind_of(self.retry)}")
        if self.cached is not None and not isinstance(self.cached, CachePolicy):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"tool {self.name!r}: cached is seconds or a CachePolicy, not {kind_of(self.cached)}")
        if self.deferred and (self.timeout, self.retry, self.concurrency, self.cached) != (None, None, None, None):
            raise ValueError(
                f"tool {self.name!r} is deferred, so it is never called; leave out timeout=, retry=, concurrency= and cached="
            )

    def check(self, arguments: Mapping[str, Any]) -> None:
        """Check arguments, as far as that is possible without a call.

        Raises:
            ArgumentsError: they do not.
        """

    def is_held(self, context: Any) -> bool:
        """Return whether the call of this context, whose run has stopped, still waits in this process, to be continued."""
        return False

    def result_of(self, call: ToolCall, value: Any) -> ToolResult:
        """Return the result of a call that was answered from outside, or denied, as the model sees it."""
        return capped(answered(call, value), self.max_size)

    async def call(self, arguments: Mapping[str, Any], context: Any = None) -> Any:
        """Check the arguments, run the tool, again if `retry` says so, and return its result.

        Arguments that do not fit, a ToolError of the tool's own, and an end of the run are not tried again.

        Raises:
            ArgumentsError: the arguments do not fit.
            ToolTimeoutError: the last attempt took longer than `timeout`.
        """
        if self.retry is None:
            return await self._attempt(arguments, context)
        return await repeated(
            lambda: self._attempt(arguments, context), self.retry, lambda error: not _is_final(error, context)
        )

    async def _attempt(self, arguments: Mapping[str, Any], context: Any) -> Any:
        try:
            if self._slots is None:
                return await self._in_time(arguments, context) if self.timeout else await self.run(arguments, context)
            async with self._slots.one():  # the time of waiting does not count
                return await self._in_time(arguments, context)
        except BaseException as raised:
            await translate(raised, f"tool {self.name!r}")
            raise

    async def _in_time(self, arguments: Mapping[str, Any], context: Any) -> Any:
        if self.timeout is None:
            return await self.run(arguments, context)
        with anyio.move_on_after(self.timeout) as scope:
            returned = await self.run(arguments, context)
            if anyio.current_time() < scope.deadline:  # nothing is cancelled that blocks the event loop
                return returned
        raise ToolTimeoutError(self.name, self.timeout)


def _is_final(error: Exception, context: Any) -> bool:
    """Return whether the model can react to an error. Others, such as a used-up budget, end the run."""
    if isinstance(error, ToolError):
        return not isinstance(error, ToolTimeoutError)
    ends_run = isinstance(error, RunError) and error.run_id == getattr(context, "run_id", None)
    return ends_run or isinstance(error, ScriptError)


@dataclass(frozen=True, eq=False)
class FunctionTool(Tool, Generic[P, R]):
    """A tool made from a function; it stays callable like that function. As a method, it is bound like a method."""

    function: Callable[P, R] = field(kw_only=True, repr=False)
    """The function itself."""
    method: Callable[..., Any] | None = field(default=None, kw_only=True, repr=False)
    """The function before it was bound to an object, if it is a method."""
    arguments: ToolArguments = field(kw_only=True, repr=False)

    def check(self, arguments: Mapping[str, Any]) -> None:
        """Check that arguments fit the parameters of the function."""
        self.arguments.checked(arguments)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function as it was written."""
        return self.function(*args, **kwargs)

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> FunctionTool[P, R]: ...
    @overload
    def __get__(
        self: FunctionTool[Concatenate[S, Q], R], instance: S, owner: type | None = None
    ) -> FunctionTool[Q, R]: ...
    def __get__(self, instance: object, owner: type | None = None) -> FunctionTool[..., R]:
        if instance is None or not self.arguments.of_method:
            return self
        bound = cast("Callable[..., R]", self.function.__get__(instance, owner))
        arguments = replace(self.arguments, of_method=False)
        run = partial(_run, bound, arguments)
        return cast(
            "FunctionTool[..., R]", replace(self, function=bound, method=self.function, arguments=arguments, run=run)
        )


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    approve: bool = False,
    deferred: bool = False,
    in_flight: InFlight = "retry",
    timeout: float | None = None,
    retry: Retry | int | None = None,
    concurrency: int | None = None,
    max_size: int | None = None,
    errors: ErrorText | None = None,
    cached: CachePolicy | float | None = None,
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    approve: bool = False,
    deferred: bool = False,
    in_flight: InFlight = "retry",
    timeout: float | None = None,
    retry: Retry | int | None = None,
    concurrency: int | None = None,
    max_size: int | None = None,
    errors: ErrorText | None = None,
    cached: CachePolicy | float | None = None,
) -> Any:
    """Make a tool of a function, or of a method: `@tool` or `@tool(name=…, description=…)`.

    The model sees the first paragraph of the docstring, its texts about the parameters in the style of Google, NumPy or Sphinx, and
    the types. A parameter annotated with the run's `Context` is not shown to the model and gets the run's. A plain
    function runs in a worker thread.

    Args:
        function: The function.
        name: How the model calls it; by default the function's name.
        description: A description for the model; by default from the docstring.
        approve: Whether a person is asked before each call: they let it go ahead, change its arguments, or refuse it.
        deferred: Whether its result comes from outside, days later: `agent.resume(run_id, results={call_id: …})`. The function
            defines the arguments and is never called.
        in_flight: The treatment of a call during which the process died, so that it is unknown whether it took effect: `retry`
            makes it again (`ctx.idempotency_key` is the same), `ask` asks a person, `fail` returns an error to the model.
        timeout: Seconds that an attempt may take; by default any time. Then it is cancelled, and the model sees a
            ToolTimeoutError. The thread of a plain function is abandoned, as by whatever else ends the waiting for it: the function
            runs on, and its result is dropped.
        retry: How often a call is made at the most if it raises, with growing waits in between; or a `graphagent.graph.Retry`,
            which also says how long to wait, and after which errors. The model sees the last error. `ctx.idempotency_key` is
            the same in every attempt. Arguments that do not fit and a ToolError are not tried again.
        concurrency: How many of its calls are made at once, by all runs of one event loop; by default any number. The others
            wait, which does not count in `timeout`.
        max_size: How many characters of a result the model sees, its head and its tail; by default all. `ToolResult.full` is the
            whole.
        errors: The text by which the model is told of an exception other than a ToolError: `message`, its type and its message
            without the passwords, keys and tokens of URLs and connection strings; `type`, its type alone; or a function of the
            exception that returns the text. By default as the agent's `errors` says.
        cached: Seconds for which a result is kept in the store of the run, and used for calls of the same owner with the same
            arguments; or a `graphagent.graph.CachePolicy`; by default none is kept. Only the arguments count: not the code of the
            function, `deps` or the rest of the context. Errors are not kept, and a person is asked all the same. An agent with such
            a tool needs a store.

    Raises:
        TypeError: the function has no docstring, a parameter without a type or one that JSON cannot fill; or as `Tool`.
        ValueError: `retry` allows no attempt; or as `Tool`.
    """
    for option, given in (("name", name), ("description", description)):
        if given is not None:
            check_text(f"@tool: {option}", given)

    def decorate(function: Callable[..., Any]) -> FunctionTool[..., Any]:
        called = name or str(getattr(function, "__name__", ""))
        _check_kind(function, called)
        said, of_each = read_docstring(inspect.getdoc(function) or "")
        said = description or said
        if not said:
            raise TypeError(f"tool {called!r} has no description: write a docstring, or pass description=")
        arguments = ToolArguments.of(function, called, of_each)
        return FunctionTool(
            called, said, arguments.schema(), partial(_run, function, arguments),
            approve=approve, deferred=deferred, in_flight=in_flight, context=arguments.context_type, timeout=timeout,
            retry=cast("Retry | None", Retry(retry) if type(retry) is int else retry), concurrency=concurrency,
            max_size=max_size, errors=errors, cached=cache_policy(cached), function=function, arguments=arguments,
        )  # fmt: skip

    return decorate if function is None else decorate(function)


def _check_kind(function: Any, called: str) -> None:
    if isinstance(function, str):
        raise TypeError(f"@tool({function!r}) takes no name by position; write @tool(name={function!r})")
    if isinstance(function, Tool):
        raise TypeError(
            f"{function.name!r} is a tool already; pass it as it is, and options with @tool(…) on its function"
        )
    if isinstance(function, staticmethod | classmethod | type) or not called:
        raise TypeError(f"@tool takes a function, not {function!r}; put @staticmethod above @tool, not below")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"tool {called!r} is a generator; return its whole result instead, such as a list")


async def _run(function: Callable[..., Any], arguments: ToolArguments, given: Mapping[str, Any], context: Any) -> Any:
    keywords = arguments.read(given, context)
    if inspect.iscoroutinefunction(function):
        return await function(**keywords)
    return await in_thread(partial(function, **keywords), arguments.tool)


def fresh_ids(calls: Iterable[ToolCall], taken: set[str] | None = None) -> tuple[ToolCall, ...]:
    """Return the calls in their order with unique ids, which are added to those taken. Empty, repeated and taken ones are replaced."""
    seen: set[str] = set() if taken is None else taken
    made: list[ToolCall] = []
    for call in calls:
        kept = call if call.id.strip() and call.id not in seen else replace(call, id=f"call_{new_id()}")
        seen.add(kept.id)
        made.append(kept)
    return tuple(made)


def fitting(call: ToolCall, tool: Tool) -> ToolCall:
    """Return a call with its arguments as the schema of its tool demands them, as far as only a text is in the way.

    Some models write an array or an object as a text with JSON in it, and `null` for no arguments.
    """
    if call.malformed:
        is_nothing = call.malformed.strip('" \n') in ("", "null", "[]") and not tool.parameters.get("properties")
        return replace(call, malformed="") if is_nothing else call
    arguments = unnested(dict(call.arguments), tool.parameters)
    return call if arguments == call.arguments else replace(call, arguments=arguments)


def fitted(response: ModelResponse, tools: Iterable[Tool]) -> ModelResponse:
    """Return a response whose calls of these tools are as `fitting` makes them."""
    if not response.message.tool_calls:
        return response
    named, parts = {tool.name: tool for tool in tools}, list(response.message.parts)
    for place, part in enumerate(parts):
        if isinstance(part, ToolCall) and part.name in named:
            parts[place] = fitting(part, named[part.name])
    same = all(new is old for new, old in zip(parts, response.message.parts, strict=True))
    return response if same else replace(response, message=Message("assistant", tuple(parts)))


async def call_tool(
    tool: Tool | None, call: ToolCall, *, known: Iterable[str] = (), context: Any = None, errors: ErrorText = "message"
) -> ToolResult:
    """Execute one tool call of a model. Return its result, or an error that the model can react to.

    `tool` is None where no tool has the name that was called; `known` are the names that exist. Nothing that the tool
    raises gets out, except cancellation and other base exceptions; a result that is an error holds the exception as its
    `value`. `errors` is the text of exceptions if the tool has no option of its own.
    """
    if tool is None:
        names = ", ".join(sorted(known)) or "none"
        return ToolResult.error(call, f"unknown tool {call.name!r}; available tools: {names}")
    call = fitting(call, tool)
    if call.malformed:
        return ToolResult.error(call, f"{why_malformed(call.malformed)}: {call.malformed[:200]}")
    try:
        value = await tool.call(call.arguments, context)
        if isinstance(value, ToolResult):
            return capped(replace(value, call_id=call.id, name=call.name), tool.max_size)
        content, images = _shown(await _with_images(value))
    except ToolError as error:
        return replace(ToolResult.error(call, error_text(error)), value=error)
    except Exception as error:  # noqa: BLE001 — whatever a tool raises is the model's to know and to work around
        told = text_of_error(error, errors if tool.errors is None else tool.errors, tool.name)
        return replace(ToolResult.error(call, told), value=error, traceback=traceback_text(error))
    return capped(ToolResult(call.id, call.name, content, images=images, value=value), tool.max_size)


BROKEN_OFF = "this call was broken off, and nobody knows whether it took effect"
"""The text that a model is told about a call that was begun and has no result."""
_REFUSED = "a person refused this call"
"""The text that a model is told about a call that a person denied."""


def because(what: str, verdict: Deny) -> str:
    """Return a refusal with its reason."""
    return f"{what}: {verdict.reason}" if verdict.reason else what


def answered(call: ToolCall, value: Any) -> ToolResult:
    """Return the result that a model sees of a call that was answered from outside, or declined."""
    if isinstance(value, Deny):
        return ToolResult.error(call, because(_REFUSED, value))
    if isinstance(value, ToolResult):
        return replace(value, call_id=call.id, name=call.name)
    content, images = _shown(with_images(value))
    return ToolResult(call.id, call.name, content, images=images, value=value)


async def _with_images(value: Any) -> Any:
    if not has_pillow(value):
        return value
    return await to_thread.run_sync(with_images, value)


def _shown(value: Any) -> tuple[str, tuple[Image, ...]]:
    """Return the part of a tool's result that a model sees: text, and images."""
    if isinstance(value, Image):
        return "(an image)", (value,)
    if isinstance(value, list | tuple):
        members = cast("Sequence[Any]", value)
        images = tuple(each for each in members if isinstance(each, Image))
        if images:
            text = "\n".join(_as_text(each) for each in members if not isinstance(each, Image))
            return text or f"({counted(len(images), 'image')})", images
    return _as_text(value), ()


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return sendable(value)
    from pydantic_core import PydanticSerializationError, to_json

    try:
        # Not orjson: it refuses integers of more than 64 bits.
        return to_json(value, fallback=str, bytes_mode="base64", inf_nan_mode="strings").decode()
    except (PydanticSerializationError, ValueError, RecursionError):  # such as a list that holds itself
        return sendable(str(value))
