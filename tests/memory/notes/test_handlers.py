"""Who listens to notes: in which order, to what, and what becomes of a handler that raises."""

from __future__ import annotations

import logging
from functools import partial

import anyio
import pytest

from graphagent import END, START, Agent, Strategy, node
from graphagent.errors import EmbedderError, HandlerError, NodeFailedError, RunError
from graphagent.events import (
    Event,
    InferenceFailed,
    MemoryQueryCompleted,
    MemoryQueryFailed,
    MemoryQueryStarted,
    MemorySaveCompleted,
    MemorySaveFailed,
    MemorySaveStarted,
)
from graphagent.memory import NoteMemory, Notes, NoteSettings
from graphagent.run import Context
from graphagent.store import MemoryStore
from graphagent.testing import ScriptedModel
from tests.memory.notes.conftest import Words


class Breaking(Words):
    """Fails from some time on."""

    broken = False

    async def embed(self, texts):
        if self.broken:
            raise OSError("no network")
        return await super().embed(texts)


def breaks(event):
    raise KeyError(type(event).__name__)


async def test_handlers_are_called_in_the_order_of_their_registration():
    """Those of `Event` itself between the others, as with agents; and notes give themselves back, to go on."""
    notes, told = Notes(MemoryStore()), []
    for name, kind in (("a", Event), ("b", MemorySaveCompleted), ("c", Event), ("d", MemorySaveCompleted)):
        assert notes.on(kind, lambda event, name=name: told.append((name, type(event)))) is notes
    await notes.remember("pear")
    started = [("a", MemorySaveStarted), ("c", MemorySaveStarted)]
    assert told == [*started, *((name, MemorySaveCompleted) for name in "abcd")]


class Later:
    async def __call__(self, event):
        raise AssertionError


async def later(event):
    raise AssertionError


@pytest.mark.parametrize(
    ("kind", "handler", "said"),
    [
        (dict, print, "an event type of graphagent.events and a handler, not the class dict"),
        ("MemorySaveStarted", print, "an event type of graphagent.events"),
        (MemorySaveStarted, later, "the handler of MemorySaveStarted is async"),
        (MemorySaveStarted, Later(), "the handler of MemorySaveStarted is async"),
        (MemorySaveStarted, 5, "is a function, not an int"),
    ],
)
def test_what_is_no_event_or_no_plain_function_is_refused(kind, handler, said):
    """When it is registered, not when it would be called."""
    with pytest.raises(TypeError, match=said):
        Notes(MemoryStore()).on(kind, handler)


@pytest.mark.parametrize("kind", [MemoryQueryStarted, MemoryQueryCompleted, MemorySaveStarted, MemorySaveCompleted])
async def test_what_a_handler_raises_is_a_handler_error(kind):
    """With its cause; the handlers behind it are not called, and a note that is kept stays kept."""
    notes, told = Notes(MemoryStore()).on(kind, breaks), []
    notes.on(kind, told.append)
    with pytest.raises(HandlerError, match=f"'breaks' of {kind.__name__} failed with KeyError") as caught:
        await (notes.recall("pear") if kind.__name__.startswith("MemoryQuery") else notes.remember("pear"))
    assert isinstance(caught.value.__cause__, KeyError)
    assert caught.value.event == kind.__name__
    assert told == []
    assert len(await notes.list_records()) == (kind is MemorySaveCompleted)


@pytest.mark.parametrize("infer", ["later", "now"])
async def test_a_save_is_finished_before_what_its_handler_raised_goes_out(infer):
    """What the model is to infer of the note is inferred all the same."""
    said = {"notes": [{"number": 1, "scope": "/", "categories": ["fruit"], "importance": 0.9}]}
    async with Notes(MemoryStore(), model=ScriptedModel([said])) as notes:
        notes.on(MemorySaveCompleted, breaks)
        with pytest.raises(HandlerError):
            await notes.remember("pear", infer=infer)
        with anyio.fail_after(600):
            while (await notes.list_records())[0].categories != ("fruit",):  # noqa: ASYNC110  nothing tells of it
                await anyio.sleep(0.01)


