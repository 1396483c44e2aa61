"""Where an agent keeps things: stores, providers of facts, and notes, as they are given to those who forget."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias, TypeGuard

from graphagent._article import kind_of
from graphagent.memory.facts._provider_none import NoMemory
from graphagent.memory.facts._provider_store import StoreMemoryProvider
from graphagent.memory.facts._store_items import facts_of
from graphagent.memory.notes._owner import has_notes, notes_of, store_of
from graphagent.memory.notes._view import NoteView

if TYPE_CHECKING:
    from graphagent.protocols import FactProvider, KeepingProvider, Store

Place: TypeAlias = "Store | FactProvider | NoteView"
"""Where something of an owner may be. A provider has to be a KeepingProvider."""


@dataclass(slots=True)
class Places:
    """Where something may be, by its name."""

    stores: dict[str, Store] = field(default_factory=dict[str, "Store"])
    """With everything that is in them."""
    providers: dict[str, KeepingProvider] = field(default_factory=dict[str, "KeepingProvider"])
    inside: dict[str, KeepingProvider] = field(default_factory=dict[str, "KeepingProvider"])
    """A provider that was given beside the store that has its facts, by the name of the store."""
    notes: dict[str, NoteView] = field(default_factory=dict[str, NoteView])

    @staticmethod
    def of(given: Iterable[object], owner: str) -> Places:
        """Return the places that were given, each once, for what they have of an owner.

        Raises:
            TypeError: something given is none, or nothing is.
            ValueError: notes that were given are those of another owner.
        """
        found, seen = Places(), set[int]()
        for each in given:
            if id(each) in seen or isinstance(each, NoMemory):
                continue
            seen.add(id(each))
            if isinstance(each, NoteView):
                notes_of(each, owner)
                found.notes[_name(each, found.notes)] = each
            elif _is_store(each):
                found.stores[_name(each, found.stores)] = each
            elif _is_provider(each):
                found.providers[_name(each, found.providers)] = each
            else:
                raise TypeError(
                    f"these are places of facts, notes and runs: stores, notes and providers that can forget, such as SqliteStore('runs.db'), "
                    f"Notes('notes.db') and FileMemoryProvider('memory'), not {kind_of(each)}"
                )
        if not seen:
            raise TypeError("say where to forget: a store, notes or a provider, such as SqliteStore('runs.db')")
        for name, each in [*found.providers.items()]:
            for known, store in found.stores.items():
                if (
                    isinstance(each, StoreMemoryProvider) and each.store is store
                ):  # all facts of the store count already
                    found.inside[known] = found.providers.pop(name)
        return found

    def names(self) -> set[str]:
        """Return the names of all places."""
        return {*self.stores, *self.providers, *self.notes}

    def view_in(self, store: Store) -> NoteView | None:
        """Return the notes that were given and are in a store."""
        return next((view for view in self.notes.values() if store_of(view) is store), None)

    def notes_apart(self) -> dict[str, NoteView]:
        """Return the notes that are in none of the stores."""
        return {
            name: view
            for name, view in self.notes.items()
            if not any(store_of(view) is store for store in self.stores.values())
        }

    async def all_providers(self, owner: str) -> dict[str, KeepingProvider]:
        """Return all providers, with those of the facts of an owner in the stores.

        Raises:
            StoreError: a store cannot be read.
        """
        inside: dict[str, KeepingProvider] = {}
        for name, store in self.stores.items():
            if [item async for item in store.scan(facts_of(owner), limit=1)]:
                inside[name] = self.inside.get(name) or StoreMemoryProvider(store)
        return {**inside, **self.providers}

    async def all_notes(self, owner: str) -> dict[str, NoteView]:
        """Return all notes of an owner, with those in the stores.

        Raises:
            StoreError: a store cannot be read.
        """
        inside: dict[str, NoteView] = {}
        for name, store in self.stores.items():
            if await has_notes(store, owner):
                inside[name] = notes_of(self.view_in(store) or store, owner)
        return {**inside, **{name: notes_of(view, owner) for name, view in self.notes_apart().items()}}


def _name(place: object, known: Iterable[str]) -> str:
    name, names = repr(place), {*known}
    return next(
        each
        for number in range(1, len(names) + 2)
        if (each := name if number == 1 else f"{name} ({number})") not in names
    )


def _is_store(given: object) -> TypeGuard[Store]:
    return not isinstance(given, type) and all(callable(getattr(given, name, None)) for name in ("scan", "commit"))


def _is_provider(given: object) -> TypeGuard[KeepingProvider]:
    return not isinstance(given, type) and all(callable(getattr(given, name, None)) for name in ("forget", "export"))
