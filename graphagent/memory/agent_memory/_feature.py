"""`AgentMemory`, the feature that gives an agent facts. It holds the provider and the scopes, and sets the source of facts.

The file is long because it describes every setting and operation for users. Extraction is in `facts/_extraction.py`.
"""

from __future__ import annotations

import copy
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, tzinfo
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Never, Self

from graphagent import _clock
from graphagent._article import counted, kind_of
from graphagent._options import check_flag, check_limit, check_text, check_word
from graphagent.errors import FeatureError, OutputError, UnsupportedError
from graphagent.events import ExtractionFailed, FactsLoaded, FactsSaved
from graphagent.llm import Message, ModelRequest
from graphagent.memory._blocks import KnownFact
from graphagent.memory._expiry import Expiry
from graphagent.memory.agent_memory._shown import fitting, recall_tool
from graphagent.memory.facts import _extraction
from graphagent.memory.facts._arguments import check_filter, check_given
from graphagent.memory.facts._older import forget_older
from graphagent.memory.facts._provider_none import NoMemory
from graphagent.memory.facts._references import (
    Saved,
    fact_json,
    found_again,
    kept_version,
    known_fact,
    looked_up,
    read_fact_json,
    reference,
    saved_id,
)
from graphagent.memory.facts._resolve import Found, resolve, traced
from graphagent.memory.facts._types import (
    EVERYTHING,
    Concept,
    Fact,
    FactType,
    FactVersion,
    MultipleFacts,
    Scope,
    ScopeKind,
    SingleFact,
    Source,
    Subject,
    Withdrawal,
    least_trust,
)
from graphagent.memory.steps._trust import is_less
from graphagent.memory.steps._types import ActionStep, FactsStep, SummaryStep
from graphagent.protocols import FactProvider, KeepingProvider

if TYPE_CHECKING:
    from graphagent._agent import Agent
    from graphagent.llm import OutputFormat, Tool, ToolResult
    from graphagent.run import Context
    from graphagent.store import Receipt

_log = logging.getLogger("graphagent.memory")

_SETTINGS = {
    ScopeKind.AGENT: "agent_name",
    ScopeKind.FEATURE: "feature_name",
    ScopeKind.PRODUCT: "product_name",
    ScopeKind.CROSS_PRODUCT: "organization_name",
}

Place = ScopeKind | Scope
"""A scope, or a kind of scope whose name was given when AgentMemory was installed."""


