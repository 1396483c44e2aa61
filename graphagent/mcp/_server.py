"""MCP servers as sources of tools."""

from __future__ import annotations

import math
import weakref
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, Unpack, cast
from urllib.parse import urlsplit

import anyio
import httpx2
from anyio.lowlevel import current_token
from mcp import Client, InputRequiredRoundsExceededError, MCPError
from pydantic import ValidationError

from graphagent._options import check_flag, check_options, check_word
from graphagent._policies import Retry
from graphagent._raised import awaited
from graphagent.errors import GraphAgentError, LeakedCancellationError, ToolError, ToolServerError
from graphagent.llm import Tool
from graphagent.mcp._answers import Fault, fault_of
from graphagent.mcp._auth import Access, OAuth
from graphagent.mcp._connection import MCPConnection, is_end
from graphagent.mcp._questions import Call, Calls, needs_channel
from graphagent.mcp._responses import Refused
from graphagent.mcp._stdio import Stdio
from graphagent.mcp._tools import MCPTool, called_as, can_be_called, checkers, fits_output, result_of, validator_of
from graphagent.mcp._transports import LARGEST, Http, advice, exchange
from graphagent.store import MemoryStore

if TYPE_CHECKING:
    from mcp_types import CallToolResult

    from graphagent.llm import InFlight, ToolResult
    from graphagent.mcp._transports import Exchange, Transport

T = TypeVar("T")
_KEPT = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
"""The stored part of the description of a tool."""
_BREACH = "gave an answer when {} that violates the protocol, or its own schema{}; it must be corrected"
_CANNOT_ASK = "the tool server {!r} could not ask the user in the middle of the call, which failed; from now on it can: call the tool again, if it may do once more what it did before"
_LISTING = "it was asked for its tools"
_TIMEOUT = 300.0
_START_TIMEOUT = 30.0
_LONGEST = 200
_MOST_CHARACTERS = 100_000
_MOST_OWNERS = 100
"""The number of owners whose connections are kept."""
_MOST_PAGES = 100
"""The number of pages after which a list of tools is taken to be endless."""


class MCPServerOptions(TypedDict, total=False):
    """The options of `MCPServer.stdio` and `MCPServer.http` besides the way to the server."""

    name: str
    """Identifies it in journals and errors; by default the name of the command, or the host. Keep it: runs know its tools by it."""
    prefix: str
    """Put before the names of its tools, such as `files_`."""
    rename: Mapping[str, str]
    """Other names of tools, by their names on the server. In those without one, points and slashes become `_`."""
    only: Collection[str] | None
    """The names, on the server, of the tools that the model may call; None: all of them."""
    protocol: Literal["auto", "legacy"]
    """`legacy` connects by `initialize`, as before the version of 2026, which has no way for a tool to ask the user in the middle of a
    call. By default the newest version that the server speaks, and `legacy` once a tool could not ask."""
    required: bool
    """Whether a run ends if it cannot get the tools, by default True. Otherwise it has none of them, and emits ToolServerSkipped."""
    approve: bool | Literal["destructive"] | Collection[str]
    """Whether a person is asked before each call: of all tools, of the named ones, as on the server, or of those that may destroy
    something: all whose annotations say neither `readOnlyHint: true` nor `destructiveHint: false`."""
    in_flight: InFlight | None
    """The treatment of a call during which this process died. None: it is repeated if the annotations say `readOnlyHint` or
    `idempotentHint`, and otherwise the model gets an error, since it is unknown whether it took effect. It also says whether a call
    is made again after the run has stopped for a question of the server: otherwise it waits in this process."""
    timeout: float | None
    """Seconds that an attempt may take before it is cancelled, also on the server, and that a call waits for the answer to a question;
    by default 300; None for any time."""
    retry: Retry | int | None
    """How often a call is made at the most if the connection ends or it takes too long. An error that a tool itself reports is
    not tried again."""
    concurrency: int | None
    """How many calls of each tool are made at once, by all runs of one event loop; None for any number. The others wait."""
    max_size: int | None
    """How many characters of a result the model sees, by default 100,000; None for all. `ToolResult.full` is the whole."""
    start_timeout: float | None
    """Seconds after which a run is told that the server did not list its tools, its start and the connection included; by default 30,
    None for any time. A call waits as long for a connection."""


