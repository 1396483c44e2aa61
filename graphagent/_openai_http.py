"""A server that speaks the OpenAI protocol: its clients, its key, and its failures as errors.

The file is long because each failure has its advice next to the words by which it is recognised.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from os import environ
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote, urlsplit, urlunsplit
from weakref import ref

from anyio import CancelScope, EndOfStream
from anyio.lowlevel import current_token
from openai import (
    APIConnectionError,
    APIError,
    APIStatusError,
    APITimeoutError,
    AsyncOpenAI,
    DefaultAsyncHttpxClient,
    Omit,
    OpenAIError,
    omit,
)

from graphagent._clock import now
from graphagent._options import check_mapping, check_number, check_text, check_whole
from graphagent._policies import Retry, may_pass, repeated

if TYPE_CHECKING:
    from openai._types import RequestOptions

_OPENAI = "https://api.openai.com/v1"
_LONGEST_DETAIL = 2_000
_WAIT, _MOST_WAIT = 0.5, 60.0
"""Seconds before a request is repeated, and the longest Retry-After that is accepted."""
_NOT_SENT = ("ConnectError", "ConnectTimeout", "PoolTimeout")
"""The exceptions of the HTTP library for a connection that could not be made."""

_ADVICE = {
    400: "the request is invalid for this server",
    403: "the key has no access to this model",
    404: "check the model's name and base_url (most end in /v1)",
    408: "the request timed out",
    413: "the request is too large",
    422: "the request is invalid for this server",
    429: "rate limit or quota exceeded",
}
_SAID = (
    # LiteLLM
    (r"invalid model name passed in model=", "the server has no model of that name; GET /models lists its models"),
    (
        r"no connected db",
        "the key is not the server's own, and the server has no database of other keys: pass api_key=",
    ),
    # vLLM
    (
        r"max_tokens=\d+ cannot be greater than max_model_len",
        "the answer alone may be longer than the model allows; allow fewer tokens with parameters={'max_tokens': …}",
    ),
    # llama.cpp, of an embedder
    (
        r"too large to process.*batch size",
        "a text is longer than the batch of the server; start it with a larger --ubatch-size, or shorten the text",
    ),
)
"""The words of servers about a request that would fail again, whatever the status, with advice."""


class MakesError(Protocol):
    """Makes the caller's kind of error for a failed request."""

    def __call__(
        self,
        text: str,
        /,
        *,
        status: int | None = None,
        retry_after: float | None = None,
        detail: str = "",
        sent: bool = True,
        is_final: bool = False,
    ) -> Exception:
        """Make the error. `text` repeats nothing that was sent, `detail` may. `is_final` means that the same request would fail again."""
        ...


@dataclass(eq=False)
class _Failure(Exception):
    """A request that failed."""

    text: str
    status: int | None = None
    retry_after: float | None = None
    detail: str = ""
    sent: bool = True
    is_final: bool = False


