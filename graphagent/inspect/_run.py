"""The page of one run: its outcome, its graph, its timeline, its sub-agents, its journal."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from decimal import Decimal
from typing import TYPE_CHECKING

from graphagent._article import counted
from graphagent._html import Child, Html, tag
from graphagent.errors import RunQueuedError
from graphagent.history import run_head
from graphagent.inspect import _words
from graphagent.inspect._acts import run_actions
from graphagent.inspect._compare import compare_links
from graphagent.inspect._errors import problem_of, problem_of_run
from graphagent.inspect._failure import failing_tools, failure
from graphagent.inspect._inspected import number
from graphagent.inspect._layout import Site, crumb, page, pages, table, told, url_of
from graphagent.inspect._spans import Span, spans_of_run
from graphagent.inspect._step import state_link
from graphagent.inspect._step import step as shown_step
from graphagent.inspect._time import Scale, now_of
from graphagent.inspect._timeline import timeline
from graphagent.inspect._transcript import transcript
from graphagent.inspect._values import line_of, text_of

if TYPE_CHECKING:
    from starlette.requests import Request

    from graphagent.history import Entry, StoredRun
    from graphagent.inspect._inspected import Inspected, Views
    from graphagent.run import RunHeader

_FEW = 12
"""Nodes that are listed below a graph at once."""
_KEYS = (("s", "state"), ("p", "prompt"), ("d", "difference"))


async def run(inspected: Inspected, request: Request) -> str:
    """Return the page of a run.

    Its address may have `asked`, if the run was asked to stop; `step`, the number of the entry whose step is shown beside the timeline, and `of`, the path of a node that it began;
    `show`, the rows of the timeline; and `spans` and `entries`, the first rows of the timeline and of the journal.

    Raises:
        RunNotFoundError: the run does not exist, or is not shown here.
        StoreError: the run cannot be read.
    """
    site, query = inspected.site(request), request.query_params
    try:
        stored = await inspected.read(request)
    except RunQueuedError:
        return await _queued(inspected, request, site)
    numbers = [number(query.get(name)) for name in ("spans", "entries", "step")]
    actions = run_actions(inspected, site, stored.head, asked="asked" in query)
    if stored.head.status == "running" and "spans" not in query:
        numbers[0] = -1
    body = parts_of(
        site,
        stored,
        numbers[0],
        numbers[1] if "entries" in query else None,
        actions,
        step=numbers[2],
        of=query.get("of", ""),
        show=query.get("show", ""),
    )
    return page(site, stored.head.title or stored.head.run_id, body, keys=_KEYS)


async def _queued(inspected: Inspected, request: Request, site: Site) -> str:
    """Return the page of a run that was submitted and has no entries yet."""
    run_id, owner = inspected.named(request.query_params)
    head = await run_head(inspected.runs, run_id, owner=owner)
    facts: list[tuple[str, Child]] = [
        ("state", _words.state(head)), ("submitted", _words.moment(head.started)), ("queue", head.queue),
        ("strategy", tag("a", head.strategy, href=site.url("runs", strategy=head.strategy))),
        *([("owner", owner)] if owner else []),
    ]  # fmt: skip
    body = tag(
        "header", _crumb(site, head), tag("h1", _words.title(head)), tag("div", run_actions(inspected, site, head), class_="actions"), told(facts),
        _live(site, head, url_of(site, head, "follow"), 0), class_="runhead",
    )  # fmt: skip
    return page(site, head.title or head.run_id, body)


def parts_of(
    site: Site,
    stored: StoredRun,
    spans_from: int,
    entries_from: int | None,
    actions: Html | None = None,
    *,
    step: int = 0,
    of: str = "",
    show: str = "",
) -> list[Child]:
    """Return the parts of the page of a run, given the first rows of its timeline and of its journal; -1 and a file have the last ones."""
    spans = spans_of_run(stored, now_of(stored))
    if spans_from < 0:
        spans_from = max(len(spans) - site.rows, 0)
    if site.is_file:
        spans_from, entries_from = (max(len(each) - site.rows, 0) for each in (spans, stored.entries))
    chosen = None if not step else shown_step(site, stored, spans, step, of, link=state_link(site, stored.head, step))
    urgent = None if chosen is not None else failure(site, stored) or _questions(site, stored)
    if chosen is None and urgent is None and (last := _last_of(spans)):
        step, chosen = last, shown_step(site, stored, spans, last, link=state_link(site, stored.head, last))
    rows = timeline(site, stored.head, spans, first=spans_from, show=show, chosen=step)
    beside = tag("div", urgent or chosen, id=f"{site.ids}step", class_="beside", tabindex="-1")
    columns = [beside, rows] if urgent is not None else [rows, beside]
    return [
        _head(site, stored, spans, actions, url_of(site, stored.head, "follow", spans=spans_from or "", show=show)),
        tag("div", columns, _graph(site, stored, spans), class_="columns"),
        _parts(site, stored),
        transcript(site, stored),
        _journal(site, stored, entries_from),
    ]


def _last_of(spans: Sequence[Span]) -> int:
    """Return the entry that ended the last model turn, or else the last span, or that began a sleep; 0 if none has ended."""
    turns = [each.entry for each in spans if each.kind == "model" and each.entry]
    return max(turns or [each.entry or (each.begun if each.kind == "sleep" else 0) for each in spans], default=0)


def _head(site: Site, stored: StoredRun, spans: Sequence[Span], actions: Html | None, follow: str) -> Html:
    head = stored.head
    waited = Scale(spans).waited
    facts: list[tuple[str, Child]] = [
        ("state", _words.state(head)), ("started", _words.moment(head.started)), ("worked", _words.duration(stored.seconds)),
        *([("waited", _words.duration(waited))] if waited else []),
        *([("turns", f"{stored.turns:,}")] if stored.turns else []),
        *([("tokens", _tokens(stored))] if stored.turns else []),
        *([("cost", _words.money(stored.usage.cost))] if Decimal(stored.usage.cost) else []),
        ("nodes", f"{stored.nodes:,}"), ("entries", f"{len(stored.entries):,}"),
    ]  # fmt: skip
    links: list[tuple[str, Child]] = [
        ("strategy", tag("a", head.strategy, href=site.url("runs", strategy=head.strategy))),
        *([("version", head.version)] if head.version else []),
        *([("owner", head.owner)] if head.owner else []),
        *([("thread", tag("a", head.thread, href=site.url("runs", thread=head.thread)))] if head.thread else []),
        *([("continues", tag("a", head.previous, href=site.url("run", id=head.previous, owner=head.owner)))] if head.previous else []),
        *([("part of", tag("a", head.parent, href=site.url("run", id=head.parent, owner=head.owner)))] if head.parent else []),
        *([("fork of", tag("a", f"{head.origin[0]}, after entry {head.origin[1]}", href=site.url("run", id=head.origin[0], owner=head.owner)))] if head.origin else []),
        *([("executed by", head.claim.holder)] if head.claim is not None and head.running else []),
    ]  # fmt: skip
    problem = problem_of_run(stored)
    said = [_words.reason(head)] if problem is None else [*map(str, failing_tools(stored)[:1]), str(problem)]
    where = f"#{site.ids}step" if site.is_file else f"{url_of(site, head)}#step"
    why = [tag("p", tag("a", each, href=where), class_=f"why {head.status}") for each in said if each]
    live = _live(site, head, follow, stored.entries[-1].number)
    compare = None if head.parent or site.is_file else compare_links(site, head)
    return tag(
        "header",
        _crumb(site, head),
        tag("h1", _words.title(head)),
        tag("div", actions, compare, class_="actions") if actions or compare else None,
        told([*facts, *links]),
        why,
        live,
        class_="runhead",
    )


def _crumb(site: Site, head: RunHeader) -> Html:
    return crumb(tag("a", "Runs", href=site.url("runs")), tag("code", head.run_id))


def _live(site: Site, head: RunHeader, follow: str, last: int) -> Html | None:
    """Return the line that follows a run while it is executed, and until it is."""
    if head.status not in ("running", "queued") or site.is_file:
        return None
    said = "It is being executed" if head.status == "running" else "It waits to be executed"
    inside = tag("span", f"{said}; load the page again to see more.", class_="said")
    return tag("p", inside, role="status", class_="live", data_follow=follow, data_entry=last)


def _tokens(stored: StoredRun) -> Html:
    usage = stored.usage
    cached = f" ({usage.cached_tokens:,} cached)" if usage.cached_tokens else ""
    return tag(
        "span", f"{usage.total_tokens:,}", title=f"{usage.input_tokens:,} in{cached}, {usage.output_tokens:,} out"
    )


def _questions(site: Site, stored: StoredRun) -> Html | None:
    if not stored.questions:
        return None
    shown = [
        tag(
            "div", tag("p", each.question, class_="question"),
            tag("pre", text_of(each.about)) if each.about not in (None, "") else None,
            tag("p", "Asked by ", tag("code", each.node), None if each.deadline is None else f", until {each.deadline:%Y-%m-%d %H:%M} UTC", class_="sub"),
        )
        for each in stored.questions
    ]  # fmt: skip
    answer = f"{stored.questions[0].id}=ANSWER" if len(stored.questions) > 1 else "ANSWER"
    command = tag("code", _words.command(site.options, "answer", stored.head, answer))
    inbox = tag("a", "Answer it in the inbox", href=site.url("inbox"))
    return tag(
        "section", tag("h2", "It waits for you"), shown, tag("p", inbox, ", or with ", command), class_="question problem", tabindex="-1",
    )  # fmt: skip


def _graph(site: Site, stored: StoredRun, spans: Sequence[Span]) -> Html:
    name = stored.head.strategy
    drawing = tag(
        "img", src=url_of(site, stored.head, "graph.svg"), alt=f"The graph of {name}; the list below has its nodes"
    )
    last = dict[str, Span]()
    for path, span in ({} if site.is_file else {each.path: each for each in spans}).items():
        with suppress(LookupError):  # of a sub-agent, or of the strategy before it was changed
            last[stored.strategy.find(path)[0]] = span

    def named(path: str) -> Html:
        span, name = last.get(path), tag("code", path)
        return name if span is None else tag("a", name, href=f"{url_of(site, stored.head, step=span.entry or span.begun, of=span.path)}#step")  # fmt: skip

    rows = [
        tag("li", named(each.path), f" {counted(each.ended, 'time')}" if each.ended else "", " – the run is here" if each.here else "",
            " not reached" if not (each.here or each.ended) else "", class_="here" if each.here else None if each.ended else "pale")
        for each in stored.graph
    ]  # fmt: skip
    nodes = tag("details", tag("summary", "Visits per node"), tag("ul", rows), open=len(rows) <= _FEW)
    return tag("section", tag("h2", "Graph"), tag("figure", drawing), nodes, class_="graph")


def _parts(site: Site, stored: StoredRun) -> Html | None:
    if not stored.children:
        return None
    rows = [
        tag("li", _words.state(each.head), " ", tag("a", _words.title(each.head), href=url_of(site, each.head)),
            f" {counted(each.turns, 'turn')}, {counted(each.usage.total_tokens, 'token')}")
        for each in stored.children
    ]  # fmt: skip
    return tag("section", tag("h2", "Sub-agents"), tag("ul", rows))


def _journal(site: Site, stored: StoredRun, first: int | None) -> Html:
    named = f"Journal, {counted(len(stored.entries), 'entry')}"
    if first is None and len(stored.entries) > site.rows and not site.is_file:
        link = tag("a", named, href=f"{url_of(site, stored.head, entries=0)}#journal")
        return tag("section", tag("p", link), id="journal")
    is_open, first = first is not None and len(stored.entries) > site.rows, first or 0
    rows = [_entry(site, stored, each) for each in stored.entries[first : first + site.rows]]
    listed = table("Entries of the journal", ("Entry", "Kind", "Node", "What", "When"), rows, "journal")
    more = pages(site, stored.head, "entries", first, len(stored.entries))
    inside = tag("details", tag("summary", named), listed, more, open=is_open and not site.is_file)
    return tag("section", inside, id=f"{site.ids}journal")


def _entry(site: Site, stored: StoredRun, entry: Entry) -> Html:
    link = tag("a", f"{entry.number:,}", href=url_of(site, stored.head, "entry", n=entry.number))
    problem = problem_of(stored.entries, entry)
    cells = (link, entry.kind, tag("code", entry.where), line_of(entry, problem), _words.moment(entry.at))
    return tag("tr", [tag("td", each) for each in cells], class_="error" if problem is not None else None)


VIEWS: Views = (("run", run),)
