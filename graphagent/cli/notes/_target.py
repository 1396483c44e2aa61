"""Where the notes of a command are: a store, an owner, an embedder, and the ids that people abbreviate."""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import orjson
import typer

from graphagent import _clock
from graphagent.cli import _options, _output
from graphagent.errors import EmbedderChangedError, EmbedderError, MissingExtraError, NoteError, ScopeError
from graphagent.memory import Notes

if TYPE_CHECKING:
    from graphagent.memory import NoteView, Record
    from graphagent.protocols import Embedder, Store

T = TypeVar("T")
_SHORT = 8
"""How many characters of an id are shown at least."""
_TIMES = ("created_at", "updated_at", "at")
_LAST = time(23, 59, 59, 999_000)
"""The last millisecond of a day: times of notes are counted in these."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the notes of a command are, and how they are looked at."""

    file: Path | None
    key: str | None
    owner: str | None = ""
    """None: of all owners, or as a file says."""
    source: str | None = None
    embedder: str | None = None


def with_notes(
    place: Place, work: Callable[[NoteView], Awaitable[T]], *, new: bool = False, vectors: bool = False
) -> T:
    """Open the notes, do something with them, and close them.

    Args:
        place: Where they are.
        work: What is done.
        new: Whether to make a store that is not there.
        vectors: Whether vectors matter to what is done.
    """

    async def main(store: Store) -> T:
        async with opened(store, place, place.owner or "", vectors=vectors) as notes:
            return await work(notes)

    return with_store(place, main, new=new)


def with_store(place: Place, work: Callable[[Store], Awaitable[T]], *, new: bool = False) -> T:
    """Open the store of the notes, do something with it, and close it.

    Raises:
        BadParameter: a scope was given that is none.
        NoteError: the notes in the default place are meant, and there are none yet.
    """
    if not new and place.file is None and not (_options.home() / "notes.db").exists():
        raise NoteError('nothing has been kept yet; begin with: graphagent notes remember "…"')

    async def main() -> T:
        async with _options.store("notes", place.file, place.key, new=new) as store:
            return await work(store)

    try:
        return anyio.run(main)
    except ScopeError as error:
        raise typer.BadParameter(str(error)) from None
    except EmbedderChangedError as error:
        error.add_note(f"Give the embedder of {error.stored!r}, or: graphagent notes reembed --embedder …")
        raise


@asynccontextmanager
async def opened(
    store: Store, place: Place, owner: str, *, vectors: bool = False, on_progress: Callable[[int, int], None] | None = None
) -> AsyncGenerator[NoteView]:  # fmt: skip
    """Open the notes of an owner, with the embedder that was named or, if vectors matter, the one that made theirs."""
    made = await made_by(store, owner) if vectors and place.embedder is None else None
    embedder = _known(made) if made is not None else embedder_of(place.embedder)
    if made is not None and embedder is None:
        _output.aside(f"The notes have vectors of {made!r}, which are not used; name it with --embedder.")
    async with Notes(store, embedder=embedder, owner=owner, source=place.source, on_progress=on_progress) as notes:
        yield notes


def embedder_of(text: str | None) -> Embedder | None:
    """Give the embedder that a text such as `openai:MODEL@BASE_URL` names.

    Raises:
        BadParameter: it names none.
        MissingExtraError: what it needs is not installed.
    """
    if text is None:
        return None
    if text == "static":
        from graphagent.embed.static import StaticEmbedder

        return StaticEmbedder()
    if text == "local":
        from graphagent.embed.local import LocalEmbedder

        return LocalEmbedder()
    fits = re.fullmatch(r"openai:(.+?)(?:@(https?://.+))?", text)
    if fits is None:
        raise typer.BadParameter(
            f"{text!r} is no embedder; there are static, local, openai:MODEL and openai:MODEL@BASE_URL",
            param_hint="--embedder",
        )
    from graphagent.embed.openai import OpenAIEmbedder

    try:
        return OpenAIEmbedder(fits[1], base_url=fits[2])
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--embedder") from None


def _known(name: str) -> Embedder | None:
    """Give the embedder of that name, if it is one that computes here."""
    for kind in ("static", "local"):
        try:
            embedder = embedder_of(kind)
        except (MissingExtraError, EmbedderError):  # it is not installed, or its weights are not
            continue
        if embedder is not None and embedder.name == name:
            return embedder
    return None


async def made_by(store: Store, owner: str) -> str | None:
    """Give who made the vectors of an owner's notes; None if they have none."""
    item = await store.get(("notes", owner, 0, "embedder"))
    return None if item is None else str(orjson.loads(item.value)["name"])


async def owners(store: Store) -> list[str]:
    """Give who has notes."""
    return sorted({str(item.key[1]) async for item in store.scan(("notes",)) if item.key[2] == 1})


async def one(notes: NoteView, text: str) -> Record:
    """Give the note that a person names: by its id, or by the beginning or the end of it.

    Raises:
        BadParameter: several are named so.
        NoteError: there is none.
    """
    record = await notes.get(text)
    if record is not None:
        return record
    fits = [
        each
        for each in await notes.list_records(limit=sys.maxsize)
        if text and (each.id.startswith(text) or each.id.endswith(text))
    ]
    if len(fits) > 1:
        more = " …" if len(fits) > 4 else ""
        raise typer.BadParameter(
            f"{text!r} names {len(fits)} notes: {', '.join(each.id for each in fits[:4])}{more}", param_hint="NOTE"
        )
    if not fits:
        raise NoteError(f"there is no note {text!r} here; `graphagent notes list` shows those that there are")
    return fits[0]


def narrowed(notes: NoteView, scope: str | None, categories: Sequence[str] | None) -> NoteView:
    """Give what of the notes is in a scope and has one of some categories."""
    return notes.slice([scope or "/"], categories or None, read_only=False)


def time_of(text: str | None, option: str, *, end: bool = False) -> datetime | None:
    """Give the time that a text says: `2026-01-31` in the zone of this machine, to the day's `end` if that is asked for, or `30d` ago.

    Raises:
        BadParameter: it says none.
    """
    if text is None:
        return None
    given = text.strip()
    try:
        is_age = re.fullmatch(r"\d+(?:\.\d+)?\s*[smhdw]", given.lower())
        if (age := _options.age_of(given if is_age else None, option)) is not None:
            return datetime.fromtimestamp(_clock.now() / 1000, UTC) - age
        if len(given) == len("2026-01-31"):
            return datetime.combine(date.fromisoformat(given), _LAST if end else time.min).astimezone()
        return datetime.fromisoformat(given).astimezone()
    except OverflowError:
        raise typer.BadParameter(f"{text!r} is longer ago than time is counted", param_hint=option) from None
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is no time; write a date such as 2026-01-31 or 2026-01-31T09:30, or how long ago, such as 30d",
            param_hint=option,
        ) from None


def ids_of(records: Collection[Record]) -> dict[str, str]:
    """Give how the ids are shown: their ends on a terminal, as long as they differ in; whole in a pipe."""
    ids = [record.id for record in records]
    if not sys.stdout.isatty():
        return {id_: id_ for id_ in ids}
    length = _SHORT
    while len({id_[-length:] for id_ in ids}) < len(set(ids)):
        length += 1
    return {id_: id_[-length:] for id_ in ids}


def plain(record: Record) -> dict[str, Any]:
    """Give a note as JSON data, in all its parts."""
    parts = {name: getattr(record, name) for name in type(record).__slots__}
    for name in _TIMES:
        parts[name] = parts[name] and parts[name].isoformat()
    return {**parts, "categories": list(record.categories), "metadata": dict(record.metadata)}
