"""Bad input, bad embedders, and processes that end at the worst moment: nothing is lost, and nothing half-written."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys

import anyio
import pytest

from graphagent.errors import (
    EmbedderChangedError,
    EmbedderError,
    NoteError,
    NoteNotFoundError,
    StoreError,
)
from graphagent.memory import Note, Notes, NoteSettings, Turn
from graphagent.memory.notes.index._fts import SqliteTables
from graphagent.store import SqliteStore
from tests import forkserver
from tests.memory.notes.conftest import Words, store_of

# Input


@pytest.mark.parametrize(
    "given",
    [
        {"content": ""},
        {"content": " \n\t "},
        {"content": "x" * 10_000_000},
        {"content": "half \ud800 of a letter"},
        {"content": 7},
        {"content": None},
        {"importance": 1.1},
        {"importance": float("nan")},
        {"importance": "high"},
        {"trust": "very"},
        {"scope": "//a/../b/"},
        {"scope": "/\0"},
        {"categories": ["\ud800"]},
        {"categories": [7]},
        {"categories": [" "]},
        {"categories": [f"c{number}" for number in range(101)]},
        {"categories": ["x" * 201]},
        {"source": "\ud800"},
        {"source": 7},
        {"source": "x" * 1001},
        {"run_id": "\ud800"},
        {"metadata": {"a": float("nan")}},
        {"metadata": {"a": object()}},
        {"metadata": {"a": "\ud800"}},
        {"metadata": {"a": 2**70}},
        {"metadata": {"a": "x" * 1_000_001}},
        {"at": "yesterday"},
    ],
    ids=lambda given: "-".join(given) + f"-{str(next(iter(given.values())))[:10]!a}",
)
async def test_what_cannot_be_kept_is_refused_and_nothing_of_it_is_kept(notes, given):
    """Alone, and as one of several, of which none is kept then; the notes go on working."""
    keywords = {"content": "pear", **given}
    with pytest.raises((NoteError, TypeError)) as caught:
        await notes.remember(**keywords)
    assert isinstance(caught.value, NoteError)
    keywords.pop("trust", None), keywords.pop("run_id", None)
    if keywords != {"content": "pear"}:
        with pytest.raises(NoteError):
            await notes.remember_many(["fine", Note(**keywords)])
    assert await notes.list_records() == []
    assert await notes.remember("fine")
    assert await notes.verify() == 1


async def test_odd_text_is_kept_and_found(notes):
    """NUL, control characters, emoji, right-to-left and quotes are text like any other, in every field."""
    odd = "a\0b \"quoted' -- %_* 🦊 שלום (OR AND NEAR) \x01"
    kept = await notes.remember(odd, categories=[odd], source=odd, metadata={odd: [odd]}, scope="/a'b\"%_*")
    assert await notes.get(kept.id) == kept
    for query in (odd, "quoted", "🦊", "\0", '"', "NEAR(a b)", "text : pear", "*", "a OR", "\ud800 quoted", "שלום"):
        assert all(each.record == kept for each in await notes.recall(query))
    assert [each.record for each in await notes.recall("quoted", categories=[odd], source=odd, scope=kept.scope)] == [
        kept
    ]
    assert await notes.list_categories() == {kept.categories[0]: 1}
    assert (await notes.forget(categories=[odd], source=odd)).notes == 1


async def test_ids_queries_and_filters_that_are_none_are_told(notes):
    """No id finds another note, a wrong word for the depth or a limit below 0 is a ValueError, and half letters no damage."""
    await notes.remember("pear")
    for id_ in ("", "no such", "\ud800", "a\0", "%", "x" * 10_000):
        assert await notes.get(id_) is None
        assert (await notes.forget(ids=[id_])).notes == 0
        with pytest.raises(NoteNotFoundError):
            await notes.update(id_, content="x")
    for wrong in ({"depth": "deeep"}, {"limit": -1}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            await notes.recall("pear", **wrong)
    for wrong in ({"limit": -1}, {"offset": -1}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            await notes.list_records(**wrong)
    for wrong in ({"source": "\ud800"}, {"categories": ["\ud800"]}, {"scope": "/a/.."}):
        with pytest.raises(NoteError):
            await notes.recall("pear", **wrong)
        with pytest.raises(NoteError):
            await notes.forget(**wrong)
    with pytest.raises(NoteError):
        await notes.recall(7)
    with pytest.raises(ValueError, match="reset"):
        await notes.forget()
    for wrong in ({"scope": ""}, {"scope": " "}, {"source": ""}, {"run_id": ""}, {"categories": ()}):
        with pytest.raises(ValueError, match=f"{next(iter(wrong))}=.* says nothing of which notes to forget"):
            await notes.forget(**wrong)
    with pytest.raises(ValueError, match="everything: '/'"):
        await notes.reset("")
    with pytest.raises(ValueError, match="say what to forget"):
        await notes.purge()
    assert len(await notes.list_records()) == 1
    with pytest.raises(NoteError):
        await notes.remember_conversation([Turn("x")], session="")
    assert await notes.recall("") == await notes.recall("  ") == await notes.recall("pear", limit=0) == []
    assert len(await notes.list_records()) == 1


async def test_a_question_of_any_length_is_answered_soon(notes):
    """Ten million characters of question, of one word or of many, take no longer than some."""
    await notes.remember("pear")
    for query in ("pear " + "x" * 10_000_000, "pear " + " ".join(map(str, range(1_000_000)))):
        assert len(await notes.recall(query)) == 1


async def test_metadata_read_again_are_what_was_returned(notes):
    """What was given is taken over as JSON has it, at once, and later changes of the caller's own do not reach it."""
    inner = [1, (2, 3)]
    kept = await notes.remember("pear", metadata={"a": inner, 5: "x"})
    inner.append(9)
    assert dict(kept.metadata) == {"a": [1, [2, 3]], "5": "x"}
    assert kept == await notes.get(kept.id)


