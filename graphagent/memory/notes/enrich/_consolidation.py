"""Notes that say the same: which they are, and what becomes of them.

What `remember` gave stays: an older note that turns out to say the same, letter for letter, is taken away, and what is known of it goes
over to the new one; a model is asked about those that only nearly say the same. Only notes of one owner, scope, source and privacy are compared,
none that are turns of a conversation, and none that is trusted more than the new one: what came from outside takes away nothing that
a person vouched for. Whatever is changed or taken away stands in the history, and can be undone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from anyio import to_thread

from graphagent import _clock
from graphagent.errors import ConflictError, NoteError
from graphagent.memory.facts._types import TRUST_LEVELS, least_trust
from graphagent.memory.notes.enrich import _prompts
from graphagent.memory.notes.index import _chunks, _storage
from graphagent.memory.notes.index._duplicates import is_same, normal
from graphagent.memory.notes.index._filter import Filter
from graphagent.memory.notes.index._storage import moment
from graphagent.memory.notes.recall._search import search

if TYPE_CHECKING:
    from graphagent.memory.notes._settings import Settings
    from graphagent.memory.notes._types import Record
    from graphagent.memory.notes.enrich._model import Asker
    from graphagent.memory.notes.index._repository import Book

_CANDIDATES = 50
_ASKED = 2000
"""Characters of a note by which others like it are searched."""
_TOLD = 40_000
"""Characters that a model is shown at most. Notes stand there in full or not at all, since what it writes replaces them."""
_REASON = 200
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Alike:
    """What is like a note."""

    same: list[Record]
    """Older notes with the same words."""
    near: list[Record]
    """Older notes that nearly say the same, the most similar first."""


async def consolidate(book: Book, asker: Asker, settings: Settings, record: Record) -> Record:
    """Compare a note with older ones, and give it as it is then.

    Raises:
        NoAnswerError: the model gave no usable plan; nothing was changed by one.
        EmbedderError: a vector could not be made.
        StoreError: the store cannot be read or written.
    """
    alike = await like(book, settings, record)
    for old in alike.same:
        record = await _taken_over(book, old, record)
    shown = _fitting(record, alike.near[: settings.consolidation_limit])
    if not shown:
        return record
    messages = _prompts.consolidate_messages(record, shown)
    plan = await asker.ask("consolidate", messages, _prompts.form(_prompts.Plan))
    notes = dict(enumerate((record, *shown)))
    if reason := _refused(plan, notes):
        raise asker.failed("consolidate", reason)
    try:
        return await _applied(book, plan, notes)
    except ConflictError:  # a note was changed by someone else meanwhile, so what is planned for it may be wrong
        return await book.get(record.owner, record.id) or record


def _merged(old: Record, record: Record) -> Record:
    """Give a note with what is known of another and not of it."""
    importance, metadata = max(old.importance, record.importance), {**old.metadata, **record.metadata}
    if importance == record.importance and metadata == record.metadata:
        return record
    return replace(record, importance=importance, metadata=MappingProxyType(metadata))


async def like(book: Book, settings: Settings, record: Record) -> Alike:
    """Find older notes that say the same as one, or nearly."""
    fits = Filter(record.owner, (record.scope,), asker=record.source, source=record.source)
    by_relevance = replace(settings, composite=None)
    found = await search(book, record.content[:_ASKED], fits, _CANDIDATES, by_relevance)
    others = [match.record for match in found if _comparable(match.record, record)]
    vectors = await _vectors(book, record.owner, [record, *others])
    return await to_thread.run_sync(_compared, record, others, vectors, settings.consolidation_threshold)


def _compared(record: Record, others: Sequence[Record], vectors: Mapping[str, Any], threshold: float) -> Alike:
    same: list[Record] = []
    near: list[tuple[float, str, Record]] = []
    for other in others:
        if is_same(other, record) and set(other.categories) == set(record.categories):
            same.append(other)
            continue
        score = similarity(record, other, vectors)
        if score >= threshold:
            near.append((-score, other.id, other))
    return Alike(same, [other for _, _, other in sorted(near, key=lambda each: each[:2])])


def _comparable(other: Record, record: Record) -> bool:
    return (
        other.id < record.id
        and (other.owner, other.scope, other.source, other.private)
        == (record.owner, record.scope, record.source, record.private)
        and not other.session
        and TRUST_LEVELS.index(other.trust) <= TRUST_LEVELS.index(record.trust)
    )


def similarity(one: Record, other: Record, vectors: Mapping[str, Any]) -> float:
    """Say how alike two notes are, from 0 to 1: by the cosine of their texts where both have vectors, else by shared words.

    Of notes of several texts it is the mean of what each text of one has in the other at best, taken both ways, and the lower
    of the two; so a long note is not like a short one that is a part of it. Of words it is the share of the note with more of them.
    """
    if one.id in vectors and other.id in vectors:
        cosines = vectors[one.id] @ vectors[other.id].T
        return float(max(0.0, min(cosines.max(axis=0).mean(), cosines.max(axis=1).mean())))
    words, others = set(_WORD.findall(normal(one.content))), set(_WORD.findall(normal(other.content)))
    most = max(len(words), len(others))
    return len(words & others) / most if most else 0.0


async def _vectors(book: Book, owner: str, records: Sequence[Record]) -> dict[str, Any]:
    maker = await book.fitting_maker(owner) if book.embedder is not None else None
    if maker is None:
        return {}
    from graphagent.memory.notes.index._matrix import numpy

    np = numpy()
    found: dict[str, Any] = {}
    for record in records:
        item = await book.store.get(_storage.vectors_key(owner, maker.generation, record.id))
        if item is not None:
            found[record.id] = np.frombuffer(item.value, dtype="<f4").reshape(-1, maker.dimensions)
    return found


async def _taken_over(book: Book, old: Record, record: Record) -> Record:
    """Take an older note with the same words away; the new one gets what is known of it and not of the new one."""
    merged = _merged(old, record)
    try:
        if merged is not record:
            merged = replace(merged, updated_at=_now())
            record = await book.replace(record.owner, record, merged, "consolidated: it was said before")
        await book.retire(record.owner, old, "consolidated: it was said again", record.id)
    except ConflictError:  # one of them was changed by someone else meanwhile, so they are not the same any more
        return await book.get(record.owner, record.id) or record
    return record


def _fitting(record: Record, near: Sequence[Record]) -> list[Record]:
    """Give those that can be shown in full."""
    left = _TOLD - len(record.content)
    found: list[Record] = []
    for other in near:
        if len(other.content) <= left:
            found.append(other)
            left -= len(other.content)
    return found


def _refused(plan: _prompts.Plan, notes: Mapping[int, Record]) -> str:
    """Say why a plan is not carried out, without any text of a note; empty where it is."""
    numbers = [action.number for action in plan.actions]
    if not set(numbers) <= notes.keys():
        return "the plan names a note that it was not shown"
    if len(set(numbers)) < len(numbers):
        return "the plan has two actions for one note"
    for action in plan.actions:
        if action.number == 0 and action.action == "delete":
            return "the plan would delete the new note"
        if action.action == "update":
            try:
                _chunks.checked(action.content)
            except NoteError:
                return "the plan would change a note to a text that cannot be kept"
    return ""


async def _applied(book: Book, plan: _prompts.Plan, notes: Mapping[int, Record]) -> Record:
    """Carry a plan out: changes first, so that nothing is lost when it is broken off."""
    now = _now()
    trust = least_trust(record.trust for record in notes.values())
    kept = notes[0]
    for action in plan.actions:
        old = notes[action.number]
        content = (action.content or "").strip()
        if action.action == "update" and content != old.content:
            new = replace(old, content=content, trust=trust, updated_at=now)
            changed = await book.replace(old.owner, old, new, _said(action))
            kept = changed if action.number == 0 else kept
    for action in plan.actions:
        if action.action == "delete":
            await book.retire(kept.owner, notes[action.number], _said(action), kept.id)
    return kept


def _said(action: _prompts.Action) -> str:
    reason = " ".join((action.reason or "").split())[:_REASON]
    return f"consolidated: {reason}" if reason else "consolidated"


def _now() -> datetime:
    return moment(_clock.now())
