"""The vectors of notes in PostgreSQL with pgvector: found as those in memory are, by all processes, and erased with their notes."""

from __future__ import annotations

import random

import psycopg
import pytest

from graphagent.errors import DamagedStoreError
from graphagent.memory import Note, Notes
from graphagent.memory._note_values import Filter
from graphagent.memory.notes.index import _postgres_vectors
from graphagent.store import MemoryStore
from graphagent.store.postgres import PostgresStore
from tests.memory.notes.conftest import Words, WordVectors

SCHEMA = 'the "notes" of 100%'
WORDS = [
    "pear",
    "apple",
    "plum",
    "fig",
    "lemon",
    "lime",
    "cherry",
    "grape",
    "melon",
    "peach",
    "quince",
    "olive",
    "date",
    "nut",
    "corn",
    "rice",
]


class Apart(WordVectors):
    """Makes vectors of which no two are the same, so that notes have one order."""

    def vector(self, text):
        choose = random.Random(text)
        return [each + choose.gauss(0, 0.3) for each in super().vector(text)]


class ApartTexts(Apart):
    """Makes no vectors of words."""

    embed_words = None


@pytest.fixture
def dsn(postgres_dsn):
    with psycopg.connect(postgres_dsn) as connection:
        connection.execute('CREATE SCHEMA "its % place"')
        connection.execute('CREATE EXTENSION vector SCHEMA "its % place"')
    return postgres_dsn


@pytest.fixture
async def store(dsn):
    async with PostgresStore(dsn, SCHEMA) as store:
        yield store


def texts_of(seed, count):
    choose = random.Random(seed)
    return [" ".join(choose.choices(WORDS, k=6)) + f" {number}" for number in range(count)]


async def rows(store, what="count(*)"):
    return await store.read(lambda connection: connection.execute(f"SELECT {what} FROM notes_vectors").fetchall())


async def found(notes, question, **options):
    matches = await notes.recall(question, **options)
    return [(each.record.content, {name: round(part, 4) for name, part in each.parts.items()}) for each in matches]


@pytest.mark.parametrize("embedder", [ApartTexts(), Apart()], ids=["texts", "words"])
async def test_the_same_is_found_in_the_same_order_as_by_the_exact_search_in_memory(store, embedder):
    """With filters, among long notes, by vectors of words, after changes; also with vectors of other dimensions and a new index."""
    long = " ".join(f"{word} stands here." for word in WORDS * 8)
    answers = []
    for each in (MemoryStore(), store):
        notes, answer = Notes(each, embedder=embedder, source="ann"), []
        kept = await notes.remember_many([
            Note(text, f"/s{number % 3}", ["even"] * (number % 2), private=number % 7 == 0) for number, text in enumerate(texts_of(1, 60))
        ])  # fmt: skip
        await notes.remember(f"{long} and tea")
        ids = [record.id for record in await notes.list_records()]
        await notes.update(ids[3], "plum pear lime with tea")
        await notes.update(ids[4], importance=1.0)
        await notes.forget(ids=ids[5:9])
        left = len(kept) + 1 - 4
        for asked in (notes, Notes(each, embedder=type(embedder)("words-2", 24), source="bob")):
            if asked is not notes:
                assert await asked.reembed() == left
            for _ in range(2):
                answer += [
                    await found(asked, question, **options)
                    for question in ("plum pear", "lime tea", "who has rice or corn")
                    for options in (
                        {},
                        {"scope": "/s1"},
                        {"categories": ["even"]},
                        {"limit": 100},
                        {"scope": "/nowhere"},
                    )
                ]
                assert await asked.verify() == left
                await asked.reindex()
        answers.append(answer)
    assert answers[0] == answers[1]
    assert sum(map(len, answers[1])) > 300
    assert (await rows(store, "count(DISTINCT (owner, generation))"))[0][0] == 1


