"""The facts that a memory server has: those of one owner, of all subjects and scopes or of one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from mcp.server.mcpserver.exceptions import ToolError

from graphagent import _clock
from graphagent.memory import Concept, FactType, KnownFact, MultipleFacts, Scope, ScopeKind, SingleFact, Source, Subject

if TYPE_CHECKING:
    from datetime import datetime

    from graphagent.protocols import KeepingProvider

_SUBJECT, _SCOPE = Subject("user"), Scope.agent("chat")
"""Where a fact is saved if nothing else was chosen: where `graphagent facts set` saves it."""


@dataclass(frozen=True, slots=True)
class ServedFacts:
    """The facts of one owner, of all subjects and scopes or of one."""

    provider: KeepingProvider
    owner: str
    subject: Subject | None
    scope: Scope | None

    async def known(self, as_of: datetime | None = None) -> list[KnownFact]:
        """Return the facts that hold at a moment, those of a subject and a scope together.

        Raises:
            StoreError: they cannot be read.
        """
        return [
            KnownFact(fact, subject, scope)
            for subject, scope in await self._places()
            for fact in sorted(
                await self.provider.load_all(subject, scope, owner=self.owner, as_of=as_of),
                key=lambda fact: fact.concept.keyword,
            )
        ]

    async def find(self, id_: str) -> tuple[Concept, Subject, Scope]:
        """Return of what, about whom and where a fact is, by the id of any of its versions.

        Raises:
            ToolError: the fact does not exist.
            StoreError: the facts cannot be read.
        """
        records = [record async for record in self.provider.export(owner=self.owner) if record["id"] == id_]
        for record in records:
            subject, scope = _place_of(record)
            if self.subject in (None, subject) and self.scope in (None, scope):
                kind = FactType(record["type"])
                return Concept(str(record["keyword"]), str(record["description"]), kind), subject, scope
        raise ToolError(f"the fact {id_!r} does not exist here; the tool facts lists them with their ids")

    async def save(
        self,
        keyword: str,
        value: str,
        source: Source,
        *,
        description: str,
        several: bool,
        valid_from: datetime | None,
        valid_to: datetime | None,
    ) -> tuple[SingleFact | MultipleFacts, bool]:
        """Save a fact as the next version of its concept, which keeps its type and its description.

        Returns the saved fact, and whether another value holds beside it, or instead of it.

        Raises:
            ValueError: a concept with several values is given times; or a value is not valid.
            StoreError: it could not be saved.
        """
        subject, scope = self.subject or _SUBJECT, self.scope or _SCOPE
        past = await self.provider.history(Concept(keyword), subject, scope, owner=self.owner)
        before = past[0].concept if past else Concept(keyword)
        several = several or before.fact_type is FactType.MULTIPLE
        kind = FactType.MULTIPLE if several else FactType.SINGLE
        concept = Concept(keyword, description or before.description, kind)
        if several and (valid_from or valid_to):
            raise ValueError(f"{keyword!r} has several values, which have no valid_from and valid_to; leave these out")
        id_ = _clock.new_id()
        fact = (
            MultipleFacts(concept, [value], id=id_, source=source)
            if several
            else SingleFact(concept, value, id=id_, source=source, valid_from=valid_from, valid_to=valid_to)
        )
        await self.provider.save(fact, subject, scope, owner=self.owner)
        past = await self.provider.history(concept, subject, scope, owner=self.owner)
        known = await self.provider.load(concept, subject, scope, owner=self.owner)
        version = next((each.version for each in past if each.id == id_), 0)
        return replace(fact, version=version), any(value not in each.values for each in known)

    async def forget(self, place: tuple[Concept, Subject, Scope], value: str | None) -> int:
        """Erase all versions of a fact, or one of its values from all of them. Return the number of the versions.

        Raises:
            ToolError: it has no such value.
            ValueError: a value is given, and the concept has one value.
            StoreError: it could not be erased.
        """
        concept, subject, scope = place
        if value is not None:
            past = await self.provider.history(concept, subject, scope, owner=self.owner)
            if not any(value in each.values for each in past):
                raise ToolError(
                    f"{concept.keyword!r} has no such value; explain shows its values, write one exactly so"
                )
        receipt = await self.provider.forget(
            concept=concept, subject=subject, scope=scope, value=value, owner=self.owner
        )
        return receipt.facts

    async def _places(self) -> list[tuple[Subject, Scope]]:
        """Return the subjects and scopes that have facts, narrower scopes first."""
        if self.subject is not None and self.scope is not None:
            return [(self.subject, self.scope)]
        found = {_place_of(record) async for record in self.provider.export(owner=self.owner)}
        return sorted(
            (
                (subject, scope)
                for subject, scope in found
                if self.subject in (None, subject) and self.scope in (None, scope)
            ),
            key=lambda at: (at[0].name, at[1].kind.width, at[1].name),
        )


def _place_of(record: dict[str, object]) -> tuple[Subject, Scope]:
    at = cast("dict[str, str]", record["scope"])
    return Subject(str(record["subject"])), Scope(ScopeKind(at["kind"]), at["name"])
