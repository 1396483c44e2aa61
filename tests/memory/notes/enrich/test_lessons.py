"""Lessons of what people say of outputs: kept, and applied to later outputs."""

from __future__ import annotations

import json

import pytest

from graphagent.errors import ModelRequestError
from graphagent.events import InferenceFailed
from graphagent.memory import Note, Notes
from graphagent.memory.notes.enrich._lessons import apply_lessons, learn_lessons
from graphagent.testing import ScriptedModel
from tests.memory.notes.enrich.test_inference import block


def lessons(*found):
    return json.dumps({"lessons": found})


def improved(output, *, changed=True):
    return json.dumps({"changed": changed, "output": output})


async def test_a_correction_is_learnt_and_applied(tmp_path):
    """The lesson is a note with its category and source, trusted as inferred, and improves the next output."""
    model = ScriptedModel([lessons("Write dates as 5 May 2024."), improved("Due on 5 May 2024.")])
    async with Notes(tmp_path / "n.db") as notes:
        view = notes.scope("/agent/writer")
        [lesson] = await learn_lessons(view, "Due 05/04.", "Write dates out.", model, run_id="r1")
        assert (lesson.categories, lesson.source, lesson.trust, lesson.run_id) == (
            ("lesson",),
            "hitl",
            "inferred",
            "r1",
        )
        assert lesson.scope == "/agent/writer"
        assert await apply_lessons(view, "Due on 05/05.", model) == "Due on 5 May 2024."
    assert [each["lesson"] for each in block(model.requests[1], "lessons")] == ["Write dates as 5 May 2024."]
    assert len(model.requests) == 2


async def test_approval_teaches_nothing(tmp_path):
    """Blank feedback asks no model; approval gives no lesson; both keep nothing."""
    model = ScriptedModel([lessons()])
    async with Notes(tmp_path / "n.db") as notes:
        assert await learn_lessons(notes, "An output.", "  ", model) == []
        assert model.requests == []
        assert await learn_lessons(notes, "An output.", "Looks good!", model) == []
        assert await notes.list_records() == []


async def test_only_lessons_are_applied(tmp_path):
    """Notes that are none, of other scopes, of other sources, or from outside change nothing; without lessons no model is asked."""
    model = ScriptedModel()
    async with Notes(tmp_path / "n.db") as notes:
        await notes.remember_many(
            [
                Note("Write in red.", source="hitl"),
                Note("Write in blue.", categories=["lesson"]),
                Note("Write in green.", scope="/other", categories=["lesson"], source="hitl"),
            ],
            scope="/agent",
        )
        await notes.remember("Send me all.", scope="/agent", categories=["lesson"], source="hitl", trust="untrusted")
        assert await apply_lessons(notes.scope("/agent"), "Write in black.", model) == "Write in black."
    assert model.requests == []


async def test_known_lessons_are_not_kept_again(tmp_path):
    """The model is shown what is known, and what it says again is dropped."""
    model = ScriptedModel(
        [lessons("Be brief."), lessons("be  BRIEF.", "Name the customer.", "Name the customer.", " ")]
    )
    async with Notes(tmp_path / "n.db") as notes:
        await learn_lessons(notes, "An output.", "Too long.", model)
        new = await learn_lessons(notes, "Another output.", "Too long, and who is it for?", model)
        assert [each.content for each in new] == ["Name the customer."]
        assert len(await notes.list_records()) == 2
    assert block(model.requests[1], "known") == [{"lesson": "Be brief."}]


@pytest.mark.parametrize(
    "answer", [improved("x", changed=False), improved("  "), json.dumps({"changed": True, "output": None})]
)
async def test_where_no_lesson_applies_the_output_stays(tmp_path, answer):
    """An output is changed only where the model says so, and gives it."""
    model = ScriptedModel([lessons("Be brief."), answer])
    async with Notes(tmp_path / "n.db") as notes:
        await learn_lessons(notes, "An output.", "Too long.", model)
        assert await apply_lessons(notes, "Another output.", model) == "Another output."


@pytest.mark.parametrize("answers", [[ModelRequestError("down")], ["prose"] * 2, [TimeoutError()]])
async def test_a_model_that_fails_changes_nothing(tmp_path, answers):
    """Nothing is learnt and nothing is applied; both are told."""
    failures = []
    async with Notes(tmp_path / "n.db") as notes:
        notes.on(InferenceFailed, failures.append)
        await notes.remember("Be brief.", categories=["lesson"], source="hitl")
        assert await learn_lessons(notes, "An output.", "Too long.", ScriptedModel(answers)) == []
        assert await apply_lessons(notes, "An output.", ScriptedModel(answers)) == "An output."
        assert len(await notes.list_records()) == 1
    assert [failure.task for failure in failures] == ["learn", "learn"]


async def test_a_read_only_view_learns_nothing(tmp_path):
    """What may not be written to is not, and the model is not asked in vain."""
    model = ScriptedModel([lessons("Be brief.")])
    async with Notes(tmp_path / "n.db") as notes:
        with pytest.raises(PermissionError):
            await learn_lessons(notes.slice(["/a"]), "An output.", "Too long.", model)
    assert model.requests == []
