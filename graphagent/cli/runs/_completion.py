"""Shell completion of the ids of runs and the names of threads, from the store named earlier on the command line."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from graphagent.protocols import Store

_MOST = 100


def run_ids(context: typer.Context, incomplete: str) -> list[str]:
    """Return the ids of runs that begin with the typed text, newest first."""

    async def read(store: Store, owner: str) -> list[str]:
        from graphagent.run import list_runs

        heads = await list_runs(store, owner=owner)
        return [head.run_id for head in heads if not head.parent and head.run_id.startswith(incomplete)]

    return _found(context, read)


def thread_names(context: typer.Context, incomplete: str) -> list[str]:
    """Return the names of threads that begin with the typed text, the most recently continued first."""

    async def read(store: Store, owner: str) -> list[str]:
        from graphagent.history import list_threads

        return [each.name for each in await list_threads(store, owner=owner) if each.name.startswith(incomplete)]

    return _found(context, read)


def _found(context: typer.Context, read: Callable[[Store, str], Awaitable[list[str]]]) -> list[str]:
    """Return names read from the store; none if the store is missing or cannot be opened, since a shell shows no errors.

    The store of an agent is not read, since the agent's program would have to be executed.
    """
    from graphagent.cli._store_place import store_place
    from graphagent.cli._stores import with_store
    from graphagent.errors import GraphAgentError

    given: dict[str, Any] = context.params
    place = given.get("store")
    if place is None and given.get("agent") is not None:
        return []
    try:
        found = with_store(
            "runs",
            None if place is None else store_place(place),
            given.get("key"),
            lambda store: read(store, given.get("owner") or ""),
        )
    except (typer.BadParameter, GraphAgentError):
        return []
    return [each for each in found if each.isprintable()][:_MOST]
