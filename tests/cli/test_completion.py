"""Completion of commands and options in the shell."""

from __future__ import annotations

import os
import sys

import pytest

from graphagent.store import new_key
from tests import forkserver

START = "import sys; sys.argv[0] = 'graphagent'; from graphagent.cli import main; main()"


def completed(shell, *words):
    """Give what the shell is told when Tab is pressed after these words."""
    given = {
        "bash": {"COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)},
        "zsh": {"_TYPER_COMPLETE_ARGS": " ".join(words)},
        "fish": {"_TYPER_COMPLETE_ARGS": " ".join(words), "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }[shell]
    ended = forkserver.run(
        [sys.executable, "-c", START],
        env={**os.environ, **given, "_GRAPHAGENT_COMPLETE": f"complete_{shell}"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.stderr == ""
    return ended.stdout


@pytest.mark.one_value("shell")
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_commands_and_options_are_completed(shell):
    """Those of the command itself, those of a group, and the options of one."""
    assert "facts" in completed(shell, "graphagent", "fa")
    inside = completed(shell, "graphagent", "notes", "re")
    assert all(name in inside for name in ("recall", "remember", "reset"))
    assert "tree" not in inside
    assert "--script" in completed(shell, "graphagent", "chat", "--sc")
    named = completed(shell, "graphagent", "run", "re")
    assert all(name in named for name in ("react", "reflect", "research"))
    assert "single_run" not in named


@pytest.mark.one_value("shell")
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_ids_of_runs_and_names_of_threads_are_completed(begun, home, monkeypatch, shell):
    """Those of the store, the key and the owner that stand before, or of the default store; silently none if there is none."""
    monkeypatch.setenv("TEST_KEY", new_key())
    begun("agent", "mail-1")
    begun("agent", "mail-2", thread="mon")
    begun("agent", "mine", owner="ada")
    store = ["--store", "runs.db"]
    for words in (
        ["runs", "show"],
        ["runs", "resume"],
        ["runs", "answer"],
        ["runs", "diff", "mine"],
        ["runs", "forget"],
    ):
        found = completed(shell, "graphagent", *words, *store, "mail")
        assert ("mail-1" in found, "mail-2" in found, "mine" in found) == (True, True, False)
    assert "mail-2" in completed(shell, "graphagent", "run", "react", *store, "--resume", "mail-2")
    assert "mine" in completed(shell, "graphagent", "runs", "show", *store, "--owner", "ada", "m")
    assert "mon" in completed(shell, "graphagent", "runs", "list", *store, "--thread", "m")
    nothing = completed(shell, "graphagent", "runs", "show", "m")
    assert "mail" not in nothing + completed(shell, "graphagent", "runs", "show", "--agent", "program.py:own", "m")
    assert "mail" not in completed(shell, "graphagent", "runs", "show", *store, "--key", "env:TEST_KEY", "m")
    assert not (home / "home").exists()
    (home / "home").mkdir()
    (home / "runs.db").rename(home / "home" / "runs.db")
    assert "mail-1" in completed(shell, "graphagent", "runs", "show", "m")


@pytest.mark.one_value("shell")
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_can_be_installed(tmp_path, shell):
    """Into the folder of the person, for the name `graphagent`, however the command was started."""
    program = (
        "import shellingham; shellingham.detect_shell = lambda *a: (%r, %r)\n"
        "import sys; sys.argv = ['x', %r]; from graphagent.cli import main; main()"
    )
    environment = {**os.environ, "HOME": str(tmp_path)}
    for option in ("--install-completion", "--show-completion"):
        ended = forkserver.run(
            [sys.executable, "-c", program % (shell, f"/bin/{shell}", option)],
            env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert ended.returncode == 0, ended.stderr
    written = "".join(path.read_text() for path in sorted(tmp_path.rglob("*graphagent*")) if path.is_file())
    for script in (written, ended.stdout):
        assert "_GRAPHAGENT_COMPLETE" in script
        assert "graphagent" in script
        assert "python" not in script
