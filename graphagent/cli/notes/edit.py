"""`graphagent notes`: the commands that save, change and forget notes."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graphagent import _clock
from graphagent._article import counted
from graphagent.cli import _output
from graphagent.cli._options import Json, Yes, age_of, argument, flag, option, time_of
from graphagent.cli._phrases import whose
from graphagent.cli._prompts import confirm
from graphagent.cli.notes._target import (
    Category,
    EmbedderName,
    Importance,
    Labels,
    NotesTarget,
    OfSource,
    SeenBy,
    Under,
    Which,
    metadata_of,
    narrowed,
    note_named,
    plain,
)
from graphagent.errors import ConflictError, GraphAgentError, StoreError

if TYPE_CHECKING:
    from graphagent.memory import NoteView, Record
    from graphagent.store import Receipt


def remember(
    *,
    text: Annotated[list[str] | None, argument("TEXT…", "The note. Default: standard input.")] = None,
    target: NotesTarget,
    source: Annotated[str | None, option("--source", "NAME", "Who says it, or where it is from.")] = None,
    scope: Annotated[str | None, option("--scope", "PATH", "The scope to save it in. Default: /.")] = None,
    category: Labels = None,
    importance: Importance = None,
    at: Annotated[
        str | None, option("--at", "TIME", "When it was said: 2026-01-31, 2026-01-31T09:30, or 2h for two hours ago.")
    ] = None,
    metadata: Annotated[
        list[str] | None,
        option("--metadata", "NAME=VALUE", "More about it; the value is JSON, or else text. Can be repeated."),
    ] = None,
    private: Annotated[bool, flag("--private", text="Only its source can see it.")] = False,
    each: Annotated[
        bool, flag("--each", text="Save each argument, or each line of standard input, as a note.")
    ] = False,
    embedder: EmbedderName = None,
    as_json: Json = False,
) -> None:
    """Save one text or several. They are on disk when the command ends."""
    if private and not source:
        raise typer.BadParameter("a private note is visible only to its source; name the source with --source NAME")
    said, more = time_of(at, "--at"), metadata_of(metadata)
    words = text or []
    texts = list(words) if each else [" ".join(words)] if words else []
    if texts in ([], ["-"]):
        given = sys.stdin.read()
        texts = [line for line in given.splitlines() if line.strip()] if each else [given]
    if not any(one.strip() for one in texts):
        raise typer.BadParameter("there is nothing to save; pass the text as an argument or on standard input")
    records = target.use_notes(
        lambda notes: notes.remember_many(
            texts,
            scope=scope,
            categories=category,
            importance=importance,
            private=private,
            at=said,
            metadata=more,
        ),
        source=source,
        embedder=embedder,
        new=True,
        vectors=True,
    )
    if as_json:
        print(_output.json_text([plain(record) for record in records]))
        return
    what = records[0].id if len(records) == 1 else f"{counted(len({record.id for record in records}), 'note')}."
    print(_output.for_output(f"Saved in {records[0].scope}: {what}"))


def edit(
    note: Which,
    target: NotesTarget,
    source: SeenBy = None,
    content: Annotated[str | None, option("--content", "TEXT", "The new text; - is standard input.")] = None,
    scope: Annotated[str | None, option("--scope", "PATH", "The new scope.")] = None,
    category: Labels = None,
    importance: Importance = None,
    embedder: EmbedderName = None,
    as_json: Json = False,
) -> None:
    """Change a note. Without an option for a change, $VISUAL or $EDITOR opens with its text. The old version stays in its history."""
    if content is None and scope is None and category is None and importance is None:
        record = _edit_text(target, note, source, embedder)
    else:
        text = sys.stdin.read() if content == "-" else content

        async def change(notes: NoteView) -> Record:
            id_ = await notes.resolve(note)
            return await notes.update(id_, content=text, scope=scope, categories=category, importance=importance)

        record = target.use_notes(change, source=source, embedder=embedder, vectors=True)
    if record is None:
        _output.aside("Nothing was changed.")
    elif as_json:
        print(_output.json_text(plain(record)))
    else:
        print(_output.for_output(f"{record.id}, version {record.version}: {_output.shortened(record.content)}"))


def _edit_text(target: NotesTarget, note: str, source: str | None, embedder: str | None) -> Record | None:
    """Change the text of a note in an editor. Returns None if it was not changed. A text that cannot be saved stays in its file."""
    before = target.use_notes(lambda notes: note_named(notes, note), source=source)
    descriptor, name = tempfile.mkstemp(prefix="graphagent-note-", suffix=".txt")
    path = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(before.content)
        _run_editor(path)
        written = path.read_text("utf-8").strip()
    except BaseException:
        path.unlink()
        raise
    if written == before.content.strip():
        path.unlink()
        return None

    async def change(notes: NoteView) -> Record:
        try:
            return await notes.update(before.id, content=written, version=before.version)
        except ConflictError:
            raise StoreError(f"note {before.id!r} was changed meanwhile, so this was not saved") from None

    try:
        record = target.use_notes(change, source=source, embedder=embedder, vectors=True)
    except GraphAgentError as error:
        error.add_note(f"Your text is in {path}.")
        raise
    path.unlink()
    return record


def _run_editor(path: Path) -> None:
    command = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not command:
        raise typer.BadParameter("no editor is configured; set EDITOR, or pass the new text: --content TEXT")
    try:
        ended = subprocess.run([*shlex.split(command), str(path)], check=False)  # noqa: S603  the person's own editor
    except (OSError, ValueError) as error:
        raise StoreError(f"the editor {command!r} cannot be started ({error}), so nothing was changed") from None
    if ended.returncode:
        raise StoreError(f"the editor {command!r} ended with {ended.returncode}, so nothing was changed")


def forget(
    *,
    which: Annotated[list[str] | None, argument("NOTE…", "Ids, or their beginnings or ends.")] = None,
    target: NotesTarget,
    source: OfSource = None,
    scope: Under = None,
    category: Category = None,
    older_than: Annotated[
        str | None, option("--older-than", "TIME", "Only notes saved longer ago than this, such as 30d.")
    ] = None,
    run: Annotated[str | None, option("--run", "ID", "Only notes that this run saved.")] = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Erase the notes that meet all conditions from the disk: text, words, vectors and history."""
    conditions = (*(which or ()), *(category or ()), scope, older_than, source, run)
    # A blank value may be an unset variable of a script, and must not select everything.
    if all(each is None for each in conditions) or any(each is not None and not each.strip() for each in conditions):
        raise typer.BadParameter(
            "say what to forget: notes, --scope, --category, --older-than, --source or --run; `graphagent notes reset` "
            "removes everything"
        )
    age = age_of(older_than)

    async def choose(notes: NoteView) -> list[Record]:
        before = datetime.fromtimestamp(_clock.now() / 1000, UTC) - age if age is not None else None
        view = narrowed(notes, scope, category)
        named = {await view.resolve(each) for each in which or ()}
        return [
            record
            for record in await view.list_records(limit=sys.maxsize)
            if (not which or record.id in named)
            and (before is None or record.created_at < before)
            and source in (None, record.source)
            and run in (None, record.run_id)
        ]

    try:
        chosen = target.use_notes(choose, source=source)
    except OverflowError:  # the age is longer than the range of times, so no note is older
        chosen = []
    if not chosen:
        _output.fail(f"no note{whose(target.owner)} fits, so nothing was forgotten")
    if not yes:
        shown = "; ".join(repr(_output.shortened(record.content, 40)) for record in chosen[:3])
        more = "; …" if len(chosen) > 3 else ""
        confirm(f"Forget {counted(len(chosen), 'note')} ({shown}{more}) for good?")
    receipt = target.use_notes(lambda notes: notes.forget(ids=[record.id for record in chosen]), source=source)
    _print_receipt(receipt, as_json=as_json)


