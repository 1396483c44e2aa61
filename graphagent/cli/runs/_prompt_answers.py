"""Asks the questions of a run at the terminal, and reads the typed answers."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from enum import Enum
from functools import partial
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, cast, get_args, get_origin, get_type_hints

import typer

from graphagent.cli import _output
from graphagent.cli._prompts import ask
from graphagent.errors import AnswerError
from graphagent.graph._types import show
from graphagent.llm import Approve, Deny

if TYPE_CHECKING:
    from graphagent.run import Question

_YES, _NO = ("yes", "y", "true"), ("no", "n", "false")
_OF_FORMS: Mapping[str, Any] = {"string": str, "integer": int, "number": float, "boolean": bool}
_NAMED = re.compile(r"(?P<id>[\w/.:-]+?(?P<number>:\d+)?)=")
"""The beginning of an answer that names its question; the id of a node's question has a number."""
_LEFT_OUT = object()


@dataclass(frozen=True, slots=True)
class Part:
    """A field of the dataclass, the model or the form that a question asks for."""

    question: Question
    """A question for this field alone; its id is the name of the field."""
    optional: bool

    @property
    def described(self) -> str:
        """The field with its type, for a person."""
        return f"{self.question.id}: {_shown(self.question.type)}{', may be left out' if self.optional else ''}"


def print_question(question: Question) -> None:
    """Print a question, its subject, and the fields of its answer on standard error."""
    _output.say(f"{question.id}: {question.question}")
    told = isinstance(question.about, str) and question.about in question.question
    if question.about is not None and not told:
        _output.say(f"  about: {_output.shortened(_output.value_text(question.about), 400)}")
    for part in parts_of(question):
        _output.say(f"  {part.described}")


def ask_all(questions: Sequence[Question]) -> dict[str, object]:
    """Ask the person at the terminal. Return the answers by the ids of the questions.

    Raises:
        BadParameter: standard input is not a terminal.
        Exit: the person left.
    """
    if not sys.stdin.isatty():
        ids = ", ".join(each.id for each in questions)
        raise typer.BadParameter(f"pass the answer; open questions: {ids}")
    return {each.id: _ask(each) for each in questions}


def _ask(question: Question) -> object:
    print_question(question)
    parts = parts_of(question)
    while parts:
        given = {
            each.question.id: _read(f"  {each.described}", partial(read_part, each), optional=each.optional)
            for each in parts
        }
        try:
            return question.check({name: each for name, each in given.items() if each is not _LEFT_OUT})
        except AnswerError as error:
            _output.complain(str(error))
    return _read(f"  {wanted(question)}", partial(read_answer, question))


def _read(asked: str, read: Callable[[str], object], *, optional: bool = False) -> object:
    """Return the typed value, asking again until it can be read; `_LEFT_OUT` if an optional value is left out."""
    while True:
        text = ask(asked, optional=optional)
        if optional and not text:
            return _LEFT_OUT
        try:
            return read(text)
        except AnswerError as error:
            _output.complain(str(error))


def read_answers(questions: Sequence[Question], words: Sequence[str]) -> dict[str, object]:
    """Return the answers by the ids of their questions.

    Args:
        questions: The open questions.
        words: `ID=ANSWER` for each, or one answer to the only question.

    Raises:
        AnswerError: An answer does not fit, or may be for several questions.
    """
    given: dict[str, object] = {}
    for word in words:
        fitting = (each for each in questions if word.startswith(f"{each.id}="))
        asked = max(fitting, key=lambda each: len(each.id), default=None)  # an id may be a prefix of another
        if asked is None:
            break
        given[asked.id] = read_answer(asked, word[len(asked.id) + 1 :])
    else:
        return given
    named = _NAMED.match(word)
    unknown = f"there is no open question {named['id']!r}; " if named else ""
    refusal = AnswerError(
        "", f"{unknown}name the question that is answered: {', '.join(f'{each.id}=…' for each in questions)}"
    )
    if given or len(questions) != 1 or (named and named["number"]):
        raise refusal
    try:
        return {questions[0].id: read_answer(questions[0], " ".join(words))}
    except AnswerError:
        if unknown:
            raise refusal from None
        raise


def denied(questions: Sequence[Question], ids: Sequence[str], reason: str) -> dict[str, object]:
    """Return denials with their reason by the ids of the questions; without ids, for the only question.

    Raises:
        AnswerError: No id is given and there are several questions, or an id does not exist.
    """
    open_ = [each.id for each in questions]
    if any(each not in open_ for each in ids) or not (ids or len(open_) == 1):
        raise AnswerError("", f"name the question that is declined, by its id: {', '.join(open_)}")
    return {id_: Deny(reason) for id_ in ids or open_}


