"""The pages of facts: the known values with their sources and their trust, the history of each, and the form for another value."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from starlette.responses import HTMLResponse, RedirectResponse

from graphagent import _clock
from graphagent._article import counted
from graphagent._html import Child, Html, tag
from graphagent.inspect import _words
from graphagent.inspect._forms import refusal, search, text_form, text_sent
from graphagent.inspect._inspected import number
from graphagent.inspect._layout import (
    Site,
    crumb,
    next_link,
    nothing,
    page,
    reach_label,
    run_link,
    table,
    told,
    with_empty,
)
from graphagent.memory import (
    Concept,
    FactType,
    MultipleFacts,
    Scope,
    ScopeKind,
    SingleFact,
    Source,
    Subject,
    Withdrawal,
    resolve,
)
from graphagent.memory.facts._types import checked_owner

if TYPE_CHECKING:
    from datetime import datetime

    from starlette.requests import Request
    from starlette.responses import Response

    from graphagent.inspect._inspected import Changes, Inspected, Views
    from graphagent.memory import Fact
    from graphagent.memory.facts._types import FactVersion
    from graphagent.protocols import KeepingProvider

ROWS = 200


@dataclass(frozen=True, slots=True)
class Known:
    """A known fact, with the place where it is kept."""

    owner: str
    subject: Subject
    scope: Scope
    fact: Fact

    @property
    def about(self) -> tuple[str, str, str]:
        """Its owner, the name of its subject, and its keyword."""
        return self.owner, self.subject.name, self.fact.concept.keyword

    def fits(self, q: str) -> bool:
        """Return whether the fact has all the words."""
        source = self.fact.source
        text = "\n".join(
            (
                *self.about,
                self.scope.name,
                *self.fact.values,
                source.origin,
                source.run_id,
                source.trust,
            )
        ).casefold()
        return all(word in text for word in q.casefold().split())


async def known_facts(provider: KeepingProvider, only: str | None) -> list[Known]:
    """Return the known facts of one owner, or of all.

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
        found += [Known(owner, subject, scope, each) for each in facts]
    return sorted(found, key=lambda each: (*each.about, each.scope.kind.width, each.scope.name))


def _provider(inspected: Inspected) -> KeepingProvider:
    if inspected.facts is None:
        raise LookupError("facts are not shown here")
    return inspected.facts


