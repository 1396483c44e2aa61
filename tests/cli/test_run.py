"""`graphagent run`: ready-made strategies from the command line, against a real server, in pipes and at a terminal."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import threading
from pathlib import Path

import pexpect
import pytest

from graphagent.llm import ToolCall
from graphagent.testing import openai_server
from tests import forkserver
from tests.cli.terminals import interrupt, leave
from tests.mcp.test_http import serving

TOOLS = '''
from graphagent import END, START, Agent, Context, Strategy, node, tool
from graphagent.nodes import ask_human


def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


@tool(approve=True)
def pay(euros: int) -> str:
    """Pay."""
    return f"{euros} euros paid"


@node
async def shout(ctx: Context, text: str) -> str:
    return text.upper()


@node
async def double(ctx: Context, number: int) -> int:
    return 2 * number


text = Strategy("text", START >> shout >> ask_human("To whom?", str) >> END)
choice = Strategy("choice", START >> shout >> ask_human("Send it?", bool) >> END)
loud = Strategy("loud", START >> shout >> END)
doubled = Strategy("doubled", START >> double >> END)
agent = Agent(loud)
number = 3
'''
SLOW = """
from pathlib import Path

import anyio

from graphagent import END, START, Context, Strategy, node


@node
async def wait(ctx: Context, text: str) -> str:
    while not Path("go").exists():
        await anyio.sleep(0.02)
    print("printed")
    return text.upper()


