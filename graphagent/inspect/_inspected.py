"""The stores that are shown, which each view receives with the request of a browser."""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast
from urllib.parse import quote

import anyio

from graphagent.errors import RunNotFoundError, StoreError
from graphagent.history import StoredRun, read_run, run_head
from graphagent.inspect._access import sent
from graphagent.inspect._forms import FormError, parsed
from graphagent.inspect._layout import Site, below
from graphagent.memory import AgentMemory, NoteMemory
from graphagent.memory.facts._types import checked_owner
from graphagent.memory.notes._owner import has_notes, store_of
from graphagent.work._execute import can_execute

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from graphagent._agent import Agent
    from graphagent.inspect._executing import Executing
    from graphagent.inspect._watch import Changed
    from graphagent.memory import Notes, NoteView
    from graphagent.protocols import Feature, KeepingProvider, Store
    from graphagent.run import RunHeader

_LONGEST = 1_000_000
"""Bytes of a form."""
_PATIENCE, _LOOK = 1.0, 0.02
"""Seconds for which a page waits until a run is executed, and between two looks at it."""
_KEPT = 10.0
"""Seconds for which a run that was read is kept."""


class Outcome(NamedTuple):
    """The outcome of one of several runs that were resumed or ended together."""

    owner: str
    run_id: str
    title: str
    done: bool
    said: str
    """What was done, or why nothing was done."""


