"""Extraction of facts from a conversation: the requests to a model, and the facts in its answers.

The file is long because a question to the model and the code that reads its answer change together.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from graphagent import _clock
from graphagent.llm import Message, OutputFormat
from graphagent.memory._blocks import block
from graphagent.memory.facts._types import (
    Concept,
    Fact,
    FactType,
    FactVersion,
    MultipleFacts,
    SingleFact,
    Source,
    Subject,
    Withdrawal,
    least_trust,
)
from graphagent.memory.steps._trust import is_less
from graphagent.memory.steps._types import ActionStep, MessageStep, TaskStep

if TYPE_CHECKING:
    from graphagent.memory.steps._types import Step

MOST_FACTS = 200
"""An answer with more facts than this counts as a mistake of the model, and none of its facts is saved."""

USER = Subject("user", "the user: name, preferences, history, contact details")
"""The subject of learned facts if neither the agent nor a node of its strategy names a subject."""

_NOT_FACTS = frozenset(
    ("", "-", "?", "n/a", "na", "null", "nil", "unknown", "unclear", "unspecified", "undefined", "not known",
     "not mentioned", "not specified", "not stated", "not provided", "not given", "not available", "not applicable",
     "no information", "no answer", "unbekannt", "inconnu", "desconocido")
)  # fmt: skip
_NO_END = frozenset(
    (
        "none",
        "now",
        "present",
        "ongoing",
        "current",
        "currently",
        "open",
        "never",
        "forever",
        "indefinite",
        "indefinitely",
    )
)
"""Phrases that models write instead of a missing date."""
_LAST_YEAR = "9999"
"""The year that means "without an end", as in databases."""
_ALIKE = str.maketrans("‘’‚‛ʼ“”„‟«»‐–—−", "'" * 5 + '"' * 6 + "-" * 4)
"""Quotation marks and dashes that models interchange when they quote."""
_DAY = re.compile(r"(\d{4})(?:[-/.](\d\d?)(?:[-/.](\d\d?)Z?)?)?", re.ASCII)
_NEAR = {"yesterday": -1, "today": 0, "tomorrow": 1}
"""Names of days that models copy from the prompt, with their distance from today in days."""
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d", re.ASCII)
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
as preferred-language), a description of the concept that does not hold the value, the value as briefly as it can be said, and as \
its quote the few words that say it, exactly as they stand in the conversation. {dates} Give one entry for each value. Give only what was said; guess nothing. Leave out passing wishes and questions. Give an empty \
list where there is nothing.{today}{known}"""

_DATES = """\
Where the conversation says so ("since May", "until Friday"), give as valid_from the first and as valid_to the last day on which it is \
true, as YYYY-MM-DD, and else nothing. Of what is no longer true ("I used to", "not any more"), valid_to is its last day, or today if \
that was not said."""

_KNOWN = """

Known concepts, whose keywords are to be used again where they fit, and what is known of those with several values. Give again what is \
no longer true of that, with its valid_to, and nothing else of it:
{concepts}"""

_ASK = """\
You keep the memory of an assistant. Answer from the conversation below alone: what is known about {keyword!r}{description}? \
{count} Give each value as briefly as it can be said, with the few words that say it as its quote, exactly as they stand in the \
conversation. {dates} Give only what was said; guess nothing. Give an empty list where nothing was said.{today}{known}"""

_KNOWN_VALUES = """

What is known, of which only what is no longer true is to be given again, with its valid_to:
{values}"""

_COUNT = {
    FactType.SINGLE: "It has one value: give the last that the user said, or else the last that was said.",
    FactType.MULTIPLE: "It may have several values: give each by itself.",
}


