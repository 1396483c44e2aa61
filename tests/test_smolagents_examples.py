"""The examples of the smolagents page, run as a reader runs them: what they print, and what they send to a model."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from graphagent.llm import ToolCall
from graphagent.testing import openai_server
from tests import forkserver
from tests.replies import reply
from tests.thorough import some

HOME = Path(__file__).parents[1]
EXAMPLES = HOME / "examples"
OTHERS = sorted((EXAMPLES / "smolagents").glob("*.py"))
UP = "The application is up again."


def printed(name, folder, *options):
    ended = forkserver.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name), *options],
        cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_replay_shows_the_checks_the_pattern_and_the_restart(tmp_path):
    """Each check stands there with what it gave; the third failure has the alert, which the restart follows."""
    text = printed("monitoring.py", tmp_path, "--demo_mode", "replay")
    assert text.startswith("# replay\nTask:\n    Check the application.\n")
    assert [int(number) for number in re.findall(r"^Step (\d+) \(.*tokens: ", text, re.MULTILINE)] == [1, 2, 3, 4, 5, 6]
    told = re.findall(
        r"health: 500|\[ALERT\] Pattern detected: 3 failures in last 10 checks|restarted|health: 200", text
    )
    assert [each[:7] for each in told] == ["health:"] * 3 + ["[ALERT]", "restart", "health:"]
    assert text.endswith(f"Final answer:\n    {UP}\n")
    assert list(tmp_path.iterdir()) == []


def test_inject_has_the_report_speak_of_yesterday(tmp_path):
    """What was injected decides what is said."""
    text = printed("monitoring.py", tmp_path, "--demo_mode", "inject")
    assert re.fullmatch(
        rf"# inject\n{re.escape(UP)} It was down yesterday as well\.\nalerts: 1, steps: 10, tokens: \d+\n", text
    )


def test_step_by_step_goes_on_from_the_file(tmp_path):
    """Two steps are made by one agent and the rest by another; together they are those of one run."""
    text = printed("monitoring.py", tmp_path, "--demo_mode", "step_by_step")
    assert re.fullmatch(
        r"# step_by_step\n(begun: ActionStep\n){2}(gone on: ActionStep\n){4}gone on: FinalAnswerStep\n"
        + re.escape(UP)
        + r"\nits history as text for another agent: \d+ characters\n",
        text,
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.thorough
def test_full_is_all_of_them_and_what_comes_without_a_mode(tmp_path):
    """The three parts follow one another, and none changes what the next prints."""

    def run(*options):
        return re.sub(r"\d\.\d\d s", "0.00 s", printed("monitoring.py", tmp_path, *options))

    parts = [run("--demo_mode", mode) for mode in ("replay", "inject", "step_by_step")]
    assert run("--demo_mode", "full") == run() == "".join(parts)


def test_an_unknown_mode_is_refused(tmp_path):
    """The modes are named."""
    with pytest.raises(AssertionError, match="'replay', 'inject', 'step_by_step', 'full'"):
        printed("monitoring.py", tmp_path, "--demo_mode", "resume")


def test_the_simple_example_asks_a_server(tmp_path):
    """Over HTTP the model gets what was injected, what the callback made of the result, and the memory that was taken over."""
    replies = [ToolCall("fibonacci", {"n": 20}), "It is 6765.", "We found 6765."]
    with openai_server(replies, model="llama3.2") as server:
        text = printed("simple_memory.py", tmp_path, "--model", "llama3.2", "--base-url", server.base_url)
        first, second, third = (request["messages"] for request in server.requests)
        assert {request["model"] for request in server.requests} == {"llama3.2"}
    assert [message["role"] for message in first] == ["system", "user", "user", "user"]
    assert "down for 2 hours yesterday" in first[2]["content"]
    assert first[3]["content"] == "What is the 20th Fibonacci number?"
    assert re.fullmatch(r"\[\d\d:\d\d\] 6765", second[-1]["content"])
    assert [message["content"] for message in third[-2:]] == ["It is 6765.", "What did we find?"]

    kinds = ["ActionStep", "ActionStep", "FinalAnswerStep"]
    assert text.splitlines()[1:5] == [f"  {line}" for line in (*kinds, "It is 6765.")]
    assert "\n  We found 6765.\n" in text
    assert text.endswith("Final answer:\n    It is 6765.\n")
    assert "\n  6 steps, the first of them: " in text


def test_the_screenshots_of_a_model_that_opens_no_page(tmp_path):
    """There are none, which is said."""
    with openai_server(["I would rather not."], model="m") as server:
        text = printed("screenshots.py", tmp_path, "--model", "m", "--base-url", server.base_url)
    assert text.endswith("the model opened no page, so no screenshot was taken\n")
    assert list(tmp_path.iterdir()) == []


def test_the_examples_of_callbacks_ask_a_server(tmp_path):
    """The model over HTTP gets the alert, and at most two of the screenshots at once."""
    with openai_server(["Three checks failed."], model="m") as server:
        text = printed("health_patterns.py", tmp_path, "--model", "m", "--base-url", server.base_url)
        assert "[ALERT] Pattern detected: 3 failures" in str(server.requests[0]["messages"])
    assert text.startswith("Three checks failed.\n")
    replies = [*(ToolCall("go_to", {"page": number}) for number in (1, 2, 3)), "Seen."]
    with openai_server(replies, model="m") as server:
        text = printed("screenshots.py", tmp_path, "--model", "m", "--base-url", server.base_url)
        assert [str(request).count("data:image/png") for request in server.requests] == [0, 1, 2, 2]
    assert "images in each prompt: [0, 1, 2, 2]\n" in text


def test_an_agent_example_asks_the_model_that_it_is_given(tmp_path):
    """Over HTTP, with what its own script says; and so for every example, whose options are the same."""
    replies = [ToolCall("query", {"sql": "SELECT sum(tip) FROM receipts"}), "All tips were 6.87."]
    with openai_server(replies) as server:
        text = printed("smolagents/text_to_sql.py", tmp_path, "--model", "m", "--base-url", server.base_url)
    assert "[[6.87]]" in text.replace("6.869999999999999", "6.87")
    assert text.endswith("Final answer:\n    All tips were 6.87.\n")
    for example in sorted((EXAMPLES / "smolagents").glob("*.py")):
        told = printed(f"smolagents/{example.name}", tmp_path, "--help")
        assert "--model" in told, example
        assert "--base-url" in told, example


def test_the_page_names_every_agent_example():
    """Each program has a row, beside the example of smolagents that it is like."""
    rows = re.findall(r"^\| `.+` \| `(\w+\.py)` \|", (HOME / "docs" / "smolagents.md").read_text("utf-8"), re.MULTILINE)
    assert sorted(rows) == [path.name for path in OTHERS]


@pytest.mark.parametrize("path", some(OTHERS, 2), ids=lambda path: path.stem)
def test_every_agent_example_asks_a_server(path, tmp_path):
    """Each runs to its end over HTTP, with a model that does what it is asked for."""
    with openai_server(reply, model="local") as server:
        assert printed(f"smolagents/{path.name}", tmp_path, "--model", "local", "--base-url", server.base_url)
        assert server.requests
