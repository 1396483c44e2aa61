"""What a model infers of notes that are kept already, and what becomes of them where it fails."""

from __future__ import annotations

import json
import logging
import sys

import anyio
import pytest

from graphagent.errors import ModelRequestError, StoreError
from graphagent.events import InferenceFailed
from graphagent.memory import Note, Notes, NoteSettings
from graphagent.memory.notes.enrich import _model
from graphagent.store import SqliteStore
from graphagent.testing import ScriptedModel

ALL = {
    "scope": "/project/alpha",
    "categories": ["decisions"],
    "importance": 0.9,
    "entities": ["PostgreSQL"],
    "dates": [],
    "topics": ["database"],
}


def told(**changes):
    """Give a reply that infers the same of all notes that it was shown."""

    def reply(request):
        numbers = [each["number"] for each in block(request, "notes")]
        return json.dumps({"notes": [{"number": number, **ALL, **changes} for number in numbers]})

    return reply


def block(request, name):
    """Give the data of one block of a request."""
    text = request.messages[1].text
    return [json.loads(line) for line in text.split(f"<{name}>\n")[1].split(f"</{name}>")[0].splitlines()]


async def moved(notes, id_):
    """Wait until a note is in another scope than the root."""
    while (await notes.get(id_)).scope == "/":  # noqa: ASYNC110  nothing tells of what is done in the background
        await anyio.sleep(0.01)


def notes_of(tmp_path, *replies, **options):
    model = ScriptedModel(replies)
    return Notes(
        tmp_path / "notes.db", model=model, settings=NoteSettings(consolidation_threshold=1.0), **options
    ), model


async def test_what_was_left_out_is_inferred_before_it_returns(tmp_path):
    """With infer="now", scope, categories, importance and metadata are what the model says, with one call."""
    notes, model = notes_of(tmp_path, told())
    async with notes:
        record = await notes.remember("We chose PostgreSQL.", infer="now")
        assert (record.scope, record.categories, record.importance) == ("/project/alpha", ("decisions",), 0.9)
        assert record.metadata == {"entities": ["PostgreSQL"], "topics": ["database"]}
        assert await notes.get(record.id) == record
        assert [match.record.id for match in await notes.recall("PostgreSQL", scope="/project", depth="shallow")] == [
            record.id
        ]
    assert len(model.requests) == 1


async def test_what_was_given_stays(tmp_path):
    """A model changes nothing that the caller gave, and metadata only where there are none."""
    notes, model = notes_of(tmp_path, told())
    async with notes:
        record = await notes.remember(
            "We chose PostgreSQL.", categories=["mine"], metadata={"topics": "x"}, infer="now"
        )
        assert (record.categories, record.metadata, record.importance) == (("mine",), {"topics": "x"}, 0.9)
        await notes.remember("All given.", scope="/a", categories=[], importance=0.1, metadata={}, infer="now")
    assert len(model.requests) == 1


async def test_later_is_done_in_the_background(tmp_path):
    """A save does not wait for the model; what it says is there soon, without anyone asking."""
    asked, go_on = anyio.Event(), anyio.Event()

    class Slow(ScriptedModel):
        async def respond(self, request, on_text=None):
            asked.set()
            await go_on.wait()
            return await super().respond(request, on_text)

    async with Notes(
        tmp_path / "n.db", model=Slow([told()]), settings=NoteSettings(consolidation_threshold=1.0)
    ) as notes:
        record = await notes.remember("We chose PostgreSQL.")
        assert record.scope == "/"
        assert await notes.get(record.id) == record
        with anyio.fail_after(600):
            await asked.wait()
            go_on.set()
            await moved(notes, record.id)