@cache
def _formats() -> tuple[
    OutputFormat[Any], OutputFormat[Any]
]:  # long because pydantic is imported when it is first needed
    from pydantic import BaseModel, PrivateAttr, ValidationError, field_validator, model_validator

    class About(BaseModel):
        """The subject and the concept of a value."""

        subject: str
        keyword: str
        description: str = ""

    class Value(BaseModel):
        """A value that was found. A bare text, or one without a quote, is accepted too."""

        value: str
        quote: str = ""
        valid_from: str = ""
        valid_to: str = ""

        @model_validator(mode="before")
        @classmethod
        def _alone(cls, data: object) -> object:
            return {"value": data} if isinstance(data, str | int | float) else data

        @field_validator("value", mode="before")
        @classmethod
        def _as_text(cls, value: object) -> object:
            return _text_of(value)

        @field_validator("quote", "valid_from", "valid_to", mode="before")
        @classmethod
        def _if_given(cls, text: object) -> object:
            return _only_text_of(text)

    class Found(Value, About):
        """A value with its subject and concept."""

    class Answer(BaseModel):
        """An answer. Its valid entries are used, and the malformed ones are counted. An answer with no other entries is invalid."""

        _malformed: int = PrivateAttr(default=0)

        @property
        def malformed(self) -> int:
            """How many entries were malformed."""
            return self._malformed

        @property
        def entries(self) -> list[Any]:
            """The valid entries."""
            [name] = type(self).model_fields
            entries: list[Any] = getattr(self, name)
            return entries

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
        """All facts that were found."""

        facts: list[Found]

    class Values(Answer):
        """The values of one concept."""

        values: list[Value]

    return OutputFormat.of(Facts, name="facts"), OutputFormat.of(Values, name="values")


def _text_of(value: object) -> object:
    """Return a number as text, and anything else as it is."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value) if isinstance(value, int | float) else value


def _only_text_of(given: object) -> str:
    """Return the text in a place for one text, which models also write as a number, as null, or as a list of one."""
    only: object = given
    if isinstance(given, list):
        several = cast("list[object]", given)
        only = several[0] if len(several) == 1 else str(several)
    return "" if only is None else only if isinstance(only, str) else str(only)


def _spread(entry: object) -> list[object]:
    """Return an entry with several values as entries with one value each, and any other entry unchanged."""
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
    """Return a day in words, such as `Tuesday, 31 March 2026 (2026-03-31)`. Without a zone, the machine's is used."""
    day = datetime.fromtimestamp(milliseconds / 1000, UTC).astimezone(zone)
    return f"{_DAYS[day.weekday()]}, {day.day} {_MONTHS[day.month - 1]} {day.year} ({day.date().isoformat()})"


def _times(steps: Sequence[Step]) -> list[int | None]:
    """Return the time of each step, in milliseconds UTC. The time of a run's task is when the next turn began, or else now."""
    found: list[int | None] = []
    following: int | None = None
    for step in reversed(steps):
        time = following
        if isinstance(step, TaskStep | MessageStep):
            time = following = following if step.at is None else step.at
            if time is None and isinstance(step, TaskStep):
                time = following = _clock.now()
        elif isinstance(step, ActionStep) and step.timing is not None:
            time, following = step.timing.ended, step.timing.started
        found.append(time)
    return found[::-1]


@dataclass(frozen=True, slots=True)
class Line:
    """A message of a conversation, as shown to a model that looks for facts."""

    speaker: str
    text: str
    step: int
    """The place of its step."""
    trust: str
    """The trust of facts found in the message. The result of a tool, and all that was said in knowledge of it, is untrusted."""
    time: int | None
    """When the message was sent, in milliseconds UTC."""
    compared: str = field(init=False, repr=False)
    """The text in the form in which quotes are compared with it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "compared", as_compared(self.text))


def lines_of(steps: Sequence[Step], made_of: Sequence[str], first: int = 0) -> list[Line]:
    """Return the messages of a conversation, without the facts that were loaded into it, since these are known.

    Args:
        steps: The conversation.
        made_of: For each step, the highest trust that its words can have.
        first: The place of the first step.
    """
    found: list[Line] = []
    for place, (step, most, time) in enumerate(zip(steps, made_of, _times(steps), strict=True), first):
        for speaker, text in _said(step):
            level = least_trust((most, "untrusted" if speaker == "tool" else "inferred"))
            if text.strip():
                found.append(Line(speaker, text, place, level, time))
    return found


def quoted(quote: str, lines: Iterable[Line]) -> Line | None:
    """Return the line that contains a quote: of several, the most trusted, and of these the last. Case and spaces are ignored."""
    words = as_compared(quote).strip("\"'. ")
    there = [line for line in lines if words and words in line.compared]
    return max(there, key=lambda line: (line.trust == "inferred", line.step), default=None)


def quotes(entry: Any, lines: Sequence[Line]) -> bool:
    """Return whether lines contain the quote of an entry, or its value."""
    return any(quoted(words, lines) is not None for words in (entry.quote, entry.value))


def as_compared(text: str) -> str:
    """Return a text for comparison, which ignores case, spaces, the form of Unicode, and the kinds of quotation marks and dashes."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().translate(_ALIKE).split())


