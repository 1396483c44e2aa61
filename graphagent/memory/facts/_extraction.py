"""Extraction of facts from a conversation: the requests to a model, and the facts in its answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from graphagent.llm import Message, OutputFormat
from graphagent.memory._blocks import block
from graphagent.memory.facts._types import Concept, Fact, FactType, MultipleFacts, SingleFact, Subject
from graphagent.memory.steps._types import ActionStep, MessageStep, TaskStep

if TYPE_CHECKING:
    from graphagent.memory.steps._types import Step

MOST_FACTS = 200
"""An answer with more facts than this is a mistake of the model, and none of them is saved."""

_NOT_FACTS = frozenset(
    ("", "-", "?", "n/a", "na", "none", "null", "nil", "unknown", "unclear", "unspecified", "undefined", "not known",
     "not mentioned", "not specified", "not stated", "not provided", "not given", "not available", "not applicable",
     "no information", "no answer", "unbekannt", "inconnu", "desconocido")
)  # fmt: skip

_DETECT = """\
You keep the memory of an assistant. In the conversation below, find lasting facts about these subjects, and about no others:
{subjects}

Give each fact with the name of its subject, a keyword that names its concept (short, lower case, words joined by hyphens, such \
as preferred-language), a description of the concept that does not hold the value, and the value as briefly as it can be said. \
Give one entry for each value. Give only what was said; guess nothing. Leave out passing wishes and questions. Give an empty \
list where there is nothing.{known}"""

_KNOWN = """

Known concepts, whose keywords are to be used again where they fit:
{concepts}"""

_ASK = """\
You keep the memory of an assistant. Answer from the conversation below alone: what is known about {keyword!r}{description}? \
{count} Give only what was said, as briefly as it can be said; guess nothing. Give an empty list where nothing was said."""

_COUNT = {
    FactType.SINGLE: "It has one value: give the last that was said.",
    FactType.MULTIPLE: "It may have several values: give each by itself.",
}


@cache
def _formats() -> tuple[OutputFormat[Any], OutputFormat[Any]]:
    from pydantic import BaseModel, field_validator, model_validator

    class Found(BaseModel):
        """A value that was found."""

        subject: str
        keyword: str
        description: str = ""
        value: str

        @field_validator("value", mode="before")
        @classmethod
        def _as_text(cls, value: object) -> object:
            return str(value) if isinstance(value, int | float) else value

    class Facts(BaseModel):
        """All that was found."""

        facts: list[Found]

        @model_validator(mode="before")
        @classmethod
        def _bare_list(cls, data: object) -> object:
            return {"facts": cast("object", data)} if isinstance(data, list) else data

    class Values(BaseModel):
        """The values of one concept."""

        values: list[str]

        @model_validator(mode="before")
        @classmethod
        def _bare(cls, data: object) -> object:
            return {"values": cast("object", data)} if isinstance(data, list) else data

    return OutputFormat.of(Facts, name="facts"), OutputFormat.of(Values, name="values")


def detection() -> OutputFormat[Any]:
    """Return the output format of an answer with facts about any concept."""
    return _formats()[0]


def answer() -> OutputFormat[Any]:
    """Return the output format of an answer about one concept."""
    return _formats()[1]


def detection_messages(subjects: Iterable[Subject], known: Iterable[Concept], steps: Sequence[Step]) -> list[Message]:
    """Return the messages that ask a model for facts about any concept."""
    about = block("subjects", ({"name": each.name, "description": each.description} for each in subjects))
    concepts = [{"keyword": each.keyword, "description": each.description} for each in known]
    repeated = _KNOWN.format(concepts=block("concepts", concepts)) if concepts else ""
    return [Message.system(_DETECT.format(subjects=about, known=repeated)), Message.user(conversation(steps))]


def answer_messages(concept: Concept, steps: Sequence[Step]) -> list[Message]:
    """Return the messages that ask a model for the values of one concept."""
    description = f" ({concept.description})" if concept.description else ""
    text = _ASK.format(keyword=concept.keyword, description=description, count=_COUNT[concept.fact_type])
    return [Message.system(text), Message.user(conversation(steps))]


def conversation(steps: Iterable[Step]) -> str:
    """Return a conversation as a block of escaped data, without the facts that were loaded into it, because these are known."""
    return block("conversation", (line for step in steps for line in _lines(step) if line["text"].strip()))


def spoken(steps: Iterable[Step]) -> list[str]:
    """Return the texts of a conversation, one for each message."""
    lines = (line for step in steps for line in _lines(step))
    return [f"{line['speaker']}: {line['text']}" for line in lines if line["text"].strip()]


def _lines(step: Step) -> list[dict[str, str]]:
    if isinstance(step, TaskStep):
        return [{"speaker": "user", "text": step.task}] if isinstance(step.task, str) else []
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
    asked = {subject.name.casefold(): subject for subject in subjects}
    concepts = {concept.keyword: concept for concept in known}
    values: dict[tuple[str, str], dict[str, str]] = {}
    dropped = 0
    for each in found:
        name, keyword, value = each.subject.strip().casefold(), each.keyword.strip(), each.value.strip()
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
    values = [value.strip() for value in found if is_fact(value)]
    if len(values) > MOST_FACTS:
        raise ValueError(f"it gave {len(values)} values of {concept.keyword!r}, more than {MOST_FACTS}")
    return fact_of(concept, values) if values else None


def is_fact(value: str) -> bool:
    """Return whether a text is a value, and not a phrase with which models say that they found none."""
    return value.strip().strip(".!").casefold() not in _NOT_FACTS
