"""Nodes around facts. All pass their input on unchanged."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from graphagent.graph import Tap
from graphagent.memory import EVERYTHING, AgentMemory, Concept, Scope, ScopeKind, Subject

if TYPE_CHECKING:
    from graphagent.run import Context

T = TypeVar("T")
Subjects = Iterable[Subject] | None
Scopes = Iterable[ScopeKind | Scope] | None


@dataclass(frozen=True, slots=True)
class _Load:
    concepts: tuple[Concept, ...]
    subjects: tuple[Subject, ...] | None
    scopes: tuple[ScopeKind | Scope, ...] | None

    async def __call__(self, ctx: Context, _: Any) -> None:
        memory = ctx.feature(AgentMemory)
        if self.concepts:
            await memory.load_facts_to_agent(*self.concepts, subjects=self.subjects, scopes=self.scopes)
        else:
            await memory.load_all_facts_to_agent(subjects=self.subjects, scopes=self.scopes)


@dataclass(frozen=True, slots=True)
class _Save:
    concepts: tuple[Concept, ...]
    subjects: tuple[Subject]
    scopes: tuple[ScopeKind | Scope]
    learns: ClassVar[bool] = True

    async def __call__(self, ctx: Context, _: Any) -> None:
        memory, [subject], [scope] = ctx.feature(AgentMemory), self.subjects, self.scopes
        await memory.save_facts_from_history(*self.concepts, subject=subject, scope=scope)


@dataclass(frozen=True, slots=True)
class _Detect:
    subjects: tuple[Subject, ...] | None
    scopes: tuple[ScopeKind | Scope, ...]
    learns: ClassVar[bool] = True

    async def __call__(self, ctx: Context, _: Any) -> None:
        await ctx.feature(AgentMemory).detect_facts(subjects=self.subjects, scopes=self.scopes)


def load_facts(*concepts: Concept, subjects: Subjects = None, scopes: Scopes = None, name: str = "load_facts") -> Tap:
    """Make a tap that shows the model the facts of some concepts.

    Args:
        concepts: The concepts whose facts are shown.
        subjects: The subjects of the facts; by default the agent's subjects.
        scopes: The scopes of the facts; by default every scope that has a name.
        name: The name of the tap.
    """
    if not concepts:
        raise TypeError("load_facts() takes concepts; for all known facts use load_all_facts()")
    return Tap(
        _Load(_concepts(concepts), _subjects(subjects), None if scopes is None else _scopes(scopes)),
        name=name,
        needs=(AgentMemory,),
    )


def load_all_facts(*, subjects: Subjects = None, scopes: Scopes = None, name: str = "load_all_facts") -> Tap:
    """Make a tap that shows the model all known facts.

    Args:
        subjects: The subjects of the facts; by default the agent's subjects.
        scopes: The scopes of the facts; by default every scope that has a name.
        name: The name of the tap.
    """
    return Tap(
        _Load((), _subjects(subjects), None if scopes is None else _scopes(scopes)), name=name, needs=(AgentMemory,)
    )


def save_facts(
    *concepts: Concept,
    subject: Subject = EVERYTHING,
    scope: ScopeKind | Scope = ScopeKind.AGENT,
    name: str = "save_facts",
) -> Tap:
    """Make a tap that lets the model find facts about some concepts in the conversation, and keeps them. The transcript is not changed.

    If the model or the memory fails, an ExtractionFailed event says so, the run continues, and `agent.resume(run_id)` tries again.

    Args:
        concepts: The concepts to look for.
        subject: The subject under which the facts are kept.
        scope: The scope in which the facts are kept.
        name: The name of the tap.
    """
    if not concepts:
        raise TypeError("save_facts() takes concepts; for facts of any concept use auto_detect_facts()")
    [about] = _all_of((subject,), "subject=", "a Subject, such as Subject('user')", Subject)
    [within] = _scopes((scope,))
    return Tap(_Save(_concepts(concepts), (about,), (within,)), name=name, needs=(AgentMemory,), asks_model=True)


def auto_detect_facts(
    *,
    subjects: Subjects = None,
    scopes: Iterable[ScopeKind | Scope] = (ScopeKind.AGENT,),
    name: str = "auto_detect_facts",
) -> Tap:
    """Make a tap that lets the model find lasting facts, and keeps them. The transcript is not changed.

    If the model or the memory fails, an ExtractionFailed event says so, the run continues, and `agent.resume(run_id)` tries again.

    Args:
        subjects: The subjects of the facts; by default the agent's subjects.
        scopes: The scopes in which the facts are kept: in each of these.
        name: The name of the tap.
    """
    return Tap(_Detect(_subjects(subjects), _scopes(scopes)), name=name, needs=(AgentMemory,), asks_model=True)


def _concepts(given: tuple[Concept, ...]) -> tuple[Concept, ...]:
    return _all_of(given, "the node", "concepts, such as Concept('city')", Concept)


def _subjects(given: Subjects) -> tuple[Subject, ...] | None:
    return (
        None if given is None else _all_of(given, "subjects=", "a list of subjects, such as [Subject('user')]", Subject)
    )


def _scopes(given: Iterable[ScopeKind | Scope]) -> tuple[ScopeKind | Scope, ...]:
    return _all_of(given, "scopes=", "a list of scopes, such as [ScopeKind.AGENT]", ScopeKind, Scope)


def _all_of(given: Iterable[T], what: str, wanted: str, *kinds: type) -> tuple[T, ...]:
    if isinstance(given, str) or not isinstance(given, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{what} takes {wanted}, not {type(given).__name__}")
    found = tuple(given)
    for each in found:
        if not isinstance(each, kinds):
            raise TypeError(f"{what} takes {wanted}; one of them is of type {type(each).__name__}")
    return found
