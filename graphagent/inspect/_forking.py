"""Forks: runs that begin as another run did, and go on from one of its entries with changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.responses import HTMLResponse, RedirectResponse

from graphagent._html import Child, Html, join, tag
from graphagent.errors import RunExistsError
from graphagent.history import run_head
from graphagent.inspect import _words
from graphagent.inspect._edits import Editable, editables, edited
from graphagent.inspect._forms import ConflictError, FormError, area, form, refusal
from graphagent.inspect._inspected import number
from graphagent.inspect._layout import Site, nothing, page, run_crumb, url_of

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from graphagent._agent import Agent
    from graphagent.history import Entry
    from graphagent.inspect._inspected import Changes, Inspected, Views
    from graphagent.run import RunHeader

_BEGUN = ("effect", "effect started", "results", "asked")
"""The kinds of entries in the middle of a node."""


class Point(NamedTuple):
    """Where a run is forked."""

    agent: Agent[Any, Any]
    head: RunHeader
    number: int
    """The entry."""
    found: Sequence[Editable]
    """The parts that can be changed."""
    later: int
    """The entry with which the node ended that had begun; 0 if none had begun, or it did not end."""


def fork_link(inspected: Inspected, site: Site, head: RunHeader, at: int) -> Html | None:
    """Return the link to the page that forks a run at an entry, greyed out with the reason if that is not possible here."""
    if not site.form:
        return None
    why_not = _why_not(inspected, head)
    if why_not:
        button = tag("button", "Fork from here", type="button", disabled=True)
        return join([button, tag("p", why_not, class_="sub")])
    return tag("a", "Fork from here", href=url_of(site, head, "fork", n=at), class_="button")


def _why_not(inspected: Inspected, head: RunHeader) -> str:
    if head.parent:
        return "It is a part of another run: fork the whole run."
    if head.strategy in inspected.agents:
        return ""
    instead = _words.command(inspected.options, "fork", head)
    return f"To fork here, restart this page with --agent and the agent of {head.strategy!r}. Or use {instead}"


async def fork(inspected: Inspected, request: Request) -> str:
    """Return the page on which a run is forked at the entry that the address names as `n`.

    Raises:
        ConflictError: it cannot be forked here.
        LookupError: the run has no such entry.
    """
    if not inspected.form:
        raise ConflictError("These pages are read-only.")
    return _page(inspected.site(request), await _point(inspected, request.query_params), {})


async def make(inspected: Inspected, request: Request, fields: Mapping[str, str]) -> Response:
    """Fork a run as a form says. The page of a refused form keeps its texts."""
    point, site = await _point(inspected, fields), inspected.site(request)
    handle = point.agent.handle(point.head.run_id, owner=point.head.owner)
    try:
        made = await handle.fork(at=point.number, edit=edited(fields, point.found), run_id=fields.get("name") or None)
    except (FormError, RunExistsError, ValueError, TypeError) as error:
        return HTMLResponse(_page(site, point, fields, str(error)), 422)
    head = await run_head(inspected.runs, made.run_id, owner=made.owner)
    inspected.go_on(head)
    await inspected.begun(head)
    return RedirectResponse(url_of(site, head), 303)


async def _point(inspected: Inspected, given: Mapping[str, str]) -> Point:
    run_id, owner = inspected.named(given)
    head = await run_head(inspected.runs, run_id, owner=owner)
    if why_not := _why_not(inspected, head):
        raise ConflictError(why_not)
    agent, at = inspected.agents[head.strategy], number(given.get("n"))
    entries = await agent.history(run_id, owner=owner)
    if not 1 <= at <= len(entries):
        raise LookupError(f"run {run_id!r} has no entry {at}; its last one is {len(entries)}")
    at = min((at, *(each.number - 1 for each in entries if each.ends_run)))
    inside = _inside(entries[:at])
    later = next((each.number for each in entries[at:] if inside and each.node == inside), 0)
    snapshot = await agent.state_at(run_id, at, owner=owner)
    return Point(agent, head, at, editables(snapshot, between=not inside), later)


def _inside(entries: Sequence[Entry]) -> str:
    """Return the node that was at work after these entries; empty if none was."""
    for each in reversed(entries):
        if each.begins or each.node is not None:
            return ""
        if each.kind in _BEGUN:
            return each.where
    return ""


def _page(site: Site, point: Point, given: Mapping[str, str], wrong: str = "") -> str:
    head, at = point.head, point.number
    areas = [(each, area(each.name, each.label, given.get(each.name, each.text))) for each in point.found]
    fields: list[Child] = [shown for each, shown in areas if not each.begins_again]
    again = [(each, shown) for each, shown in areas if each.begins_again]
    if again:
        said = "Another input: the node begins again, without its results so far"
        is_open = any(given.get(each.name, each.text) != each.text for each, _ in again)
        fields.append(tag("details", tag("summary", said), [shown for _, shown in again], open=is_open))
    name = tag("input", name="name", type="text", value=given.get("name", ""), autocomplete="off")
    later = tag("a", f"entry {point.later}", href=url_of(site, head, "fork", n=point.later)) if point.later else None
    return page(
        site, f"Fork at entry {at}", run_crumb(site, head, f"fork at entry {at}"), tag("h1", f"Fork at entry {at}"),
        tag("p", "The fork has a copy of all entries up to this one, and goes on from there. Fields that you do not change stay as they were.", class_="sub"),
        tag("p", "A node had begun here, and is executed again with its results so far. It ended with ", later, ", where its output can be changed.", class_="sub") if later else None,
        refusal(wrong),
        form(
            site, "fork", {"id": head.run_id, "owner": head.owner, "n": at}, fields or nothing("Nothing here can be written as text."), tag("label", "Id of the fork; empty: a new one ", name),
            tag("p", tag("button", "Fork", type="submit", class_="main"), tag("a", "Cancel", href=url_of(site, head, "entry", n=at))),
        ),
    )  # fmt: skip


VIEWS: Views = (("fork", fork),)
CHANGES: Changes = (("fork", make),)
