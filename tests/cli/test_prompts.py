"""Ctrl-C at a prompt, as it is pressed at a real terminal, and as background jobs ignore it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from graphagent.memory import Notes
from tests import forkserver
from tests.cli.runs.test_execute import WAITS, _effects, _put, _until
from tests.cli.terminals import interrupt, leave

pexpect = pytest.importorskip("pexpect")

IGNORING = ("sh", "-c", "trap '' INT; exec \"$@\"", "sh")
"""Begins a command that ignores Ctrl-C, as a shell has its background jobs do."""
ignored = pytest.mark.parametrize("ignored", [False, True], ids=["", "where it is inherited as ignored"])


def terminal(home, *words, ignored):
    """Start a command at a terminal, as a shell does that may ignore Ctrl-C."""
    command, *given = [*(IGNORING if ignored else ()), sys.executable, "-m", "graphagent", *words]
    return forkserver.terminal(
        command, given, cwd=str(home), env={**os.environ, "TERM": "xterm", "NO_COLOR": "1"}, dimensions=(24, 80),
        encoding="utf-8", timeout=600,
    )  # fmt: skip


def left(child):
    """Press Ctrl-C once, and give the exit code."""
    interrupt(child)
    child.expect(pexpect.EOF)
    child.close()
    return child.exitstatus


@ignored
def test_ctrl_c_at_the_prompt_of_runs_answer_ends_it(home, begun, ignored):
    """Pressed once, with 130; the run still waits."""
    begun("agent", "mail-1", "the party")
    words = ("runs", "answer", "mail-1", "--agent", "program.py:agent", "--store", "runs.db")
    child = terminal(home, *words, ignored=ignored)
    child.expect("yes or no> ")
    assert left(child) == 130
    child = terminal(home, *words, ignored=ignored)
    child.expect("yes or no> ")
    child.sendline("yes")
    child.expect("sent")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0


@ignored
def test_ctrl_c_at_a_confirmation_ends_it(home, begun, ignored):
    """With 130, where a no gives 1; nothing is removed."""
    begun("agent", "mail-1")
    words = ("runs", "prune", "mail-1", "--store", "runs.db")
    child = terminal(home, *words, ignored=ignored)
    child.expect("for good")
    assert left(child) == 130
    child = terminal(home, *words, ignored=ignored)
    child.expect("for good")
    child.sendline("n")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 1


def test_every_confirmation_is_asked_in_the_same_way(home):
    """Those of facts and of notes too."""
    import anyio

    async def remember():
        async with Notes(home / "n.db") as notes:
            await notes.remember("tea", scope="/")

    anyio.run(remember)
    child = terminal(home, "notes", "reset", "--store", "n.db", ignored=False)
    child.expect("for good")
    assert left(child) == 130
    child = terminal(home, "chat", ignored=False)
    child.expect("> ")
    child.sendline("I live in Oslo.")
    child.expect("learned")
    child.sendline("/quit")
    child.expect(pexpect.EOF)
    child.close()
    child = terminal(home, "facts", "forget", "city", ignored=False)
    child.expect("for good")
    assert left(child) == 130


def test_ctrl_c_leaves_a_chat_that_inherited_it_as_ignored(home):
    """A person who talks at a terminal can always leave."""
    child = terminal(home, "chat", ignored=True)
    child.expect_exact("leaves.")
    child.expect_exact("> ")
    assert left(child) == 0


def test_a_background_job_keeps_ignoring_ctrl_c(home, begun):
    """It has no terminal for its input, and goes on to its end."""
    process = forkserver.Popen([sys.executable, "begin.py", "waits", "w", "x", ""], cwd=_put(begun, home))
    _until(lambda: "slow" in _effects(home))
    process.kill()
    process.wait()
    child = forkserver.Popen(
        [*IGNORING, sys.executable, "-m", "graphagent", "runs", "resume", "w", *WAITS], cwd=home, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    _until(lambda: _effects(home).count("slow") == 2)
    child.send_signal(signal.SIGINT)
    (home / "go").touch()
    out, err = child.communicate(timeout=600)
    assert (child.returncode, out) == (0, "x!\n"), err
    assert "Pausing" not in err


@pytest.mark.parametrize(("pressed", "code"), [("d", 0), ("c", 130)])
def test_whoever_leaves_the_questions_of_a_run_is_told_how_to_answer(home, begun, pressed, code):
    """By Ctrl-D, which is no failure, or Ctrl-C."""
    begun("agent", "r")
    child = terminal(home, "runs", "answer", "r", "--agent", "program.py:agent", "--store", "runs.db", ignored=False)
    child.expect("yes or no> ")
    leave(child, pressed)
    shown = child.read()
    child.close()
    assert (child.exitstatus, "Aborted" in shown) == (code, False)
    assert "Answer with: graphagent runs answer r ANSWER --agent program.py:agent --store runs.db" in shown


REPLY = """
from dataclasses import dataclass
from datetime import date
from typing import Literal

from graphagent import END, START, Agent, Strategy
from graphagent.nodes import ask_human


@dataclass
class Reply:
    good: bool
    due: date
    colour: Literal["red", "green"] | None = None
    note: str = "none"


agent = Agent(Strategy("s", START >> ask_human("Is it good?", Reply) >> END))
"""


def test_the_fields_of_a_dataclass_are_asked_for_one_by_one(home, begun):
    """With their types; what does not fit is asked again, and what has a default may be left out."""
    (home / "program.py").write_text(REPLY)
    begun("agent", "r")
    child = terminal(
        home, "runs", "answer", "r", "--agent", "program.py:agent", "--store", "runs.db", "--json", ignored=False
    )
    child.expect("Is it good\\?")
    child.expect("  good: bool\r\n  due: date\r\n  colour: .*, may be left out\r\n  note: str, may be left out\r\n")
    child.expect("good: bool> ")
    child.sendline("perhaps")
    child.expect("'good' is yes or no")
    child.expect("good: bool> ")
    child.sendline("yes")
    child.expect("due: date> ")
    child.sendline("2026-01-02")
    child.expect("colour: .*> ")
    child.sendline("")
    child.expect("note: .*> ")
    child.sendline("fine")
    shown = child.read()
    child.close()
    assert child.exitstatus == 0, shown
    for part in ('"good": true', '"due": "2026-01-02"', '"colour": null', '"note": "fine"'):
        assert part in shown
