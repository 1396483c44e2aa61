"""The page of one run: what became of it, its graph, its timeline, its sub-agents, its journal."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from graphagent._article import counted
from graphagent._html import Child, Html, tag
from graphagent.inspect import _words
from graphagent.inspect._acts import run_actions
from graphagent.inspect._compare import compare_form
from graphagent.inspect._inspected import number
from graphagent.inspect._layout import Site, page, told, url_of
from graphagent.inspect._spans import Span, spans_of
from graphagent.inspect._time import Scale, now_of
from graphagent.inspect._transcript import transcript
from graphagent.inspect._values import line_of, text_of

if TYPE_CHECKING:
    from starlette.requests import Request

    from graphagent.history import Entry, StoredRun
    from graphagent.inspect._inspected import Inspected, Views

_LIBRARY = "graphagent"


async def run(inspected: Inspected, request: Request) -> str:
    """Return the page of a run. Its address may have `spans` and `entries`, the first rows of the timeline and of the journal that are shown.

    Raises:
        RunNotFoundError: it does not exist, or is not shown here.
        StoreError: it cannot be read.
    """
    site, stored, query = inspected.site(request), await inspected.read(request), request.query_params
    actions = run_actions(inspected, site, stored.head)
    body = parts_of(site, stored, number(query.get("spans")), number(query.get("entries")), actions)
    return page(site, stored.head.title or stored.head.run_id, body, wide=True)


def parts_of(
    site: Site, stored: StoredRun, spans_from: int, entries_from: int, actions: Html | None = None
) -> list[Child]:
    """Return what the page of a run consists of, given the first rows of its timeline and of its journal. A file has the last ones."""
    spans = spans_of(stored.entries, now_of(stored))
    if site.is_file:
        spans_from, entries_from = (max(len(each) - site.rows, 0) for each in (spans, stored.entries))
    return [
        _head(site, stored, spans, actions),
        _failure(stored),
        _questions(site, stored),
        tag("div", _graph(site, stored), _timeline(site, stored, spans, spans_from), class_="two"),
        _parts(site, stored),
        transcript(site, stored),
        _journal(site, stored, entries_from),
    ]


def _head(site: Site, stored: StoredRun, spans: Sequence[Span], actions: Html | None) -> Html:
    head = stored.head
    waited = sum(end - begin for begin, end in Scale(spans).silences) / 1000
    facts: list[tuple[str, Child]] = [
        ("state", _words.state(head)), ("started", _words.moment(head.started)), ("worked", _words.duration(stored.seconds)),
        *([("silent", _words.duration(waited))] if waited else []),
        ("nodes", f"{stored.nodes:,}"), ("turns", f"{stored.turns:,}"), ("tokens", _tokens(stored)), ("cost", _words.money(stored.usage.cost)),
        ("entries", f"{len(stored.entries):,}"),
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
    crumb = tag("p", tag("a", "Runs", href=site.url("runs")), " / ", tag("code", head.run_id), class_="crumb")
    said = _words.reason(head)
    why = (
        tag("p", said, class_=f"why {head.status}")
        if said and stored.failure is None and not stored.questions
        else None
    )
    live = tag(
        "p", tag("span", "It is being executed; load the page again to see more.", class_="said"),
        role="status", class_="live", data_follow=url_of(site, head, "follow"), data_entry=stored.entries[-1].number,
    ) if head.status == "running" and not site.is_file else None  # fmt: skip
    others = [head.origin[0]] if head.origin else []
    compare = None if head.parent or site.is_file else compare_form(site, head.run_id, head.owner, others)
    return tag(
        "header",
        crumb,
        tag("h1", _words.title(head)),
        told(facts),
        told(links),
        why,
        live,
        compare,
        actions,
        class_="runhead",
    )


def _tokens(stored: StoredRun) -> Html:
    usage = stored.usage
    parts = f"{usage.input_tokens:,} in, {usage.cached_tokens:,} of them cached, {usage.output_tokens:,} out"
    return tag("span", f"{usage.total_tokens:,}", title=parts)


def _failure(stored: StoredRun) -> Html | None:
    failure = stored.failure
    if failure is None:
        return None
    said = tag("p", tag("b", failure.type), f": {failure.message}" if failure.message else "", class_="error")
    frames = tag(
        "pre", [tag("span", line, class_=None if kind else "pale") for line, kind in frames_of(failure.traceback)]
    )
    where = [tag("code", each) for each in stored.at]
    return tag(
        "section", tag("h2", "Why it failed"), said, tag("p", "At ", where) if where else None,
        tag("details", tag("summary", "Traceback"), frames, open=True),
        tag("p", "Resuming it executes again what had not ended, from the last entry on: ", tag("code", f"graphagent runs resume {shlex.quote(stored.head.run_id)}")),
        class_="problem", tabindex="-1",
    )  # fmt: skip


def frames_of(traceback: str) -> Iterable[tuple[str, bool]]:
    """Yield the lines of a traceback, each with whether it is of the user's own code, or of the error itself."""
    own = True
    for line in traceback.splitlines(keepends=True):
        if line.startswith('  File "'):
            path = line.split('"')[1].replace("\\", "/")
            own = f"/{_LIBRARY}/" not in path and "/site-packages/" not in path and "/lib/python" not in path
        elif not line.startswith(" "):
            own = True
        yield line, own


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
    ids = f"{shlex.quote(stored.questions[0].id)}=ANSWER" if len(stored.questions) > 1 else "ANSWER"
    command = tag("code", f"graphagent runs answer {shlex.quote(stored.head.run_id)} {ids}")
    inbox = tag("a", "Answer it in the inbox", href=site.url("inbox"))
    return tag(
        "section", tag("h2", "It waits for you"), shown, tag("p", inbox, ", or with ", command), class_="question problem", tabindex="-1",
    )  # fmt: skip


