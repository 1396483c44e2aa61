"""The messages that a model was sent, as references to versions of steps."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, final

from graphagent._article import counted
from graphagent.llm import Message

if TYPE_CHECKING:
    from graphagent.memory.steps._types import Step

Slice: TypeAlias = tuple[int, int]
"""The start and the end of a slice of messages."""
Part: TypeAlias = Slice | Message
"""A slice of the messages of the steps, or a message that belongs to no step."""
Range: TypeAlias = tuple[int, int] | tuple[int, int, int]
"""The first and the last of consecutive steps in their latest versions, or one step twice and an earlier version of it."""


_NOTHING_MADE: tuple[list[int], list[Message]] = [], []


@final
class Versions(list["Step"]):
    """Every version of every step of a transcript, in order of creation.

    Their messages are derived once for all prompts that begin with the same versions.
    """

    __slots__ = ("_begun", "_ends", "_indexed", "_latest", "_messages", "_numbers", "_of", "_rules", "ids", "made")

    # Few runs ask a model, so each of these is made when it is needed first.
    _latest: list[int]
    """For each number, the latest version of the step whose first version has this number; -1 if no step began there."""
    _begun: list[int]
    """How many steps began before each number."""
    _of: dict[int, list[int]]
    """The versions of each step with several, by the number of the first."""
    _numbers: list[int]
    _messages: list[Message]
    _ends: list[tuple[int, int]]
    """The number of versions and of messages up to each model turn."""

    def __init__(self, steps: Iterable[Step] = (), ids: Iterable[int] | None = None) -> None:
        super().__init__(steps)
        self.ids = [*range(len(self))] if ids is None else [*ids]
        """For each version, the number of the first version of its step; -1 if the version was removed."""
        self._indexed = False
        self._rules: str | None = None
        """The system prompt with which messages were derived; None before that."""
        self.made: tuple[list[int], list[Message]] = _NOTHING_MADE
        """The last versions whose messages were derived, and the messages; a new object when the content of a version changes."""

    def _forget(self, rules: str) -> None:
        self._rules, self._numbers = rules, []
        self._messages = [Message.system(rules)] if rules else []
        self._ends = [(0, len(self._messages))]
        self.made = [], self._messages

    def add(self, step: Step, id_: int | None = None) -> int:
        """Add the first or a further version of a step, and return its number."""
        number = len(self)
        self.append(step)
        self.ids.append(number if id_ is None else id_)
        return number

    def show(self, number: int, step: Step) -> None:
        """Replace a version by the same version with its facts and notes looked up again."""
        self[number] = step
        if self._rules is not None:
            self._forget(self._rules)

    def copied(self) -> Versions:
        """Return a copy."""
        return Versions(self, self.ids)

    def _look(self) -> list[int]:
        """Index the versions that were added since the last call, and return the latest versions."""
        if not self._indexed:
            self._indexed, self._latest, self._begun, self._of = True, [], [0], {}
        latest, ids = self._latest, self.ids
        for number in range(len(latest), len(ids)):
            id_ = ids[number]
            latest.append(number if id_ == number else -1)
            self._begun.append(self._begun[-1] + (id_ == number))
            if 0 <= id_ < number:
                latest[id_] = number
                self._of.setdefault(id_, [id_]).append(number)
        return latest

    def _as_of(self, id_: int, as_of: int) -> int:
        """Return the latest version of a step up to a number."""
        latest = self._latest[id_]
        return latest if latest <= as_of else self._of[id_][bisect_right(self._of[id_], as_of) - 1]

    def visible(self, ranges: Iterable[Range], as_of: int) -> list[int]:
        """Return the versions to which ranges refer."""
        latest, found = self._look(), list[int]()
        for first, last, *version in ranges:
            steps = enumerate(latest[first : last + 1], first)
            found += version or [each if each <= as_of else self._as_of(id_, as_of) for id_, each in steps if each >= 0]
        return found

    def ranges(self, items: Iterable[tuple[int, int]], found: list[Range], as_of: int) -> None:
        """Add steps, by their ids and versions, to ranges."""
        self._look()
        for id_, version in items:
            if self._as_of(id_, as_of) != version:
                found.append((id_, id_, version))
            elif (
                found
                and len(found[-1]) == 2
                and (last := found[-1][1]) < id_
                and self._begun[last + 1] == self._begun[id_]
            ):
                found[-1] = (found[-1][0], id_)
            else:
                found.append((id_, id_))

    def messages(self, rules: str, numbers: list[int]) -> list[Message]:
        """Return the messages of versions of steps."""
        from graphagent.memory.steps._types import ActionStep  # steps have prompts, so the import would be a circle

        if rules != self._rules:
            self._forget(rules)
        if numbers == self.made[0]:
            return [*self.made[1]]
        known = min(len(numbers), len(self._numbers))
        if numbers[:known] != self._numbers[:known]:
            known = next(n for n, (one, two) in enumerate(zip(numbers, self._numbers, strict=False)) if one != two)
        end = bisect_right(self._ends, known, key=lambda each: each[0])
        known, count = self._ends[end - 1]
        found = self._messages[:count]
        # Later steps do not change the messages up to a model turn.
        turns = [n for n in range(known, len(numbers)) if isinstance(self[numbers[n]], ActionStep)]
        for turn in turns:
            _tell([self[number] for number in numbers[known : turn + 1]], found)
            known = turn + 1
            if turn == turns[0]:
                del self._ends[end:]
            self._ends.append((known, len(found)))
        if turns:
            self._numbers, self._messages = numbers[:known], [*found]
        _tell([self[number] for number in numbers[known:]], found)
        self.made = numbers, found
        return [*found]

    def holds(self, other: Sequence[Step], number: int) -> bool:
        """Return whether a list of versions is this one, or begins alike up to a number."""
        return (
            other is self
            or number < 0
            or (number < len(self) and number < len(other) and self[number] is other[number])
        )


@final
@dataclass(slots=True, eq=False, repr=False)
class Prompt:
    """The messages of one request to a model, kept as references to steps. Its size does not depend on the number of messages."""

    versions: Versions
    """The versions of the steps of the transcript, by number."""
    rules: str
    """The system prompt."""
    ranges: tuple[Range, ...]
    """The visible steps, in the order in which the model saw them."""
    as_of: int
    """The number of the last version at the time of the request; -1 if the messages belong to no step."""
    parts: tuple[Part, ...] | None = None
    """The slices of the steps' messages and the other messages that were sent; None for exactly the steps' messages."""

    @staticmethod
    def of(messages: Iterable[Message]) -> Prompt:
        """Return a prompt whose messages belong to no step."""
        return Prompt(_NONE, "", (), -1, tuple(messages))

    def differing(self, sent: Sequence[Message]) -> Prompt:
        """Return the prompt that was actually sent, if middleware or a node sent other messages than these."""
        derived = self.messages()
        if tuple(sent) == derived:
            return self
        return Prompt(self.versions, self.rules, self.ranges, self.as_of, parts_of(derived, sent))

    def within(self, versions: Versions) -> Prompt:
        """Return this prompt for other versions of steps, which may begin alike: messages that differ belong to no step."""
        if versions.holds(self.versions, self.as_of):
            return self
        shared = 0
        end = min(len(versions), self.as_of + 1)
        while shared < end:
            middle = (shared + end) // 2
            shared, end = (middle + 1, end) if versions.holds(self.versions, middle) else (shared, middle)
        ids, ranges = self.versions.ids, list[Range]()
        visible = self.versions.visible(self.ranges, self.as_of)
        versions.ranges(((ids[number], number) for number in visible if number < shared), ranges, shared - 1)
        return Prompt(versions, self.rules, tuple(ranges), shared - 1).differing(self.messages())

    def messages(self) -> tuple[Message, ...]:
        """Return the messages."""
        versions = self.versions
        derived: list[Message] = []
        if self.ranges or self.rules:
            derived = versions.messages(self.rules, versions.visible(self.ranges, self.as_of))
        if self.parts is None:
            return tuple(derived)
        return tuple(
            message
            for part in self.parts
            for message in ((part,) if isinstance(part, Message) else derived[part[0] : part[1]])
        )

    def origins(self) -> tuple[Step | None, ...]:
        """Return the step that each message comes from; None for the system prompt, and for messages that belong to no step."""
        derived: list[Step | None] = []
        if self.ranges or self.rules:
            steps = [self.versions[number] for number in self.versions.visible(self.ranges, self.as_of)]
            rules = [Message.system(self.rules)] if self.rules else []
            derived = [*(None for _ in rules), *_tell(steps, rules)]
        if self.parts is None:
            return tuple(derived)
        return tuple(
            step
            for part in self.parts
            for step in ((None,) if isinstance(part, Message) else derived[part[0] : part[1]])
        )

    def kept_of(self, before: Prompt | None) -> int:
        """Return how many messages at the beginning are the same as in an earlier prompt."""
        earlier = before.messages() if before is not None else ()
        own = self.messages()
        if own[: len(earlier)] == earlier:
            return len(earlier)
        return next((n for n, (one, two) in enumerate(zip(earlier, own, strict=False)) if one != two), len(own))

    def __eq__(self, other: object) -> bool:
        return self.messages() == other.messages() if isinstance(other, Prompt) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return Prompt.of, (self.messages(),)

    def __repr__(self) -> str:
        return f"<prompt of {counted(len(self.messages()), 'message')}>"


_NONE = Versions()


def parts_of(derived: Sequence[Message], sent: Sequence[Message]) -> tuple[Part, ...]:
    """Return the messages that were sent as slices of the steps' messages; a message that belongs to no step stands for itself."""
    places = {id(message): place for place, message in enumerate(derived)}
    parts: list[Part] = []
    for place, message in enumerate(sent):
        # Equal messages at the same place count as the same: a recorded request consists of other objects.
        found = places.get(id(message), place if place < len(derived) and derived[place] == message else -1)
        last = parts[-1] if parts else None
        if found < 0:
            parts.append(message)
        elif last is not None and not isinstance(last, Message) and last[1] == found:
            parts[-1] = (last[0], found + 1)
        else:
            parts.append((found, found + 1))
    return tuple(parts)


def _tell(steps: Sequence[Step], found: list[Message]) -> list[Step]:
    """Add the messages of steps that a model sees, and return the step of each. Facts and notes from before the first model turn precede the task."""
    from graphagent.memory.steps._types import ActionStep, FactsStep, FinalAnswerStep, NotesStep, SummaryStep, TaskStep

    early, start = set[int](), len(found)
    whose: list[Step] = []
    for place, step in enumerate(steps):
        if isinstance(step, TaskStep):
            for later in range(place + 1, len(steps)):
                following = steps[later]
                if isinstance(following, ActionStep | SummaryStep | TaskStep):
                    break
                if isinstance(following, FactsStep | NotesStep):
                    early.add(later)
                    found.extend(following.to_messages())
                    whose += [following] * (len(found) - start - len(whose))
            found.extend(step.to_messages())
        elif isinstance(step, FinalAnswerStep) and isinstance(step.output, str):
            said = next((each for each in reversed(found) if each.role == "assistant"), None)
            if said is None or said.text != step.output:
                found.append(Message.assistant(step.output))
        elif place not in early:
            found.extend(step.to_messages())
        whose += [step] * (len(found) - start - len(whose))
    return whose
