from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphagent.errors import DamagedStoreError
from graphagent.memory import Notes
from graphagent.memory.notes.index._matrix import Matrix
from graphagent.memory.notes.index._vectors import deviation
from graphagent.store import MemoryStore
from tests.memory.notes.conftest import Words

SIZES = st.lists(st.integers(1, 4), min_size=1, max_size=40)


def packed(vectors):
    """Give vectors as they are kept: each of the length 1, float32."""
    data = np.asarray(vectors, dtype=np.float32)
    lengths = np.linalg.norm(data, axis=1, keepdims=True)
    return (data / np.where(lengths > 0, lengths, 1)).astype("<f4").tobytes()


def notes_of(sizes, seed=0, dimensions=8):
    """Give notes of some numbers of texts, in rows with gaps between them."""
    random = np.random.default_rng(seed)
    return {3 * place + 1: random.standard_normal((size, dimensions)) for place, size in enumerate(sizes)}


def matrix_of(notes, dimensions=8):
    """Give the matrix of notes."""
    matrix = Matrix(dimensions)
    matrix.add((row, f"id{row}", packed(vectors)) for row, vectors in notes.items())
    return matrix


def plainly(notes, wanted):
    """Give the cosine of the nearest text of each note, computed one by one."""
    found = {
        row: max(float(each @ wanted / np.linalg.norm(each) / np.linalg.norm(wanted)) for each in vectors)
        for row, vectors in notes.items()
    }
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def check(found, expected, most):
    """Compare what was found with what is there."""
    assert list(found) == list(expected)[:most]
    assert list(found.values()) == pytest.approx(list(expected.values())[:most], abs=1e-5)


@settings(deadline=None)
@given(SIZES, st.integers(1, 50), st.data())
def test_search_finds_what_comparing_one_by_one_finds(sizes, most, data):
    """All, some only, or without some; of notes with several texts the nearest one counts."""
    notes = notes_of(sizes)
    matrix = matrix_of(notes)
    wanted = np.random.default_rng(1).standard_normal(8)
    check(matrix.search(wanted, most).cosines, plainly(notes, wanted), most)
    some = data.draw(st.lists(st.sampled_from([*notes, 2, 999])))
    inside = {row: notes[row] for row in notes if row in some}
    check(matrix.search(wanted, most, among=some).cosines, plainly(inside, wanted), most)
    outside = {row: notes[row] for row in notes if row not in some}
    check(matrix.search(wanted, most, without=some).cosines, plainly(outside, wanted), most)
    assert matrix.cosines(wanted, list(inside)) == pytest.approx(plainly(inside, wanted), abs=1e-5)


@settings(deadline=None)
@given(SIZES, SIZES, st.data())
def test_removed_notes_are_not_found(sizes, later, data):
    """What is left, and what is added behind it, is found as before."""
    notes = notes_of(sizes)
    matrix = matrix_of(notes)
    gone = data.draw(st.sets(st.sampled_from(sorted(notes))))
    matrix.remove(gone)
    more = {row + 1000: vectors for row, vectors in notes_of(later, seed=2).items()}
    matrix.add((row, f"id{row}", packed(vectors)) for row, vectors in more.items())
    left = {row: vectors for row, vectors in notes.items() if row not in gone} | more
    wanted = np.random.default_rng(1).standard_normal(8)
    check(matrix.search(wanted, 20).cosines, plainly(left, wanted), 20)
    assert len(matrix) == sum(len(vectors) for vectors in left.values())


def test_a_note_of_many_texts_does_not_hide_others():
    """Though all of the nearest texts are of one note, as many notes are found as were asked for."""
    near = np.tile([1.0, 0.0], (500, 1))
    notes = {1: near, 2: np.array([[0.6, 0.8]]), 3: np.array([[0.0, 1.0]])}
    assert matrix_of(notes, 2).search([1.0, 0.0], 2).cosines == pytest.approx({1: 1.0, 2: 0.6})


@given(st.lists(st.floats(-1, 1, width=32), min_size=1, max_size=30))
def test_a_search_tells_how_much_cosines_differ(cosines):
    """The nearest one does not count, and few are drawn to a usual deviation, as if four more had it; a list says the same."""
    notes = {row: np.array([[each, (1 - each * each) ** 0.5]]) for row, each in enumerate(cosines, 1)}
    found = matrix_of(notes, 2).search([1.0, 0.0], 3)
    others = sorted(cosines)[:-1]
    around = [*((each - np.mean(others)) ** 2 for each in others), *[0.1**2] * 4]
    expected = pytest.approx(np.mean(around) ** 0.5, abs=1e-3)
    assert found.deviation == expected
    assert deviation(cosines) == expected


