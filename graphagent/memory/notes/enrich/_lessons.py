"""Lessons: corrections of outputs by people, saved as notes, and applied to later outputs before people see them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphagent.errors import NoteError, NotePermissionError
from graphagent.memory._note_values import Note
from graphagent.memory.notes import _validation
from graphagent.memory.notes.enrich import _prompts
from graphagent.memory.notes.enrich._model import ModelClient, NoAnswerError
from graphagent.memory.notes.index._duplicates import normal

if TYPE_CHECKING:
    from graphagent.memory._note_values import Record
    from graphagent.memory.notes._view import NoteView
    from graphagent.protocols import Model

CATEGORY = "lesson"
SOURCE = "hitl"
_LESSONS = 20
"""How many lessons are applied at most."""
_MOST = 10
"""How many lessons are learnt from one correction at most."""
_ASKED = 2000
"""How many characters of an output are used to search for lessons."""


async def learn_lessons(view: NoteView, output: str, feedback: str, model: Model, *, run_id: str = "") -> list[Record]:
    """Save general lessons from the words of a person about an output, each as a note with the category `lesson` and the source `hitl`.

    Plain approval has no lessons. If the model fails, there are none either; that is logged and emitted as InferenceFailed.

    Args:
        view: Where lessons are saved, in its first scope.
        output: The output that the person saw.
        feedback: The person's feedback on the output. If it is blank, the model is not asked.
        model: The model that finds the lessons.
        run_id: The run of the output.

    Raises:
        PermissionError: the view is read-only.
        EmbedderError: the vectors of the lessons could not be made.
        StoreError: the lessons could not be saved.
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
        answer = await ModelClient(model, view.tell, view.owner).ask("learn", messages, _prompts.form(_prompts.Lessons))
    except NoAnswerError:
        return []
    there = {normal(each.content) for each in known}
    new: dict[str, str] = {}
    for each in answer.lessons[:_MOST]:
        try:
            lesson = _validation.content(each)
        except NoteError:
            continue
        if normal(lesson) not in there:
            new.setdefault(normal(lesson), lesson)
    notes = [Note(lesson, categories=(CATEGORY,), source=SOURCE) for lesson in new.values()]
    return await view.remember_many(notes, scope=view.scopes[0], trust="inferred", run_id=run_id, infer="never")


async def apply_lessons(view: NoteView, output: str, model: Model) -> str:
    """Return an output to which a model has applied the lessons that concern it; the same output if none does, or the model fails.

    Only lessons that `learn_lessons` saved are applied. If there are none, the model is not asked.

    Raises:
        EmbedderError: the output could not be embedded.
        StoreError: the store cannot be read.
    """
    lessons = await _lessons(view, output)
    if not lessons or not output.strip():
        return output
    messages = _prompts.apply_messages(output, lessons)
    try:
        answer = await ModelClient(model, view.tell, view.owner).ask(
            "learn", messages, _prompts.form(_prompts.Improved)
        )
    except NoAnswerError:
        return output
    return answer.output if answer.changed and (answer.output or "").strip() else output


async def _lessons(view: NoteView, text: str) -> list[Record]:
    """Return the lessons that fit a text best, and then the newest."""
    lessons = view.slice(view.scopes, categories=[CATEGORY])
    found = await lessons.recall(text[:_ASKED], limit=_LESSONS, depth="shallow", source=SOURCE)
    records = [*(match.record for match in found), *await lessons.list_records(limit=_LESSONS)]
    sound = {each.id: each for each in records if each.source == SOURCE and each.trust != "untrusted"}
    return list(sound.values())[:_LESSONS]
