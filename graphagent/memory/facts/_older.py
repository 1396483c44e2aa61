"""Forgetting facts by their age."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio

from graphagent.errors import StoreError
from graphagent.memory.facts._types import Concept, Scope, ScopeKind, Subject
from graphagent.store import Receipt

if TYPE_CHECKING:
    from graphagent.protocols import KeepingProvider

_TOGETHER = 256
"""How many facts are forgotten at once: operations that wait for a store share one rewrite of its file."""


_Place = tuple[str, str, str, str]
"""Keyword, subject, and kind and name of the scope."""


async def older_facts(provider: KeepingProvider, owner: str, before: int) -> dict[_Place, int]:
    """Return an owner's concepts whose last version was saved before a time, in milliseconds UTC, with the number of versions.

    Raises:
        StoreError: the facts could not be read.
    """
    last: dict[_Place, int | None] = {}
    versions = Counter[_Place]()
    async for record in provider.export(owner=owner):
        each: dict[str, Any] = record
        place = (each["keyword"], each["subject"], each["scope"]["kind"], each["scope"]["name"])
        time = each["timestamp"]
        known = last.get(place, time)
        last[place] = None if time is None or known is None else max(time, known)
        versions[place] += 1
    return {place: versions[place] for place, time in last.items() if time is not None and time < before}


async def forget_older(provider: KeepingProvider, owner: str, before: int) -> Receipt:
    """Erase all facts of an owner whose last version was saved before a time, with their history. Facts without a time stay.

    Raises:
        StoreError: the facts could not be erased.
    """
    old = await older_facts(provider, owner, before)
    receipts, failed, limiter = list[Receipt](), list[StoreError](), anyio.CapacityLimiter(_TOGETHER)

    async def forget(keyword: str, about: str, kind: str, name: str) -> None:
        concept, subject, scope = Concept(keyword), Subject(about), Scope(ScopeKind(kind), name)
        async with limiter:
            try:
                versions = await provider.history(concept, subject, scope, owner=owner)
                saved = versions[0].timestamp if versions else None
                if saved is not None and saved < before:  # no version was saved meanwhile
                    receipts.append(await provider.forget(concept=concept, subject=subject, scope=scope, owner=owner))
            except StoreError as error:
                failed.append(error)

    async with anyio.create_task_group() as group:
        for place in old:
            group.start_soon(forget, *place)
    if failed:
        raise failed[0]
    return replace(Receipt.of({str(number): receipt for number, receipt in enumerate(receipts)}), parts={})
