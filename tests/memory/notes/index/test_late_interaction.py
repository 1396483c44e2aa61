"""The vectors of the words of notes: compared with those of a question, stored beside the vectors of texts, and erased with them."""

from __future__ import annotations

import math
import os
import random
import signal
import subprocess
import sys
import threading

import anyio
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphagent.errors import DamagedStoreError, EmbedderError
from graphagent.memory import Notes
from graphagent.memory.notes.index import _storage
from graphagent.memory.notes.index._matrix import Matrix
from graphagent.memory.notes.index._vector_bytes import pack
from graphagent.store import MemoryStore
from tests.memory.notes.conftest import Words, WordVectors, store_of
from tests.memory.notes.test_faults import run
from tests.thorough import examples

NOTES = st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=3), min_size=1, max_size=12)
"""How many words each text of each note has."""


def of_notes(sizes, dimensions, seed=0):
    """Give the vectors of words: for each row, with gaps, those of each text."""
    numbers = np.random.default_rng(seed)
    return {
        3 * place + 1: [numbers.standard_normal((size, dimensions)).astype(np.float32) for size in texts]
        for place, texts in enumerate(sizes)
    }


def packed(texts, dimensions, *, words=True):
    """Give the vectors of a note as they are stored."""
    [found] = pack([len(texts)], np.ones((len(texts), dimensions), np.float32), texts if words else [])
    return found.joined(True)


def matrix_of(notes, dimensions):
    matrix = Matrix(dimensions, words=True)
    matrix.add((row, f"id{row}", packed(texts, dimensions)) for row, texts in notes.items())
    return matrix


def plainly(notes, asked):
    """Compute the scores in plain Python."""

    def dot(one, other):
        return sum(a if b > 0 else -a for a, b in zip(one, other, strict=True)) / math.sqrt(len(one))

    return {
        row: max(
            sum(max(dot(word, each) for each in text) for word in asked) / len(asked) for text in texts if len(text)
        )
        for row, texts in notes.items()
        if any(map(len, texts))
    }


def scores_of(late):
    """Return the scores of rows."""
    return dict(zip(late.rows, late.scores.tolist(), strict=True))


def question(count, dimensions):
    numbers = np.random.default_rng(7).standard_normal((count, dimensions)).astype(np.float32)
    return numbers / np.linalg.norm(numbers, axis=1, keepdims=True)


@settings(deadline=None, max_examples=examples(60))
@given(NOTES, NOTES, st.sampled_from([1, 7, 8, 33]), st.integers(1, 9), st.data())
def test_scores_are_those_of_comparing_word_by_word(sizes, later, dimensions, count, data):
    """Of some notes, after some were removed and others added; and where the vectors of their texts are not at hand."""
    notes = of_notes(sizes, dimensions)
    matrix = matrix_of(notes, dimensions)
    gone = data.draw(st.sets(st.sampled_from(sorted(notes))))
    matrix.remove(gone)
    more = {row + 1000: texts for row, texts in of_notes(later, dimensions, seed=1).items()}
    matrix.add((row, f"id{row}", packed(texts, dimensions)) for row, texts in more.items())
    left = {row: texts for row, texts in notes.items() if row not in gone} | more
    some = data.draw(st.lists(st.sampled_from([*left, *gone, 2, 9999])))
    asked = question(count, dimensions)
    expected = plainly({row: texts for row, texts in left.items() if row in some}, asked.tolist())
    assert scores_of(matrix.late(asked, some)) == pytest.approx(expected, abs=1e-5)
    assert scores_of(matrix.late(asked[:0], some)) == {}
    assert matrix.has_words
    alone = [(row, packed(left[row], dimensions)[4 * dimensions * len(left[row]) :]) for row in sorted(left)]
    assert scores_of(Matrix.of_words(dimensions, alone).late(asked, some)) == pytest.approx(expected, abs=1e-5)
    for damaged in (b"", b"\xff" * 4, alone[0][1] + b"\x01", alone[0][1][4:] or b"\x01"):
        with pytest.raises(DamagedStoreError, match="reindex"):
            Matrix.of_words(dimensions, [*alone, (9999, damaged)])


