"""Two runs side by side: what they have in common in one line, and what each did from the first difference on."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from graphagent._article import counted
from graphagent._html import Child, Html, join, tag
from graphagent.history import compare_runs
from graphagent.inspect._inspected import number
from graphagent.inspect._layout import Site, nothing, page
from graphagent.inspect._values import line_of

if TYPE_CHECKING:
    from starlette.requests import Request

    from graphagent.history import Entry
    from graphagent.inspect._inspected import Inspected, Views

ROWS = 250


async def compare(inspected: Inspected, request: Request) -> str:
    """Return the page of a comparison. The address has the ids as `a` and `b`, and as `start` the first row after the difference that is shown.

    Raises:
        RunNotFoundError: one of the runs does not exist, or is not shown here.
        StoreError: one cannot be read.
    """
    site, query = inspected.site(request), request.query_params
    a, owner = inspected.named(query, "a")
    diff, first = await compare_runs(inspected.runs, a, query.get("b", ""), owner=owner), number(query.get("start"))
    rows = list(zip_longest(diff.only_a, diff.only_b))
    names = [tag("a", tag("code", each), href=site.url("run", id=each, owner=owner)) for each in (diff.a, diff.b)]
    head = tag("tr", [tag("th", name, scope="col", class_=side) for name, side in zip(names, "ab", strict=True)])
    body = [
        tag("tr", _side(site, diff.a, owner, one, "a"), _side(site, diff.b, owner, two, "b"))
        for one, two in rows[first : first + ROWS]
    ]
    said = tag(
        "p",
        f"{counted(diff.common, 'entry')} in common, then {len(diff.only_a):,} and {len(diff.only_b):,}.",
        class_="sub",
    )
    shown: list[Child] = [said]
    if body:
        shown.append(
            tag(
                "table",
                tag("caption", "Entries from the first difference on", class_="unseen"),
                tag("thead", head),
                tag("tbody", body),
                class_="compare",
            )
        )
    else:
        shown.append(nothing("Both did the same. " if diff.a != diff.b else "This is one run. ", *names))
    if first + ROWS < len(rows):
        shown.append(
            tag(
                "p",
                tag(
                    "a",
                    "Later",
                    href=site.url("compare", a=diff.a, b=diff.b, owner=owner, start=first + ROWS),
                    rel="next",
                    class_="button",
                ),
                class_="more",
            )
        )
    crumb = tag("p", tag("a", "Runs", href=site.url("runs")), " / compare", class_="crumb")
    return page(site, f"{diff.a} and {diff.b}", crumb, tag("h1", "Two runs"), shown, wide=True)


def _side(site: Site, run_id: str, owner: str, entry: Entry | None, side: str) -> Html:
    if entry is None:
        return tag("td", class_="absent")
    link = tag("a", f"{entry.number:,} {entry.kind}", href=site.url("entry", id=run_id, owner=owner, n=entry.number))
    return tag(
        "td",
        link,
        " ",
        tag("code", entry.where),
        tag("div", line_of(entry), class_="error" if entry.error is not None else None),
        class_=side,
    )


def compare_form(site: Site, run_id: str, owner: str, others: Sequence[str]) -> Html:
    """Return links to the comparisons with the runs that a run comes from, and where a person names another one."""
    hidden = [
        tag("input", type="hidden", name=name, value=value)
        for name, value in (("a", run_id), ("owner", owner))
        if value
    ]
    links = [
        tag("a", f"Compare with {each}", href=site.url("compare", a=each, b=run_id, owner=owner), class_="button")
        for each in others
    ]
    field = tag(
        "input", type="text", name="b", required=True, placeholder="Id of another run", aria_label="Id of another run"
    )
    form = tag(
        "form",
        hidden,
        field,
        " ",
        tag("button", "Compare", type="submit"),
        action=site.url("compare"),
        method="get",
        class_="compare-form",
    )
    return join([links, tag("details", tag("summary", "Compare with another run"), form)])


VIEWS: Views = (("compare", compare),)