class Server:
    """A server, with the name under which errors mention it: `model 'gpt-5-mini' at localhost:8000`.

    It can be used in any event loop, with one client for each. A client is closed by `aclose`, or with its event loop.
    """

    def __init__(
        self,
        asked: str,
        *,
        error: MakesError,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout: float | None = None,
        max_retries: int = 2,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
        advice: Mapping[int, str] | None = None,
    ) -> None:
        """Set the address and the options of the server.

        Raises:
            TypeError: an argument is not of its type.
            ValueError: `base_url` is not an address, `max_retries` is negative, or `timeout` is not above 0. The address is not
                shown, since it may contain a password.
        """
        for option, text in (("base_url", base_url), ("api_key", api_key)):
            if text is not None:
                check_text(f"{option}=", text)
        if headers is not None:
            check_mapping("headers=", headers, "{'x-team': 'search'}")
            for name, value in headers.items():
                check_text("the name of a header", name)
                check_text(f"headers[{name!r}]", value)
        if timeout is not None:
            check_number("timeout", timeout)
            if not timeout > 0:
                raise ValueError(f"timeout={timeout} must be more than 0 seconds")
        check_whole("max_retries", max_retries)
        if max_retries < 0:
            raise ValueError("max_retries must be at least 0")
        self._asked = f"{asked} at {_taken_apart(base_url)[1]}" if base_url else asked
        self._error = error
        self._base_url = (base_url or "").strip() or None
        self._api_key = api_key
        self._headers = dict(headers or {})
        self.retry = Retry(max_retries + 1, wait=_WAIT, max_wait=_MOST_WAIT)
        """How often a request is repeated, by `post` and by callers who use the client."""
        self._settings: dict[str, Any] = {"max_retries": 0, "default_query": dict(query or {})}
        if timeout is not None:
            self._settings["timeout"] = timeout
        self._advice = {**_ADVICE, **(advice or {})}

    def __str__(self) -> str:
        return self._asked

    @asynccontextmanager
    async def client(self) -> AsyncGenerator[AsyncOpenAI]:
        """Yield the client of this event loop. Within the block it stays open even if `aclose` is called.

        Raises:
            The error of the caller's kind: the key is missing.
        """
        clients = await _clients_here()
        client = clients.get(ref(self))
        if client is None:
            client = clients[ref(self)] = _Client(self._made())
        client.users += 1
        try:
            yield client.openai
        finally:
            client.users -= 1
            await client.close_if_done()

    async def post(self, path: str, body: Mapping[str, Any]) -> object:
        """Return the JSON answer to a request for something other than a response of a model.

        Raises:
            The error of the caller's kind: the key is missing, or the server refused, cannot be reached, or did not answer with JSON.
        """
        # Without a key, a header in its place or a password in the address, no header is sent at all.
        keyed = not self._has_none() or "authorization" in map(str.lower, self._with_login()[1])
        options: RequestOptions = {} if keyed else {"headers": {"Authorization": Omit()}}

        async def attempt() -> object:
            async with self.client() as client:
                try:
                    return await client.post(path, body=body, cast_to=object, options=options)
                except Exception as error:
                    failure = self._failure(error)
                    if failure is None:
                        raise
                    raise failure from None

        with self.failures():
            answer = await repeated(attempt, self.retry, _may_pass)
        if isinstance(answer, str):  # the client's result for other kinds of content
            raise self.no_json(answer)
        return answer

    async def aclose(self) -> None:
        """Close the connections of this event loop, at once or as soon as pending requests are answered."""
        here = _loops.get(current_token().native_token)
        client = None if here is None else here.clients.pop(ref(self), None)
        if client is not None:
            client.dismissed = True
            await client.close_if_done()

    @contextmanager
    def failures(self) -> Generator[None]:
        """Turn the errors of the client into those of the caller's kind."""
        try:
            yield
        except Exception as error:
            failure = error if isinstance(error, _Failure) else self._failure(error)
            if failure is None:
                raise
            raise self._error_of(failure) from None

    def no_json(self, content: str = "") -> Exception:
        """Return the error for a response that is not JSON."""
        return self._error_of(self._no_json(content))

    def _no_json(self, content: str = "") -> _Failure:
        text = f"{self} answered with something other than JSON; check base_url (most end in /v1)"
        return _Failure(text, detail=content[:_LONGEST_DETAIL])

    def _error_of(self, failure: _Failure) -> Exception:
        error = self._error(
            failure.text, status=failure.status, retry_after=failure.retry_after, detail=failure.detail, sent=failure.sent,
            is_final=failure.is_final,
        )  # fmt: skip
        for note in getattr(failure, "__notes__", ()):
            error.add_note(note)
        return error

    def _failure(self, error: Exception) -> _Failure | None:
        """Return how a request failed, without anything that was sent; None if the server did not fail."""
        if isinstance(error, APIStatusError):
            headers, known = error.response.headers, _advice_of(error.response.text)
            advice = known or self._advice_for(error.status_code)
            return _Failure(
                f"{self} answered {error.status_code}{_codes(error)}" + (f": {advice}" if advice else ""),
                status=error.status_code,
                retry_after=_retry_after(headers),
                detail=(error.response.text or error.message)[:_LONGEST_DETAIL],
                is_final=bool(known) or headers.get("x-should-retry") == "false",
            )
        if isinstance(error, APITimeoutError):
            sent = type(error.__cause__).__name__ not in _NOT_SENT
            return _Failure(f"{self} did not answer in time; try again, or increase timeout=", sent=sent)
        if isinstance(error, APIConnectionError):
            cause = error.__cause__ or error
            if type(cause).__name__ == "LocalProtocolError":  # its text shows the header with the key
                return self._bad_header()
            return _Failure(
                f"{self} cannot be reached ({type(cause).__name__}); check base_url, and that the server is running",
                detail=str(cause)[:_LONGEST_DETAIL],
                sent=type(cause).__name__ not in _NOT_SENT,
            )
        if isinstance(error, APIError):
            return _Failure(f"{self} failed while it answered{_codes(error)}", detail=error.message[:_LONGEST_DETAIL])
        if isinstance(error, UnicodeEncodeError) and error.reason == "surrogates not allowed":
            return _Failure(
                f"the request to {self} contains half a surrogate pair, which UTF-8 cannot encode; "
                f"clean the text with .encode('utf-8', 'replace').decode()",
                sent=False,
                is_final=True,
            )
        if isinstance(error, UnicodeEncodeError):
            return self._bad_header()
        if isinstance(error, json.JSONDecodeError | RecursionError):
            return self._no_json()
        # While a stream is read, errors come from the HTTP library, httpx or httpx2, as the client's version has it.
        name = type(error).__name__
        if isinstance(error, OSError | EndOfStream) or type(error).__module__.partition(".")[0] in ("httpx", "httpx2"):
            return _Failure(f"the connection to {self} broke before the end of the answer ({name}); try again")
        return None

    def _bad_header(self) -> _Failure:
        text = f"the key or a header for {self} contains a character that HTTP does not allow, such as a trailing line break"
        return _Failure(text, sent=False, is_final=True)

    def _advice_for(self, status: int) -> str:
        if status == 401:  # the key of the environment is not sent to a server that was named
            return "check the key: pass api_key=" + ("" if self._base_url else ", or set OPENAI_API_KEY")
        return self._advice.get(status, "the server failed" if status >= 500 else "")

    def _made(self) -> AsyncOpenAI:
        base_url, headers = self._with_login()
        try:
            # The client that openai makes for itself starts a task when it is garbage-collected, in whichever loop is running
            # then.
            client = AsyncOpenAI(
                # The client cannot be created without a key.
                api_key="none" if self._has_none() else self._api_key,
                base_url=base_url,
                default_headers=self._with_own(headers),
                http_client=DefaultAsyncHttpxClient(),
                **self._settings,
            )
        except OpenAIError:
            raise self._error(
                f"{self} needs a key: set OPENAI_API_KEY, pass api_key=, or pass base_url= of a server without keys",
                sent=False,
                is_final=True,
            ) from None
        if self._base_url:  # OPENAI_ORG_ID and OPENAI_PROJECT_ID belong to the key of the environment
            client.organization = client.project = None
        return client

    def _has_none(self) -> bool:
        """Return whether this server has no key. A key from the environment is for the server from the environment."""
        named = self._base_url or (address_of_environment() and "OPENAI_API_KEY" not in environ)
        return self._api_key is None and bool(named)

    def _with_login(self) -> tuple[str, dict[str, str]]:
        """Return the address and the headers. A password in the address is moved to the headers, because HTTP clients log addresses."""
        try:
            address, _, login = _taken_apart(self._base_url or address_of_environment() or _OPENAI)
        except ValueError:
            raise self._error(
                "OPENAI_BASE_URL is not an address such as 'http://localhost:11434/v1'", sent=False, is_final=True
            ) from None
        if login is None or "authorization" in map(str.lower, self._headers):
            return address, self._headers
        return address, {**self._headers, "Authorization": login}

    def _with_own(self, headers: dict[str, str]) -> dict[str, Any]:
        """Return headers that suppress those of OPENAI_CUSTOM_HEADERS, which may contain a key, for a server that was named."""
        if not self._base_url:
            return headers
        lines = environ.get("OPENAI_CUSTOM_HEADERS", "").split("\n")
        kept_back: dict[str, Any] = {line.partition(":")[0].strip(): omit for line in lines if ":" in line}
        if "authorization" in map(str.lower, kept_back):
            kept_back = {name: value for name, value in kept_back.items() if name.lower() != "authorization"}
            if "authorization" not in map(str.lower, headers):
                kept_back["Authorization"] = f"Bearer {self._api_key or 'none'}"
        return kept_back | headers