def test_scores_are_the_same_however_many_words_there_are():
    """More than are compared at once, also in one text, and in a question."""
    notes = of_notes([[700], [1, 1500], [3]], 64)
    for count in (1, 2, 300):
        asked = question(count, 64)
        found = scores_of(matrix_of(notes, 64).late(asked, list(notes)))
        numbers = {row: [np.where(text > 0, 1, -1) @ asked.T / 8 for text in texts] for row, texts in notes.items()}
        assert found == pytest.approx(
            {row: max(each.max(axis=0).mean() for each in of_texts) for row, of_texts in numbers.items()}, abs=1e-5
        )


@pytest.mark.parametrize("at_once", [1, 7, 100, 10_000])
def test_scores_are_the_same_however_many_words_are_compared_at_once(at_once, monkeypatch):
    """The words of a text are always compared together."""
    notes = of_notes([[5, 300, 1], [1], [40, 2], [12]], 16)
    asked, matrix = question(4, 16), matrix_of(notes, 16)
    expected = matrix.late(asked, list(notes))
    monkeypatch.setattr("graphagent.memory.notes.index._matrix._AT_ONCE", at_once)
    found = matrix.late(asked, list(notes))
    assert found.rows == expected.rows
    assert found.scores == pytest.approx(expected.scores)
    assert found.best == pytest.approx(expected.best)


def test_notes_whose_words_have_no_vectors_are_counted():
    """As long as there is one, words are not compared; a note without words is not one of them."""
    notes = of_notes([[2], [3, 1]], 8)
    matrix = matrix_of(notes, 8)
    matrix.add([(50, "a", packed([np.empty((0, 8))], 8))])
    assert (matrix.has_words, matrix.notes_without_words) == (True, 0)
    matrix.add([(51, "b", packed([[], []], 8, words=False)), (52, "c", packed([[]], 8, words=False))])
    assert (matrix.has_words, matrix.notes_without_words, matrix.notes) == (False, 2, 5)
    assert matrix.late(question(2, 8), [1, 4, 50, 51, 52]).rows == [1, 4]
    matrix.remove([51, 52])
    assert (matrix.has_words, matrix.notes_without_words, matrix.notes) == (True, 0, 3)
    assert (Matrix(8).has_words, Matrix(8, words=True).has_words) == (False, False)


@pytest.mark.parametrize("change", [b"", b"\0", b"\1\0\0\0", b"\xff\xff\xff\xff", slice(1, None), slice(-3), slice(0)])
def test_bytes_of_another_length_are_damage(change):
    """They are refused with the note's id, and nothing is added."""
    sound = packed(of_notes([[2, 1]], 8)[1], 8)
    damaged = sound[change] if isinstance(change, slice) else sound + change if change else b""
    matrix = Matrix(8, words=True)
    with pytest.raises(DamagedStoreError, match="'abc'"):
        matrix.add([(1, "abc", damaged)])
    assert len(matrix) == 0


def test_a_comparison_sees_one_state():
    """While notes are removed and added by one thread, another finds each with its own words only."""
    count, wrong, stop = 60, [], threading.Event()
    notes = {row: [texts[0]] for row, texts in enumerate(of_notes([[2]] * count, 16).values(), 1)}
    matrix = matrix_of(notes, 16)
    asked = question(2, 16)
    right = plainly(notes, asked.tolist())

    def look():
        while not stop.is_set():
            for row, score in scores_of(matrix.late(asked, matrix.rows.tolist()[:30])).items():
                if abs(score - right[(row - 1) % count + 1]) > 1e-5:
                    wrong.append(row)

    thread = threading.Thread(target=look)
    thread.start()
    for turn in range(1, 40):
        matrix.remove([row for row in matrix.rows.tolist() if row % 3 == turn % 3])
        matrix.add(
            (row + turn * count, str(row), packed(texts, 16)) for row, texts in notes.items() if row % 3 == turn % 3
        )
    stop.set()
    thread.join()
    assert wrong == []


OTHER_THREADS = """
import time
import numpy as np
from graphagent.memory.notes.index._matrix import Matrix
from graphagent.memory.notes.index._vector_bytes import pack
numbers = np.random.default_rng(0)
matrix = Matrix(384, words=True)
words = [numbers.standard_normal((25, 384)).astype(np.float32) for _ in range(1000)]
vectors = pack([1] * 1000, numbers.standard_normal((1000, 384)).astype(np.float32), words)
matrix.add((row, "id", each.joined(True)) for row, each in enumerate(vectors, 1))
time.sleep(0.3)  # threads of BLAS wait a while for work before they sleep
whole, own = time.process_time(), time.thread_time()
for count in (1, 2, 10, 40):
    for _ in range(30):
        matrix.search(words[0][0], 10)
        matrix.late(words[0].repeat(2, axis=0)[:count], range(1, 101))
own = time.thread_time() - own
print((time.process_time() - whole - own) / own)
"""