@pytest.mark.parametrize(
    "setting",
    [
        {"recency_weight": 1.1},
        {"semantic_weight": -0.1},
        {"recency_weight": 0, "semantic_weight": 0, "importance_weight": 0},
        {"recency_half_life_days": 0},
        {"recency_half_life_days": float("nan")},
        {"default_importance": 2},
        {"consolidation_threshold": float("nan")},
        {"consolidation_limit": -1},
        {"exploration_budget": -1},
        {"relevance_gate": 1.5},
    ],
)
def test_settings_out_of_range_are_refused(setting):
    """The error names the setting."""
    with pytest.raises(ValueError, match="_"):
        NoteSettings(**setting)


async def test_a_bad_import_keeps_nothing(notes):
    """A record that is none among good ones is named, and none is kept."""
    good = {"id": "a", "content": "pear", "scope": "/a"}
    for bad in (
        {"id": "b"},
        {"id": 7, "content": "x"},
        {"id": "b", "content": " "},
        {"id": "b", "content": "x", "importance": "high"},
        {"id": "b", "content": "x", "scope": "/a/../b"},
        {"id": "b", "content": "x", "private": True},
        "text",
    ):
        with pytest.raises((ValueError, NoteError)):
            await notes.import_([good, bad])
    assert await notes.list_records() == []


# Embedders


class Odd(Words):
    """Gives what it is told to give."""

    def __init__(self, give, name="words-1"):
        super().__init__(name)
        self.give = give

    async def embed(self, texts):
        return self.give(await super().embed(texts))


def fails(_):
    raise OSError("no network, and the key is sk-123")


BAD = {
    "nan": lambda vectors: [[float("nan")] * len(each) for each in vectors],
    "infinite": lambda vectors: [[float("inf")] * len(each) for each in vectors],
    "too few": lambda vectors: vectors[:-1],
    "none": lambda vectors: [],
    "nothing": lambda vectors: None,
    "zeros": lambda vectors: [[0.0] * len(each) for each in vectors],
    "text": lambda vectors: ["abc" for each in vectors],
    "ragged": lambda vectors: [[1.0] * (number + 1) for number in range(len(vectors) + 1)][1:],
    "shorter": lambda vectors: [each[:-1] for each in vectors],
    "failing": fails,
}


