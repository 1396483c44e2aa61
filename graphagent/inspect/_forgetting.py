"""The places where a fact or a note has been, and forgetting it together with chosen ones of these places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.responses import HTMLResponse, RedirectResponse

from graphagent._article import counted
from graphagent._html import Child, Html, tag
from graphagent.errors import NotForgottenError
from graphagent.history import forget, reach
from graphagent.inspect._forms import ConflictError, FormError, form, hidden
from graphagent.inspect._inspected import number
from graphagent.inspect._layout import Site, column, crumb, nothing, page, run_link, table
from graphagent.inspect._note import note_url, notes_of
from graphagent.memory import Concept, Scope, ScopeKind, SingleFact, Subject
from graphagent.memory.facts._types import checked_owner
from graphagent.run import list_runs
from graphagent.store import Receipt

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from graphagent.history import Reached
    from graphagent.inspect._inspected import Changes, Inspected, Views
    from graphagent.memory.facts._types import FactVersion

_RUNS = 200
"""Runs that are read unless a person asks for all."""
_VALUES = 100
"""How many values of a fact a person can choose from."""
_COUNTED = {"facts": "version", "notes": "note", "runs": "run", "threads": "thread", "cached": "cached value"}


@dataclass(frozen=True, slots=True)
class Target:
    """A note, a fact, or all facts about a subject, as addresses and forms name it."""

    owner: str
    note: str = ""
    keyword: str = ""
    """The keyword of a fact; empty: all facts about the subject."""
    subject: str = ""
    kind: str = ""
    """The kind of the scope of a fact; empty: all scopes."""
    scope: str = ""

    def query(self) -> dict[str, str]:
        """Return it as it stands in an address."""
        given = {"note": self.note, "keyword": self.keyword, "subject": self.subject, "kind": self.kind}
        return {name: value for name, value in {**given, "scope": self.scope, "owner": self.owner}.items() if value}

    def options(self) -> dict[str, Any]:
        """Return it as `reach` and `forget` take it.

        Raises:
            LookupError: neither a fact nor a note is named.
        """
        if self.note:
            return {"owner": self.owner, "notes": [self.note]}
        try:
            return {
                "owner": checked_owner(self.owner), "subject": Subject(self.subject), "concept": Concept(self.keyword) if self.keyword else None,
                "scope": Scope(ScopeKind(self.kind), self.scope) if self.kind else None,
            }  # fmt: skip
        except ValueError:
            raise LookupError("this address names neither a fact nor a note") from None

    def name(self) -> str:
        """Return it as a phrase."""
        if self.note:
            return "this note"
        about = f"about {self.subject!r}"
        return f"the fact {self.keyword!r} {about}" if self.keyword else f"all that is known {about}"

    def page(self, site: Site) -> str:
        """Return the address of its page."""
        if self.note:
            return note_url(site, self.note, self.owner)
        return site.url("fact", **self.query()) if self.keyword else site.url("facts", q=self.subject)


async def _target(inspected: Inspected, given: Mapping[str, str]) -> tuple[Target, int, list[FactVersion]]:
    """Return the note or the fact that an address or a form names, the number of its versions, and the versions of a fact.

    Raises:
        LookupError: it is not here, or is not shown.
    """
    target = Target(**{name: given.get(name, "") for name in ("owner", "note", "keyword", "subject", "kind", "scope")})
    options = target.options()
    if target.note:
        seen = await notes_of(inspected, target.owner, given.get("source", ""))
        return target, len(await seen.view.history(target.note)) + 1, []
    if inspected.facts is None or inspected.owner not in (None, target.owner):
        raise LookupError("this fact is not known here")
    past: list[FactVersion] = []
    if target.keyword and target.kind:
        past = await inspected.facts.history(
            options["concept"], options["subject"], options["scope"], owner=target.owner
        )
        return target, _some(len(past)), past
    records: Any = inspected.facts.export(owner=target.owner)
    return target, _some(len([each async for each in records if each["subject"] == target.subject])), []


def _some(count: int) -> int:
    if not count:
        raise LookupError("this fact is not known here; it may have been forgotten")
    return count


def _places(inspected: Inspected) -> list[Any]:
    return [each for each in (inspected.runs, inspected.facts, inspected.notes) if each is not None]


async def reached(inspected: Inspected, request: Request) -> str:
    """Return the page of the places where a fact or a note has been, with the form that forgets it. With `all`, every run is read.

    Raises:
        LookupError: it is not here.
        StoreError: something cannot be read.
    """
    site, query = inspected.site(request), request.query_params
    target, versions, past = await _target(inspected, query)
    newest = None if query.get("all") else _RUNS
    found = await reach(*_places(inspected), **target.options(), newest=newest)
    runs = sum(not head.parent for head in await list_runs(inspected.runs, owner=target.owner))
    read = runs if newest is None else min(runs, newest)
    said: list[Child] = [
        f"{read:,} of {counted(runs, 'run')} were looked at. " if read < runs else f"{counted(runs, 'run')} looked at. "
    ]
    if read < runs:
        said.append(tag("a", "Look at all", href=site.url("reach", **target.query(), all=1)))
    head = f"Where {target.name()} has been"
    listed = [_row(site, target, each, place) for place, each in enumerate(found)]
    columns: list[Html | str] = ["Where", "How"]
    if site.form:
        columns.insert(0, column(tag("span", "Forget, too", class_="unseen")))
    places = table("Where it has been", columns, listed, "reached") if listed else nothing("It appears in nothing else that is stored here.")  # fmt: skip
    body: list[Child] = [tag("p", said, class_="sub"), places]
    if site.form:
        fields = {**target.query(), "all": query.get("all", ""), "source": query.get("source", "")}
        forgetting: list[Child] = [
            _question(target, versions, past),
            tag("p", tag("button", "Forget it", type="submit", class_="bad")),
        ]
        body = [form(site, "forget", fields, body, tag("section", forgetting))]
    way = crumb(tag("a", target.name(), href=target.page(site)), "where it has been")
    return page(site, head, way, tag("h1", head), body, view="notes" if target.note else "facts")


def _row(site: Site, target: Target, each: Reached, place: int) -> Html:
    what, how = _what(site, target.owner, each), _how(site, target.owner, each)
    cells: list[Child] = [what, how]
    if site.form:
        field = tag(
            "input", type="checkbox", name=f"also-{place}", value=f"{each.kind} {each.id}", aria_label=f"Forget {each.kind} {each.id}, too"
        )  # fmt: skip
        cells.insert(0, None if each.kind == "cached" else field)
    return tag("tr", [tag("td", cell) for cell in cells])


def _what(site: Site, owner: str, each: Reached) -> Child:
    if each.kind == "run":
        return ["run ", run_link(site, each.id, owner), f" of thread {each.thread}" if each.thread else ""]
    if each.kind == "note":
        link = (
            tag("a", tag("code", each.id), href=note_url(site, each.id, owner)) if site.notes else tag("code", each.id)
        )
        return ["note ", link]
    if each.kind == "cached":
        return f"{counted(each.count, 'cached value')} of this owner"
    fact = Target(owner, "", each.keyword, each.subject.name if each.subject else "")
    kind, scope = (each.scope.kind.value, each.scope.name) if each.scope else ("", "")
    url = site.url("fact", **{**fact.query(), "kind": kind, "scope": scope})
    return ["fact ", tag("a", each.keyword, href=url) if site.facts else each.keyword, f" about {fact.subject}"]


def _how(site: Site, owner: str, each: Reached) -> list[Child]:
    """Return how a run, a fact or a note has it, with links to the prompts."""
    if each.kind == "cached":
        return ["erased in any case, since one may repeat it"]
    said: list[Child] = []
    if each.is_source:
        said.append("it was saved in this run")
    if each.prompts:
        turns: list[Child] = [
            [" ", tag("a", f"entry {n}", href=site.url("prompt", id=each.id, owner=owner, entry=n))]
            for n in each.prompts
        ]
        said.append([f"in the prompt{'s' if len(turns) > 1 else ''} of", turns, ", whose answers may repeat it"])
    if each.summaries:
        entries: list[Child] = [
            [" ", tag("a", f"entry {n}", href=site.url("entry", id=each.id, owner=owner, n=n))] for n in each.summaries
        ]
        said.append(["summed up in", entries])
    if each.run_id:
        said.append(["saved in run ", run_link(site, each.run_id, owner), ", in which it stood in a prompt"])
    if each.repeats:
        said.append("its text stands there word for word")
    if each.is_unread:
        said.append("cannot be read, and may have it")
    return [[tag("br") if place else None, part] for place, part in enumerate(said)]


def _question(target: Target, versions: int, past: Sequence[FactVersion]) -> list[Child]:
    counts = counted(versions, "version")
    said = (
        f"{counts} of {target.name()} and what you chose above are erased from the disk, for good. What you did not choose stays. "
        "Prompts of earlier runs then have [forgotten] in its place. Copies and backups are out of reach."
    )
    if not _has_several(past):
        return [tag("h2", "Forget it"), tag("p", said[0].upper() + said[1:])]
    each = [("", "the whole fact"), *((str(place), f"only {value}") for place, value in enumerate(_values(past)))]
    radios = [
        tag("label", tag("input", type="radio", name="value", value=value, required=True), f" {label}", class_="choice")
        for value, label in each
    ]
    return [
        tag("h2", "Forget it"),
        tag("p", said),
        hidden({"version": past[0].version}),
        tag("fieldset", tag("legend", "What"), radios, class_="radios many"),
    ]


async def forgetting(inspected: Inspected, request: Request, fields: Mapping[str, str]) -> Response:
    """Forget a fact, a value of it, or a note, and the chosen places where it has been. The answer leads to the receipt.

    Raises:
        ConflictError: a chosen place does not exist any more, or the fact has changed since the page was made.
        LookupError: it is not here.
        RunClaimedError: a chosen run is being executed.
    """
    site, places = inspected.site(request), _places(inspected)
    target, _, past = await _target(inspected, fields)
    value = _value(past, fields)
    named = {each for name, each in fields.items() if name.startswith("also-")}
    also: list[Reached] = []
    if named:
        newest = None if fields.get("all") else _RUNS
        found = await reach(*places, **target.options(), newest=newest)
        also = [each for each in found if f"{each.kind} {each.id}" in named]
        if len({f"{each.kind} {each.id}" for each in also}) < len(named):
            raise ConflictError(
                "Something that you chose is not there any more, so nothing was forgotten. Load the page again."
            )
    receipt = Receipt()
    try:
        if value is not None and inspected.facts is not None:
            parts = {"more": await forget(*places, owner=target.owner, also=also)} if also else {}
            parts["value"] = await inspected.facts.forget(**target.options(), value=value)
            receipt = Receipt.of(parts)
        else:
            receipt = await forget(*places, **target.options(), also=also)
    except NotForgottenError as error:
        rest = tag("p", "Some of it is left. Forget it again when the store works; that does the rest.", class_="error")
        said = [tag("h1", "Not all is forgotten"), rest, tag("ul", [tag("li", why) for why in error.left.values()])]
        return HTMLResponse(page(site, "Not all is forgotten", said, _receipt(error.receipt.counts())), 503)
    left = {name: count for name, count in receipt.counts().items() if count}
    return RedirectResponse(site.url("forgotten", **left, of="note" if target.note else "fact"), 303)


def _value(past: Sequence[FactVersion], fields: Mapping[str, str]) -> str | None:
    """Return the value that a form chooses among those of a fact; None is the whole fact.

    Raises:
        FormError: it does not choose, where there are several.
        ConflictError: the fact has changed since the page was made, or has one value.
    """
    if not fields.get("value"):
        if "value" not in fields and _has_several(past):
            raise FormError("This form does not say what to forget; load the page again.")
        return None
    values = {str(place): value for place, value in enumerate(_values(past))}
    if not past or str(past[0].version) != fields.get("version") or fields["value"] not in values:
        raise ConflictError(
            "This fact has changed since its page was made, so nothing was forgotten. Load the page again."
        )
    if isinstance(past[0], SingleFact):
        raise ConflictError("This fact has one value, and is forgotten as a whole.")
    return values[fields["value"]]


def _has_several(past: Sequence[FactVersion]) -> bool:
    return bool(past) and not isinstance(past[0], SingleFact) and len(_values(past)) > 1


def _values(past: Sequence[FactVersion]) -> list[str]:
    return list(dict.fromkeys(value for each in past for value in each.values))[:_VALUES]


def _receipt(counts: Mapping[str, int]) -> Html:
    said = [
        tag("li", f"{counted(counts[name], word)}{' of facts' if name == 'facts' else ''}")
        for name, word in _COUNTED.items()
        if counts.get(name)
    ]
    size = tag("li", counted(counts.get("bytes", 0), "byte"))
    return tag("section", tag("h2", "Erased"), tag("ul", said, size))


async def forgotten(inspected: Inspected, request: Request) -> str:
    """Return the page of a receipt, whose numbers the address has."""
    site, query = inspected.site(request), request.query_params
    view = "notes" if query.get("of") == "note" else "facts"
    counts = {name: number(query.get(name)) for name in (*_COUNTED, "bytes")}
    back = tag("p", tag("a", view.capitalize(), href=site.url(view), class_="button"))
    return page(site, "Forgotten", tag("h1", "Forgotten"), _receipt(counts), back, view=view)


VIEWS: Views = (("reach", reached), ("forgotten", forgotten))
CHANGES: Changes = (("forget", forgetting),)