class AgentMemory:
    """Facts for an agent: `agent.install(AgentMemory, provider=…)`, and `ctx.feature(AgentMemory)` in any node.

    Args:
        provider: Stores the facts. Without a provider, nothing is stored, and the log says so once.
        agent_name: The name of this agent's scope; by default the name of the strategy.
        feature_name: The name of the scope of a feature.
        product_name: The name of the scope of a product.
        organization_name: The name of the scope of all products.
        subjects: The subjects of facts, for nodes without subjects of their own. By default the subjects of the strategy's memory
            nodes, or the user if these name no subject; EVERYTHING is always included.
        recall: `run`, or True: before the first model turn of a run, the model sees the known facts. `node`: also the new facts
            before each later turn. False: only nodes show facts. By default `run`, if the agent has a model and a provider, and no
            node of the strategy needs this feature.
        learn: True: facts about the subjects are learned at the end of each run, before its result is returned. `background`: the
            run does not wait for learning, and the taps `save_facts` and `auto_detect_facts` also learn then instead of at their
            place; `agent.settle()` waits until this is done, and the agent needs a store. False: only taps learn. By default True
            if `recall` is `run` by default, and else False.
        tools: Whether the model is offered the tool `recall_facts`, which searches all facts.
        limit: The most facts that a model sees at once. Facts about the subject with the lowest priority number come first, and of
            these the newest.
        characters: The most characters of facts that a model sees at once.
        timezone: The time zone of the day that a model is told when it looks for facts, as a tzinfo or a name such as `Europe/Oslo`;
            by default the machine's.
        keep_for: The maximum age of a fact, such as `timedelta(days=90)`. Older versions are not read. When the last version of a
            fact is older, the fact is erased with its history: at the end of a run that came across it, or of the first run after
            an hour. By default, facts are kept for ever.

    Raises:
        TypeError: the provider does not have the methods of a FactProvider, or a setting has another type.
        ValueError: a setting is out of range, or not known.
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
        recall: Literal["run", "node"] | bool | None = None,
        learn: bool | Literal["background"] | None = None,
        tools: bool = True,
        limit: int = 100,
        characters: int = 12_000,
        timezone: tzinfo | str | None = None,
        keep_for: timedelta | None = None,
    ) -> None:
        check_word("recall", recall, ("run", "node", True, False, None))
        check_word("learn", learn, ("background", True, False, None))
        check_flag("tools", tools)
        for name, value in (("limit", limit), ("characters", characters)):
            check_limit(name, value)
        if provider is not None and (isinstance(provider, type) or not isinstance(provider, FactProvider)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                "provider= is an object that keeps facts, such as FileMemoryProvider(folder), "
                "EncryptedMemoryProvider(folder, key=…) or StoreMemoryProvider(store), or your own with the four methods of FactProvider"
            )
        self.provider: FactProvider = NoMemory() if provider is None else provider
        """Stores the facts."""
        names = (agent_name, feature_name, product_name, organization_name)
        self._scopes = {
            kind: Scope(kind, name) for kind, name in zip(ScopeKind, names, strict=True) if name is not None
        }
        self._subjects = None if subjects is None else _by_priority(subjects)
        self._expiry = None if keep_for is None else Expiry(keep_for)
        if self._expiry is not None and not isinstance(self.provider, KeepingProvider):
            raise TypeError(
                f"keep_for= takes a provider that can forget, a KeepingProvider, not {kind_of(self.provider)}"
            )
        self._recalls, self._learns = recall, learn
        self.background: bool = learn == "background"
        """Whether this feature and the taps learn after the run has its answer."""
        self.learns: bool = bool(learn)
        """Whether it learns from ended runs; without `learn`, this is decided when the feature is installed."""
        self._limit, self._characters, self._zone = limit, characters, _zone_of(timezone)
        self.tools: tuple[Tool, ...] = (recall_tool(self),) if tools else ()
        """The tools that the model is offered besides the agent's tools."""
        self._ctx: Context | None = None
        self._vouches = False

    def install(self, agent: Agent[Any, Any]) -> None:
        """Take over the agent's name and the subjects of its nodes, offer the tool, and check that each kind of scope has a name.

        The functions of nodes that need this feature have the attributes `subjects` and `scopes`.

        Raises:
            FeatureError: the scope of a node has no name.
        """
        self._scopes.setdefault(ScopeKind.AGENT, Scope.agent(agent.strategy.name))
        named: list[Subject] = []
        by_itself = agent.model is not None and not isinstance(self.provider, NoMemory)
        for path, element in agent.strategy.walk():
            if AgentMemory in getattr(element, "needs", ()):
                by_itself = False
                named.extend(getattr(element.function, "subjects", None) or ())
                for place in getattr(element.function, "scopes", None) or ():
                    self._scope(place, path)
        self._recalls = by_itself if self._recalls is None else self._recalls
        self.learns = by_itself if self._learns in (None, "background") else bool(self._learns)
        if self._subjects is None:
            self._subjects = _by_priority(named or [_extraction.USER])
        agent.offer(self.tools)

    async def begin(self, ctx: Context) -> None:
        """Refuse an owner if the provider cannot keep owners apart.

        Raises:
            FeatureError: the run has an owner, and the provider does not know owners.
        """
        if ctx.owner and not isinstance(self.provider, KeepingProvider):
            lacking = [name for name in vars(KeepingProvider) if name[0] != "_" and not hasattr(self.provider, name)]
            raise FeatureError(
                f"the run has an owner, and {type(self.provider).__name__} does not support owners, so that facts of different "
                f"owners would mix; use a KeepingProvider, such as FileMemoryProvider or EncryptedMemoryProvider, which also has "
                f"{', '.join(lacking)}"
            )

    @property
    def places(self) -> tuple[FactProvider, ...]:
        """The provider."""
        return (self.provider,)

    @property
    def refers(self) -> tuple[Literal["fact"], ...]:
        """The kind `fact`, if the provider keeps a history for looking facts up; else nothing."""
        return ("fact",) if isinstance(self.provider, KeepingProvider) else ()

    async def look_up(self, known: Sequence[KnownFact], *, owner: str) -> list[KnownFact]:
        """Return facts as they were when a model saw them; facts that were forgotten since are marked.

        Without a history, the facts are returned unchanged, since transcripts then contain their text.

        Raises:
            StoreError: the facts could not be read.
        """
        if not isinstance(self.provider, KeepingProvider):
            return [replace(fact, kept=False) for fact in known]
        return await looked_up(self.provider, known, owner)

    def bind(self, ctx: Context) -> Self:
        """Return this memory bound to one run."""
        bound = copy.copy(self)
        bound._ctx = ctx  # noqa: SLF001  a copy of itself
        return bound

    async def before_request(self, ctx: Context, tools: Sequence[Tool]) -> None:
        """Show the model the known facts, if `recall` asks for it now.

        Raises:
            StoreError: the facts could not be read.
        """
        if self._recalls == "node" or (
            self._recalls and not any(isinstance(step, ActionStep) for step in ctx.memory.run_steps)
        ):
            await self.bind(ctx).load_all_facts_to_agent()

    async def make_room(self, ctx: Context, tools: Sequence[Tool]) -> bool:
        """Do nothing: the number of shown facts is limited already."""
        return False

    def shown(self, result: ToolResult) -> ToolResult:
        """Return a result unchanged."""
        return result

    async def ended(self, ctx: Context, output: Any) -> None:
        """Find facts in the ended run, and save them.

        Raises:
            StoreError: the facts could not be saved.
            ModelRequestError: the request failed. An unusable answer emits an ExtractionFailed event instead.
        """
        if self.learns:
            await self.bind(ctx).detect_facts()
        provider = self.provider
        if self._expiry is not None and isinstance(provider, KeepingProvider):
            await self._expiry.sweep(ctx.owner, partial(forget_older, provider, ctx.owner))

    def learns_for(self, feature: object) -> bool:
        """Return whether another feature saves learned facts in the same place as this one."""
        if not (self.learns and isinstance(feature, AgentMemory)):
            return False
        return self.provider is feature.provider and self._scope(ScopeKind.AGENT) == feature._scope(ScopeKind.AGENT)  # noqa: SLF001  of this class

    def vouched(self) -> Self:
        """Return this memory for values that you vouch for, such as a person's input: `vouched().save(fact)`.

        A saved fact keeps the trust of its own source, whatever else has reached the run.
        """
        vouching = copy.copy(self)
        vouching._vouches = True  # noqa: SLF001  a copy of itself
        return vouching

    async def save(self, fact: Fact, subject: Subject = EVERYTHING, scope: Place = ScopeKind.AGENT) -> None:
        """Save a fact with this run as its source. It is durable when this method returns.

        Its trust is the lowest of everything that has reached the run so far (`ctx.memory.trust`), or lower if the fact says so.
        A node that is executed again after its process died saves the fact once.

        Raises:
            StoreError: the fact could not be saved.
            FeatureError: the scope kind has no name.
        """
        check_given("save(fact, subject, scope)", fact=fact, subject=subject, place=scope)
        await self._keep_one(fact, subject, scope)

    async def withdraw(
        self, withdrawal: Withdrawal, subject: Subject = EVERYTHING, scope: Place = ScopeKind.AGENT
    ) -> None:
        """Withdraw values of a concept with several, with the source that `save` sets. The history keeps the values.

        Raises:
            ValueNotFoundError: a value is not known.
            ValueError: the concept has one value.
            UnsupportedError: the provider cannot withdraw values.
            StoreError: the withdrawal could not be saved.
            FeatureError: the scope kind has no name.
        """
        check_given("withdraw(withdrawal, subject, scope)", withdrawal=withdrawal, subject=subject, place=scope)
        await self._keep_one(withdrawal, subject, scope)

    async def _keep_one(self, version: FactVersion, subject: Subject, scope: Place) -> None:
        within = self._scope(scope)
        if self._ctx is None:
            trust = version.source.trust or "trusted"
            await self._save(replace(version, source=Source(trust=trust)), subject, within)
            return

        async def given(_: str) -> list[Saved]:
            trust = "trusted" if self._vouches else ctx.memory.trust
            source = self._source(least_trust((trust, version.source.trust or trust)))
            return [(replace(version, source=source), subject, within)]

        ctx = self._ctx
        await self._keep(given)

    async def load(
        self,
        concept: Concept,
        subjects: Iterable[Subject] | None = None,
        scopes: Iterable[Place] | None = None,
        *,
        as_of: datetime | None = None,
    ) -> list[Fact]:
        """Return the facts about a concept over subjects and scopes, resolved to one fact, as a list with this fact or empty.

        An untrusted fact does not hide a more trusted one, so the list may have two: the more trusted fact comes first.

        Args:
            concept: The concept.
            subjects: The subjects of the facts.
            scopes: The scopes of the facts.
            as_of: The moment at which the facts hold, with a time zone, by all that is known today; by default the current time.
                Needs a KeepingProvider.

        Raises:
            StoreError: the facts could not be read.
            ValueError: `as_of` has no time zone.
        """
        return self.heard(resolve(await self._found((concept,), subjects, scopes, as_of)))

    async def load_all(
        self,
        subjects: Iterable[Subject] | None = None,
        scopes: Iterable[Place] | None = None,
        *,
        as_of: datetime | None = None,
    ) -> list[Fact]:
        """Return the facts about all concepts over subjects and scopes, resolved for each concept as by `load`.

        Raises:
            StoreError: the facts could not be read.
            ValueError: `as_of` has no time zone.
        """
        return self.heard(resolve(await self._found(None, subjects, scopes, as_of)))

    async def known(
        self,
        *concepts: Concept,
        subjects: Iterable[Subject] | None = None,
        scopes: Iterable[Place] | None = None,
    ) -> list[KnownFact]:
        """Return the known facts about the given concepts, or about all, with the subject and scope of each.

        Raises:
            StoreError: the facts could not be read.
        """
        found = traced(await self._found(concepts or None, subjects, scopes))
        return [known_fact(fact, parts, kept=bool(self.refers)) for fact, parts in found]

    async def load_facts_to_agent(
        self, *concepts: Concept, subjects: Iterable[Subject] | None = None, scopes: Iterable[Place] | None = None
    ) -> list[Fact]:
        """Show the model the facts about some concepts, and return them.

        The facts are recorded, so a node that is executed again shows the same facts.

        Raises:
            StoreError: the facts could not be read.
        """
        return await self._show(await self.known(*concepts, subjects=subjects, scopes=scopes) if concepts else [])

    async def load_all_facts_to_agent(
        self, subjects: Iterable[Subject] | None = None, scopes: Iterable[Place] | None = None
    ) -> list[Fact]:
        """Show the model all facts, and return them.

        The facts are recorded, so a node that is executed again shows the same facts.

        Raises:
            StoreError: the facts could not be read.
        """
        return await self._show(await self.known(subjects=subjects, scopes=scopes))

    async def save_facts_from_history(
        self, *concepts: Concept, subject: Subject = EVERYTHING, scope: Place = ScopeKind.AGENT
    ) -> list[Fact]:
        """Ask the model for facts about some concepts in the conversation, save them and return them.

        The transcript is not changed.

        Raises:
            StoreError: the facts could not be saved.
            ModelRequestError: a request failed. An unusable answer emits an ExtractionFailed event instead.
        """
        check_given("save_facts_from_history(concept, subject=…, scope=…)", subject=subject, place=scope)
        for concept in concepts:
            check_given("save_facts_from_history(concept, …)", concept=concept)
        within = self._scope(scope)

        async def find(concept: Concept, key: str) -> list[Saved]:
            several = concept.fact_type is FactType.MULTIPLE
            there = await self._found((concept,), [subject], [within]) if several else []
            found: list[Saved] = []

            def messages(look: _Look) -> list[Message]:
                known = [value for fact in _trusted(there, look.trust) for value in fact.values]
                return _extraction.answer_messages(concept, look.lines, self._zone, known)

            for look in await self._look(key, messages, _extraction.answer()):
                dates = _extraction.Dates(look.lines, self._zone)
                try:
                    facts = _extraction.found_facts(concept, look.entries, self._quoting(look), dates)
                except ValueError as error:
                    self._failed(str(error))
                    continue
                self._check(dates)
                found += _as_spelt([(fact, subject, within) for fact in facts], there)
            return found

        kept = [await self._keep(partial(find, concept)) for concept in concepts]
        return [fact for found in kept for fact, _, _ in found if not isinstance(fact, Withdrawal)]

    async def detect_facts(
        self, subjects: Iterable[Subject] | None = None, scopes: Iterable[Place] | None = None
    ) -> list[Fact]:
        """Ask the model for lasting facts about some subjects, of any concept, save them and return them.

        The facts are saved in each of the scopes, by default in the agent's. The transcript is not changed.

        Raises:
            StoreError: the facts could not be saved.
            ModelRequestError: a request failed. An unusable answer emits an ExtractionFailed event instead.
        """
        asked = self._subjects_or(subjects)
        places = [self._scope(place) for place in _several((ScopeKind.AGENT,) if scopes is None else scopes, "scopes")]

        async def find(key: str) -> list[Saved]:
            there = await self._found(None, asked, places)

            # Stored facts are text too: they are not shown if they are trusted less than the conversation.
            def messages(look: _Look) -> list[Message]:
                known = [KnownFact(*each) for each in there if not is_less(each[0].source.trust, look.trust)]
                shown = [each.fact for each in fitting(known, self._limit, self._characters)]
                return _extraction.detection_messages(asked, shown, look.lines, self._zone)

            facts: list[Saved] = []
            concepts: list[Concept] = []
            # People's words come first here, so that nothing else decides how they are kept, and are saved last, as the newest.
            for look in reversed(await self._look(key, messages, _extraction.detection())):
                if len(look.entries) > _extraction.MOST_FACTS:
                    self._failed(f"the answer has {len(look.entries)} facts, more than {_extraction.MOST_FACTS}")
                    continue
                several = [Concept(each.concept.keyword, fact_type=FactType.MULTIPLE) for each, _, _ in there
                           if isinstance(each, MultipleFacts)]  # fmt: skip
                known = [*several, *(fact.concept for fact in _trusted(there, look.trust)), *concepts]
                dates = _extraction.Dates(look.lines, self._zone)
                found, dropped = _extraction.facts_of(look.entries, asked, known, self._quoting(look), dates)
                self._check(dates)
                if dropped:
                    _log.warning(
                        "an extraction dropped entries with unknown subjects, or that are not valid facts: %d",
                        dropped,
                    )
                concepts += [fact.concept for fact, _ in found]
                facts[:0] = _as_spelt([(fact, subject, scope) for fact, subject in found for scope in places], there)
            return facts

        kept = await self._keep(find)
        return [fact for fact, _, scope in kept if scope == places[0] and not isinstance(fact, Withdrawal)]

    async def history(
        self,
        concept: Concept,
        subject: Subject = EVERYTHING,
        scope: Place = ScopeKind.AGENT,
        *,
        at: datetime | None = None,
    ) -> list[FactVersion]:
        """Return every version of the facts about a concept, including withdrawals, the newest first.

        With `at`, a moment with a time zone, only versions recorded by then are returned.

        Raises:
            UnsupportedError: the provider does not keep a history.
            StoreError: the history could not be read.
            ValueError: `at` has no time zone.
        """
        check_given("history(concept, subject, scope)", concept=concept, subject=subject, place=scope)
        provider, within = self._keeping("history"), self._scope(scope)
        options = self._options()
        by: dict[str, Any] = {} if at is None else {"at": at}
        found = await provider.history(concept, subject, within, **options, **by)
        if found and self._expiry is not None:
            last = found if at is None else await provider.history(concept, subject, within, **options)
            if last and self._expiry.has_passed(last[0].timestamp, options.get("owner", "")):
                return []
        self._heard(found)
        return found

    async def forget(
        self,
        *others: Never,
        concept: Concept | None = None,
        subject: Subject | None = None,
        scope: Place | None = None,
        value: str | None = None,
        everything: bool = False,
    ) -> Receipt:
        """Erase all facts of the run's owner that match the arguments; with `everything`, all facts of the owner.

        With `value` and a concept with several values, only this value is erased, from every version.

        Raises:
            TypeError: an argument is positional.
            ValueError: no argument is given, `everything` is combined with others, or `value` is given without its concept or
                with a concept that has one value.
            UnsupportedError: the provider cannot forget.
            StoreError: the facts could not be erased.
        """
        within = None if scope is None else self._scope(scope)
        check_filter(concept, subject, within, value, everything=everything, by_position=others)
        provider = self._keeping("forgetting")
        if everything:
            return await provider.forget(everything=True, **self._options())
        options = self._options()
        if value is not None:
            options["value"] = value
        return await provider.forget(concept=concept, subject=subject, scope=within, **options)

    def _keeping(self, ability: str) -> KeepingProvider:
        if not isinstance(self.provider, KeepingProvider):
            raise UnsupportedError(self.provider, ability)
        return self.provider

    def _scope(self, place: Place, node: str = "") -> Scope:
        if isinstance(place, Scope):
            return place
        check_given("scope=ScopeKind.AGENT, or scopes=[ScopeKind.AGENT]", place=place)
        scope = self._scopes.get(place)
        if scope is None:
            raise FeatureError(
                f"{f'node {node!r} asks' if node else 'this asks'} for the {place.value} scope, which has no name; "
                f"add {_SETTINGS[place]}=… to install(AgentMemory, …)"
            )
        return scope

    def _subjects_or(self, subjects: Iterable[Subject] | None) -> list[Subject]:
        return _by_priority(self._subjects or ()) if subjects is None else _checked_subjects(subjects)

    def _places(
        self, subjects: Iterable[Subject] | None, scopes: Iterable[Place] | None
    ) -> list[tuple[Subject, Scope]]:
        wanted = list(self._scopes.values()) if scopes is None else list(map(self._scope, _several(scopes, "scopes")))
        return [(subject, scope) for subject in self._subjects_or(subjects) for scope in wanted]

    def _options(self) -> dict[str, Any]:
        return {"owner": self._ctx.owner} if self._ctx is not None and self._ctx.owner else {}

    async def _found(
        self,
        concepts: Sequence[Concept] | None,
        subjects: Iterable[Subject] | None,
        scopes: Iterable[Place] | None,
        as_of: datetime | None = None,
    ) -> list[Found]:
        for concept in concepts or ():
            check_given("load(concept, subjects=[…], scopes=[…])", concept=concept)
        places, options = self._places(subjects, scopes), self._options()
        if as_of is not None:
            self._keeping("history")
            options["as_of"] = as_of
        if concepts is None:
            found = [
                (fact, subject, scope)
                for subject, scope in places
                for fact in await self.provider.load_all(subject, scope, **options)
            ]
        else:
            found = [
                (fact, subject, scope)
                for concept in concepts
                for subject, scope in places
                for fact in await self.provider.load(concept, subject, scope, **options)
            ]
        if self._expiry is None:
            return found
        owner: str = self._options().get("owner", "")
        return [each for each in found if not self._expiry.has_passed(each[0].timestamp, owner)]

    def heard(self, facts: Iterable[Fact]) -> list[Fact]:
        """Return facts that a node or a tool reads; from now on, their trust limits the trust of the run."""
        found = list(facts)
        self._heard(found)
        return found

    def _heard(self, versions: Iterable[FactVersion]) -> None:
        if self._ctx is not None:
            for version in versions:
                self._ctx.memory.lower_trust(version.source.trust)

    async def _keep(self, find: Callable[[str], Awaitable[Sequence[Saved]]]) -> list[Saved]:
        """Save the facts and withdrawals that `find` returns, and return them as saved. Recorded by name, so it happens once."""
        ctx = self._running()
        key = ctx.next_key("facts")
        kept: list[Saved] | None = None

        async def work() -> list[list[str | int]]:
            nonlocal kept
            kept, names = [], Counter[object]()
            for fact, subject, scope in await find(key):
                # One concept may have a fact from a person and a fact from a tool.
                names[place := (fact.concept, subject, scope)] += 1
                named = f"{ctx.idempotency_key}:{key}" + (f":{names[place]}" if names[place] > 1 else "")
                kept.append(await self._save(fact, subject, scope, named=named))
            return [reference(each) for each in kept]

        references = await ctx.once(key, work)
        return kept if kept is not None else await found_again(self.provider, references, ctx.owner)

    def _source(self, trust: str, step: int | None = None) -> Source:
        """Return the source for a fact that the run saves: made from one step, or else from all of them."""
        ctx = self._running()
        return Source(ctx.run_id, len(ctx.memory.steps) if step is None else step, ctx.node, trust)

    async def _save(self, fact: FactVersion, subject: Subject, scope: Scope, *, named: str = "") -> Saved:
        """Save a fact or a withdrawal with its source; in a run, its id is the same when the node is executed again."""
        ctx = self._ctx
        stamped = replace(fact, timestamp=_clock.now() if fact.timestamp is None else fact.timestamp)
        if ctx is None:
            await self._add(stamped, subject, scope)
            return stamped, subject, scope
        stamped = replace(stamped, id=saved_id(named, fact.concept, subject, scope), version=0)
        # A process may have died after saving the fact and before recording it.
        version = await kept_version(self.provider, stamped, subject, scope, ctx.owner)
        if version is None:
            await self._add(stamped, subject, scope)
            ctx.emit(FactsSaved(ctx.run_id, ctx.node, 1))
            version = await kept_version(self.provider, stamped, subject, scope, ctx.owner)
        return replace(stamped, version=version or 0), subject, scope

    async def _add(self, version: FactVersion, subject: Subject, scope: Scope) -> None:
        if isinstance(version, Withdrawal):
            await self._keeping("withdrawing").withdraw(version, subject, scope, **self._options())
        else:
            await self.provider.save(version, subject, scope, **self._options())

    async def _show(self, found: Sequence[KnownFact]) -> list[Fact]:
        """Show the model the facts that it does not see already, as many as fit. Return all facts."""
        ctx = self._running()

        async def unseen() -> list[KnownFact]:
            shown: dict[tuple[str, Subject], set[tuple[object, ...]]] = {}
            for step in ctx.memory.visible:
                if isinstance(step, FactsStep | SummaryStep):
                    shown |= _values_of(step.facts)
            room = fitting(found, self._limit, self._characters)
            # Facts that contradict each other are shown together.
            news = {about for about, values in _values_of(room).items() if shown.get(about) != values}
            return [known for known in room if (known.fact.concept.keyword, known.subject) in news]

        new = await found_once(ctx, self, unseen)
        if new:
            await ctx.add(FactsStep(tuple(new), len(found) - len(fitting(found, self._limit, self._characters))))
            ctx.emit(FactsLoaded(ctx.run_id, ctx.node, len(new)))
        return [known.fact for known in found]

    async def _look(
        self, key: str, messages: Callable[[_Look], Sequence[Message]], form: OutputFormat[Any]
    ) -> list[_Look]:
        """Have the model look for facts in the steps of this run, and return the results, the least trusted first."""
        memory = self._running().memory
        transcript = memory.transcript
        lines = _extraction.lines_of(memory.run_steps, transcript.made_of(), transcript.begun)
        looks = [_Look(*look) for look in _extraction.looks(lines)]
        found: list[_Look] = []
        for number, look in enumerate(looks):
            if number and not any(_extraction.quotes(entry, look.lines) for entry in found[0].entries):
                break  # all of the conversation is from elsewhere
            answer = await self._ask(f"{key}:said" if number else key, messages(look), form)
            if answer is None:
                break
            found = [replace(each, entries=_extraction.without(each.entries, answer.entries)) for each in found]
            found.append(replace(look, entries=answer.entries))
        return found

    def _quoting(self, look: _Look) -> Callable[[str], Source]:
        """Return a function from a quote to the source of a fact: the step that contains the quote."""

        def source(quote: str) -> Source:
            line = _extraction.quoted(quote, look.lines)
            return self._source(look.trust, None if line is None else line.step)

        return source

    async def _ask(self, key: str, messages: Sequence[Message], form: OutputFormat[Any]) -> Any:
        """Return the model's answer; None if no answer is valid."""
        request = ModelRequest(tuple(messages), output=form)

        def parse(message: Message) -> Any:
            return form.parse(message.text)

        try:
            # The answer is not recorded: its content is stored as facts only, so that forgetting these is enough.
            response = await self._running().request(request, key=key, parse=parse, purpose="extraction", record=False)
        except OutputError as error:
            self._failed(str(error))
            return None
        found = parse(response.message)
        if found.malformed:
            self._failed(
                f"{counted(found.malformed, 'entry')} of the answer did not have the form of a fact; the others are kept"
            )
        return found

    def _check(self, dates: _extraction.Dates) -> None:
        if dates.unread:
            self._failed(f"{counted(dates.unread, 'date')} of the answer could not be read; the facts are kept without")

    def _failed(self, reason: str) -> None:
        ctx = self._running()
        ctx.emit(ExtractionFailed(ctx.run_id, ctx.node, reason))

    def _running(self) -> Context:
        if self._ctx is None:
            raise FeatureError("this works on the transcript of a run; call it in a node, on ctx.feature(AgentMemory)")
        return self._ctx

    def __repr__(self) -> str:
        return f"<AgentMemory over {type(self.provider).__name__}>"


