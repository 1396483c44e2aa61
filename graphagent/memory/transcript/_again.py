"""Looks up facts and notes in a transcript again: some may have been forgotten since they were read."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from graphagent.llm import Message
from graphagent.memory._blocks import Known, KnownFact, KnownMessage, KnownNote
from graphagent.memory._references import KINDS, shortened_note
from graphagent.memory.steps._types import Step, by_class
from graphagent.memory.transcript._fields import form_of
from graphagent.memory.transcript._prompt import Prompt, Versions

if TYPE_CHECKING:
    from graphagent.memory.transcript._transcript import Transcript


def known_in(transcripts: Iterable[Transcript]) -> list[Known]:
    """Return the facts and notes in the steps and prompts of transcripts that are stored elsewhere."""
    steps = (step for versions in _versions(transcripts) for step in versions)
    return list({id(known): known for step in steps for known in known_of(step) if known.kept}.values())


def show_again(transcripts: Iterable[Transcript], before: Iterable[Known], after: Iterable[Known]) -> None:
    """Replace the facts and notes that `known_in` returned by those that were looked up again.

    This does not change a transcript: a version refers to the same facts and notes as before.
    """
    pairs = zip(before, map(_as_shown, after), strict=True)
    found = {id(one): two for one, two in pairs if one != two or one.kept != two.kept}
    if not found:
        return
    made: dict[int, tuple[Step, Step]] = {}  # transcripts of branches share objects, and compare them by identity
    for versions in _versions(transcripts):
        for number, step in enumerate(versions):
            if any(id(known) in found for known in known_of(step)):
                if id(step) not in made:
                    made[id(step)] = step, _step(step, found)
                versions.show(number, made[id(step)][1])


def _versions(transcripts: Iterable[Transcript]) -> Iterator[Versions]:
    """Yield the versions of the steps of transcripts, and the versions to which their prompts refer."""
    waiting, seen = [each.versions for each in transcripts], set[int]()
    while waiting:
        versions = waiting.pop()
        if id(versions) not in seen:
            seen.add(id(versions))
            yield versions
            prompts = (getattr(step, "prompt", None) for step in versions)
            waiting += {id(each.versions): each.versions for each in prompts if each is not None}.values()


@by_class
def _fields(kind: type[Step]) -> tuple[str, ...]:
    """Return the names of the fields of a type of steps that may contain facts or notes."""
    holders = (KnownFact, KnownNote, Message, Prompt)
    return tuple(
        name for name, _, _, kinds, items in form_of(kind) if items in holders or not {*kinds}.isdisjoint(holders)
    )


def known_of(step: Step) -> Iterator[Known]:
    """Yield the facts and notes in a step, and in messages of its prompt that belong to no step."""
    for name in _fields(type(step)):
        yield from _known_of(getattr(step, name, None))


def _known_of(value: Any) -> Iterator[Known]:
    if isinstance(value, KnownFact | KnownNote):
        yield value
    elif isinstance(value, KnownMessage):
        yield from value.known
    elif isinstance(value, tuple):
        for each in cast("tuple[object, ...]", value):
            yield from _known_of(each)
    elif isinstance(value, Prompt):
        yield from _known_of(value.parts)


def _step(step: Step, found: Mapping[int, Known]) -> Step:
    changed = copy.copy(step)
    for name in _fields(type(step)):
        value = getattr(step, name, None)
        if any(id(known) in found for known in _known_of(value)):
            object.__setattr__(changed, name, _value(value, found))
    return changed


def _as_shown(known: Known) -> Known:
    return shortened_note(known, known.cut) if isinstance(known, KnownNote) and known.cut else known


def _value(value: Any, found: Mapping[int, Known]) -> Any:
    if isinstance(value, KnownFact | KnownNote):
        return found.get(id(value), value)
    if isinstance(value, KnownMessage):
        return KINDS[type(value.known[0])].message(_value(value.known, found), value.left_out)
    if isinstance(value, tuple):
        return tuple(_value(each, found) for each in cast("tuple[object, ...]", value))
    if isinstance(value, Prompt):
        return Prompt(value.versions, value.rules, value.ranges, value.as_of, _value(value.parts, found))
    return value