waits = Strategy("waits", START >> wait >> END)
"""
PARTS = {
    "steps": lambda asked: {"steps": ["Multiply."]} if asked.startswith("First make") else {"steps": []},
    "improvements": lambda asked: {"improvements": []},
    "questions": lambda asked: {"questions": ["What is 6 times 7?"]},
    "passed": lambda asked: {"feedback": "", "passed": True},
    "value": lambda asked: {"value": "maths"},
    "facts": lambda asked: {"facts": []},
}


def reply(request):
    """Do what each strategy needs: multiply once where tools are offered, and answer."""
    last = request.messages[-1]
    if request.output is not None:
        kind = next(name for name in PARTS if name in request.output.schema["properties"])
        return PARTS[kind](last.text)
    called = any(message.role == "tool" for message in request.messages)
    return ToolCall("multiply", {"a": 6, "b": 7}) if request.tools and not called else "It is 42."


@pytest.fixture
def ask(run, home):
    """Run a strategy against a server that answers with `replies`: `ask("react", "Hello")`."""
    (home / "tools.py").write_text(TOOLS)

    def ask(*words, replies=reply, stdin=""):
        with openai_server(replies, model="local") as server:
            ended = run("run", *words, "--model", "local", "--base-url", server.base_url, stdin=stdin)
            ended.requests = server.requests
        return ended

    return ask


MORE = {
    "chat": [],
    "route": ["--expert", "maths=numbers", "--expert", "arts=pictures"],
    "reflect": ["--criteria", "short"],
    "verify_with_retry": ["--criteria", "It is a number."],
}
NAMES = [
    "chat",
    "personal",
    "plan_and_execute",
    "react",
    "reflect",
    "research",
    "route",
    "single_run",
    "verify_with_retry",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_ready_made_strategy_answers_with_tools(ask, name):
    """Standard output has the answer alone, and standard error what it took."""
    ended = ask(name, "What is 6 times 7?", "--tool", "tools.py:multiply", *MORE.get(name, []))
    assert ended.code == 0, ended.err
    assert ended.out == "It is 42.\n"
    assert ": done, " in ended.err
    assert any("tools" in request for request in ended.requests)


def test_the_strategies_are_listed(run):
    """Each with what it does, in one line; no model is needed."""
    ended = run("run", "--list")
    assert ended.code == 0
    assert [line.partition("\t")[0] for line in ended.out.splitlines()] == ["strategy", *NAMES]
    assert "route\tchooses one of several experts" in ended.out
    assert all(len(line.split("\t")) == 2 and len(line) < 120 for line in ended.out.splitlines())


def test_text_is_streamed_with_the_calls_and_decisions(ask):
    """The answer goes to standard output as it is written, once; the rest, results of steps too, to standard error."""
    ended = ask("plan_and_execute", "What is 6 times 7?", "--tool", "tools.py:multiply", "--stream")
    assert ended.out == "It is 42.\n"
    lines = ended.err.splitlines()
    assert lines[:5] == [
        '  plan: {"steps": ["Multiply."]}',
        '  multiply({"a": 6, "b": 7})',
        "  multiply returned 42",
        "  carry_out: It is 42.",
        '  review: {"steps": []}',
    ]
    assert [bool(request.get("stream")) for request in ended.requests] == [False] * 4 + [True]


def test_what_branches_say_is_shown_when_it_is_whole(ask):
    """They write at the same time, so their text would be mixed."""
    ended = ask("research", "Tell me.", "--stream")
    assert ended.out == "It is 42.\n"
    assert "  work/0/part/find/llm_request: It is 42." in ended.err.splitlines()
    ended = ask("route", "How?", "--stream", *MORE["route"])
    assert "  maths" in ended.err.splitlines()


def test_programs_get_json(ask):
    """With the output, the state and what was spent."""
    told = json.loads(ask("single_run", "Hello", "--json", "--stream").out)
    assert (told["status"], told["output"], told["turns"]) == ("done", "It is 42.", 1)


def test_an_answer_that_passed_no_check_is_a_failure(ask):
    """It is printed all the same; the criteria were sent to the model."""
    wrong = {"feedback": "no year", "passed": False}
    ended = ask("verify_with_retry", "When?", "--criteria", "It names a year.", replies=["a", wrong] * 3)
    assert (ended.code, ended.out) == (1, "a\n")
    assert "no answer passed the check: no year" in ended.err
    assert "It names a year." in ended.requests[0]["messages"][1]["content"]


def test_a_conversation_is_read_from_standard_input(ask):
    """Each line answers what was said; the task may be the first of them, by `TASK`."""
    ended = ask("chat", "Hi", replies=["Hello.", "Fine."], stdin="How are you?\n\nbye\n")
    assert (ended.code, ended.out) == (0, "Fine.\n")
    assert [message["content"] for message in ended.requests[1]["messages"]] == ["Hi", "Hello.", "How are you?"]
    assert ended.err.splitlines().count("Hello.") == 1
    ended = ask("chat", "Hi", replies=["Hello."])  # at the end of the input the person has left
    assert (ended.code, ended.out) == (0, "Hello.\n")


def test_the_task_may_come_through_a_pipe(ask):
    """All of standard input, and not nothing."""
    ended = ask("single_run", stdin="Line 1\nLine 2\n")
    assert ended.requests[0]["messages"][0]["content"] == "Line 1\nLine 2"
    ended = ask("single_run")
    assert (ended.code, "the task is empty" in ended.said) == (2, True)


def test_a_call_is_approved_by_the_next_line(ask):
    """Without one, it is shown once: a run that is kept waits, and says how it is resumed; one that is not ends as a failure."""
    calls = [ToolCall("pay", {"euros": 5}), "Paid."]
    options = ["Pay.", "--tool", "tools.py:pay"]
    assert ask("single_run", *options, replies=calls, stdin="yes\n").out == "Paid.\n"
    ended = ask("single_run", *options, replies=calls)
    assert (ended.code, ended.out, ended.err.count("about: pay")) == (1, "", 1)
    assert "pass --store PATH" in ended.err
    ended = ask("single_run", *options, "--store", "runs.db", "--run-id", "bill", replies=calls)
    assert (ended.code, ended.err.count("about: pay")) == (0, 1)
    assert "graphagent run single_run --resume bill --store runs.db --model local" in ended.err
    resumed = ["--resume", "bill", "--store", "runs.db", "--tool", "tools.py:pay"]
    ended = ask("single_run", *resumed, replies=["Not paid."], stdin="no too much\n")
    assert ended.out == "Not paid.\n"
    assert "too much" in str(ended.requests[0]["messages"])


def test_the_id_of_another_run_is_refused_and_that_run_described(ask, run):
    """With its task, its state and its strategy, and the command that is of use for it; also where it is forked or rerun."""
    kept = ["--store", "runs.db", "--owner", "ada", "--run-id"]
    ask("tools.py:loud", "the first", *kept, "done")
    ask("tools.py:choice", "the second", *kept, "waits")
    again = ask("tools.py:loud", "x", *kept, "done")
    assert (again.code, again.out) == (1, "")
    assert "there is a run 'done' already: 'the first', done, of the strategy 'loud', begun " in again.err
    assert again.err.endswith("Read it with: graphagent runs show done --store runs.db --owner ada\n")
    assert "agent.resume" not in again.err
    waits = ask("tools.py:choice", "x", *kept, "waits").err
    assert "'the second', waiting, of the strategy 'choice'" in waits
    assert (
        "Answer with: graphagent run tools.py:choice --resume waits --store runs.db --owner ada --model local" in waits
    )
    assert "Read it with: graphagent runs show waits" in ask("tools.py:loud", "x", *kept, "waits").err
    agent = ["--agent", "tools.py:agent", "--store", "runs.db", "--owner", "ada"]
    for words in (("fork", "done", "--after", "shout"), ("rerun", "done")):
        ended = run("runs", *words, "--run-id", "waits", *agent)
        assert (ended.code, "there is a run 'waits' already: 'the second', waiting" in ended.err) == (1, True)


def test_a_run_that_failed_is_resumed(ask, run):
    """The error names the command; what was done is not done again. The store may be encrypted."""
    options = ["--tool", "tools.py:multiply", "--store", "runs.db"]
    ended = ask("single_run", "What?", *options, "--run-id", "r", replies=[ToolCall("multiply", {"a": 6, "b": 7})])
    assert ended.code == 1
    assert "Resume it with: graphagent run single_run --resume r --store runs.db" in ended.err
    assert "--tool tools.py:multiply" in ended.err
    ended = ask("single_run", "--resume", "r", *options, replies=["It is 42."])
    assert ended.out == "It is 42.\n"
    assert len(ended.requests) == 1
    assert "done" in run("runs", "show", "r", "--store", "runs.db").out


def test_a_sealed_store_has_no_plain_text(ask, home, monkeypatch):
    """The command that resumes it says where the key is, and not what it is."""
    from graphagent.store import new_key

    monkeypatch.setenv("TEST_KEY", new_key())
    options = ["--store", "runs.db", "--key", "env:TEST_KEY"]
    ended = ask("single_run", "A secret-1187", *options, replies=[])
    assert ended.code == 1
    assert "--key env:TEST_KEY" in ended.err
    assert not [path for path in home.glob("runs.db*") if b"secret-1187" in path.read_bytes()]


def test_tools_of_mcp_servers_are_called(ask):
    """Each server is a process of its own, which ends with the command."""
    server = shlex.join(forkserver.words(Path(__file__).parents[1] / "mcp" / "server.py", "stdio"))
    path = shlex.quote(f"PYTHONPATH={os.environ['PYTHONPATH']}")
    calls = [ToolCall("add", {"a": 40, "b": 2}), "It is 42."]
    ended = ask("single_run", "What?", "--mcp", f"env {path} {server}", "--stream", replies=calls)
    assert (ended.code, ended.out) == (0, "It is 42.\n"), ended.err
    assert "  add returned 42" in ended.err.splitlines()
    with serving() as url:
        ended = ask("single_run", "What?", "--mcp", f"env {path} {server}", "--mcp", url, replies=calls)
    assert ended.code == 1  # both have the same tools
    assert "add" in ended.err
    with serving() as url:
        assert ask("single_run", "What?", "--mcp", url, replies=calls).out == "It is 42.\n"
    ended = ask("single_run", "What?", "--mcp", "no-such-program-1187")
    assert ended.code == 1
    assert "no-such-program-1187" in ended.err


def test_facts_are_kept_by_personal(ask, run):
    """In the memory that is named, which `graphagent facts` shows."""
    found = {"facts": [{"subject": "user", "keyword": "city", "description": "home", "value": "Oslo"}]}
    options = ["--store", "facts", "--owner", "ada"]
    ask("personal", "I live in Oslo.", *options, replies=["Noted.", found])
    assert "city\tOslo" in run("facts", "list", *options).out
    ended = ask("personal", "Where do I live?", *options, replies=["In Oslo.", {"facts": []}])
    assert "Oslo" in ended.requests[0]["messages"][0]["content"]


def test_a_strategy_of_ones_own_runs(ask):
    """By module or file; it must take text."""
    assert ask("tools.py:loud", "hello").out == "HELLO\n"
    ended = ask("tools.py:doubled", "hello")
    assert (ended.code, "takes int, and a task is text" in ended.said) == (2, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["sing", "Hi"], "no ready-made strategy 'sing'; there are chat, personal, plan_and_execute,"),
        (["route", "Hi"], "route needs experts"),
        (["route", "Hi", "--expert", "maths"], "'maths' is not an expert; write NAME=DESCRIPTION"),
        (["react", "Hi", "--expert", "a=b"], "--expert is for route, not for react"),
        (["react", "Hi", "--criteria", "a"], "--criteria is for reflect and verify_with_retry, not for react"),
        (["react", "Hi", "--tool", "multiply"], "'multiply' is not a function; write MODULE:NAME or FILE.py:NAME"),
        (["react", "Hi", "--tool", "tools.py:number"], "'tools.py:number' is not a function"),
        (["react", "Hi", "--tool", "nope.py:a"], "no Python file 'nope.py'"),
        (["react", "Hi", "--mcp", ""], "the command of the server is empty"),
        (["react", "Hi", "--mcp", "a 'b"], "neither a command nor an address: No closing quotation"),
        (["react", "Hi", "--mcp", "http://["], "neither a command nor an address"),
        (["react", "Hi", "--resume", "r"], "name its store, and no task"),
        (["react", "--resume", "r"], "name its store, and no task"),
        (["react", ""], "the task is empty"),
        (["react", "Hi", "--max-turns", "0"], "greater than or equal to 1"),
    ],
)
def test_a_wrong_call_is_explained(ask, words, said):
    """It ends with 2 before a model is asked."""
    ended = ask(*words)
    assert (ended.code, ended.out, ended.requests) == (2, "", [])
    assert said in ended.said.replace("\n", " ")


def test_a_model_is_needed(run):
    """Either of OpenAI, with a key, or of a server."""
    assert "Missing option '--model'" in run("run", "react", "Hi").said
    assert "needs OPENAI_API_KEY" in run("run", "react", "Hi", "--model", "gpt-5-mini").said


def test_the_turns_are_limited(ask):
    """The error says how many were allowed, and with a store the command that goes on with more."""
    ended = ask("react", "Hi", "--max-turns", "1", "--store", "runs.db")
    assert ended.code == 1
    assert "the budget of 1 turn is used up" in ended.err
    assert ended.said.endswith("--max-turns 2")


def test_a_ready_made_strategy_is_drawn_by_its_name(run):
    """One that needs experts is drawn with examples, or with those that are named."""
    assert run("draw", "react").out == run("draw", "graphagent_strategies:react").out
    assert [name for name in NAMES if not run("draw", name).out.startswith("flowchart")] == []
    assert "billing" in run("draw", "route").out
    named = run("draw", "route", "--expert", "maths=numbers").out
    assert ("maths" in named, "billing" in named) == (True, False)
    assert "--expert is for route, not for react" in run("draw", "react", "--expert", "maths=numbers").said
    assert "--expert is for route, not for a.py:b" in run("draw", "a.py:b", "--expert", "maths=numbers").said


# ---- at a terminal


def _terminal(home, server, *words):
    (home / "tools.py").write_text(TOOLS)
    return forkserver.terminal(
        sys.executable,
        ["-m", "graphagent", "run", *words, "--model", "local", "--base-url", server.base_url],
        cwd=str(home), env={**os.environ, "TERM": "xterm", "NO_COLOR": "1"}, encoding="utf-8", dimensions=(40, 80), timeout=600,
    )  # fmt: skip


def _end(child):
    child.expect(pexpect.EOF)
    child.close()
    return child.exitstatus


def test_a_person_talks_with_chat(home):
    """The answer is shown once, as it is written; the next line answers it; Ctrl-D leaves."""
    with openai_server(["Hello there.", "Very well."]) as server:
        child = _terminal(home, server, "chat")
        child.expect_exact("> ")
        child.sendline("Hi")
        child.expect_exact("Hello there.")
        child.expect_exact("> ")
        assert "Hello" not in child.before
        child.sendline("How are you?")
        child.expect_exact("Very well.")
        child.expect_exact("> ")
        child.sendeof()
        assert _end(child) == 0
        assert "Very well." not in child.before
        assert ": done, " in child.before


def test_a_person_approves_a_call(home):
    """Whatever is not text is asked for with its type, until it fits."""
    with openai_server([ToolCall("pay", {"euros": 5}), "Paid."]) as server:
        child = _terminal(home, server, "single_run", "Pay.", "--tool", "tools.py:pay")
        child.expect_exact("May 'pay' be called?")
        child.expect("as JSON> ")
        child.sendline("perhaps")
        child.expect("as JSON> ")
        child.sendline("yes")
        child.expect_exact("pay returned 5 euros paid")
        child.expect_exact("Paid.")
        assert _end(child) == 0


def test_a_live_line_shows_the_node_that_is_executed(home):
    """While it is executed, and not afterwards; what is printed stays above it."""
    (home / "slow.py").write_text(SLOW)
    with openai_server([]) as server:
        child = _terminal(home, server, "slow.py:waits", "Hello")
        child.expect_exact(" · wait")
        child.expect_exact(" · wait")
        (home / "go").touch()
        child.expect_exact("printed")
        child.expect_exact("HELLO")
        assert _end(child) == 0
        assert " · wait" not in child.before


@pytest.mark.parametrize(("pressed", "code"), [("d", 0), ("c", 130)])
@pytest.mark.parametrize("name", ["text", "choice"])
def test_a_person_leaves_a_question(home, name, pressed, code):
    """With Ctrl-D that is no failure; the command that goes on is printed, and without a store how to have one."""
    options = ["--store", "runs.db", "--run-id", "r", "--max-turns", "7"]
    told = f"graphagent run tools.py:{name} --resume r --store runs.db --model local --base-url"
    with openai_server([]) as server:
        for words, said in ((options, told), ([], "with --store PATH it can be continued")):
            child = _terminal(home, server, f"tools.py:{name}", "Hello", *words)
            child.expect_exact("> ")
            leave(child, pressed)
            assert _end(child) == code
            assert said in child.before.replace("\r\n", " ")
            assert "Aborted" not in child.before
            assert ("--max-turns 7" in child.before) == bool(words)
        child = _terminal(home, server, f"tools.py:{name}")
        child.expect_exact("> ")
        leave(child, pressed)
        assert _end(child) == code


@pytest.mark.parametrize("kept", [False, True])
def test_ctrl_c_stops_a_run(home, run, kept):
    """One that is kept is paused after the current work, and resumed; another one is over at once."""
    arrived, released = threading.Event(), threading.Event()

    def slow(request):
        arrived.set()
        released.wait(timeout=600)
        return ToolCall("multiply", {"a": 6, "b": 7})

    options = ["--store", "runs.db", "--run-id", "r"] if kept else []
    with openai_server(slow) as server:
        child = _terminal(home, server, "single_run", "What?", "--tool", "tools.py:multiply", *options)
        arrived.wait(timeout=600)
        interrupt(child)
        if kept:
            child.expect_exact("Pausing after the current work")
            released.set()
            child.expect_exact("Resume it with: graphagent run single_run --resume r")
        assert _end(child) == 130
        released.set()
    if kept:
        with openai_server(["It is 42."]) as server:
            child = _terminal(
                home, server, "single_run", "--resume", "r", "--store", "runs.db", "--tool", "tools.py:multiply"
            )
            child.expect_exact("multiply returned 42")
            child.expect_exact("It is 42.")
            assert _end(child) == 0


def test_a_run_goes_on_after_its_process_was_killed(home):
    """The plan is not made again, nor the step that was carried out; the next one is."""
    arrived, released = threading.Event(), threading.Event()

    def slow(request):
        if "step 2 of 2" in request.messages[-1].text:
            arrived.set()
            released.wait(timeout=600)
        return {"steps": ["a", "b"]} if request.output is not None else "Carried out."

    with openai_server(slow) as server:
        child = _terminal(home, server, "plan_and_execute", "Do it.", "--store", "runs.db", "--run-id", "r")
        arrived.wait(timeout=600)
        child.kill(signal.SIGKILL)
        child.close()
        released.set()
    with openai_server(["Also carried out.", {"steps": []}, "Done."]) as server:
        child = _terminal(home, server, "plan_and_execute", "--resume", "r", "--store", "runs.db")
        child.expect_exact("Also carried out.")
        child.expect_exact("Done.")
        assert _end(child) == 0
        assert "step 2 of 2" in server.requests[0]["messages"][-1]["content"]