@dataclass(frozen=True, slots=True)
class Inspected:
    """The stores that are shown, the owner whose data is shown, and what can be changed."""

    runs: Store
    changed: Changed
    """The runs that changed since pages were made."""
    facts: KeepingProvider | None
    notes: Notes | None
    words: NoteView | None
    """The same notes, found by words alone."""
    agents: Mapping[str, Agent[Any, Any]]
    """The agents by the names of their strategies."""
    owner: str | None
    """The owner whose data is shown; None: all owners."""
    name: str
    """The name of the store in the pages."""
    options: Sequence[str]
    """Options that name the store, in the commands that pages print."""
    sealed: bool
    form: str
    """The token that forms send back; empty if nothing can be changed."""
    executing: Executing | None = None
    """Executes resumed, answered and forked runs; None: workers execute them."""
    shapes: OrderedDict[tuple[str, str, int], str] = field(
        default_factory=lambda: OrderedDict[tuple[str, str, int], str]()
    )
    """Pictures that are kept, by owner, run and time."""
    reports: OrderedDict[str, list[Outcome]] = field(default_factory=lambda: OrderedDict[str, list[Outcome]]())
    """The last outcomes of runs that were chosen together, by the names of their reports."""

    kept: list[tuple[float, StoredRun]] = field(default_factory=lambda: list[tuple[float, "StoredRun"]](), repr=False)
    """The run that was read last, and when."""

    def site(self, request: Request) -> Site:
        """Return the server as a page sees it."""
        return Site(
            below(quote(request.scope.get("root_path", ""))), self.name, self.sealed, facts=self.facts is not None,
            notes=self.notes is not None, form=self.form, options=self.options,
        )  # fmt: skip

    def check(self, run_id: str, owner: str) -> None:
        """Check that a run is one of those that are shown.

        Raises:
            RunNotFoundError: the runs of its owner are not shown.
        """
        if self.owner not in (None, owner):
            raise RunNotFoundError(run_id, owner)

    def named(self, given: Mapping[str, str]) -> tuple[str, str]:
        """Return the id and the owner of the run that an address or a form names.

        Raises:
            RunNotFoundError: the runs of its owner are not shown.
        """
        run_id, owner = given.get("id", ""), given.get("owner", "")
        self.check(run_id, owner)
        return run_id, owner

    async def read(self, request: Request, *, until: int | None = None) -> StoredRun:
        """Return the run that an address names, as it is or as it was after an entry."""
        return await self.run(*self.named(request.query_params), until=until)

    async def run(self, run_id: str, owner: str, *, until: int | None = None) -> StoredRun:
        """Return a run, as it is or as it was after an entry, with the facts and notes in its prompts that can be read here.

        The last run without facts and notes is kept for some seconds if nobody executes it, since browsers ask for its drawing and its
        steps one after the other.
        """
        head, features = await run_head(self.runs, run_id, owner=owner), await self._features(owner)
        keeps = until is None and not features and not head.running
        for since, stored in self.kept:
            if keeps and stored.head == head and time.monotonic() < since + _KEPT:
                return stored
        try:
            stored = await read_run(self.runs, run_id, owner=owner, features=features, until=until)
        except StoreError:
            if not features:
                raise
            stored = await read_run(self.runs, run_id, owner=owner, until=until)
        if keeps:
            self.kept[:] = [(time.monotonic(), stored)]
        return stored

    async def _features(self, owner: str) -> dict[type[Any], Feature]:
        """Return the features that look up facts and notes in prompts. An owner without any here may have them elsewhere, and not forgotten."""
        found: dict[type[Any], Feature] = {}
        if self.facts is not None:
            with suppress(StoreError, ValueError):  # the name of the owner of a run can be longer than facts take
                async with aclosing(cast("Any", self.facts.export(owner=checked_owner(owner)))) as records:
                    async for _ in records:
                        found[AgentMemory] = cast("Feature", AgentMemory(provider=self.facts))
                        break
        if self.notes is not None and self.notes.owner in ("", owner):
            with suppress(StoreError):
                if await has_notes(store_of(self.notes), owner):
                    found[NoteMemory] = cast("Feature", NoteMemory(notes=self.notes, learn=False))
        return found

    def executes(self, strategy: str) -> bool:
        """Return whether this process, and not a worker, executes runs of a strategy that are due."""
        agent = self.agents.get(strategy)
        return self.executing is not None and agent is not None and can_execute(agent)

    def go_on(self, head: RunHeader) -> None:
        """Begin to execute a run that is due, if this process executes runs of its strategy."""
        if self.executing is not None and self.executes(head.strategy):
            self.executing.begin(self.agents[head.strategy], head.owner, head.run_id)

    async def begun(self, head: RunHeader) -> None:
        """Wait until a run that was queued is executed by this process, but not for long, so that the page that is loaded next shows more than that it is queued."""
        with anyio.move_on_after(_PATIENCE):
            while self.executes(head.strategy) and head.status == "queued":
                await anyio.sleep(_LOOK)
                head = await run_head(self.runs, head.run_id, owner=head.owner)

    async def fields(self, request: Request) -> dict[str, str]:
        """Return the fields of a form of a page of this server.

        Raises:
            FormError: it is not a form of this server, or nothing can be changed.
        """
        body = await sent(request, _LONGEST)
        if body is None:
            raise FormError(f"A form has at most {_LONGEST:,} bytes here; the commands take more.")
        fields = parsed(body)
        if not self.form:
            raise FormError("These pages are read-only.")
        if not secrets.compare_digest(fields.get("form", "").encode("utf-8", "replace"), self.form.encode()):
            raise FormError(
                "This form is not of this server, or is older than its start. Load its page again, and send it once more."
            )
        return fields


View: TypeAlias = "Callable[[Inspected, Request], Awaitable[Response | str]]"
"""Answers a request with a page, or with something else."""
Change: TypeAlias = "Callable[[Inspected, Request, Mapping[str, str]], Awaitable[Response | str]]"
"""Makes the change that a form asks for, given its fields, and answers, as a rule with the address of the page that shows the change."""
Views: TypeAlias = "tuple[tuple[str, View], ...]"
"""Views by the ends of their addresses."""
Changes: TypeAlias = "tuple[tuple[str, Change], ...]"


def number(text: str | None) -> int:
    """Return a number in an address; 0 if the text is not a number."""
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 16 else 0
