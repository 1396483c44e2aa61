"""What people type as answers, read as the questions of a run want them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, cast, get_type_hints

from pydantic import BaseModel

from graphagent.errors import AnswerError
from graphagent.graph._internal import show
from graphagent.llm import Approve, Deny

if TYPE_CHECKING:
    from graphagent.run import Question

_YES, _NO = ("yes", "y", "true"), ("no", "n", "false")


def read_answers(questions: Sequence[Question], words: Sequence[str]) -> dict[str, object]:
    """Give the answers that words hold, by the ids of the questions: `ID=ANSWER` for each, or one answer to the only question.

    Raises:
        AnswerError: an answer does not fit, or it is not clear which question it is for.
    """
    given: dict[str, object] = {}
    for word in words:
        named = (each for each in questions if word.startswith(f"{each.id}="))
        asked = max(named, key=lambda each: len(each.id), default=None)
        if asked is None:
            break
        given[asked.id] = read_answer(asked, word[len(asked.id) + 1 :])
    else:
        return given
    if given or len(questions) != 1:
        ids = ", ".join(f"{each.id}=…" for each in questions)
        raise AnswerError("", f"say which question is answered: {ids}")
    return {questions[0].id: read_answer(questions[0], " ".join(words))}


def read_answer(question: Question, text: str) -> object:
    """Give a text as the answer to a question.

    Raises:
        AnswerError: it is not of the question's type.
    """
    if question.kind in ("approval", "in_flight"):
        return _verdict(question, text)
    if question.type is str:
        return text
    for candidate in _candidates(question.type, text):
        try:
            return question.check(candidate)
        except AnswerError:
            pass
    raise AnswerError(question.id, f"question {question.id!r} asks for {wanted(question)}")


@dataclass(frozen=True, slots=True)
class Part:
    """A field of the dataclass, or the model, that a question asks for."""

    question: Question
    """Asks for this field alone; its id is the field's name."""
    optional: bool

    @property
    def described(self) -> str:
        """The field with its type, as a person is told of it."""
        return f"{self.question.id}: {show(self.question.type)}{', may be left out' if self.optional else ''}"


def parts_of(question: Question) -> list[Part]:
    """Return the fields of the dataclass or the model that a question asks for; none where it asks for something else."""
    kind = question.type
    if question.kind != "question" or not isinstance(kind, type):
        return []
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        named = [
            (each.name, hints[each.name], each.default is not MISSING or each.default_factory is not MISSING)
            for each in fields(kind)
            if each.init
        ]
    elif issubclass(kind, BaseModel):
        named = [
            (each.alias or name, each.annotation, not each.is_required()) for name, each in kind.model_fields.items()
        ]
    else:
        return []
    return [Part(replace(question, id=name, type=hint), optional) for name, hint, optional in named]


def read_part(part: Part, text: str) -> object:
    """Return a text as JSON data for a field.

    Raises:
        AnswerError: it is not of the field's type.
    """
    asked = part.question
    if asked.type is str:
        return text
    for candidate in _candidates(asked.type, text):
        with suppress(AnswerError):
            asked.check(candidate)
            return candidate
    raise AnswerError(asked.id, f"{asked.id!r} is {wanted(asked)}")


def wanted(question: Question) -> str:
    """Say what an answer may be."""
    if question.kind in ("approval", "in_flight"):
        return "yes, no with a reason, or other arguments as JSON"
    if question.type is bool:
        return "yes or no"
    if _is_open(question):
        return "any text or JSON"
    return "text" if question.type is str else f"{show(question.type)}, as JSON or as plain text"


def _is_open(question: Question) -> bool:
    return question.kind == "result" or question.type in (None, object) or show(question.type) == "Any"


def _candidates(kind: object, text: str) -> Iterable[object]:
    word = text.strip().lower()
    if kind is not None and word in (*_YES, *_NO) and "bool" in show(kind):
        yield word in _YES
    with suppress(ValueError):
        yield json.loads(text)
    yield text


def _verdict(question: Question, text: str) -> object:
    head, _, rest = text.strip().partition(" ")
    word = head.rstrip(",:").lower()
    if word in _YES and not rest:
        return Approve()
    if word in _NO:
        return Deny(rest.strip()) if rest.strip() else Deny()
    try:
        arguments = json.loads(text)
    except ValueError:
        arguments = None
    if isinstance(arguments, dict):
        return Approve(arguments=cast("Mapping[str, object]", arguments))
    raise AnswerError(question.id, f"question {question.id!r} asks for {wanted(question)}")