async def test_what_is_left_is_done_at_the_next_opening(tmp_path):
    """Closing does not wait for the model, and loses nothing: the next one that opens the notes goes on."""

    class Never(ScriptedModel):
        async def respond(self, request, on_text=None):
            await anyio.sleep_forever()

    with anyio.fail_after(600):
        async with Notes(
            tmp_path / "notes.db", model=Never(), settings=NoteSettings(consolidation_threshold=1.0)
        ) as notes:
            record = await notes.remember("We chose PostgreSQL.")
            await anyio.sleep(0.05)
    notes, model = notes_of(tmp_path, told())
    async with notes:
        with anyio.fail_after(600):
            await moved(notes, record.id)
        assert await notes.settle() == 0
    assert len(model.requests) == 1


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_a_program_may_end_while_something_is_inferred(tmp_path, loop):
    """The end of the event loop ends what is done in the background, silently, and it is done in the next one."""
    program = f"""
import anyio, sys
from graphagent.memory import Notes
from graphagent.testing import ScriptedModel

class Never(ScriptedModel):
    async def respond(self, request, on_text=None):
        await anyio.sleep_forever()

async def main():
    notes = Notes({str(tmp_path / "n.db")!r}, model=Never())
    print((await notes.remember("It is kept.")).id)
    await anyio.sleep(0.05)

anyio.run(main, backend={loop!r})
"""
    import subprocess

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600, check=False)
    assert (done.returncode, done.stderr) == (0, "")

    async def again():
        async with Notes(tmp_path / "n.db", model=ScriptedModel([told()])) as notes:
            assert await notes.settle() == 0
            assert (await notes.get(done.stdout.strip())).scope == "/project/alpha"

    anyio.run(again, backend=loop)


def test_notes_go_on_in_another_event_loop(tmp_path):
    """What one loop did not finish is begun in the next, by the same object."""
    notes, _ = notes_of(tmp_path, told(), told())
    for loop in ("asyncio", "trio", "asyncio"):
        anyio.run(notes.remember, "Kept in a loop of its own.", backend=loop)
    assert anyio.run(notes.settle, backend="asyncio") == 0


async def test_several_notes_are_inferred_with_one_call(tmp_path):
    """Up to ten notes stand before the model together."""
    notes, model = notes_of(tmp_path, told(), told())
    async with notes:
        records = await notes.remember_many([f"Note {number}." for number in range(12)], infer="now")
    assert len(model.requests) == 2
    assert [len(block(request, "notes")) for request in model.requests] == [10, 2]
    assert {record.scope for record in records} == {"/project/alpha"}
    assert [record.content for record in records] == [f"Note {number}." for number in range(12)]


async def test_private_and_untrusted_notes_stand_apart(tmp_path):
    """What is private to one source, or came from outside, stands before the model without the notes of others."""
    notes, model = notes_of(tmp_path, told(), told(), told(), told())
    async with notes:
        one = [Note("Alice's own.", source="alice", private=True), Note("Bob's own.", source="bob", private=True)]
        await notes.remember_many([*one, Note("For all.")], infer="now")
        await notes.remember("From a page.", trust="untrusted", infer="now")
    assert [[each["text"] for each in block(request, "notes")] for request in model.requests] == [
        ["Alice's own."],
        ["Bob's own."],
        ["For all."],
        ["From a page."],
    ]


@pytest.mark.parametrize(
    ("suggested", "kept"),
    [
        ("/secret", "/mine"),
        ("/mine/ideas", "/mine/ideas"),
        ("ideas", "/mine/ideas"),
        ("//mine///ideas/ ", "/mine/ideas"),
        ("/mine/../secret", "/mine"),
        ("/minefield", "/mine"),
        ("/", "/mine"),
        ("", "/mine"),
        ("a\x00b", "/mine"),
        ("/mine/" + "x" * 2000, "/mine"),
    ],
)
async def test_suggested_scopes_stay_within_the_view(tmp_path, suggested, kept):
    """A note is moved only within the view in which it was kept, whatever the model says."""
    notes, _ = notes_of(tmp_path, told(scope=suggested))
    async with notes:
        await notes.remember("Not for you.", scope="/secret", infer="never")
        record = await notes.scope("/mine").remember("An idea.", infer="now")
        assert record.scope == kept


async def test_the_model_sees_no_scopes_of_others(tmp_path):
    """Scopes and categories outside of the view, and those of private notes, are not in what the model is sent."""
    notes, model = notes_of(tmp_path, told())
    async with notes:
        await notes.remember("x", scope="/secret", categories=["hidden"], infer="never")
        await notes.remember("y", scope="/mine/alice", categories=["own"], source="alice", private=True, infer="never")
        await notes.remember("z", scope="/mine/open", categories=["open"], infer="never")
        await notes.scope("/mine").remember("An idea.", infer="now")
    assert block(model.requests[0], "scopes") == [{"path": "/mine"}, {"path": "/mine/open"}]
    assert block(model.requests[0], "categories") == [{"name": "open"}]


