"""The bridge for scripts and notebooks: async methods called where nothing is async."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time

import anyio
import pytest
from anyio.lowlevel import checkpoint

from graphagent import END, START, Agent, Context, Strategy, blocking, node, tool
from graphagent.errors import AnswerError, NodeFailedError
from graphagent.events import RunFinished
from graphagent.llm import ToolCall, ToolCalls
from graphagent.memory import EVERYTHING, Concept, Notes, Scope, SingleFact, StoreMemoryProvider
from graphagent.nodes import ask_human, execute_tools, llm_request
from graphagent.store import MemoryStore
from graphagent.testing import ScriptedModel


@node
async def upper(ctx: Context, said: str) -> str:
    await checkpoint()
    return said.upper()


@node
async def broken(ctx: Context, said: str) -> str:
    raise ValueError(said)


loud = Strategy("loud", START >> upper >> END)


@pytest.fixture
def notes(tmp_path):
    return blocking(Notes(tmp_path / "notes.db"))


def test_async_methods_give_what_they_give(notes):
    """Notes are kept and recalled without a single `await`, and plain attributes are as they are."""
    kept = notes.remember("The cat sleeps on the piano.", scope="/home")
    [match] = notes.recall("Where does the cat sleep?", limit=1)
    assert match.record.id == kept.id
    assert notes.scopes == ("/",)
    assert notes.get("nothing") is None


def test_what_methods_give_is_blocking_too(notes):
    """A view of blocking notes is blocking, and so is a view of that."""
    notes.scope("/home").subscope("cats").remember("Tom is a cat.")
    assert [record.scope for record in notes.list_records()] == ["/home/cats"]


def test_async_iterators_become_iterators(notes):
    """What `async for` would give comes from `for`, also where it is left early."""
    notes.remember_many([f"Note number {number}." for number in range(5)])
    assert [data["content"] for data in notes.export()] == [f"Note number {number}." for number in range(5)]
    for data in notes.export():
        assert data["content"] == "Note number 0."
        break


def test_what_one_gives_item_by_item_can_be_given_to_another(notes):
    """An export of one store is the import of another."""
    notes.remember_many([f"Note number {number}." for number in range(5)])
    other = blocking(Notes(MemoryStore()))
    assert other.import_(notes.export()) == 5
    assert len(other.list_records()) == 5


def test_async_context_managers_become_context_managers(tmp_path):
    """`with` opens and closes, and gives the blocking object."""
    with blocking(Notes(tmp_path / "notes.db")) as notes:
        notes.remember("Kept.")
    with blocking(Notes(tmp_path / "notes.db")) as again:
        assert [record.content for record in again.list_records()] == ["Kept."]


def test_what_is_no_context_manager_says_so():
    """`with` on an object that has none is a TypeError that names it."""
    with pytest.raises(TypeError, match="RunResult is not a context manager"), blocking(Agent(loud).run_sync("x")):
        pass


def test_an_agent_and_its_runs():
    """An agent runs, a run is stepped through, and the events of a stream are read."""
    agent = blocking(Agent(loud))
    assert agent.run("hi").output == "HI"
    run = agent.start("ho")
    while run.step() is not None:
        pass
    assert run.output == "HO"
    with agent.stream("hey") as events:
        assert [event.output for event in events if isinstance(event, RunFinished)] == ["HEY"]


def test_a_stored_run_goes_on_with_its_events():
    """The answer is given, and the events are read, without a loop of one's own."""
    agent = blocking(Agent(Strategy("s", START >> ask_human("Well?", str) >> loud >> END), store=MemoryStore()))
    agent.run("x", run_id="r")
    assert [event.output for event in agent.resume_stream("r", answer="yes") if isinstance(event, RunFinished)] == [
        "YES"
    ]
    with pytest.raises(AnswerError), agent.resume_stream("r", answer="again"):
        pass