async def test_what_failed_is_raised_whatever_a_handler_of_it_raises():
    """The error has a note of the handler's, which hides nothing."""
    embedder = Breaking()
    notes = Notes(MemoryStore(), embedder=embedder).on(MemorySaveFailed, breaks).on(MemoryQueryFailed, breaks)
    await notes.remember("pear")
    embedder.broken = True
    for operation in (partial(notes.remember, "plum"), partial(notes.recall, "pear")):
        with pytest.raises(EmbedderError) as caught:
            await operation()
        assert any("'breaks' of Memory" in note for note in caught.value.__notes__)
    assert [record.content for record in await notes.list_records()] == ["pear"]


async def test_a_handler_of_failed_inference_breaks_nothing_off(caplog):
    """All notes are looked at first; then it is raised where someone waits, and logged in the background."""
    model = ScriptedModel(["none", "none", "none", "none"])
    async with Notes(MemoryStore(), model=model, settings=NoteSettings(consolidation_threshold=1.0)) as notes:
        notes.on(InferenceFailed, breaks)
        with pytest.raises(HandlerError, match="InferenceFailed"):
            await notes.remember("pear", infer="now")
        [pending] = await notes._service.repository.pending("")
        assert pending.tries == 1
        with caplog.at_level(logging.WARNING, "graphagent"):
            await notes.remember("plum", infer="later")
            with anyio.fail_after(600):
                while "while notes were looked at in the background" not in caplog.text:  # noqa: ASYNC110  nothing else tells of it
                    await anyio.sleep(0.01)
        assert "'breaks' of InferenceFailed failed with KeyError" in caplog.text
        assert "inferring details of saved notes; the notes are kept without them" in caplog.text
    assert "plum" not in caplog.text


async def test_what_is_asked_is_told_when_inference_fails():
    """A call that only asks the model raises what the handler raised."""
    notes = Notes(MemoryStore(), model=ScriptedModel(["none", "none"])).on(InferenceFailed, breaks)
    with pytest.raises(HandlerError):
        await notes.extract_memories("Pears are ripe. Plums are not.")


@pytest.mark.parametrize("kind", [MemorySaveStarted, MemorySaveCompleted])
@pytest.mark.parametrize("named", ["", "another"])
async def test_no_error_path_of_a_run_takes_it(kind, named):
    """A run ends with what a handler of its notes raised, whatever run was named as the one that keeps."""

    @node
    async def keep(ctx: Context, task: str) -> str:
        await ctx.feature(NoteMemory).remember(task, run_id=named)
        return task

    @node
    async def rescue(ctx: Context, error: Exception) -> str:
        return "rescued"

    agent = Agent(Strategy("keeps", START >> keep >> END, keep.on_error(Exception) >> rescue >> END))
    agent.install(NoteMemory, notes=Notes(MemoryStore()).on(kind, breaks), learn=False, recall=False)
    with pytest.raises(RunError) as caught:
        await agent.run("pear")
    error = caught.value.__cause__ if isinstance(caught.value, NodeFailedError) else caught.value
    assert isinstance(error, HandlerError)
    assert isinstance(error.__cause__, KeyError)


@pytest.mark.parametrize("operation", ["remember", "recall", "extract_memories"])
async def test_nor_what_was_raised_where_a_model_failed(operation):
    """Also where the model of the notes was asked, which knows of no run."""
    given = {"remember": {"infer": "now"}, "recall": {"depth": "deep"}, "extract_memories": {}}[operation]

    @node
    async def ask(ctx: Context, task: str) -> str:
        await getattr(ctx.feature(NoteMemory), operation)(task, **given)
        return task

    @node
    async def rescue(ctx: Context, error: Exception) -> str:
        return "rescued"

    notes = Notes(MemoryStore(), model=ScriptedModel(["none"] * 4)).on(InferenceFailed, breaks)
    await notes.remember("A pear.", infer="never")
    agent = Agent(Strategy("asks", START >> ask >> END, ask.on_error(Exception) >> rescue >> END))
    agent.install(NoteMemory, notes=notes, learn=False, recall=False)
    with pytest.raises(RunError) as caught:
        await agent.run("pear " * 50)
    error = caught.value.__cause__ if isinstance(caught.value, NodeFailedError) else caught.value
    assert isinstance(error, HandlerError)
