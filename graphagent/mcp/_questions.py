"""Questions that a server asks during a call: they are questions of the run, which stops until they are answered.

A call is made in a task of its own. If it may be made again, it is given up when the run stops, and the answer is there when it is
made again. Otherwise it is held: it waits in this process, and the run finds it when it is continued.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Annotated, Any

import anyio
from anyio.lowlevel import current_token
from jsonschema import SchemaError  # type: ignore[import-untyped]  # the package has no types
from mcp import MCPError, UrlElicitationRequiredError
from mcp_types import INVALID_REQUEST, URL_ELICITATION_REQUIRED, ElicitRequestURLParams, ElicitResult, ErrorData
from pydantic import AfterValidator, WithJsonSchema

from graphagent._concurrency import OwnTask
from graphagent._raised import awaited
from graphagent.errors import DeclinedError, ToolError
from graphagent.events import ToolProgressed
from graphagent.llm import Approve
from graphagent.llm._tools import BROKEN_OFF
from graphagent.mcp._tools import checker_of, mismatches, problem_of

if TYPE_CHECKING:
    from mcp import Client
    from mcp.client import ClientRequestContext
    from mcp_types import CallToolResult, ElicitRequestParams

_MOST_VISITS = 10
"""How often a call is repeated because the user has to visit an address first."""
_NO_CHANNEL = "Cannot send 'elicitation/create'"
"""The message with which servers of the package mcp say that they cannot ask."""
_Form = dict[str, str | int | float | bool | list[str] | None]
_calling: ContextVar[Call | None] = ContextVar("calling", default=None)


class Calls:
    """The pending calls of all connections of a server."""

    def __init__(self, server: str) -> None:
        self.server = server
        self.made: set[Call] = set()
        self._held: dict[tuple[object, ...], Call] = {}

    async def elicit(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult | ErrorData:
        """Answer a question of the server."""
        call = _calling.get()  # known where the question comes with the answer, or with the stream, of the call
        if call is None:
            here = [each for each in list(self.made) if each.session is context.session]
            if len(here) != 1:
                many = f"{len(here)} calls are being made, and it is unknown to which of them this belongs"
                return _refusal(f"{many}; make them one after the other" if here else "no call is being made")
            [call] = here
        return await call.ask(params)

    def hold(self, call: Call) -> None:
        """Keep a call whose run has stopped."""
        self._held[call.place] = call

    def holds(self, context: Any) -> bool:
        """Return whether the call of a run is held in this event loop."""
        return _place(context) in self._held

    def take(self, context: Any) -> Call | None:
        """Return a held call and release it."""
        return self._held.pop(_place(context), None)

    def ended(self, call: Call) -> None:
        """Forget a call that has ended; one that is held and was not given up is found by its run."""
        self.made.discard(call)
        if call.is_given_up and self._held.get(call.place) is call:
            del self._held[call.place]

    async def aclose(self) -> None:
        """Cancel the calls in this event loop whose runs have stopped."""
        loop = current_token().native_token
        for call in [self._held.pop(each) for each in list(self._held) if each[0] is loop]:
            await call.task.stop()


class Call:
    """A pending call of a tool."""

    def __init__(
        self, calls: Calls, make: Callable[[Callable[[Client], Awaitable[CallToolResult]]], Awaitable[CallToolResult]], name: str,
        arguments: Mapping[str, Any], context: Any,
    ) -> None:  # fmt: skip
        self._calls, self._make = calls, make
        self._name, self._arguments = name, dict(arguments)
        self.place = _place(context)
        self.context: Any = context
        """The Context of the tool in the run that waits for it; None if it is made outside of a run."""
        self.is_awaited = True
        """Whether a run waits for the result; False after the run has stopped."""
        self._meta: Any = None if context is None else {"idempotencyKey": context.idempotency_key}
        self.session: object = None
        """The session of the call."""
        self.limit = anyio.CancelScope()
        self._news = anyio.Event()
        self._asked: list[_Asked] = []
        self._numbers: Counter[str] = Counter()
        self._result: CallToolResult | None = None
        self._error: Exception | None = None
        self.task = OwnTask(self._own)

    @property
    def is_given_up(self) -> bool:
        """Whether the call ended without a result or an error."""
        return self._result is None and self._error is None

    async def result(self) -> CallToolResult:
        """Return the result, after the questions that the server asks.

        Raises:
            ToolError, ToolServerError: see `MCPServer._asked`.
        """
        while self.task.is_running:
            asked = next((each for each in self._asked if not each.answered.is_set()), None)
            if asked is not None:
                asked.give(await self._answer(asked))
            else:
                self._news = anyio.Event()
                await self._news.wait()
        if self._result is not None:
            return self._result
        raise self._error or ToolError(BROKEN_OFF)

    async def ask(self, params: ElicitRequestParams) -> ElicitResult | ErrorData:
        """Return the answer to a question of the server. The question is refused if the call ends, or is made outside of a run."""
        if self.context is None:
            return _refusal("the call is not made by a run, so no person can be asked")
        asked = _Asked(params)
        self._numbers[asked.digest] += 1
        asked.number = self._numbers[asked.digest]
        self._asked.append(asked)
        self._news.set()
        try:
            await asked.answered.wait()
        finally:  # the server may withdraw it
            self._asked.remove(asked)
        return asked.answer

    async def _answer(self, asked: _Asked) -> ElicitResult | ErrorData:
        """Return the answer of a person. The run stops if there is none yet."""
        params, context = asked.params, self.context
        server, id_ = self._calls.server, f"{context.call.id if context.call else context.node}:{asked.digest}"
        id_ = id_ if asked.number == 1 else f"{id_}:{asked.number}"
        if isinstance(params, ElicitRequestURLParams):
            question = f"The tool server {server!r} asks you to visit {params.url}: {params.message}"
            said: Any = await context.ask(question, kind="approval", about=params.url, id=id_)
            return ElicitResult(action="accept" if isinstance(said, Approve) else "decline")
        try:
            form = _form(params.requested_schema)
        except SchemaError:
            return _refusal("the schema of the question is not a valid JSON schema")
        asks = f"The tool server {server!r} asks: {params.message}"
        try:
            said = await context.ask(asks, form, about=context.call, id=id_)
        except DeclinedError:
            return ElicitResult(action="decline")
        return ElicitResult(action="accept", content=said)

    async def _own(self) -> None:
        self._calls.made.add(self)
        try:
            with self.limit:
                self._result = await awaited(self._make(self._made), f"tool {self._name!r}")
        except Exception as error:  # noqa: BLE001  raised where the result is waited for
            self._error = error
        finally:
            del self._make  # or the server would be there as long as the call
            self._calls.ended(self)
            for each in self._asked:
                each.give(_refusal("the user is asked; the call is made again, or given up"))
            self._news.set()

    async def _made(self, client: Client) -> CallToolResult:
        self.session, token = client.session, _calling.set(self)
        try:
            for _ in range(_MOST_VISITS):
                try:
                    return await self._sent(client)
                except MCPError as error:
                    if error.code != URL_ELICITATION_REQUIRED or not await self._visited(error):
                        raise
            return await self._sent(client)
        finally:
            self.session = None
            _calling.reset(token)

    async def _sent(self, client: Client) -> CallToolResult:
        return await client.call_tool(self._name, self._arguments, progress_callback=self._report, meta=self._meta)

    async def _visited(self, error: MCPError) -> bool:
        """Return whether the user has visited the addresses that an error names."""
        pages = UrlElicitationRequiredError.from_error(error.error).elicitations
        for each in pages:
            answer = await self.ask(each)
            if isinstance(answer, ErrorData) or answer.action != "accept":
                return False
        return bool(pages)

    async def _report(self, progress: float, total: float | None, message: str | None) -> None:
        context = self.context
        if self.is_awaited and context is not None and context.call is not None:
            context.emit(ToolProgressed(context.run_id, context.node, context.call, progress, total, message or ""))


def _place(context: Any) -> tuple[object, ...]:
    """Return a key that identifies the call of a run, since runs of two owners, or in two stores, can share an id."""
    loop = current_token().native_token
    return (loop,) if context is None else (loop, id(context.store), context.owner, context.idempotency_key)


class _Asked:
    """A question of a server, and its answer."""

    def __init__(self, params: ElicitRequestParams) -> None:
        self.params = params
        asks = params.url if isinstance(params, ElicitRequestURLParams) else params.requested_schema
        text = json.dumps([params.message, asks], sort_keys=True)
        self.digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        """Stands for the message, and for the schema or the address: an answer that was recorded is for the same question alone."""
        self.number = 1
        """Which of the questions of the call with this digest it is."""
        self.answered = anyio.Event()
        self.answer: ElicitResult | ErrorData = _refusal("")

    def give(self, answer: ElicitResult | ErrorData) -> None:
        """Answer it."""
        self.answer = answer
        self.answered.set()


def _form(schema: Mapping[str, Any]) -> Any:
    """Return the type of the answers that fit a schema, which is its JSON schema too.

    Raises:
        SchemaError: The schema is not a JSON schema.
    """
    checker = checker_of(schema)
    parts: Mapping[str, Any] = schema.get("properties", {})
    defaults = {
        name: each["default"] for name, each in parts.items() if not isinstance(each, bool) and "default" in each
    }

    def fitting(answer: Any) -> Any:
        answer = defaults | answer
        wrong = [problem_of(each) for each in mismatches(checker, answer)]
        if wrong:
            raise ValueError("; ".join(wrong))
        return answer

    return Annotated[_Form, AfterValidator(fitting), WithJsonSchema(dict(schema))]


def needs_channel(error: Exception) -> bool:
    """Return whether a tool could not ask the user, since a connection of the version of 2026 has no way for it."""
    return isinstance(error, MCPError) and error.code == INVALID_REQUEST and _NO_CHANNEL in error.message


def _refusal(why: str) -> ErrorData:
    return ErrorData(code=INVALID_REQUEST, message=why)