async def test_bounds_hold_when_notes_are_opened_again(tmp_path):
    """What a view kept stays in its bounds too when it is inferred later, by whoever opens the notes."""
    down = ModelRequestError("down")
    notes, _ = notes_of(tmp_path, *[down] * 9)
    async with notes:
        record = await notes.scope("/mine").remember("An idea.", infer="now")
    notes, _ = notes_of(tmp_path, told(scope="/secret"))
    async with notes:
        assert await notes.settle() == 0
        kept = await notes.get(record.id)
    assert (kept.scope, kept.categories) == ("/mine", ("decisions",))


@pytest.mark.parametrize(("said", "kept"), [(7, 1.0), (-1, 0.0), (1e300, 1.0), (0.25, 0.25), (None, 0.5)])
async def test_importance_is_between_0_and_1(tmp_path, said, kept):
    """What a model says beyond is brought back; where it says nothing, the default stays."""
    notes, _ = notes_of(tmp_path, told(importance=said))
    async with notes:
        assert (await notes.remember("A note.", infer="now")).importance == kept


async def test_a_note_that_was_changed_meanwhile_stays(tmp_path):
    """What a person changed while the model was asked is not overwritten, and the model is not asked again."""
    changed = {}

    class Meanwhile(ScriptedModel):
        async def respond(self, request, on_text=None):
            response = await super().respond(request, on_text)
            changed["record"] = await notes.update(changed["id"], scope="/by/hand", importance=0.2)
            return response

    model = Meanwhile([told()])
    async with Notes(tmp_path / "n.db", model=model, settings=NoteSettings(consolidation_threshold=1.0)) as notes:
        await notes.remember("x", infer="never")
        original = notes._service.repository.add

        async def add(owner, records, **named):
            changed["id"] = records[0].id
            await original(owner, records, **named)

        notes._service.repository.add = add
        record = await notes.remember("We chose PostgreSQL.", infer="now")
        assert record == changed["record"]
        assert (record.scope, record.categories) == ("/by/hand", ())
        assert await notes.settle() == 0
    assert len(model.requests) == 1


async def test_a_note_that_was_changed_before_stays(tmp_path):
    """What a person changed before the model was asked is left as it is, and costs no call."""
    notes, model = notes_of(tmp_path, ModelRequestError("down"), told())
    async with notes:
        record = await notes.remember("We chose PostgreSQL.", infer="now")
        changed = await notes.update(record.id, scope="/by/hand")
        assert await notes.settle() == 0
        assert await notes.get(record.id) == changed
    assert len(model.requests) == 1


async def test_a_note_that_was_forgotten_meanwhile_stays_forgotten(tmp_path):
    """Inference brings nothing back."""

    class Meanwhile(ScriptedModel):
        async def respond(self, request, on_text=None):
            await notes.reset()
            return await super().respond(request, on_text)

    async with Notes(
        tmp_path / "n.db", model=Meanwhile([told()]), settings=NoteSettings(consolidation_threshold=1.0)
    ) as notes:
        record = await notes.remember("We chose PostgreSQL.", infer="now")
        assert await notes.get(record.id) is None
        assert await notes.settle() == 0


@pytest.mark.parametrize(
    "answers",
    [
        [ModelRequestError("down")],
        [OSError("secret words")],
        [TimeoutError()],
        [RuntimeError("We chose PostgreSQL.")],
        ["I cannot do that: We chose PostgreSQL."] * 2,
        ['{"notes": 7}'] * 2,
        ["[" * 500] * 2,
        [json.dumps({"notes": []})],
        [json.dumps({"notes": [{"number": 99, **ALL}]})],
    ],
)
async def test_a_model_that_fails_costs_nothing(tmp_path, answers, caplog):
    """The note is kept with defaults; it is logged and told, without a word of the note, and still to be done."""
    notes, _ = notes_of(tmp_path, *answers)
    failures = []
    notes.on(InferenceFailed, failures.append)
    with caplog.at_level(logging.WARNING, "graphagent"):
        async with notes:
            record = await notes.remember("We chose PostgreSQL.", infer="now")
            assert (record.scope, record.categories, record.importance) == ("/", (), 0.5)
            assert [each.content for each in await notes.list_records()] == ["We chose PostgreSQL."]
            await notes.aclose()
    assert [failure.task for failure in failures] == ["save"]
    assert caplog.records
    assert "PostgreSQL" not in caplog.text + failures[0].reason
    assert "secret" not in caplog.text + failures[0].reason