@pytest.mark.parametrize("give", BAD.values(), ids=BAD)
async def test_a_bad_embedder_raises_and_keeps_nothing(store, give):
    """On keeping, changing, asking and making anew: an EmbedderError each time, and the notes are as they were."""
    notes = Notes(store, embedder=Words())
    kept = await notes.remember("pear")
    before = [item async for item in store.scan(("notes",))]
    bad = Notes(store, embedder=Odd(give))
    for operation in (
        lambda: bad.remember_many(["one", "two"]),
        lambda: bad.update(kept.id, content="apple"),
        lambda: bad.recall("pear"),
    ):
        if give is BAD["ragged"] and operation.__code__.co_names[0] != "remember_many":
            continue
        with pytest.raises(EmbedderError) as caught:
            await operation()
        assert "sk-123" not in str(caught.value)
    assert [item async for item in store.scan(("notes",))] == before
    if give not in (BAD["ragged"], BAD["shorter"]):
        with pytest.raises(EmbedderError):
            await bad.reembed()
    assert [each.record.id for each in await notes.recall("pear")] == [kept.id]
    assert await notes.verify() == 1


async def test_another_embedder_is_refused_with_the_remedy_which_works(store):
    """Vectors of two makers are never compared; reembed() makes them anew, with progress, and then the first is refused."""
    first, second = Notes(store, embedder=Words()), Notes(store, embedder=Words("words-2", 24))
    await first.remember_many([f"pear number {number}" for number in range(7)])
    for operation in (second.remember("x"), second.recall("x")):
        with pytest.raises(EmbedderChangedError, match=r"reembed\(\)") as caught:
            await operation
        assert caught.value.stored == "words-1"
    seen = []
    assert await second.reembed(lambda done, of: seen.append((done, of))) == 7
    assert seen[-1] == (7, 7)
    found = await second.recall("pear number 3", limit=3)
    assert found[0].record.content == "pear number 3"
    assert "semantic" in found[0].reasons
    await second.remember("new")
    with pytest.raises(EmbedderChangedError):
        await first.remember("x")
    with pytest.raises(EmbedderChangedError):
        await first.recall("x")
    assert len([item async for item in store.scan(("notes", "", 4))]) == 8
    assert len(await Notes(store).recall("pear", limit=50)) == 7
    assert await second.verify() == 8


async def everything(notes):
    return await notes.reset()


async def all_ids(notes):
    return await notes.forget(ids=[record.id for record in await notes.list_records()])


@pytest.mark.parametrize("forget", [everything, all_ids])
@pytest.mark.parametrize("by", ["its own embedder", "another embedder", "none"])
async def test_another_embedder_can_be_used_after_a_full_reset(store, forget, by):
    """When no note is left, who made the vectors is forgotten with them: the next note is embedded by whoever has one."""
    first, second = Notes(store, embedder=Words()), Notes(store, embedder=Words("words-2", 24))
    await first.remember_many([f"pear number {number}" for number in range(7)])
    assert "semantic" in (await first.recall("pear number 3"))[0].reasons
    resets = {"its own embedder": first, "another embedder": second, "none": Notes(store)}[by]
    assert (await forget(resets)).notes == 7
    assert await second.recall("pear") == []
    await second.remember("an apple")
    [found] = await second.recall("an apple")
    assert "semantic" in found.reasons
    with pytest.raises(EmbedderChangedError):
        await first.recall("apple")
    assert await second.verify() == 1


async def test_an_embedder_of_the_same_name_may_have_other_dimensions_after_a_full_reset(store):
    """Whoever still has the old vectors in memory does not compare them with the new ones."""
    first, second = Notes(store, embedder=Words("words", 16)), Notes(store, embedder=Words("words", 24))
    await first.remember("a pear")
    assert len(await first.recall("a pear")) == 1
    await second.reset()
    await second.remember("an apple")
    assert len(await second.recall("an apple")) == 1
    with pytest.raises(EmbedderError, match="16 numbers"):
        await first.recall("an apple")


