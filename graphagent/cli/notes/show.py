"""`graphagent notes`: what is only looked at."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rich.text import Text

from graphagent.cli import _output
from graphagent.cli._phrases import counted, others, whose
from graphagent.cli.notes._target import (
    Place,
    ids_of,
    made_by,
    narrowed,
    one,
    opened,
    owners,
    plain,
    time_of,
    with_notes,
    with_store,
)

if TYPE_CHECKING:
    from graphagent.memory import Match, NoteView, Record, ScopeTree
    from graphagent.protocols import Store

_ROOMY = 96
"""From how many columns on a list shows more."""
_SCOPE, _SCOPE_OF_MORE = 20, 16
"""Columns that a scope may have on a terminal, and in a list that shows more each of scope, categories and source."""
_BEGINNING = 240
"""How much of a note that was found is shown."""


def show_found(
    place: Place, query: str, scope: str | None, categories: Sequence[str] | None, limit: int, *, detailed: bool, as_json: bool
) -> None:  # fmt: skip
    """Show what fits a question."""

    async def find(notes: NoteView) -> list[Match]:
        return await narrowed(notes, scope, categories).recall(query, limit=limit)

    found = with_notes(place, find, vectors=True)
    if as_json:
        print(_output.json_text([_match(match) for match in found]))
        return
    if not found:
        _output.aside(f"No note{whose(place.owner)} fits.{_others(place)}")
        if _is_without_vectors(place):
            _output.aside(
                "An embedder also finds notes that say it in other words: graphagent notes reembed --embedder static"
            )
        return
    if sys.stdout.isatty():
        rows = [_row_shown(match, detailed=detailed) for match in found]
    else:
        rows = [_row_piped(match, detailed=detailed) for match in found]
    ids = ids_of([match.record for match in found])
    heads = ["score", "note", "scope", "when"]
    if not sys.stdout.isatty():
        heads += ["source", "reasons", *(["parts"] if detailed else [])]
    _output.table([*heads, "id"], [[*row, ids[match.record.id]] for row, match in zip(rows, found, strict=True)])
    if gaps := [gap for match in found for gap in match.gaps]:
        _output.aside(f"Not found: {'; '.join(gaps)}.")


def _row_shown(match: Match, *, detailed: bool) -> list[str]:
    record = match.record
    text = record.content if detailed else _output.shortened(record.content, _BEGINNING)
    why = _parts(match, " · ") if detailed else ", ".join(match.reasons)
    said = f"{record.speaker}: {text}" if record.speaker else text
    return [
        f"{match.score:.2f}",
        f"{said}\n→ {why}" if why else said,
        _output.ending(_output.shown(record.scope), _SCOPE),
        _day(_when(record))[: len("2026-01-31")],
    ]


def _row_piped(match: Match, *, detailed: bool) -> list[str]:
    record = match.record
    row = [
        f"{match.score:.4f}",
        record.content,
        record.scope,
        _when(record).isoformat(),
        record.source,
    ]
    return [*row, ",".join(match.reasons), *([_parts(match, ",")] if detailed else [])]


def _parts(match: Match, between: str) -> str:
    return between.join(f"{name} {value:.2f}" for name, value in match.parts.items())


@dataclass(frozen=True, slots=True)
class Listed:
    """Which notes are listed: of those that fit all of it, the newest."""

    scope: str | None
    categories: tuple[str, ...]
    since: str | None
    until: str | None
    limit: int


def show_list(place: Place, listed: Listed, *, as_json: bool) -> None:
    """Show the newest notes."""
    since, until = time_of(listed.since, "--since"), time_of(listed.until, "--until", end=True)

    async def read(notes: NoteView) -> list[Record]:
        view = narrowed(notes, listed.scope, listed.categories)
        return await view.list_records(source=place.source, since=since, until=until, limit=listed.limit + 1)

    found = with_notes(place, read)
    records = found[: listed.limit]
    if as_json:
        print(_output.json_text([plain(record) for record in records]))
        return
    if not records:
        chosen = listed.categories or place.source or since or until
        none = f"No note{whose(place.owner)} fits." if chosen else f"There are no notes{whose(place.owner)} here."
        _output.aside(f"{none}{_others(place)}")
        return
    ids = ids_of(records)
    if sys.stdout.isatty():
        roomy = _output.screen().width >= _ROOMY
        heads = ("when", "note", "scope", *(("categories", "source") if roomy else ()), "id")
        _output.table(heads, [_line(record, ids[record.id], roomy=roomy) for record in records], fold=False)
    else:
        _output.table(("when", "note", "scope", "categories", "source", "id"), [
            (_when(record).isoformat(), record.content, record.scope, ", ".join(record.categories), record.source, record.id)
            for record in records
        ])  # fmt: skip
    if len(found) > listed.limit:
        _output.aside(f"There are more; these are the newest {listed.limit}. See --limit.")


def _line(record: Record, id_: str, *, roomy: bool) -> list[str]:
    when = _day(_when(record))[: len("2026-01-31")]
    text = _output.shortened(record.content, _BEGINNING)
    scope = _output.ending(_output.shown(record.scope), _SCOPE_OF_MORE if roomy else _SCOPE)
    if not roomy:
        return [when, text, scope, id_]
    categories = _output.beginning(_output.shown(", ".join(record.categories)), _SCOPE_OF_MORE)
    return [when, text, scope, categories, _output.ending(_output.shown(record.source), _SCOPE_OF_MORE), id_]


def show_tree(place: Place, scope: str | None, depth: int | None, *, as_json: bool) -> None:
    """Show the scopes."""

    async def read(notes: NoteView) -> ScopeTree:
        return await notes.tree(scope, max_depth=depth)

    tree = with_notes(place, read)
    if as_json:
        print(_output.json_text(_branch(tree)))
        return
    print(_output.for_output("\n".join(_lines(tree))))
    if not tree.record_count and (elsewhere := _others(place)):
        _output.aside(elsewhere.strip())


def show_note(place: Place, text: str, *, as_json: bool) -> None:
    """Show all of a note."""

    async def read(notes: NoteView) -> tuple[Record, list[tuple[Record, str]]]:
        record = await one(notes, text)
        return record, await notes.history(record.id)

    record, past = with_notes(place, read)
    if as_json:
        history = [{"action": did, "record": plain(before)} for before, did in past]
        print(_output.json_text({**plain(record), "history": history}))
        return
    console = _output.screen()
    for name, value in _told(record).items():
        if value:
            line = Text(f"{name:<11} ", style="dim").append(_output.shown(value), style="not dim")
            console.print(line, soft_wrap=not console.is_terminal)
    console.print()
    console.print(Text(_output.for_output(record.content)), soft_wrap=not console.is_terminal)
    if past:
        console.print()
        _output.table(("version", "before", "done", "changed"), [
            (str(before.version), _output.shortened(before.content, _BEGINNING), did, _day(after.updated_at))
            for (before, did), after in zip(past, [record, *(each for each, _ in past)], strict=False)
        ])  # fmt: skip


def _told(record: Record) -> dict[str, str]:
    return {
        "id": record.id,
        "scope": record.scope,
        "categories": ", ".join(record.categories),
        "importance": f"{record.importance:g}",
        "owner": record.owner,
        "source": record.source + (" (private)" if record.private else ""),
        "trust": record.trust,
        "said": " ".join(filter(None, (_day(record.at) if record.at else "", record.speaker, record.role))),
        "session": f"{record.session}, turn {record.place}" if record.session else "",
        "run": record.run_id,
        "kept": _day(record.created_at),
        "changed": f"{_day(record.updated_at)}, version {record.version}" if record.version > 1 else "",
        "metadata": " ".join(_output.json_text(dict(record.metadata)).split()) if record.metadata else "",
    }


def _match(match: Match) -> dict[str, Any]:
    return {
        "score": match.score, "reasons": list(match.reasons), "parts": dict(match.parts), "gaps": list(match.gaps),
        "record": plain(match.record),
    }  # fmt: skip


def _branch(tree: ScopeTree) -> dict[str, Any]:
    return {"path": tree.path, "record_count": tree.record_count, "children": [_branch(each) for each in tree.children]}


def _lines(tree: ScopeTree, indent: str = "") -> list[str]:
    below = [line for each in tree.children for line in _lines(each, f"{indent}  ")]
    return [f"{indent}{tree.path} ({counted(tree.record_count, 'note')})", *below]


def _others(place: Place) -> str:
    """Say who has notes, if the owner who was asked for has none."""

    async def read(store: Store) -> str:
        async with opened(store, place, place.owner or "") as notes:
            there = (await notes.info()).record_count
        return "" if there else others(await owners(store), place.owner, "notes")

    return with_store(place, read)


def _is_without_vectors(place: Place) -> bool:
    """Tell whether there are notes, and they can be found by their words alone."""

    async def read(store: Store) -> bool:
        owner = place.owner or ""
        async with opened(store, place, owner) as notes:
            return bool((await notes.info()).record_count) and await made_by(store, owner) is None

    return with_store(place, read)


def _when(record: Record) -> datetime:
    """Give when a note was said or, if that is unknown, kept."""
    return record.at or record.created_at


def _day(time: datetime) -> str:
    return _output.moment(int(time.timestamp() * 1000))
