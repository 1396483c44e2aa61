"""The pages of notes: the tree of scopes, what a question finds and why, and a whole note with its history."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from starlette.responses import HTMLResponse, RedirectResponse

from graphagent._html import Child, Html, tag
from graphagent.errors import ConflictError, EmbedderError, NoteError, NoteNotFoundError, RerankerError
from graphagent.inspect import _words
from graphagent.inspect._forms import text_form, text_sent
from graphagent.inspect._inspected import number
from graphagent.inspect._layout import Site, nothing, page, reach_label, told
from graphagent.inspect._values import as_json
from graphagent.memory import Notes
from graphagent.memory.notes._owner import seen_of, store_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from starlette.requests import Request
    from starlette.responses import Response

    from graphagent.inspect._inspected import Changes, Inspected, Views
    from graphagent.memory import FormerNote, Match, NoteView, Record, ScopeTree

_LISTED, _FOUND = 50, 20
"""Notes on a page: without a question, and for one."""
_SCOPES = 200
"""Of more scopes, only those beside the way to the chosen one are shown."""
_BEGINNING = 240
"""Characters of a note in a list."""
_BESIDE = ("relevance", "reranker")
"""Parts of a match that are no amounts of the sum by which notes are ranked."""
_NOT_HERE = "notes are not shown here"


@dataclass(frozen=True, slots=True)
class _Chosen:
    """What a page of notes shows. All of it is in the address."""

    owner: str
    scope: str
    q: str
    """The question."""
    source: str
    """Whose private notes are shown, too."""

    def url(self, site: Site, **more: str | int) -> str:
        """Return the address of the page, with something else in it."""
        given: dict[str, str | int] = {"q": self.q, "scope": self.scope, "source": self.source, **more}
        return site.url("notes", **{"owner": self.owner, **given})


@dataclass(frozen=True, slots=True)
class Seen:
    """The notes of an owner, as they are shown."""

    view: NoteView
    how: str
    """By what they are found, as a sentence."""
    lost: str = ""
    """What a note loses whose text is changed here, as a sentence."""


async def notes_of(inspected: Inspected, owner: str, source: str = "") -> Seen:
    """Return the notes of an owner, as one source sees them if one is named.

    They are searched by words alone, if their vectors are those of another embedder.

    Raises:
        LookupError: the notes of this owner are not shown.
        StoreError: they cannot be read.
    """
    kept = inspected.notes
    if kept is None or inspected.owner not in (None, owner) or kept.owner not in ("", owner):
        raise LookupError(_NOT_HERE)
    made = await Notes(store_of(kept), owner=owner).stored_embedder()
    if made is None:
        return Seen(_seen(kept, owner, source), "Found by words alone, since these notes have no vectors.")
    if made == kept.embedder_name:
        return Seen(_seen(kept, owner, source), "Found by words and by meaning.")
    how = f"Found by words alone: the vectors of these notes were made by {made}, which is not here."
    lost = f"Its vector was made by {made}, which is not here. With another text it has none, and is found by words alone until that embedder makes it again."
    return Seen(_seen(inspected.words or kept, owner, source), how, lost)


def _seen(kept: NoteView, owner: str, source: str) -> NoteView:
    view = seen_of(kept, owner)
    return view.of(source) if source.strip() else view


async def note_owners(inspected: Inspected) -> list[str]:
    """Return whose notes are shown."""
    if inspected.notes is None:
        raise LookupError(_NOT_HERE)
    only = inspected.owner if inspected.owner is not None else inspected.notes.owner or None
    return await inspected.notes.owners() if only is None else [only]


async def notes(inspected: Inspected, request: Request) -> str:
    """Return the page of notes. Its address has `owner`; `scope`; `q`, a question; `source`; `from`, the first row; `note`, the chosen one.

    Raises:
        LookupError: notes are not shown.
        NoteError: the address names no scope, or no source, or no question.
        StoreError: they cannot be read.
    """
    site, query = inspected.site(request), request.query_params
    owners = await note_owners(inspected)
    chosen = _Chosen(
        query.get("owner", owners[0] if owners else ""), query.get("scope", ""), query.get("q", ""), query.get("source", "")
    )  # fmt: skip
    seen = await notes_of(inspected, chosen.owner, chosen.source)
    view, how = seen.view, seen.how
    tree, first = await view.tree(), number(query.get("from"))
    found, records = list["Match"](), list["Record"]()
    if chosen.q.strip():
        found, how = await _recalled(inspected, view, chosen, how)
    else:
        records = await view.list_records(chosen.scope or None, _LISTED + 1, first)
    record = await view.get(query["note"]) if query.get("note") else None
    if found:
        main: Child = [_matches(site, chosen, found, query.get("note", found[0].record.id)), _legend(found, how)]
    elif records:
        main = [_records(site, chosen, records[:_LISTED], query.get("note", "")), _more(site, chosen, records, first)]
    else:
        main = nothing(_why_none(tree, chosen, how))
    columns: list[Child] = [_tree(site, chosen, tree), tag("div", main)]
    if record is not None:
        columns.append(tag("aside", await note_parts(site, seen, record), id="note", aria_label="The chosen note"))
    return page(
        site, "Notes", _head(site, chosen, owners), tag("div", columns, class_="memory three" if record else "memory"),
        view="notes",
    )  # fmt: skip


async def _recalled(inspected: Inspected, view: NoteView, chosen: _Chosen, how: str) -> tuple[list[Match], str]:
    """Return what a question finds, and by what; without an embedder and a reranker that fail. A model is never asked."""
    asked: dict[str, Any] = {"scope": chosen.scope or None, "limit": _FOUND, "depth": "shallow"}
    try:
        return await view.recall(chosen.q, **asked), how
    except (EmbedderError, RerankerError) as error:
        assert inspected.words is not None
        words = _seen(inspected.words, chosen.owner, chosen.source)
        return await words.recall(chosen.q, **asked), f"Found by words alone, since something failed: {error}"


def _why_none(tree: ScopeTree, chosen: _Chosen, how: str) -> str:
    if not tree.record_count:
        return "There are no notes yet. What agents note, or you remember, is shown here."
    return f"No note fits the question. {how}" if chosen.q.strip() else "No note is in this scope."


def _head(site: Site, chosen: _Chosen, owners: Sequence[str]) -> Html:
    field = tag(
        "input",
        type="search",
        name="q",
        value=chosen.q,
        placeholder="A question, or some words",
        aria_label="Recall notes",
    )
    kept = [
        tag("input", type="hidden", name=name, value=value)
        for name, value in (("owner", chosen.owner), ("scope", chosen.scope))
        if value
    ]
    source = tag("label", "With private notes of ", tag("input", name="source", value=chosen.source))
    more = tag("details", tag("summary", "Private notes"), source, tag("button", "Show"), open=bool(chosen.source))
    search = tag("form", field, kept, more, role="search", action=site.url("notes"), method="get", class_="recall")
    whose = None
    if len(owners) > 1:
        links = [
            tag("a", each or "nobody", href=_owner_url(site, each), aria_current="true" if each == chosen.owner else None)
            for each in owners
        ]  # fmt: skip
        whose = tag(
            "details", tag("summary", f"Notes of {chosen.owner or 'nobody'}"), tag("div", links, class_="choices")
        )
    return tag("div", tag("h1", "Notes"), search, whose, class_="head")


def _owner_url(site: Site, owner: str) -> str:
    return site.url("notes", owner=owner) if owner else f"{site.url('notes')}?owner="


def _tree(site: Site, chosen: _Chosen, tree: ScopeTree) -> Html:
    shown = [
        tag("li", tag(
            "a", tag("span", each.path.rpartition("/")[2] or "/"), tag("span", f"{each.record_count:,}", class_="number"),
            href=chosen.url(site, scope="" if each.path == "/" else each.path), title=each.path,
            aria_current="true" if each.path == (chosen.scope or "/") else None,
        ), class_=f"deep{min(depth, 6)}")
        for each, depth in _opened(tree, chosen.scope or "/")
    ]  # fmt: skip
    return tag("nav", tag("h2", "Scopes"), tag("ul", shown), class_="tree", aria_label="Scopes")


def _opened(tree: ScopeTree, path: str) -> list[tuple[ScopeTree, int]]:
    """Return the scopes that are shown, with their depths: all, or of many those beside the way to the chosen one."""
    every = list(_below(tree, 0))
    if len(every) <= _SCOPES:
        return every

    def is_near(each: ScopeTree) -> bool:
        above = each.path.rpartition("/")[0]
        return f"{path.rstrip('/')}/".startswith(f"{above}/")

    return [pair for pair in every if is_near(pair[0])][:_SCOPES]


def _below(tree: ScopeTree, depth: int) -> Iterator[tuple[ScopeTree, int]]:
    yield tree, depth
    for each in tree.children:
        yield from _below(each, depth + 1)


def _records(site: Site, chosen: _Chosen, records: Sequence[Record], note: str) -> Html:
    rows = [
        tag("tr", tag("td", _line(site, chosen, each)), tag("td", _when(each.at or each.created_at), class_="n"), class_=_row_class(each, note))
        for each in records
    ]  # fmt: skip
    return _table("Notes, the newest first", ("Note", "Said or saved"), rows)


def _matches(site: Site, chosen: _Chosen, found: Sequence[Match], note: str) -> Html:
    scale = max((sum(value for _, value in _parts(each) if value > 0) for each in found), default=0) or 1
    rows = [
        tag(
            "tr", tag("td", f"{each.score:.2f}", class_="score n"),
            tag("td", _line(site, chosen, each.record), _waterfall(each, scale) if each.record.id == note else _bar(each, scale)),
            tag("td", f"{sum(value for _, value in _parts(each)):.2f}", class_="n"), class_=_row_class(each.record, note),
        )
        for each in found
    ]  # fmt: skip
    return _table("What the question finds, the best first", ("Score", "Note", "Sum"), rows)


def _table(caption: str, names: Sequence[str], rows: Sequence[Html]) -> Html:
    head = tag("tr", [tag("th", name, scope="col", class_=None if name == "Note" else "n") for name in names])
    return tag(
        "table",
        tag("caption", caption, class_="unseen"),
        tag("thead", head),
        tag("tbody", rows),
        class_="notes",
    )


def _row_class(record: Record, note: str) -> str | None:
    marks = ["untrusted"] if record.trust == "untrusted" else []
    return " ".join([*marks, *(["chosen"] if record.id == note else [])]) or None


def _line(site: Site, chosen: _Chosen, record: Record) -> list[Child]:
    text = f"{record.content[:_BEGINNING]}…" if len(record.content) > _BEGINNING else record.content
    link = tag("a", text, href=f"{chosen.url(site, note=record.id)}#note", class_="title")
    below: list[Child] = [tag("code", record.scope), _words.trust(record.trust), record.speaker or record.source]
    below.append(tag("span", "private", class_="tag") if record.private else None)
    return [link, tag("div", below, class_="sub")]


def _parts(match: Match) -> list[tuple[str, float]]:
    """Return what made up the rank, the largest part first, and what was taken away last."""
    return sorted(
        ((name, value) for name, value in match.parts.items() if name not in _BESIDE), key=lambda part: -part[1]
    )


def _waterfall(match: Match, scale: float) -> Html:
    parts = _parts(match)
    ends = list(accumulate((value for _, value in parts), initial=0.0))
    rows: list[Child] = []
    for (name, value), begin, end in zip(parts, ends, ends[1:], strict=False):
        bar = _rect(min(begin, end), abs(value), scale, "taken" if value < 0 else "part")
        rows += [
            tag("svg", bar, aria_hidden="true"),
            tag("span", name),
            tag("span", _amount(value), class_="n error" if value < 0 else "n"),
        ]
    return tag("div", rows, class_="waterfall")


def _bar(match: Match, scale: float) -> Html:
    parts = _parts(match)
    added = [value for _, value in parts if value > 0]
    bars = [
        _rect(begin, value, scale, f"part part{min(place, 3)}")
        for place, (begin, value) in enumerate(zip(accumulate(added, initial=0.0), added, strict=False))
    ]
    words: list[Child] = []
    for name, value in parts:
        words += [" · " if words else None, tag("span", f"{name} {_amount(value)}", class_="error" if value < 0 else None)]  # fmt: skip
    return tag("div", tag("svg", bars, aria_hidden="true"), tag("div", words, class_="sub"), class_="summed")


def _rect(begin: float, width: float, scale: float, kind: str) -> Html:
    x, wide = max(begin, 0.0) / scale * 100, max(width / scale * 100, 0.3)
    return tag("rect", x=f"{x:.2f}%", width=f"{wide:.2f}%", y="1", height="6", class_=kind)


def _amount(value: float) -> str:
    return f"+{value:.2f}" if value >= 0 else f"−{-value:.2f}"


def _legend(found: Sequence[Match], how: str) -> Html:
    ranked = (
        "Ranked by the reranker, which read the notes beside the question"
        if any("reranker" in each.parts for each in found)
        else "Ranked by the sum on the right, which compares the notes of one question"
    )
    return nothing(
        f"{ranked}. The score on the left says how well a note fits, and compares between questions, so a lower score may stand above a "
        f"higher one. {how}"
    )


def _more(site: Site, chosen: _Chosen, records: Sequence[Record], first: int) -> Html | None:
    if len(records) <= _LISTED:
        return None
    link = tag("a", "Older", href=chosen.url(site, **{"from": first + _LISTED}), rel="next", class_="button")
    return tag("p", link, class_="more")


async def note_parts(site: Site, seen: Seen, record: Record) -> list[Child]:
    """Return what the pages say of a note: its text, where it is from, and what it was before.

    Raises:
        StoreError: its history cannot be read.
    """
    past = await seen.view.history(record.id)
    private = {"source": record.source} if record.private else {}
    reach = tag("a", reach_label(site), href=site.url("reach", note=record.id, owner=record.owner, **private))
    edit = tag("details", tag("summary", "Edit"), _form(site, seen, record, record.content)) if site.form else None
    return [
        tag("pre", record.content, class_="whole"), tag("div", edit, tag("p", reach), class_="acts"), told(_about(site, record)),
        _history(site, record, past),
    ]  # fmt: skip


def _form(site: Site, seen: Seen, record: Record, text: str) -> Html:
    private = {"source": record.source} if record.private else {}
    hidden: dict[str, str | int] = {"id": record.id, "owner": record.owner, "version": record.version, **private}
    lost = tag("p", seen.lost, class_="why waiting") if seen.lost else None
    return text_form(site, "edit-note", hidden, "The text of the note", text, "Save", lost)


async def edit(inspected: Inspected, request: Request, fields: Mapping[str, str]) -> Response:
    """Change the text of a note, if it is as it was shown; a text that is not saved stays in the form.

    Raises:
        LookupError: there is no such note here.
        StoreError: it could not be saved.
    """
    site, id_, owner = inspected.site(request), fields.get("id", ""), fields.get("owner", "")
    seen = await notes_of(inspected, owner, fields.get("source", ""))
    view = seen.view
    record = await view.get(id_)
    if record is None:
        raise NoteNotFoundError(id_)
    text = text_sent(fields, record.content)
    try:
        await view.update(id_, text, version=number(fields.get("version")))
    except ConflictError:
        record = await view.get(id_) or record
        said = "Somebody changed this note since its page was made, so your text was not saved. The note as it is:"
        again = tag("section", tag("h2", "Your text"), _form(site, seen, record, text))
        body = [tag("p", said, class_="error", role="alert"), tag("pre", record.content, class_="whole"), again]
        return HTMLResponse(page(site, "Not saved", tag("h1", "Not saved"), body, view="notes"), 409)
    except (NoteError, PermissionError) as error:
        body = [tag("p", str(error), class_="error", role="alert"), _form(site, seen, record, text)]
        return HTMLResponse(page(site, "Not saved", tag("h1", "Not saved"), body, view="notes"), 422)
    private = {"source": record.source} if record.private else {}
    return RedirectResponse(note_url(site, id_, owner, **private), 303)


def _about(site: Site, record: Record) -> list[tuple[str, Child]]:
    run = tag("a", tag("code", record.run_id), href=site.url("run", id=record.run_id, owner=record.owner))
    who = ", ".join(filter(None, (record.speaker, record.role)))
    about: Mapping[str, Child] = {
        "scope": tag("code", record.scope),
        "trust": _words.trust(record.trust),
        "source": f"{record.source}{', private' if record.private else ''}",
        "said by": who,
        "said": _when(record.at) if record.at else None,
        "session": f"{record.session}, turn {record.place}" if record.session else None,
        "run": run if record.run_id else None,
        "saved": _when(record.created_at),
        "changed": _when(record.updated_at) if record.version > 1 else "never",
        "version": record.version,
        "importance": f"{record.importance:g}",
        "categories": ", ".join(record.categories),
        "metadata": tag("code", as_json(dict(record.metadata), indent=None)) if record.metadata else None,
        "owner": record.owner,
        "id": tag("code", record.id),
    }
    return [(name, value) for name, value in about.items() if value]


def _history(site: Site, record: Record, past: Sequence[FormerNote]) -> Html | None:
    if not past:
        return None
    rows = [
        tag("tr", tag("td", f"{each.record.version:,}", class_="n"), tag("td", tag("pre", each.record.content), tag("div", [
            each.action, " ", None if each.at is None else _when(each.at),
            [" ", tag("a", "into this note", href=note_url(site, each.into, record.owner))] if each.into else None,
        ], class_="sub")))
        for each in past
    ]  # fmt: skip
    head = tag("tr", tag("th", "Version", scope="col", class_="n"), tag("th", "Before the change", scope="col"))
    table = tag(
        "table",
        tag("caption", "Earlier versions, the last one first", class_="unseen"),
        tag("thead", head),
        tag("tbody", rows),
    )
    return tag("section", tag("h3", "History"), table)


def note_url(site: Site, id_: str, owner: str, view: str = "note", **more: str | int) -> str:
    """Return the address of a note, or of something of it."""
    return site.url(view, id=id_, owner=owner, **more)


def _when(then: datetime) -> Html:
    return _words.moment(round(then.timestamp() * 1000))


async def note(inspected: Inspected, request: Request) -> str:
    """Return the page of a note, which the address names by `id` and `owner`; with `source`, also a private one of this source.

    Raises:
        LookupError: there is no such note here.
        StoreError: it cannot be read.
    """
    site, query = inspected.site(request), request.query_params
    id_, owner = query.get("id", ""), query.get("owner", "")
    seen = await notes_of(inspected, owner, query.get("source", ""))
    record = await seen.view.get(id_)
    if record is None:
        raise NoteNotFoundError(id_)
    crumb = tag("p", tag("a", "Notes", href=_owner_url(site, owner)), f" / {record.scope}", class_="crumb")
    return page(site, "Note", crumb, tag("h1", "Note"), await note_parts(site, seen, record), view="notes")


VIEWS: Views = (("notes", notes), ("note", note))
CHANGES: Changes = (("edit-note", edit),)
