"""Values and errors of a run, as people read them, without the program that made them."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import anyio
import pytest

from graphagent import END, START, Agent, Context, Strategy, node, tool
from graphagent.errors import NodeFailedError
from graphagent.llm import ToolCall
from graphagent.nodes import ask_human
from graphagent.store import SqliteStore
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run
from tests.cli.shapes import Draft, Reply, draft_of

STORE = ("--store", "runs.db")


class PostError(ValueError):
    pass


@node
async def draft(ctx: Context, number: int) -> Draft:
    return draft_of(number)


@node
async def send(ctx: Context, text: Draft) -> Draft:
    secret = "of a variable"
    raise PostError("the postman is ill") if secret else None


@node
async def redraft(ctx: Context, reply: Reply) -> Draft:
    return draft_of(2)


@node
async def instead(ctx: Context, error: PostError) -> Draft:
    return draft_of(3)


ASKS = Strategy("asks", START >> draft >> ask_human("Good?", Reply) >> redraft >> END)
FAILS = Strategy("fails", START >> draft >> send >> END)
RECOVERS = Strategy("recovers", START >> draft >> send >> END, send.on_error(PostError) >> instead >> END)


def kept(strategy, **answered):
    """Keep a run `r` of a strategy in the file that the commands read."""

    async def main():
        async with SqliteStore("runs.db") as store:
            agent = Agent(strategy, store=store)
            await agent.run(1, run_id="r")
            if answered:
                await agent.resume("r", **answered)

    anyio.run(main)


@pytest.mark.parametrize("words", [(), ("--entries",), ("--json",)])
def test_values_are_shown_without_the_marks_of_the_store(run, words):
    """Dataclasses, enums, dates, tuples and sets, in the journal, in the answers and in the transcript."""
    kept(ASKS, answer=Reply(good=True, note="fine"))
    shown = run("runs", "show", "r", *words, *STORE)
    assert shown.code == 0
    assert '"$"' not in shown.out
    assert "Main Street" in shown.out
    if not words:
        assert 'answer:ask:1 {"good": true, "note": "fine"}\teffect\task_human' in shown.out
        assert '"colour": "RED"' in shown.out
        assert '"$"' not in run("runs", "replay", "r", *STORE).out


def test_a_run_that_took_an_error_path_is_shown(run):
    """With the error, in its line of the journal."""
    kept(RECOVERS)
    shown = run("runs", "show", "r", *STORE)
    assert (shown.code, shown.err) == (0, "")
    assert "PostError: the postman is ill\tfinished\tsend" in shown.out


def test_a_run_that_failed_is_shown_with_what_was_raised(run):
    """Its type and its message; the traceback where it is asked for, with lines of code and no value of a variable."""
    with pytest.raises(NodeFailedError):
        kept(FAILS)
    shown = run("runs", "show", "r", *STORE)
    assert "  error     PostError: the postman is ill\n" in shown.out
    assert "Traceback" not in shown.out
    whole = run("runs", "show", "r", "--traceback", *STORE)
    assert 'raise PostError("the postman is ill") if secret' in whole.out
    assert "of a variable" not in whole.out
    assert '"message": "the postman is ill"' in run("runs", "show", "r", "--json", *STORE).out


def test_where_a_tool_raised_is_shown_with_the_traceback(run):
    """The frames, also of a call in a sub-agent; no message and no line of code, for those are not kept."""

    @tool
    def post(to: str) -> str:
        """Post it."""
        raise PostError("the postman is ill")

    calls = [ToolCall("post", {"to": "Ada"}, "c1"), "sorry"]
    inner = Agent(single_run(), model=ScriptedModel(calls), tools=[post], name="inner")

    async def main():
        async with SqliteStore("runs.db") as store:
            await Agent(Strategy("outer", START >> inner.as_node() >> END), store=store).run("go", run_id="r")

    anyio.run(main)
    assert "traceback" not in run("runs", "show", "r", *STORE).out
    shown = run("runs", "show", "r", "--traceback", *STORE).out
    title, error, frame = shown[shown.index("traceback of") :].splitlines()[:3]
    assert (title, error) == ("traceback of post (c1)", "PostError")
    assert f"{__file__}:" in frame
    assert frame.endswith(".post")
    assert "raise PostError" not in shown


def test_a_plain_export_has_values_as_people_write_them(run, home):
    """A line for each run, with its steps and entries; it is not taken for one that can be imported."""
    kept(ASKS, answer=Reply(good=True, note="fine"))
    exported = run("runs", "export", "--plain", *STORE)
    assert (exported.code, '"$"' in exported.out) == (0, False)
    (record,) = map(json.loads, exported.out.splitlines())
    values = {(each["kind"], each["node"]): each for each in record["entries"]}
    assert values["finished", "draft"]["value"]["colour"] == "RED"
    assert values["effect", "ask_human"]["value"] == {"good": True, "note": "fine"}
    assert (record["run_id"], record["status"], record["failure"]) == ("r", "done", None)
    assert record["steps"][-1]["output"]["to"] == [{"street": "Main Street", "number": 2}]
    (home / "plain.jsonl").write_text(exported.out)
    refused = run("runs", "import", "plain.jsonl", "--store", "other.db")
    assert refused.code == 1
    assert refused.said.startswith("error: ")


@node
async def nap(ctx: Context, number: int) -> str:
    await ctx.sleep_until(datetime(2025, 1, 1, 8, tzinfo=UTC))
    return "rested"


def test_the_time_until_which_a_node_sleeps_is_shown(run):
    """The journal tells it without the program."""
    kept(Strategy("naps", START >> nap >> END))
    shown = run("runs", "show", "r", *STORE).out
    assert 'sleep:1 "2025-01-01T08:00:00Z"' in shown
