"""The origin of each part of a prompt, and how far it can be trusted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from graphagent.memory import TRUST_LEVELS, ActionStep, FactsStep, MessageStep, NotesStep, SummaryStep, TaskStep

if TYPE_CHECKING:
    from graphagent.llm import Message
    from graphagent.memory import Step
    from graphagent.memory._blocks import KnownFact
    from graphagent.memory.transcript._prompt import Prompt

Origin: TypeAlias = Literal["system", "task", "facts", "notes", "model", "tool", "node", "elsewhere"]
_SAID: dict[Origin, str] = {
    "system": "the system prompt",
    "task": "the task",
    "facts": "facts",
    "notes": "notes",
    "model": "the model",
    "tool": "a tool",
    "node": "a node, or an earlier conversation",
    "elsewhere": "middleware or a node, for this request alone",
}
_BY_ROLE = {"assistant": "inferred", "tool": "untrusted"}


@dataclass(frozen=True, slots=True)
class Used:
    """A fact or a note in a message."""

    name: str
    origin: str
    trust: str
    view: Literal["fact", "note"]
    query: Mapping[str, str]
    """The address of its page, without the owner."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A message as it was sent."""

    message: Message
    origin: Origin
    trust: str
    """One of TRUST_LEVELS."""
    used: tuple[Used, ...] = ()
    """The facts or notes in it."""

    @property
    def lines(self) -> list[tuple[str, str]]:
        """The lines of its text with their ends, each with the trust of the fact or the note in it; empty for other lines."""
        lines, left = self.message.text.splitlines(keepends=True), list(self.used)
        if sum(each.startswith("{") for each in lines) != len(left):
            return [(self.message.text, "")]
        return [(each, left.pop(0).trust or "unclaimed" if each.startswith("{") else "") for each in lines]

    @property
    def said(self) -> str:
        """The origin in words."""
        return _SAID[self.origin]


def sent(prompt: Prompt) -> list[Sent]:
    """Return the messages of a prompt."""
    return [_sent(message, step) for message, step in zip(prompt.messages(), prompt.origins(), strict=True)]


def _sent(message: Message, step: Step | None) -> Sent:
    trust = _BY_ROLE.get(message.role, "trusted")
    match step:
        case None:
            return Sent(message, "system", trust) if message.role == "system" else Sent(message, "elsewhere", "")
        case TaskStep():
            return Sent(message, "task", trust)
        case FactsStep():
            return _with(message, "facts", [*map(_fact, step.facts)])
        case NotesStep():
            return _with(
                message,
                "notes",
                [Used(each.id, each.source, each.trust, "note", {"id": each.id}) for each in step.notes],
            )
        case SummaryStep():
            return Sent(message, "model", _least(("inferred", *(each.fact.source.trust for each in step.facts))))
        case ActionStep():
            return Sent(message, "model" if message.role == "assistant" else "tool", trust)
        case MessageStep():
            return Sent(message, "node", trust)
        case _:
            return Sent(message, "model" if message.role == "assistant" else "node", trust)


def _fact(known: KnownFact) -> Used:
    keyword, source, place = known.fact.concept.keyword, known.fact.source, (*known.parts, known)[0]
    query = {
        "keyword": keyword,
        "subject": place.subject.name,
        "kind": place.scope.kind.value,
        "scope": place.scope.name,
    }
    return Used(f"{known.subject.name}: {keyword}", source.origin, source.trust, "fact", query)


def _with(message: Message, origin: Origin, used: Sequence[Used]) -> Sent:
    return Sent(message, origin, _least(each.trust for each in used), tuple(used))


def _least(levels: Iterable[str]) -> str:
    """Return the least of some levels of trust."""
    return min(("trusted", *levels), key=TRUST_LEVELS.index)