def detection_messages(
    subjects: Iterable[Subject], known: Iterable[Fact], lines: Sequence[Line], zone: tzinfo | None = None
) -> list[Message]:
    """Return the messages that ask a model for facts about any concept, in a conversation."""
    about = block("subjects", ({"name": each.name, "description": each.description} for each in subjects))
    concepts = [
        {
            "keyword": fact.concept.keyword,
            "description": fact.concept.description,
            "values": fact.values if isinstance(fact, MultipleFacts) else None,
        }
        for fact in known
    ]
    repeated = _KNOWN.format(concepts=block("concepts", concepts)) if concepts else ""
    today, said = _conversation(lines, zone)
    text = _DETECT.format(subjects=about, dates=_DATES, today=today, known=repeated)
    return [Message.system(text), Message.user(said)]


def answer_messages(
    concept: Concept, lines: Sequence[Line], zone: tzinfo | None = None, known: Iterable[str] = ()
) -> list[Message]:
    """Return the messages that ask a model for the values of one concept, in a conversation; `known` are values to withdraw."""
    values = [{"value": value} for value in known]
    text = _ASK.format(
        keyword=concept.keyword,
        description=f" ({concept.description})" if concept.description else "",
        count=_COUNT[concept.fact_type],
        dates=_DATES,
        today=(conversation := _conversation(lines, zone))[0],
        known=_KNOWN_VALUES.format(values=block("known", values)) if values else "",
    )
    return [Message.system(text), Message.user(conversation[1])]


def _conversation(lines: Sequence[Line], zone: tzinfo | None) -> tuple[str, str]:
    """Return the day of a conversation, as told to the model, and the conversation as a block of escaped data.

    The day is that of the last message, since learning may happen days later. Messages of another day have that day beside them.
    """
    times = [line.time for line in lines if line.time is not None]
    today = _day(max(times) if times else _clock.now(), zone)
    shown: list[dict[str, str]] = []
    for line in lines:
        day = today if line.time is None else _day(line.time, zone)
        shown.append(({} if day == today else {"day": day}) | {"speaker": line.speaker, "text": line.text})
    told = _TODAY.format(day=today, lines=_LINES if any("day" in each for each in shown) else "")
    return told, block("conversation", shown)


def looks(lines: Sequence[Line]) -> list[tuple[Sequence[Line], str]]:
    """Return the parts of a conversation that a model searches, each with the trust of facts found there.

    That is the least trust in the part, whatever source the model claims. So the model searches the whole conversation, and, if
    only a part of it can be trusted, this part again by itself. Then no text can pass for the words of a person, and a person's
    words count whatever a tool returned.
    """
    if not lines:
        return []
    least = least_trust(line.trust for line in lines)
    said = [line for line in lines if is_less(least, line.trust)]
    return [(lines, least), *([(said, least_trust(line.trust for line in said))] if said else [])]


def spoken(lines: Iterable[Line]) -> str:
    """Return a conversation as one text."""
    return "\n".join(f"{line.speaker}: {line.text}" for line in lines)


def _said(step: Step) -> list[tuple[str, str]]:
    """Return the speakers and texts of a step."""
    if isinstance(step, TaskStep):
        said = step.task.text if isinstance(step.task, Message) else step.task
        return [("user", said)] if isinstance(said, str) else []
    if isinstance(step, MessageStep):
        return [(step.message.role, step.message.text)]
    if isinstance(step, ActionStep):
        return [("assistant", step.model_output or ""), ("tool", step.observations or "")]
    return []


