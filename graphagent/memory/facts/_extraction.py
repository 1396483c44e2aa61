"""Extraction of facts from a conversation: the requests to a model, and the facts in its answers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, tzinfo
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from graphagent import _clock
from graphagent.llm import Message, OutputFormat
from graphagent.memory._blocks import block
from graphagent.memory.facts._types import Concept, Fact, FactType, MultipleFacts, SingleFact, Subject
from graphagent.memory.steps._types import ActionStep, MessageStep, TaskStep

if TYPE_CHECKING:
    from graphagent.memory.steps._types import Step

MOST_FACTS = 200
"""An answer with more facts than this is a mistake of the model, and none of them is saved."""

USER = Subject("user", "the user: name, preferences, history, contact details")
"""Of whom facts are learned where neither the agent nor a node of its strategy names a subject."""

_NOT_FACTS = frozenset(
    ("", "-", "?", "n/a", "na", "null", "nil", "unknown", "unclear", "unspecified", "undefined", "not known",
     "not mentioned", "not specified", "not stated", "not provided", "not given", "not available", "not applicable",
     "no information", "no answer", "unbekannt", "inconnu", "desconocido")
)  # fmt: skip
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December",
)  # fmt: skip

_TODAY = """

Today is {day}. Where a value depends on the day, such as "tomorrow", "in two weeks" or "last year", give the date or the year instead.\
{lines}"""

_LINES = """ What has a day beside it was said on that day, and not today."""

_DETECT = """\
You keep the memory of an assistant. In the conversation below, find lasting facts about these subjects, and about no others:
{subjects}

Give each fact with the name of its subject, a keyword that names its concept (short, lower case, words joined by hyphens, such \
as preferred-language), a description of the concept that does not hold the value, and the value as briefly as it can be said. \
Give one entry for each value. Give only what was said; guess nothing. Leave out passing wishes and questions. Give an empty \
list where there is nothing.{today}{known}"""

_KNOWN = """

Known concepts, whose keywords are to be used again where they fit:
{concepts}"""

_ASK = """\
You keep the memory of an assistant. Answer from the conversation below alone: what is known about {keyword!r}{description}? \
{count} Give only what was said, as briefly as it can be said; guess nothing. Give an empty list where nothing was said.{today}"""

_COUNT = {
    FactType.SINGLE: "It has one value: give the last that was said.",
    FactType.MULTIPLE: "It may have several values: give each by itself.",
}


@cache
def _formats() -> tuple[
    OutputFormat[Any], OutputFormat[Any]
]:  # long because pydantic is imported when it is first needed
    from pydantic import BaseModel, PrivateAttr, ValidationError, field_validator, model_validator

    class Found(BaseModel):
        """A value that was found."""

        subject: str
        keyword: str
        description: str = ""
        value: str

        @field_validator("value", mode="before")
        @classmethod
        def _as_text(cls, value: object) -> object:
            return _text_of(value)

    class Answer(BaseModel):
        """An answer whose sound entries count, and whose others are counted. One that has others alone does not fit."""

        _malformed: int = PrivateAttr(default=0)

        @property
        def malformed(self) -> int:
            """How many entries had another form."""
            return self._malformed

        @model_validator(mode="wrap")
        @classmethod
        def _sound(cls, data: object, handler: Callable[[object], Any]) -> Any:
            [name] = cls.model_fields
            fields: dict[str, object] = cast("dict[str, object]", data) if isinstance(data, dict) else {name: data}
            given = fields.get(name)
            if not isinstance(given, list):
                return handler(fields)
            entries = [each for entry in cast("list[object]", given) for each in _spread(entry)]
            sound, error = list[object](), None
            for entry in entries:
                try:
                    sound += getattr(handler({name: [entry]}), name)
                except ValidationError as problem:
                    error = problem
            if error is not None and not sound:
                raise error
            answer = handler({name: sound})
            answer._malformed = len(entries) - len(sound)  # noqa: SLF001  of this class
            return answer

    class Facts(Answer):
        """All that was found."""

        facts: list[Found]

    class Values(Answer):
        """The values of one concept."""

        values: list[str]

        @field_validator("values", mode="before")
        @classmethod
        def _as_texts(cls, values: object) -> object:
            return [_text_of(value) for value in cast("list[object]", values)] if isinstance(values, list) else values

    return OutputFormat.of(Facts, name="facts"), OutputFormat.of(Values, name="values")


def _text_of(value: object) -> object:
    """Return a number as text, and anything else as it is."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value) if isinstance(value, int | float) else value


