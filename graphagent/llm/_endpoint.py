"""One path of a server, asked for whole and streamed answers over the `openai` client."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from anyio import CancelScope, current_time
from openai import AsyncOpenAI, AsyncStream

from graphagent.errors import ModelRequestError
from graphagent.llm._context_overflow import is_overflow
from graphagent.llm._messages import FailedRequest
from graphagent.llm._output import read_json
from graphagent.llm._wire import paired
from graphagent.llm._wrappers import TextRelay

if TYPE_CHECKING:
    from graphagent._openai_http import Server
    from graphagent.llm._messages import ModelResponse

_LAST_WORDS = 1.0
"""Seconds that a server has to end a stream of which it said that it is done."""


class StreamedAnswer(Protocol):
    """Collects the events of a streamed answer into the JSON of a whole one."""

    finished: bool
    """Whether the server said that the answer is at its end."""

    @property
    def last(self) -> bool:
        """Whether nothing that matters follows what the server has sent."""
        ...

    def add(self, event: object, server: str, /) -> str:
        """Accept the JSON of one event, and return the text in it."""
        ...

    def body(self) -> object:
        """Return the JSON of the whole answer."""
        ...


Read: TypeAlias = "Callable[[object, str], ModelResponse]"
"""Reads the JSON of an answer; the text says in errors who answered."""


class Endpoint:
    """A path of a server for one model, and what that server was found to refuse."""

    def __init__(self, server: Server, path: str, model: str, streamed: Callable[[], StreamedAnswer]) -> None:
        self._server = server
        self._path = path
        self._model = model
        self._streamed = streamed
        self._left_out: set[str] = set()

    def __str__(self) -> str:
        return str(self._server)

    async def aclose(self) -> None:
        """Close the connections of this event loop as soon as pending requests are answered."""
        await self._server.aclose()

    async def ask(
        self,
        body_without: Callable[[AbstractSet[str]], dict[str, Any]],
        on_text: Callable[[str], None] | None,
        *,
        read: Read,
        refusals: Mapping[str, str],
        given: Iterable[str],
    ) -> ModelResponse:
        """Send a request, and return the answer. What the server refuses is left out of another request, and of later ones.

        Args:
            body_without: Makes the JSON of the request without what is named.
            on_text: Called with each piece of text, if the answer is to be streamed.
            read: Reads the answer.
            refusals: What can be left out, with a regular expression for what a server says that refuses it. What begins with
                `this` is left out of this request only.
            given: The names of the user's parameters.

        Raises:
            ModelRequestError: the server refused, answered with something other than the protocol, or cannot be reached.
        """
        left_out, failed = set(self._left_out), list[FailedRequest]()
        relay = None if on_text is None else TextRelay(on_text)
        while True:
            try:
                response = await self._ask(body_without(left_out), relay, read)
            except ModelRequestError as error:
                refused = next(
                    (what for what, said in refusals.items() if what not in left_out and _refuses(error, said)), None
                )
                # A refusal within a stream comes too late if text of it was heard: another answer would begin anew.
                if refused is None or (relay is not None and relay.has_heard):
                    raise _naming_parameter(error, given) from error.__cause__
                left_out.add(refused)
                failed.append(FailedRequest(self._model, str(error)))
                continue
            if not failed:
                return response
            self._left_out.update(what for what in left_out if not what.startswith("this "))
            return replace(response, failed=tuple(failed))

    async def _ask(self, body: dict[str, Any], on_text: Callable[[str], None] | None, read: Read) -> ModelResponse:
        async with self._server.client() as client:
            if on_text is not None:
                return await self._ask_streaming(client, body, on_text, read)
            with self._server.failures():
                data = await client.post(self._path, body=body, cast_to=object)
            if isinstance(data, str):  # what the client makes of other kinds of content
                raise self._server.no_json(data)
            return read(data, str(self._server))

    async def _ask_streaming(
        self, client: AsyncOpenAI, body: dict[str, Any], on_text: Callable[[str], None], read: Read
    ) -> ModelResponse:
        with self._server.failures():
            stream = await client.post(
                self._path, body=body, cast_to=object, stream=True, stream_cls=AsyncStream[object]
            )
        # The client's own reader of streams leaves generators open, which trio warns of; so only its response is used.
        response = stream.response
        try:
            if "event-stream" not in response.headers.get("content-type", "event-stream"):
                with self._server.failures():
                    content = await response.aread()
                return self._read_unstreamed(content.decode("utf-8", "replace"), on_text, read)
            pieces = response.aiter_bytes()
            try:
                return await self._read_events(pieces, on_text, read)
            finally:
                # Nested generators that are left in the middle stay open; cancelled where they wait, all of them end.
                with CancelScope() as scope, self._server.failures():
                    scope.cancel()
                    async for _ in pieces:
                        pass
        finally:
            await response.aclose()

    async def _read_events(
        self, pieces: AsyncIterator[bytes], on_text: Callable[[str], None], read: Read
    ) -> ModelResponse:
        events, answer, half = Events(), self._streamed(), ""
        with CancelScope() as scope:
            while True:
                with self._server.failures():
                    piece = await anext(pieces, None)
                for event in events.add(piece):
                    if event != b"[DONE]":
                        text = half + answer.add(self._read_json(event.decode("utf-8", "replace")), str(self._server))
                        half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
                        if len(text) > len(half):
                            on_text(paired(text.removesuffix(half)))
                    if event == b"[DONE]" or answer.last:
                        # To read on to the end keeps the connection for the next request, if the end comes soon.
                        scope.deadline = current_time() + _LAST_WORDS
                if piece is None:
                    break
        if not answer.finished:
            raise ModelRequestError(f"the answer of {self._server} broke off before its end; try again")
        return read(answer.body(), str(self._server))

    def _read_unstreamed(self, content: str, on_text: Callable[[str], None], read: Read) -> ModelResponse:
        """Read the answer of a server that does not stream."""
        response = read(self._read_json(content), str(self._server))
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
    text: str, /, *, status: int | None = None, retry_after: float | None = None, detail: str = ""
) -> ModelRequestError:
    """Return an error of the server, which says so if a prompt was too long."""
    error = ModelRequestError(text, status=status, retry_after=retry_after, detail=detail)
    if not is_overflow(error):
        return error
    text += (
        "; the prompt is too long for it: shorten it, or keep prompts short with agent.install(ContextWindow, tokens=…)"
    )
    return ModelRequestError(text, status=status, retry_after=retry_after, detail=detail)


def _refuses(error: ModelRequestError, part: str) -> bool:
    """Return whether the server says that it does not take a part of the request: a regular expression in lower case."""
    return error.status in _REFUSALS and re.search(part, f"{error} {error.detail}".lower(), re.DOTALL) is not None


_REFUSALS = (400, 404, 415, 422, 501)
_UNKNOWN = r"unknown|unrecognized|unsupported|not support|unexpected|not allowed|not permitted|extra_forbidden|invalid (value|type|param)"


def _naming_parameter(error: ModelRequestError, given: Iterable[str]) -> ModelRequestError:
    """Return the error, which says what to leave out if the server does not know one of the given parameters."""
    if not _refuses(error, _UNKNOWN):
        return error
    # The longest, since the name of one may be in that of another.
    for name in sorted(given, key=len, reverse=True):
        if _refuses(error, rf"(?<!\w){re.escape(name.lower())}(?!\w)"):
            text = (
                f"{error}; it refuses the parameter {name!r}: leave it out of the model's arguments and of parameters="
            )
            return ModelRequestError(text, status=error.status, retry_after=error.retry_after, detail=error.detail)
    return error