async def facts(inspected: Inspected, request: Request) -> str:
    """Return the page of the known facts. Its address has `q`, words; `trust`, a level; `from`, the first row.

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
    shown, several = rows[first : first + ROWS], defaultdict[tuple[str, str, str], list[Known]](list)
    for each in every:
        several[each.about].append(each)
    url = site.url("facts", q=q)
    levels: list[tuple[str | None, str, int, str]] = [(None, "all", len(found), url)]
    for name in ("untrusted", "inferred", "", "trusted"):
        to = site.url("facts", q=q, trust=name) if name else with_empty(url, "trust")
        levels += [(name, name or "no claim", counts[name], to)] if counts[name] else []
    chips = [
        tag("a", word, " ", tag("span", f"{count:,}", class_="number"), href=to, aria_current="true" if level == name else None)
        for name, word, count, to in levels
    ]  # fmt: skip
    searched = search(site, "facts", q, "Value, keyword, person, source", "Search facts")
    head = tag(
        "div", tag("h1", "Facts"), searched, tag("nav", chips, class_="chips", aria_label="Trust"), class_="head"
    )
    if not shown:
        why = (
            "No fact fits your search."
            if every
            else "Nothing is known yet. Facts that agents learn, or that you set, are shown here."
        )
        return page(site, "Facts", head, nothing(why), view="facts")
    body = [_row(site, each, competing(each, several[each.about])) for each in shown]
    known = table("Known facts", ("About", "Fact", "Value", "Trust", "From", "Recorded"), body, "facts-table")
    more, left = None, len(rows) - first - ROWS
    if left > 0:
        more = next_link(
            "More", site.url("facts", **{**query, "from": str(first + ROWS)}), f"{counted(left, 'fact')} more"
        )
    return page(site, "Facts", head, known, more, _words.trust_legend(), view="facts")


def competing(each: Known, every: Sequence[Known]) -> list[tuple[Known, str]]:
    """Return the other values of the same fact, each with the decision of `resolve` between the two, in words.

    An agent may read values of the same scope and of scopes of another kind together.
    """
    found: list[tuple[Known, str]] = []
    for other in every:
        if other is each or other.fact.values == each.fact.values or other.about != each.about:
            continue
        if other.scope != each.scope and other.scope.kind is each.scope.kind:
            continue
        both = [(one.fact, one.subject, one.scope) for one in every if one is each or one is other]
        found.append((other, _decided(each, other, resolve(both))))
    return found


def _decided(each: Known, other: Known, told: Sequence[Fact]) -> str:
    """Return the decision between two values in words, given the facts that `resolve` returns."""
    narrow, wide = (_place(scope) for scope in sorted((each.scope, other.scope), key=lambda scope: scope.kind.width))
    there = f"the value of {wide}" if narrow == _place(each.scope) else "its own value"
    if isinstance(told[0], MultipleFacts):
        return f"told to {narrow} together with {there}"
    if all(one is each.fact for one in told):
        return f"hides {there} for {narrow}"
    if all(one is other.fact for one in told):
        return f"hidden for {narrow} by {there}"
    count = f"and counts {'more' if told[0] is each.fact else 'less'}"
    return f"told with the other value, {count}" if narrow == wide else f"told to {narrow} with {there}, {count}"


def _row(site: Site, each: Known, others: Sequence[tuple[Known, str]]) -> Html:
    fact, scope = each.fact, each.scope
    about: list[Child] = [
        each.subject.name,
        tag("div", _place(scope), f" · of {each.owner}" if each.owner else "", class_="sub"),
    ]
    link = tag("a", fact.concept.keyword, href=_url(site, each), title=fact.concept.description or None)
    value: list[Child] = [
        ", ".join(fact.values),
        [tag("div", decided, class_="why waiting") for _, decided in others],
    ]
    cells: list[Child] = [
        about,
        link,
        value,
        _words.trust(fact.source.trust),
        _source(site, fact, each.owner),
        _words.moment(fact.timestamp or 0),
    ]
    return _cells(cells, 2, fact)


def _cells(cells: Sequence[Child], value: int, fact: FactVersion) -> Html:
    """Return a row, given the place of the cell with the value."""
    shown = [tag("td", cell, class_="value" if place == value else None) for place, cell in enumerate(cells)]
    return tag("tr", shown, class_="untrusted" if fact.source.trust == "untrusted" else None)


def _source(site: Site, fact: FactVersion, owner: str) -> Child:
    source = fact.source
    run = run_link(site, source.run_id, owner) if source.run_id else None
    return [run, " " if run and source.origin else "", source.origin or ("" if run else "–")]


@dataclass(frozen=True, slots=True)
class _Named:
    """The fact that an address or a form names."""

    owner: str
    concept: Concept
    subject: Subject
    scope: Scope
    past: Sequence[FactVersion]
    """Its versions, the newest first."""

    @property
    def query(self) -> dict[str, str]:
        """The fact as it stands in an address."""
        given = {"keyword": self.concept.keyword, "subject": self.subject.name, "kind": self.scope.kind.value}
        return {**given, "scope": self.scope.name, "owner": self.owner}


async def _named(inspected: Inspected, given: Mapping[str, str]) -> _Named:
    """Return the fact that an address or a form names.

    Raises:
        LookupError: the fact is not known, or not shown, or no fact is named.
    """
    provider, keyword, owner = _provider(inspected), given.get("keyword", ""), given.get("owner", "")
    if inspected.owner not in (None, owner):
        raise LookupError("this fact is not known here")
    try:
        concept, subject, owner = Concept(keyword), Subject(given.get("subject", "")), checked_owner(owner)
        scope = Scope(ScopeKind(given.get("kind", "")), given.get("scope", ""))
    except ValueError:
        raise LookupError("this address names no fact") from None
    past = await provider.history(concept, subject, scope, owner=owner)
    if not past:
        raise LookupError(f"nothing is known of {keyword!r} here; it may have been forgotten")
    return _Named(owner, past[0].concept, subject, scope, past)


async def fact(inspected: Inspected, request: Request) -> str:
    """Return the page of a fact, with all its versions, the newest first.

    Raises:
        LookupError: the fact is not known, or the address does not name one.
        StoreError: it cannot be read.
    """
    return await _page_of(inspected, inspected.site(request), await _named(inspected, request.query_params))


async def _page_of(inspected: Inspected, site: Site, named: _Named, wrong: str = "", text: str | None = None) -> str:
    """Return the page of a fact; with the refusal of a value that was sent, and the value."""
    provider, past = _provider(inspected), named.past
    facts = await provider.load(named.concept, named.subject, named.scope, owner=named.owner)
    about: list[tuple[str, Child]] = [
        ("about", named.subject.name), ("scope", _place(named.scope)), ("owner", named.owner), ("meaning", named.concept.description),
    ]  # fmt: skip
    way = crumb(tag("a", "Facts", href=site.url("facts")), named.concept.keyword)
    acts: list[Child] = [tag("p", tag("a", reach_label(site), href=site.url("reach", **named.query)))]
    if site.form:
        form = _form(site, named, facts, text)
        label = "Add a value" if named.concept.fact_type is FactType.MULTIPLE else "Set its value"
        acts.insert(0, tag("details", tag("summary", label), form, open=text is not None))
        everything = site.url("reach", subject=named.subject.name, owner=named.owner)
        acts.append(tag("p", tag("a", f"Forget all about {named.subject.name}…", href=everything)))
    return page(
        site, named.concept.keyword, way, tag("h1", named.concept.keyword), told([each for each in about if each[1]]),
        await _known(inspected, site, named),
        refusal(wrong), tag("div", acts, class_="acts"),
        _history(site, past, {each.id for each in facts}, named.owner), view="facts",
    )  # fmt: skip


def _place(scope: Scope) -> str:
    return f"{scope.kind.value}:{scope.name}"


def _form(site: Site, named: _Named, facts: Sequence[Fact], text: str | None) -> Html:
    is_single = named.concept.fact_type is FactType.SINGLE
    known = _known_value(named, facts) if is_single else ""
    about = "It is saved as trusted, since you vouch for it, with the inspector as its source. Earlier versions stay in the history."
    return text_form(
        site, "set-fact", {**named.query, "version": named.past[0].version}, "Value", known if text is None else text,
        "Set" if is_single else "Add", tag("p", about, class_="sub"),
    )  # fmt: skip


def _known_value(named: _Named, facts: Sequence[Fact]) -> str:
    return next((each.values[0] for each in (*facts, *named.past) if each.values), "")


async def _known(inspected: Inspected, site: Site, named: _Named) -> list[Html]:
    """Return the known values of a fact, each with the decisions between it and others."""
    about = (named.owner, named.subject.name, named.concept.keyword)
    every = [each for each in await known_facts(_provider(inspected), named.owner) if each.about == about]
    shown: list[Html] = []
    for each in every:
        if each.scope == named.scope:
            shown.append(
                tag("p", ", ".join(each.fact.values), " ", _words.trust(each.fact.source.trust), class_="whole")
            )
            for other, decided in competing(each, every):
                value = (
                    tag("a", ", ".join(other.fact.values), href=_url(site, other))
                    if other.scope != each.scope
                    else None
                )
                shown.append(tag("p", decided, ": " if value else None, value, class_="why waiting"))
    return shown


def _url(site: Site, each: Known) -> str:
    return site.url(
        "fact", keyword=each.fact.concept.keyword, subject=each.subject.name, kind=each.scope.kind.value, scope=each.scope.name, owner=each.owner
    )  # fmt: skip


def _history(site: Site, past: Sequence[FactVersion], known: Collection[str], owner: str) -> Html:
    times = any(_times(each) for each in past)
    names = ("Version", "Value", "Trust", "From", "Recorded", *(["Holds"] if times else []))
    rows = [
        _cells(
            [
                f"{each.version:,}",
                [_said(each), tag("div", "known", class_="state done") if each.id in known else None],
                _words.trust(each.source.trust),
                _source(site, each, owner),
                _words.moment(each.timestamp or 0),
                *([_times(each)] if times else []),
            ],
            1,
            each,
        )
        for each in past
    ]
    return tag("section", tag("h2", "History"), table("Versions, the newest first", names, rows, "facts-table"))


async def set_value(inspected: Inspected, request: Request, fields: Mapping[str, str]) -> Response:
    """Save a value of a fact if the fact has the version that was shown. A value that is not saved stays in the form.

    Raises:
        LookupError: the fact is not known here.
        StoreError: it cannot be read or written.
    """
    site, provider, named = inspected.site(request), _provider(inspected), await _named(inspected, fields)
    last, several = named.past[0].version, named.concept.fact_type is FactType.MULTIPLE
    known = await provider.load(named.concept, named.subject, named.scope, owner=named.owner)
    text = text_sent(fields, "" if several else _known_value(named, known)).strip()
    if fields.get("version") != str(last):
        wrong = "Another value was saved since this page was made, so yours was not. It is still in the form."
        return HTMLResponse(await _page_of(inspected, site, named, wrong, text), 409)
    if not text:
        return HTMLResponse(
            await _page_of(inspected, site, named, "The value is blank, so it was not saved.", text), 422
        )
    given: dict[str, Any] = {"id": _clock.new_id(), "source": Source(origin="inspector", trust="trusted")}
    try:
        saved = MultipleFacts(named.concept, [text], **given) if several else SingleFact(named.concept, text, **given)
    except ValueError as error:  # which does not say the value
        return HTMLResponse(await _page_of(inspected, site, named, f"{error}", text), 422)
    await provider.save(saved, named.subject, named.scope, owner=named.owner)
    named = await _named(inspected, fields)
    if (
        next((each.version for each in named.past if each.id == saved.id), 0) != last + 1
    ):  # somebody was faster by a moment
        wrong = "It was saved. Somebody else saved another value at the same moment; both are in the history."
        return HTMLResponse(await _page_of(inspected, site, named, wrong), 409)
    return RedirectResponse(site.url("fact", **named.query), 303)


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
CHANGES: Changes = (("set-fact", set_value),)
