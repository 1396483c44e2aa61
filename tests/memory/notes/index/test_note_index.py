"""Another search engine instead of the tables, and the tables made anew."""

from __future__ import annotations

import pytest

from graphagent.errors import DamagedStoreError, NoteError, RunError
from graphagent.memory import Notes, Turn
from graphagent.store import MemoryStore, SqliteStore


class Engine:
    """Finds every record that has the first word of the question, whomever it belongs to, and so also what does not fit."""

    def __init__(self):
        self.held, self.asked = {}, []

    async def add(self, records):
        self.held.update(((record.owner, record.id), record) for record in records)

    async def remove(self, owner, ids):
        for id_ in ids:
            self.held.pop((owner, id_), None)

    async def search(self, query, fits, limit):
        self.asked.append((query, fits.scopes, limit))
        word = query.split()[0].lower()
        found = {id_: 1.0 for (_, id_), record in self.held.items() if word in record.content.lower()}
        return {"lexical": found}


async def test_another_search_engine_is_asked_instead_of_the_tables():
    """It is told of what is kept, changed and forgotten; what it finds outside of the view is not shown."""
    engine = Engine()
    notes = Notes(MemoryStore(), index=engine)
    kept = await notes.remember("Ada drinks tea.", scope="/a")
    await notes.remember("Bo drinks tea.", scope="/b")
    assert [match.record.id for match in await notes.scope("/a").recall("tea")] == [kept.id]
    assert engine.asked == [("tea", ("/a",), engine.asked[0][2])]
    assert len(await notes.recall("tea")) == 2
    await notes.update(kept.id, content="Ada drinks coffee.")
    assert [match.record.content for match in await notes.recall("coffee")] == ["Ada drinks coffee."]
    await notes.forget(ids=[kept.id])
    assert await notes.recall("coffee") == []
    assert [record.content for record in engine.held.values()] == ["Bo drinks tea."]


@pytest.mark.parametrize("kind", ["lexical", "semantic"])
@pytest.mark.parametrize("said", [False, True])
async def test_what_an_engine_finds_is_ranked_by_its_scores(kind, said):
    """Single notes as well as turns, whichever scores it has, also where no word is in common with the question."""

    class Scoring(Engine):
        async def search(self, query, fits, limit):
            return {kind: {id_: int(record.content[-1]) / 10 for (_, id_), record in self.held.items()}}

    notes = Notes(MemoryStore(), index=Scoring())
    texts = [f"About {number}" for number in (2, 4, 1, 5, 3)]
    if said:
        for text in texts:
            await notes.remember_conversation([Turn(text)], session=text)
    else:
        await notes.remember_many(texts)
    assert [match.record.content[-1] for match in await notes.recall("tea")] == ["5", "4", "3", "2", "1"]


@pytest.mark.parametrize("kind", ["lexical", "semantic"])
async def test_what_does_not_fit_does_not_count_in_the_ranking(kind):
    """Scores are relative to the highest one, which may be that of a private note of another source."""

    class Scoring(Engine):
        async def search(self, query, fits, limit):
            scores = {"far": 0.2, "near": 0.4, "secret": 0.99}
            return {kind: {id_: scores[record.content] for (_, id_), record in self.held.items()}}

    found = []
    for texts in (["far", "near"], ["far", "near", "secret"]):
        notes = Notes(MemoryStore(), index=Scoring())
        for text in texts:
            await notes.remember(text, source="ann", private=text == "secret")
        found.append([(match.record.content, dict(match.parts)) for match in await notes.of("bob").recall("tea")])
    assert found[0] == found[1]
    assert [content for content, _ in found[0]] == ["near", "far"]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (None, r"Wrong\.search\(\) returned None instead of a dict of scores, such as"),
        ([("lexical", {})], "returned a list instead of a dict"),
        ({"fuzzy": {"a": 1.0}}, r"returned scores of the kind 'fuzzy'; there are 'lexical' and 'semantic'"),
        ({"lexical": ["a"]}, r"returned for 'lexical' a list instead of a dict of scores by the ids of notes"),
        ({"lexical": {7: 1.0}}, r"returned for 'lexical' a score for an int instead of the id of a note"),
        ({"lexical": {"a": "1.0"}}, r"returned for 'lexical' and note 'a' a str instead of a number"),
        ({"lexical": {"a": True}}, "a bool instead of a number"),
        ({"lexical": {"a": -2.5}}, r"'a' -2\.5; scores of words are finite and not below 0"),
        ({"lexical": {"a": float("inf")}}, "'a' inf; scores of words are finite"),
        ({"semantic": {"a": 1.5}}, r"'a' 1\.5, which is not a cosine: those are from -1 to 1"),
        ({"semantic": {"a": float("nan")}}, "'a' nan, which is not a cosine"),
    ],
)
async def test_what_are_no_scores_is_refused(found, said):
    """The error names the engine, and the note of a wrong score."""

    class Wrong(Engine):
        async def search(self, query, fits, limit):
            return found

    with pytest.raises(NoteError, match=said):
        await Notes(MemoryStore(), index=Wrong()).recall("tea")


