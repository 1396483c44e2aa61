"""`graphagent notes`: the commands for whole stores: export, import, reembed, reindex."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphagent._article import counted
from graphagent.cli import _output
from graphagent.cli._jsonl import lines_to, read_whole
from graphagent.cli._options import Json, Out, argument, owner_option
from graphagent.cli._phrases import were_new, whose
from graphagent.cli._progress_bar import progress_bar
from graphagent.cli.notes._target import EMBEDDERS, EmbedderName, NotesOfAny, NotesStore, open_notes
from graphagent.errors import StoreError

if TYPE_CHECKING:
    from graphagent.protocols import Store


class From(Enum):
    """The program or format that a file to import comes from."""

    GRAPHAGENT = "graphagent"
    CREWAI = "crewai"
    MEM0 = "mem0"
    MCP = "mcp"
    CSV = "csv"
    JSONL = "jsonl"
    MARKDOWN = "markdown"


_ENDINGS = {".csv": From.CSV, ".tsv": From.CSV, ".md": From.MARKDOWN, ".markdown": From.MARKDOWN}
"""The origin of a file, by the suffix of its name."""


@dataclass(frozen=True, slots=True)
class ImportTarget(NotesStore):
    """The notes into which a file is imported."""

    owner: Annotated[
        str | None, owner_option("The owner of all imported notes. Default: the owners that the file names.")
    ] = None


def export(target: NotesOfAny, out: Out = None) -> None:
    """Write every note with its history as JSON lines, in plain text."""

    async def write(store: Store) -> None:
        count = 0
        with lines_to(out) as lines:
            for owner in await target.owners(store):
                async with open_notes(store, owner) as notes:
                    async for record in notes.export():
                        await lines.put(record)
                        count += 1
        lines.report(counted(count, "note"))

    target.use(write)


def import_notes(
    file: Annotated[Path, argument("FILE", "The file to read, or a folder of Markdown; - is standard input.")],
    target: ImportTarget,
    origin: Annotated[
        From | None,
        typer.Option(
            "--from",
            help="The format of the file: that of `notes export`, crewAI's records, the result of mem0's get_all(), the file of the MCP "
            "memory server, a table, JSON lines, or Markdown. Default: by its name, or else `notes export`, or else JSON lines.",
            show_default=False,
        ),
    ] = None,
    scope: Annotated[
        str, typer.Option("--scope", metavar="PATH", help="A scope that is put before the scopes of the notes.")
    ] = "/",
    embedder: EmbedderName = None,
    as_json: Json = False,
) -> None:
    """Read notes from a file. Existing ones are skipped; if a record is invalid, nothing is imported."""
    from graphagent.migrate.notes import by_owner

    records = _read(file, origin, scope, target.owner)
    theirs = by_owner(records)

    async def add(store: Store) -> int:
        added = 0
        for owner, given in theirs.items():
            async with open_notes(store, owner, embedder=embedder, vectors=True) as notes:
                with progress_bar(f"Importing{whose(owner)}") as show:
                    added += await notes.import_(given, on_progress=show)
        return added

    try:
        added = target.use(add, new=True)
    except KeyboardInterrupt:
        _output.aside(
            "Interrupted. Each owner has all of these notes or none; import the same file again to add the missing ones."
        )
        raise
    if as_json:
        print(_output.json_text({"new": added, "notes": len(records), "owners": sorted(theirs)}))
        return
    print(were_new(added, len(records), "note"))
    if named := [each for each in sorted(theirs) if each and target.owner is None]:
        _output.aside(f"Their owners: {', '.join(map(repr, named))}. See them with --owner NAME.")


def _read(file: Path, origin: From | None, scope: str, owner: str | None) -> list[dict[str, Any]]:
    """Return the records of a file or of a folder of Markdown.

    Raises:
        StoreError: The file or folder cannot be read, or contains something that is not a note.
    """
    from graphagent.migrate import notes
    from graphagent.migrate._records import origin_of

    origin = origin or (From.MARKDOWN if file.is_dir() else _ENDINGS.get(file.suffix.lower()))
    if origin is From.MARKDOWN:
        try:
            return notes.from_markdown(_markdown(file), scope=scope, owner=owner)
        except ValueError as error:
            folder = f"{str(file)!r}: " if file.is_dir() else ""
            raise StoreError(f"{folder}{error}; nothing was imported") from None
    text = read_whole(file)
    looks = None if origin is From.CSV else origin_of(text)
    origin = origin or (From.GRAPHAGENT if looks else From.JSONL)
    readers = {
        From.GRAPHAGENT: notes.from_export, From.CREWAI: notes.from_crewai, From.MEM0: notes.from_mem0, From.MCP: notes.from_mcp,
        From.JSONL: notes.from_jsonl,
    }  # fmt: skip
    try:
        if origin is From.CSV:
            return notes.from_csv(text, scope=scope, owner=owner)
        return readers[origin](text, scope=scope, owner=owner)
    except ValueError as error:
        hint = f" (its records look like those of --from {looks})" if looks not in (None, origin.value) else ""
        raise StoreError(f"{str(file)!r}, {error}{hint}; nothing was imported") from None


def _markdown(place: Path) -> dict[str, bytes]:
    """Return the Markdown files of a folder by their paths in it, without hidden ones; or the single file named.

    Raises:
        StoreError: The folder has no Markdown files, or one cannot be read.
    """
    if not place.is_dir():
        return {place.name: read_whole(place)}
    files = sorted(path for path in place.rglob("*") if path.suffix.lower() in (".md", ".markdown") and path.is_file())
    named = {path.relative_to(place): path for path in files}
    shown = {within: path for within, path in named.items() if not any(part.startswith(".") for part in within.parts)}
    if not shown:
        raise StoreError(f"there are no Markdown files in {str(place)!r}; nothing was imported")
    return {within.as_posix(): read_whole(path) for within, path in shown.items()}


def reembed(target: NotesOfAny, embedder: EmbedderName = None, as_json: Json = False) -> None:
    """Recompute all vectors, and use this embedder from now on. The old ones stay in use until it has finished."""
    if embedder is None:
        raise typer.BadParameter(f"name an embedder; there are {EMBEDDERS}", param_hint="--embedder")

    async def recompute(store: Store) -> int:
        count = 0
        for owner in await target.owners(store):
            async with open_notes(store, owner, embedder=embedder) as notes:
                with progress_bar(f"Making vectors{whose(owner)}") as show:
                    count += await notes.reembed(show)
        return count

    count = target.use(recompute)
    if as_json:
        print(_output.json_text({"notes": count, "embedder": embedder}))
    else:
        print(f"Recomputed: the vectors of {counted(count, 'note')}.")


def reindex(target: NotesStore, as_json: Json = False) -> None:
    """Rebuild the search index of all owners, if `verify` finds it damaged. The notes stay as they are."""

    async def rebuild(store: Store) -> int:
        count = 0

        def on_progress(done: int, of: int) -> None:
            nonlocal count
            count = of
            show(done, of)

        with progress_bar("Building the index") as show:
            async with open_notes(store, "", on_progress=on_progress) as notes:
                await notes.reindex()
        return count

    count = target.use(rebuild)
    if as_json:
        print(_output.json_text({"notes": count}))
    else:
        print(f"Rebuilt: the index of {counted(count, 'note')}.")