async def test_all_that_is_rare_is_found_and_among_much_the_graph_finds_what_an_exact_search_finds(store, monkeypatch):
    """An owner with few of all notes, a scope with few of an owner's, and an owner with many of whom others have most."""
    monkeypatch.setattr(_postgres_vectors, "_EXACT", 200)
    embedder = ApartTexts(dimensions=24)
    for owner, count in (("much", 1600), ("few", 20), ("more", 300)):
        await Notes(store, owner=owner, embedder=embedder).remember_many(
            [
                Note(text, "/rare" if not number % 80 else f"/s{number % 2}")
                for number, text in enumerate(texts_of(owner, count))
            ]
        )
    repository = Notes(store, embedder=embedder)._service.repository

    async def nearest(fits, question):
        """Give the nearest notes, and whether the graph was used."""
        vectors = await repository.vectors_of(fits.owner, await repository.catch_up(fits.owner))
        vector, _ = await repository.vectors.embedded_question(question, vectors.dimensions, words=False)

        def call(tables):
            scans = "SELECT pg_stat_get_xact_numscans(to_regclass('notes_near_24'))"
            before = tables.vectors.sql.rows(scans)
            found = vectors.over(tables).nearest(vector, 20, fits)
            return found, tables.vectors.sql.rows(scans) > before

        return await repository.backend.read(call)

    cases = [
        (Filter("much"), True), (Filter("much", ("/s1",)), True), (Filter("much", ("/rare",)), False), (Filter("few"), False), (Filter("more"), True),
    ]  # fmt: skip
    right = 0
    for fits, by_graph in cases:
        for number in range(5):
            got, used = await nearest(fits, f"question {number}")
            assert used == by_graph
            with monkeypatch.context() as exactly:
                exactly.setattr(_postgres_vectors, "_EXACT", 10_000)
                exact, used = await nearest(fits, f"question {number}")
            assert not used
            assert len(got.cosines) == 20
            assert by_graph or got == exact
            assert got.deviation == pytest.approx(exact.deviation, rel=0.2)
            right += len(got.cosines.keys() & exact.cosines.keys())
    assert right > 0.97 * 20 * 5 * len(cases)


async def test_a_change_by_another_process_is_seen(store, dsn):
    """A note that another program adds, changes or forgets, and vectors that it makes anew."""
    notes = Notes(store, embedder=Words())
    await notes.remember("plum pear")
    assert [content for content, _ in await found(notes, "plum")] == ["plum pear"]
    async with PostgresStore(dsn, SCHEMA) as other:
        others = Notes(other, embedder=Words())
        added = await others.remember("plum plum plum")
        assert (await found(notes, "plum"))[0][0] == "plum plum plum"
        await others.update(added.id, "fig")
        assert (await found(notes, "fig"))[0][0] == "fig"
        await others.reembed()
        assert all("semantic" in parts for _, parts in await found(notes, "fig"))
        await others.forget(ids=[added.id])
        assert [content for content, _ in await found(notes, "fig")] == ["plum pear"]


async def test_what_was_forgotten_has_no_vectors_and_what_is_not_as_stored_is_told(store):
    """In the commit that removes it; an index made anew is right again."""
    ann, bob = (Notes(store, owner=owner, embedder=Words()) for owner in ("ann", "bob"))
    kept = [await ann.remember(text) for text in texts_of(1, 3)]
    await bob.remember_many(texts_of(2, 3))
    await ann.forget(ids=[kept[0].id])
    assert await rows(store) == [(5,)]
    await store.commit(
        along=lambda connection: connection.execute("UPDATE notes_vectors SET number = 7 WHERE id = %s", [kept[1].id])
    )
    assert await ann.verify() == 2  # their order is the same
    await store.commit(
        along=lambda connection: connection.execute(
            "UPDATE notes_vectors SET e = (SELECT e FROM notes_vectors LIMIT 1)"
        )
    )
    for notes in (ann, bob):
        with pytest.raises(DamagedStoreError, match="reindex"):
            await notes.verify()
    await ann.reindex()
    assert [await notes.verify() for notes in (ann, bob)] == [2, 3]
    await ann.reset()
    assert await rows(store) == [(3,)]
    await Notes(store, owner="bob").update((await bob.list_records())[0].id, "without an embedder")
    assert await rows(store) == [(2,)]
    assert await bob.verify() == 3


async def test_pgvector_is_used_from_the_next_reindex_on_and_left_with_it(postgres_dsn):
    """Before, and after it is dropped, vectors are searched in memory; what is found is the same."""
    async with PostgresStore(postgres_dsn, SCHEMA) as store:
        notes = Notes(store, embedder=Words())
        await notes.remember_many(texts_of(1, 20))
        answers = [await found(notes, "plum pear")]
        with psycopg.connect(postgres_dsn, autocommit=True) as connection:
            connection.execute("CREATE EXTENSION vector")
            await notes.remember("melon")
            await notes.forget(ids=[(await notes.list_records())[0].id])
            with pytest.raises(Exception, match="notes_vectors"):
                await rows(store)
            await notes.reindex()
            assert await rows(store) == [(20,)]
            answers.append(await found(notes, "plum pear"))
            connection.execute("DROP EXTENSION vector CASCADE")
        answers.append(await found(notes, "plum pear"))
        await notes.remember("corn")
        await notes.reindex()
        assert await notes.verify() == 21
    assert answers[0] == answers[1] == answers[2]