async def test_a_failure_of_an_engine_is_an_error_of_notes():
    """Its cause is what the engine raised; the end of a run stays what it is."""

    class Failing(Engine):
        async def search(self, query, fits, limit):
            raise self.error

    engine = Failing()
    engine.error = OSError("no route")
    with pytest.raises(NoteError, match=r"Failing\.search\(\) failed: OSError, which is its cause") as caught:
        await Notes(MemoryStore(), index=engine).recall("tea")
    assert caught.value.__cause__ is engine.error
    engine.error = RunError("used up")
    with pytest.raises(RunError, match="used up"):
        await Notes(MemoryStore(), index=engine).recall("tea")


@pytest.mark.parametrize("method", ["add", "remove"])
async def test_a_failure_of_an_engine_to_follow_a_change_is_an_error_of_notes(method):
    """The change itself is stored, and the error says how the engine gets it."""

    class Broken(Engine):
        fails = False

        async def add(self, records):
            if self.fails and method == "add":
                raise RuntimeError("secret tea")
            await super().add(records)

        async def remove(self, owner, ids):
            if self.fails and method == "remove":
                raise RuntimeError("secret tea")
            await super().remove(owner, ids)

    engine = Broken()
    notes = Notes(MemoryStore(), index=engine)
    kept = await notes.remember("Ada drinks tea.")
    engine.fails = True
    said = rf"Broken\.{method}\(\) failed: RuntimeError, which is its cause; the notes themselves are stored, and reindex\(\)"
    with pytest.raises(NoteError, match=said) as info:
        await (notes.remember("Bo drinks tea.") if method == "add" else notes.forget(ids=[kept.id]))
    assert "secret" not in str(info.value)
    engine.fails = False
    assert len(await notes.list_records()) == (2 if method == "add" else 0)
    await notes.reindex()
    assert len(await notes.recall("tea")) == (2 if method == "add" else 0)


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        (object(), "an object has no add and no remove and no search"),
        (Engine, r"index= is the class Engine; make one: Engine\(…\)"),
        ("x.db", "a str has no add"),
    ],
)
def test_what_is_no_engine_is_refused(engine, said):
    """Where it is passed in, with the methods that one has."""
    with pytest.raises(TypeError, match=said):
        Notes(MemoryStore(), index=engine)


async def test_an_engine_that_is_given_later_learns_what_is_there():
    """reindex() tells it of all notes of the owner."""
    store, engine = MemoryStore(), Engine()
    await Notes(store).remember("Ada drinks tea.")
    notes = Notes(store, index=engine)
    assert await notes.recall("tea") == []
    assert await notes.reindex() == 1
    assert [match.record.content for match in await notes.recall("tea")] == ["Ada drinks tea."]


@pytest.mark.parametrize("sort", ["file", "memory"])
async def test_a_damaged_index_is_made_anew(sort, tmp_path):
    """verify() names what is wrong, and reindex() makes the index of the notes again."""
    store = SqliteStore(tmp_path / "notes.db") if sort == "file" else MemoryStore()
    notes = Notes(store)
    kept = await notes.remember("Ada drinks tea.")
    await notes._service.repository.backend.commit(
        (), lambda tables: tables.connection.execute("DELETE FROM notes_rows")
    )
    with pytest.raises(DamagedStoreError, match="reindex"):
        await notes.verify()
    assert await notes.recall("tea") == []
    assert await notes.reindex() == 1
    assert await notes.verify() == 1
    assert [match.record.id for match in await notes.recall("tea")] == [kept.id]


@pytest.mark.parametrize("sort", ["file", "memory"])
async def test_who_waits_for_the_index_is_told_how_far_it_is(sort, tmp_path):
    """In memory it is made at each opening, in a file only where it is not there."""
    store = SqliteStore(tmp_path / "notes.db") if sort == "file" else MemoryStore()
    await Notes(store).remember_many([f"Note {number}." for number in range(2_500)])
    told = []
    notes = Notes(store, on_progress=lambda done, of: told.append((done, of)))
    assert len(await notes.recall("note 7")) > 0
    assert told == ([] if sort == "file" else [(1000, 2500), (2000, 2500), (2500, 2500)])
    await notes.reindex()
    assert told[-1] == (2500, 2500)
