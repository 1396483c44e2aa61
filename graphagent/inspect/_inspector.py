"""The pages over one store, as an application and as a server."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from graphagent._article import kind_of
from graphagent._options import check_store
from graphagent._web import OF_THIS_MACHINE, Guard, check_token, serve
from graphagent.errors import (
    DamagedStoreError,
    GraphAgentError,
    MissingExtraError,
    NoteError,
    RunClaimedError,
    RunEndedError,
    RunExistsError,
    RunNotFoundError,
    RunQueuedError,
    StoreError,
    StrategyChangedError,
    ThreadBusyError,
)

try:
    import uvicorn as _  # noqa: F401  serve() needs it, and should not be the first to say so
    from starlette.applications import Starlette
    from starlette.responses import HTMLResponse, RedirectResponse, Response
    from starlette.routing import Route
except ImportError:
    raise MissingExtraError("the inspector", "inspect") from None
from graphagent._html import tag
from graphagent.inspect import (
    _acts,
    _compare,
    _entry,
    _facts,
    _follow,
    _forgetting,
    _forking,
    _graph,
    _inbox,
    _list,
    _note,
    _notes,
    _run,
    _several,
    _shape,
    _transcript,
)
from graphagent.inspect._access import Below, SignedIn, WithHeaders
from graphagent.inspect._executing import Executing
from graphagent.inspect._forms import ConflictError, FormError
from graphagent.inspect._inspected import Inspected
from graphagent.inspect._layout import nothing, page
from graphagent.inspect._saved import redacted_run, saved
from graphagent.inspect._watch import Changed
from graphagent.memory import Notes
from graphagent.memory.notes._owner import words_alone

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp

    from graphagent._agent import Agent
    from graphagent.inspect._inspected import Change, View
    from graphagent.protocols import KeepingProvider, Store

_Answering: TypeAlias = "Callable[[Request], Awaitable[Response]]"
_PAGES = (
    _list,
    _several,
    _inbox,
    _facts,
    _notes,
    _note,
    _forgetting,
    _run,
    _entry,
    _forking,
    _transcript,
    _compare,
    _shape,
    _graph,
    _follow,
)
_ACTING = (_acts, _several, _forking, _inbox, _facts, _note, _forgetting)
_FILES = {"inspect.css": "text/css", "inspect.js": "text/javascript", "icon.svg": "image/svg+xml"}
_STATUSES: tuple[tuple[type[Exception], int], ...] = (
    (ConflictError, 409),
    (FormError, 403),
    (RunClaimedError, 409),
    (RunEndedError, 409),
    (RunExistsError, 409),
    (StrategyChangedError, 409),
    (ThreadBusyError, 409),
    (RunNotFoundError, 404),
    (RunQueuedError, 404),
    (LookupError, 404),
    (NoteError, 422),
    (DamagedStoreError, 500),
    (StoreError, 503),
    (GraphAgentError, 500),
)
_TITLES = {403: "Not done", 404: "Not found", 409: "Not done", 422: "Not done"}


class Inspector:
    """Web pages that show the runs of a store: lists, and for each run its outcome, its timeline, its prompts and its journal.

    Runs can be answered, resumed, paused and ended; with agents, they are executed and forked here. You open and close the store.

    Args:
        runs: The store of the runs.
        facts: Where the facts are. They are shown on pages of their own, and in prompts.
        notes: The notes, which you close; without an owner, the notes of all owners are shown.
        agents: Agents with this store, whose runs can be forked, and go on here.
        owner: The owner whose runs are shown; None: all owners.
        name: The name of the store in the pages, such as that of its file.
        options: Options that name the store, in the commands that pages print, such as `["--store", "runs.db"]`.
        sealed: Whether the pages say that the store is encrypted.
        read_only: Whether nothing can be changed.
        executes: Whether this process executes the runs that are answered, resumed and forked in the pages; otherwise workers do.

    Raises:
        TypeError: `runs` is not a store, or `notes` are not Notes.
    """

    def __init__(
        self,
        runs: Store,
        *,
        facts: KeepingProvider | None = None,
        notes: Notes | None = None,
        agents: Iterable[Agent[Any, Any]] = (),
        owner: str | None = None,
        name: str = "",
        options: Sequence[str] = (),
        sealed: bool = False,
        read_only: bool = False,
        executes: bool = True,
    ) -> None:
        check_store(runs)
        if notes is not None and not isinstance(notes, Notes):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"notes= is a Notes, such as Notes('notes.db'), not {kind_of(notes)}")
        self._inspected = Inspected(
            runs=runs,
            changed=Changed(runs, owner),
            facts=facts,
            notes=notes,
            words=None if notes is None else words_alone(notes),
            agents={each.strategy.name: each for each in agents},
            owner=owner,
            name=name,
            options=options,
            sealed=sealed,
            form="" if read_only else secrets.token_urlsafe(24),
            executing=Executing(runs) if executes else None,
        )

    def app(self, *, token: str | None = None, hosts: Sequence[str] = OF_THIS_MACHINE, prefix: str = "") -> ASGIApp:
        """Return an ASGI application, for a server of your own, on asyncio or trio.

        Args:
            token: The token that a person types to see the pages, and that a program sends as `Authorization: Bearer …`. Without a token,
                everybody who can reach the application sees all runs.
            hosts: The values of the header `Host` that are accepted; `:*` stands for any port. By default, those of this machine.
            prefix: The path below which it is reached through a proxy, such as `/inspect`.

        Raises:
            ValueError: the token has fewer than 16 characters, or others than printable ASCII characters; or the prefix is not a path.
        """
        check_token(token)
        if prefix and (not prefix.startswith("/") or prefix.endswith("/")):
            raise ValueError(
                f"prefix={prefix!r} is not a path; it begins with a slash, and does not end with one: /inspect"
            )
        routes = [
            Route("/", self._home),
            *(Route(f"/{name}", _file(name, kind)) for name, kind in _FILES.items()),
            *(Route(f"/{path}", self._showing(view)) for each in _PAGES for path, view in each.VIEWS),
            *(
                Route(f"/{path}", self._changing(change), methods=["POST"])
                for each in _ACTING
                for path, change in each.CHANGES
            ),
            Route("/{path:path}", self._showing(_nowhere)),
        ]
        app: ASGIApp = Starlette(routes=routes, lifespan=self._lifespan)
        if token is not None:
            app = SignedIn(app, token, self._inspected.name)
        return WithHeaders(Guard(Below(app, prefix), hosts))

    async def serve(
        self,
        host: str = "127.0.0.1",
        port: int = 8766,
        *,
        token: str | None = None,
        hosts: Sequence[str] = (),
        prefix: str = "",
        on_started: Callable[[str], object] | None = None,
    ) -> None:
        """Serve the pages until the task is cancelled. It works on asyncio alone.

        Args:
            host: The address to listen at.
            port: The port to listen at; 0 takes a free one.
            token: As for `app`. An address that other machines can reach wants one.
            hosts: Further names under which browsers reach the server, such as that of a proxy.
            prefix: As for `app`.
            on_started: Called with the URL of the pages once it listens.

        Raises:
            ValueError: the address can be reached by other machines, and no token is given; or it stands for all addresses, and no
                `hosts` are named; or as for `app`.
            OSError: the address cannot be listened at.
        """
        await serve(
            lambda accepted: self.app(token=token, hosts=accepted, prefix=prefix), host, port, token=token, hosts=hosts,
            on_started=lambda url: None if on_started is None else on_started(f"{url}{prefix}/"),
        )  # fmt: skip

    @asynccontextmanager
    async def _lifespan(self, _: object) -> AsyncGenerator[None]:
        """Stop the runs that are executed here when the server stops."""
        try:
            yield
        finally:
            if self._inspected.executing is not None:
                await self._inspected.executing.aclose()

    async def save(self, run_id: str, *, owner: str = "", redact: bool = False) -> str:
        """Return a run as one page of HTML with everything inside, to attach to an issue: it loads nothing and has no script.

        It is not encrypted. Of a large run it has the last entries, and says how many are left out.

        Args:
            run_id: The run, or the run of a sub-agent.
            owner: Its owner.
            redact: Whether texts and values are replaced by their lengths, as `graphagent.history.redact_runs` does.

        Raises:
            RunNotFoundError: the run does not exist.
            DamagedStoreError: it is not what was written.
            StoreError: it cannot be read.
        """
        self._inspected.check(run_id, owner)
        read = redacted_run(self._inspected.runs, run_id, owner) if redact else self._inspected.run(run_id, owner)
        return saved(await read, redacted=redact, sealed=self._inspected.sealed)

    async def _home(self, request: Request) -> Response:
        return RedirectResponse(self._inspected.site(request).url("runs"), 303)

    def _showing(self, view: View) -> _Answering:
        return self._saying(lambda request: view(self._inspected, request))

    def _changing(self, change: Change) -> _Answering:
        async def changing(request: Request) -> Response | str:
            return await change(self._inspected, request, await self._inspected.fields(request))

        return self._saying(changing)

    def _saying(self, answer: Callable[[Request], Awaitable[Response | str]]) -> _Answering:
        """Return the function that answers a request; for an error of the store, the address or the form, with a page that says it."""

        async def answering(request: Request) -> Response:
            try:
                answered = await answer(request)
            except (GraphAgentError, LookupError, FormError) as error:
                status = next(status for kind, status in _STATUSES if isinstance(error, kind))
                title, site = _TITLES.get(status, "The store cannot be shown"), self._inspected.site(request)
                why = str(error.args[0] if error.args else error)
                if isinstance(error, RunNotFoundError):
                    why = f"There is no run {error.run_id!r} here. It may have been removed, or its id or its owner is another one."
                said = [
                    tag("h1", title),
                    nothing(why),
                    tag("p", tag("a", "All runs", href=site.url("runs"))),
                ]
                return HTMLResponse(page(site, title, said), status)
            return HTMLResponse(answered) if isinstance(answered, str) else answered

        return answering


async def _nowhere(inspected: Inspected, request: Request) -> str:
    raise LookupError(f"These pages have no address {request.url.path!r}.")


def _file(name: str, kind: str) -> _Answering:
    content = (Path(__file__).parent / name).read_bytes()

    async def answer(request: Request) -> Response:
        return Response(content, media_type=kind)

    return answer