def test_a_search_is_made_by_one_thread():
    """Though BLAS may use several, others do next to nothing: they would be waited for on a busy machine."""
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "4", "OMP_NUM_THREADS": "4"}
    ended = subprocess.run([sys.executable, "-c", OTHER_THREADS], env=env, capture_output=True, text=True, check=True)
    assert float(ended.stdout) < 0.2


# In stores


async def scores(notes, text):
    """Give the late score of each note for a question, by its content; None if words are not compared."""
    repository = notes._service.repository
    owner = notes._visibility.owner
    vectors = await repository.vectors_of(owner, await repository.catch_up(owner))
    if vectors is None or not vectors.has_words:
        return None
    _, words = await repository.vectors.embedded_question(text, vectors.dimensions, words=True)
    contents = {record.id: record.content for record in await repository.all(owner)}

    def call(tables):
        rows = {row: id_ for id_, row in tables.rows_named(owner, contents).items()}
        found = scores_of(vectors.over(tables).late(words, list(rows)))
        return {contents[rows[row]]: score for row, score in found.items()}

    return await repository.backend.read(call)


def right(text, *contents):
    """Give the scores that notes of one text have."""
    embedder = WordVectors()

    def words(of):
        return [embedder.word(word) for word in of.lower().split()]

    asked = np.array(words(text))
    asked /= np.linalg.norm(asked, axis=1, keepdims=True)
    return pytest.approx(plainly({each: [words(each)] for each in contents}, asked.tolist()), abs=1e-5)


async def test_words_follow_their_notes(store, kind, tmp_path):
    """Through saving, changing, undoing, forgetting, and by handles that have them in memory or read them anew."""
    async with Notes(store, embedder=WordVectors()) as notes, Notes(store, embedder=WordVectors()) as other:

        async def check(*contents):
            for each in (notes, other, Notes(store, embedder=WordVectors())):
                assert await scores(each, "Sweet pear?") == right("Sweet pear?", *contents)

        first = await notes.remember("a sweet pear")
        [second, third] = await notes.remember_many(["an old map", "tea"])
        await check("a sweet pear", "an old map", "tea")
        await other.update(second.id, content="a pear map")
        await notes.update(third.id, importance=0.9)
        await check("a sweet pear", "a pear map", "tea")
        await notes.undo(second.id)
        await check("a sweet pear", "an old map", "tea")
        await notes.reindex()
        await other.forget(ids=[first.id])
        await check("an old map", "tea")
        assert await notes.reembed() == 2
        await check("an old map", "tea")
        await notes.remember_many([f"pear {number}" for number in range(600)])
        await check("an old map", "tea", *(f"pear {number}" for number in range(600)))


async def test_all_texts_of_a_long_note_have_words(store):
    """A note that is divided has the score of its best text."""
    parts = [" ".join(f"word{part}{number}" for number in range(75)) + "." for part in range(3)]
    async with Notes(store, embedder=WordVectors()) as notes:
        await notes.remember(" ".join(parts))
        [found] = (await scores(notes, "word130 word144")).values()
        assert found == pytest.approx(max(right("word130 word144", *parts).expected.values()), abs=1e-5)


async def test_notes_that_were_saved_without_words_stay_so_until_they_are_embedded_again(store, caplog):
    """An earlier store has no vectors of words; they are not mixed with others, and the log says once what to do."""
    await Notes(store, embedder=Words()).remember("a sweet pear")
    await Notes(store, embedder=WordVectors(), late_interaction=False).remember("an old map")
    notes = Notes(store, embedder=WordVectors())
    await notes.remember("tea")
    for _ in range(2):
        assert await scores(notes, "pear") is None
        assert (await notes.recall("pear"))[0].record.content == "a sweet pear"
    messages = [record.getMessage() for record in caplog.records]
    assert messages == [
        "3 of 3 notes have no vectors of their words, so late interaction is not used; make them: reembed()"
    ]
    assert await notes.reembed() == 3
    assert await scores(notes, "pear") == right("pear", "a sweet pear", "an old map", "tea")
    assert (await notes._service.repository.vectors.info("")).words is True
    assert len(caplog.records) == 1


