"""Notes: free-text memory that is found again by what it says."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from graphagent._article import a
from graphagent.memory.notes._engine import Engine
from graphagent.memory.notes._scopes import Bounds
from graphagent.memory.notes._settings import Composite, Settings
from graphagent.memory.notes._view import NoteView
from graphagent.memory.notes.index._repository import Book
from graphagent.memory.notes.recall._ranking import Ranking

if TYPE_CHECKING:
    from graphagent.protocols import Embedder, Model, NoteIndex, Store
    from graphagent.store import SqliteStore


class Notes(NoteView):
    """Free-text memory: texts in a tree of scopes, found again by their words and, with an embedder, by their meaning.

    Without any argument it works in a file in your user data folder (`GRAPHAGENT_HOME`), with no model, no key and no network.
    It opens at its first use; `async with` closes it early. Any number of tasks and processes may use one file.

    Args:
        store: A file, or a Store, such as MemoryStore() for notes that end with the process; of an EncryptedStore what is searched stands in memory only.
        model: Infers what is left out on saving, splits texts, looks deeper where a recall needs it, and consolidates notes that say
            the same. It is sent texts of notes, private ones too, where `infer` is not `never` and `depth` not `shallow`. What it
            does after a save is done in the background, and goes on at the next opening.
        embedder: Makes the vectors by which notes are found by meaning.
        index: Another search engine, which is asked instead of the tables in the file.
        owner: Whose notes: a user, a tenant. Owners never see one another's.
        source: Who speaks and asks: private notes of others are not seen.
        ranking: How much each stage of the ranking adds.
        recency_weight: Any of these three given, notes are ranked as crewAI does, by a mean of relevance, recency and importance,
            behind a gate for what is hardly relevant. Left out: by relevance alone.
        semantic_weight: Of the relevance, there.
        importance_weight: Of the importance, there.
        relevance_gate: There, notes with less than this share of the best relevance come last.
        recency_half_life_days: After how many days recency is one half.
        default_importance: Of notes for which none was given.
        consolidation_threshold: From which similarity on the model is asked whether a new note says the same as older ones of its scope,
            which it may then change or take away; an older note with the same words is taken away without asking. All of it
            stands in the history and can be undone. 1.0, or no model: none of this is done.
        consolidation_limit: How many similar notes it is shown; 0: it is not asked, and only those with the same words are consolidated.
        confidence_threshold_high: From which score on a deep recall looks no further.
        confidence_threshold_low: Below which score it looks further, within its budget.
        complex_query_threshold: Below which score it looks further where the question is complex.
        exploration_budget: How many rounds it may look further.
        query_analysis_threshold: Questions of fewer characters are not analysed by the model.
        on_progress: Called, in a worker thread, with how many notes can be found already, and of how many, while that by which
            they are found is made: at each opening over a store that is no SqliteStore, else when it is not there.
        cache_bytes: About how many bytes of memory are used for the vectors and the speakers of the owners that were used last. Those of
            others are read again at their next use. The vectors of one owner are always kept, even if they are larger.

    Raises:
        TypeError: something is not of the type that it has to be; the error says what would be.
        ValueError: a setting is out of range, or `cache_bytes` is no number of bytes.
        NoteError: the source is none.
    """

    def __init__(
        self,
        store: str | os.PathLike[str] | Store | None = None,
        *,
        model: Model | None = None,
        embedder: Embedder | None = None,
        index: NoteIndex | None = None,
        owner: str = "",
        source: str | None = None,
        ranking: Ranking | None = None,
        recency_weight: float | None = None,
        semantic_weight: float | None = None,
        importance_weight: float | None = None,
        relevance_gate: float = 0.5,
        recency_half_life_days: float = 30,
        default_importance: float = 0.5,
        consolidation_threshold: float = 0.85,
        consolidation_limit: int = 5,
        confidence_threshold_high: float = 0.8,
        confidence_threshold_low: float = 0.5,
        complex_query_threshold: float = 0.7,
        exploration_budget: int = 1,
        query_analysis_threshold: int = 200,
        on_progress: Callable[[int, int], object] | None = None,
        cache_bytes: int = 64 * 2**20,
    ) -> None:
        if type(cache_bytes) is not int or cache_bytes < 0:
            raise ValueError(f"cache_bytes={cache_bytes!r} is no number of bytes; it is an int of 0 or more")
        _check_makers(model, embedder)
        if not isinstance(owner, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            hint = "leave it out" if owner is None else f"give owner={str(owner)!r}"  # pyright: ignore[reportUnnecessaryComparison]
            raise TypeError(f"owner={owner!r} is not a text, such as the id of a user; {hint}")
        bounds = Bounds(owner=owner) if source is None else Bounds(owner=owner).seen_by(source)
        given = {"recency": recency_weight, "semantic": semantic_weight, "importance": importance_weight}
        weights = {name: weight for name, weight in given.items() if weight is not None}
        settings = Settings(
            ranking=Ranking() if ranking is None else ranking,
            composite=Composite(**weights) if weights else None,
            relevance_gate=relevance_gate,
            recency_half_life_days=recency_half_life_days,
            default_importance=default_importance,
            consolidation_threshold=consolidation_threshold,
            consolidation_limit=consolidation_limit,
            confidence_threshold_high=confidence_threshold_high,
            confidence_threshold_low=confidence_threshold_low,
            complex_query_threshold=complex_query_threshold,
            exploration_budget=exploration_budget,
            query_analysis_threshold=query_analysis_threshold,
        )
        self._own, kept = _opened(store)
        book = Book(kept, embedder, index, on_progress, cache_bytes=cache_bytes)
        engine = Engine(book, settings)
        if model is not None:
            from graphagent.memory.notes.enrich._inference import Inference

            engine.inference = Inference(book, model, settings, owner, engine.emit)
        super().__init__(engine, bounds)

    async def owners(self) -> list[str]:
        """Return all owners that have notes in the store, in alphabetical order, `""` for notes without an owner.

        This is for whoever administers the store: it includes others than the owner of these notes.

        Raises:
            StoreError: the store cannot be read.
        """
        return await self._engine.book.owners()

    async def stored_embedder(self) -> str | None:
        """Return the name of the embedder that made the vectors of the owner's notes; None if there are no vectors.

        Raises:
            StoreError: the store cannot be read.
        """
        maker = await self._engine.book.maker(self._bounds.owner)
        return None if maker is None else maker.name

    async def aclose(self) -> None:
        """Close the file, and the connections of an embedder that can close them.

        What is still to be inferred is inferred when the notes are opened again. An OpenAIEmbedder that others use too goes on.
        """
        if self._engine.inference is not None:
            await self._engine.inference.aclose()
        try:
            close = getattr(self._engine.book.embedder, "aclose", None)
            if close is not None:
                await close()
        finally:
            if self._own is not None:
                await self._own.aclose()

    async def __aenter__(self) -> Self:
        await self._engine.book.open()
        if self._engine.inference is not None:
            await self._engine.inference.resume()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        await self.aclose()


def _opened(store: str | os.PathLike[str] | Store | None) -> tuple[SqliteStore | None, Store]:
    """Give the store that is to be closed with the notes, where it is theirs, and the store."""
    from graphagent.store import SqliteStore

    if store is None:
        own = SqliteStore(default_file())
        return own, own
    if isinstance(store, str | os.PathLike):
        if os.fspath(store) in ("", ":memory:"):
            raise ValueError(
                f"store={store!r} is not the path of a file; for notes that end with the process give MemoryStore(), of "
                f"graphagent.store"
            )
        own = SqliteStore(store)
        return own, own
    if isinstance(store, type):
        raise TypeError(f"store= is the class {store.__name__}; make one: {store.__name__}(…)")
    if not callable(getattr(store, "commit", None)):
        raise TypeError(
            f"store= is a path or a store, such as 'notes.db' or SqliteStore('notes.db'), not {a(type(store).__name__)}"
        )
    return None, store


def _check_makers(model: object, embedder: object) -> None:
    """See that what is to ask, and what is to make vectors, can do so.

    Raises:
        TypeError: it cannot.
    """
    if model is not None and (isinstance(model, type) or not callable(getattr(model, "respond", None))):
        raise TypeError(
            f"model= is an object that responds, such as OpenAIModel('gpt-…'), not {a(type(model).__name__)}"
        )
    if embedder is None or (not isinstance(embedder, type) and callable(getattr(embedder, "embed", None))):
        return
    if isinstance(embedder, type):
        raise TypeError(f"embedder= is the class {embedder.__name__}; make one: {embedder.__name__}(…)")
    given = a(type(embedder).__name__)
    if isinstance(embedder, Mapping):
        such = "embedder_from(that), of graphagent.embed"
    elif callable(embedder):
        such = "CallableEmbedder(function, name='…'), of graphagent.embed"
    else:
        such = "StaticEmbedder(), of graphagent.embed.static"
    raise TypeError(f"embedder= is an embedder, not {given}; give {such}")


def default_file() -> Path:
    """Give the file of notes that are opened without a store."""
    if folder := os.environ.get("GRAPHAGENT_HOME"):
        return Path(folder).expanduser() / "notes.db"
    from platformdirs import user_data_path

    return user_data_path("graphagent", appauthor=False) / "notes.db"
