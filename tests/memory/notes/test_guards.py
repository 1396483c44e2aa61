"""What a model, an agent, an odd id and other users of the machine cannot do to notes."""

from __future__ import annotations

import json
import os
import sys

import anyio
import pytest

from graphagent import END, START, Agent, Strategy
from graphagent.errors import NoteError, NoteNotFoundError
from graphagent.memory import NoteMemory, Notes, NoteSettings
from graphagent.memory._note_values import Record
from graphagent.memory.notes.enrich import _model
from graphagent.nodes import llm_request
from graphagent.testing import ScriptedModel
from tests import forkserver
from tests.memory.notes.conftest import Words
from tests.memory.notes.enrich.test_consolidation import GIVEN, ONE, TWO, plan

# Models


def notes_in(request):
    text = request.messages[1].text
    return [json.loads(line) for line in text.split("<notes>\n")[1].split("</notes>")[0].splitlines()]


async def test_a_model_that_hangs_over_a_consolidation_costs_nothing(tmp_path, monkeypatch):
    """Both notes stay, the save returns, and it is still to be done."""
    monkeypatch.setattr(_model, "PATIENCE", 0.05)

    class Never(ScriptedModel):
        async def respond(self, request, on_text=None):
            await anyio.sleep_forever()

    with anyio.fail_after(600):
        async with Notes(tmp_path / "n.db", model=Never()) as notes:
            await notes.remember(ONE, **GIVEN, infer="never")
            await notes.remember(TWO, **GIVEN, infer="now")
            assert sorted([record.content for record in await notes.list_records()]) == [ONE, TWO]
            assert await notes.settle() == 1


async def test_a_plan_that_deletes_all_that_it_was_shown_takes_away_no_note_of_others(tmp_path):
    """Only what was shown goes, the new note stays, what went comes back, and notes of other scopes and sources are not shown."""
    shown = []

    def all_of_them(request):
        notes = [(int(each["number"]), each["text"]) for each in notes_in(request)]
        shown.extend(notes)
        return plan(*[(number, "delete") for number, _ in notes if number])

    async with Notes(tmp_path / "n.db", owner="another") as another:
        await another.remember(ONE, **GIVEN)
    async with Notes(tmp_path / "n.db", model=ScriptedModel([all_of_them])) as notes:
        old = await notes.remember(ONE, **GIVEN, infer="never")
        for other in ({"scope": "/b"}, {"scope": "/a/b"}, {"source": "bob"}, {"source": "bob", "private": True}):
            await notes.remember(ONE, **{**GIVEN, **other}, infer="never")
        new = await notes.remember(TWO, **GIVEN, infer="now")
        assert shown == [(0, TWO), (1, ONE)]
        assert await notes.get(new.id) == new
        assert await notes.get(old.id) is None
        assert len(await notes.of("bob").list_records()) == 5
        assert (await notes.undo(old.id)).content == ONE
    async with Notes(tmp_path / "n.db", owner="another") as another:
        assert len(await another.list_records()) == 1


async def test_a_model_is_shown_nothing_of_a_scope_that_it_made_up(tmp_path):
    """What it says of where to look leads to no text from outside of the view, not even on the way to an answer."""
    analysis = {"phrases": ["salaries payroll"], "scopes": ["/secret"], "complexity": 1.0}
    model = ScriptedModel([json.dumps(analysis), json.dumps({"gaps": []})])
    async with Notes(tmp_path / "n.db", model=model, settings=NoteSettings(confidence_threshold_high=1.0)) as notes:
        await notes.remember("Salaries are QX7431.", scope="/secret", infer="never")
        await notes.remember("Some words of salaries and of quite other things.", scope="/mine", infer="never")
        found = await notes.scope("/mine").recall("salaries of the whole staff", depth="deep")
    assert [match.record.scope for match in found] == ["/mine"]
    assert len(model.requests) == 2
    assert all("QX7431" not in message.text for request in model.requests for message in request.messages)


async def test_a_model_that_consolidates_sees_each_note_to_its_end(tmp_path):
    """What it writes replaces the whole of a note, so it is shown the whole of it."""
    words = " ".join(f"word{number}" for number in range(1_500))
    shown = []

    def keep(request):
        shown.extend(each["text"] for each in notes_in(request))
        return plan()

    async with Notes(tmp_path / "n.db", model=ScriptedModel([keep])) as notes:
        await notes.remember(f"{words} end one", **GIVEN, infer="never")
        await notes.remember(f"{words} end two", **GIVEN, infer="now")
    assert shown == [f"{words} end two", f"{words} end one"]


