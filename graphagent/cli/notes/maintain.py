"""`graphagent notes`: what concerns all of them: export, import, rebuilding, checking."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from graphagent.cli import _output
from graphagent.cli._jsonl import lines_to, read_whole
from graphagent.cli._phrases import counted, were_new, whose
from graphagent.cli.notes._target import Place, opened, owners, with_store
from graphagent.errors import DamagedStoreError, StoreError

if TYPE_CHECKING:
    from graphagent.protocols import Store


def export(place: Place, out: Path | None) -> None:
    """Write notes to a file, or to standard output."""

    async def write(store: Store) -> None:
        count = 0
        with lines_to(out) as lines:
            for owner in await _owners(store, place):
                async with opened(store, place, owner) as notes:
                    async for record in notes.export():
                        await lines.put(record)
                        count += 1
        lines.tell(counted(count, "note"))

    with_store(place, write)


def import_notes(place: Place, file: Path, origin: str, scope: str, *, as_json: bool) -> None:
    """Take over notes from a file, or from standard input."""
    from graphagent.migrate.notes import READERS, by_owner, origin_of

    text = read_whole(file)
    try:
        records = READERS[origin](text, scope=scope, owner=place.owner)
    except ValueError as error:
        looks = origin_of(text)
        hint = f" (its records look like those of --from {looks})" if looks not in (None, origin) else ""
        raise StoreError(f"{str(file)!r}, {error}{hint}; nothing was imported") from None
    theirs = by_owner(records)

    async def add(store: Store) -> int:
        added = 0
        for owner, given in theirs.items():
            async with opened(store, place, owner, vectors=True) as notes:
                with _bar(f"Importing{whose(owner)}") as tell:
                    added += await notes.import_(given, on_progress=tell)
        return added

    try:
        added = with_store(place, add, new=True)
    except KeyboardInterrupt:
        _output.aside(
            "Broken off. Of each owner all notes are there or none is; import the same file again, which adds what is missing."
        )
        raise
    if as_json:
        print(_output.json_text({"new": added, "notes": len(records), "owners": sorted(theirs)}))
        return
    print(were_new(added, len(records), "note"))
    if named := [each for each in sorted(theirs) if each and place.owner is None]:
        _output.aside(f"Their owners: {', '.join(map(repr, named))}. See them with --owner NAME.")


def reembed(place: Place, *, as_json: bool) -> None:
    """Recompute all vectors, and show the progress."""
    if place.embedder is None:
        raise typer.BadParameter(
            "say which: static, local, openai:MODEL or openai:MODEL@BASE_URL", param_hint="--embedder"
        )

    async def make(store: Store) -> int:
        done = 0
        for owner in await _owners(store, place):
            async with opened(store, place, owner) as notes:
                with _bar(f"Making vectors{whose(owner)}") as tell:
                    done += await notes.reembed(tell)
        return done

    done = with_store(place, make)
    if as_json:
        print(_output.json_text({"notes": done, "embedder": place.embedder}))
    else:
        print(f"Recomputed: the vectors of {counted(done, 'note')}.")


def reindex(place: Place, *, as_json: bool) -> None:
    """Rebuild the index of all notes, whoever owns them, and show the progress."""

    async def make(store: Store) -> int:
        count = 0

        def told(done: int, of: int) -> None:
            nonlocal count
            count = of
            tell(done, of)

        with _bar("Building the index") as tell:
            async with opened(store, place, "", on_progress=told) as notes:
                await notes.reindex()
        return count

    count = with_store(place, make)
    if as_json:
        print(_output.json_text({"notes": count}))
    else:
        print(f"Rebuilt: the index of {counted(count, 'note')}.")


@contextmanager
def _bar(what: str) -> Generator[Callable[[int, int], None]]:
    """Show on a terminal how far something is, once it is told how many are done, and of how many."""
    console = _output.screen(err=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(_output.shown(what), total=None)
        yield lambda done, of: bar.update(task, completed=done, total=of)


def verify(place: Place, *, as_json: bool) -> None:
    """Read every note, and check it."""

    async def check(store: Store) -> int:
        count = 0
        for owner in await _owners(store, place):
            async with opened(store, place, owner) as notes:
                count += await notes.verify()
        return count

    try:
        count = with_store(place, check)
    except DamagedStoreError as error:
        if error.where.startswith("the index "):
            error.add_note("Rebuild the index: graphagent notes reindex")
        raise
    print(_output.json_text({"sound": True, "notes": count}) if as_json else f"Sound: {counted(count, 'note')}.")


async def _owners(store: Store, place: Place) -> list[str]:
    return await owners(store) if place.owner is None else [place.owner]
