"""All notes of an owner in a store, independent of views: for forgetting an owner, and for finding the notes to forget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from graphagent.errors import DamagedStoreError
from graphagent.memory.notes._service import NoteService
from graphagent.memory.notes._settings import NoteSettings
from graphagent.memory.notes._view import NoteView, parts_of
from graphagent.memory.notes._visibility import Visibility
from graphagent.memory.notes.index import _storage
from graphagent.memory.notes.index._repository import NoteRepository
from graphagent.store import DeleteAll

if TYPE_CHECKING:
    from graphagent.memory._note_values import Record
    from graphagent.protocols import Store
    from graphagent.store import Change


def store_of(view: NoteView) -> Store:
    """Return the store of a view of notes."""
    return parts_of(view)[0].repository.store


def notes_of(place: Store | NoteView, owner: str) -> NoteView:
    """Return all notes of an owner: those in a store, or those of which a view shows some.

    Raises:
        ValueError: the view is of the notes of another owner.
    """
    if not isinstance(place, NoteView):
        return NoteView(NoteService(_repository(place), NoteSettings()), Visibility(owner=owner))
    if place.owner not in ("", owner):
        raise ValueError(f"{place!r} has the notes of another owner than {owner!r}; give the notes without owner=")
    return NoteView(parts_of(place)[0], Visibility(owner=owner))


def seen_of(view: NoteView, owner: str) -> NoteView:
    """Return the same view of another owner's notes: with the same ages, scopes and source."""
    service, visibility = parts_of(view)
    return NoteView(service, replace(visibility, owner=owner))


def words_alone(view: NoteView) -> NoteView:
    """Return a view of the same notes that finds them by their words alone, and so needs no embedder."""
    service, visibility = parts_of(view)
    return NoteView(NoteService(_repository(service.repository.store), service.settings), visibility)


async def all_versions(view: NoteView) -> list[Record]:
    """Return all notes of the owner of a view in all their versions, those too that were consolidated into others.

    Raises:
        StoreError: the notes cannot be read.
    """
    repository, owner = parts_of(view)[0].repository, view.owner
    former = repository.store.scan(_storage.histories_key(owner))
    return [*[_storage.unpack_former(item)[0] async for item in former], *await repository.all(owner)]


async def has_notes(store: Store, owner: str) -> bool:
    """Return whether a store has anything of notes of an owner.

    Raises:
        StoreError: the notes cannot be read.
    """
    return bool([item async for item in store.scan(_storage.room_of(owner), limit=1)])


async def forget_owner(place: Store | NoteView, owner: str, also: Sequence[Change]) -> None:
    """Erase all that a store has of an owner's notes, and make other changes in the same commit.

    Raises:
        ValueError: as in `notes_of`.
        StoreError: the notes could not be forgotten.
    """
    if isinstance(place, NoteView):
        repository, is_open = parts_of(notes_of(place, owner))[0].repository, True
    else:
        repository, is_open = _repository(place), False
    try:
        # If the notes are not open, only notes in a plain file have an index from which they must be removed.
        if is_open or (repository.backend.shared and await has_notes(repository.store, owner)):
            await repository.forget_owner(owner, also)
            return
    except DamagedStoreError:  # an unreadable item can be forgotten, and the index is built again without it
        await repository.backend.drop()
    await repository.store.commit(DeleteAll(_storage.room_of(owner)), *also)


def _repository(store: Store) -> NoteRepository:
    return NoteRepository(store, None, cache_bytes=0, late_interaction=False)
