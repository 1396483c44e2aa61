"""The pages over one store, as an application and as a server."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast
from urllib.parse import quote

from graphagent._options import check_store
from graphagent._web import OF_THIS_MACHINE, Guard, check_token, serve
from graphagent.errors import (
    AnswerError,
    DamagedStoreError,
    GraphAgentError,
    MissingExtraError,
    RunClaimedError,
    RunNotFoundError,
    RunQueuedError,
    StoreError,
)
from graphagent.history import StoredRun, compare_runs, end_run, list_questions, read_run, run_head

try:
    import uvicorn as _  # noqa: F401  serve() needs it, and should not be the first to say so
    from starlette.applications import Starlette
    from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
    from starlette.routing import Route

    from graphagent.inspect._access import Below, SignedIn, WithHeaders, sent
except ImportError:
    raise MissingExtraError("the inspector", "inspect") from None
from graphagent.inspect._compare import compare_page
from graphagent.inspect._facts import fact_page, facts_page
from graphagent.inspect._follow import events
from graphagent.inspect._forms import FormError, answer_of, parsed
from graphagent.inspect._graph import POLICY, drawing
from graphagent.inspect._html import tag
from graphagent.inspect._inbox import inbox_page, question_form
from graphagent.inspect._layout import Site, nothing, page
from graphagent.inspect._list import Chosen, runs_page, threads_page
from graphagent.inspect._run import entry_page, now_of, prompt_page, run_page
from graphagent.inspect._shape import shape
from graphagent.inspect._spans import spans_of
from graphagent.memory import AgentMemory

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp

    from graphagent._agent import Agent
    from graphagent.protocols import Feature, KeepingProvider, Store

_Answering: TypeAlias = "Callable[[Request], Awaitable[Response]]"
_FILES = {"inspect.css": "text/css", "inspect.js": "text/javascript", "icon.svg": "image/svg+xml"}
_SHAPES = 1000
"""Shapes that are kept, each of some kB at most. That of a run that goes on is drawn again after each entry."""
_LONGEST = 1_000_000
"""Bytes of a form."""
_STATUSES: tuple[tuple[type[Exception], int], ...] = (
    (FormError, 403),
    (RunClaimedError, 409),
    (RunNotFoundError, 404),
    (RunQueuedError, 404),
    (LookupError, 404),
    (DamagedStoreError, 500),
    (StoreError, 503),
    (GraphAgentError, 500),
)


class Inspector:
    """Web pages that show the runs of a store: lists, and for each run what became of it, its timeline, its prompts, its journal.

    Runs can be ended; with agents, what their runs wait for can be answered. The store is opened and closed by whoever made it.

    Args:
        runs: The store of the runs.
        facts: Where the facts are; they are shown, also in prompts.
        agents: Agents with this store, whose runs can be answered; workers go on with them.
        owner: Whose runs are shown; None: those of all owners.
        name: What the pages call the store, such as the name of its file.
        sealed: Whether the pages say that the store is encrypted.
        read_only: Whether nothing can be changed.

    Raises:
        TypeError: `runs` is not a store.
    """

    def __init__(
        self,
        runs: Store,
        *,
        facts: KeepingProvider | None = None,
        agents: Iterable[Agent[Any, Any]] = (),
        owner: str | None = None,
        name: str = "",
        sealed: bool = False,
        read_only: bool = False,
    ) -> None:
        check_store(runs)
        self._store, self._owner, self._name, self._sealed = runs, owner, name, sealed
        self._agents = {each.strategy.name: each for each in agents}
        self._facts = facts
        self._form = "" if read_only else secrets.token_urlsafe(24)
        self._shapes: OrderedDict[tuple[str, str, int], str] = OrderedDict()

    def app(self, *, token: str | None = None, hosts: Sequence[str] = OF_THIS_MACHINE, prefix: str = "") -> ASGIApp:
        """Return an ASGI application, for a server of your own, on asyncio or trio.

        Args:
            token: What a person types to see the pages, and a program sends as `Authorization: Bearer …`. Without one, everybody who can reach
                the application sees all runs.
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
            *(
                Route(f"/{path}", self._saying(answer))
                for path, answer in (
                    ("runs", self._runs), ("threads", self._threads), ("inbox", self._inbox), *((("facts", self._known), ("fact", self._fact)) if self._facts is not None else ()), ("run", self._run), ("entry", self._entry), ("prompt", self._prompt),
                    ("shape.svg", self._shape), ("graph.svg", self._graph), ("follow", self._follow),
                    ("compare", self._compare),
                )
            ),
        ]  # fmt: skip
        routes += [
            Route(f"/{path}", self._saying(answer), methods=["POST"])
            for path, answer in (("answer", self._answer), ("end", self._end))
        ]
        app: ASGIApp = Starlette(routes=routes)
        if token is not None:
            app = SignedIn(app, token, self._name)
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

    def _site(self, request: Request) -> Site:
        return Site(
            quote(request.scope.get("root_path", "")), self._name, self._sealed, self._facts is not None, self._form
        )

    def _saying(self, answer: _Answering) -> _Answering:
        """Return what answers a request, and says what is wrong with the store or the address where something is."""

        async def answering(request: Request) -> Response:
            try:
                return await answer(request)
            except (GraphAgentError, LookupError, FormError) as error:
                status = next(status for kind, status in _STATUSES if isinstance(error, kind))
                title = {403: "Not done", 404: "Not found", 409: "Not done"}.get(status, "The store cannot be shown")
                said = [
                    tag("h1", title),
                    nothing(str(error.args[0] if error.args else error)),
                    tag("p", tag("a", "All runs", href=self._site(request).url("runs"))),
                ]
                return HTMLResponse(page(self._site(request), title, said), status)

        return answering

    async def _home(self, request: Request) -> Response:
        return RedirectResponse(self._site(request).url("runs"), 303)

    async def _runs(self, request: Request) -> Response:
        chosen = Chosen.of(request.query_params)
        return HTMLResponse(await runs_page(self._store, self._site(request), chosen, only=self._owner))

    async def _threads(self, request: Request) -> Response:
        return HTMLResponse(await threads_page(self._store, self._site(request), only=self._owner))

    async def _known(self, request: Request) -> Response:
        assert self._facts is not None
        return HTMLResponse(await facts_page(self._facts, self._site(request), request.query_params, only=self._owner))

    async def _fact(self, request: Request) -> Response:
        assert self._facts is not None
        if self._owner is not None and request.query_params.get("owner", "") != self._owner:
            raise LookupError("nothing is known of this here")
        return HTMLResponse(await fact_page(self._facts, self._site(request), request.query_params))

    async def _inbox(self, request: Request) -> Response:
        return HTMLResponse(await inbox_page(self._store, self._site(request), self._agents, only=self._owner))

    async def _answer(self, request: Request) -> Response:
        """Record an answer; what is wrong with it is said in the form, which keeps nothing of it."""
        fields = await self._fields(request)
        run_id, owner, id_ = (fields.get(name, "") for name in ("run", "owner", "question"))
        site = self._site(request)
        found = await list_questions(self._store, owner=owner) if self._owner in (None, owner) else []
        pending = next((each for each in found if (each.run_id, each.question.id) == (run_id, id_)), None)
        if pending is None:
            said = nothing(
                "This question is not open any more: it was answered, or its run was ended or removed. ",
                tag("a", "Inbox", href=site.url("inbox")),
            )
            return HTMLResponse(page(site, "Not open any more", tag("h1", "Not open any more"), said), 409)
        agent = self._agents.get(pending.strategy)
        try:
            if agent is None:
                raise FormError("It cannot be answered here.")
            await agent.handle(run_id, owner=owner).answer(
                answers={id_: answer_of(pending.question, fields, "inspector")}
            )
        except (FormError, AnswerError) as error:
            form = question_form(site, pending, self._agents, str(error))
            return HTMLResponse(page(site, "Not answered", tag("h1", "Not answered"), form, view="inbox"), 422)
        return RedirectResponse(site.url("run", id=run_id, owner=owner), 303)

    async def _end(self, request: Request) -> Response:
        """End a run: by its agent, which a worker may have to hear, or else in the store."""
        fields = await self._fields(request)
        run_id, owner, reason = (fields.get(name, "") for name in ("run", "owner", "reason"))
        if self._owner not in (None, owner):
            raise RunNotFoundError(run_id, owner)
        agent = self._agents.get((await run_head(self._store, run_id, owner=owner)).strategy)
        if agent is None:
            await end_run(self._store, run_id, reason, owner=owner)
        else:
            await agent.handle(run_id, owner=owner).end(reason)
        return RedirectResponse(self._site(request).url("run", id=run_id, owner=owner), 303)

    async def _fields(self, request: Request) -> dict[str, str]:
        """Return the fields of a form of a page of this server.

        Raises:
            FormError: it is not one.
        """
        body = await sent(request, _LONGEST)
        if body is None:
            raise FormError(f"An answer has at most {_LONGEST:,} bytes here; graphagent runs answer takes more.")
        fields = parsed(body)
        if not self._form:
            raise FormError("These pages only read.")
        if not secrets.compare_digest(fields.get("form", "").encode("utf-8", "replace"), self._form.encode()):
            raise FormError(
                "This form is not of this server, or from before it was started. Load its page again, and send it once more."
            )
        return fields

    async def _run(self, request: Request) -> Response:
        stored, query = await self._stored(request), request.query_params
        shown = run_page(
            self._site(request),
            stored,
            spans_from=_number(query.get("spans")),
            entries_from=_number(query.get("entries")),
        )
        return HTMLResponse(shown)

    async def _entry(self, request: Request) -> Response:
        return HTMLResponse(
            entry_page(self._site(request), await self._stored(request), _number(request.query_params.get("n")))
        )

    async def _prompt(self, request: Request) -> Response:
        return HTMLResponse(
            prompt_page(self._site(request), await self._stored(request), _number(request.query_params.get("step")))
        )

    async def _compare(self, request: Request) -> Response:
        _, owner = self._named(request)
        a, b = (request.query_params.get(name, "") for name in "ab")
        diff = await compare_runs(self._store, a, b, owner=owner)
        return HTMLResponse(compare_page(self._site(request), diff, owner, _number(request.query_params.get("start"))))

    async def _graph(self, request: Request) -> Response:
        drawn = drawing(await self._stored(request))
        return Response(drawn, headers={"Content-Security-Policy": POLICY}, media_type="image/svg+xml")

    async def _follow(self, request: Request) -> Response:
        run_id, owner = self._named(request)
        await run_head(self._store, run_id, owner=owner)
        seen = _number(request.headers.get("last-event-id"))
        return StreamingResponse(events(self._store, run_id, owner, seen), media_type="text/event-stream")

    async def _shape(self, request: Request) -> Response:
        query = request.query_params
        key = query.get("owner", ""), query.get("id", ""), _number(query.get("at"))
        drawn = self._shapes.get(key)
        if drawn is None:
            stored = await self._stored(request)
            drawn = self._shapes[key] = shape(spans_of(stored.entries, now_of(stored)))
            if len(self._shapes) > _SHAPES:
                self._shapes.popitem(last=False)
        return Response(drawn, media_type="image/svg+xml")

    async def _stored(self, request: Request) -> StoredRun:
        run_id, owner = self._named(request)
        return await read_run(self._store, run_id, owner=owner, features=await self._features(owner))

    async def _features(self, owner: str) -> dict[type[Any], Feature]:
        """Return what looks up facts in prompts: nothing for an owner without any here, whose facts may be elsewhere, and not forgotten."""
        if self._facts is None:
            return {}
        async with aclosing(cast("Any", self._facts.export(owner=owner))) as records:
            async for _ in records:
                return {AgentMemory: cast("Feature", AgentMemory(provider=self._facts))}
        return {}

    def _named(self, request: Request) -> tuple[str, str]:
        """Return the id and the owner of the run that an address names.

        Raises:
            RunNotFoundError: its owner is somebody else than the one who is shown.
        """
        run_id, owner = request.query_params.get("id", ""), request.query_params.get("owner", "")
        if self._owner is not None and owner != self._owner:
            raise RunNotFoundError(run_id, owner)
        return run_id, owner


def _file(name: str, kind: str) -> _Answering:
    content = (Path(__file__).parent / name).read_bytes()

    async def answer(request: Request) -> Response:
        return Response(content, media_type=kind)

    return answer


def _number(text: str | None) -> int:
    """Return a number of an address; 0 if it is not one."""
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 16 else 0
