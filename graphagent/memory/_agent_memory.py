"""The feature that gives an agent facts: it knows the provider, the names of the scopes, and stamps where facts come from."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from graphagent import _clock
from graphagent.errors import FeatureError, OutputError, UnsupportedError
from graphagent.events import ExtractionFailed, FactsLoaded, FactsSaved
from graphagent.llm import structured
from graphagent.memory import _extract
from graphagent.memory._facts import EVERYTHING, Concept, Fact, Scope, ScopeKind, Source, Subject, least_trust
from graphagent.memory._no_memory import NoMemory
from graphagent.memory._resolve import resolve
from graphagent.memory._steps import FactsStep, KnownFact
from graphagent.protocols import FactProvider, KeepingProvider

if TYPE_CHECKING:
    from graphagent.agent import Agent
    from graphagent.llm import ModelRequest, ModelResponse
    from graphagent.memory._steps import Step
    from graphagent.run import Context
    from graphagent.store import Receipt

_log = logging.getLogger("graphagent")

_SETTINGS = {
    ScopeKind.AGENT: "agent_name",
    ScopeKind.FEATURE: "feature_name",
    ScopeKind.PRODUCT: "product_name",
    ScopeKind.CROSS_PRODUCT: "organization_name",
}

Place = ScopeKind | Scope
"""Where facts are: a scope, or its kind, whose name was given at install."""


@dataclass(frozen=True, slots=True)
class FactUse:
    """What a memory node says of itself, so that it can be checked when the feature is installed."""

    subjects: tuple[Subject, ...] = ()
    scopes: tuple[Place, ...] = ()


class AgentMemory:
    """Facts for an agent: `agent.install(AgentMemory, provider=…)`, and `ctx.feature(AgentMemory)` in any node.

    Args:
        provider: Where facts are kept; without one nothing is kept, which the log says once.
        agent_name: Names the scope of this agent; the strategy's name where none is given.
        feature_name: Names the scope of a feature.
        product_name: Names the scope of a product.
        organization_name: Names the scope of all products.
        subjects: Whom and what facts are about, where a node does not say. By default those that the strategy's memory
            nodes name; EVERYTHING is always among them.
    """

    def __init__(
        self,
        *,
        provider: FactProvider | None = None,
        agent_name: str | None = None,
        feature_name: str | None = None,
        product_name: str | None = None,
        organization_name: str | None = None,
        subjects: Iterable[Subject] | None = None,
    ) -> None:
        if provider is not None and (isinstance(provider, type) or not isinstance(provider, FactProvider)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                "provider= is an object that keeps facts, such as FileMemoryProvider(folder) or "
                "EncryptedMemoryProvider(folder, key=…), or one of your own with the four methods of FactProvider"
            )
        self.provider: FactProvider = NoMemory() if provider is None else provider
        """Where facts are kept."""
        names = (agent_name, feature_name, product_name, organization_name)
        self._scopes = {
            kind: Scope(kind, name) for kind, name in zip(ScopeKind, names, strict=True) if name is not None
        }
        self._subjects = None if subjects is None else _by_priority(subjects)
        self._ctx: Context | None = None

    def install(self, agent: Agent[Any, Any]) -> None:
        """Take the agent's name and the subjects of its nodes, and see that every scope kind they ask for has a name.

        Raises:
            FeatureError: one has none.
        """
        self._scopes.setdefault(ScopeKind.AGENT, Scope.agent(agent.strategy.name))
        named: list[Subject] = []
        for path, element in agent.strategy.walk():
            use: object = getattr(element.function, "use", None)
            if isinstance(use, FactUse):
                named.extend(use.subjects)
                for place in use.scopes:
                    self._scope(place, path)
        if self._subjects is None:
            self._subjects = _by_priority(named)

    async def begin(self, ctx: Context) -> None:
        """Refuse a run for an owner that the provider cannot keep apart from others.

        Raises:
            FeatureError: it knows no owners.
        """
        if ctx.owner and not isinstance(self.provider, KeepingProvider):
            raise FeatureError(
                f"the run has an owner, and {type(self.provider).__name__} knows none, so that facts of different owners "
                f"would mix; use a KeepingProvider, such as FileMemoryProvider or EncryptedMemoryProvider"
            )

    def bind(self, ctx: Context) -> Self:
        """Give this memory, speaking for one run."""
        bound = copy.copy(self)
        bound._ctx = ctx  # noqa: SLF001  a copy of itself
        return bound

    async def save(self, fact: Fact, subject: Subject = EVERYTHING, scope: Place = ScopeKind.AGENT) -> None:
        """Keep a fact, stamped with the run that it comes from. It is kept for good when this returns.

        Raises:
            StoreError: it could not be kept.
            FeatureError: the scope kind has no name.
        """
        await self._save(fact, subject, scope, "trusted")

    async def load(
        self, concept: Concept, subjects: Iterable[Subject] | None = None, scopes: Iterable[Place] | None = None
    ) -> list[Fact]:
        """Give what is known of a concept over subjects and scopes, resolved to one fact; or nothing.

        Raises:
            StoreError: it could not be read.
        """
        found = [
            (fact, subject, scope)
            for subject, scope in self._places(subjects, scopes)
            for fact in await self._load(concept, subject, scope)
        ]
        return resolve(found)

    async def load_all(
        self, subjects: Iterable[Subject] | None = None, scopes: Iterable[Place] | None = None
    ) -> list[Fact]:
        """Give what is known of every concept over subjects and scopes, one fact for each.

        Raises:
            StoreError: it could not be read.
        """
        return resolve([(known.fact, known.subject, known.scope) for known in await self._all(subjects, scopes)])

    async def load_facts_to_agent(
        self, *concepts: Concept, subjects: Iterable[Subject] | None = None, scopes: Iterable[Place] | None = None
    ) -> list[Fact]:
        """Put what is known of some concepts before the model, and give it.

        Raises:
            StoreError: it could not be read.
        """
        places = self._places(subjects, scopes)
        found = [
            KnownFact(fact, subject, scope)
            for concept in concepts
            for subject, scope in places
            for fact in await self._load(concept, subject, scope)
        ]
        return self._show(found)

    async def load_all_facts_to_agent(
        self, subjects: Iterable[Subject] | None = None, scopes: Iterable[Place] | None = None
    ) -> list[Fact]:
        """Put all that is known before the model, and give it.

        Raises:
            StoreError: it could not be read.
        """
        return self._show(await self._all(subjects, scopes))

    async def save_facts_from_history(
        self, *concepts: Concept, subject: Subject = EVERYTHING, scope: Place = ScopeKind.AGENT
    ) -> list[Fact]:
        """Have the model find what was said about some concepts, keep it, and give it. The transcript stays as it is.

        Raises:
            StoreError: it could not be kept.
            ModelRequestError: the model could not be asked. An answer that is no use is an ExtractionFailed event instead.
        """
        steps, trust = self._heard()
        kept: list[Fact] = []
        for concept in concepts if steps else ():
            found = await self._ask(_extract.answer_messages(concept, steps), _extract.answer())
            values = [value.strip() for value in found.values if _extract.is_fact(value)] if found else []
            if len(values) > _extract.MOST_FACTS:
                self._failed(f"it gave {len(values)} values of {concept.keyword!r}, more than {_extract.MOST_FACTS}")
            elif values:
                try:
                    fact = _extract.fact_of(concept, values)
                except ValueError as error:
                    self._failed(str(error))
                    continue
                await self._save(fact, subject, scope, trust)
                kept.append(fact)
        return kept

    async def detect_facts(
        self, subjects: Iterable[Subject] | None = None, scopes: Iterable[Place] | None = None
    ) -> list[Fact]:
        """Have the model find lasting facts of any concept about some subjects, keep them, and give them.

        They are kept in each of the scopes, by default in that of the agent. The transcript stays as it is.

        Raises:
            StoreError: they could not be kept.
            ModelRequestError: the model could not be asked. An answer that is no use is an ExtractionFailed event instead.
        """
        asked = self._subjects_or(subjects)
        places = [self._scope(place) for place in (scopes if scopes is not None else (ScopeKind.AGENT,))]
        known = [each.fact.concept for each in await self._all(asked, places)]
        steps, trust = self._heard()
        if not steps:
            return []
        found = await self._ask(_extract.detection_messages(asked, known, steps), _extract.detection())
        if found is None:
            return []
        if len(found.facts) > _extract.MOST_FACTS:
            self._failed(f"it gave {len(found.facts)} facts, more than {_extract.MOST_FACTS}")
            return []
        facts, dropped = _extract.facts_of(found.facts, asked, known)
        if dropped:
            _log.warning(
                "entries of an extraction that were dropped, for unknown subjects or as no possible facts: %d", dropped
            )
        for fact, subject in facts:
            for scope in places:
                await self._save(fact, subject, scope, trust)
        return [fact for fact, _ in facts]

    async def history(
        self, concept: Concept, subject: Subject = EVERYTHING, scope: Place = ScopeKind.AGENT
    ) -> list[Fact]:
        """Give every version of a concept's facts, the newest first.

        Raises:
            UnsupportedError: the provider keeps no history.
            StoreError: it could not be read.
        """
        provider = self._keeping("history")
        return await provider.history(concept, subject, self._scope(scope), **self._options())

    async def forget(
        self, *, concept: Concept | None = None, subject: Subject | None = None, scope: Place | None = None
    ) -> Receipt:
        """Remove, for good, all facts that fit what is given, of the run's owner.

        Raises:
            UnsupportedError: the provider cannot forget.
            StoreError: it could not be written.
        """
        within = None if scope is None else self._scope(scope)
        provider = self._keeping("forgetting")
        return await provider.forget(concept=concept, subject=subject, scope=within, **self._options())

    def _keeping(self, ability: str) -> KeepingProvider:
        if not isinstance(self.provider, KeepingProvider):
            raise UnsupportedError(self.provider, ability)
        return self.provider

    def _scope(self, place: Place, node: str = "") -> Scope:
        if isinstance(place, Scope):
            return place
        scope = self._scopes.get(place)
        if scope is None:
            raise FeatureError(
                f"{f'node {node!r} asks' if node else 'this asks'} for the {place.value} scope, which has no name; "
                f"add {_SETTINGS[place]}=… to install(AgentMemory, …)"
            )
        return scope

    def _subjects_or(self, subjects: Iterable[Subject] | None) -> list[Subject]:
        return _by_priority(self._subjects or ()) if subjects is None else list(subjects)

    def _places(
        self, subjects: Iterable[Subject] | None, scopes: Iterable[Place] | None
    ) -> list[tuple[Subject, Scope]]:
        wanted = list(self._scopes.values()) if scopes is None else [self._scope(place) for place in scopes]
        return [(subject, scope) for subject in self._subjects_or(subjects) for scope in wanted]

    def _options(self) -> dict[str, Any]:
        return {"owner": self._ctx.owner} if self._ctx is not None and self._ctx.owner else {}

    async def _load(self, concept: Concept, subject: Subject, scope: Scope) -> list[Fact]:
        return await self.provider.load(concept, subject, scope, **self._options())

    async def _all(self, subjects: Iterable[Subject] | None, scopes: Iterable[Place] | None) -> list[KnownFact]:
        return [
            KnownFact(fact, subject, scope)
            for subject, scope in self._places(subjects, scopes)
            for fact in await self.provider.load_all(subject, scope, **self._options())
        ]

    async def _save(self, fact: Fact, subject: Subject, scope: Place, trust: str) -> None:
        ctx = self._ctx
        origin, run_id, step = (ctx.node, ctx.run_id, len(ctx.memory.steps)) if ctx is not None else ("", "", None)
        if ctx is not None and ctx.memory.open is not None:
            trust = least_trust((trust, "inferred"))  # a tool is being called, with what the model gave it
        if fact.source.trust:
            trust = least_trust((trust, fact.source.trust))
        stamped = replace(
            fact,
            source=Source(run_id, step, origin, trust),
            timestamp=_clock.now() if fact.timestamp is None else fact.timestamp,
        )
        await self.provider.save(stamped, subject, self._scope(scope), **self._options())
        if ctx is not None:
            ctx.emit(FactsSaved(ctx.run_id, ctx.node, 1))

    def _show(self, found: Sequence[KnownFact]) -> list[Fact]:
        """Resolve facts, and put those before the model that do not stand there already."""
        ctx = self._running()
        places = {id(known.fact): known for known in reversed(found)}
        facts = resolve([(known.fact, known.subject, known.scope) for known in found])
        shown = {
            (known.fact.concept.keyword, known.subject): known.fact.values
            for step in ctx.memory.steps
            if isinstance(step, FactsStep)
            for known in step.facts
        }
        first = {known.fact.concept.keyword: known for known in reversed(found)}
        resolved = [
            KnownFact(fact, known.subject, known.scope)
            for fact in facts
            for known in (places.get(id(fact)) or first[fact.concept.keyword],)
            if shown.get((fact.concept.keyword, known.subject)) != fact.values
        ]
        if resolved:
            ctx.memory.steps.append(FactsStep(tuple(resolved)))
            ctx.emit(FactsLoaded(ctx.run_id, ctx.node, len(resolved)))
        return facts

    def _heard(self) -> tuple[list[Step], str]:
        """Give what was said since the run began, and how far it can be trusted."""
        memory = self._running().memory
        return memory.steps[memory.begun :], _extract.trust_of(memory.steps)

    async def _ask(self, messages: Sequence[Any], form: Any) -> Any:
        ctx = self._running()

        async def ask(request: ModelRequest) -> ModelResponse:
            return await ctx.request(request)

        try:
            return await structured(ask, messages, form)
        except OutputError as error:
            self._failed(str(error))
            return None

    def _failed(self, reason: str) -> None:
        ctx = self._running()
        ctx.emit(ExtractionFailed(ctx.run_id, ctx.node, reason))

    def _running(self) -> Context:
        if self._ctx is None:
            raise FeatureError("this works on the transcript of a run; call it in a node, on ctx.feature(AgentMemory)")
        return self._ctx

    def __repr__(self) -> str:
        return f"<AgentMemory over {type(self.provider).__name__}>"


def _by_priority(subjects: Iterable[Subject]) -> list[Subject]:
    found = dict.fromkeys((*subjects, EVERYTHING))
    return sorted(found, key=lambda subject: subject.priority)