async def test_the_embedder_stays_where_notes_are_left(store):
    """A reset of one scope, or as one source sees it, leaves others' vectors and who made them; so does another owner's reset."""
    first, second = Notes(store, embedder=Words()), Notes(store, embedder=Words("words-2", 24))
    await first.remember("a pear", scope="/a")
    await first.remember("of ana", scope="/b", source="ana", private=True)
    await first.reset("/a")
    await first.of("bo").reset()
    await Notes(store, owner="bob").reset()
    with pytest.raises(EmbedderChangedError):
        await second.remember("an apple")


async def test_a_note_that_is_kept_during_a_reset_keeps_its_vector(kind, tmp_path):
    """Whoever adds a note between the look at what is left and the commit is not left with a vector of nobody."""
    async with store_of(kind, tmp_path) as store:
        first = Notes(store, embedder=Words())
        other = Notes(store, embedder=Words())
        await first.remember("a pear")
        scan, added = store.scan, []

        async def scan_and_add(prefix, **options):
            async for item in scan(prefix, **options):
                yield item
            if prefix == ("notes", "", 1) and "limit" in options and not added:
                added.append("an apple")
                await other.remember("an apple")

        store.scan = scan_and_add
        assert (await first.reset()).notes == 1
        assert added
        store.scan = scan
        [found] = await Notes(store, embedder=Words()).recall("an apple")
        assert "semantic" in found.reasons


async def test_notes_kept_and_changed_without_an_embedder_are_found_by_what_they_say_now(store):
    """A vector of what a note said before is not found any more; reembed() makes those that are missing."""
    with_, without = Notes(store, embedder=Words()), Notes(store)
    kept = await with_.remember("pear")
    await without.update(kept.id, content="something else entirely")
    await without.remember("apple")
    assert "semantic" not in [reason for each in await with_.recall("pear") for reason in each.reasons]
    assert await with_.reembed() == 2
    [best, *_] = await with_.recall("apple")
    assert best.record.content == "apple"
    assert "semantic" in best.reasons


async def test_notes_kept_while_vectors_are_made_anew_have_theirs(store):
    """Whoever keeps, changes and forgets meanwhile loses nothing; all that there is in the end has vectors of the new maker."""
    first = Notes(store, embedder=Words())
    kept = await first.remember_many([f"pear {number}" for number in range(5)])

    class Slow(Words):
        async def embed(self, texts):
            if self.calls == 0:
                await first.remember("apple")
                await first.update(kept[0].id, content="plum")
                await first.forget(ids=[kept[1].id])
            return await super().embed(texts)

    second = Notes(store, embedder=Slow("words-2", 24))
    assert await second.reembed() == 5
    assert len([item async for item in store.scan(("notes", "", 4))]) == 5
    assert {each.record.content for each in await second.recall("apple plum", limit=2)} == {"apple", "plum"}
    with pytest.raises(EmbedderChangedError):
        await first.remember("x")


async def test_only_one_makes_vectors_anew(store):
    """The one who began last goes on; the other is told, and nothing of it counts."""
    await Notes(store, embedder=Words()).remember_many([f"pear {number}" for number in range(5)])
    third = Notes(store, embedder=Words("words-3", 24))

    class Overtaken(Words):
        async def embed(self, texts):
            if self.calls == 0:
                await third.reembed()
            return await super().embed(texts)

    with pytest.raises(StoreError, match="anew"):
        await Notes(store, embedder=Overtaken("words-2", 24)).reembed()
    assert len(await third.recall("pear", limit=9)) == 5
    vectors = [item async for item in store.scan(("notes", "", 4))]
    assert len(vectors) == 5


# Ends, loops and processes


def run(program, *arguments, **more):
    """Start a Python process."""
    return forkserver.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=os.getcwd(),
        **more,
    )


