"""A server that is asked for whole and streamed answers over the `openai` client, in any protocol."""

from __future__ import annotations

import json
import math
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, cast

from anyio import CancelScope, current_time
from openai import AsyncOpenAI, AsyncStream

from graphagent._article import kind_of
from graphagent._details import FailedRequest
from graphagent._policies import before_another
from graphagent.errors import ContentFilterError, ModelRequestError
from graphagent.llm._content_filter import filter_of, objection
from graphagent.llm._context_overflow import is_overflow
from graphagent.llm._json_text import read_json
from graphagent.llm._output import has_json
from graphagent.llm._whole import is_empty
from graphagent.llm._wire import paired, unicode

if TYPE_CHECKING:
    from graphagent._openai_http import Server
    from graphagent.llm._families import ModelFamily
    from graphagent.llm._messages import ModelRequest, ModelResponse
    from graphagent.llm._wrappers import TextRelay

_LAST_WORDS = 1.0
"""How many seconds a server has to close a stream after announcing its end."""
DONE = "[DONE]"
"""The last event of a stream, which is not JSON."""


class StreamedAnswer(Protocol):
    """Collects the events of a streamed answer into the JSON of a whole one."""

    finished: bool
    """Whether the server announced the end of the answer."""

    @property
    def last(self) -> bool:
        """Whether nothing relevant follows the events received so far."""
        ...

    def add(self, event: object, server: str, /) -> str:
        """Accept the JSON of one event, or DONE, and return the text in it."""
        ...

    def body(self) -> object:
        """Return the JSON of the whole answer."""
        ...


@dataclass(frozen=True, slots=True)
class WireRequest:
    """A request to a model, with everything that determines its JSON and how its answer is read."""

    request: ModelRequest
    model: str
    """The name of the model."""
    host: str
    """The host of the server; empty for OpenAI's own, if no address is set."""
    parameters: Mapping[str, Any]
    """The parameters of the model; those of the request win over them."""
    family: ModelFamily | None
    """The family passed to the model, if any."""
    streaming: bool
    address: str = ""
    """The host and the port of the server."""


class Exchange(Protocol):
    """One request in a protocol: the data sent, the parts that a server may refuse, and how the answer is read."""

    path: str
    asked: WireRequest

    @property
    def refusals(self) -> Mapping[str, str]:
        """The parts that can be left out, each with a regular expression for a refusal of it.

        Parts whose name begins with `this` are left out of this request only.
        """
        ...

    def body(self, left_out: AbstractSet[str], /) -> dict[str, Any]:
        """Return the JSON of the request, without the parts in `left_out`."""
        ...

    def read(self, data: object, server: str, /) -> ModelResponse:
        """Read the JSON of an answer; `server` says in errors who answered."""
        ...

    def streamed(self) -> StreamedAnswer:
        """Return an empty answer, which collects the events of a streamed one."""
        ...


