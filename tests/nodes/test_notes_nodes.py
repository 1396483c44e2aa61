"""The nodes around notes, and people from whom lessons are learned."""

from __future__ import annotations

import pytest

from graphagent import END, START, Agent, Context, Strategy, node
from graphagent.errors import FeatureError, NodeFailedError
from graphagent.memory import NoteMemory, Notes, NoteSettings, NotesStep
from graphagent.nodes import ask_human, llm_request, recall_notes, remember_notes
from graphagent.store import MemoryStore, SqliteStore
from graphagent.testing import ScriptedModel

ask = llm_request(tools=False)


def agent_of(strategy, notes, *replies, store=None):
    agent = Agent(strategy, model=ScriptedModel(replies), store=store)
    agent.install(NoteMemory, notes=notes, recall=False, learn=False)
    return agent


@pytest.fixture
def notes(tmp_path):
    return Notes(tmp_path / "notes.db")


@pytest.fixture(params=["no journal", "journal"])
def store(request, tmp_path):
    return None if request.param == "no journal" else SqliteStore(tmp_path / "runs.db")


def shown(result):
    return [note.content for step in result.memory.steps if isinstance(step, NotesStep) for note in step.notes]


async def contents(notes):
    return sorted([record.content for record in await notes.list_records()])


# ---- recall_notes


async def test_recall_notes_puts_before_the_model_what_fits_its_input(notes, store):
    """By default the input is searched for, and goes on unchanged."""
    await notes.remember_many(["The cat is black.", "The printer is broken."])
    agent = agent_of(Strategy("s", START >> recall_notes() >> ask >> END), notes, "Black.", store=store)
    result = await agent.run("Which colour has the cat?")
    assert "The cat is black." in shown(result)
    assert agent.model.requests[0].messages[-1].text == "Which colour has the cat?"


async def test_recall_notes_takes_a_query_a_scope_categories_and_limits(notes):
    """A query of one's own, or a function of the input; within a scope, of some categories, no more than asked for."""
    await notes.remember("Rex is a dog.", scope="/a", categories=["pets"])
    await notes.remember("Max is a dog.", scope="/b", categories=["pets"])
    await notes.remember("A dog costs money.", scope="/a")

    @node
    async def number(ctx: Context, task: str) -> int:
        return len(task)

    first = recall_notes("dog", scope="/a", categories="pets", name="first")
    result = await agent_of(Strategy("s", START >> first >> ask >> END), notes, "ok").run("x")
    assert shown(result) == ["Rex is a dog."]
    second = recall_notes(lambda count: "dog" * count, limit=1)
    last = Strategy("s", START >> number >> second >> END)
    result = await agent_of(last, notes).run("x")
    assert len(shown(result)) == 1


async def test_recall_notes_searches_for_the_task_where_its_input_is_no_text(notes):
    """Behind a node that gives a number, the task of the run is what is searched for."""
    await notes.remember("The cat is black.")

    @node
    async def number(ctx: Context, task: str) -> int:
        return len(task)

    result = await agent_of(Strategy("s", START >> number >> recall_notes() >> END), notes).run("the cat")
    assert shown(result) == ["The cat is black."]
    assert result.output == 7


async def test_recall_notes_shows_nothing_twice(notes):
    """What the model sees already is left out by a second node."""
    await notes.remember("The cat is black.")
    strategy = Strategy("s", START >> recall_notes(name="a") >> recall_notes(name="b") >> ask >> END)
    assert shown(await agent_of(strategy, notes, "ok").run("cat")) == ["The cat is black."]


async def test_a_query_that_gives_no_text_fails_the_node(notes):
    """A function that gives something else is told what it gave; an async one is refused at once."""
    strategy = Strategy("s", START >> recall_notes(lambda _: 7) >> END)
    with pytest.raises(NodeFailedError) as caught:
        await agent_of(strategy, notes).run("x")
    assert "int" in str(caught.value.__cause__)

    async def query(value):
        return "x"

    with pytest.raises(TypeError, match="async"):
        recall_notes(query)


async def test_the_nodes_need_the_feature():
    """Without NoteMemory the first run says which node needs it and which line to add."""
    for tap in (recall_notes(), remember_notes()):
        with pytest.raises(FeatureError, match=r"agent.install\(NoteMemory"):
            await Agent(Strategy("s", START >> tap >> END)).run("x")


# ---- remember_notes


async def test_remember_notes_keeps_the_statements_of_the_run_so_far(notes, store):
    """The agent's model splits what was said; each statement is a note of the run, and the transcript stays as it is."""
    strategy = Strategy("s", START >> ask >> remember_notes(scope="/talk", categories=["talk"]) >> END)
    agent = agent_of(strategy, notes, "Nice to meet you, Ann.", {"statements": ["Ann lives in Oslo."]}, store=store)
    result = await agent.run("I am Ann from Oslo.")
    [record] = await notes.list_records()
    assert (record.content, record.scope, record.categories) == ("Ann lives in Oslo.", "/talk", ("talk",))
    assert (record.run_id, record.trust) == (result.run_id, "inferred")
    said = agent.model.requests[1].messages[-1].text
    assert "I am Ann from Oslo." in said
    assert "Nice to meet you, Ann." in said
    assert [type(step).__name__ for step in result.memory.steps] == ["TaskStep", "ActionStep", "FinalAnswerStep"]