class MCPServer:
    """A server of the Model Context Protocol, whose tools an agent has: `Agent(strategy, tools=[server])`.

    Make one with `MCPServer.stdio` or `MCPServer.http`. The connection is opened when a run first needs it, once for each
    event loop, for all runs, and opened again if it ended. It is closed by `aclose`, by that of the agent, with the event
    loop, or
    when the object is not used any more.

    A run asks for the tools when it begins, and keeps them: they are in its journal. When the server says that the list has
    changed or expired, it is requested again, and later runs have the new one.
    """

    def __init__(
        self, transport: Transport, default_name: str, options: MCPServerOptions, auth: OAuth | None = None
    ) -> None:
        # A mistyped approve= must not mean that no one is asked.
        check_options("an MCP server", options, MCPServerOptions.__annotations__)
        self._transport = transport
        self._name = options.get("name") or default_name
        self._prefix, self._rename = options.get("prefix", ""), dict(options.get("rename", {}))
        only, approve = options.get("only"), options.get("approve", False)
        for what, given in (("only", only), ("approve", approve)):
            if isinstance(given, str) and (what, given) != ("approve", "destructive"):
                raise TypeError(f"{what}= is a list of names, such as [{given!r}], not one name")
        self._only = None if only is None else frozenset(only)
        self._approve = approve
        self._protocol = options.get("protocol", "auto")
        check_word("an MCP server: protocol", self._protocol, ("auto", "legacy"))
        self._required = options.get("required", True)
        check_flag("an MCP server: required", self._required)
        self._in_flight: InFlight | None = options.get("in_flight")
        retry = options.get("retry")
        self._limits: dict[str, Any] = {
            "timeout": options.get("timeout", _TIMEOUT), "retry": Retry(retry) if type(retry) is int else retry,
            "concurrency": options.get("concurrency"), "max_size": options.get("max_size", _MOST_CHARACTERS),
        }  # fmt: skip
        # It checks them.
        Tool("any", "", {}, partial(self._call, "", False, None), in_flight=self._in_flight or "fail", **self._limits)
        self._start_timeout = options.get("start_timeout", _START_TIMEOUT)
        if self._start_timeout is not None and not self._start_timeout > 0:
            raise ValueError(f"start_timeout={self._start_timeout} must be more than 0 seconds")
        self._calls = Calls(self._name)
        self._checker_of = checkers()
        self._auth = auth
        self._without_store = MemoryStore()
        self._connections: dict[tuple[object, ...], MCPConnection] = {}
        """By event loops, and by owners who grant access; the most recently used are last."""
        self._ending: list[MCPConnection] = []
        """Those that others have replaced, as long as they are being closed."""
        # Otherwise, they would end only with their event loops.
        weakref.finalize(self, _cancel, self._connections).atexit = False

    @staticmethod
    def stdio(
        command: str,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        cwd: Path | str | None = None,
        **options: Unpack[MCPServerOptions],
    ) -> MCPServer:
        """Return a server that is started as a process of its own, and ends with the connection.

        Args:
            command: The program.
            *arguments: Its arguments.
            env: Its environment variables, besides a few harmless ones such as PATH: it does not inherit those of this process.
            cwd: The folder in which it is started; by default that of this process.
            **options: As `MCPServerOptions` has them.
        """
        return MCPServer(Stdio(command, arguments, env or {}, cwd), Path(command).name, options)

    @staticmethod
    def http(
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        auth: OAuth | None = None,
        **options: Unpack[MCPServerOptions],
    ) -> MCPServer:
        """Return a server that is reached over streamable HTTP.

        Args:
            url: Its address; most end in `/mcp`.
            headers: Sent with each request, such as `{"Authorization": "Bearer …"}`.
            auth: How the owner of a run grants access, where the server wants that. Each owner has connections of their own.
            **options: As `MCPServerOptions` has them.

        Raises:
            ValueError: `url` is not an address, or contains a password besides `auth`. The error does not contain the address.
        """
        transport = Http(url, headers or {}, options.get("timeout", _TIMEOUT))
        if auth is not None and (
            "@" in urlsplit(url).netloc or any(each.lower() == "authorization" for each in headers or {})
        ):
            raise ValueError("auth= is for a server without a password in its url or headers=; leave one of them out")
        return MCPServer(transport, transport.host, options, auth)

    @property
    def name(self) -> str:
        """Identifies it in journals and errors."""
        return self._name

    @property
    def required(self) -> bool:
        """Whether a run ends if it cannot get the tools."""
        return self._required

    def __repr__(self) -> str:
        return f"<MCP server {self._name!r}>"

    async def list_tools(self, ctx: Any = None) -> Sequence[Mapping[str, Any]]:
        """Return the descriptions of the tools that the model may call, as the server has them.

        Args:
            ctx: The run that needs them; without one, no owner can be asked for access.

        Raises:
            ToolServerError: The server cannot be reached, or its answer is not valid.
        """
        found = await self._granted(ctx, partial(self._asked, called="", ask=self._pages))
        approve: Collection[str] = () if isinstance(self._approve, bool | str) else self._approve
        for what, named in (("only", self._only or ()), ("approve", approve), ("rename", self._rename)):
            missing = sorted({*named} - {each["name"] for each in found})
            if missing:
                names = ", ".join(repr(each["name"]) for each in found) or "none"
                reason = f"has no tool {missing[0]!r}, which {what}= names; its tools are: {names}"
                raise ToolServerError(self._name, reason)
        return [each for each in found if self._only is None or each["name"] in self._only]

    def tools_from(self, listed: Sequence[Mapping[str, Any]]) -> Sequence[MCPTool]:
        """Return the tools of such descriptions.

        Raises:
            ToolServerError: one has a name or a schema that is not valid, or two have one name.
        """
        tools = [self._tool(each) for each in listed]
        for name, number in Counter(tool.name for tool in tools).items():
            if number > 1:
                reason = f"has two tools that the model would call {name!r}; tell them apart by rename=, or leave both out by only=[…]"
                raise ToolServerError(self._name, reason)
        return tools

    async def aclose(self) -> None:
        """Close the connections in this event loop, after the calls for which runs wait. They are opened again where they are needed."""
        await self._calls.aclose()
        loop = current_token().native_token
        own = [self._connections.pop(each) for each in list(self._connections) if each[0] == loop]
        async with anyio.create_task_group() as group:
            for connection in (*own, *(each for each in self._ending if each.task.is_running)):
                group.start_soon(connection.aclose)

    def _tool(self, described: Mapping[str, Any]) -> MCPTool:
        called = described["name"]
        name = called_as(self._name, called, prefix=self._prefix, rename=self._rename)
        schema = described.get("inputSchema", {"type": "object"})
        hints = described.get("annotations", {})
        read_only = hints.get("readOnlyHint") is True
        approve = self._approve
        if approve == "destructive":
            approve = not read_only and hints.get("destructiveHint") is not False
        elif not isinstance(approve, bool):
            approve = called in approve
        in_flight = self._in_flight or ("retry" if read_only or hints.get("idempotentHint") is True else "fail")
        return MCPTool(
            name, described.get("description") or described.get("title") or called, schema,
            partial(self._call, called, in_flight == "retry", described.get("outputSchema")), holds=self._calls.holds,
            approve=approve, in_flight=in_flight, server=self._name, called=called, annotations=hints,
            validator=validator_of(self._name, called, schema, self._checker_of), **self._limits,
        )  # fmt: skip

    async def _call(
        self, name: str, again: bool, schema: Mapping[str, Any] | None, arguments: Mapping[str, Any], context: Any
    ) -> ToolResult:
        """Call a tool of the server. If the run stops meanwhile, the call is held, unless it may be made `again`.

        Raises:
            ToolServerError: the connection ended, or the answer is not valid.
        """
        result = await self._granted(context, partial(self._made, name, again, arguments, context))
        if schema is not None and not fits_output(result, schema, self._checker_of):
            raise ToolServerError(self._name, _BREACH.format(f"{name!r} was called", ""))
        return result_of(result)

    async def _made(
        self, name: str, again: bool, arguments: Mapping[str, Any], context: Any, access: Access | None
    ) -> CallToolResult:
        """Make a call, or wait for the one that is held."""
        call = self._calls.take(context) or Call(
            self._calls, partial(self._asked, access, name, may_repeat=again), name, arguments, context
        )
        call.context, call.is_awaited, call.limit.deadline, held = context, True, math.inf, False
        try:
            return await call.result()
        except (Exception, anyio.get_cancelled_exc_class()):
            raise
        except BaseException:  # the run stops, since a question has no answer yet
            held = not again and context is not None and call.task.is_running
            raise
        finally:
            call.is_awaited = False
            if held:
                call.limit.deadline = anyio.current_time() + (self._limits["timeout"] or math.inf)
                self._calls.hold(call)
            else:
                call.task.cancel()

    async def _granted(self, ctx: Any, ask: Callable[[Access | None], Awaitable[T]]) -> T:
        """Call `ask` with the access that the owner of a run has or grants, and return the result.

        Raises:
            ToolServerError: Access is missing.
        """
        if self._auth is None:
            return await ask(None)
        store, owner = (None, "") if ctx is None else (ctx.store, ctx.owner)
        store = self._without_store if store is None else store
        access = Access(self._name, cast("Http", self._transport).url, self._auth, store, owner)
        was_granted = False
        while True:
            try:
                return await ask(access)
            except ToolServerError as error:
                refused = error.__cause__
                if was_granted or not isinstance(refused, Refused):
                    raise error from None
            was_granted = await access.renew(refused, ctx)

    async def _asked(
        self, access: Access | None, called: str, ask: Callable[[Client], Awaitable[T]], *, may_repeat: bool = False
    ) -> T:
        """Ask the server to call a tool, or for its tools if none is named.

        A call that could not ask the user is made on a connection that can, if it may be made again.

        Raises:
            ToolServerError: the connection ended, or the answer is not valid.
        """
        again = True
        connection = self._connection(access)
        with anyio.move_on_after(None if called else self._start_timeout):
            while True:
                async with connection.client() as client:
                    noted = exchange()
                    try:
                        return await awaited(ask(client), f"the tool server {self._name!r}")
                    except LeakedCancellationError as error:
                        raise self._failed(error, connection, called, noted) from error
                    except GraphAgentError:
                        raise
                    except Exception as error:  # noqa: BLE001  the client raises errors of parsing an answer
                        cannot_ask = not connection.is_legacy and needs_channel(error)
                        if cannot_ask:
                            self._transport.is_legacy = True
                            connection.dismiss()
                        if cannot_ask and not may_repeat:
                            raise ToolError(_CANNOT_ASK.format(self._name)) from None
                        if not (cannot_ask or (again and noted.is_lost)):
                            raise self._failed(error, connection, called, noted) from noted.refused
                # Asked again on a new connection: a server that does not know the session any more did nothing.
                connection.dismiss()
                connection = self._connection(access)
                again = False
        connection.dismiss()
        raise ToolServerError(self._name, connection.too_slow(_LISTING))

    async def _pages(self, client: Client) -> list[Mapping[str, Any]]:
        """Return the descriptions of all tools of the server.

        Raises:
            ToolServerError: the list has no end.
        """
        found: list[Mapping[str, Any]] = []
        cursor: str | None = None
        for _ in range(_MOST_PAGES):
            page = await client.list_tools(cursor=cursor)
            given = page.model_dump(mode="json", by_alias=True, exclude_none=True)
            found += [
                {key: each[key] for key in _KEPT if each.get(key)} for each in given["tools"] if can_be_called(each)
            ]
            cursor = page.next_cursor
            if not cursor:
                return found
        raise ToolServerError(self._name, f"has more than {_MOST_PAGES} pages of tools; it must be corrected")

    def _connection(self, access: Access | None) -> MCPConnection:
        """Return the connection in this event loop, opened anew if it has ended. If there are too many, the least recently used is closed."""
        loop = current_token().native_token
        place = (loop,) if access is None else (loop, *access.place)
        connection = self._connections.pop(place, None)
        if connection is None or not connection.is_usable:
            # Other loops, in other threads, have theirs here, too.
            for each in [each for each, other in list(self._connections.items()) if not other.is_open]:
                self._replaced(self._connections.pop(each, None))
            self._replaced(connection)
            legacy = self._protocol == "legacy"
            connection = MCPConnection(
                self._name, self._transport, access, self._start_timeout, self._calls.elicit, legacy=legacy
            )
        self._connections[place] = connection
        for each in [each for each in list(self._connections) if each[0] == loop][:-_MOST_OWNERS]:
            last = self._connections.pop(each)
            last.dismiss()
            self._replaced(last)
        return connection

    def _replaced(self, connection: MCPConnection | None) -> None:
        """Note that a connection is being closed, unless it is closed or belongs to another event loop."""
        self._ending = [each for each in (*self._ending, connection) if each is not None and each.task.is_running]

    def _failed(self, error: Exception, connection: MCPConnection, called: str, noted: Exchange) -> Exception:
        """Return the error to raise for an error of the client, without anything that was sent."""
        if isinstance(noted.error, GraphAgentError):  # of the store, or of the server of OAuth
            return noted.error
        during = f"{called!r} was called" if called else _LISTING
        fault = fault_of(error)
        if isinstance(error, InputRequiredRoundsExceededError):
            reason = f"asks for input again and again when {during}; use another tool"
        elif fault is Fault.TOO_LARGE:
            reason = f"gave an answer when {during} that is larger than the limit of {LARGEST // 1024**2} MiB"
            if called:  # and another attempt would be no smaller
                return ToolError(f"the tool server {self._name!r} {reason}; ask it for less")
        elif fault is Fault.MISSING and isinstance(noted.error, httpx2.ConnectError):  # it was not even sent
            connection.dismiss()
            reason = self._transport.failure(noted.error, 0)
        elif (
            fault is Fault.MISSING
            or not connection.is_open
            or is_end(error)
            or isinstance(error, LeakedCancellationError)
        ):
            # Calls that are pending over HTTP have connections of their own.
            (connection.dismiss if fault else connection.ended)()
            reason = f"ended, or the connection to it did, when {during}; nobody knows whether it took effect. The next call connects again"
        elif noted.status >= 300 and not noted.is_answer:
            words = f": {noted.words[:_LONGEST]}" if noted.words else advice(noted.status)
            reason = f"answered {noted.status} when {during}{words}"
        elif isinstance(error, MCPError) and fault is not Fault.UNREADABLE:
            if called:
                return ToolError(f"the tool server {self._name!r} refused: {error.message}")
            reason = f"refused when {during}: {error.message[:_LONGEST]}"
        else:
            at = ".".join(map(str, error.errors()[0]["loc"])) if isinstance(error, ValidationError) else ""
            where = f", at {at[:_LONGEST]!r}" if at else ""
            reason = _BREACH.format(during, where)
        return ToolServerError(self._name, reason, status=noted.status)


def _cancel(connections: Mapping[tuple[object, ...], MCPConnection]) -> None:
    for each in connections.values():
        each.task.cancel()
