"""The log of runs, the text by which a model is told of an exception of a tool, and the place where it was raised."""

from __future__ import annotations

import logging

import pytest

from graphagent import END, START, Agent, Context, Strategy, node, tool
from graphagent._tracebacks import traceback_text, without_credentials
from graphagent.errors import NodeFailedError, ToolError
from graphagent.events import ToolFailed, ToolReturned
from graphagent.llm import ToolCall, ToolResult
from graphagent.memory import ActionStep
from graphagent.nodes import ask_human, llm_request
from graphagent.run import Logging
from graphagent.store import MemoryStore, SqliteStore
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run

SECRET = "postgres://ada:SWORDFISH@db/x?password=SWORDFISH"


def connect(dsn):
    raise ConnectionError(f"cannot reach {dsn}")


@tool
def book(place: str) -> str:
    """Book a place."""
    try:
        connect(SECRET)
    except ConnectionError as error:
        raise LookupError(f"no place at {SECRET}") from error
    return place


def agent(*tools, **options):
    model = ScriptedModel([*(ToolCall(each.name, {"place": "Rome"}, f"c{n}") for n, each in enumerate(tools)), "sorry"])
    return Agent(single_run(), model=model, tools=tools, **options)


def told(agent):
    """Return what the model was told of its calls."""
    parts = [part for message in agent.model.requests[-1].messages for part in message.parts]
    return [part.content for part in parts if isinstance(part, ToolResult)]


@pytest.mark.parametrize("content", [False, True])
async def test_an_exception_of_a_tool_is_logged_with_its_type_and_frames_and_is_an_event(caplog, content):
    """Its message and its traceback only with content; a ToolError is an answer, and is not logged."""

    @tool
    async def refuse(place: str) -> str:
        """Refuse."""
        raise ToolError("SWORDFISH")

    made, events = agent(book, refuse), []
    if content:
        made.install(Logging, content=True)
        caplog.set_level(logging.WARNING, "graphagent")
    made.on(ToolFailed, events.append)
    made.on(ToolReturned, events.append)
    await made.run("go", run_id="r")
    [record] = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert (record.name, record.levelname, record.run_id, record.node) == (
        "graphagent.run",
        "WARNING",
        "r",
        "execute_tools",
    )
    assert (record.tool, record.call_id, record.error_type) == ("book", "c0", "LookupError")
    [frame] = record.frames
    assert frame.startswith(__file__)
    assert frame.endswith("in book")
    assert record.getMessage() == f"tool 'book' raised LookupError at {frame}"
    text = logging.Formatter().format(record)
    assert ("SWORDFISH" in text, "Traceback" in text) == (content, content)
    assert [type(each).__name__ for each in events] == ["ToolFailed", "ToolReturned"] * 2
    assert isinstance(events[0].error, LookupError)
    assert "SWORDFISH" not in repr(events[0])


async def test_where_a_tool_raised_is_kept_in_the_run_without_messages(tmp_path):
    """Its frames and those of its causes, in the file of the run as well; the model is told the type and a message without passwords."""
    made = agent(book, store=SqliteStore(tmp_path / "runs.db"))
    await made.run("go", run_id="r")
    [step, *_] = [step for step in (await made.read("r")).memory.steps if isinstance(step, ActionStep)]
    lines = step.results[0].traceback.splitlines()
    assert [line.rpartition(" in ")[2] for line in lines] == [
        "LookupError", "book", "from ConnectionError", "book", "connect",
    ]  # fmt: skip
    assert told(made) == ["Error: LookupError: no place at postgres://ada:…@db/x?password=…"]
    assert b"SWORDFISH" not in b"".join(path.read_bytes() for path in tmp_path.iterdir())


@pytest.mark.parametrize(
    ("of_agent", "of_tool", "expected"),
    [
        ("message", None, "LookupError: no place at postgres://ada:…@db/x?password=…"),
        ("type", None, "LookupError"),
        ("type", lambda error: f"try later ({type(error).__name__})", "try later (LookupError)"),
        (lambda error: "never", "type", "LookupError"),
    ],
    ids=["message", "type", "function", "tool"],
)
async def test_what_the_model_is_told_of_an_exception_is_an_option_of_the_agent_and_of_a_tool(
    of_agent, of_tool, expected
):
    """The tool's own option wins."""
    own = tool(errors=of_tool)(book.function)
    made = agent(own, errors=of_agent)
    await made.run("go")
    assert told(made) == [f"Error: {expected}"]


