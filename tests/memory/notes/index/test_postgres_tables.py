"""The tables of the index in PostgreSQL: they find what those of SQLite find, and contain what the notes say, no less and no more."""

from __future__ import annotations

import random
from collections import Counter

import anyio
import psycopg
import pytest
from psycopg import sql

from graphagent.errors import NewerFormatError
from graphagent.memory import Note, Notes, Turn
from graphagent.memory.notes.index import _postgres_tables
from graphagent.store import MemoryStore
from graphagent.store.postgres import PostgresStore

TEXTS = [
    "Ada moved to Lisbon in the spring, and e-mails her sister every week.", "Ben's invoice E4021 is still unpaid; getUserName fails.",
    "Die Zahnarzttermine wurden auf Freitag verschoben.", "東京で新しい仕事を始めました。", "وصلت الكتب الجديدة أمس", "Café déjà vu, naïve façade",
    "The calendar says that Ada's dentist is on Friday. " * 20, "it's a 'quoted' \\ back:slash & | ! <-> word", "x" * 3000,
]  # fmt: skip
QUESTIONS = [
    "Where does Ada live?", "email", "E4021", "user name", "Zahnarzt", "仕事", "الكتاب", "cafe", "calender", "dentist on Friday", "quoted word",
    "x" * 3000, "Who wrote?", "!", "'", "in spring",
]  # fmt: skip


@pytest.fixture
async def store(postgres_dsn):
    async with PostgresStore(postgres_dsn, 'the "notes" of 100%') as store:
        yield store


async def tables_of(store, function):
    return await Notes(store)._service.repository.backend.read(function)


async def counted(store):
    """Return what the tables count, and what there is."""

    def count(tables):
        stems, texts, words = Counter(), 0, 0
        for owner, size, lexemes in tables._rows(
            "SELECT owner, size, tsvector_to_array(words) FROM {s}.notes_texts JOIN {s}.notes_rows ON row = notes_texts.place / 1024"
        ):
            stems.update((owner, lexeme) for lexeme in lexemes if not lexeme.startswith(":"))
            texts, words = texts + 1, words + size
        told = {
            (owner, stem): count
            for owner, stem, count in tables._rows("SELECT owner, stem, texts FROM {s}.notes_stems")
        }
        [total] = tables._rows("SELECT coalesce(sum(texts), 0), coalesce(sum(words), 0) FROM {s}.notes_owners")
        [(every,)] = tables._rows("SELECT count(*) FROM {s}.notes_texts")
        return (told, total, every), (dict(stems), (texts, words), texts)

    return await tables_of(store, count)


async def test_postgresql_finds_what_sqlite_finds_in_the_same_order(store):
    """In any language, by phrases, identifiers, other spellings and compounds, in scopes and in conversations."""
    found = []
    for each in (MemoryStore(), store):
        notes = Notes(each)
        await notes.remember_many(
            [Note(text, f"/s{number % 3}", ["c\0"] * (number % 2)) for number, text in enumerate(TEXTS)]
        )
        await notes.remember_conversation([Turn(text, "Ada\0 B") for text in TEXTS], session="talk\0")
        found.append(
            [
                [
                    (match.record.content, match.record.session, round(match.score, 9))
                    for match in await notes.recall(question, **options)
                ]
                for question in QUESTIONS
                for options in ({}, {"scope": "/s1"}, {"categories": ["c\0"]})
            ]
        )
        assert await notes.verify() == 2 * len(TEXTS)
    assert found[0] == found[1]
    assert sum(map(len, found[1])) > len(QUESTIONS)


async def test_the_tables_count_what_there_is_after_any_changes_and_nothing_is_left_of_what_was_forgotten(store):
    """Over random changes of two owners by three programs, some at once; a word that is in no note any more is nowhere."""
    choose = random.Random(3)
    all_notes = [Notes(store, owner=owner) for owner in ("ann", "bob", "bob")]
    for step in range(12):
        async with anyio.create_task_group() as tasks:
            for notes in all_notes:
                tasks.start_soon(
                    notes.remember_many,
                    [Note(f"{choose.choice(TEXTS)} {step} {n}") for n in range(choose.randint(1, 4))],
                )
        notes = choose.choice(all_notes)
        ids = [record.id for record in await notes.list_records()]
        await notes.forget(ids=choose.sample(ids, 2))
        await notes.update(choose.choice([record.id for record in await notes.list_records()]), choose.choice(TEXTS))
        told, there = await counted(store)
        assert told == there
    bob = [record.content for record in await all_notes[1].list_records()]
    assert {match.record.content for match in await all_notes[1].recall("Ada Ben Friday", limit=1000)} <= set(bob)
    await all_notes[0].reindex()
    assert [await notes.verify() for notes in all_notes[1:]] == [len(bob)] * 2
    for notes in all_notes[:2]:
        await notes.reset()
    assert await counted(store) == (({}, (0, 0), 0), ({}, (0, 0), 0))


async def test_programs_that_begin_at_once_make_one_index_that_has_the_notes_of_all(postgres_dsn):
    """Also while one of them makes it anew."""
    stores = [PostgresStore(postgres_dsn) for _ in range(6)]
    async with anyio.create_task_group() as tasks:
        for number, each in enumerate(stores):
            tasks.start_soon(Notes(each).remember, f"pear {number}")
        tasks.start_soon(Notes(stores[0]).reindex)
    async with anyio.create_task_group() as tasks:
        for number, each in enumerate(stores):
            tasks.start_soon(Notes(each).remember, f"apple {number}")
        tasks.start_soon(Notes(stores[0]).reindex)
    assert len(await Notes(stores[1]).recall("pear apple", limit=100)) == 12
    assert await Notes(stores[2]).verify() == 12
    for each in stores:
        await each.aclose()


async def test_tables_of_a_newer_graphagent_are_left_alone(store, postgres_dsn):
    """What to do is said, and reading makes nothing."""
    assert await Notes(store).recall("tea") == []
    await Notes(store).remember("tea")
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("INSERT INTO {}.notes_migrations VALUES (99)").format(sql.Identifier(store.schema)))
    for do in (
        lambda notes: notes.recall("tea"),
        lambda notes: notes.remember("tea again"),
        lambda notes: notes.reindex(),
    ):
        with pytest.raises(NewerFormatError, match="Upgrade graphagent"):
            await do(Notes(store))
    assert len(_postgres_tables.MIGRATIONS) < 99
