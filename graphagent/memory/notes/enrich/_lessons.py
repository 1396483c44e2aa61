"""Lessons: what people say of outputs, kept as notes, and applied to later outputs before people see them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphagent.errors import NoteError, NotePermissionError
from graphagent.memory.notes._types import Note
from graphagent.memory.notes.enrich import _prompts
from graphagent.memory.notes.enrich._model import Asker, NoAnswerError
from graphagent.memory.notes.index import _chunks
from graphagent.memory.notes.index._duplicates import normal

if TYPE_CHECKING:
    from graphagent.memory.notes._types import Record
    from graphagent.memory.notes._view import NoteView
    from graphagent.protocols import Model

CATEGORY = "lesson"
SOURCE = "hitl"
_LESSONS = 20
"""Lessons that are applied at most."""
_MOST = 10
"""Lessons that are learnt of one correction at most."""
_ASKED = 2000
"""Characters of an output by which lessons are searched."""


async def learn_lessons(view: NoteView, output: str, feedback: str, model: Model, *, run_id: str = "") -> list[Record]:
    """Learn of what a person said of an output: keep general lessons, each a note with the category `lesson` and the source `hitl`.

    Plain approval teaches none. A model that fails teaches none either, which is logged and told as InferenceFailed.

    Args:
        view: Where lessons are kept, in its first scope.
        output: What the person saw.
        feedback: What the person said of it; nothing is asked where it is blank.
        model: Takes the lessons from it.
        run_id: The run in which that was.

    Raises:
        PermissionError: the view is read-only.
        EmbedderError: the vectors of the lessons could not be made.
        StoreError: they could not be kept.
    """
    if view.read_only:
        raise NotePermissionError(
            "lessons cannot be kept in a read-only view; take notes.slice(…, read_only=False), or the notes"
        )
    if not feedback.strip():
        return []
    known = await _lessons(view, feedback)
    messages = _prompts.learn_messages(output, feedback, known)
    try:
        answer = await Asker(model, view.tell).ask("learn", messages, _prompts.form(_prompts.Lessons))
    except NoAnswerError:
        return []
    there = {normal(each.content) for each in known}
    new: dict[str, str] = {}
    for each in answer.lessons[:_MOST]:
        try:
            lesson = _chunks.checked(each)
        except NoteError:
            continue
        if normal(lesson) not in there:
            new.setdefault(normal(lesson), lesson)
    notes = [Note(lesson, categories=(CATEGORY,), source=SOURCE) for lesson in new.values()]
    return await view.remember_many(notes, scope=view.scopes[0], trust="inferred", run_id=run_id, infer="never")


async def apply_lessons(view: NoteView, output: str, model: Model) -> str:
    """Give an output with the lessons applied to it that concern it; without any, and where the model fails, as it is.

    Only lessons that `learn_lessons` kept count, and no model is asked where there are none.

    Raises:
        EmbedderError: the output could not be embedded.
        StoreError: the store cannot be read.
    """
    lessons = await _lessons(view, output)
    if not lessons or not output.strip():
        return output
    messages = _prompts.apply_messages(output, lessons)
    try:
        answer = await Asker(model, view.tell).ask("learn", messages, _prompts.form(_prompts.Improved))
    except NoAnswerError:
        return output
    return answer.output if answer.changed and (answer.output or "").strip() else output


async def _lessons(view: NoteView, text: str) -> list[Record]:
    """Give the lessons that fit a text best, filled up with the newest."""
    lessons = view.slice(view.scopes, categories=[CATEGORY])
    found = await lessons.recall(text[:_ASKED], limit=_LESSONS, depth="shallow", source=SOURCE)
    records = [*(match.record for match in found), *await lessons.list_records(limit=_LESSONS)]
    sound = {each.id: each for each in records if each.source == SOURCE and each.trust != "untrusted"}
    return list(sound.values())[:_LESSONS]