def _graph(site: Site, stored: StoredRun) -> Html:
    name = stored.head.strategy
    drawing = tag(
        "img", src=url_of(site, stored.head, "graph.svg"), alt=f"The graph of {name}; the list below has its nodes"
    )
    rows = [
        tag("li", tag("code", each.path), f" {counted(each.ended, 'time')}" if each.ended else "", " – the run is here" if each.here else "",
            " not reached" if not (each.here or each.ended) else "", class_="here" if each.here else None if each.ended else "pale")
        for each in stored.graph
    ]  # fmt: skip
    nodes = tag("details", tag("summary", "Nodes, and how often each came to its end"), tag("ul", rows))
    return tag("section", tag("h2", "Graph"), tag("figure", drawing), nodes, class_="graph")


def _timeline(site: Site, stored: StoredRun, spans: Sequence[Span], first: int) -> Html:
    scale, shown = Scale(spans), spans[first : first + site.rows]
    rows = [_lane(site, stored, span, scale) for span in shown]
    silent = [
        tag("li", f"{_words.duration((end - begin) / 1000)} of silence, drawn short")
        for begin, end in scale.silences[:5]
    ]
    head = tag(
        "tr",
        tag("th", "What", scope="col"),
        tag("th", "When", scope="col"),
        tag("th", "How long", scope="col", class_="n"),
    )
    table = tag(
        "table",
        tag("caption", "What the run did, and when", class_="unseen"),
        tag("thead", head),
        tag("tbody", rows),
        class_="timeline",
    )
    more = _pages(site, stored, "spans", first, len(spans))
    return tag("section", tag("h2", "Timeline"), table, tag("ul", silent, class_="sub") if silent else None, more)


def _lane(site: Site, stored: StoredRun, span: Span, scale: Scale) -> Html:
    x, width = scale.bar(span, 0.6)
    kind = "failed" if span.problem else "around" if span.inside else span.kind
    bar = tag("rect", x=f"{x}%", width=f"{width}%", y="5", height="10", rx="2", class_=kind)
    label: Child = [span.label, tag("span", f" {span.problem}", class_="error") if span.problem else None]
    link = (
        tag("a", label, href=url_of(site, stored.head, "entry", n=span.entry))
        if span.entry
        else tag("span", label, " – not ended")
    )
    return tag(
        "tr", tag("th", link, scope="row", class_=f"at{min(span.depth, 6)} {span.kind}", title=span.path),
        tag("td", tag("svg", bar, class_="lane", aria_hidden="true")), tag("td", _words.duration(span.seconds), class_="n"),
        class_="problem" if span.problem else None,
    )  # fmt: skip


def _pages(site: Site, stored: StoredRun, name: str, first: int, total: int) -> Html | None:
    if total <= site.rows:
        return None
    links: list[Child] = [f"{first + 1:,} to {min(first + site.rows, total):,} of {total:,} "]
    if first:
        links.append(
            tag(
                "a",
                "Earlier",
                href=url_of(site, stored.head, "run", **{name: max(first - site.rows, 0)}),
                rel="prev",
                class_="button",
            )
        )
    if first + site.rows < total:
        links.append(
            tag(
                "a",
                "Later",
                href=url_of(site, stored.head, "run", **{name: first + site.rows}),
                rel="next",
                class_="button",
            )
        )
    return tag("p", links, class_="more")


def _parts(site: Site, stored: StoredRun) -> Html | None:
    if not stored.children:
        return None
    rows = [
        tag("li", _words.state(each.head), " ", tag("a", _words.title(each.head), href=url_of(site, each.head)),
            f" {counted(each.turns, 'turn')}, {counted(each.usage.total_tokens, 'token')}")
        for each in stored.children
    ]  # fmt: skip
    return tag("section", tag("h2", "Sub-agents"), tag("ul", rows))


def _journal(site: Site, stored: StoredRun, first: int) -> Html:
    rows = [_entry(site, stored, each) for each in stored.entries[first : first + site.rows]]
    names = ("Entry", "Kind", "Node", "What", "When")
    head = tag("tr", [tag("th", each, scope="col") for each in names])
    table = tag(
        "table",
        tag("caption", "Entries of the journal", class_="unseen"),
        tag("thead", head),
        tag("tbody", rows),
        class_="journal",
    )
    more = _pages(site, stored, "entries", first, len(stored.entries))
    inside = tag(
        "details", tag("summary", f"Journal, {counted(len(stored.entries), 'entry')}"), table, more, open=bool(first)
    )
    return tag("section", inside)


def _entry(site: Site, stored: StoredRun, entry: Entry) -> Html:
    link = tag("a", f"{entry.number:,}", href=url_of(site, stored.head, "entry", n=entry.number))
    cells = (link, entry.kind, tag("code", entry.where), line_of(entry), _words.moment(entry.at))
    return tag("tr", [tag("td", each) for each in cells], class_="error" if entry.error is not None else None)


VIEWS: Views = (("run", run),)