EXITS = """
import sys, anyio
from graphagent.memory import Notes
async def main():
    notes = Notes(sys.argv[1])
    await notes.remember_many([f"pear {number}" for number in range(50)])
    await notes.remember("the last one")
anyio.run(main)
"""


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # it is about processes
async def test_a_process_that_ends_right_after_remember_loses_nothing(tmp_path):
    """Nothing is closed, nothing waited for: all fifty-one notes are there."""
    process = run(EXITS, tmp_path / "notes.db")
    await anyio.to_thread.run_sync(process.communicate)
    assert process.returncode == 0
    async with Notes(tmp_path / "notes.db") as notes:
        assert await notes.verify() == 51
        assert [each.record.content for each in await notes.recall("last one", limit=1)] == ["the last one"]


WRITES = """
import sys, anyio
from graphagent.memory import Notes
from tests.memory.notes.conftest import Words
async def main():
    notes = Notes(sys.argv[1], embedder=Words() if sys.argv[2] == "vectors" else None)
    number = 0
    while True:
        kept = await notes.remember(f"pear{sys.argv[3]}x{number} is here")
        found = await notes.recall(f"pear{sys.argv[3]}x{number}", limit=1)
        assert found[0].record.id == kept.id
        print(number, flush=True)
        number += 1
        if number == int(sys.argv[4]):
            return
anyio.run(main)
"""


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # it is about processes
async def test_processes_that_write_and_recall_at_once_see_each_other(tmp_path):
    """Two of them, and this one: each finds its own at once, this one those of both, and nothing is lost."""
    notes = Notes(tmp_path / "notes.db", embedder=Words())
    both = [run(WRITES, tmp_path / "notes.db", "vectors", name, 20) for name in "ab"]
    for process, name in zip(both, "ab", strict=True):
        number = (await anyio.to_thread.run_sync(process.stdout.readline)).strip()
        found = await notes.recall(f"pear{name}x{number}", limit=1)
        assert found[0].record.content == f"pear{name}x{number} is here"
        assert "semantic" in found[0].reasons
    for process in both:
        await anyio.to_thread.run_sync(process.communicate)
        assert process.returncode == 0
    assert await notes.verify() == 40
    await notes.aclose()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # it is about processes
@pytest.mark.parametrize("what", ["words", "vectors"])
async def test_a_process_killed_while_remembering_loses_nothing_it_was_told_is_kept(tmp_path, what):
    """At random moments: afterwards all is whole, and each acknowledged note is found."""
    choose = random.Random(what)
    for again in range(3):
        process = run(WRITES, tmp_path / "notes.db", what, f"r{again}n", 10_000)
        told = process.stdout.readline()
        await anyio.sleep(choose.uniform(0, 0.15))
        process.send_signal(signal.SIGKILL)
        told += await anyio.to_thread.run_sync(
            process.stdout.read
        )  # communicate() passes over what readline() read ahead
        process.communicate()
        numbers = [int(line) for line in told.splitlines() if line]
        async with Notes(tmp_path / "notes.db", embedder=Words() if what == "vectors" else None) as notes:
            assert await notes.verify() >= len(numbers)
            for number in numbers[-3:]:
                found = await notes.recall(f"pearr{again}nx{number}", limit=1)
                assert found[0].record.content == f"pearr{again}nx{number} is here"