async def test_a_model_that_hangs_is_not_waited_for(tmp_path, monkeypatch):
    """After a while the note has its defaults."""
    monkeypatch.setattr(_model, "PATIENCE", 0.05)

    class Never(ScriptedModel):
        async def respond(self, request, on_text=None):
            await anyio.sleep_forever()

    with anyio.fail_after(600):
        async with Notes(tmp_path / "n.db", model=Never()) as notes:
            assert (await notes.remember("Kept.", infer="now")).scope == "/"
            assert await notes.extract_memories("The whole text.") == ["The whole text."]
            assert [match.record.content for match in await notes.recall("kept", depth="deep")] == ["Kept."]


async def test_a_model_is_asked_three_times_about_a_note(tmp_path):
    """Prose about a note is not asked for forever; a note in whose company it came is asked about alone."""
    notes, model = notes_of(tmp_path, *["prose"] * 2, told(), *["prose"] * 4)
    async with notes:
        good, bad = await notes.remember_many(["Good.", "Bad."], infer="now")
        assert await notes.settle() == 1
        assert await notes.settle() == 0
        assert {(await notes.get(each.id)).scope for each in (good, bad)} == {"/", "/project/alpha"}
        assert await notes.settle() == 0
    assert len(model.requests) == 7


async def test_a_model_that_is_down_is_not_asked_for_each_note(tmp_path):
    """One failed request ends a round, and costs no try; all are done when the model is there again."""
    notes, model = notes_of(tmp_path, ModelRequestError("down"), *[told()] * 3)
    async with notes:
        await notes.remember_many([f"Note {number}." for number in range(25)], infer="now")
        assert len(model.requests) == 1
        assert await notes.settle() == 0
    assert len(model.requests) == 4


async def test_settle_counts_what_the_view_sees(tmp_path):
    """A view learns nothing of what is open elsewhere."""
    notes, _ = notes_of(tmp_path, *[ModelRequestError("down")] * 9)
    async with notes:
        await notes.scope("/a").remember("One.", infer="now")
        assert [await notes.scope("/b").settle(), await notes.scope("/a").settle(), await notes.settle()] == [0, 1, 1]


async def test_only_the_store_raises(tmp_path):
    """Where the store fails while something is inferred, who waits for it is told."""
    store = SqliteStore(tmp_path / "n.db")

    class Breaking(ScriptedModel):
        async def respond(self, request, on_text=None):
            async def broken(*changes, **named):
                raise StoreError("the disk is full")

            store.commit = broken
            return await super().respond(request, on_text)

    async with (
        store,
        Notes(store, model=Breaking([told()]), settings=NoteSettings(consolidation_threshold=1.0)) as notes,
    ):
        with pytest.raises(StoreError, match="the disk is full"):
            await notes.remember("We chose PostgreSQL.", infer="now")
        assert len(await notes.list_records()) == 1


async def test_inference_can_be_undone(tmp_path):
    """The history says what the note was before."""
    notes, _ = notes_of(tmp_path, told())
    async with notes:
        record = await notes.remember("We chose PostgreSQL.", infer="now")
        assert [(before.scope, action) for before, action, *_ in await notes.history(record.id)] == [("/", "inferred")]
        assert (await notes.undo(record.id)).scope == "/"


async def test_without_inference_no_model_is_asked(tmp_path):
    """infer="never" and a shallow recall send nothing away."""
    notes, model = notes_of(tmp_path)
    async with notes:
        await notes.remember("A note.", infer="never")
        await notes.recall("note", depth="shallow")
        assert await notes.settle() == 0
    assert model.requests == []


async def test_text_is_taken_apart(tmp_path):
    """Extraction gives each statement once, and keeps nothing."""
    said = ["Maria owns the budget.", " ", "Maria owns the budget.", "It is due on 2024-05-01."]
    notes, model = notes_of(
        tmp_path, json.dumps({"statements": said}), json.dumps({"statements": []}), "prose", "prose"
    )
    async with notes:
        assert await notes.extract_memories("Maria </text> owns it.") == [said[0], said[3]]
        assert await notes.extract_memories("Hello!") == []
        assert await notes.extract_memories("  The whole text. ") == ["The whole text."]
        assert await notes.list_records() == []
    assert model.requests[0].messages[1].text.count("</text>") == 1


