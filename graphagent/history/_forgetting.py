"""Forgetting over everything that an agent keeps: facts, notes, runs, threads and what was cached, wherever they are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from graphagent import _clock
from graphagent.errors import (
    DamagedStoreError,
    NoteNotFoundError,
    NotForgottenError,
    OwnerBusyError,
    RunError,
    StoreError,
)
from graphagent.history._places import Place, Places
from graphagent.history._reach import Reached, Selection
from graphagent.history._removing import counted, forget_runs, runs_of
from graphagent.history._runs import choose_runs
from graphagent.log._header import due_of
from graphagent.log._lease import drop_claims, keys_of_claims
from graphagent.log._segments import list_runs
from graphagent.memory._expiry import checked_age
from graphagent.memory.facts._older import forget_older, older_facts
from graphagent.memory.facts._store_items import facts_of
from graphagent.memory.notes._owner import all_versions, forget_owner, store_of
from graphagent.memory.notes.index._storage import room_of as notes_of_owner
from graphagent.store import DeleteAll, Receipt
from graphagent.store._cache import cached_of, erase_expired

if TYPE_CHECKING:
    from graphagent.memory.facts._types import Concept, Scope, Subject
    from graphagent.memory.notes._view import NoteView
    from graphagent.protocols import KeepingProvider, Store
    from graphagent.store import Key

_Work = Callable[[], Awaitable[Receipt]]


async def forget(
    *places: Place,
    owner: str = "",
    everything: bool = False,
    concept: Concept | None = None,
    subject: Subject | None = None,
    scope: Scope | None = None,
    notes: Collection[str] = (),
    also: Iterable[Reached] = (),
    older_than: timedelta | None = None,
) -> Receipt:
    """Erase data of one owner in some places: everything, old data, or facts and notes together with chosen places that these reached.

    In each place, it is erased in as few commits as there are kinds of it, `everything` of a store in one. What was cached in a store
    for the owner is erased in any case, since it may repeat the rest. If a place fails, the others are gone through all the same.

    Args:
        places: Stores, of which all facts, notes, runs and threads count, providers and notes. Each may be sealed or plain.
        owner: Whose.
        everything: Whether all is erased that the owner has there, the name of the owner included.
        concept: Only facts about this concept.
        subject: Only facts about this subject.
        scope: Only facts in this scope.
        notes: The ids of notes.
        also: What to erase of that which `reach` has found, for the same places: runs, facts and notes.
        older_than: All that is older than this, and nothing else: facts by their last versions, notes by when they were saved, runs by when
            something happened in them last, but for those that are being executed or continued.

    Returns:
        The counts of what was erased, in each place and altogether.

    Raises:
        ValueError: nothing says what to forget, or something besides `everything`; notes belong to another owner; or something of `also` is
            in none of the places.
        TypeError: a place is none, or something is not of its type.
        OwnerBusyError: runs of the owner are being executed, and `everything` is to be erased. Nothing was.
        RunClaimedError: a process executes a run of `also`, or one that continues it. Nothing was erased.
        NotForgottenError: a place could not be changed. It has the receipt of the others; the same call again does the rest.
    """
    found = Places.of(places, owner)
    chosen = [each for each in also if each.kind != "cached"]
    age = None if older_than is None else checked_age(older_than)
    alone = everything or age is not None
    selection = Selection.checked(concept, subject, scope, notes, everything=alone, is_more=bool(chosen))
    if everything and age is not None:
        raise ValueError("everything=True is of any age; leave out older_than=")
    if age is not None:
        works = await _old_of(found, owner, age)
    elif everything:
        await _check_idle(found, owner)
        works = _all_of(found, owner)
    else:
        works = await _parts_of(found, owner, selection, chosen)
    return await _done(works)


async def held(*places: Place, owner: str = "", older_than: timedelta | None = None) -> Receipt:
    """Return how much some places have of an owner, in each and altogether; of providers, without the bytes.

    With `older_than`, only facts, notes and runs are counted that `forget` would erase for this age, without their bytes.

    Raises:
        TypeError, ValueError: as `forget`.
        StoreError: a place cannot be read.
    """
    found = Places.of(places, owner)
    if older_than is not None:
        parts = await _old_in(found, owner, checked_age(older_than))
    else:
        of_notes, prefixes = _prefixes(owner)
        parts = {name: await counted(store, prefixes) for name, store in found.stores.items()}
        parts.update({name: await counted(store_of(view), of_notes) for name, view in found.notes_apart().items()})
        for name, provider in found.providers.items():
            parts[name] = Receipt(facts=len([record async for record in provider.export(owner=owner)]))
    return Receipt.of({name: each for name, each in parts.items() if each != Receipt()})


async def _old_in(places: Places, owner: str, age: timedelta) -> dict[str, Receipt]:
    before = _before(age)
    parts: dict[str, Receipt] = {}
    for name, store in places.stores.items():
        parts[name] = Receipt(runs=len(await _old_runs(store, owner, age)))
    for name, view in (await places.all_notes(owner)).items():
        old = {record.id for record in await all_versions(view) if record.created_at.timestamp() * 1000 < before}
        parts[name] = replace(parts.get(name, Receipt()), notes=len(old))
    for name, provider in (await places.all_providers(owner)).items():
        facts = sum((await older_facts(provider, owner, before)).values())
        parts[name] = replace(parts.get(name, Receipt()), facts=facts)
    return parts


def _before(age: timedelta) -> int:
    return _clock.now() - age // timedelta(milliseconds=1)


async def _old_runs(store: Store, owner: str, age: timedelta) -> list[str]:
    heads = await list_runs(store, owner=owner)
    continued = {head.previous for head in heads if head.running}
    return [head.run_id for head in choose_runs(heads, older_than=age) if head.run_id not in continued]


async def note_ids(*places: Place, owner: str, named: Iterable[str]) -> list[str]:
    """Return the ids of notes that a person names, in full or by their beginnings or ends.

    Raises:
        NoteNotFoundError: the note does not exist.
        StoreError: a place cannot be read.
    """
    views, found = (await Places.of(places, owner).all_notes(owner)).values(), list[str]()
    for name in named:
        ids: list[str] = []
        for view in views:
            with suppress(NoteNotFoundError):
                ids.append(await view.resolve(name))
        if not ids:
            raise NoteNotFoundError(name)
        found += ids
    return found


def _prefixes(owner: str) -> tuple[tuple[Key, ...], tuple[Key, ...]]:
    """Return what the keys begin with of all notes of an owner, and of everything."""
    return (notes_of_owner(owner), cached_of(owner)), (facts_of(owner), notes_of_owner(owner), *runs_of(owner))


async def _check_idle(places: Places, owner: str) -> None:
    heads = [head for store in places.stores.values() for head in await list_runs(store, owner=owner)]
    if running := [head.run_id for head in heads if head.running and not head.parent]:
        raise OwnerBusyError(owner, running)


def _all_of(places: Places, owner: str) -> list[tuple[str, _Work]]:
    of_notes, _ = _prefixes(owner)
    works: list[tuple[str, _Work]] = [
        (name, partial(_erase_all, places.view_in(store) or store, owner, store))
        for name, store in places.stores.items()
    ]
    works += [
        (name, partial(_erase, view, owner, store_of(view), of_notes)) for name, view in places.notes_apart().items()
    ]
    providers = [*places.inside.items(), *places.providers.items()]  # those inside forget what they have in memory
    works += [(name, partial(each.forget, owner=owner, everything=True)) for name, each in providers]
    return works


async def _old_of(places: Places, owner: str, age: timedelta) -> list[tuple[str, _Work]]:
    works: list[tuple[str, _Work]] = []
    before = _before(age)
    for name, store in places.stores.items():
        if old := await _old_runs(store, owner, age):
            works.append((name, partial(forget_runs, store, owner=owner, run_ids=old)))
        works.append((name, partial(_clear_expired, store, owner)))
    for name, view in (await places.all_notes(owner)).items():
        works.append((name, partial(view.forget, older_than=age)))
    for name, provider in (await places.all_providers(owner)).items():
        works.append((name, partial(forget_older, provider, owner, before)))
    return works


async def _parts_of(
    places: Places, owner: str, selection: Selection, chosen: Collection[Reached]
) -> list[tuple[str, _Work]]:
    if elsewhere := {each.place for each in chosen} - places.names():
        raise ValueError(
            f"also= has something in {', '.join(sorted(elsewhere))}, and the places are {', '.join(sorted(places.names()))}; give all places "
            f"that reach() was given"
        )
    works: list[tuple[str, _Work]] = []
    for name, store in places.stores.items():
        wanted = {each.id for each in chosen if (each.kind, each.place) == ("run", name)}
        there = {head.run_id: head for head in await list_runs(store, owner=owner)} if wanted else {}
        for run_id in wanted & there.keys():
            there[run_id].check_free()
        for head in there.values():
            if head.previous in wanted & there.keys():
                head.check_free()
        if runs := sorted(wanted & there.keys()):
            works.append((name, partial(forget_runs, store, owner=owner, run_ids=runs)))
        works.append((name, partial(_clear, store, owner)))
    for name, view in (await places.all_notes(owner)).items():
        ids = {*selection.notes, *(each.id for each in chosen if (each.kind, each.place) == ("note", name))}
        if ids:
            works.append((name, partial(view.forget, ids=ids)))
    for name, provider in (await places.all_providers(owner)).items():
        if selection.of_facts:
            works.append((name, partial(_forget_facts, provider, owner, *selection.facts)))
        facts = [each.fact for each in chosen if (each.kind, each.place) == ("fact", name)]
        works += [(name, partial(_forget_facts, provider, owner, *fact)) for fact in facts]
    return works


async def _done(works: Iterable[tuple[str, _Work]]) -> Receipt:
    """Do all, and return the receipts together."""
    parts: dict[str, Receipt] = {}
    left: dict[str, str] = {}
    cause: StoreError | RunError | None = None
    for name, work in works:
        try:
            receipt = await work()
        except (StoreError, RunError) as error:  # a run may be begun meanwhile
            left[name], cause = str(error), cause or error
        else:
            parts[name] = replace(Receipt.of({"": parts.get(name, Receipt()), "more": receipt}), parts={})
    total = Receipt.of({name: each for name, each in parts.items() if each != Receipt()})
    if cause is not None:
        raise NotForgottenError(total, left) from cause
    return total


async def _forget_facts(
    provider: KeepingProvider, owner: str, concept: Concept | None, subject: Subject | None, scope: Scope | None
) -> Receipt:
    return await provider.forget(concept=concept, subject=subject, scope=scope, owner=owner)


async def _clear(store: Store, owner: str) -> Receipt:
    """Erase what was cached."""
    receipt = await counted(store, [cached_of(owner)])
    # Without changes, it raises if what failed to be saved may come back.
    await store.commit(*([DeleteAll(cached_of(owner))] if receipt.cached else []))
    return receipt


async def _clear_expired(store: Store, owner: str) -> Receipt:
    """Erase what was cached and has expired."""
    return Receipt(cached=await erase_expired(store, cached_of(owner)))


async def _erase_all(place: Store | NoteView, owner: str, store: Store) -> Receipt:
    """Erase all that a store has of an owner, in one commit."""
    _, prefixes = _prefixes(owner)
    try:
        due = await due_of(store, owner)
        claims = await keys_of_claims(store, owner)
    except DamagedStoreError:  # what cannot be read can be erased
        due, claims = [], []
    receipt = await _erase(place, owner, store, (*prefixes, *due))
    await drop_claims(store, claims)
    return receipt


async def _erase(place: Store | NoteView, owner: str, store: Store, prefixes: Collection[Key]) -> Receipt:
    """Erase the notes of an owner that are in a place, and all that the store has under some prefixes, in one commit."""
    receipt = await counted(store, prefixes)
    if receipt != Receipt() or await _has_any(store, prefixes):  # a file that does not exist is not made
        await forget_owner(place, owner, list(map(DeleteAll, prefixes)))
    return receipt


async def _has_any(store: Store, prefixes: Iterable[Key]) -> bool:
    """Return whether there is anything under some prefixes, or whether that cannot be read."""
    try:
        for prefix in prefixes:
            async for _ in store.scan(prefix, limit=1):
                return True
    except DamagedStoreError:
        return True
    return False
