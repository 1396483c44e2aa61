"""A real HTTP server on this machine that speaks the OpenAI protocols and answers from a script."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import repeat
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, Self, TypeAlias, get_args

from graphagent._article import counted
from graphagent.errors import ContentFilterError, ModelRequestError, ScriptError
from graphagent.llm import ModelRequest
from graphagent.testing._model import Reply, response_of
from graphagent.testing._responses import Responses
from graphagent.testing._services import RefusedError, Service
from graphagent.testing._wire import ChatCompletions, embeddings, moderations, rerank

if TYPE_CHECKING:
    from types import TracebackType

    from graphagent.testing._http import HttpServer


@dataclass(frozen=True, slots=True)
class RawResponse:
    """An HTTP response as it goes over the wire: for servers that err."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: str | bytes = ""


@dataclass(frozen=True, slots=True)
class Cut:
    """A reply whose connection is closed before its end."""

    reply: ServerReply
    after: int = 0
    """Bytes of the body that are sent; with 0 the connection is closed without a word."""


_Change: TypeAlias = Callable[[list[dict[str, Any]]], Iterable[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Edit:
    """A reply whose JSON is changed before it is sent."""

    reply: ServerReply
    change: _Change
    """A function of the JSON that would be sent, which returns the JSON to send instead: of all events or chunks of a streamed answer,
    otherwise of a list of one. It may change this list. A RawResponse is sent unchanged."""


ServerReply: TypeAlias = Reply | RawResponse | Cut | Edit | Callable[[ModelRequest], "ServerReply"]
"""A reply of the server, as `openai_server` describes."""


def openai_server(
    replies: Iterable[ServerReply] | Callable[[ModelRequest], ServerReply],
    *,
    model: str = "scripted",
    strict: Service | None = None,
    flags: Mapping[str, str] | None = None,
) -> OpenAIServer:
    """Make a server for `with` or `async with`. It answers with the replies in turn, or with the replies that a function returns.

    A reply is a reply of a ScriptedModel, a `RawResponse`, a `Cut` or an `Edit` of one, or a function of the request that returns
    one. A `ModelRequestError` is answered with its status and Retry-After, any other exception with 500.

    Responses and Chat Completions, streamed or not, embeddings, moderations and the list of models are served, over HTTP/1.1 on
    127.0.0.1 and a free port, in its own threads, for any client, in this process or in another. The same replies do for both
    protocols; a ModelResponse whose finish reason is `refusal` is sent as one. Embeddings are made of the words of a text, always
    the same for the same text, and take no reply. Nor do moderations: a text is flagged if it has one of the words in `flags`,
    with the category that the word has there, such as `{"bomb": "violence"}`. Nor does `/rerank`, as many servers have it besides
    OpenAI's protocol: a text's score is the share of the question's words that it has.

    With `strict` it refuses what that service refuses, with the same status, message and code, and attaches to its answers what
    the service wants returned; a request that is refused takes no reply. Without, it takes every request that it can read. The
    rules are those of Chat Completions, and for `openai` those of Responses too.

    - `openai`: the current models. On Chat Completions no function tools with a reasoning effort, which the models have by
      default. On Responses each answer begins with a reasoning item, to be returned with the items that followed it; its
      encrypted content is for the client's key only. Unknown parameters and fields, schemas that claim to be strict and are
      not, and calls without results are refused.
    - `deepseek`: the `reasoning_content` of a message with tool calls has to be returned. JSON schemas are not supported.
    - `google`: the `thought_signature` of a call has to be returned, during the turn. Unknown parameters are refused.
    - `mistral`: unknown parameters and unknown fields of messages are refused, `reasoning_content` among them.
    """
    return OpenAIServer(replies, model=model, strict=strict, flags=flags)


class OpenAIServer:
    """A running server, as `openai_server` makes it."""

    def __init__(
        self,
        replies: Iterable[ServerReply] | Callable[[ModelRequest], ServerReply],
        *,
        model: str = "scripted",
        strict: Service | None = None,
        flags: Mapping[str, str] | None = None,
    ) -> None:
        if isinstance(replies, str):
            raise TypeError(f"the replies are one string; for a single reply write openai_server([{replies!r}])")
        if strict is not None and strict not in get_args(Service):
            known = ", ".join(repr(each) for each in get_args(Service))
            raise ValueError(f"unknown service {strict!r} for strict=; choose one of {known}")
        self.model = model
        """The model that it says it is."""
        self.requests: list[dict[str, Any]] = []
        """The JSON bodies that it was sent, in order."""
        self.headers: list[dict[str, str]] = []
        """The headers of these requests, their names in lower case."""
        self._replies = repeat(replies) if callable(replies) else iter(replies)
        self._protocols: dict[str, ChatCompletions | Responses] = {
            "/v1/chat/completions": ChatCompletions(strict),
            "/v1/responses": Responses(strict),
        }
        self._flags = dict(flags or {})
        self._taken = 0
        self._lock = Lock()
        self._http: HttpServer | None = None

    @property
    def base_url(self) -> str:
        """Its address, such as `http://127.0.0.1:40123/v1`.

        Raises:
            RuntimeError: it is not running.
        """
        if self._http is None:
            raise RuntimeError("the server is not running; use it in `with` or `async with`")
        return f"http://127.0.0.1:{self._http.server_port}/v1"

    def answer(
        self, path: str, body: dict[str, Any], headers: dict[str, str]
    ) -> tuple[RawResponse | list[bytes], int | None]:
        """Return the response to a request, or its events, and the number of bytes after which it is cut off, if it is."""
        protocol, key = self._protocols[path], headers.get("authorization", "")
        with self._lock:
            self.requests.append(body)
            self.headers.append(headers)
            asked = len(self.requests)
            try:
                request = protocol.read(body, key)
            except RefusedError as error:
                return json_response(error.body, error.status), None
            except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
                return _refusal(error, 400), None
            # A request that was refused above has taken no reply, so the client may ask again in another way.
            reply: ServerReply | None = next(self._replies, None)
            if reply is None:
                text = f"the script has {counted(self._taken, 'reply')}, and this is request {asked}"
                return _refusal(ScriptError(text), 400), None
            self._taken += 1
        after: int | None = None
        changes: list[_Change] = []
        try:
            while isinstance(reply, Cut | Edit) or callable(reply):
                if isinstance(reply, Cut):
                    after, reply = reply.after, reply.reply
                elif isinstance(reply, Edit):
                    changes.append(reply.change)
                    reply = reply.reply
                else:
                    reply = reply(request)
            if isinstance(reply, RawResponse):
                return reply, after
            whole = protocol.answer(response_of(reply, request, self.model), body, key, asked)
            sent = list(protocol.events(whole, body)) if body.get("stream") else [whole]
            for change in reversed(changes):
                sent = list(change(deepcopy(sent)))
            return _events(sent) if body.get("stream") else json_response(sent[0]), after
        except ModelRequestError as error:
            wait = {} if error.retry_after is None else {"retry-after": str(math.ceil(error.retry_after))}
            status = error.status or (400 if isinstance(error, ContentFilterError) else 500)
            return _refusal(error, status, wait), after
        except Exception as error:  # noqa: BLE001 — a server answers whatever goes wrong in it
            return _refusal(error, 500), after

    def serve(self, path: str, body: dict[str, Any], headers: dict[str, str]) -> RawResponse:
        """Return the response to a request that takes no reply: for embeddings or moderations, or to rerank."""
        with self._lock:
            self.requests.append(body)
            self.headers.append(headers)
        try:
            if path == "/v1/moderations":
                return json_response(moderations(body, self.model, self._flags))
            if path == "/v1/rerank":
                return json_response(rerank(body, self.model))
            return json_response(embeddings(body, self.model))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            return _refusal(error, 400)

    def __enter__(self) -> Self:
        from graphagent.testing._http import HttpServer

        if self._http is not None:
            raise RuntimeError("the server is running already")
        self._http = HttpServer(self)
        Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        if self._http is not None:
            self._http.close()
            self._http = None

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        from anyio import CancelScope, to_thread

        with CancelScope(shield=True):
            await to_thread.run_sync(self.__exit__, kind, error, trace)


def _refusal(error: Exception, status: int, headers: Mapping[str, str] | None = None) -> RawResponse:
    said: dict[str, Any] = {"message": str(error), "type": type(error).__name__, "param": None, "code": None}
    if isinstance(error, ContentFilterError):  # as Azure says it
        filtered = {name: {"filtered": True, "severity": "high"} for name in error.categories}
        inner = {"code": "ResponsibleAIPolicyViolation", "content_filter_result": filtered}
        said |= {"code": "content_filter", "status": status, "innererror": inner}
    return json_response({"error": said}, status, headers)


def json_response(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> RawResponse:
    """Return a response with JSON."""
    import orjson

    return RawResponse(status, {"content-type": "application/json", **(headers or {})}, orjson.dumps(value))


def _events(data: Iterable[dict[str, Any]]) -> list[bytes]:
    """Return server-sent events. Those of Responses have a name; those of Chat Completions have none, and one more at the end."""
    import orjson

    events = [
        (b"event: " + each["type"].encode() + b"\n" if "type" in each else b"")
        + b"data: "
        + orjson.dumps(each)
        + b"\n\n"
        for each in data
    ]
    return events if events and events[-1].startswith(b"event:") else [*events, b"data: [DONE]\n\n"]
