"""The pages of facts: what is known of whom, from where, how far it can be trusted, and what was known before."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from graphagent._article import counted
from graphagent._html import Child, Html, tag
from graphagent.inspect import _words
from graphagent.inspect._inspected import number
from graphagent.inspect._layout import Site, nothing, page, told
from graphagent.memory import Concept, Scope, ScopeKind, Subject, Withdrawal

if TYPE_CHECKING:
    from datetime import datetime

    from starlette.requests import Request

    from graphagent.inspect._inspected import Inspected, Views
    from graphagent.memory import Fact
    from graphagent.memory.facts._types import FactVersion
    from graphagent.protocols import KeepingProvider

ROWS = 200


@dataclass(frozen=True, slots=True)
class Known:
    """A fact that is known, and where it is kept."""

    owner: str
    subject: Subject
    scope: Scope
    fact: Fact

    @property
    def key(self) -> tuple[str, str, Scope, str]:
        """What it is about: two facts with one key are values that contradict each other, or stand beside each other."""
        return self.owner, self.subject.name, self.scope, self.fact.concept.keyword

    def fits(self, q: str) -> bool:
        """Return whether all words stand somewhere in it."""
        source = self.fact.source
        text = "\n".join(
            (
                *self.key[:2],
                str(self.scope.name),
                self.key[3],
                *self.fact.values,
                source.origin,
                source.run_id,
                source.trust,
            )
        ).casefold()
        return all(word in text for word in q.casefold().split())


async def known_facts(provider: KeepingProvider, only: str | None) -> list[Known]:
    """Return the facts that are known, of one owner or of all.

    Raises:
        StoreError: they cannot be read.
    """
    places: set[tuple[str, str, str, str]] = set()
    async with aclosing(cast("Any", provider.export(owner=only))) as records:
        async for record in cast("AsyncIterator[dict[str, Any]]", records):
            scope = record["scope"]
            places.add((str(record["owner"]), str(record["subject"]), str(scope["kind"]), str(scope["name"])))
    found: list[Known] = []
    for owner, about, kind, name in sorted(places):
        subject, scope = Subject(about), Scope(ScopeKind(kind), name)
        facts = await provider.load_all(subject, scope, owner=owner)
        found += [Known(owner, subject, scope, each) for each in sorted(facts, key=lambda fact: fact.concept.keyword)]
    return found


def _provider(inspected: Inspected) -> KeepingProvider:
    if inspected.facts is None:
        raise LookupError("facts are not shown here")
    return inspected.facts


async def facts(inspected: Inspected, request: Request) -> str:
    """Return the page of the facts that are known. Its address has `q`, words; `trust`, a level; `from`, the first row.

    Raises:
        LookupError: facts are not shown.
        StoreError: they cannot be read.
    """
    site, query = inspected.site(request), request.query_params
    every = await known_facts(_provider(inspected), inspected.owner)
    q, level = query.get("q", ""), query.get("trust")
    found = [each for each in every if each.fits(q)]
    counts = Counter(each.fact.source.trust for each in found)
    rows = [each for each in found if level in (None, each.fact.source.trust)]
    first = number(query.get("from"))
    shown, several = rows[first : first + ROWS], Counter(each.key for each in every)
    field = tag(
        "input",
        type="search",
        name="q",
        value=q,
        placeholder="Value, keyword, person, source",
        aria_label="Search facts",
    )
    search = tag("form", field, role="search", action=site.url("facts"), method="get")
    chips: list[Child] = [
        tag(
            "a",
            "all ",
            tag("span", f"{len(found):,}", class_="number"),
            href=site.url("facts", q=q),
            aria_current="true" if level is None else None,
        )
    ]
    chips += [
        tag("a", each or "no claim", " ", tag("span", f"{counts[each]:,}", class_="number"), href=f"{site.url('facts', q=q)}{'&' if q else '?'}trust={each}",
            aria_current="true" if level == each else None)
        for each in ("untrusted", "inferred", "", "trusted") if counts[each]
    ]  # fmt: skip
    head = tag("div", tag("h1", "Facts"), search, tag("nav", chips, class_="chips", aria_label="Trust"), class_="head")
    if not shown:
        why = (
            "No fact fits what you chose."
            if every
            else "Nothing is known yet. Facts that agents learn, or that you set, are shown here."
        )
        return page(site, "Facts", head, nothing(why), view="facts")
    names = ("About", "Fact", "Value", "Trust", "From", "Recorded")
    titles = tag("tr", [tag("th", name, scope="col") for name in names])
    body = [_row(site, each, competing=several[each.key] > 1) for each in shown]
    table = tag(
        "table",
        tag("caption", "Known facts", class_="unseen"),
        tag("thead", titles),
        tag("tbody", body),
        class_="facts-table",
    )
    more = None
    if first + ROWS < len(rows):
        link = tag(
            "a", "More", href=site.url("facts", **{**query, "from": str(first + ROWS)}), rel="next", class_="button"
        )
        more = tag("p", link, f" {counted(len(rows) - first - ROWS, 'fact')} more", class_="more")
    return page(site, "Facts", head, table, more, view="facts")


def _row(site: Site, each: Known, *, competing: bool) -> Html:
    fact, scope = each.fact, each.scope
    about: list[Child] = [
        each.subject.name,
        tag(
            "div",
            f"{scope.kind.value}:{scope.name}" if scope.name else scope.kind.value,
            f" · of {each.owner}" if each.owner else "",
            class_="sub",
        ),
    ]
    link = tag("a", fact.concept.keyword, href=site.url(
        "fact", keyword=fact.concept.keyword, subject=each.subject.name, kind=scope.kind.value, scope=scope.name, owner=each.owner,
    ), title=fact.concept.description or None)  # fmt: skip
    value: list[Child] = [
        ", ".join(fact.values),
        tag("div", "another value is known beside it", class_="why waiting") if competing else None,
    ]
    cells: list[Child] = [
        about,
        link,
        value,
        _words.trust(fact.source.trust),
        _source(site, fact, each.owner),
        _words.moment(fact.timestamp or 0),
    ]
    return tag(
        "tr", [tag("td", cell) for cell in cells], class_="untrusted" if fact.source.trust == "untrusted" else None
    )


def _source(site: Site, fact: FactVersion, owner: str) -> Child:
    source = fact.source
    run = (
        tag("a", tag("code", source.run_id), href=site.url("run", id=source.run_id, owner=owner))
        if source.run_id
        else None
    )
    return [run, " " if run and source.origin else "", source.origin or ("" if run else "–")]


async def fact(inspected: Inspected, request: Request) -> str:
    """Return the page of a fact, with all that was known of it, the newest first.

    Raises:
        LookupError: nothing is known of it, or the address does not name one.
        StoreError: it cannot be read.
    """
    provider, site, query = _provider(inspected), inspected.site(request), request.query_params
    keyword, owner = query.get("keyword", ""), query.get("owner", "")
    if inspected.owner not in (None, owner):
        raise LookupError("nothing is known of this here")
    try:
        concept, subject = Concept(keyword), Subject(query.get("subject", ""))
        scope = Scope(ScopeKind(query.get("kind", "")), query.get("scope", ""))
    except ValueError:
        raise LookupError("this address names no fact") from None
    past = await provider.history(concept, subject, scope, owner=owner)
    if not past:
        raise LookupError(f"nothing is known of {keyword!r} here; it may have been forgotten")
    ids = {each.id for each in await provider.load(concept, subject, scope, owner=owner)}
    times = any(_times(each) for each in past)
    names = ("Version", "Value", "Trust", "From", "Recorded", *(["Holds"] if times else []))
    rows = [
        tag("tr", [tag("td", cell) for cell in (
            f"{each.version:,}", [_said(each), tag("div", "known", class_="state done") if each.id in ids else None], _words.trust(each.source.trust),
            _source(site, each, owner), _words.moment(each.timestamp or 0), *([_times(each)] if times else []),
        )], class_="untrusted" if each.source.trust == "untrusted" else None)
        for each in past
    ]  # fmt: skip
    head = tag("tr", [tag("th", name, scope="col") for name in names])
    about: list[tuple[str, Child]] = [
        ("about", subject.name), ("scope", f"{scope.kind.value}:{scope.name}" if scope.name else scope.kind.value), *([("owner", owner)] if owner else []),
        *([("meaning", past[0].concept.description)] if past[0].concept.description else []),
    ]  # fmt: skip
    crumb = tag("p", tag("a", "Facts", href=site.url("facts")), f" / {keyword}", class_="crumb")
    table = tag(
        "table", tag("caption", "Versions, the newest first", class_="unseen"), tag("thead", head), tag("tbody", rows)
    )
    return page(
        site, keyword, crumb, tag("h1", keyword), told(about), tag("section", tag("h2", "History"), table), view="facts"
    )


def _said(version: FactVersion) -> str:
    if isinstance(version, Withdrawal):
        return f"withdrawn: {', '.join(version.values)}" if version.values else "values were forgotten"
    return ", ".join(version.values)


def _times(version: FactVersion) -> str:
    def day(each: datetime | None) -> str:
        return "" if each is None else f"{each:%Y-%m-%d %H:%M %z}"

    begin, end = day(getattr(version, "valid_from", None)), day(getattr(version, "valid_to", None))
    return " ".join(filter(None, (f"from {begin}" if begin else "", f"until {end}" if end else "")))


VIEWS: Views = (("facts", facts), ("fact", fact))