def test_a_stream_that_is_left_early_is_cancelled():
    """Leaving the block before the run has ended cancels the run and nothing hangs."""

    @node
    async def slow(ctx: Context, said: str) -> str:
        await anyio.sleep(60)
        return said

    with blocking(Agent(Strategy("slow", START >> slow >> END))).stream("x") as events:
        next(iter(events))
    assert events.run.status == "cancelled"


def test_errors_are_raised_as_they_are():
    """What an async method raises arrives as itself, with its cause."""
    with pytest.raises(NodeFailedError) as caught:
        blocking(Agent(Strategy("broken", START >> broken >> END))).run("x")
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_provider_and_a_function():
    """Fact providers work like notes, and an async function becomes a plain one."""
    provider = blocking(StoreMemoryProvider(MemoryStore()))
    city = Concept("city", "where the user lives")
    provider.save(SingleFact(city, "Oslo"), EVERYTHING, Scope.agent("a"))
    assert [fact.value for fact in provider.load(city, EVERYTHING, Scope.agent("a"))] == ["Oslo"]

    async def double(number: int) -> int:
        """Twice as much."""
        await checkpoint()
        return number * 2

    assert blocking(double)(4) == 8
    assert blocking(double).__doc__ == "Twice as much."


def test_blocking_objects_are_taken_as_arguments():
    """A blocking object that is handed to a method arrives as the object itself."""

    class Taker:
        async def take(self, given):
            return given

    notes = Notes(MemoryStore())
    assert blocking(Taker()).take(blocking(notes)) is not None
    assert blocking(Taker()).take(given=blocking(notes))._target is notes


async def test_it_works_where_an_event_loop_is_running(notes):
    """In a notebook, whose loop is running, it blocks and gives the result all the same."""
    notes.remember("The cat sleeps on the piano.")
    assert len(notes.recall("cat")) == 1


def test_threads_share_it(notes):
    """Many threads call at once, and nothing is lost."""
    threads = [threading.Thread(target=notes.remember, args=(f"Fact {number}.",)) for number in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(notes.list_records()) == 8


def test_within_its_own_loop_it_refuses_to_wait_for_itself():
    """A tool that blocks on the loop that it runs in would wait for ever; the model is told, and nothing hangs."""
    notes = blocking(Notes(MemoryStore()))

    @tool
    def look() -> str:
        """Look."""
        return str(notes.list_records())

    ask, act = llm_request(), execute_tools()
    react = Strategy("react", START >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(str) >> END)

    @tool
    async def wait() -> str:
        """Look, async."""
        return str(notes.list_records())

    model = ScriptedModel([ToolCalls([ToolCall("wait", {})]), "done"])
    result = blocking(Agent(react, model=model, tools=[wait, look])).run("x")
    assert "await the async method instead" in result.memory.steps[1].observations


def test_an_interrupt_cancels_what_is_waited_for():
    """Ctrl-C while something is waited for cancels that, and is raised."""
    began, cancelled = threading.Event(), threading.Event()

    async def sleep() -> None:
        try:
            began.set()
            await anyio.sleep(60)
        except anyio.get_cancelled_exc_class():
            cancelled.set()
            raise

    def interrupt() -> None:
        began.wait(600)
        time.sleep(0.2)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        blocking(sleep)()
    assert cancelled.wait(600)


def test_a_script_that_ends_waits_for_nothing(tmp_path):
    """The process ends at once and without a word, and what was remembered is there."""
    code = "import sys; from graphagent import blocking; from graphagent.memory import Notes; blocking(Notes(sys.argv[1])).remember('x')"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "n.db")], capture_output=True, text=True, timeout=600, check=True
    )
    assert done.stderr == ""
    assert len(blocking(Notes(tmp_path / "n.db")).list_records()) == 1


def test_it_shows_what_it_wraps():
    """Its repr names the object, and `dir` gives its names."""
    agent = blocking(Agent(loud))
    assert repr(agent) == f"<blocking {Agent(loud)!r}>"
    assert "resume" in dir(agent)