def test_nothing_is_found_in_nothing():
    """An empty matrix, no direction, nothing allowed, or nothing asked for: no rows."""
    matrix = matrix_of({1: np.eye(2)}, 2)
    assert Matrix(2).search([1.0, 0.0], 5).cosines == {}
    assert matrix.search([0.0, 0.0], 5).cosines == {}
    assert matrix.search([1.0, 0.0], 5, among=[]).cosines == {}
    assert matrix.search([1.0, 0.0], 0).cosines == {}


@pytest.mark.parametrize("data", [b"", b"123", b"1234", b"123456789012"])
def test_vectors_of_another_length_are_damage(data):
    """They are refused with the note's id, and nothing is added."""
    matrix = Matrix(2)
    with pytest.raises(DamagedStoreError, match="'abc'"):
        matrix.add([(1, "abc", data)])
    assert len(matrix) == 0


def test_a_search_sees_one_state():
    """While notes are removed and added by one thread, another finds each with its own vector only."""
    count = 400
    angles = np.linspace(0, np.pi / 2, count)
    vectors = {row: np.array([[np.cos(angle), np.sin(angle)]]) for row, angle in enumerate(angles, 1)}
    matrix = matrix_of(vectors, 2)
    wrong = []
    stop = threading.Event()

    def look():
        while not stop.is_set():
            for row, cosine in matrix.search([1.0, 0.0], 50).cosines.items():
                if abs(cosine - float(vectors[(row - 1) % count + 1][0, 0])) > 1e-5:
                    wrong.append(row)

    thread = threading.Thread(target=look)
    thread.start()
    for turn in range(1, 30):
        matrix.remove([row for row in matrix.rows.tolist() if row % 3 == turn % 3])
        matrix.add((row + turn * count, str(row), packed(each)) for row, each in vectors.items() if row % 3 == turn % 3)
    stop.set()
    thread.join()
    assert wrong == []


async def test_vectors_are_those_of_their_notes_when_the_index_was_made_anew(tmp_path):
    """By this handle or by another one: rows have other numbers then."""
    one, two = (Notes(tmp_path / "notes.db", embedder=Words()) for _ in range(2))
    kept = await one.remember_many([f"fruit{number}" for number in range(12)])
    for notes in (one, two):
        assert (await notes.recall("fruit11"))[0].record.content == "fruit11"
    await one.forget(ids=[record.id for record in kept[:5]])
    assert (await two.recall("fruit11"))[0].record.content == "fruit11"
    await one.reindex()
    for notes in (one, two):
        [best, *_] = await notes.recall("fruit11")
        assert (best.record.content, best.reasons[:2]) == ("fruit11", ("lexical", "semantic"))
        assert best.parts["semantic"] == max(each.parts.get("semantic", 0) for each in await notes.recall("fruit11"))
        await notes.aclose()


@pytest.mark.parametrize("kept_with", [[], ["plum"]])
async def test_notes_without_vectors_are_told_once(tmp_path, caplog, kept_with):
    """They are found by their words alone, so whoever has an embedder is told how to make them."""
    async with Notes(tmp_path / "notes.db") as plain:
        await plain.remember_many(["pear", "apple"])
    async with Notes(tmp_path / "notes.db", embedder=Words()) as notes:
        for text in kept_with:
            await notes.remember(text)
        for _ in range(2):
            assert len(await notes.recall("pear")) >= 1
        [message] = [record.getMessage() for record in caplog.records]
        assert message.startswith(f"2 of {2 + len(kept_with)} notes have no vectors")
        await notes.reembed()
        assert {match.record.content for match in await notes.recall("pear")} >= {"pear", "apple"}


async def test_a_note_that_gets_another_row_is_found_by_its_vector(monkeypatch):
    """A recall between a commit and the change of the index in memory reads the note, which the change then adds in another row."""
    store = MemoryStore()
    notes = Notes(store, embedder=Words())
    await notes.remember("a plum")
    assert await notes.recall("plum")
    backend = notes._service.repository.backend
    commit = backend.commit

    async def slowly(changes, function):
        await store.commit(*changes)
        monkeypatch.setattr(backend, "commit", commit)
        assert len(await notes.recall("fruit")) == 2
        await commit((), function)

    monkeypatch.setattr(backend, "commit", slowly)
    await notes.remember("a pear")
    [match, _] = await notes.recall("pear")
    assert match.record.content == "a pear"
    assert match.parts["semantic"] > 0
