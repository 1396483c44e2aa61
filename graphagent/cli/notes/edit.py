"""`graphagent notes`: what is kept, changed and forgotten."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from graphagent import _clock
from graphagent.cli import _options, _output
from graphagent.cli._phrases import counted, whose
from graphagent.cli._prompts import confirm
from graphagent.cli.notes._target import Place, narrowed, one, plain, with_notes
from graphagent.errors import GraphAgentError, StoreError

if TYPE_CHECKING:
    from graphagent.memory import NoteView, Record
    from graphagent.store import Receipt


@dataclass(frozen=True, slots=True)
class Choice:
    """Which notes are to be forgotten: those that fit all of it."""

    which: tuple[str, ...] = ()
    scope: str | None = None
    categories: tuple[str, ...] = ()
    older_than: str | None = None
    source: str | None = None
    run: str | None = None


def remember(
    place: Place, words: Sequence[str], scope: str | None, categories: list[str] | None, importance: float | None, *,
    private: bool, each: bool, as_json: bool,
) -> None:  # fmt: skip
    """Keep a text, or several."""
    if private and not place.source:
        raise typer.BadParameter("what is private can be seen by its source alone; say who that is: --source NAME")
    texts = list(words) if each else [" ".join(words)] if words else []
    if texts in ([], ["-"]):
        given = sys.stdin.read()
        texts = [line for line in given.splitlines() if line.strip()] if each else [given]

    async def keep(notes: NoteView) -> list[Record]:
        return await notes.remember_many(
            texts, scope=scope, categories=categories, importance=importance, private=private
        )

    if not any(text.strip() for text in texts):
        raise typer.BadParameter("there is nothing to keep; give the text, or write it to standard input")
    records = with_notes(place, keep, new=True, vectors=True)
    if as_json:
        print(_output.json_text([plain(record) for record in records]))
    elif len(records) == 1:
        print(_output.for_output(f"Kept in {records[0].scope}: {records[0].id}"))
    else:
        print(
            _output.for_output(
                f"Kept in {records[0].scope}: {counted(len({record.id for record in records}), 'note')}."
            )
        )


def edit(
    place: Place, text: str, content: str | None, scope: str | None, categories: list[str] | None,
    importance: float | None, *, as_json: bool,
) -> None:  # fmt: skip
    """Change a note, with an editor if no change is named."""
    if content == "-":
        content = sys.stdin.read()
    if content is None and scope is None and categories is None and importance is None:
        _edit_text(place, text, as_json=as_json)
        return

    async def change(notes: NoteView) -> Record:
        record = await one(notes, text)
        return await notes.update(record.id, content=content, scope=scope, categories=categories, importance=importance)

    _say_changed(with_notes(place, change, vectors=True), as_json=as_json)


def _edit_text(place: Place, text: str, *, as_json: bool) -> None:
    """Change the text of a note in an editor. What was written stays in a file if it cannot be saved."""

    async def read(notes: NoteView) -> Record:
        return await one(notes, text)

    before = with_notes(place, read)
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
        _output.aside("Nothing was changed.")
        return

    async def change(notes: NoteView) -> Record:
        now = await one(notes, before.id)
        if now.version != before.version:
            raise StoreError(f"note {before.id!r} was changed meanwhile, so this was not saved")
        return await notes.update(before.id, content=written)

    try:
        record = with_notes(place, change, vectors=True)
    except GraphAgentError as error:
        error.add_note(f"What you wrote is in {path}.")
        raise
    path.unlink()
    _say_changed(record, as_json=as_json)


def _run_editor(path: Path) -> None:
    command = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not command:
        raise typer.BadParameter("there is no editor; set EDITOR, or say what to change: --content TEXT")
    try:
        ended = subprocess.run([*shlex.split(command), str(path)], check=False)  # noqa: S603 (the editor that the person chose)
    except (OSError, ValueError) as error:
        raise StoreError(f"the editor {command!r} cannot be started ({error}), so nothing was changed") from None
    if ended.returncode:
        raise StoreError(f"the editor {command!r} ended with {ended.returncode}, so nothing was changed")


def _say_changed(record: Record, *, as_json: bool) -> None:
    if as_json:
        print(_output.json_text(plain(record)))
    else:
        print(_output.for_output(f"{record.id}, version {record.version}: {_output.shortened(record.content)}"))


def forget(place: Place, choice: Choice, *, yes: bool, as_json: bool) -> None:
    """Remove notes for good, once a person has agreed."""
    conditions = (*choice.which, *choice.categories, choice.scope, choice.older_than, choice.source, choice.run)
    if choice == Choice() or any(each is not None and not each.strip() for each in conditions):
        raise typer.BadParameter(
            "say what to forget: notes, --scope, --category, --older-than, --source or --run; `graphagent notes reset` "
            "removes everything"
        )
    age = _options.age_of(choice.older_than)

    async def choose(notes: NoteView) -> list[Record]:
        before = datetime.fromtimestamp(_clock.now() / 1000, UTC) - age if age is not None else None
        view = narrowed(notes, choice.scope, choice.categories)
        named = {(await one(view, each)).id for each in choice.which}
        return [
            record
            for record in await view.list_records(limit=sys.maxsize)
            if (not choice.which or record.id in named)
            and (before is None or record.created_at < before)
            and choice.source in (None, record.source)
            and choice.run in (None, record.run_id)
        ]

    try:
        chosen = with_notes(place, choose)
    except OverflowError:
        chosen = []
    if not chosen:
        _output.fail(f"no note{whose(place.owner)} fits, so nothing was forgotten")
    if not yes:
        _agree("Forget", chosen)

    async def remove(notes: NoteView) -> Receipt:
        return await notes.forget(ids=[record.id for record in chosen])

    _say_forgotten(with_notes(place, remove), as_json=as_json)


def reset(place: Place, scope: str | None, *, yes: bool, as_json: bool) -> None:
    """Remove all notes of a scope for good, once a person has agreed."""
    if scope is not None and not scope.strip():
        raise typer.BadParameter("it is blank; say which scope, or leave it out to remove all notes", param_hint="PATH")

    async def count(notes: NoteView) -> Counter[str]:
        view = notes if scope is None else notes.scope(scope)
        return Counter([data.get("scope", "/") async for data in view.export()])

    scopes = with_notes(place, count)
    if not scopes:
        _output.fail(f"there are no notes{whose(place.owner)} in {scope or '/'}, so nothing was removed")
    if not yes:
        where = ", ".join(_output.shortened(each) for each in sorted(scopes)[:4]) + (" …" if len(scopes) > 4 else "")
        confirm(f"Remove all {counted(scopes.total(), 'note')}{whose(place.owner)} in {where} for good?")

    async def remove(notes: NoteView) -> Receipt:
        return await notes.reset(scope)

    _say_forgotten(with_notes(place, remove), as_json=as_json)


def _agree(what: str, records: Sequence[Record]) -> None:
    told = "; ".join(repr(_output.shortened(record.content, 40)) for record in records[:3])
    more = "; …" if len(records) > 3 else ""
    confirm(f"{what} {counted(len(records), 'note')} ({told}{more}) for good?")


def _say_forgotten(receipt: Receipt, *, as_json: bool) -> None:
    if as_json:
        print(_output.json_text({"notes": receipt.notes, "bytes": receipt.bytes}))
    else:
        print(f"Forgotten: {counted(receipt.notes, 'note')}, {receipt.bytes:,} bytes.")