def _spread(entry: object) -> list[object]:
    """Return an entry with several values as entries with one each, and any other as it is."""
    if isinstance(entry, dict):
        fields = cast("dict[str, object]", entry)
        values = fields.get("value")
        if isinstance(values, list):
            return [{**fields, "value": value} for value in cast("list[object]", values)]
    return [entry]


def detection() -> OutputFormat[Any]:
    """Return the output format of an answer with facts about any concept."""
    return _formats()[0]


def answer() -> OutputFormat[Any]:
    """Return the output format of an answer about one concept."""
    return _formats()[1]


def _day(milliseconds: int, zone: tzinfo | None) -> str:
    """Return a day in words, such as `Tuesday, 31 March 2026 (2026-03-31)`. The zone is by default that of the machine."""
    day = datetime.fromtimestamp(milliseconds / 1000, UTC).astimezone(zone)
    return f"{_DAYS[day.weekday()]}, {day.day} {_MONTHS[day.month - 1]} {day.year} ({day.date().isoformat()})"


def _times(steps: Sequence[Step]) -> list[int | None]:
    """Return when each step was said, in milliseconds UTC: a task of a run was said when the turn after it began."""
    found: list[int | None] = []
    following: int | None = None
    for step in reversed(steps):
        time = following
        if isinstance(step, TaskStep | MessageStep):
            time = following = following if step.at is None else step.at
        elif isinstance(step, ActionStep) and step.timing is not None:
            time, following = step.timing.ended, step.timing.started
        found.append(time)
    return found[::-1]


def detection_messages(
    subjects: Iterable[Subject], known: Iterable[Concept], steps: Sequence[Step], zone: tzinfo | None = None
) -> list[Message]:
    """Return the messages that ask a model for facts about any concept, in a conversation."""
    about = block("subjects", ({"name": each.name, "description": each.description} for each in subjects))
    concepts = [{"keyword": each.keyword, "description": each.description} for each in known]
    repeated = _KNOWN.format(concepts=block("concepts", concepts)) if concepts else ""
    today, said = _conversation(steps, zone)
    return [Message.system(_DETECT.format(subjects=about, today=today, known=repeated)), Message.user(said)]


def answer_messages(concept: Concept, steps: Sequence[Step], zone: tzinfo | None = None) -> list[Message]:
    """Return the messages that ask a model for the values of one concept, in a conversation."""
    description = f" ({concept.description})" if concept.description else ""
    today, said = _conversation(steps, zone)
    text = _ASK.format(keyword=concept.keyword, description=description, count=_COUNT[concept.fact_type], today=today)
    return [Message.system(text), Message.user(said)]


def _conversation(steps: Sequence[Step], zone: tzinfo | None) -> tuple[str, str]:
    """Return the day of a conversation, as the model is told it, and the conversation as a block of escaped data.

    The day is that of its last turn, since it may be learned from days later, or else the current one, also if the last task has no
    turn yet. What was said on another day has that beside it. Facts that were loaded into the conversation are left out, because
    these are known.
    """
    times = _times(steps)
    known = [place for place, time in enumerate(times) if time is not None]
    asked_now = not known or any(isinstance(step, TaskStep) for step in steps[known[-1] + 1 :])
    today = _day(_clock.now() if asked_now else max(time for time in times if time is not None), zone)
    lines: list[dict[str, str]] = []
    for step, time in zip(steps, times, strict=True):
        day = today if time is None else _day(time, zone)
        beside = {} if day == today else {"day": day}
        lines += [beside | line for line in _lines(step) if line["text"].strip()]
    told = _TODAY.format(day=today, lines=_LINES if any("day" in line for line in lines) else "")
    return told, block("conversation", lines)


