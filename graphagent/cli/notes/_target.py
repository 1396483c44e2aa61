"""The notes that a command works on: which store, which owner, which embedder, which reranker."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from graphagent.cli import _output, _stores
from graphagent.cli._options import (
    AnchorPlace,
    AnyOwner,
    argument,
    file_option,
    key_option,
    option,
    owner_option,
    value_of,
)
from graphagent.cli._store_place import StorePlace
from graphagent.errors import (
    AmbiguousNoteError,
    EmbedderChangedError,
    EmbedderError,
    MissingExtraError,
    NoteError,
    NoteNotFoundError,
    ScopeError,
)

if TYPE_CHECKING:
    from graphagent.memory import Notes, NoteView, Record
    from graphagent.protocols import Embedder, Reranker, Store

T = TypeVar("T")
_TIMES = ("created_at", "updated_at", "at")

# Options of several commands.

Which = Annotated[str, argument("NOTE", "The id of a note, or its beginning or end.")]
Under = Annotated[str | None, option("--scope", "PATH", "Only this scope and everything below it.")]
Category = Annotated[
    list[str] | None,
    option("--category", "NAME", "Only notes with this category; can be repeated."),
]
Labels = Annotated[list[str] | None, option("--category", "NAME", "A category; can be repeated.")]
Importance = Annotated[float | None, option("--importance", "NUMBER", "From 0 to 1.", min=0, max=1)]
SeenBy = Annotated[str | None, option("--source", "NAME", "Include the private notes of this source.")]
OfSource = Annotated[str | None, option("--source", "NAME", "Only notes of this source.")]
Since = Annotated[
    str | None,
    option(
        "--since",
        "TIME",
        "Only notes that were said, or else saved, at this time or later: 2026-01-31, 2026-01-31T09:30, or 30d for 30 days ago.",
    ),
]
Until = Annotated[
    str | None, option("--until", "TIME", "Only notes that were said, or else saved, at this time or earlier.")
]


def _static() -> Embedder:
    from graphagent.embed.static import StaticEmbedder

    return StaticEmbedder()


def _multilingual() -> Embedder:
    from graphagent.embed.multilingual import MultilingualEmbedder

    return MultilingualEmbedder()


def _local() -> Embedder:
    from graphagent.embed.local import LocalEmbedder

    return LocalEmbedder()


_ON_THIS_MACHINE: Mapping[str, Callable[[], Embedder]] = {
    "static": _static,
    "multilingual": _multilingual,
    "local": _local,
}
"""The embedders that need no server, by their names in options."""
EMBEDDERS = f"{', '.join(_ON_THIS_MACHINE)}, openai:MODEL and openai:MODEL@BASE_URL"
"""The embedders that an option can name."""
EmbedderName = Annotated[
    str | None,
    option(
        "--embedder",
        "EMBEDDER",
        f"Makes vectors; there are {EMBEDDERS}. Default: the one of the vectors that the notes already have, unless it is a server.",
    ),
]
RerankerName = Annotated[
    str | None,
    option(
        "--reranker",
        "RERANKER",
        "Reads the best notes together with the question, and orders them: openai:MODEL@BASE_URL, or openai:MODEL with "
        "OPENAI_BASE_URL.",
    ),
]
_SERVED = re.compile(r"openai:(.+?)(?:@(https?://.+))?")
"""A model on a server, as options name it."""


@dataclass(frozen=True, slots=True)
class NotesStore:
    """The store of the notes."""

    store: Annotated[StorePlace | None, file_option("notes")] = None
    key: Annotated[str | None, key_option("Encrypt the notes, or open encrypted ones")] = None
    anchor: AnchorPlace = None

    def use(self, work: Callable[[Store], Awaitable[T]], *, new: bool = False) -> T:
        """Open the store, await `work` with it, close it, and return the result of `work`. `new` creates a missing store.

        Raises:
            BadParameter: The store does not exist, the key does not fit, or the scope is not valid.
            StoreError: No store was named, and the default store does not exist yet.
        """
        try:
            return _stores.with_store("notes", self.store, self.key, work, anchor=self.anchor, new=new)
        except (ScopeError, AmbiguousNoteError) as error:
            raise typer.BadParameter(str(error)) from None
        except NoteNotFoundError as error:
            raise NoteError(f"there is no note {error.id!r} here; `graphagent notes list` shows the notes") from None
        except EmbedderChangedError as error:
            error.add_note(f"Give the embedder of {error.stored!r}, or: graphagent notes reembed --embedder …")
            raise


@dataclass(frozen=True, slots=True)
class NotesTarget(NotesStore):
    """The notes of one owner; without a name, those without an owner."""

    owner: Annotated[str, owner_option("Whose notes.")] = ""

    def use_notes(
        self,
        work: Callable[[NoteView], Awaitable[T]],
        *,
        source: str | None = None,
        embedder: str | None = None,
        reranker: str | None = None,
        new: bool = False,
        vectors: bool = False,
    ) -> T:
        """Open the notes, await `work` with them, close them, and return the result of `work`.

        The private notes of the source are included, and new notes get this source. Embedder and reranker are named as in their
        options; with `vectors`, the default is the embedder that made the vectors of the notes. `new` creates a missing store.
        """

        async def main(store: Store) -> T:
            async with open_notes(
                store, self.owner, source=source, embedder=embedder, reranker=reranker, vectors=vectors
            ) as notes:
                return await work(notes)

        return self.use(main, new=new)


@dataclass(frozen=True, slots=True)
class NotesOfAny(NotesStore):
    """The notes of one owner or of all."""

    owner: AnyOwner = None

    async def owners(self, store: Store) -> list[str]:
        """Return the selected owners of notes."""
        return await owners_of(store) if self.owner is None else [self.owner]


@asynccontextmanager
async def open_notes(
    store: Store,
    owner: str,
    *,
    source: str | None = None,
    embedder: str | None = None,
    reranker: str | None = None,
    vectors: bool = False,
    on_progress: Callable[[int, int], None] | None = None,
) -> AsyncGenerator[Notes]:
    """Open the notes of an owner in a store; see `NotesTarget.use_notes`. `on_progress` is called while the index is rebuilt."""
    async with await notes_in(
        store, owner, source=source, embedder=embedder, reranker=reranker, vectors=vectors, on_progress=on_progress
    ) as notes:
        yield notes


async def notes_in(
    store: Store,
    owner: str,
    *,
    source: str | None = None,
    embedder: str | None = None,
    reranker: str | None = None,
    vectors: bool = False,
    on_progress: Callable[[int, int], None] | None = None,
) -> Notes:
    """Return the notes that `open_notes` opens, which their first use opens."""
    from graphagent.memory import Notes

    made = await Notes(store, owner=owner).stored_embedder() if vectors and embedder is None else None
    maker = installed_embedder(made) if made is not None else _embedder(embedder)
    if made is not None and maker is None:
        _output.aside(
            f"The notes have vectors of {made!r}, which are not used; to use them, pass that embedder with --embedder."
        )
    return Notes(
        store,
        embedder=maker,
        reranker=_reranker(reranker),
        owner=owner,
        source=source,
        on_progress=on_progress,
    )


async def embedder_of(store: Store) -> Embedder | None:
    """Return the embedder that made the vectors of the most owners of notes in a store, if it computes on this machine and is installed."""
    from graphagent.memory import Notes

    names = Counter([await Notes(store, owner=owner).stored_embedder() for owner in await owners_of(store)])
    return next((found for name, _ in names.most_common() if name and (found := installed_embedder(name))), None)


async def owners_of(store: Store) -> list[str]:
    """Return all owners that have notes in a store."""
    from graphagent.memory import Notes

    return await Notes(store).owners()


def _embedder(text: str | None) -> Embedder | None:
    """Return the embedder that a text such as `openai:MODEL@BASE_URL` names.

    Raises:
        BadParameter: The text does not name one.
        MissingExtraError: The embedder needs a package that is not installed.
    """
    if text is None:
        return None
    if text in _ON_THIS_MACHINE:
        return _ON_THIS_MACHINE[text]()
    from graphagent.embed.openai import OpenAIEmbedder

    return _served(text, "embedder", EMBEDDERS, OpenAIEmbedder)


def _reranker(text: str | None) -> Reranker | None:
    """Return the reranker that a text such as `openai:MODEL@BASE_URL` names.

    Raises:
        BadParameter: The text does not name one.
    """
    if text is None:
        return None
    from graphagent.rerank.openai import OpenAIReranker

    return _served(text, "reranker", "openai:MODEL@BASE_URL and openai:MODEL", OpenAIReranker)


def _served(text: str, what: str, there: str, make: Callable[..., T]) -> T:
    """Make an embedder or a reranker of the model of a server that a text names."""
    fits = _SERVED.fullmatch(text)
    if fits is None:
        raise typer.BadParameter(f"there is no {what} {text!r}; there are {there}", param_hint=f"--{what}")
    with value_of(f"--{what}"):
        return make(fits[1], base_url=fits[2])


def installed_embedder(name: str) -> Embedder | None:
    """Return the embedder with that name, if it computes on this machine and is installed."""
    for make in _ON_THIS_MACHINE.values():
        try:
            embedder = make()
        except (MissingExtraError, EmbedderError):  # the extra or the weights are missing
            continue
        if embedder.name == name:
            return embedder
    return None


async def note_named(notes: NoteView, text: str) -> Record:
    """Return the note with an id, or with the beginning or end of an id.

    Raises:
        AmbiguousNoteError: Several ids match.
        NoteNotFoundError: The note does not exist.
    """
    id_ = await notes.resolve(text)
    record = await notes.get(id_)
    if record is None:  # forgotten meanwhile
        raise NoteNotFoundError(text)
    return record


def narrowed(notes: NoteView, scope: str | None, categories: Sequence[str] | None) -> NoteView:
    """Return a view of the notes in a scope that have one of some categories."""
    return notes.slice([scope or "/"], categories or None, read_only=False)


def plain(record: Record) -> dict[str, Any]:
    """Return a note as JSON data."""
    parts = {name: getattr(record, name) for name in type(record).__slots__}
    for name in _TIMES:
        parts[name] = parts[name] and parts[name].isoformat()
    return {**parts, "categories": list(record.categories), "metadata": dict(record.metadata)}


def metadata_of(parts: Sequence[str] | None) -> dict[str, Any] | None:
    """Return metadata from texts such as `ticket=42`, or None without any.

    Raises:
        BadParameter: A text has another form.
    """
    found: dict[str, Any] = {}
    for part in parts or ():
        name, equals, text = part.partition("=")
        if not (equals and name.strip()):
            raise typer.BadParameter(
                f"{part!r} is not metadata; write NAME=VALUE, such as ticket=42", param_hint="--metadata"
            )
        try:
            found[name.strip()] = json.loads(text)
        except ValueError:
            found[name.strip()] = text
    return found or None
