"""Facts as items of a store: their keys, `("facts", owner, kind of scope, scope, subject, keyword, version)`, and their values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from graphagent.errors import DamagedStoreError
from graphagent.memory.facts._concept_list import CONCEPTS
from graphagent.memory.facts._json import fact_record, read_fact
from graphagent.memory.facts._types import FactVersion, Scope, ScopeKind, Subject, checked_owner
from graphagent.store import Item, Key, Put
from graphagent.store._items import checked, unchecked

if TYPE_CHECKING:
    from graphagent.memory.facts._json import Place

ROOM = "facts"
"""The first segment of all keys of facts."""


def concept_of(item: Item) -> str:
    """Return the keyword in the key of an item.

    Raises:
        DamagedStoreError: the key is not that of a fact.
    """
    match item.key[5:]:
        case (str() as keyword, int()):
            return keyword
        case _:
            raise DamagedStoreError(f"a key of room {ROOM!r}", "it is not that of a fact")


def facts_of(owner: str) -> Key:
    """Return the beginning of the keys of all facts of an owner."""
    return (ROOM, checked_owner(owner))


def is_fact(key: Key) -> bool:
    """Return whether a key of the room is that of a version of a fact, and not that of a list of concepts."""
    return len(key) > 5 and key[5] != CONCEPTS


def domain_of(place: Place) -> Key:
    """Return the beginning of all keys of an owner, scope and subject."""
    owner, scope, subject = place
    return (ROOM, owner, scope.kind.value, scope.name, subject)


def put_of(keys: Key, fact: FactVersion) -> Put:
    """Return the change that adds a version of a concept, whose keys begin with `keys`."""
    return Put((*keys, fact.version), checked(orjson.dumps(fact_record(fact))), expected=0)


def version_of(item: Item) -> FactVersion:
    """Return the version of a fact in an item.

    Raises:
        DamagedStoreError: the item is not what was written.
    """
    try:
        fact = read_fact(orjson.loads(unchecked(item.value)))
        if (fact.concept.keyword, fact.version) != item.key[5:]:
            raise ValueError("it is a fact of another place")
    except (ValueError, TypeError) as error:
        reason = "it is not JSON" if isinstance(error, orjson.JSONDecodeError) else str(error)
    else:
        return fact
    # Outside the except clause, because the JSON error contains the text, and would be the context of this error.
    raise DamagedStoreError(f"version {item.key[-1]} of the facts about {item.key[-2]!r}", reason)


def place_of(item: Item) -> Place:
    """Return the owner, scope and subject of an item.

    Raises:
        DamagedStoreError: the key is not that of a fact.
    """
    try:
        _, owner, kind, name, subject, keyword, number = item.key
        if not isinstance(keyword, str) or not isinstance(number, int):
            raise TypeError
        return checked_owner(str(owner)), Scope(ScopeKind(kind), str(name)), Subject(str(subject)).name
    except (ValueError, TypeError):
        raise DamagedStoreError(f"a key of room {ROOM!r}", "it is not that of a fact") from None