async def test_remember_notes_keeps_what_a_function_gives(notes):
    """With `str` the input is kept as it is, and a function may give several texts."""
    one = remember_notes(str, name="one")
    many = remember_notes(lambda said: said.split(", "), scope="/parts", name="many")
    await agent_of(Strategy("s", START >> one >> many >> END), notes).run("a, b")
    assert await contents(notes) == ["a", "a, b", "b"]


async def test_remember_notes_uses_the_model_of_the_notes_where_there_is_one(tmp_path):
    """Notes with a model split the text themselves, and the agent's model is not asked."""
    splits = ScriptedModel([{"statements": ["From the notes' own model."]}])
    notes = Notes(tmp_path / "notes.db", model=splits, settings=NoteSettings(consolidation_threshold=1.0))
    strategy = Strategy("s", START >> remember_notes(scope="/a", categories=["x"]) >> END)
    agent = agent_of(strategy, notes)
    await agent.run("Something was said.")
    await notes.aclose()
    assert agent.model.requests == []
    assert await contents(Notes(tmp_path / "notes.db")) == ["From the notes' own model."]


async def test_remember_notes_that_is_executed_again_asks_and_keeps_once(notes, tmp_path):
    """A run that fails behind it and is resumed has the notes once."""
    store = SqliteStore(tmp_path / "runs.db")
    fails = [True]

    @node
    async def break_once(ctx: Context, said: str) -> str:
        if fails:
            fails.clear()
            raise ValueError
        return said

    strategy = Strategy("s", START >> remember_notes() >> break_once >> END)
    with pytest.raises(NodeFailedError):
        await agent_of(strategy, notes, {"statements": ["Once."]}, store=store).run("x", run_id="r")
    agent = agent_of(strategy, notes, store=store)
    await agent.resume("r")
    assert agent.model.requests == []
    assert await contents(notes) == ["Once."]


# ---- ask_human(learn=…)


review = Strategy("review", START >> ask >> ask_human(lambda draft: f"Is this fine? {draft}", str, learn=None) >> END)


def reviewed(notes):
    person = ask_human(lambda draft: f"Is this fine? {draft}", str, learn=notes)
    return Strategy("review", START >> llm_request(tools=False) >> person >> END)


async def test_a_correction_teaches_a_lesson_that_is_applied_to_the_next_draft(notes, tmp_path):
    """What a person says is distilled, once, across the suspension; the next draft is improved before a person sees it."""
    store = SqliteStore(tmp_path / "runs.db")
    strategy = reviewed(notes)
    agent = Agent(strategy, model=ScriptedModel(["Dear Sir, hello."]), store=store)
    waiting = await agent.run("Write a letter.", run_id="one")
    assert waiting.pending.question == "Is this fine? Dear Sir, hello."
    learning = Agent(strategy, model=ScriptedModel([{"lessons": ["Never write 'Dear Sir'."]}]), store=store)
    done = await learning.resume("one", answer="Please never write Dear Sir.")
    assert done.output == "Please never write Dear Sir."
    assert await contents(notes) == ["Never write 'Dear Sir'."]
    [record] = await notes.list_records()
    assert record.run_id == "one"

    model = ScriptedModel(["Dear Sir, goodbye.", {"changed": True, "output": "Hello, goodbye."}])
    later = await Agent(strategy, model=model, store=store).run("Write a letter.", run_id="two")
    assert later.pending.question == "Is this fine? Hello, goodbye."
    assert later.pending.about == "Hello, goodbye."
    silent = Agent(strategy, model=ScriptedModel([{"lessons": []}]), store=store)
    assert (await silent.resume("two", answer="Good.")).output == "Good."
    assert await contents(notes) == ["Never write 'Dear Sir'."]


async def test_lessons_belong_to_the_owner_of_the_run(notes, tmp_path):
    """What one owner teaches is not applied for another."""
    store = SqliteStore(tmp_path / "runs.db")
    strategy = reviewed(notes)
    await Agent(strategy, model=ScriptedModel(["Draft."]), store=store).run("x", run_id="one", owner="ann")
    model = ScriptedModel([{"lessons": ["Shorter drafts."]}])
    await Agent(strategy, model=model, store=store).resume("one", answer="Write shorter drafts.", owner="ann")
    other = await Agent(strategy, model=ScriptedModel(["Draft."]), store=store).run("x", owner="bob")
    assert other.pending.about == "Draft."


async def test_without_notes_a_person_is_asked_as_ever():
    """Nothing is learned where nothing was said about it."""
    agent = Agent(review, model=ScriptedModel(["Draft."]), store=MemoryStore())
    result = await agent.run("x")
    assert (await agent.resume(result.run_id, answer="fine")).output == "fine"
    assert len(agent.model.requests) == 1


async def test_an_answer_that_is_no_text_teaches_nothing(notes):
    """A bool is an answer and no correction; the model is asked nothing more."""
    person = ask_human("Fine?", bool, learn=notes)
    strategy = Strategy("s", START >> llm_request(tools=False) >> person >> END)
    agent = Agent(strategy, model=ScriptedModel(["Draft."]), store=MemoryStore())
    result = await agent.run("x")
    assert (await agent.resume(result.run_id, answer=True)).output is True
    assert await contents(notes) == []