async def test_options_for_errors_that_do_not_fit_are_refused():
    """A word that does not exist, an object that cannot be called, and a function that returns no text."""
    for make in (lambda errors: tool(errors=errors)(book.function), lambda errors: agent(errors=errors)):
        with pytest.raises(
            ValueError, match=r"errors=? is 'message', 'type' or a function of the exception, not 'all'"
        ):
            make("all")
        with pytest.raises(TypeError, match="not an int"):
            make(3)
    with pytest.raises(TypeError, match="content"):
        Logging(content="yes")
    with pytest.raises(NodeFailedError) as failed:
        await agent(book, errors=lambda _: 3).run("go")
    assert isinstance(failed.value.__cause__, TypeError)
    assert "errors= returned an int" in str(failed.value.__cause__)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("postgresql+psycopg://ada:p@ss/w:rd@db:5432/x", "postgresql+psycopg://ada:…@db:5432/x"),
        ("redis://:hunter2@cache:6379", "redis://:…@cache:6379"),
        ("https://ghp_0123456789abcdefghij@github.com/a", "https://…@github.com/a"),
        ("Server=db;User Id=sa;Password=a b;Pooling=true", "Server=db;User Id=sa;Password=… b;Pooling=true"),
        ("host=db password='a \\' b' user=ada", "host=db password=… user=ada"),
        ("AccountKey=abc+/==;x", "AccountKey=…;x"),
        ("https://h/p?api_key=abc&x=1", "https://h/p?api_key=…&x=1"),
        ("{'user': 'ada', 'password': 'it\\'s', \"token\": \"t\"}", "{'user': 'ada', 'password': '…', \"token\": \"…\"}"),
        ("Authorization: Bearer abcdefghijkl.mno", "Authorization: Bearer …"),
        ("max_tokens=100, https://host:8080/a, ada@host, see http://a/b", "max_tokens=100, https://host:8080/a, ada@host, see http://a/b"),
    ],
    ids=[
        "URL", "no user", "key as user", "ADO", "libpq", "Azure", "query", "mapping", "header", "nothing",
    ],
)  # fmt: skip
def test_a_text_is_told_without_its_credentials(text, expected):
    """Those of URLs, connection strings, queries, mappings and headers; other texts stay as they are."""
    assert without_credentials(text) == expected


def test_a_traceback_ends_although_an_exception_is_its_own_cause():
    """As libraries make them by raising one exception again and again; and recursion is cut to its last frames."""

    def deep(left):
        if left:
            deep(left - 1)
        raise KeyError

    try:
        deep(100)
    except KeyError as error:
        error.__cause__ = other = ValueError()
        other.__cause__ = error
        lines = traceback_text(error).splitlines()
    assert lines[0] == "KeyError"
    assert lines[-1] == "from ValueError"
    assert len(lines) == 32


async def test_the_course_of_runs_is_logged_by_room_with_values_as_attributes(caplog):
    """Nothing that was said is in a record, unless content is asked for."""
    caplog.set_level(logging.DEBUG, "graphagent")

    @node
    async def broken(ctx: Context, text: str) -> str:
        raise ZeroDivisionError("SWORDFISH")

    async def run(**options):
        caplog.clear()
        model = ScriptedModel(["SWORDFISH"])
        made = Agent(
            Strategy("s", START >> llm_request() >> ask_human("SWORDFISH?", str) >> broken >> END), model=model,
            store=MemoryStore(),
        )  # fmt: skip
        made.install(Logging, **options)
        await made.run("SWORDFISH", run_id="r")
        with pytest.raises(NodeFailedError):
            await made.resume("r", answer="SWORDFISH")
        return [(record.name, record.levelname, record.getMessage().partition(" at ")[0]) for record in caplog.records]

    assert await run() == [
        ("graphagent.run", "INFO", "run 'r' of strategy 's' began"),
        ("graphagent.llm", "DEBUG", "model 'scripted' answered: 2 tokens, stop"),
        ("graphagent.run", "INFO", "run 'r' stopped: waiting"),
        ("graphagent.run", "INFO", "run 'r' of strategy 's' continues"),
        ("graphagent.run", "INFO", "node 'broken' failed with ZeroDivisionError"),
        ("graphagent.run", "ERROR", "run 'r' failed with ZeroDivisionError"),
    ]
    assert {record.run_id for record in caplog.records} == {"r"}
    assert "SWORDFISH" not in caplog.text
    await run(content=True)
    assert "model 'scripted' answered: 2 tokens, stop: SWORDFISH" in caplog.text
    assert "ZeroDivisionError: SWORDFISH" in caplog.text
