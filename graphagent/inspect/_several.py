"""Resuming several runs of the list at once, or ending them after a second look, with a report of the outcomes."""

from __future__ import annotations

import json
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import anyio
from starlette.responses import RedirectResponse

from graphagent._article import counted
from graphagent._html import Child, Html, tag
from graphagent.errors import GraphAgentError
from graphagent.history import run_head
from graphagent.inspect import _words
from graphagent.inspect._acts import ENDED, end_here, resume_here
from graphagent.inspect._forms import FormError, form
from graphagent.inspect._inspected import Outcome
from graphagent.inspect._layout import Site, page, table

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from graphagent.inspect._inspected import Changes, Inspected, Views
    from graphagent.run import RunHeader

_Act: TypeAlias = "Callable[[Inspected, RunHeader], Awaitable[str]]"
"""Resumes or ends a run, and returns what was done."""
_PREFIX = "run."
_AT_ONCE = 10
_KEPT = 20
"""How many reports are kept, so that a page of one can be loaded again."""


def box(site: Site, head: RunHeader) -> Html | None:
    """Return the box with which a run is chosen; None if it can be neither resumed nor ended."""
    if not has_box(site, head):
        return None
    label = f"Choose {_words.title(head)}"
    return tag("input", type="checkbox", name=f"{_PREFIX}{_named(head)}", aria_label=label)


def around(site: Site, shown: Sequence[RunHeader], listed: Html, *, none: bool) -> Html:
    """Return a table of runs inside of the form that resumes or ends the chosen ones; `none` says that none was chosen when it was sent."""
    able = [head for head in shown if has_box(site, head)]
    if not able:
        return listed
    every = tag(
        "label",
        tag("input", type="checkbox", name="all", value="shown", data_all=True),
        f" Select {'the one' if len(able) == 1 else f'all {len(able)}'} that can be resumed or ended",
    )
    buttons = [
        tag("button", label, type="submit", name="do", value=value, data_counted=of_some)
        for value, label, of_some in (("resume", "Resume", "Resume #"), ("ask", "End…", "End #…"))
    ]
    said = (
        tag("span", "No run was chosen: tick the boxes before their tasks first.", role="alert", class_="error")
        if none
        else None
    )
    bar = tag("p", every, buttons, said, class_="several")
    return form(site, "several", {"shown": f"[{','.join(map(_named, able))}]"}, bar, listed)


def has_box(site: Site, head: RunHeader) -> bool:
    """Return whether a run can be chosen: it can be resumed or ended."""
    return bool(site.form) and not head.parent and head.status in ENDED


def _named(head: RunHeader | Outcome) -> str:
    return json.dumps([head.owner, head.run_id])


async def several(inspected: Inspected, request: Request, fields: Mapping[str, str]) -> Response | str:
    """Resume the chosen runs, ask whether they are to be ended, or end them."""
    chosen, site = _chosen(fields), inspected.site(request)
    if not chosen:
        return RedirectResponse(site.url("runs", chosen="none"), 303)
    match fields.get("do"):
        case "resume":
            outcomes = await _each(inspected, chosen, resume_here)
        case "end":
            outcomes = await _each(inspected, chosen, partial(end_here, reason=fields.get("reason", "")))
        case "ask":
            return _asked(site, [await _looked_up(inspected, *each) for each in chosen])
        case _:
            raise FormError("This form does not say what to do; load the page again.")
    name = secrets.token_urlsafe(9)
    inspected.reports[name] = outcomes
    while len(inspected.reports) > _KEPT:
        inspected.reports.popitem(last=False)
    return RedirectResponse(site.url("report", of=name), 303)


