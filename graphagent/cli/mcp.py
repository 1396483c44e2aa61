"""`graphagent mcp`: a memory as a server of the Model Context Protocol."""

from __future__ import annotations

import logging
import signal
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import anyio
import typer

from graphagent.cli import _stores
from graphagent.cli._options import (
    AGENT_NAME,
    AnchorPlace,
    expand_options,
    flag,
    key_option,
    option,
    owner_option,
    place_option,
    scope_of,
    subject_of,
    value_of,
)
from graphagent.cli._output import aside
from graphagent.cli._serving import address_of, serve_until_stopped, token_at
from graphagent.cli._store_place import StorePlace
from graphagent.cli.notes._target import EmbedderName, notes_in
from graphagent.errors import NoteError
from graphagent.memory import Concept, Scope, StoreMemoryProvider, Subject

if TYPE_CHECKING:
    from graphagent.memory_server import MemoryServer
    from graphagent.protocols import KeepingProvider, Store


@dataclass(frozen=True, slots=True)
class Served:
    """The memory that is served."""

    store: Annotated[
        StorePlace | None,
        place_option(
            "The folder with facts, notes and runs, or the file of a program that keeps them in one store. Default: the data of commands in "
            "$GRAPHAGENT_HOME, or else in your user data folder"
        ),
    ] = None
    key: Annotated[str | None, key_option("Encrypt the memory, or open an encrypted one")] = None
    anchor: AnchorPlace = None
    owner: Annotated[str, owner_option("Whose memory. Clients cannot choose another one.")] = ""
    scope: Annotated[
        list[str] | None,
        option(
            "--scope",
            "SCOPE",
            "Only notes in a scope such as /project/alpha, or only facts in one such as agent:chat; given twice, one of each. Clients cannot "
            "leave them.",
        ),
    ] = None
    subject: Annotated[str | None, option("--subject", "NAME", "Only facts about this subject.")] = None
    source: Annotated[
        str | None, option("--source", "NAME", "Include the private notes of this source, and save new notes as its.")
    ] = None
    embedder: EmbedderName = None
    trust: Annotated[
        str,
        option(
            "--trust",
            "LEVEL",
            "How far notes and facts that clients save are trusted: untrusted, inferred or trusted. Default: untrusted, for a client may have read anything.",
        ),
    ] = "untrusted"
    answers: Annotated[
        bool,
        flag(
            "--answers",
            text="Let clients answer what runs wait for; workers go on with them. Default: questions are only read.",
        ),
    ] = False
    read_only: Annotated[bool, flag("--read-only", text="Let clients change nothing.")] = False


@expand_options
def mcp(
    *,
    served: Served,
    http: Annotated[
        str | None,
        option("--http", "[HOST:]PORT", "Serve over streamable HTTP. Default: over standard input and output."),
    ] = None,
    token: Annotated[
        str | None,
        option(
            "--token",
            "env:NAME|file:PATH",
            "Where the token is that each request over HTTP has to have. Only this machine is served without one.",
        ),
    ] = None,
    host: Annotated[
        list[str] | None,
        option("--host", "NAME", "A further name under which clients reach the server over HTTP; can be repeated."),
    ] = None,
    origin: Annotated[
        list[str] | None,
        option("--origin", "URL", "Web pages that may use the server over HTTP; can be repeated. Default: none."),
    ] = None,
) -> None:
    """Serve a memory to desktop assistants, editors and other agents, as a server of the Model Context Protocol."""
    if http is None and (token or host or origin):
        raise typer.BadParameter("--token, --host and --origin are for --http")
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    if http is None:
        # Reading standard input cannot be interrupted in another way.
        before = signal.signal(signal.SIGINT, signal.SIG_DFL)
        try:
            anyio.run(_over_stdio, served)
        finally:
            signal.signal(signal.SIGINT, before)
    else:
        address, secret = address_of(http, "--http"), token_at(token)
        anyio.run(_over_http, served, address, {"token": secret, "hosts": host or (), "origins": origin or ()})


async def _over_stdio(served: Served) -> None:
    async with _server_of(served) as server:
        await server.serve_stdio()


async def _over_http(served: Served, address: tuple[str, int], options: dict[str, Any]) -> None:
    def started(url: str) -> None:
        aside(f"Serving the memory at {url}; Ctrl-C ends it.")

    async with _server_of(served) as server:
        await serve_until_stopped(lambda: server.serve_http(*address, **options, on_started=started), address, "--http")


@asynccontextmanager
async def _server_of(served: Served) -> AsyncGenerator[MemoryServer]:
    """Open the memory, and yield its server.

    Raises:
        BadParameter: as `_stores.open_store`, or an option has no valid value.
        StoreError: something cannot be read.
    """
    from graphagent.memory_server import MemoryServer

    path, facts_scope = _scopes(served.scope or ())
    async with (
        _opened(served) as (facts, store, runs),
        aclosing(
            await notes_in(store, served.owner, source=served.source, embedder=served.embedder, vectors=True)
        ) as notes,
    ):
        try:
            view = notes if path is None else notes.scope(path)
        except NoteError as error:
            raise typer.BadParameter(str(error), param_hint="--scope") from None
        with value_of():
            yield MemoryServer(
                facts=facts, notes=view, runs=runs, answers=served.answers, owner=served.owner, scope=facts_scope, trust=served.trust,
                subject=None if served.subject is None else subject_of(served.subject), read_only=served.read_only,
            )  # fmt: skip


@asynccontextmanager
async def _opened(served: Served) -> AsyncGenerator[tuple[KeepingProvider, Store, Store | None]]:
    """Open the facts, the store of the notes, and that of the runs if there is one."""
    given, key, anchor = served.store, served.key, served.anchor
    if _stores.is_one_store(given):
        async with _stores.open_store("notes", given, key, anchor, new=True) as store:
            yield StoreMemoryProvider(store), store, store
        return
    async with _stores.open_facts(given, key, anchor, new=True) as facts, AsyncExitStack() as more:
        await facts.load(
            Concept("keyword"), Subject("user"), Scope.agent(AGENT_NAME)
        )  # a wrong key fails here, before any change
        store = await more.enter_async_context(_stores.open_store("notes", given, key, anchor, new=True))
        runs = _stores.place_of("runs", given, new=True)
        if runs.path.exists() or served.answers:
            opened = await more.enter_async_context(_stores.open_store("runs", given, key, anchor, new=True))
            yield facts, store, opened
        else:
            yield facts, store, None


def _scopes(given: list[str] | tuple[()]) -> tuple[str | None, Scope | None]:
    """Return the scope of notes and the scope of facts that were named.

    Raises:
        BadParameter: two of one kind were named, or one is not a scope.
    """
    paths = [each for each in given if each.startswith("/")]
    others = [each for each in given if not each.startswith("/")]
    if len(paths) > 1 or len(others) > 1:
        raise typer.BadParameter(
            "one scope of notes can be served, such as /project/alpha, and one of facts, such as agent:chat",
            param_hint="--scope",
        )
    return (paths[0] if paths else None), (scope_of(others[0]) if others else None)
