"""Two runs side by side: the number of their common entries, and the entries of each from the first difference on; and the choice of a run to compare with."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from graphagent._article import counted
from graphagent._html import Child, Html, join, tag
from graphagent.history import compare_runs, run_head
from graphagent.inspect import _words
from graphagent.inspect._errors import problem_of
from graphagent.inspect._forms import hidden
from graphagent.inspect._inspected import number
from graphagent.inspect._layout import Site, column, crumb, next_link, nothing, page, run_crumb, run_link, table
from graphagent.inspect._values import line_of
from graphagent.run import list_runs

if TYPE_CHECKING:
    from starlette.requests import Request

    from graphagent.history import Entry
    from graphagent.inspect._inspected import Inspected, Views
    from graphagent.run import RunHeader

ROWS = 250
_OFFERED = 50
"""Runs that are offered to compare one with."""


async def compare(inspected: Inspected, request: Request) -> str:
    """Return the page of a comparison. The address has the ids as `a` and `b`, and the first row as `start`.

    Without `b`, it is the page on which a person chooses that run.

    Raises:
        RunNotFoundError: one of the runs does not exist, or is not shown here.
        StoreError: one of the runs cannot be read.
    """
    site, query = inspected.site(request), request.query_params
    a, b, owner = query.get("a", ""), query.get("b", ""), query.get("owner", "")
    inspected.check(a, owner)
    if not b:
        return await _choice(inspected, site, a, owner)
    diff, first = await compare_runs(inspected.runs, a, b, owner=owner), number(query.get("start"))
    rows = list(zip_longest(diff.only_a, diff.only_b))
    names = [run_link(site, each, owner) for each in (diff.a, diff.b)]
    body = [
        tag("tr", _side(site, diff.a, owner, diff.only_a, one, "a"), _side(site, diff.b, owner, diff.only_b, two, "b"))
        for one, two in rows[first : first + ROWS]
    ]
    said = tag(
        "p",
        f"{counted(diff.common, 'entry')} in common, then {len(diff.only_a):,} and {len(diff.only_b):,}.",
        class_="sub",
    )
    shown: list[Child] = [said]
    if body:
        columns = [column(name, class_=side) for name, side in zip(names, "ab", strict=True)]
        shown.append(table("Entries from the first difference on", columns, body, "compare"))
    else:
        shown.append(nothing("Both did the same. " if diff.a != diff.b else "This is one run. ", *names))
    if first + ROWS < len(rows):
        url = site.url("compare", a=diff.a, b=diff.b, owner=owner, start=first + ROWS)
        shown.append(next_link("Later", url))
    way = crumb(tag("a", "Runs", href=site.url("runs")), "compare")
    title = f"{diff.a} and {diff.b}"
    return page(site, title, way, tag("h1", title), shown)


async def _choice(inspected: Inspected, site: Site, run_id: str, owner: str) -> str:
    """Return the page that offers runs of the same strategy, the newest first, to compare one with."""
    of = await run_head(inspected.runs, run_id, owner=owner)
    every = [each for each in await list_runs(inspected.runs, owner=owner) if each.strategy == of.strategy]
    others = sorted((each for each in every if not each.parent and each.run_id != run_id), key=lambda each: each.started, reverse=True)  # fmt: skip
    rows = [
        tag("tr", tag("td", tag("a", _words.title(each), href=site.url("compare", a=run_id, b=each.run_id, owner=owner), class_="title"),
            tag("div", tag("code", each.run_id), class_="sub"), class_="what"),
            tag("td", _words.state(each), tag("div", _words.moment(each.started), class_="sub"), class_="when"),
            tag("td", _words.amount(each.turns), class_="n", data_name="turns" if each.turns else None), tag("td", _words.amount(each.tokens), class_="n", data_name="tokens" if each.tokens else None))
        for each in others[:_OFFERED]
    ]  # fmt: skip
    columns = ("Task", "State", column("Turns", class_="n"), column("Tokens", class_="n"))
    form = tag(
        "form", hidden({"a": run_id, "owner": owner}), tag("label", "With a run below, or by its id", for_="b"), tag("input", type="text", name="b", id="b", required=True),
        tag("button", "Compare", type="submit"), action=site.url("compare"), method="get", class_="row",
    )  # fmt: skip
    shown = nothing(f"No other run of {of.strategy} exists. Name a run of another strategy by its id.")
    if rows:
        shown = table(f"Other runs of {of.strategy}, the newest first", columns, rows, "runs")
    title = f"Compare {run_id}"
    return page(site, title, run_crumb(site, of, "compare"), tag("h1", title), form, shown)


def _side(site: Site, run_id: str, owner: str, entries: Sequence[Entry], entry: Entry | None, side: str) -> Html:
    if entry is None:
        return tag("td", class_="absent")
    problem = problem_of(entries, entry)
    link = tag("a", f"{entry.number:,} {entry.kind}", href=site.url("entry", id=run_id, owner=owner, n=entry.number))
    return tag(
        "td",
        link,
        " ",
        tag("code", entry.where),
        tag("div", line_of(entry, problem), class_="error" if problem is not None else None),
        class_=side,
    )


def compare_links(site: Site, head: RunHeader) -> Html:
    """Return the links to the comparison of a run with the one that it was forked from, and to the choice of another one."""
    origin = None
    if head.origin is not None:
        url = site.url("compare", a=head.origin[0], b=head.run_id, owner=head.owner)
        origin = tag("a", "Compare with origin", href=url, title=head.origin[0], class_="button")
    other = tag("a", "Compare…", href=site.url("compare", a=head.run_id, owner=head.owner), class_="button")
    return join([origin, other])


VIEWS: Views = (("compare", compare),)