def _chosen(fields: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the owners and ids of the runs that a form names, each once.

    Raises:
        FormError: it is not a form of the list.
    """
    given = [name.removeprefix(_PREFIX) for name in fields if name.startswith(_PREFIX)]
    text = fields.get("shown", "") if fields.get("all") == "shown" else f"[{','.join(given)}]"
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list) or not all(map(_is_name, cast("list[object]", found))):
        raise FormError("This form does not say which runs are meant; load the page again.")
    return list(dict.fromkeys((owner, run_id) for owner, run_id in cast("list[list[str]]", found)))


def _is_name(found: object) -> bool:
    parts = cast("list[object]", found) if isinstance(found, list) else []
    return len(parts) == 2 and all(isinstance(each, str) for each in parts)


async def _looked_up(inspected: Inspected, owner: str, run_id: str) -> RunHeader | Outcome:
    """Return the header of a run, or the reason why it cannot be read as an outcome."""
    try:
        inspected.check(run_id, owner)
        return await run_head(inspected.runs, run_id, owner=owner)
    except GraphAgentError as error:
        return Outcome(owner, run_id, run_id, done=False, said=str(error))


async def _each(inspected: Inspected, chosen: Sequence[tuple[str, str]], act: _Act) -> list[Outcome]:
    """Resume or end each of several runs, and return the outcomes. A failure of one does not keep the others."""
    outcomes: dict[tuple[str, str], Outcome] = {}
    limit = anyio.CapacityLimiter(_AT_ONCE)

    async def one(owner: str, run_id: str) -> None:
        async with limit:
            found = await _looked_up(inspected, owner, run_id)
            outcomes[owner, run_id] = found if isinstance(found, Outcome) else await _done(inspected, found, act)

    async with anyio.create_task_group() as group:
        for each in chosen:
            group.start_soon(one, *each)
    return [outcomes[each] for each in chosen]


async def _done(inspected: Inspected, head: RunHeader, act: _Act) -> Outcome:
    try:
        said = await act(inspected, head)
    except (GraphAgentError, FormError) as error:
        return Outcome(head.owner, head.run_id, _words.title(head), done=False, said=str(error))
    return Outcome(head.owner, head.run_id, _words.title(head), done=True, said=said)


def _asked(site: Site, found: Sequence[RunHeader | Outcome]) -> str:
    """Return the page that asks whether runs are to be ended."""
    rows = [_asked_for(site, each) for each in found]
    fields = {"all": "shown", "shown": f"[{','.join(map(_named, found))}]"}
    title = f"End {counted(len(found), 'run')}?"
    return page(
        site, title, tag("h1", title),
        tag("p", "They are ended where they are. They cannot be resumed, but can be forked.", class_="sub"), tag("ul", rows),
        form(
            site, "several", fields, tag("label", "Reason ", tag("input", name="reason", type="text", autocomplete="off")),
            tag("p", tag("button", title.removesuffix("?"), type="submit", name="do", value="end", class_="bad"), tag("a", "Cancel", href=site.url("runs"))),
        ), view="runs",
    )  # fmt: skip


def _asked_for(site: Site, each: RunHeader | Outcome) -> Html:
    if isinstance(each, Outcome):
        return tag("li", tag("code", each.run_id), " cannot be read")
    link = tag("a", _words.title(each), href=site.url("run", id=each.run_id, owner=each.owner))
    return tag("li", _words.state(each), " ", link)


async def report(inspected: Inspected, request: Request) -> str:
    """Return the page with the outcome of each chosen run, the unsuccessful ones first.

    Raises:
        LookupError: the address does not name a report, or the report is not kept any more.
    """
    site, outcomes = inspected.site(request), inspected.reports.get(request.query_params.get("of", ""))
    if outcomes is None:
        raise LookupError("This report is not kept any more; the list of runs shows the state of each.")
    done = sum(each.done for each in outcomes)
    rows = [_line(site, each) for each in sorted(outcomes, key=lambda each: each.done)]
    left = len(outcomes) - done
    said = f"{done} of {counted(len(outcomes), 'run')} done{f', {left} not' if left else ''}"
    return page(
        site,
        said,
        tag("h1", said),
        table("The outcome of each run", ("Run", "Outcome"), rows),
        tag("p", tag("a", "All runs", href=site.url("runs")), class_="more"),
        view="runs",
    )


def _line(site: Site, each: Outcome) -> Html:
    link = tag("a", each.title, href=site.url("run", id=each.run_id, owner=each.owner), class_="title")
    below: list[Child] = [tag("code", each.run_id), f" of {each.owner}" if each.owner else None]
    said = f"✓ {each.said}" if each.done else f"✕ not done: {each.said}"
    return tag(
        "tr", tag("td", link, tag("div", below, class_="sub")), tag("td", said, class_=None if each.done else "error"),
        class_=None if each.done else "problem",
    )  # fmt: skip


VIEWS: Views = (("report", report),)
CHANGES: Changes = (("several", several),)
