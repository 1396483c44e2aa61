"""`graphagent notes`: the commands that only read."""

from __future__ import annotations

import sys
from collections.abc import Collection
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from graphagent._article import counted
from graphagent.cli import _output
from graphagent.cli._options import Json, argument, flag, option, time_of
from graphagent.cli._phrases import others, whose
from graphagent.cli.notes._target import (
    Category,
    EmbedderName,
    NotesTarget,
    OfSource,
    RerankerName,
    SeenBy,
    Since,
    Under,
    Until,
    Which,
    narrowed,
    note_named,
    open_notes,
    owners_of,
    plain,
)

if TYPE_CHECKING:
    from graphagent.memory import FormerNote, Match, NoteView, Record, ScopeTree
    from graphagent.protocols import Store

_ROOMY = 96
"""The width of a terminal, in columns, from which a list shows more."""
_SCOPE, _SCOPE_OF_MORE = 20, 16
"""The width of the column of scopes on a terminal; and in a list that shows more, of scopes, categories and sources each."""
_BEGINNING = 240
"""The number of characters of a note in a list."""
_SHORT = 8
"""The smallest number of characters of an id in a list."""
_DAY = len("2026-01-31")


def recall(
    query: Annotated[list[str], argument("QUERY…", "A question, or some words.")],
    target: NotesTarget,
    source: SeenBy = None,
    scope: Under = None,
    category: Category = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="At most this many, the best.")] = 10,
    detailed: Annotated[
        bool, flag("--detailed", text="Show each note in full, and the amount that each reason added to its rank.")
    ] = False,
    embedder: EmbedderName = None,
    reranker: RerankerName = None,
    as_json: Json = False,
) -> None:
    """Find the notes that fit a question, best first. Nothing is written."""
    first, last = time_of(since, "--since"), time_of(until, "--until", end=True)
    found = target.use_notes(
        lambda notes: narrowed(notes, scope, category).recall(" ".join(query), limit=limit, since=first, until=last),
        source=source,
        embedder=embedder,
        reranker=reranker,
        vectors=True,
    )
    if as_json:
        data = [
            {
                "score": match.score, "reasons": list(match.reasons), "parts": dict(match.parts), "gaps": list(match.gaps),
                "record": plain(match.record),
            }
            for match in found
        ]  # fmt: skip
        print(_output.json_text(data))
        return
    if not found:
        _output.aside(f"No note{whose(target.owner)} fits.{_other_owners(target)}")
        if _has_no_vectors(target):
            _output.aside(
                "An embedder also finds notes that say it in other words: graphagent notes reembed --embedder static"
            )
        return
    on_terminal = sys.stdout.isatty()
    rows = [(_row_on_terminal if on_terminal else _row_in_pipe)(match, detailed=detailed) for match in found]
    ids = _ids_shown([match.record for match in found])
    heads = ["score", "note", "scope", "when"]
    if not on_terminal:
        heads += ["source", "reasons", *(["parts"] if detailed else [])]
    _output.table(
        [*heads, "id"],
        [[*row, ids[match.record.id]] for row, match in zip(rows, found, strict=True)],
        essential=("note", "id"),
    )
    if gaps := [gap for match in found for gap in match.gaps]:
        _output.aside(f"Not found: {'; '.join(gaps)}.")


def _row_on_terminal(match: Match, *, detailed: bool) -> list[str]:
    record = match.record
    text = record.content if detailed else _output.shortened(record.content, _BEGINNING)
    why = _parts(match, " · ") if detailed else ", ".join(match.reasons)
    said = f"{record.speaker}: {text}" if record.speaker else text
    return [
        f"{match.score:.2f}",
        f"{said}\n→ {why}" if why else said,
        _output.ending(_output.shown(record.scope), _SCOPE),
        _moment(_when(record))[:_DAY],
    ]


def _row_in_pipe(match: Match, *, detailed: bool) -> list[str]:
    record = match.record
    row = [f"{match.score:.4f}", record.content, record.scope, _when(record).isoformat(), record.source]
    return [*row, ",".join(match.reasons), *([_parts(match, ",")] if detailed else [])]


def _parts(match: Match, between: str) -> str:
    return between.join(f"{name} {value:.2f}" for name, value in match.parts.items())


def list_notes(
    target: NotesTarget,
    source: OfSource = None,
    scope: Under = None,
    category: Category = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="At most this many, the newest.")] = 50,
    as_json: Json = False,
) -> None:
    """List the notes, newest first."""
    first, last = time_of(since, "--since"), time_of(until, "--until", end=True)
    found = target.use_notes(
        lambda notes: narrowed(notes, scope, category).list_records(
            source=source, since=first, until=last, limit=limit + 1
        ),
        source=source,
    )
    records = found[:limit]
    if as_json:
        print(_output.json_text([plain(record) for record in records]))
        return
    if not records:
        chosen = category or source or since or until
        none = f"No note{whose(target.owner)} fits." if chosen else f"There are no notes{whose(target.owner)} here."
        _output.aside(f"{none}{_other_owners(target)}")
        return
    ids = _ids_shown(records)
    if sys.stdout.isatty():
        roomy = _output.screen().width >= _ROOMY
        heads = ("when", "note", "scope", *(("categories", "source") if roomy else ()), "id")
        _output.table(
            heads,
            [_line(record, ids[record.id], roomy=roomy) for record in records],
            fold=False,
            essential=("note", "id"),
        )
    else:
        _output.table(("when", "note", "scope", "categories", "source", "id"), [
            (_when(record).isoformat(), record.content, record.scope, ", ".join(record.categories), record.source, record.id)
            for record in records
        ])  # fmt: skip
    if len(found) > limit:
        _output.aside(f"There are more; these are the newest {limit}. See --limit.")