def reset(
    *,
    scope: Annotated[str | None, argument("PATH", "The scope, with everything below it. Default: all notes.")] = None,
    target: NotesTarget,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Erase all notes of a scope, or of an owner, including private ones."""
    if scope is not None and not scope.strip():
        raise typer.BadParameter("the scope is blank; name one, or leave it out to remove all notes", param_hint="PATH")

    async def count(notes: NoteView) -> Counter[str]:
        view = notes if scope is None else notes.scope(scope)
        return Counter([data.get("scope", "/") async for data in view.export()])

    scopes = target.use_notes(count)
    if not scopes:
        _output.fail(f"there are no notes{whose(target.owner)} in {scope or '/'}, so nothing was removed")
    if not yes:
        where = ", ".join(_output.shortened(each) for each in sorted(scopes)[:4]) + (" …" if len(scopes) > 4 else "")
        confirm(f"Remove all {counted(scopes.total(), 'note')}{whose(target.owner)} in {where} for good?")
    _print_receipt(target.use_notes(lambda notes: notes.reset(scope)), as_json=as_json)


def _print_receipt(receipt: Receipt, *, as_json: bool) -> None:
    if as_json:
        print(_output.json_text({"notes": receipt.notes, "bytes": receipt.bytes}))
    else:
        print(f"Forgotten: {counted(receipt.notes, 'note')}, {counted(receipt.bytes, 'byte')}.")