OPENS = """
import sys, anyio
from graphagent.memory import Notes
from tests.memory.notes.conftest import Words
async def main():
    notes = Notes(sys.argv[1], embedder=Words("words-2", 24))
    print("begun", flush=True)
    await notes.info()
    print("made", flush=True)
    while True:
        await notes.reembed()
anyio.run(main)
"""


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # it is about processes
async def test_a_process_killed_while_the_index_or_the_vectors_are_made_leaves_all_whole(tmp_path):
    """Whenever it ends, the next one has the tables whole, and vectors of one maker or of the other."""
    notes = Notes(SqliteStore(tmp_path / "notes.db"), embedder=Words())
    await notes.remember_many([f"pear number {number}" for number in range(600)])
    await notes._service.repository.store.commit(along=lambda c: c.execute("DELETE FROM notes_state"))
    await notes._service.repository.store.aclose()
    choose = random.Random(5)
    for _ in range(3):
        process = run(OPENS, tmp_path / "notes.db")
        process.stdout.readline()
        await anyio.sleep(choose.uniform(0, 0.4))
        process.send_signal(signal.SIGKILL)
        await anyio.to_thread.run_sync(process.communicate)
        store = SqliteStore(tmp_path / "notes.db")
        assert await store.read(lambda connection: SqliteTables(connection).are_made()) in (True, False)
        maker = await Notes(store)._service.repository.vectors.info("")
        embedder = Words() if maker.name == "words-1" else Words("words-2", 24)
        now = Notes(store, embedder=embedder)
        assert await now.verify() == 600
        found = await now.recall("pear number 77", limit=1)
        assert found[0].record.content == "pear number 77"
        assert "semantic" in found[0].reasons
        await store.aclose()


@pytest.mark.parametrize("kind", ["file", "sealed-file", "memory"])
def test_notes_are_bound_to_no_event_loop(kind, tmp_path):
    """The same notes serve one loop after the other, of asyncio and of trio, and also after one that was in the middle."""
    notes = Notes(store_of(kind, tmp_path), embedder=Words())

    async def once(number):
        async with anyio.create_task_group() as tasks:
            for each in range(5):
                tasks.start_soon(lambda each=each: notes.remember(f"pear {number} {each}"))
                tasks.start_soon(lambda: notes.recall("pear"))
        assert (await notes.info()).record_count == 5 * (number + 1)

    for number, backend in enumerate(["asyncio", "trio", "asyncio", "trio"]):
        anyio.run(once, number, backend=backend)


async def test_a_cancelled_save_is_whole_or_not_there(store):
    """Wherever remember is cancelled, the note is in the store and in the index, or in neither, and the next ones work."""
    notes = Notes(store, embedder=Words())
    kept = 0
    for step in range(25):
        with anyio.move_on_after(step * 0.0004):
            await notes.remember(f"pear{step} of many")
            kept += 1
    await notes.remember("a commit after all those that were cancelled")
    there = await notes.list_records()
    assert kept <= len(there) - 1 <= 25
    assert await notes.verify() == len(there)
    for record in there:
        assert (await notes.recall(record.content, limit=1))[0].record.id == record.id


async def test_notes_without_arguments_are_kept_in_the_users_folder(tmp_path, monkeypatch):
    """`GRAPHAGENT_HOME` says where; the file and its folder are the user's alone, and making Notes touches nothing."""
    monkeypatch.setenv("GRAPHAGENT_HOME", str(tmp_path / "home"))
    notes = Notes()
    assert not (tmp_path / "home").exists()
    await notes.remember("pear")
    await notes.aclose()
    file = tmp_path / "home" / "notes.db"
    assert file.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "home").stat().st_mode & 0o777 == 0o700
    async with Notes() as again:
        assert [each.record.content for each in await again.recall("pear")] == ["pear"]


async def test_an_index_that_is_not_what_the_notes_say_is_damage(tmp_path):
    """A note that lacks its row or its words, a row too many: verify() says so."""
    for number, damage in enumerate(
        (
            "DELETE FROM notes_rows WHERE row=1",
            "DELETE FROM notes_words WHERE rowid=(SELECT min(id) FROM notes_words_docsize)",
            "UPDATE notes_rows SET id='x' WHERE row=2",
            "UPDATE notes_rows SET scope='/elsewhere'",
            "UPDATE notes_rows SET private=1",
        )
    ):
        async with SqliteStore(tmp_path / f"{number}.db") as store:
            notes = Notes(store)
            await notes.remember_many(["pear", "apple"])
            assert await notes.verify() == 2
            await store.commit(along=lambda connection, damage=damage: connection.execute(damage))
            with pytest.raises(StoreError):
                await notes.verify()