@dataclass(frozen=True, slots=True)
class _Look:
    """A part of a conversation that a model searches, and the facts that it finds."""

    lines: Sequence[_extraction.Line]
    trust: str
    """The trust of facts found in this part."""
    entries: Sequence[Any] = ()
    """The entries that the model found."""


def _trusted(found: Iterable[Found], trust: str) -> list[Fact]:
    """Return the facts with at least this trust."""
    return [fact for fact, _, _ in found if not is_less(fact.source.trust, trust)]


def _as_spelt(versions: Iterable[Saved], there: Sequence[Found]) -> list[Saved]:
    """Return versions in which ended values have the known spelling, without withdrawals of values not known in their place."""
    found: list[Saved] = []
    for version, subject, scope in versions:
        values = (
            value
            for fact, *place in there
            if place == [subject, scope] and fact.concept == version.concept
            for value in fact.values
        )
        spelt = _extraction.as_spelt(version, values)
        found += [] if spelt is None else [(spelt, subject, scope)]
    return found


async def found_once(
    ctx: Context, memory: AgentMemory, find: Callable[[], Awaitable[list[KnownFact]]]
) -> list[KnownFact]:
    """Return the facts that `find` returns. Recorded by name, so a node that is executed again gets the same facts.

    Raises:
        StoreError: the facts could not be read.
    """
    found: list[KnownFact] | None = None

    async def work() -> list[Any]:
        nonlocal found
        found = await find()
        return [fact_json(known, values=False) for known in found]

    recorded = await ctx.once(ctx.next_key("known facts"), work)
    return found if found is not None else await memory.look_up(list(map(read_fact_json, recorded)), owner=ctx.owner)


