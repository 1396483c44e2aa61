"""`NoMemory`: a provider that stores nothing."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Never, Self

from graphagent.memory.facts._arguments import check_filter
from graphagent.memory.facts._moments import checked_moment
from graphagent.memory.facts._withdrawing import of_known
from graphagent.store import Receipt

if TYPE_CHECKING:
    from datetime import datetime

    from graphagent.memory.facts._types import Concept, Fact, FactVersion, Scope, Subject, Withdrawal

_log = logging.getLogger("graphagent.memory")
_said = False


class NoMemory:
    """Stores nothing, so that an agent with memory nodes runs without a provider. The log says so, once per process."""

    def __repr__(self) -> str:
        return "NoMemory()"

    async def save(self, fact: Fact, subject: Subject, scope: Scope, *, owner: str = "") -> None:
        """Do nothing."""
        _say_once()

    async def withdraw(self, withdrawal: Withdrawal, subject: Subject, scope: Scope, *, owner: str = "") -> None:
        """Raise ValueNotFoundError, since no value is known."""
        of_known(withdrawal, ())

    async def load(
        self, concept: Concept, subject: Subject, scope: Scope, *, owner: str = "", as_of: datetime | None = None
    ) -> list[Fact]:
        """Return nothing."""
        _say_once()
        return _nothing_at("as_of=", as_of)

    async def load_all(
        self, subject: Subject, scope: Scope, *, owner: str = "", as_of: datetime | None = None
    ) -> list[Fact]:
        """Return nothing."""
        _say_once()
        return _nothing_at("as_of=", as_of)

    async def load_by_description(
        self, description: str, subject: Subject, scope: Scope, *, owner: str = "", as_of: datetime | None = None
    ) -> list[Fact]:
        """Return nothing."""
        _say_once()
        return _nothing_at("as_of=", as_of)

    async def history(
        self, concept: Concept, subject: Subject, scope: Scope, *, owner: str = "", at: datetime | None = None
    ) -> list[FactVersion]:
        """Return nothing."""
        return [*_nothing_at("at=", at)]

    async def forget(
        self,
        *others: Never,
        concept: Concept | None = None,
        subject: Subject | None = None,
        scope: Scope | None = None,
        value: str | None = None,
        owner: str = "",
        everything: bool = False,
    ) -> Receipt:
        """Return an empty receipt.

        Raises:
            TypeError: an argument is positional.
            ValueError: no argument is given, `everything` is combined with others, or a value is given without its concept.
        """
        check_filter(concept, subject, scope, value, everything=everything, by_position=others)
        return Receipt()

    async def export(self, *, owner: str | None = None) -> AsyncGenerator[dict[str, object]]:
        """Return nothing."""
        nothing: tuple[dict[str, object], ...] = ()
        for record in nothing:
            yield record

    async def import_(self, records: Sequence[dict[str, object]]) -> int:
        """Save nothing, and return 0."""
        _say_once()
        return 0

    async def verify(self) -> int:
        """Return 0."""
        return 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


def _nothing_at(name: str, moment: datetime | None) -> list[Fact]:
    if moment is not None:
        checked_moment(name, moment)
    return []


def _say_once() -> None:
    global _said
    if not _said:
        _said = True
        _log.warning("facts are not stored, because no provider was given; give AgentMemory a provider to store them")