def _line(record: Record, id_: str, *, roomy: bool) -> list[str]:
    when = _moment(_when(record))[:_DAY]
    text = _output.shortened(record.content, _BEGINNING)
    scope = _output.ending(_output.shown(record.scope), _SCOPE_OF_MORE if roomy else _SCOPE)
    if not roomy:
        return [when, text, scope, id_]
    categories = _output.beginning(_output.shown(", ".join(record.categories)), _SCOPE_OF_MORE)
    return [when, text, scope, categories, _output.ending(_output.shown(record.source), _SCOPE_OF_MORE), id_]


def tree(
    target: NotesTarget,
    scope: Annotated[str | None, argument("PATH", "The scope to begin with. Default: /.")] = None,
    source: SeenBy = None,
    depth: Annotated[int | None, option("--depth", "N", "How many levels. Default: all.", min=0)] = None,
    as_json: Json = False,
) -> None:
    """Show the scopes, with the number of notes in and below each."""
    root = target.use_notes(lambda notes: notes.tree(scope, max_depth=depth), source=source)
    if as_json:
        print(_output.json_text(_branch(root)))
        return
    print(_output.for_output("\n".join(_tree_lines(root))))
    if not root.record_count and (elsewhere := _other_owners(target)):
        _output.aside(elsewhere.strip())


def _branch(tree: ScopeTree) -> dict[str, Any]:
    return {"path": tree.path, "record_count": tree.record_count, "children": [_branch(each) for each in tree.children]}


def _tree_lines(tree: ScopeTree, indent: str = "") -> list[str]:
    below = [line for each in tree.children for line in _tree_lines(each, f"{indent}  ")]
    return [f"{indent}{tree.path} ({counted(tree.record_count, 'note')})", *below]


def show(note: Which, target: NotesTarget, source: SeenBy = None, as_json: Json = False) -> None:
    """Show a whole note: its text, its metadata, and its earlier versions."""

    async def read(notes: NoteView) -> tuple[Record, list[FormerNote]]:
        record = await note_named(notes, note)
        return record, await notes.history(record.id)

    record, past = target.use_notes(read, source=source)
    if as_json:
        history = [
            {"action": each.action, "at": each.at and each.at.isoformat(), "record": plain(each.record)}
            for each in past
        ]
        print(_output.json_text({**plain(record), "history": history}))
        return
    console = _output.screen()
    for name, value in details(record).items():
        if value:
            line = Text(f"{name:<11} ", style="dim").append(_output.shown(value), style="not dim")
            console.print(line, soft_wrap=not console.is_terminal)
    console.print()
    console.print(Text(_output.for_output(record.content)), soft_wrap=not console.is_terminal)
    if past:
        console.print()
        _output.table(("version", "before", "action", "changed"), [
            (str(before.version), _output.shortened(before.content, _BEGINNING), did, _moment(at or after.updated_at))
            for (before, did, at, _), after in zip(past, [record, *(each.record for each in past)], strict=False)
        ], essential=("version", "before"))  # fmt: skip


def details(record: Record) -> dict[str, str]:
    """Return the details of a note beside its text, by the names that people are shown; missing ones are empty."""
    return {
        "id": record.id,
        "scope": record.scope,
        "categories": ", ".join(record.categories),
        "importance": f"{record.importance:g}",
        "owner": record.owner,
        "source": record.source + (" (private)" if record.private else ""),
        "trust": record.trust,
        "said": " ".join(filter(None, (_moment(record.at) if record.at else "", record.speaker, record.role))),
        "session": f"{record.session}, turn {record.place}" if record.session else "",
        "run": record.run_id,
        "saved": _moment(record.created_at),
        "changed": f"{_moment(record.updated_at)}, version {record.version}" if record.version > 1 else "",
        "metadata": " ".join(_output.json_text(dict(record.metadata)).split()) if record.metadata else "",
    }


def _other_owners(target: NotesTarget) -> str:
    """Return a sentence that names the owners with notes, if the requested owner has none."""

    async def read(store: Store) -> str:
        async with open_notes(store, target.owner) as notes:
            count = (await notes.info()).record_count
            return "" if count else others(await owners_of(store), target.owner, "notes")

    return target.use(read)


def _has_no_vectors(target: NotesTarget) -> bool:
    """Return whether notes exist but can be found only by their words."""

    async def read(store: Store) -> bool:
        async with open_notes(store, target.owner) as notes:
            return bool((await notes.info()).record_count) and await notes.stored_embedder() is None

    return target.use(read)


def _ids_shown(records: Collection[Record]) -> dict[str, str]:
    """Return the ids as a list shows them: complete in a pipe; on a terminal, the shortest ends that are distinct."""
    ids = [record.id for record in records]
    if not sys.stdout.isatty():
        return {id_: id_ for id_ in ids}
    length = _SHORT
    while len({id_[-length:] for id_ in ids}) < len(set(ids)):
        length += 1
    return {id_: id_[-length:] for id_ in ids}


def _when(record: Record) -> datetime:
    """Return when a note was said or, if that is unknown, saved."""
    return record.at or record.created_at


def _moment(time: datetime) -> str:
    return _output.moment(int(time.timestamp() * 1000))