def _several(given: Iterable[Any], name: str) -> Iterable[Any]:
    """Return an argument that must be a list.

    Raises:
        TypeError: the argument is a single value.
    """
    if isinstance(given, Subject | Scope | str) or not isinstance(given, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{name} is a list, not {kind_of(given)}; write {name}=[{name[:-1]}]")
    return given


def _checked_subjects(subjects: Iterable[Subject]) -> list[Subject]:
    found = list(_several(subjects, "subjects"))
    for each in found:
        check_given("subjects=[subject]", subject=each)
    return found


def _zone_of(given: tzinfo | str | None) -> tzinfo | None:
    """Return a time zone.

    Raises:
        ValueError: no time zone has this name.
        TypeError: the argument is neither a time zone nor a name.
    """
    if given is None or isinstance(given, tzinfo):
        return given
    check_text("timezone", given)
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(given)
    except (ValueError, OSError, LookupError):
        raise ValueError(
            f"timezone={given!r} is not known; write a name such as 'Europe/Oslo', or datetime.UTC"
        ) from None


def _values_of(facts: Iterable[KnownFact]) -> dict[tuple[str, Subject], set[tuple[object, ...]]]:
    """Return the values and times of facts, for each concept and subject."""
    found: dict[tuple[str, Subject], set[tuple[object, ...]]] = {}
    for known in facts:
        fact = known.fact
        times = (fact.valid_from, fact.valid_to) if isinstance(fact, SingleFact) else ()
        found.setdefault((fact.concept.keyword, known.subject), set()).add((*fact.values, *times))
    return found


def _by_priority(subjects: Iterable[Subject]) -> list[Subject]:
    found = dict.fromkeys((*_checked_subjects(subjects), EVERYTHING))
    return sorted(found, key=lambda subject: subject.priority)
