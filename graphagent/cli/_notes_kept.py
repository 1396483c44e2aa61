"""`graphagent notes`: what concerns all of them: taken along, brought in, made anew, checked."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from graphagent.cli import _screen
from graphagent.cli._notes_opened import Place, counted, opened, owners, with_store
from graphagent.cli._private import private_file
from graphagent.errors import StoreError

if TYPE_CHECKING:
    from graphagent.protocols import Store


def export(place: Place, out: Path | None) -> None:
    """Write notes to a file, or to standard output."""

    async def write(store: Store) -> tuple[int, int]:
        count = size = 0
        with ExitStack() as stack:
            target = stack.enter_context(private_file(out)) if out is not None else sys.stdout.buffer
            for owner in await _whose(store, place):
                async with opened(store, place, owner) as notes:
                    async for record in notes.export():
                        line = orjson.dumps(record) + b"\n"
                        target.write(line)
                        count, size = count + 1, size + len(line)
            target.flush()
        return count, size

    count, size = with_store(place, write)
    if out is not None:
        _screen.aside(f"{counted(count)}, {size:,} bytes, written to {out}, readable for you alone, but not sealed.")


def import_notes(place: Place, file: Path, origin: str, scope: str, *, as_json: bool) -> None:
    """Take over notes from a file, or from standard input."""
    from graphagent.memory.notes.importers import READERS

    try:
        text = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise StoreError(f"{str(file)!r} cannot be read: {error.strerror}") from None
    try:
        records = READERS[origin](text, scope=scope)
    except ValueError as error:
        raise StoreError(f"{str(file)!r}, {error}; nothing was imported") from None
    by_owner: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for record in records:
        by_owner[record.get("owner", "") if place.owner is None else place.owner].append(record)

    async def add(store: Store) -> int:
        added = 0
        for owner, given in by_owner.items():
            async with opened(store, place, owner, vectors=True) as notes:
                added += await notes.import_(given)
        return added

    added = with_store(place, add, new=True)
    if as_json:
        print(_screen.json_text({"new": added, "notes": len(records), "owners": sorted(by_owner)}))
        return
    print(f"{added} of {counted(len(records))} {'was' if added == 1 else 'were'} new.")
    if named := [each for each in sorted(by_owner) if each and place.owner is None]:
        _screen.aside(f"Their owners: {', '.join(map(repr, named))}. See them with --owner NAME.")


def reembed(place: Place, *, as_json: bool) -> None:
    """Make all vectors anew, and show how far that is."""
    if place.embedder is None:
        raise typer.BadParameter(
            "say which: static, local, openai:MODEL or openai:MODEL@BASE_URL", param_hint="--embedder"
        )
    console = _screen.screen(err=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)

    async def make(store: Store) -> int:
        done = 0
        for owner in await _whose(store, place):
            task = bar.add_task("Making vectors", total=None)
            async with opened(store, place, owner) as notes:
                done += await notes.reembed(_teller(bar, task))
            bar.remove_task(task)
        return done

    with bar:
        done = with_store(place, make)
    if as_json:
        print(_screen.json_text({"notes": done, "embedder": place.embedder}))
    else:
        print(f"Made anew: the vectors of {counted(done)}.")


def _teller(bar: Progress, task: Any) -> Callable[[int, int], None]:
    return lambda done, of: bar.update(task, completed=done, total=of)


def verify(place: Place, *, as_json: bool) -> None:
    """Read every note, and check it."""

    async def check(store: Store) -> int:
        count = 0
        for owner in await _whose(store, place):
            async with opened(store, place, owner) as notes:
                count += await notes.verify()
        return count

    count = with_store(place, check)
    print(_screen.json_text({"sound": True, "notes": count}) if as_json else f"Sound: {counted(count)}.")


async def _whose(store: Store, place: Place) -> list[str]:
    return await owners(store) if place.owner is None else [place.owner]
