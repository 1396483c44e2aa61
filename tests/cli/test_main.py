"""The command itself: help, version, what is missing, and what it loads."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

import graphagent
from graphagent.store import new_key
from tests import forkserver
from tests.cli.programs import PROGRAM

COMMANDS = [
    [], ["chat"], ["run"], ["draw"], ["demo"], ["facts"], ["facts", "list"], ["facts", "show"], ["facts", "set"],
    ["facts", "forget"], ["facts", "export"], ["facts", "import"], ["keys"], ["keys", "new"],
    ["keys", "list"], ["keys", "add"], ["keys", "remove"], ["keys", "rotate"], ["keys", "destroy"],
    ["runs"], ["runs", "list"], ["runs", "show"], ["runs", "replay"], ["runs", "resume"], ["runs", "answer"],
    ["runs", "fork"], ["runs", "rerun"], ["runs", "diff"], ["runs", "export"], ["runs", "import"], ["runs", "prune"],
    ["runs", "forget"], ["backup"], ["restore"], ["verify"], ["store"], ["store", "copy"],
]  # fmt: skip

READING = [
    *("facts list", "facts show city", "facts export", "facts forget city", "facts forget --all --yes"),
    *(
        "notes list",
        "notes recall tea",
        "notes tree",
        "notes show a",
        "notes export",
        "notes reset --yes",
    ),
    *("notes forget --scope / --yes", "notes edit a --content b", "notes reindex", "notes reembed --embedder static"),
    *(
        "runs list",
        "runs threads",
        "runs show",
        "runs show a --prompt 1",
        "runs replay a",
        "runs diff a b",
        "runs export",
    ),
    *(
        "runs prune --yes",
        "runs clear-cache",
        "runs forget a --yes",
        "runs resume a --agent program.py:agent",
        "runs pause a",
    ),
    *("runs answer a yes --agent program.py:agent", "run program.py:mail --model offline --resume a"),
]
IMPORTING = ["facts import nothing.jsonl", "notes import nothing.jsonl", "runs import nothing.jsonl"]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_has_help(run, words):
    """It ends with 0, and every command that does something shows an example of itself."""
    ended = run(*words, "--help")
    assert ended.code == 0
    if words not in ([], ["facts"], ["keys"], ["runs"]):
        assert f"Example: graphagent {' '.join(words)}" in ended.out


def test_the_help_of_a_key_warns_of_the_history(run):
    """A key on the command line would stay there."""
    assert "shell's history" in " ".join(run("chat", "--help").out.replace("│", " ").split())


def test_the_version_is_told(run):
    """`--version` says which graphagent this is."""
    assert run("--version").out == f"graphagent {graphagent.__version__}\n"


def test_an_unknown_command_is_a_wrong_call(run):
    """It ends with 2, and names what was asked for."""
    ended = run("sing")
    assert ended.code == 2
    assert "sing" in ended.said


def test_without_the_extra_it_says_what_to_install():
    """One line with the command to run, and no traceback."""
    program = (
        "import sys\n"
        "class Hide:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in ('typer', 'rich'): raise ModuleNotFoundError(name=name)\n"
        "import importlib.util\n"
        "found = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, package=None: None if name in ('typer', 'rich') else found(name, package)\n"
        "sys.meta_path.insert(0, Hide())\n"
        "from graphagent.cli import main\n"
        "main()\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr == "the graphagent command needs an extra: pip install 'graphagent-ai[cli]'\n"


def test_help_loads_no_heavy_library():
    """openai, networkx, cryptography and textual are not needed to tell what there is."""
    program = (
        "import sys, atexit\n"
        "atexit.register(lambda: print(*{'openai', 'networkx', 'cryptography', 'textual'} & sys.modules.keys(), file=sys.stderr))\n"
        "sys.argv = ['graphagent', '--help']\n"
        "from graphagent.cli import main\n"
        "main()\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr.split()) == (0, [])


def test_a_reader_that_goes_away_is_no_error(home):
    """As in `graphagent chat --script … | head -1`: nothing is complained of."""
    (home / "script.txt").write_text("Hello\n" * 2000)
    command = f"{sys.executable} -m graphagent chat --script script.txt | head -1"
    ended = subprocess.run(command, shell=True, cwd=home, capture_output=True, text=True, check=False)
    assert ended.stdout.startswith("model offline")
    assert ended.stderr == ""


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("command", [*READING, *IMPORTING])
def test_no_command_creates_a_store_for_reading(run, home, monkeypatch, command, sealed):
    """Neither where it is told to look nor in the default folder, with and without a key; nor does an import that fails."""
    monkeypatch.setenv("TEST_KEY", new_key())
    (home / "program.py").write_text(PROGRAM)
    key = ["--key", "env:TEST_KEY"] if sealed else []
    place = ["--store", "folder/there"]
    for where in (place, [] if not command.startswith("run ") else place):
        run(*command.split(), *where, *key)
    assert {path.name for path in home.iterdir()} - {"__pycache__"} == {"program.py"}


@pytest.mark.parametrize(
    "words",
    [
        "--help", "facts show city", "facts list", "run nothing",
        pytest.param("demo", marks=pytest.mark.thorough),  # starts a dozen commands
    ],
)  # fmt: skip
def test_no_color_means_none(home, words):
    """At a terminal too: nothing is red, and nothing bold or dim; an empty NO_COLOR does not count."""
    for value, wanted in (("1", False), ("", True)):
        child = forkserver.terminal(
            sys.executable, ["-m", "graphagent", *words.split()], encoding="utf-8", timeout=600,
            env={**os.environ, "TERM": "xterm-256color", "NO_COLOR": value},
        )  # fmt: skip
        shown = child.read()
        child.close()
        assert bool(re.search(r"\x1b\[[\d;]*m", shown)) == wanted
