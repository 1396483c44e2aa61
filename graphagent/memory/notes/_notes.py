"""Notes: free-text memory that is searched by words and by meaning."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Never, Self

from graphagent._article import kind_of
from graphagent._options import check_flag, check_model, check_names
from graphagent.memory._byte_cache import check_cache_bytes
from graphagent.memory._expiry import Expiry
from graphagent.memory.notes._service import NoteService
from graphagent.memory.notes._settings import NoteSettings
from graphagent.memory.notes._view import NoteView
from graphagent.memory.notes._visibility import Visibility
from graphagent.memory.notes.index._engine import check_engine
from graphagent.memory.notes.index._repository import NoteRepository
from graphagent.memory.notes.write._forget import sweep

if TYPE_CHECKING:
    from graphagent.protocols import Embedder, Model, NoteIndex, Reranker, Store
    from graphagent.store import SqliteStore


_INSTEAD = {
    **{each.name: f"Notes(…, settings=NoteSettings({each.name}={{value}}))" for each in fields(NoteSettings)},
    "key": "Notes(EncryptedStore(SqliteStore('notes.db'), key='env:GRAPHAGENT_KEY'))",
    "llm": "Notes(…, model=OpenAIModel('gpt-5-mini'))",
    "storage": "Notes('notes.db'), or Notes(store)",
    "path": "Notes('notes.db')",
    "root_scope": "Notes(…).scope('/path')",
    "read_only": "Notes(…).slice(['/'], read_only=True)",
}
"""The equivalents of arguments that Notes do not have: settings, and arguments of other libraries."""


class Notes(NoteView):
    """Free-text memory: texts in a tree of scopes, found by their words and, with an embedder, by their meaning.

    Without arguments, they are in a file in your user data folder (`GRAPHAGENT_HOME`), with no model, no key and no network. The
    file is opened at the first use; `async with` closes it early. Any number of tasks and processes may use one file.

    Args:
        store: The path of a file, or a Store, such as MemoryStore() for notes that end with the process. For any store but a
            SqliteStore, such as an EncryptedStore, the search index is in memory only.
        model: Infers values left out on saving, splits texts, searches deeper if a recall needs it, and consolidates notes that say
            the same. It receives texts of notes, also private ones, unless `infer` is `never` and `depth` is `shallow`. Its work
            after a save runs in the background, and continues when the notes are opened again.
        embedder: Makes the vectors by which notes are found by meaning.
        late_interaction: Whether vectors of the words of notes are stored and compared with those of a question too, if the embedder
            makes them. It finds more; each word takes a bit for each number of a vector, on the disk and in memory.
        reranker: Orders the best notes of a recall anew: it receives the question and `rerank_limit` (50) of the notes, and returns a score
            for each.
        index: A search engine of your own, which is asked instead of the index of the notes.
        owner: The owner of these notes: a user, a tenant. Owners never see the notes of one another.
        source: Who speaks and asks. Private notes of others are not visible.
        settings: The settings of ranking, reranking, consolidation and deep recall.
        on_progress: Called, in a worker thread, with how many notes are in the index, and of how many, while it is built: at each
            opening if it is in memory, else if it does not exist.
        cache_bytes: The approximate bytes of memory used for the vectors and speakers of the owners used last. Those of others are
            read again at their next use. The vectors of the owner used last are always kept, even if they are larger.
        keep_for: How old a note may be, such as `timedelta(days=90)`, by when it was saved. Older notes are not read, and are erased
            with their history when a note is saved or the notes are opened, at most once an hour. By default, notes are kept for ever.

    Raises:
        TypeError: an argument is of the wrong type.
        ValueError: `cache_bytes` is not a number of bytes, or `store` is not the path of a file.
        NoteError: the source is not valid.
    """

    def __init__(
        self,
        store: str | os.PathLike[str] | Store | None = None,
        *,
        model: Model | None = None,
        embedder: Embedder | None = None,
        reranker: Reranker | None = None,
        index: NoteIndex | None = None,
        owner: str = "",
        source: str | None = None,
        settings: NoteSettings | None = None,
        on_progress: Callable[[int, int], object] | None = None,
        cache_bytes: int = 64 * 2**20,
        late_interaction: bool = True,
        keep_for: timedelta | None = None,
        **others: Never,
    ) -> None:
        if others:
            check_names("Notes", others, _INSTEAD, Notes.__init__.__kwdefaults__ or ())
        check_cache_bytes(cache_bytes)
        check_flag("late_interaction", late_interaction)
        _check_makers(model, embedder)
        _check_reranker(reranker)
        if on_progress is not None and not callable(on_progress):
            raise TypeError(f"on_progress= is a function of two numbers, not {kind_of(on_progress)}")
        if index is not None:
            check_engine(index)
        if not isinstance(owner, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            hint = "leave it out" if owner is None else f"give owner={str(owner)!r}"  # pyright: ignore[reportUnnecessaryComparison]
            raise TypeError(f"owner={owner!r} is not a text, such as the id of a user; {hint}")
        visibility = Visibility(owner=owner, expiry=None if keep_for is None else Expiry(keep_for))
        settings = _checked_settings(settings)
        self._own, kept = _opened(store)
        repository = NoteRepository(
            kept, embedder, index, on_progress, cache_bytes=cache_bytes, late_interaction=late_interaction
        )
        service = NoteService(repository, settings, reranker)
        if model is not None:
            from graphagent.memory.notes.enrich._inference import Inference

            service.inference = Inference(repository, model, settings, owner, service.emit)
        super().__init__(service, visibility if source is None else visibility.of(source))

    async def owners(self) -> list[str]:
        """Return all owners that have notes in the store, in alphabetical order, `""` for notes without an owner.

        This is for administrators of the store: it includes owners other than the owner of these notes.

        Raises:
            StoreError: the store cannot be read.
        """
        return await self._service.repository.owners()

    @property
    def embedder_name(self) -> str | None:
        """The name of the embedder that makes vectors of new notes and of questions; None without one."""
        embedder = self._service.repository.embedder
        return None if embedder is None else embedder.name

    async def stored_embedder(self) -> str | None:
        """Return the name of the embedder that made the vectors of the owner's notes; None without vectors.

        Raises:
            StoreError: the store cannot be read.
        """
        info = await self._service.repository.vectors.info(self._visibility.owner)
        return None if info is None else info.name

    async def aclose(self) -> None:
        """Close the file, and the connections of an embedder and of a reranker that can be closed.

        Pending inference continues when the notes are opened again. An OpenAIEmbedder can still be used by others, and so
        can an OpenAIReranker.
        """
        if self._service.inference is not None:
            await self._service.inference.aclose()
        async with AsyncExitStack() as closing:
            if self._own is not None:
                closing.push_async_callback(self._own.aclose)
            for each in (self._service.reranker, self._service.repository.embedder):
                if (close := getattr(each, "aclose", None)) is not None:
                    closing.push_async_callback(close)

    async def __aenter__(self) -> Self:
        await self._service.repository.open()
        await sweep(self._service, self._visibility)
        if self._service.inference is not None:
            await self._service.inference.resume()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        await self.aclose()


def _checked_settings(settings: NoteSettings | None) -> NoteSettings:
    if settings is None:
        return NoteSettings()
    if not isinstance(settings, NoteSettings):  # pyright: ignore[reportUnnecessaryIsInstance]
        such = "NoteSettings(**that)" if isinstance(settings, Mapping) else "NoteSettings(exploration_budget=2)"
        raise TypeError(f"settings= is a NoteSettings, such as {such}, not {kind_of(settings)}")
    return settings


def _opened(store: str | os.PathLike[str] | Store | None) -> tuple[SqliteStore | None, Store]:
    """Return the store to close with the notes, if they made it, and the store."""
    from graphagent.store import SqliteStore

    if store is None:
        own = SqliteStore(default_file())
        return own, own
    if isinstance(store, str | os.PathLike):
        own = SqliteStore(store)
        return own, own
    if isinstance(store, type):
        raise TypeError(f"store= is the class {store.__name__}; make one: {store.__name__}(…)")
    if not callable(getattr(store, "commit", None)):
        raise TypeError(
            f"store= is a path or a store, such as 'notes.db' or SqliteStore('notes.db'), not {kind_of(store)}"
        )
    return None, store


def _check_makers(model: object, embedder: object) -> None:
    """Check that the model can be asked, and that the embedder can make vectors and has a name, with which they are kept.

    Raises:
        TypeError: one of them cannot, or the embedder has no name.
    """
    if model is not None:
        check_model(model)
    if embedder is None:
        return
    if not isinstance(embedder, type) and callable(getattr(embedder, "embed", None)):
        _check_name("embedder", embedder)
        return
    if isinstance(embedder, type):
        raise TypeError(f"embedder= is the class {embedder.__name__}; make one: {embedder.__name__}(…)")
    given = kind_of(embedder)
    if isinstance(embedder, Mapping):
        such = "embedder_from(that), of graphagent.embed"
    elif callable(embedder):
        such = "CallableEmbedder(function, name='…'), of graphagent.embed"
    else:
        such = "StaticEmbedder(), of graphagent.embed.static"
    raise TypeError(f"embedder= is an embedder, not {given}; give {such}")


def _check_reranker(reranker: object) -> None:
    """Check that a reranker can score texts, and has a name for errors.

    Raises:
        TypeError: the reranker cannot, or has no name.
    """
    if reranker is None:
        return
    if not isinstance(reranker, type) and callable(getattr(reranker, "rerank", None)):
        _check_name("reranker", reranker)
        return
    if isinstance(reranker, type):
        raise TypeError(f"reranker= is the class {reranker.__name__}; make one: {reranker.__name__}(…)")
    if callable(reranker):
        such = "CallableReranker(function), of graphagent.rerank"
    else:
        such = "OpenAIReranker('…', base_url='…'), of graphagent.rerank.openai"
    raise TypeError(f"reranker= is a reranker, not {kind_of(reranker)}; give {such}")


def _check_name(argument: str, given: object) -> None:
    if not isinstance(getattr(given, "name", None), str):
        raise TypeError(f"{argument}= is {kind_of(given)} without a name; give it one, such as name = 'my-model'")


def default_file() -> Path:
    """Return the file of notes that are opened without a store."""
    if folder := os.environ.get("GRAPHAGENT_HOME"):
        return Path(folder).expanduser() / "notes.db"
    from platformdirs import user_data_path

    return user_data_path("graphagent", appauthor=False) / "notes.db"
