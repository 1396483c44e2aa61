"""The pages with lists: runs, and threads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, TypeAlias

from starlette.responses import JSONResponse

from graphagent import _clock
from graphagent._article import counted
from graphagent._html import Child, Html, tag
from graphagent.errors import DamagedStoreError
from graphagent.history import family, list_threads, read_failure, run_owners
from graphagent.inspect import _words
from graphagent.inspect._chosen import AMOUNTS, Chosen
from graphagent.inspect._errors import Problem
from graphagent.inspect._forms import hidden, search
from graphagent.inspect._inspected import number
from graphagent.inspect._layout import Site, column, next_link, nothing, page, table, with_empty
from graphagent.inspect._several import around, box, has_box
from graphagent.inspect._timeline import legend
from graphagent.run import list_runs

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from graphagent.history import Thread
    from graphagent.inspect._inspected import Inspected, Views
    from graphagent.protocols import Store
    from graphagent.run import RunHeader

_Named: TypeAlias = "tuple[str, str]"
"""The owner and the id of a run."""
ROWS = 50
_LINE = 300
"""Characters of an error that are shown."""
_PARTS = 3
"""Runs of sub-agents that are shown below the run of which they are parts; the page of the run has the others."""
_ORDER = (
    "waiting",
    "failed",
    "interrupted",
    "damaged",
    "running",
    "queued",
    "sleeping",
    "paused",
    "done",
    "ended",
    "cancelled",
)


async def runs(inspected: Inspected, request: Request) -> str:
    """Return a page of runs, the newest first.

    Raises:
        StoreError: the store cannot be read.
    """
    store, site, chosen = inspected.runs, inspected.site(request), Chosen.of(request.query_params)
    owners = await run_owners(store) if inspected.owner is None else [inspected.owner]
    wanted = [each for each in owners if chosen.owner in (None, each)]
    parts = {
        (owner, run_id): below
        for owner in wanted
        for run_id, below in family(await list_runs(store, owner=owner)).items()
    }
    seen = inspected.changed.seen(head for below in parts.values() for head in below)
    whole = [head for owner in wanted for head in parts.get((owner, ""), [])]
    found = sorted((head for head in whole if chosen.fits(head)), key=chosen.order, reverse=True)
    counts = Counter[str](head.status for head in found)
    rows = [head for head in found if not chosen.status or head.status == chosen.status]
    later = [head for head in rows if chosen.follows(head)]
    shown = later[:ROWS]
    several = len(owners) > 1
    body: list[Child] = [_head(site, chosen, counts, owners if several else [])]
    if shown:
        none = request.query_params.get("chosen") == "none"
        body += [
            around(
                site,
                shown,
                _table(site, chosen, shown, parts, await _failures(store, shown), owners=several),
                none=none,
            ),
            legend("Shape, each from its start to its end"),
        ]
    else:
        body.append(_empty(site, chosen, len(whole)))
    if len(later) > len(shown):
        url = _url(site, chosen.after(shown[-1]))
        body.append(
            next_link("Further" if chosen.sort else "Older", url, f"{counted(len(later) - len(shown), 'run')} more")
        )
    body.append(_fresh(site, chosen, seen))
    return page(site, "Runs", body, view="runs", keys=(("x", "choose the run"),))


async def _failures(store: Store, heads: Iterable[RunHeader]) -> dict[_Named, str]:
    """Return the errors with which runs failed, by the owners and ids of the runs, from their last entries: headers lack the texts of errors."""
    found: dict[_Named, str] = {}
    for head in heads:
        with suppress(DamagedStoreError):  # the page of the run names the damaged part
            if (failure := await read_failure(store, head)) is not None:
                problem = Problem(failure.type, failure.message, failure.traceback)
                found[head.owner, head.run_id] = _words.beginning(str(problem), _LINE)
    return found


def _url(site: Site, chosen: Chosen) -> str:
    url = site.url("runs", **chosen.query())
    return with_empty(url, "owner") if chosen.owner == "" else url


def _head(site: Site, chosen: Chosen, counts: Counter[str], owners: Sequence[str]) -> Html:
    kept = hidden({name: value for name, value in chosen.query().items() if name not in ("q", "before")})
    asked = search(site, "runs", chosen.q, "Task, id, strategy, thread, reason", "Search runs", kept)
    states = [
        ("", "all", counts.total()),
        *((each, each, counts[each]) for each in _ORDER if counts[each] or each == chosen.status),
    ]
    chips = [
        tag(
            "a", word, " ", tag("span", f"{count:,}", class_="number"), href=_url(site, replace(chosen, status=name, before="")),
            aria_current="true" if name == chosen.status else None, class_=name or None,
        )
        for name, word, count in states
    ]  # fmt: skip
    filters: list[Child] = []
    for name, value in (("thread", chosen.thread), ("strategy", chosen.strategy)):
        if value:
            left = replace(
                chosen,
                before="",
                thread="" if name == "thread" else chosen.thread,
                strategy="" if name == "strategy" else chosen.strategy,
            )
            filters.append(
                tag("a", f"{name}: {value} ✕", href=_url(site, left), class_="tag", title="Show others, too")
            )
    if owners:
        choices = [("everybody", None), *((each or "nobody", each) for each in owners)]
        listed = [
            tag("a", word, href=_url(site, replace(chosen, owner=owner, before="")), aria_current="true" if owner == chosen.owner else None)
            for word, owner in choices
        ]  # fmt: skip
        filters.append(
            tag(
                "details",
                tag(
                    "summary",
                    f"Runs of {'everybody' if chosen.owner is None else chosen.owner or 'nobody'}",
                    class_="button",
                ),
                tag("div", listed, class_="choices over"),
            )
        )
    return tag(
        "div", tag("h1", "Runs"), asked, tag("nav", chips, class_="chips", aria_label="States"), filters, class_="head"
    )


def _empty(site: Site, chosen: Chosen, others: int) -> Html:
    if not others:
        return nothing("This store has no runs yet. Give an agent this store, and its runs are shown here.")
    everything = tag("a", f"Show all {counted(others, 'run')}", href=site.url("runs"))
    if chosen == Chosen():
        return nothing("There are no runs.")
    said = "The search looks at tasks, ids, strategies, threads, owners and reasons alone. " if chosen.q else ""
    return nothing(f"No run fits your choice. {said}", everything)


def _table(
    site: Site,
    chosen: Chosen,
    heads: Sequence[RunHeader],
    parts: Mapping[_Named, list[RunHeader]],
    failures: Mapping[_Named, str],
    *,
    owners: bool,
) -> Html:
    boxes = any(has_box(site, each) for each in heads)
    columns = [column(tag("span", "Chosen", class_="unseen"), class_="pick")] if boxes else []
    columns += [*map(column, ("Task", "State", "Shape")), *(_sorting(site, chosen, name) for name in AMOUNTS)]
    body: list[Child] = []
    for day, of_day in groupby(heads, key=lambda head: "" if chosen.sort else _words.day(head)):
        if day:
            body.append(tag("tr", tag("th", day, colspan=len(columns), scope="rowgroup"), class_="day"))
        for each in of_day:
            body.append(_row(site, each, failures, owners=owners, boxes=boxes))
            below = parts.get((each.owner, each.run_id), [])
            body += [_row(site, part, failures, owners=False, boxes=boxes) for part in below[:_PARTS]]
            if len(below) > _PARTS:
                more = counted(len(below) - _PARTS, "sub-agent")
                link = tag("a", f"{more} more", href=_run_url(site, each))
                empty = tag("td", class_="pick") if boxes else None
                body.append(
                    tag("tr", empty, tag("td", link, colspan=len(columns) - boxes, class_="what"), class_="part")
                )
    return table(f"Runs, {f'sorted by {chosen.sort}' if chosen.sort else 'the newest first'}", columns, body, "runs")


def _sorting(site: Site, chosen: Chosen, name: str) -> Html:
    """Return the head of a column, which sorts by it, or again by time."""
    is_sorted = name == chosen.sort
    href = _url(site, replace(chosen, sort="" if is_sorted else name, before=""))
    link = tag("a", f"{name.capitalize()}{' ↓' if is_sorted else ''}", href=href, title="The newest first" if is_sorted else "The largest first")  # fmt: skip
    return tag("th", link, scope="col", class_="n", aria_sort="descending" if is_sorted else None)


def _run_url(site: Site, head: RunHeader) -> str:
    return site.url("run", id=head.run_id, owner=head.owner)


def _row(site: Site, head: RunHeader, failures: Mapping[_Named, str], *, owners: bool, boxes: bool) -> Html:
    below: list[Child] = [tag("code", head.run_id.removeprefix(f"{head.parent}/") if head.parent else head.run_id)]
    if head.strategy:
        below.append(tag("a", head.strategy, href=site.url("runs", strategy=head.strategy)))
    if head.thread:
        below.append(tag("a", f"thread {head.thread}", href=site.url("runs", thread=head.thread), class_="tag"))
    if owners and head.owner:
        below.append(tag("span", f"of {head.owner}", class_="tag"))
    said = failures.get((head.owner, head.run_id)) or _words.reason(head)
    answer = tag("a", " Answer", href=site.url("inbox")) if head.status == "waiting" and not head.parent else None
    why = tag("div", said, answer, class_=f"why {head.status}") if said else None
    title = tag("a", _words.title(head), href=_run_url(site, head), class_="title")
    image = tag(
        "img",
        src=site.url("shape.svg", id=head.run_id, owner=head.owner, at=head.updated),
        width=148,
        height=16,
        alt="",
        loading="lazy",
    )
    return tag(
        "tr", tag("td", box(site, head), class_="pick") if boxes else None, tag("td", title, tag("div", below, class_="sub"), why, class_="what"),
        tag("td", _words.state(head), tag("div", _words.moment(head.started), class_="sub"), class_="when", data_run=f"{head.owner}\n{head.run_id}" if head.status == "running" else None),
        tag("td", None if head.damaged or not head.begun else image, class_="shape"),
        *(tag("td", text, class_="n", data_name=None if text == "–" else name) for name, text in (
            ("worked", _words.duration(head.seconds) if head.seconds else "–"), ("turns", _words.amount(head.turns)),
            ("tokens", _words.amount(head.tokens)), ("cost", _words.money(head.cost)),
        )),
        class_=" ".join(filter(None, ("part" if head.parent else "", "problem" if head.status in _words.PROBLEMS else ""))) or None,
    )  # fmt: skip


async def threads(inspected: Inspected, request: Request) -> str:
    """Return the page of threads, the last continued one first.

    Raises:
        StoreError: the store cannot be read.
    """
    store, site = inspected.runs, inspected.site(request)
    owners = await run_owners(store) if inspected.owner is None else [inspected.owner]
    found: list[Thread] = [each for owner in owners for each in await list_threads(store, owner=owner)]
    found.sort(key=lambda each: each.updated, reverse=True)
    if not found:
        said = nothing(
            'No run belongs to a thread yet: agent.run(…, thread="ada") begins one, and the next run continues it.'
        )
        return page(site, "Threads", tag("div", tag("h1", "Threads"), class_="head"), said, view="threads")
    fresh = _fresh(site, Chosen(), inspected.changed.number)
    failures = await _failures(store, [each.last for each in found[:_THREADS]])
    rows = [_thread(site, each, failures, owners=len(owners) > 1) for each in found[:_THREADS]]
    left = len(found) - len(rows)
    rest = nothing(f"{counted(left, 'thread')} more; graphagent runs threads lists all.") if left else None
    shown = table("Threads, the latest first", ("Thread", "State", column("Runs", class_="n")), rows, "runs")
    return page(site, "Threads", tag("div", tag("h1", "Threads"), class_="head"), shown, rest, fresh, view="threads")


_THREADS = 200


def _thread(site: Site, thread: Thread, failures: Mapping[_Named, str], *, owners: bool) -> Html:
    query = {"thread": thread.name} | ({"owner": thread.last.owner} if thread.last.owner else {})
    title = tag("a", thread.title or "(no text)", href=site.url("runs", **query), class_="title")
    below: list[Child] = [
        tag("code", thread.name),
        tag("span", f"of {thread.last.owner}", class_="tag") if owners and thread.last.owner else None,
    ]
    said = failures.get((thread.last.owner, thread.last.run_id)) or _words.reason(thread.last)
    why = tag("div", said, class_=f"why {thread.last.status}") if said else None
    last = tag("a", _words.state(thread.last), href=_run_url(site, thread.last))
    return tag(
        "tr", tag("td", title, tag("div", below, class_="sub"), why, class_="what"),
        tag("td", last, tag("div", _words.moment(thread.updated), class_="sub"), class_="when"), tag("td", f"{thread.runs:,}", class_="n", data_name="runs"),
    )  # fmt: skip


async def changes(inspected: Inspected, request: Request) -> Response:
    """Return how many runs changed that a page shows, and the progress of the running ones. The address has the choice of the page."""
    query, now = request.query_params, _clock.now()
    changed, going = await inspected.changed.since(number(query.get("since")), Chosen.of(query))
    told = [
        [each.owner, each.run_id, f"{counted(each.last, 'entry')}, {_words.duration(max(now - each.started, 0) / 1000)}"]
        for each in going
    ]  # fmt: skip
    return JSONResponse({"changed": changed, "going": told})


def _fresh(site: Site, chosen: Chosen, seen: int) -> Html:
    """Return the line in which a page says how many runs changed since it was made."""
    url = site.url("changes", since=seen, **chosen.query())
    return tag("p", role="status", class_="fresh", data_changes=with_empty(url, "owner") if chosen.owner == "" else url)


VIEWS: Views = (("runs", runs), ("threads", threads), ("changes", changes))
