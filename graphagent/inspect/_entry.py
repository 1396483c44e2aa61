"""The page of one entry of a journal."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from graphagent._html import Child, Html, tag
from graphagent.errors import RunNotFoundError
from graphagent.inspect import _words
from graphagent.inspect._errors import problem_of
from graphagent.inspect._forking import fork_link
from graphagent.inspect._inspected import number
from graphagent.inspect._layout import page, run_crumb, told, url_of
from graphagent.inspect._spans import spans_of_run
from graphagent.inspect._state import state
from graphagent.inspect._step import state_link, step
from graphagent.inspect._time import now_of
from graphagent.inspect._values import as_json, text_of

if TYPE_CHECKING:
    from starlette.requests import Request

    from graphagent.history import StoredRun
    from graphagent.inspect._inspected import Inspected, Views
    from graphagent.inspect._layout import Site


async def entry(inspected: Inspected, request: Request) -> str:
    """Return the page of an entry, whose number the address has as `n`: its step, what it changed, and the state after it.

    Raises:
        LookupError: the run has no such entry.
    """
    site, stored = inspected.site(request), await inspected.read(request)
    at = number(request.query_params.get("n"))
    links, about, stored_as = head_of(site, stored, at)
    alone, of = "step" in request.query_params, request.query_params.get("of", "")
    timeline = tag("a", "In the timeline", href=f"{url_of(site, stored.head, step=at, of=of)}#step", class_="button")
    link = state_link(site, stored.head, at) if alone else timeline
    shown = step(site, stored, spans_of_run(stored, now_of(stored)), at, of, link=link)
    if alone:
        return page(site, f"Step {at}", tag("div", shown, id="step"))
    after = await inspected.read(request, until=at)
    before = None
    with suppress(RunNotFoundError):  # a sub-agent had not begun
        before = await inspected.read(request, until=at - 1) if at > 1 else None
    columns = tag("div", state(before, after), shown, class_="halves")
    actions = tag("div", fork_link(inspected, site, stored.head, at), links, class_="actions")
    head = tag(
        "header",
        run_crumb(site, stored.head, f"entry {at}"),
        tag("h1", f"Entry {at}"),
        actions,
        about,
        class_="runhead",
    )
    return page(
        site, f"Entry {at}", head, columns, tag("details", tag("summary", "As it is stored"), tag("pre", stored_as, class_="box")), keys=(("h l", "entry before, after"),),
    )  # fmt: skip


def parts_of(site: Site, stored: StoredRun, at: int) -> list[Child]:
    """Return the part of a file about an entry, given its number.

    Raises:
        LookupError: the run has no such entry.
    """
    links, about, stored_as = head_of(site, stored, at)
    found = next(each for each in stored.entries if each.number == at)
    value, problem = text_of(found.value), problem_of(stored.entries, found)
    return [
        about,
        None if problem is None else tag("div", problem.html(), class_="problem"),
        tag("p", links, class_="more"),
        tag("section", tag("h2", "Value"), tag("pre", value)) if value else None,
        tag("section", tag("h2", "As it is stored"), tag("pre", stored_as)),
    ]


def head_of(site: Site, stored: StoredRun, at: int) -> tuple[list[Html], Html, str]:
    """Return the links to the entries beside one, given its number; the first line about it; and the entry as it is stored.

    Raises:
        LookupError: the run has no such entry.
    """
    found = next((each for each in stored.entries if each.number == at), None)
    if found is None:
        raise LookupError(f"run {stored.head.run_id!r} has no entry {at}; its last one is {stored.entries[-1].number}")
    numbers = [each.number for each in stored.entries]
    place = numbers.index(at)
    links = [
        tag("a", word, href=url_of(site, stored.head, "entry", n=numbers[other]), rel=rel, class_="button")
        for word, rel, other in (("Entry before", "prev", place - 1), ("Entry after", "next", place + 1))
        if 0 <= other < len(numbers)
    ]
    facts: list[tuple[str, Child]] = [
        ("kind", found.kind), *((name, tag("code", text)) for name, text in (("node", found.where), ("leads to", ", ".join(found.begins)), ("key", found.key)) if text),
        ("written", _words.moment(found.at)),
    ]  # fmt: skip
    return links, told(facts), as_json(found.data)


VIEWS: Views = (("entry", entry),)