@pytest.mark.parametrize("others", [{"embedder": Words()}, {"embedder": WordVectors(), "late_interaction": False}])
async def test_a_note_without_words_among_others_has_words_compared_again_when_it_is_embedded_again(
    store, caplog, others
):
    """Where one handle does not make them, no note has an advantage: words are not compared, and the log says so."""
    notes, other = Notes(store, embedder=WordVectors()), Notes(store, **others)
    await notes.remember("a sweet pear")
    added = await other.remember("tea")
    assert (await other.recall("pear"))[0].record.content == "a sweet pear"
    assert await scores(other, "pear") is None
    assert caplog.records == []
    assert await scores(notes, "pear") is None
    [message] = [record.getMessage() for record in caplog.records]
    assert message.startswith("1 of 2 notes have no vectors of their words")
    await other.update(added.id, content="green tea")
    assert await scores(notes, "pear") is None
    await other.forget(ids=[added.id])
    assert await scores(notes, "pear") == right("pear", "a sweet pear")
    await other.remember("green tea")
    await notes.reembed()
    assert await scores(notes, "pear") == right("pear", "a sweet pear", "green tea")
    await other.reembed()
    assert (await notes._service.repository.vectors.info("")).words is False


async def test_without_late_interaction_nothing_of_words_is_stored_or_held(store):
    """The bytes are those of an embedder that makes vectors of texts alone."""
    stored = []
    for each in ({"embedder": Words()}, {"embedder": WordVectors(), "late_interaction": False}):
        notes = Notes(store, **each)
        await notes.remember("a sweet pear")
        stored.append([item.value async for item in store.scan(("notes", "", _storage.VECTORS))])
        stored[-1].append((await store.get(_storage.embedder_key(""))).value)
        await notes.recall("pear")
        assert not notes._service.repository.vectors._loaded.get("").vectors.has_words
        await notes.reset()
    assert stored[0] == stored[1]
    assert b'words":true' not in stored[0][-1]


async def test_an_argument_that_is_neither_true_nor_false_is_refused():
    """Such as a text from a file of settings."""
    with pytest.raises(TypeError, match="late_interaction='no' is neither True nor False"):
        Notes(MemoryStore(), late_interaction="no")


async def test_words_count_as_memory(store, kind):
    """The cache knows how much they take; in a table of PostgreSQL, they take none of it."""
    sizes = []
    for late in (False, True):
        notes = Notes(store, embedder=WordVectors(dimensions=384), late_interaction=late)
        await notes.remember_many([" ".join(f"w{number}x{place}" for place in range(25)) for number in range(10)])
        await notes.recall("w1x2")
        sizes.append(notes._service.repository.vectors._loaded._bytes)
        await notes.reset()
    if kind == "postgres":
        assert sizes[0] == sizes[1] < 10 * 384
    else:
        assert sizes[1] - sizes[0] >= 10 * 25 * 48


@pytest.mark.parametrize("sort", ["file", "sealed-file"])
async def test_forgotten_words_leave_no_bytes(sort, tmp_path):
    """Neither in the store nor, of a plain one, in its files."""

    class Marked(WordVectors):
        def word(self, word):
            bits = np.unpackbits(np.frombuffer(b"topsecret-topsecret-topsecret-mark", np.uint8))
            return np.where(bits[: self.dimensions], 1.0, -1.0).tolist() if word == "cipher" else super().word(word)

    async with store_of(sort, tmp_path) as store, Notes(store, embedder=Marked(dimensions=272)) as notes:
        kept = await notes.remember("a map")
        gone = await notes.remember("the cipher")
        mark = b"topsecret-topsecret-topsecret-mark"
        assert any([mark in item.value async for item in store.scan(("notes",))])
        assert any(mark in file.read_bytes() for file in tmp_path.iterdir()) is (sort == "file")
        await notes.forget(ids=[gone.id])
        assert not any([mark in item.value async for item in store.scan(("notes",))])
        assert not any(mark in file.read_bytes() for file in tmp_path.iterdir())
        assert list(await scores(notes, "map")) == [kept.content]


