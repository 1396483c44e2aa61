"""Consolidation: notes that say the same are found, and merged.

The note that `remember` returned stays. An older one with the same words is removed, and its importance and metadata are merged into
the new one. A model is asked about notes that say nearly the same. Only notes of one owner, scope, source and privacy are compared, no
turns of conversations, and none that is trusted more than the new one: text from outside removes nothing that a person
vouched for. All changes are in the history and can be undone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from anyio import to_thread

from graphagent import _clock
from graphagent.errors import ConflictError, NoteError
from graphagent.memory._note_values import Filter
from graphagent.memory.facts._types import TRUST_LEVELS, least_trust
from graphagent.memory.notes import _validation
from graphagent.memory.notes._validation import moment
from graphagent.memory.notes.enrich import _prompts
from graphagent.memory.notes.index import _storage
from graphagent.memory.notes.index._duplicates import is_same, normal
from graphagent.memory.notes.index._matrix import vectors_of_texts
from graphagent.memory.notes.index._vector_bytes import counts_of_words
from graphagent.memory.notes.recall._search import search
from graphagent.store._bulk import get_many

if TYPE_CHECKING:
    from graphagent.memory._note_values import Record
    from graphagent.memory.notes._settings import NoteSettings
    from graphagent.memory.notes.enrich._model import ModelClient
    from graphagent.memory.notes.index._matrix import Floats
    from graphagent.memory.notes.index._repository import NoteRepository

_CANDIDATES = 50
_ASKED = 2000
"""How many characters of a note are used to search for notes like it."""
_TOLD = 40_000
"""The largest number of characters that a model is shown. Notes are shown in full or not at all, because its text replaces them."""
_REASON = 200
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Alike:
    """The older notes that are like a note."""

    same: list[Record]
    """Those with the same words."""
    near: list[Record]
    """Those that nearly say the same, the most similar first."""


async def consolidate(repository: NoteRepository, model: ModelClient, settings: NoteSettings, record: Record) -> Record:
    """Compare a note with older ones, consolidate them, and return the note as it is then.

    Raises:
        NoAnswerError: the model gave no usable plan, so none was carried out.
    """
    alike = await like(repository, settings, record)
    for old in alike.same:
        record = await _merge(repository, old, record)
    shown = _fitting(record, alike.near[: settings.consolidation_limit])
    if not shown:
        return record
    messages = _prompts.consolidate_messages(record, shown)
    plan = await model.ask("consolidate", messages, _prompts.form(_prompts.ConsolidationPlan))
    notes = dict(enumerate((record, *shown)))
    if reason := _refused(plan, notes):
        raise model.failed("consolidate", reason)
    try:
        return await _applied(repository, plan, notes)
    except ConflictError:  # a note was changed meanwhile, so the plan for it may be wrong
        return await repository.get(record.owner, record.id) or record


async def like(repository: NoteRepository, settings: NoteSettings, record: Record) -> Alike:
    """Return older notes that say the same as a note, or nearly the same."""
    fits = Filter(record.owner, (record.scope,), asker=record.source, source=record.source)
    by_relevance = replace(settings, semantic_weight=None, recency_weight=None, importance_weight=None)
    found = await search(repository, record.content[:_ASKED], fits, _CANDIDATES, by_relevance)
    others = [match.record for match in found if _comparable(match.record, record)]
    vectors = await _vectors(repository, record.owner, [record, *others])
    return await to_thread.run_sync(_compared, record, others, vectors, settings.consolidation_threshold)


def _compared(record: Record, others: Sequence[Record], vectors: Mapping[str, Floats], threshold: float) -> Alike:
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


def similarity(one: Record, other: Record, vectors: Mapping[str, Floats]) -> float:
    """Return how similar two notes are, from 0 to 1: by the cosine of their texts if both have vectors, else by common words.

    For notes of several texts, each text is compared with the most similar text of the other note. The similarity is the mean of
    that for one note or for the other, whichever is lower, so a long note is not similar to a short one that is a part of it. By
    words, it is the share of common words in the note that has more words.
    """
    if one.id in vectors and other.id in vectors:
        cosines = vectors[one.id] @ vectors[other.id].T
        return float(max(0.0, min(cosines.max(axis=0).mean(), cosines.max(axis=1).mean())))
    words, others = set(_WORD.findall(normal(one.content))), set(_WORD.findall(normal(other.content)))
    most = max(len(words), len(others))
    return len(words & others) / most if most else 0.0


async def _vectors(repository: NoteRepository, owner: str, records: Sequence[Record]) -> dict[str, Floats]:
    info = await repository.vectors.checked_info(owner) if repository.embedder is not None else None
    if info is None:
        return {}
    keys = {_storage.vectors_key(owner, info.generation, record.id): record.id for record in records}
    items = await get_many(repository.store, keys)
    found: dict[str, Floats] = {}
    for key, item in items.items():
        words = counts_of_words(item.value, info.dimensions) if info.words else None
        found[keys[key]] = vectors_of_texts(keys[key], item.value, info.dimensions, words)
    return found


async def _merge(repository: NoteRepository, old: Record, record: Record) -> Record:
    """Remove an older note with the same words. The new one gets its metadata, and its importance if that is higher."""
    importance, metadata = max(old.importance, record.importance), {**old.metadata, **record.metadata}
    try:
        if importance != record.importance or metadata != record.metadata:
            merged = replace(
                record, importance=importance, metadata=MappingProxyType(metadata), updated_at=moment(_clock.now())
            )
            record = await repository.replace(record.owner, record, merged, "consolidated: it was said before")
        await repository.retire(record.owner, old, "consolidated: it was said again", record.id)
    except ConflictError:  # one of them was changed meanwhile, so they are not the same any more
        return await repository.get(record.owner, record.id) or record
    return record


def _fitting(record: Record, near: Sequence[Record]) -> list[Record]:
    """Return the notes that can be shown in full, as many as fit."""
    left = _TOLD - len(record.content)
    found: list[Record] = []
    for other in near:
        if len(other.content) <= left:
            found.append(other)
            left -= len(other.content)
    return found


def _refused(plan: _prompts.ConsolidationPlan, notes: Mapping[int, Record]) -> str:
    """Return why a plan cannot be carried out, without any text of a note; empty if it can."""
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
                _validation.content(action.content)
            except NoteError:
                return "the plan would change a note to a text that cannot be kept"
    return ""


async def _applied(repository: NoteRepository, plan: _prompts.ConsolidationPlan, notes: Mapping[int, Record]) -> Record:
    """Carry a plan out. Changes come before removals, so that nothing is lost if it is interrupted."""
    now = moment(_clock.now())
    trust = least_trust(record.trust for record in notes.values())
    kept = notes[0]
    for action in plan.actions:
        old = notes[action.number]
        content = (action.content or "").strip()
        if action.action == "update" and content != old.content:
            new = replace(old, content=content, trust=trust, updated_at=now)
            changed = await repository.replace(old.owner, old, new, _reason(action))
            kept = changed if action.number == 0 else kept
    for action in plan.actions:
        if action.action == "delete":
            await repository.retire(kept.owner, notes[action.number], _reason(action), kept.id)
    return kept


def _reason(action: _prompts.Action) -> str:
    reason = " ".join((action.reason or "").split())[:_REASON]
    return f"consolidated: {reason}" if reason else "consolidated"