class Endpoint:
    """A server for one model, and the parts of requests that it is known to refuse."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._left_out: set[str] = set()

    def __str__(self) -> str:
        return str(self._server)

    async def aclose(self) -> None:
        """Close the connections of this event loop as soon as pending requests are answered."""
        await self._server.aclose()

    async def ask(self, exchange: Exchange, relay: TextRelay | None) -> ModelResponse:
        """Send a request, and return the answer. A part that the server refuses is left out of another request, and of later ones.

        Args:
            exchange: The request, in a protocol.
            relay: Hears each piece of text, if the answer is to be streamed.

        Raises:
            ModelRequestError: the server refused, answered with something other than the protocol, or cannot be reached.
        """
        asked, refusals = exchange.asked, exchange.refusals
        left_out, failed = set(self._left_out), list[FailedRequest]()
        while True:
            body = exchange.body(left_out)
            try:
                response = await self._ask(exchange, body, relay)
            except (TypeError, ValueError) as error:
                unsendable = _no_json(body)
                if not unsendable:
                    raise
                raise ModelRequestError(
                    f"the request to {self} is not JSON: {unsendable}", sent=False, is_final=True
                ) from error
            except ModelRequestError as error:
                refused = next(
                    (what for what, said in refusals.items() if what not in left_out and _refuses(error, said)), None
                )
                # A refusal within a stream comes too late if text of it was heard: another answer would begin anew.
                if refused is None or (relay is not None and relay.has_heard):
                    sent = (asked.parameters, asked.request.parameters)
                    given = {name for each in sent for name in (*each, *(each.get("extra_body") or ()))}
                    named = _naming_parameter(error, given)
                    if failed:
                        named.failed = (*failed, FailedRequest(asked.model, str(named), named.usage))
                    raise named from error.__cause__
                left_out.add(refused)
                failed.append(FailedRequest(asked.model, str(error)))
                await before_another()
                continue
            self._left_out.update(what for what in left_out if not what.startswith("this "))
            if asked.request.output is not None and _is_prose(response):
                # The server took a format and ignored it, as several do: the next request has the schema in its prompt.
                self._left_out.add("schema")
            return replace(response, failed=tuple(failed)) if failed else response

    async def _ask(
        self, exchange: Exchange, body: dict[str, Any], on_text: Callable[[str], None] | None
    ) -> ModelResponse:
        async with self._server.client() as client:
            if on_text is not None:
                return await self._ask_streaming(client, exchange, body, on_text)
            with self._server.failures():
                data = await client.post(exchange.path, body=body, cast_to=object)
            if isinstance(data, str):  # what the client makes of other kinds of content
                return self._read_streamed(data, exchange)
            return self._read(data, exchange)

    async def _ask_streaming(
        self, client: AsyncOpenAI, exchange: Exchange, body: dict[str, Any], on_text: Callable[[str], None]
    ) -> ModelResponse:
        with self._server.failures():
            stream = await client.post(
                exchange.path, body=body, cast_to=object, stream=True, stream_cls=AsyncStream[object]
            )
        # The client's own reader of streams leaves generators open, which trio warns of; so only its response is used.
        response = stream.response
        try:
            if "event-stream" not in response.headers.get("content-type", "event-stream"):
                with self._server.failures():
                    content = await response.aread()
                return self._read_unstreamed(content.decode("utf-8", "replace"), exchange, on_text)
            pieces = response.aiter_bytes()
            try:
                return await self._read_events(pieces, exchange, on_text)
            finally:
                # Nested generators that are left in the middle stay open; cancelled where they wait, all of them end.
                with CancelScope() as scope, self._server.failures():
                    scope.cancel()
                    async for _ in pieces:
                        pass
        finally:
            await response.aclose()

    async def _read_events(
        self, pieces: AsyncIterator[bytes], exchange: Exchange, on_text: Callable[[str], None]
    ) -> ModelResponse:
        events, answer, half, is_done = Events(), exchange.streamed(), "", False
        with CancelScope() as scope:
            while True:
                with self._server.failures():
                    piece = await anext(pieces, None)
                for event in events.add(piece):
                    is_done = is_done or event == b"[DONE]"
                    # After the marker, another answer may follow that was not asked for.
                    said = DONE if is_done else self._read_json(event.decode("utf-8", "replace"))
                    text = half + answer.add(said, str(self._server))
                    half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
                    if len(text) > len(half):
                        on_text(paired(text.removesuffix(half)))
                    if is_done or answer.last:
                        # To read on to the end keeps the connection for the next request, if the end comes soon.
                        scope.deadline = min(scope.deadline, current_time() + _LAST_WORDS)
                if piece is None:
                    break
        return self._whole(answer, exchange)

    def _read_streamed(self, content: str, exchange: Exchange) -> ModelResponse:
        """Read the answer of a server that streams unasked."""
        events, answer = Events(), exchange.streamed()
        found = [*events.add(content.encode("utf-8", "replace")), *events.add(None)]
        if not found:
            raise self._server.no_json(content)
        for event in found:
            if event == b"[DONE]":
                answer.add(DONE, str(self._server))
                break
            answer.add(self._read_json(event.decode()), str(self._server))
        return self._whole(answer, exchange)

    def _whole(self, answer: StreamedAnswer, exchange: Exchange) -> ModelResponse:
        """Read a streamed answer whose events have been collected.

        Raises:
            ModelRequestError: it has no end, or is not the protocol.
        """
        if not answer.finished:
            raise ModelRequestError(f"the answer of {self._server} broke off before its end; try again")
        return self._read(answer.body(), exchange)

    def _read(self, data: object, exchange: Exchange) -> ModelResponse:
        """Read the JSON of a whole answer, of which every text can be kept and sent again."""
        with self._server.failures():  # one that is nested too deeply
            data = unicode(data)
        return exchange.read(data, str(self._server))

    def _read_unstreamed(self, content: str, exchange: Exchange, on_text: Callable[[str], None]) -> ModelResponse:
        """Read the answer of a server that does not stream."""
        response = self._read(self._read_json(content), exchange)
        if response.message.text:
            on_text(response.message.text)
        return response

    def _read_json(self, content: str) -> object:
        try:
            return read_json(content)
        except ValueError:
            if "\\ud" not in content.lower():
                raise self._server.no_json(content) from None
        # Some servers cut a text into pieces in the middle of a surrogate pair, which only Python's own reader takes.
        try:
            return json.loads(content)
        except (ValueError, RecursionError):
            raise self._server.no_json(content) from None


class Events:
    """Server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html): bytes go in, data comes out."""

    def __init__(self) -> None:
        self._line: list[bytes] = []
        self._data: list[bytes] = []

    def add(self, piece: bytes | None) -> list[bytes]:
        """Accept some bytes, or None at the end, and return the data of the events that they complete."""
        if piece is None:
            piece = b"\n\n"
        # Only at line feeds: JSON may hold other characters that str.splitlines() takes for line ends.
        first, *others = piece.split(b"\n")
        self._line.append(first)
        found: list[bytes] = []
        for other in others:
            line = b"".join(self._line).removesuffix(b"\r")
            self._line = [other]
            if line.startswith(b"data:"):
                self._data.append(line[5:].strip())
            elif not line and self._data:
                found.append(b"\n".join(self._data))
                self._data = []
        return found


def request_error(
    text: str,
    /,
    *,
    status: int | None = None,
    retry_after: float | None = None,
    detail: str = "",
    sent: bool = True,
    is_final: bool = False,
) -> ModelRequestError:
    """Return an error of the server, with advice if its content filter objected or the prompt was too long."""
    categories = filter_of(detail)
    if categories is not None:
        text = f"{text}; {objection(categories)}"
        return ContentFilterError(text, categories=categories, status=status, detail=detail)
    error = ModelRequestError(text, status=status, retry_after=retry_after, detail=detail, sent=sent, is_final=is_final)
    if not is_overflow(error):
        return error
    text += "; the prompt is too long: shorten it, or keep prompts short with agent.install(ContextWindow, tokens=…)"
    return ModelRequestError(text, status=status, retry_after=retry_after, detail=detail)


def _refuses(error: ModelRequestError, part: str) -> bool:
    """Return whether the server refuses a part of the request, named by a regular expression in lower case."""
    return error.status in _REFUSALS and re.search(part, f"{error} {error.detail}".lower(), re.DOTALL) is not None


def _is_prose(response: ModelResponse) -> bool:
    """Return whether the whole answer is text in which nothing is JSON."""
    message = response.message
    return response.finish_reason == "stop" and not (is_empty(message) or message.tool_calls or has_json(message.text))


_REFUSALS = (400, 404, 415, 422, 501)
_UNKNOWN = r"unknown|unrecognized|unsupported|not support|unexpected|not allowed|not permitted|extra_forbidden|invalid (value|type|param)"


def _no_json(value: Any, place: str = "") -> str:
    """Return where in the body of a request something is that JSON does not have, and of which kind; empty if there is nothing."""
    if value is None or isinstance(value, str | int):
        return ""
    if isinstance(value, float):
        return "" if math.isfinite(value) else f"{place!r} is {value}"
    if isinstance(value, Mapping):
        parts = [(str(name), part) for name, part in cast("Mapping[object, Any]", value).items()]
    elif isinstance(value, list | tuple):
        parts = [(str(number), part) for number, part in enumerate(cast("Sequence[Any]", value))]
    else:
        return f"{place!r} is {kind_of(value)}"
    return next(filter(None, (_no_json(part, f"{place}.{name}".lstrip(".")) for name, part in parts)), "")


def _naming_parameter(error: ModelRequestError, given: Iterable[str]) -> ModelRequestError:
    """Return the error, naming the parameter to leave out if the server does not know one of those given."""
    if not _refuses(error, _UNKNOWN):
        return error
    # The longest name, since one name may be part of another.
    for name in sorted(given, key=len, reverse=True):
        if _refuses(error, rf"(?<!\w){re.escape(name.lower())}(?!\w)"):
            text = (
                f"{error}; it refuses the parameter {name!r}: leave it out of the model's arguments and of parameters="
            )
            return ModelRequestError(text, status=error.status, retry_after=error.retry_after, detail=error.detail)
    return error