def spoken(steps: Iterable[Step]) -> list[str]:
    """Return the texts of a conversation, one for each message."""
    lines = (line for step in steps for line in _lines(step))
    return [f"{line['speaker']}: {line['text']}" for line in lines if line["text"].strip()]


def _lines(step: Step) -> list[dict[str, str]]:
    if isinstance(step, TaskStep):
        said = step.task.text if isinstance(step.task, Message) else step.task
        return [{"speaker": "user", "text": said}] if isinstance(said, str) else []
    if isinstance(step, MessageStep):
        return [{"speaker": step.message.role, "text": step.message.text}]
    if isinstance(step, ActionStep):
        return [
            {"speaker": "assistant", "text": step.model_output or ""},
            {"speaker": "tool", "text": step.observations or ""},
        ]
    return []


def facts_of(
    found: Iterable[Any], subjects: Iterable[Subject], known: Iterable[Concept]
) -> tuple[list[tuple[Fact, Subject]], int]:
    """Return the facts of an answer and the number of entries that were dropped. Values of one subject and keyword are one fact.

    Entries are dropped if their subject was not asked for, or if no fact can have their keyword or value.
    """
    asked = {_subject_name(subject.name): subject for subject in subjects}
    concepts = {concept.keyword: concept for concept in known}
    values: dict[tuple[str, str], dict[str, str]] = {}
    dropped = 0
    for each in found:
        name, keyword, value = _subject_name(each.subject), each.keyword.strip(), each.value.strip()
        if name not in asked:
            dropped += 1
        elif is_fact(value):
            values.setdefault((name, keyword), {}).setdefault(value, each.description.strip())
    facts: list[tuple[Fact, Subject]] = []
    for (name, keyword), by_value in values.items():
        kind = FactType.SINGLE if len(by_value) == 1 else FactType.MULTIPLE
        try:
            concept = concepts.get(keyword) or Concept(keyword, next(iter(by_value.values())), kind)
            facts.append((fact_of(concept, list(by_value)), asked[name]))
        except ValueError:
            dropped += len(by_value)
    return facts, dropped


def _subject_name(name: str) -> str:
    """Return the name of a subject as names are compared: models write `the user` for `user`, and `home-server` for `home server`."""
    words = " ".join(re.split(r"[\s_-]+", name.casefold().strip()))
    return words.removeprefix("the ")


def fact_of(concept: Concept, values: Sequence[str]) -> Fact:
    """Return values as a fact about a concept: the last value, if the concept has only one."""
    if concept.fact_type is FactType.SINGLE:
        return SingleFact(concept, values[-1])
    return MultipleFacts(concept, tuple(values))


def found_fact(concept: Concept, found: Iterable[str]) -> Fact | None:
    """Return the values that a model found for a concept as a fact; None if there are none.

    Raises:
        ValueError: they make no fact. The text contains no value.
    """
    # Asked for one concept, a model that found nothing says "none"; among facts that it was free to give, "none" is a value.
    values = [value.strip() for value in found if is_fact(value) and value.strip().strip(".!").casefold() != "none"]
    if len(values) > MOST_FACTS:
        raise ValueError(f"it gave {len(values)} values of {concept.keyword!r}, more than {MOST_FACTS}")
    return fact_of(concept, values) if values else None


def is_fact(value: str) -> bool:
    """Return whether a text is a value, and not a phrase with which models say that they found none."""
    return value.strip().strip(".!").casefold() not in _NOT_FACTS
