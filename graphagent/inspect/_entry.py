"""The page of one entry of a journal."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from graphagent._html import Child, tag
from graphagent.errors import RunNotFoundError
from graphagent.inspect import _words
from graphagent.inspect._errors import problem_of
from graphagent.inspect._forking import fork_link
from graphagent.inspect._inspected import number
from graphagent.inspect._layout import crumb, page, told, url_of
from graphagent.inspect._spans import spans_of_run
from graphagent.inspect._state import state
from graphagent.inspect._step import step
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
    about, stored_as = head_of(site, stored, at)
    shown = step(site, stored, spans_of_run(stored, now_of(stored)), at, request.query_params.get("of", ""))
    if "step" in request.query_params:
        return page(site, f"Step {at}", tag("div", shown, id="step"))
    after = await inspected.read(request, until=at)
    before = None
    with suppress(RunNotFoundError):  # a sub-agent had not begun
        before = await inspected.read(request, until=at - 1) if at > 1 else None
    columns = tag("div", state(before, after), shown, class_="halves")
    return page(
        site, f"Entry {at}", crumb(site, stored.head, f"entry {at}"), tag("h1", f"Entry {at}"), about, fork_link(inspected, site, stored.head, at),
        columns, tag("details", tag("summary", "As it is stored"), tag("pre", stored_as, class_="box")), keys=(("h l", "entry before, after"),),
    )  # fmt: skip


def parts_of(site: Site, stored: StoredRun, at: int) -> list[Child]:
    """Return what a file has of an entry, given its number.

    Raises:
        LookupError: the run has no such entry.
    """
    about, stored_as = head_of(site, stored, at)
    value = text_of(next(each for each in stored.entries if each.number == at).value)
    return [
        about,
        tag("section", tag("h2", "Value"), tag("pre", value)) if value else None,
        tag("section", tag("h2", "As it is stored"), tag("pre", stored_as)),
    ]


def head_of(site: Site, stored: StoredRun, at: int) -> tuple[list[Child], str]:
    """Return the first lines about an entry, given its number, and the entry as it is stored.

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
        ("kind", found.kind), ("node", tag("code", found.where or "–")), ("leads to", tag("code", ", ".join(found.begins) or "–")),
        ("key", tag("code", found.key or "–")), ("written", _words.moment(found.at)),
    ]  # fmt: skip
    problem = problem_of(stored.entries, found)
    error = None if problem is None else tag("div", problem.html(), class_="problem", tabindex="-1")
    return [told(facts), tag("p", links, class_="more"), error], as_json(found.data)


VIEWS: Views = (("entry", entry),)