async def test_a_fault_of_the_embedder_saves_nothing(store):
    """Neither the note nor a part of its vectors."""

    class Faulty(WordVectors):
        async def embed_words(self, texts):
            rows, words = await super().embed_words(texts)
            return rows, [[[0.0] * self.dimensions], *words[1:]]

    notes = Notes(store, embedder=Faulty())
    with pytest.raises(EmbedderError, match="zeros for word 1 of the words of text 1 of 2"):
        await notes.remember_many(["a", "b"])
    assert await notes.list_records() == []


@pytest.mark.parametrize("asked", ["???", "pear? " * 300])
async def test_a_question_may_have_no_words_or_many(store, asked, monkeypatch):
    """Without words it is searched by the vector alone, and of many only some are compared."""
    compared = []

    class Few(WordVectors):
        async def embed_words(self, texts):
            vectors, words = await super().embed_words(texts)
            return vectors, [[] if text == "???" else of for text, of in zip(texts, words, strict=True)]

    async with Notes(store, embedder=Few()) as notes:
        await notes.remember_many(["a sweet pear", "an old map"])
        late = Matrix.late
        monkeypatch.setattr(
            Matrix, "late", lambda matrix, words, among: compared.append(len(words)) or late(matrix, words, among)
        )
        found = await notes.recall(asked)
        assert len(found) == 2
        assert compared == ([] if asked == "???" else [64])
        assert ("tokens" in found[0].reasons) is (asked != "???")


async def test_a_question_is_embedded_with_its_words_at_once(store):
    """One call for both, and none for words where there are none to compare them with."""

    class Counting(WordVectors):
        asked = 0

        async def embed_words(self, texts):
            self.asked += 1
            return [self.vector(text) for text in texts], (await super().embed_words(texts))[1]

    embedder = Counting()
    vectors = Notes(store, embedder=embedder)._service.repository.vectors
    for words, asked in ((True, 1), (False, 1)):
        vector, of_words = await vectors.embedded_question("a pear", 16, words=words)
        assert (vector.shape, of_words is not None, embedder.asked) == ((16,), words, asked)
    plain = Notes(store, embedder=Words())._service.repository.vectors
    assert (await plain.embedded_question("a pear", 16, words=True))[1] is None
    with pytest.raises(EmbedderError, match="gave 16 numbers for a text, and 17 for those kept before"):
        await vectors.embedded_question("a pear", 17, words=True)


REEMBEDS = """
import sys, anyio
from graphagent.memory import Notes
from graphagent.store import EncryptedStore, SqliteStore
from tests.memory.notes.conftest import KEY, WordVectors, Words
async def main():
    store = EncryptedStore(SqliteStore(sys.argv[1]), KEY)
    print("begun", flush=True)
    while True:
        await Notes(store, embedder=WordVectors(), late_interaction=False).reembed()
        await Notes(store, embedder=WordVectors()).reembed()
anyio.run(main)
"""


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # it is about processes
async def test_a_process_killed_while_words_are_added_leaves_all_notes_with_them_or_none(tmp_path):
    """Whenever it ends, and what it began is removed by the next that embeds the notes again."""
    choose = random.Random(5)
    async with store_of("sealed-file", tmp_path) as store:
        await Notes(store, embedder=WordVectors()).remember_many([f"pear {number}" for number in range(600)])
    for _ in range(3):
        process = run(REEMBEDS, tmp_path / "sealed.db")
        process.stdout.readline()
        await anyio.sleep(choose.uniform(0, 0.6))
        process.send_signal(signal.SIGKILL)
        await anyio.to_thread.run_sync(process.communicate)
        async with store_of("sealed-file", tmp_path) as store, Notes(store, embedder=WordVectors()) as notes:
            info = await notes._service.repository.vectors.info("")
            found = await scores(notes, "pear 77")
            assert (found is not None) is info.words
            assert found is None or (len(found), max(found, key=found.get)) == (600, "pear 77")
    async with store_of("sealed-file", tmp_path) as store, Notes(store, embedder=WordVectors()) as notes:
        await notes.reembed()
        assert len(await scores(notes, "pear 77")) == 600
        assert len({item.key[3] async for item in store.scan(("notes", "", _storage.VECTORS))}) == 1