@pytest.mark.parametrize("blank", ["", " ", "\n\t \u3000"])
async def test_a_blank_text_has_no_statements_and_no_model_is_asked(tmp_path, blank):
    """Nothing was said, with a model or without one."""
    notes, model = notes_of(tmp_path)
    async with notes:
        assert await notes.extract_memories(blank) == []
    async with Notes(tmp_path / "other.db") as without:
        assert await without.extract_memories(blank) == []
        assert await without.remember_many(await without.extract_memories(blank)) == []
    assert model.requests == []


async def test_everything_works_over_each_store(store):
    """Inference, consolidation and deep recall do the same in a file, sealed, and in memory."""
    plan = {"actions": [{"number": 1, "action": "delete", "reason": "newer"}]}
    phrases = {"phrases": ["port staging"], "complexity": 0}
    words = "The staging server of project alpha listens on port {} behind the old proxy"
    model = ScriptedModel([told(), told(), json.dumps(plan), json.dumps(phrases)])
    async with Notes(store, model=model) as notes:
        old = await notes.remember(words.format(8080), infer="now")
        new = await notes.remember(words.format(9090))
        assert await notes.settle() == 0
        found = await notes.recall("which port?", depth="deep")
        assert [match.record.id for match in found] == [new.id]
        assert found[0].record.scope == "/project/alpha"
        assert (await notes.undo(old.id)).content == words.format(8080)
        assert await notes.verify() == 2
    assert len(model.requests) == 4


async def test_many_saves_at_once(tmp_path):
    """However saves, the background and those who wait for it meet, each note is inferred once."""
    notes, model = notes_of(tmp_path, *[told()] * 60)
    async with notes:
        async with anyio.create_task_group() as group:
            for number in range(30):
                group.start_soon(notes.remember, f"Note {number}.")
                if number % 10 == 0:
                    group.start_soon(notes.settle)
        assert await notes.settle() == 0
        records = await notes.list_records()
    assert len(records) == 30
    assert {(record.scope, record.version) for record in records} == {("/project/alpha", 2)}
    assert sum(len(block(request, "notes")) for request in model.requests) == 30


async def test_two_that_infer_the_same_notes_agree(tmp_path):
    """Two handles on one file may ask twice; each note is changed once, and neither fails."""
    first, _ = notes_of(tmp_path, *[ModelRequestError("down"), *[told(scope="/one")] * 9])
    async with first:
        await first.remember_many([f"Note {number}." for number in range(20)], infer="now")
        second, _ = notes_of(tmp_path, *[told(scope="/two")] * 9)
        async with second, anyio.create_task_group() as group:
            group.start_soon(first.settle)
            group.start_soon(second.settle)
        records = await first.list_records()
        assert await first.settle() == 0
    assert {record.version for record in records} == {2}
    assert {record.scope for record in records} <= {"/one", "/two"}


async def test_what_raises_in_the_background_is_logged(tmp_path, caplog):
    """A store that fails there ends neither the program nor says a word of the note."""
    async with Notes(tmp_path / "n.db", model=ScriptedModel([told()])) as notes:

        async def broken(owner):
            raise StoreError("Kept. stands in the error")

        notes._service.repository.pending = broken
        with caplog.at_level(logging.WARNING, "graphagent"):
            await notes.remember("Kept.")
            with anyio.fail_after(600):
                while not caplog.records:  # noqa: ASYNC110  nothing else tells of it
                    await anyio.sleep(0.01)
    assert "StoreError" in caplog.text
    assert "Kept" not in caplog.text


async def test_who_says_what_a_note_has_already_has_that_stay(tmp_path):
    """An update to the scope that a note has keeps the model, which was still to choose one, from moving it."""
    async with Notes(tmp_path / "n.db", model=ScriptedModel([told(scope="/moved")])) as notes:
        async with notes._service.inference._lock:
            kept = await notes.remember("Kept.")
            assert (await notes.update(kept.id)).version == 1
            assert (await notes.update(kept.id, scope="/")).version == 2
        assert await notes.settle() == 0
        assert (await notes.get(kept.id)).scope == "/"