async def test_what_cannot_be_kept_is_refused_before_a_model_is_asked(tmp_path):
    """It costs no call."""
    model = ScriptedModel([])
    async with Notes(tmp_path / "n.db", model=model) as notes:
        for wrong in ({"importance": 1.5}, {"metadata": {"a": object()}}, {"categories": [" "]}, {"scope": "/a/.."}):
            with pytest.raises(NoteError):
                await notes.remember("pear", **wrong, infer="now")
        with pytest.raises(NoteError):
            await notes.remember(" ", infer="now")
    assert model.requests == []


# Private notes in agents


async def test_an_agent_that_speaks_for_a_source_sees_the_private_notes_of_it_and_no_others(tmp_path):
    """What a run learns and recalls through `notes.of(source)` is private to it where it was kept so."""
    notes = Notes(tmp_path / "n.db")
    await notes.of("alice").remember("The tea of Alice has the code QX7431.", private=True)
    for source, sees in (("alice", True), ("bob", False), (None, False)):
        agent = Agent(Strategy("plain", START >> llm_request(tools=False) >> END), model=ScriptedModel(["ok"]))
        agent.install(NoteMemory, notes=notes if source is None else notes.of(source), learn=False)
        await agent.run("Which code has the tea?")
        assert ("QX7431" in str(agent.model.requests[0].messages)) is sees


async def test_a_private_record_without_a_source_is_nobodys(notes):
    """One that got into the store by another way is seen by none, also not by who says no source."""
    book = notes._service.repository
    kept = await notes.remember("pear open")
    odd = Record(id="odd", content="pear private", created_at=kept.created_at, updated_at=kept.updated_at, private=True)
    await book.add("", [odd])
    for view in (notes, notes.of("bob")):
        assert [match.record.id for match in await view.recall("pear")] == [kept.id]
        assert [record.id for record in await view.list_records()] == [kept.id]
        assert (await view.info()).record_count == 1


# Ids, and the machine


async def test_an_odd_id_is_that_of_one_note(tmp_path):
    """Ids with quotes and wildcards are ids: they find, change and remove the note that has them, and no other."""
    odd = ["' OR '1'='1", "%", "_", '"; DROP TABLE notes_rows; --', "a/b", "*"]
    async with Notes(tmp_path / "n.db", embedder=Words()) as notes:
        kept = await notes.remember("pear")
        assert await notes.import_([{"id": id_, "content": f"pear {number}"} for number, id_ in enumerate(odd)]) == 6
        for number, id_ in enumerate(odd):
            assert (await notes.get(id_)).content == f"pear {number}"
            assert (await notes.update(id_, content=f"apple {number}")).version == 2
            assert (await notes.forget(ids=[id_])).notes == 1
            with pytest.raises(NoteNotFoundError):
                await notes.update(id_, content="x")
        assert [record.id for record in await notes.list_records()] == [kept.id]
        assert await notes.verify() == 1


def test_nothing_stands_in_the_folder_for_temporary_files(tmp_path):
    """Neither a lock nor anything else that others could read or be in the way with."""
    program = """
import sys, anyio
from graphagent.memory import Notes
from tests.memory.notes.conftest import Words
async def main():
    notes = Notes(sys.argv[1], embedder=Words())
    kept = await notes.remember("pear")
    await notes.update(kept.id, content="apple")
    await notes.recall("pear")
    await notes.reindex()
    await notes.reembed()
    await notes.forget(ids=[kept.id])
    import os
    print(os.listdir(os.environ["TMPDIR"]), os.stat(sys.argv[1]).st_mode & 0o777 == 0o600)
    print(sorted({os.stat(sys.argv[1] + end).st_mode & 0o777 for end in ("-wal", "-shm")}) == [0o600])
anyio.run(main)
"""
    (tmp_path / "temporary").mkdir()
    (tmp_path / "notes").mkdir()
    done = forkserver.run(
        [sys.executable, "-c", program, str(tmp_path / "notes" / "notes.db")],
        env={**os.environ, "TMPDIR": str(tmp_path / "temporary")},
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    assert done.stdout.split("\n") == ["[] True", "True", ""]
    assert list((tmp_path / "temporary").iterdir()) == []
    assert {path.name for path in (tmp_path / "notes").iterdir()} <= {"notes.db", "notes.db-wal", "notes.db-shm"}