class _Client:
    """A client, and how many requests are using it."""

    def __init__(self, openai: AsyncOpenAI) -> None:
        self.openai = openai
        self.users = 0
        self.dismissed = False

    async def close_if_done(self) -> None:
        if self.dismissed and not self.users:
            await self.close()

    async def close(self) -> None:
        with CancelScope(shield=True):
            await self.openai.close()


class _Loop:
    """The clients of one event loop, under weak references to their servers."""

    def __init__(self) -> None:
        self.clients: dict[ref[Any], _Client] = {}
        self.end = self._until_its_end()
        """A generator started in the event loop, which closes it when the loop ends: the only way to be notified of that end."""

    async def _until_its_end(self) -> AsyncGenerator[None]:
        loop = current_token().native_token
        try:
            yield
        finally:
            _loops.pop(loop, None)
            for client in list(self.clients.values()):
                await client.close()


_loops: dict[object, _Loop] = {}
"""The clients by event loop, since a connection belongs to the loop in which it was opened. Loops that have ended are removed."""


async def _clients_here() -> dict[ref[Any], _Client]:
    """Return the clients of this event loop, after closing those whose servers no longer exist."""
    loop = current_token().native_token
    here = _loops.get(loop)
    if here is None:
        for each in list(_loops):
            if _is_closed(each):
                _loops.pop(each, None)
        here = _loops[loop] = _Loop()
        await anext(here.end)
    for gone in [server for server in here.clients if server() is None]:
        client = here.clients.pop(gone, None)
        if client is not None:
            await client.close()
    return here.clients


