"""`graphagent anchor`: show an anchor, and accept an older copy of a store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Annotated, TypeVar

import anyio
import typer

from graphagent._article import counted
from graphagent.cli import _output
from graphagent.cli._options import AnchorPlace, Json, Yes, expand_options, key_option, place_option
from graphagent.cli._prompts import confirm
from graphagent.cli._store_place import StorePlace
from graphagent.cli._stores import key_source, plain_store, sealed_store, stores_in
from graphagent.errors import AnchorError, PlainStoreError, RolledBackError, StoreError
from graphagent.store import EncryptedStore

T = TypeVar("T")
anchor = typer.Typer(no_args_is_help=True, help="Check whether a store is older than its anchor, and accept it if so.")


@dataclass(frozen=True, slots=True)
class Anchored:
    """Sealed stores, a key that opens them, and their anchors."""

    store: Annotated[
        StorePlace | None,
        place_option(
            "The file of a store, or a folder: the sealed stores in it. Default: those in "
            "$GRAPHAGENT_HOME, or else in your user data folder"
        ),
    ] = None
    key: Annotated[str | None, key_option("A key that opens the store")] = None
    anchor: AnchorPlace = None

    def each(self, work: Callable[[StorePlace, EncryptedStore], Awaitable[T]]) -> list[T]:
        """Open the stores one after another, await `work` with each, close it, and return the results.

        Raises:
            BadParameter: The key or the anchor is missing or not valid.
            StoreError: No sealed store exists, or one does not open with this key.
        """
        if self.key is None:
            raise typer.BadParameter("name the key that opens the store", param_hint="--key")
        if self.anchor is None:
            raise typer.BadParameter("name the place of the anchor", param_hint="--anchor")
        given = key_source(self.key)
        paths = stores_in(self.store, "sealed store")

        async def main() -> list[T]:
            done: list[T] = []
            for path in paths:
                async with AsyncExitStack() as stack:
                    store = sealed_store(plain_store(path), path, given, self.anchor)
                    await stack.enter_async_context(store)
                    try:
                        done.append(await work(path, store))
                    except PlainStoreError:
                        if len(paths) == 1:
                            raise
            return done

        done = anyio.run(main)
        if not done:
            raise StoreError(f"no sealed store was found in {', '.join(map(str, paths))}")
        return done

    def states(self) -> list[tuple[StorePlace, str | None, bool]]:
        """Return for each store its problem or that of its anchor, or None, and whether it is anchored."""

        async def look(path: StorePlace, store: EncryptedStore) -> tuple[StorePlace, str | None, bool]:
            try:
                return path, None, await store.is_anchored()
            except RolledBackError:
                return path, "older than its anchor", True
            except AnchorError as error:
                return path, str(error), True

        return self.each(look)


@anchor.command("show", epilog="Example: graphagent anchor show --key file:~/.graphagent-key --anchor /media/stick")
@expand_options
def show(target: Anchored, json: Json = False) -> None:
    """Show whether each store is as new as its anchor. Exits with 1 if one is not."""
    found = target.states()
    rows = [
        (str(path), wrong or ("as new as its anchor" if anchored else "not anchored yet"))
        for path, wrong, anchored in found
    ]
    if json:
        print(_output.json_text([{"store": path, "state": state} for path, state in rows]))
    else:
        _output.table(("store", "state"), rows)
    if any(wrong for _, wrong, _ in found):
        raise typer.Exit(1)


@anchor.command(
    "reset",
    epilog="Example: graphagent anchor reset --store notes.db --key file:~/.graphagent-key --anchor /media/stick",
)
@expand_options
def reset(target: Anchored, yes: Yes = False) -> None:
    """Accept stores that are older than their anchors, and rewrite the anchors, even lost or damaged ones.

    Everything stored after that copy was made is lost. A store that is as new as its anchor is left alone.
    """
    found = target.states()
    for path, wrong, anchored in found:
        print(f"{path}: {wrong or ('as new as its anchor' if anchored else 'not anchored yet')}")
    chosen = {path for path, wrong, anchored in found if wrong or not anchored}
    if not chosen:
        return
    if not yes:
        confirm(f"Accept {counted(len(chosen), 'store')} without anything stored since? That is lost for good.")

    async def accept(path: StorePlace, store: EncryptedStore) -> None:
        if path in chosen:
            await store.reset_anchor()

    target.each(accept)
    print(f"Accepted: {counted(len(chosen), 'store')}.")
