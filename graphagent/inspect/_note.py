"""The page of a note: its text, its details and its history, and the form in which its text is edited."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.responses import HTMLResponse, RedirectResponse

from graphagent._html import Child, Html, tag
from graphagent.errors import ConflictError, NoteError, NoteNotFoundError
from graphagent.inspect import _words
from graphagent.inspect._forms import refusal, text_form, text_sent
from graphagent.inspect._inspected import number
from graphagent.inspect._layout import Site, column, crumb, page, reach_label, run_link, table, told, with_empty
from graphagent.inspect._values import as_json
from graphagent.memory import Notes
from graphagent.memory.notes._owner import seen_of, store_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from graphagent.inspect._inspected import Changes, Inspected, Views
    from graphagent.memory import FormerNote, NoteView, Record

_NOT_HERE = "notes are not shown here"


@dataclass(frozen=True, slots=True)
class Seen:
    """The notes of an owner, as they are shown."""

    view: NoteView
    words: NoteView
    """The same notes, found by words alone."""
    how: str
    """How the notes are found, as a sentence."""
    lost: str = ""
    """The consequence of a changed text, as a sentence."""


async def notes_of(inspected: Inspected, owner: str, source: str = "") -> Seen:
    """Return the notes of an owner, as one source sees them if one is named.

    They are found by words alone if another embedder made their vectors.

    Raises:
        LookupError: the notes of this owner are not shown.
        StoreError: they cannot be read.
    """
    kept, by_words = inspected.notes, inspected.words
    if kept is None or by_words is None or inspected.owner not in (None, owner) or kept.owner not in ("", owner):
        raise LookupError(_NOT_HERE)
    made = await Notes(store_of(kept), owner=owner).stored_embedder()
    view, words = _seen(kept, owner, source), _seen(by_words, owner, source)
    if made is None:
        return Seen(view, words, "Found by words alone, since these notes have no vectors.")
    if made == kept.embedder_name:
        return Seen(view, words, "Found by words and by meaning.")
    how = f"Found by words alone: the vectors of these notes were made by {made}, which is not here."
    lost = f"Its vector was made by {made}, which is not here. With another text it has none, and is found by words alone until that embedder makes it again."
    return Seen(words, words, how, lost)


def _seen(kept: NoteView, owner: str, source: str) -> NoteView:
    view = seen_of(kept, owner)
    return view.of(source) if source.strip() else view


async def note_owners(inspected: Inspected) -> list[str]:
    """Return the owners whose notes are shown.

    Raises:
        LookupError: notes are not shown.
        StoreError: they cannot be read.
    """
    if inspected.notes is None:
        raise LookupError(_NOT_HERE)
    only = inspected.owner if inspected.owner is not None else inspected.notes.owner or None
    return await inspected.notes.owners() if only is None else [only]


async def note_parts(site: Site, seen: Seen, record: Record) -> list[Child]:
    """Return the contents of the page of a note: its text, the forms, its details and its history.

    Raises:
        StoreError: its history cannot be read.
    """
    past = await seen.view.history(record.id)
    reach = tag("a", reach_label(site), href=site.url("reach", note=record.id, **_whose(record)))
    edit = tag("details", tag("summary", "Edit"), _form(site, seen, record, record.content)) if site.form else None
    return [
        tag("pre", record.content, class_="whole"), tag("div", edit, tag("p", reach), class_="acts"), told(_about(site, record)),
        _history(site, record, past),
    ]  # fmt: skip


def _whose(record: Record) -> dict[str, str]:
    """Return whose a note is, for addresses and forms: its owner, and its source if it is private."""
    return {"owner": record.owner, **({"source": record.source} if record.private else {})}


def _form(site: Site, seen: Seen, record: Record, text: str) -> Html:
    fields: dict[str, str | int] = {"id": record.id, "version": record.version, **_whose(record)}
    lost = tag("p", seen.lost, class_="why waiting") if seen.lost else None
    return text_form(site, "edit-note", fields, "The text of the note", text, "Save", lost)


async def edit(inspected: Inspected, request: Request, fields: Mapping[str, str]) -> Response:
    """Change the text of a note if it has the version that was shown. A text that is not saved stays in the form.

    Raises:
        LookupError: the note does not exist, or is not shown.
        StoreError: it cannot be read or written.
    """
    site, (seen, record) = inspected.site(request), await _named(inspected, fields)
    text = text_sent(fields, record.content)
    try:
        await seen.view.update(record.id, text, version=number(fields.get("version")))
    except ConflictError:
        record = await seen.view.get(record.id) or record
        said = "Somebody changed this note since its page was made, so your text was not saved. The note as it is:"
        again = tag("section", tag("h2", "Your text"), _form(site, seen, record, text))
        body = [refusal(said), tag("pre", record.content, class_="whole"), again]
        return _not_saved(site, body, 409)
    except (NoteError, PermissionError) as error:
        body = [refusal(str(error)), _form(site, seen, record, text)]
        return _not_saved(site, body, 422)
    return RedirectResponse(site.url("note", id=record.id, **_whose(record)), 303)


async def _named(inspected: Inspected, given: Mapping[str, str]) -> tuple[Seen, Record]:
    """Return the note that an address or a form names, with the notes of its owner.

    Raises:
        LookupError: the note does not exist, or is not shown.
    """
    id_ = given.get("id", "")
    seen = await notes_of(inspected, given.get("owner", ""), given.get("source", ""))
    record = await seen.view.get(id_)
    if record is None:
        raise NoteNotFoundError(id_)
    return seen, record


def _not_saved(site: Site, body: Sequence[Child], status: int) -> Response:
    return HTMLResponse(page(site, "Not saved", tag("h1", "Not saved"), body, view="notes"), status)


def _about(site: Site, record: Record) -> list[tuple[str, Child]]:
    who = ", ".join(filter(None, (record.speaker, record.role)))
    about: Mapping[str, Child] = {
        "scope": tag("code", record.scope),
        "trust": _words.trust(record.trust),
        "source": f"{record.source}{', private' if record.private else ''}",
        "said by": who,
        "said": _words.when(record.at) if record.at else None,
        "session": f"{record.session}, turn {record.place}" if record.session else None,
        "run": run_link(site, record.run_id, record.owner) if record.run_id else None,
        "saved": _words.when(record.created_at),
        "changed": _words.when(record.updated_at) if record.version > 1 else "never",
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
            each.action, " ", None if each.at is None else _words.when(each.at),
            [" ", tag("a", "into this note", href=note_url(site, each.into, record.owner))] if each.into else None,
        ], class_="sub")))
        for each in past
    ]  # fmt: skip
    columns = (column("Version", class_="n"), "Before the change")
    return tag("section", tag("h3", "History"), table("Earlier versions, the last one first", columns, rows))


def note_url(site: Site, id_: str, owner: str) -> str:
    """Return the address of a note."""
    return site.url("note", id=id_, owner=owner)


def notes_url(site: Site, owner: str) -> str:
    """Return the address of the notes of an owner."""
    return site.url("notes", owner=owner) if owner else with_empty(site.url("notes"), "owner")


async def note(inspected: Inspected, request: Request) -> str:
    """Return the page of a note, which the address names by `id` and `owner`, and a private one also by `source`.

    Raises:
        LookupError: the note does not exist, or is not shown.
        StoreError: it cannot be read.
    """
    site, (seen, record) = inspected.site(request), await _named(inspected, request.query_params)
    way = crumb(tag("a", "Notes", href=notes_url(site, record.owner)), record.scope)
    return page(site, "Note", way, tag("h1", "Note"), await note_parts(site, seen, record), view="notes")


VIEWS: Views = (("note", note),)
CHANGES: Changes = (("edit-note", edit),)