def address_without_login(given: str | None) -> str:
    """Return the address of the server, without user, password and query; empty if it is not an address."""
    try:
        parts = urlsplit(given or address_of_environment() or _OPENAI)
    except ValueError:
        return ""
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def address_of_environment() -> str:
    """Return the address in OPENAI_BASE_URL; an empty one counts as unset."""
    return environ.get("OPENAI_BASE_URL", "").strip()


def _is_closed(loop: Any) -> bool:
    """Return whether a loop is an asyncio loop that was closed without closing its generators, as `asyncio.run` would."""
    return hasattr(loop, "is_closed") and loop.is_closed()


def _taken_apart(base_url: str) -> tuple[str, str, str | None]:
    """Return the address without user and password, its host and port, and the user and password as a header."""
    try:
        parts = urlsplit(base_url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("base_url is not an address such as 'http://localhost:11434/v1'")
    address = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    login = None
    if parts.username or parts.password:
        login = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
        login = f"Basic {b64encode(login.encode()).decode()}"
    return address, parts.hostname + (f":{port}" if port else ""), login


def safe_codes(*said: object) -> str:
    """Return a server's short codes, in brackets. Its message is left out, since it may repeat data that was sent."""
    codes = [
        each for each in dict.fromkeys(map(str, said)) if each != "None" and re.fullmatch(r"[\w.\[\]-]{1,64}", each)
    ]
    return f" ({', '.join(codes)})" if codes else ""


def _codes(error: APIError) -> str:
    return safe_codes(error.code, error.type, error.param)


def _may_pass(error: Exception) -> bool:
    return isinstance(error, _Failure) and may_pass(error.status, is_final=error.is_final)


def _advice_of(said: str) -> str:
    """Return advice for the words of a server; empty if they are not known."""
    return next((advice for words, advice in _SAID if re.search(words, said, re.IGNORECASE | re.DOTALL)), "")


def _retry_after(headers: Mapping[str, str]) -> float | None:
    milliseconds = headers.get("retry-after-ms", "")
    # LiteLLM passes on the headers of the server behind it under other names.
    wait = headers.get("retry-after") or headers.get("llm_provider-retry-after", "")
    try:
        if milliseconds:
            return float(milliseconds) / 1_000
        return float(wait) if wait else None
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(wait).timestamp() - now() / 1_000)
    except ValueError:
        return None
