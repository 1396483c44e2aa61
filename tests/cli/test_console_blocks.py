"""The commands that docs/cli.md shows do what it says: each is executed, in a folder in which there is what it names."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from graphagent.store import new_key
from tests.store.sealed.test_keyring import Memory

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text("utf-8")
LINES = [
    line
    for block in re.findall(r"^```console\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    for line in re.findall(r"^\$ graphagent +(.+?)(?: +# .*)?$", block, re.MULTILINE)
    if " " in line
    and "--model" not in line
    and "postgresql://" not in line
    and "DATABASE_URL" not in line
    and "browse" not in line
    # what is a group of commands says what it has; a model and a database want a server: see test_databases.py; browsing wants a terminal
]
REMEMBERED = [line for line in LINES if line.startswith("notes remember")]

OLD = {
    "id": "4f2a91c0d7e34b0c8f5a2d9e6b1c3a77",
    "content": "Ship it.",
    "scope": "/project/old",
    "created_at": "2020-01-02",
}
NEW = {**OLD, "id": "0d9b8f7a6c5e4d3f2a1b0c9d8e7f6a5b"}
FILES = {
    "lines.txt": "Ana leads the migration.\nThe office closes at six.\n",
    "old.json": json.dumps([OLD]),
    "table.csv": "content,ticket\nWe sail on Monday.,42\n",
    "records.json": json.dumps([NEW]),
    "mem0.json": json.dumps({"results": [{"id": "m1", "memory": "Ana likes tea.", "created_at": "2020-01-02"}]}),
    "memory.jsonl": json.dumps({"type": "entity", "name": "Ana", "entityType": "person", "observations": ["is here"]}),
    "conversation.txt": "I live in Oslo.\n",
    "editor.py": "import sys; open(sys.argv[1], 'w').write('We sail on Monday.')",
    "my_agents.py": "from graphagent_strategies import single_run\n\nassistant = single_run()\n",
}
TWO_QUESTIONS = """
two = Agent(
    Strategy("two", START >> parallel(ask_human("How many?", int).named("a"), ask_human("Which?", str).named("b")) >> END)
)
"""


def _said(run, line, stdin="y\n"):
    """Execute a command, and give what it says."""
    words = shlex.split(line, comments=True)
    if "<" in words:
        stdin, words = Path(words[-1]).read_text("utf-8"), words[:-2]
    ended = run(*words, stdin=stdin)
    assert ended.code == 0, f"{line}\n{ended.err}"
    return ended.out


def _with_notes(run, line):
    if line in REMEMBERED:
        return
    for each in [*REMEMBERED, "notes import old.json --from crewai"]:
        _said(run, each)
    if "notes.jsonl --store" in line:
        _said(run, "notes export --out notes.jsonl")


def _with_facts(run, line):
    for owner, memory in (("''", "memory"), ("ada", "memory"), ("''", "plain")):
        _said(run, f"facts set city Oslo --owner {owner} --store {memory}")
    _said(run, "facts set diet meat rice --store memory")
    if "assistant.db" in line:
        _said(run, "keys new --out assistant.key")
        _said(run, f"facts set city Oslo {line.partition('list ')[2]}")
    if "import" in line:
        _said(run, "facts export --out facts.jsonl")
        _said(run, "keys new --out ~/.graphagent-key")
        shutil.rmtree("memory")


def _with_runs(run, line, begun):
    program = Path("program.py")
    program.write_text(program.read_text("utf-8") + TWO_QUESTIONS)
    name = "agent" if "mail-2" in line or "rerun" in line else "two" if "a:2" in line else "letters"
    Path("app.py").write_text(f"{program.read_text('utf-8')}\nagent = {name}\n")
    begun(name, "mail-1")
    begun("letters", "hers", owner="ada")
    if "thread" in line:
        begun("letters", "talk", thread="monday")
    if "diff" in line:
        _said(run, "runs fork mail-1 --before ask_human --agent app.py:agent --run-id mail-2")
    if "import" in line:
        _said(run, "runs export --out runs.jsonl")


def _with_keys(run, line, monkeypatch):
    monkeypatch.setattr("keyring.core._keyring_backend", Memory())
    monkeypatch.setenv("MY_WORDS", "plum quarry ledger ninety foam")
    if "keys new" in line:
        return
    for number in ("", "-2"):
        _said(run, f"keys new --out ~/.graphagent-key{number}")
    given = line.partition("--key ")[2].split()[0]
    _said(run, f"facts set city Oslo --key {given}")
    if "remove" in line:
        _said(run, f"keys add phone --recovery --key {given}")


def _with_anchor(run, line):
    given = line.partition("--key ")[2]
    _said(run, "keys new --out ~/.graphagent-key")
    _said(run, f"facts set city Oslo --key {given}")
    if "reset" in line:
        Path("~/elsewhere.anchor").expanduser().write_bytes(b"")


def _with_everything(run, line):
    if "assistant.db" in line:
        _said(run, "keys new --out assistant.key")
        _said(run, "facts set city Oslo --subject ada --store assistant.db --key file:assistant.key")
    for owner in ("''", "ada"):
        _said(run, f"facts set city Oslo --owner {owner} --store memory")
    for each in ("Oslo is far.", "Oslo is cold.", "Oslo is near."):
        _said(run, f"notes remember '{each}'")
    _said(run, "notes import old.json --from crewai")


@pytest.mark.parametrize("line", LINES)
def test_a_command_of_the_page_works(line, run, begun, home, monkeypatch):
    """It ends well, and what looks for something finds it."""
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GRAPHAGENT_HOME", str(home))
    monkeypatch.setenv("GRAPHAGENT_KEY", new_key())
    monkeypatch.setenv("VISUAL", f"{sys.executable} {home / 'editor.py'}")
    for name, text in FILES.items():
        (home / name).write_text(text)
    match line.split()[0]:
        case "notes":
            _with_notes(run, line)
        case "facts":
            _with_facts(run, line)
        case "keys":
            _with_keys(run, line, monkeypatch)
        case "anchor":
            _with_anchor(run, line)
        case "forget":
            _with_everything(run, line)
        case "runs":
            _with_runs(run, line, begun)
    said = _said(run, line, stdin="destroy\n" if "destroy" in line else "y\n")
    if re.match("notes (recall|list)", line):
        assert "PostgreSQL" in said


def test_the_page_has_commands():
    """Blocks are found by how they are written."""
    assert len(LINES) > 50
    assert len(REMEMBERED) == 3