def facts_of(
    found: Iterable[Any],
    subjects: Iterable[Subject],
    known: Iterable[Concept],
    source_of: Callable[[str], Source],
    dates: Dates,
) -> tuple[list[tuple[FactVersion, Subject]], int]:
    """Return the facts and withdrawals of an answer, and the number of dropped entries.

    An entry is dropped if its subject was not asked for, or if its keyword or value is not valid in a fact. Values of one subject
    and keyword without times become one fact. `source_of` returns the source for a quote.
    """
    asked = {_subject_name(subject.name): subject for subject in subjects}
    concepts = {concept.keyword: concept for concept in known}
    values: dict[tuple[str, str], dict[object, tuple[Any, dict[str, datetime]]]] = {}
    dropped = 0
    for each in found:
        name, keyword, value = _subject_name(each.subject), each.keyword.strip(), each.value.strip()
        if name not in asked:
            dropped += 1
        elif is_fact(value):
            times = dates.of(each)
            values.setdefault((name, keyword), {}).setdefault((value, *sorted(times.items())), (each, times))
    facts: list[tuple[FactVersion, Subject]] = []
    for (name, keyword), several in values.items():
        entries = list(several.values())
        lasting = [times for _, times in entries if not dates.ended(times)]
        kind = FactType.MULTIPLE if len(lasting) > 1 and not any(lasting) else FactType.SINGLE
        try:
            concept = concepts.get(keyword) or Concept(keyword, "", kind)
            if not concept.description:
                concept = Concept(keyword, entries[0][0].description.strip(), concept.fact_type)
            facts += [(fact, asked[name]) for fact in _versions(concept, entries, source_of, dates)]
        except ValueError:
            dropped += len(entries)
    return facts, dropped


def without(entries: Sequence[Any], said: Sequence[Any]) -> list[Any]:
    """Return the entries whose subject and value do not occur in `said`."""

    def name(entry: Any) -> tuple[str, str]:
        return _subject_name(getattr(entry, "subject", "")), as_compared(entry.value)

    known = set(map(name, said))
    return [entry for entry in entries if name(entry) not in known]


def _subject_name(name: str) -> str:
    """Return a subject's name for comparison: models write `the user` for `user`, and `home-server` for `home server`."""
    words = " ".join(re.split(r"[\s_-]+", name.casefold().strip()))
    return words.removeprefix("the ")