def read_answer(question: Question, text: str) -> object:
    """Return a text as the answer to a question.

    Raises:
        AnswerError: The text does not fit the type of the question.
    """
    if question.kind in ("approval", "in_flight"):
        return _verdict(question, text)
    if question.type is str:
        return text
    if _is_form(question):  # a text cannot fill in a form, so it may decline it
        denied = _denial(text)
        if denied is not None:
            return denied
    return _fitting(question, text, f"question {question.id!r} asks for")[1]


def parts_of(question: Question) -> list[Part]:
    """Return the fields of the dataclass, model or form that a question asks for; none for another type."""
    from pydantic import BaseModel

    kind = question.type
    if question.kind != "question":
        return []
    if _has_schema_alone(question):
        schema, needed = question.json_schema, question.json_schema.get("required", ())
        return [
            Part(replace(question, id=name, type=_type_of(each), json_schema=each), name not in needed)
            for name, each in schema.get("properties", {}).items()
            if not isinstance(each, bool)
        ]
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


def _has_schema_alone(question: Question) -> bool:
    return question.type is Any or not isinstance(question.type, type)


def _is_form(question: Question) -> bool:
    return _has_schema_alone(question) and bool(parts_of(question))


def _type_of(schema: Mapping[str, Any]) -> Any:
    """Return the type of a value of a form; Any if it is not a text, a number or a choice."""
    choices = schema.get("enum", [each["const"] for each in schema.get("oneOf", ()) if "const" in each])
    return Literal[tuple(choices)] if choices else _OF_FORMS.get(str(schema.get("type")), Any)


def read_part(part: Part, text: str) -> object:
    """Return a text as JSON data for a field.

    Raises:
        AnswerError: The text does not fit the type of the field.
    """
    asked = part.question
    if asked.type is str:
        return text
    return _fitting(asked, text, f"{asked.id!r} is")[0]


def _fitting(question: Question, text: str, asked: str) -> tuple[object, object]:
    """Return how a text is understood as an answer to a question, and that answer.

    Raises:
        AnswerError: The text does not fit the type of the question.
    """
    refused: AnswerError | None = None
    for candidate in _candidates(question.type, text):
        try:
            return candidate, question.check(candidate)
        except AnswerError as error:
            refused = refused or error
    reasons = "; ".join(refused.problems) if refused is not None and question.type is not bool else ""
    raise AnswerError(question.id, f"{asked} {wanted(question)}{f': {reasons}' if reasons else ''}")


def wanted(question: Question) -> str:
    """Return a description of valid answers, for a person."""
    if question.kind in ("approval", "in_flight"):
        return "yes, no with a reason, or other arguments as JSON" if question.call else "yes, or no with a reason"
    if question.type is bool:
        return "yes or no"
    if _is_form(question):
        return f"a JSON object with {'; '.join(each.described for each in parts_of(question))}"
    if question.kind == "result" or question.type in (None, object) or show(question.type) == "Any":
        return "any text or JSON"
    return "text" if question.type is str else f"{_shown(question.type)}, as JSON or as plain text"


def _shown(kind: object) -> str:
    """Return the name of a type for a person; for an enum, the values of its members."""
    if isinstance(kind, type) and issubclass(kind, Enum):
        return " | ".join(repr(each.value) for each in kind)
    if isinstance(kind, UnionType) or get_origin(kind) is Union:
        return " | ".join(map(_shown, get_args(kind)))
    return show(kind)


def _candidates(kind: object, text: str) -> Iterable[object]:
    """Yield the possible meanings of a text, the most likely first."""
    word = text.strip().lower()
    if kind is not None and word in (*_YES, *_NO) and "bool" in show(kind):
        yield word in _YES
    with suppress(ValueError):
        yield json.loads(text)
    yield text


def _verdict(question: Question, text: str) -> object:
    """Return the decision of a text about a tool call or a value."""
    denied = _denial(text)
    if denied is not None:
        return denied
    if text.strip().rstrip(",:").lower() in _YES:
        return Approve()
    try:
        arguments = json.loads(text)
    except ValueError:
        arguments = None
    if isinstance(arguments, dict) and question.call:
        return Approve(arguments=cast("Mapping[str, object]", arguments))
    raise AnswerError(question.id, f"question {question.id!r} asks for {wanted(question)}")


def _denial(text: str) -> Deny | None:
    head, _, rest = text.strip().partition(" ")
    if head.rstrip(",:").lower() not in _NO:
        return None
    return Deny(rest.strip()) if rest.strip() else Deny()
