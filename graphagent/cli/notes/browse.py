"""`graphagent notes browse`: the notes of an owner on the whole terminal."""

from __future__ import annotations

import sys
from contextlib import AsyncExitStack
from importlib.util import find_spec
from typing import TYPE_CHECKING

import typer

from graphagent.cli import _stores
from graphagent.cli._store_place import StorePlace
from graphagent.cli.notes._target import EmbedderName, NotesTarget, RerankerName, SeenBy, notes_in
from graphagent.errors import GraphAgentError, MissingExtraError

if TYPE_CHECKING:
    from graphagent.history import Place
    from graphagent.protocols import Store


def browse(
    target: NotesTarget, source: SeenBy = None, embedder: EmbedderName = None, reranker: RerankerName = None
) -> None:
    """Browse the notes on the whole terminal: scopes, search with the parts of each score, whole notes; edit and forget them.

    Before a note is forgotten, you see where it has been: in prompts of runs, in facts and in other notes, of the store, or of the whole
    folder if you named a folder.
    """
    if find_spec("textual") is None:
        raise MissingExtraError("graphagent notes browse", "browse")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise typer.BadParameter(
            "it needs a terminal; in a script, use graphagent notes list, recall or show", param_hint="browse"
        )

    async def run(store: Store) -> None:
        from graphagent.cli.notes._browser import Browser

        async with AsyncExitStack() as opened:
            notes = await opened.enter_async_context(
                await notes_in(store, target.owner, source=source, embedder=embedder, reranker=reranker, vectors=True)
            )
            others, unread = await _others(opened, target)
            place = _stores.place_of("notes", target.store, new=False)
            browser = Browser(
                notes, [store, notes, *others], name=str(place), sealed=target.key is not None, unread=unread
            )
            await browser.run_async()
        if browser.return_code:
            raise typer.Exit(browser.return_code)

    target.use(run)


async def _others(opened: AsyncExitStack, target: NotesTarget) -> tuple[list[Place], list[str]]:
    """Return the other places in the folder of the notes, opened, and the places that cannot be read, with the reasons."""
    own = _stores.place_of("notes", target.store, new=False)
    places: list[Place] = []
    unread: list[str] = []
    for each in _beside(target.store, own):
        try:
            key = None if target.key is None else _stores.key_source(target.key)
            places.append(await opened.enter_async_context(_stores.open_place(each, key, target.anchor)))
        except GraphAgentError as error:
            unread.append(f"{each}: {error}")
        except typer.BadParameter as error:  # it is sealed, and no key was given
            unread.append(f"{each}: {error.message}")
    return places, unread


def _beside(given: StorePlace | None, own: StorePlace) -> list[StorePlace]:
    """Return the other places in the folder that `--store` names, or else in the default folder."""
    folder = StorePlace(str(_stores.home())) if given is None else given
    if folder.is_server or not folder.path.is_dir():
        return []
    return [each for each in _stores.found_in(folder) if each.path != own.path]