class Dates:
    """Reads the dates of answers. Days are those of a time zone, by default the machine's.

    Args:
        lines: The conversation; the day of its last message is `today`.
        zone: The time zone.
    """

    def __init__(self, lines: Iterable[Line], zone: tzinfo | None) -> None:
        said = max((line.time for line in lines if line.time is not None), default=None)
        self._zone = zone
        self._now = datetime.fromtimestamp((_clock.now() if said is None else said) / 1000, UTC).astimezone(zone)
        self.unread = 0
        """How many dates could not be read."""

    def of(self, entry: Any) -> dict[str, datetime]:
        """Return `valid_from` and `valid_to` of an entry, if given."""
        found: dict[str, datetime] = {}
        for name in ("valid_from", "valid_to"):
            text = getattr(entry, name).strip()
            if text and is_fact(text) and text.casefold() not in _NO_END and not text.startswith(_LAST_YEAR):
                try:
                    found[name] = self._moment(text, last=name == "valid_to")
                except (ValueError, OverflowError):
                    self.unread += 1
        if len(found) == 2 and found["valid_from"] >= found["valid_to"]:
            self.unread += 1
            del found["valid_from"]
        return found

    def ended(self, times: Mapping[str, datetime]) -> bool:
        """Return whether a fact with these times has ended."""
        return "valid_to" in times and times["valid_to"] <= self._now

    def _moment(self, text: str, *, last: bool) -> datetime:
        """Return the beginning of a day, month or year, or with `last`, its end; if today is the last day, the current time."""
        if text.casefold() in _NEAR:
            text = (self._now.date() + timedelta(days=_NEAR[text.casefold()])).isoformat()
        parts = _DAY.fullmatch(text)
        if parts is None:
            if not _TIME.match(text):
                raise ValueError("the text is not a date")
            moment = datetime.fromisoformat(text)
            return moment if moment.tzinfo is not None else self._local(moment)
        year, month, day = (int(part) if part else 0 for part in parts.groups())
        first = datetime(year, month or 1, day or 1)  # noqa: DTZ001  it gets its zone below
        if not last:
            return self._local(first)
        if day and first.date() == self._now.date():
            return self._now
        if day:
            return self._local(first + timedelta(days=1))
        months = year * 12 + (month if month else 12)
        return self._local(first.replace(year=months // 12, month=months % 12 + 1))

    def _local(self, moment: datetime) -> datetime:
        return moment.astimezone() if self._zone is None else moment.replace(tzinfo=self._zone)


def _versions(
    concept: Concept,
    entries: Sequence[tuple[Any, dict[str, datetime]]],
    source_of: Callable[[str], Source],
    dates: Dates,
) -> list[FactVersion]:
    """Return entries about a concept as facts and withdrawals, in the order of saving.

    If a concept has one value and no times, the last entry counts. If it has several values, ended values are withdrawn.
    """
    ended = [each for each in entries if dates.ended(each[1])]
    lasting = [each for each in entries if not dates.ended(each[1])]
    if concept.fact_type is FactType.SINGLE:
        if not any(times for _, times in lasting):
            lasting = lasting[-1:]
        lasting.sort(key=lambda each: each[1]["valid_from"].timestamp() if "valid_from" in each[1] else 0.0)
        lasting.sort(key=lambda each: bool(each[1]))
        return [
            SingleFact(
                concept,
                entry.value.strip(),
                source=source_of(entry.quote),
                valid_from=times.get("valid_from"),
                valid_to=times.get("valid_to"),
            )
            for entry, times in (*ended, *lasting)
        ]
    found: list[FactVersion] = []
    for kind, several in ((Withdrawal, ended), (MultipleFacts, lasting)):
        if several:
            values = dict.fromkeys(entry.value.strip() for entry, _ in several)
            found.append(kind(concept, values, source=source_of(several[-1][0].quote)))
    return found


def found_facts(
    concept: Concept, found: Iterable[Any], source_of: Callable[[str], Source], dates: Dates
) -> list[FactVersion]:
    """Return the values that a model found for a concept as facts and withdrawals.

    Raises:
        ValueError: the values do not make a valid fact. The error does not contain them.
    """
    # Asked for one concept, a model that found nothing says "none"; in an open question for facts, "none" is a value.
    entries = [each for each in found if is_fact(each.value) and each.value.strip().strip(".!").casefold() != "none"]
    if len(entries) > MOST_FACTS:
        raise ValueError(f"the answer has {len(entries)} values of {concept.keyword!r}, more than {MOST_FACTS}")
    return _versions(concept, [(entry, dates.of(entry)) for entry in entries], source_of, dates)


def lasting_fact(
    concept: Concept, found: Iterable[Any], source_of: Callable[[str], Source], dates: Dates
) -> Fact | None:
    """Return the fact that a model found for a concept, if it still holds; None without such a fact.

    Raises:
        ValueError: the values do not make a valid fact. The error does not contain them.
    """
    lasting = [each for each in found if not dates.ended(dates.of(each))]
    facts = found_facts(concept, lasting, source_of, dates)
    return next((fact for fact in reversed(facts) if not isinstance(fact, Withdrawal)), None)


def as_spelt(version: FactVersion, known: Iterable[str]) -> FactVersion | None:
    """Return a version that ends values with these values in the known spelling, and any other version unchanged.

    A withdrawal keeps only known values; the result is None if none of them is known.
    """
    if isinstance(version, MultipleFacts) or (isinstance(version, SingleFact) and version.valid_to is None):
        return version
    spelt = {as_compared(value): value for value in known}
    if isinstance(version, SingleFact):
        return replace(version, value=spelt.get(as_compared(version.value), version.value))
    values = [spelt[name] for value in version.values if (name := as_compared(value)) in spelt]
    return replace(version, values=tuple(dict.fromkeys(values))) if values else None


def is_fact(value: str) -> bool:
    """Return whether a text is a value, not a phrase by which models say that they found nothing."""
    return value.strip().strip(".!").casefold() not in _NOT_FACTS
