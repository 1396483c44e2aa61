"""`graphagent demo`: every step is a real command in a process of its own, on one encrypted memory, which is kept."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from graphagent.cli import _output
from graphagent.cli._stores import CONVERSATIONS, SEALED
from graphagent.cli.offline import STAND_IN
from graphagent.errors import GraphAgentError

_SHOWN_TURNS = 4
_SHORTEST_WORD = 5
_FORGOTTEN = "favourite-motto"


@dataclass(frozen=True, slots=True)
class _Ended:
    """The output of a command that has ended."""

    output: str
    complaint: str
    seconds: float


class _Demo:
    def __init__(self, home: Path) -> None:
        self.console: Console = _output.screen()
        self.home = home
        self.memory, self.key = home / "memory", home / "key"

    def title(self, text: str) -> None:
        self.console.print()
        self.console.print(Text(text, style="bold cyan"))

    def say(self, text: str, style: str = "") -> None:
        self.console.print(Text(_output.shown(text), style=style))

    def run(self, *words: str, ends: int = 0) -> _Ended:
        """Execute a command in another process.

        Raises:
            GraphAgentError: The exit code is not `ends`.
        """
        self.say(f"$ graphagent {' '.join(words)}", "dim")
        environment = {**os.environ, "PYTHONUTF8": "1"}
        began = time.monotonic()
        ended = subprocess.run(  # noqa: S603  this program itself, with the words below
            [sys.executable, "-m", "graphagent", *words],
            cwd=self.home, env=environment, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", check=False,
        )  # fmt: skip
        if ended.returncode != ends:
            raise GraphAgentError(f"`graphagent {words[0]}` ended with {ended.returncode}: {ended.stderr.strip()}")
        return _Ended(ended.stdout, ended.stderr, time.monotonic() - began)

    def sealed(self, *words: str, ends: int = 0) -> _Ended:
        """Execute a command on the encrypted memory."""
        return self.run(*words, "--store", "memory", "--key", "file:key", ends=ends)

    def turns(self, text: str) -> list[list[str]]:
        """Return the turns of a chat, each as its lines."""
        parts = re.split(r"^(?=> )", text, flags=re.MULTILINE)
        return [part.rstrip("\n").split("\n") for part in parts if part.startswith("> ")]

    def show_turns(self, turns: list[list[str]]) -> None:
        for lines in turns:
            self.console.print()
            for line in lines:
                self.say(line, "bold" if line.startswith("> ") else "dim" if line.startswith("  ") else "")


def show() -> None:
    """Execute the demo in a temporary folder, and keep its memory and its key.

    Raises:
        GraphAgentError: A step had another result than the demo shows.
    """
    folder = Path(tempfile.mkdtemp(prefix="graphagent-demo-"))
    try:
        demo = _Demo(folder / "work")
        demo.home.mkdir()
        for name in ("conversation.txt", "next_day.txt"):
            shutil.copy(_script_file(name), demo.home / name)
        _first_day(demo)
        _next_day(demo)
        _nothing_readable(demo)
        _refused(demo)
        _forgotten(demo)
        for each in (demo.memory, demo.key):
            each.rename(folder / each.name)
        shutil.rmtree(demo.home)
    except BaseException:
        shutil.rmtree(folder)
        raise
    demo.title("Try it yourself")
    demo.say("graphagent chat                                     the offline model, no key needed")
    demo.say("graphagent chat --model gpt-5-mini                  with OPENAI_API_KEY set")
    demo.say("graphagent chat --model llama3.2 --base-url http://localhost:11434/v1      Ollama")
    demo.say("Seal what it learns: graphagent keys new --out KEYFILE, then add --key file:KEYFILE", "dim")
    demo.title("Look at it in a browser")
    store, key = folder / "memory" / CONVERSATIONS, f"file:{folder / 'key'}"
    demo.say(f"{_this_command()} inspect --store {shlex.quote(str(store))} --key {shlex.quote(key)} --open")
    demo.say(
        "The last conversation: each prompt as it was sent, with the facts in it. All is in that folder; delete it when you like.",
        "dim",
    )


def _this_command() -> str:
    """Return the name of this command as it was entered, or as it can be entered here."""
    entered = Path(sys.argv[0])
    if entered.name == "__main__.py":
        return f"{shlex.quote(sys.executable)} -m graphagent"
    found = shutil.which("graphagent")
    return (
        "graphagent" if found is not None and Path(found).resolve() == entered.resolve() else shlex.quote(str(entered))
    )


def _script_file(name: str) -> Path:
    """Return the path of a script of the chat: next to this file in an installation, in `examples/` in a checkout."""
    installed = Path(__file__).with_name(name)
    return installed if installed.exists() else Path(__file__).parents[2] / "examples" / name


def _first_day(demo: _Demo) -> None:
    demo.title("1  A day's chat, in one process")
    demo.say(STAND_IN, "dim")
    demo.run("keys", "new", "--out", "key")
    ended = demo.sealed("chat", "--script", "conversation.txt")
    turns = demo.turns(ended.output)
    demo.show_turns(turns[:_SHOWN_TURNS])
    demo.say(f"\n… {len(turns) - _SHOWN_TURNS} more turns, three of them:", "dim")
    corrected = next(turn for turn in turns if "(until now:" in turn[1])
    hostile = next(turn for turn in turns if turn[0].startswith("> My favourite motto"))
    demo.show_turns([corrected, hostile, turns[-1]])
    learned = sum(line.startswith("  learned") for turn in turns for line in turn)
    demo.say(f"\n{len(turns)} turns, {learned} facts learned and sealed, in {ended.seconds:.1f} seconds.", "bold")


def _next_day(demo: _Demo) -> None:
    demo.title("2  The next day, in another process")
    ended = demo.sealed("chat", "--script", "next_day.txt", "--show-memory")
    talk, blocks = _split_memory(ended.output)
    demo.show_turns(demo.turns(talk))
    preface, opening, *lines, closing_mark = blocks[0]
    demo.say("\nThis block in the prompt carried it, word for word:", "bold")
    chosen = [
        line
        for line in lines
        if re.search(r'"concept":"(?:name|city|allergies|project-deadline|favourite-motto)"', line)
    ]
    for line in (preface, opening, *chosen):
        demo.say(line, "yellow")
    demo.say(f"… and {len(lines) - len(chosen)} more lines such as these", "dim")
    demo.say(closing_mark, "yellow")
    demo.say("The motto tried to close the block and give orders. Its brackets are escaped, so it stays data.")


def _split_memory(output: str) -> tuple[str, list[list[str]]]:
    """Return the output of `chat --show-memory` without its blocks of facts, and these blocks as lines."""
    blocks = [
        match[0].split("\n")
        for match in re.finditer(r"^What is known from memory.*?^</facts>$", output, re.MULTILINE | re.DOTALL)
    ]
    if not blocks:
        raise GraphAgentError("the second process was shown no facts")
    return re.sub(r"^What is known from memory.*?^</facts>\n", "", output, flags=re.MULTILINE | re.DOTALL), blocks


def _nothing_readable(demo: _Demo) -> None:
    demo.title("3  The disk in the hands of a thief")
    demo.sealed("facts", "export", "--out", "export.jsonl")
    demo.run("facts", "import", "export.jsonl", "--store", "plain")
    said: list[str] = []
    for line in (demo.home / "export.jsonl").read_text("utf-8").splitlines():
        record = json.loads(line)
        said += [*record["values"], record["keyword"], record["description"]]
    words = {word.casefold() for word in re.findall(r"\w+", " ".join(said)) if len(word) >= _SHORTEST_WORD}
    words.discard("facts")  # the name of the file
    found, control = _found(words, demo.memory), _found(words, demo.home / "plain")
    if found or control != words:
        raise GraphAgentError(
            f"{len(found)} words are readable in the sealed memory, and {len(control)} in the plain one"
        )
    demo.console.print()
    for path in sorted(demo.memory.rglob("*")):
        demo.say(f"{path.relative_to(demo.home)}  {path.stat().st_size:,} bytes, of which these are 32:")
    place, data = _sealed_place(demo.memory / SEALED)
    for start in (place, place + 16):
        row = data[start : start + 16]
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        demo.say(f"{start:08x}  {row.hex(' ')}  {letters}", "dim")
    demo.say(
        f"Searched in it for {len(words)} words of the learned facts, names of facts included: none is found.", "bold"
    )
    demo.say(f"The same search in the same facts without a key finds all {len(control)}.")


def _found(words: set[str], root: Path) -> set[str]:
    """Return the words that are readable, in upper or lower case, in the files below a folder or in their names."""
    files = [path for path in root.rglob("*") if path.is_file()]
    data = b"\n".join(str(path.relative_to(root)).encode() + b"\n" + path.read_bytes() for path in files)
    text = data.decode("utf-8", "replace").casefold()
    return {word for word in words if word in text}


def _sealed_place(path: Path) -> tuple[int, bytes]:
    """Return an offset inside an encrypted value of a database file, and the content of the file."""
    import apsw

    data = path.read_bytes()
    connection: Any = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    with closing(connection) as database:
        tables = [str(row[0]) for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        rows = [row for name in tables for row in database.execute(f'SELECT * FROM "{name}"')]  # noqa: S608  names from the database itself
        cells = [cell for row in rows for cell in row]
    places = [data.find(cell) for cell in cells if isinstance(cell, bytes) and 200 < len(cell) < 1000]
    place = next((place for place in places if place > 0), None)
    if place is None:
        raise GraphAgentError(f"no sealed value was found in {path.name}")
    return place + 100, data


def _refused(demo: _Demo) -> None:
    demo.title("4  A wrong key, and one changed byte")
    demo.run("keys", "new", "--out", "other-key")
    demo.say(demo.run("facts", "list", "--store", "memory", "--key", "file:other-key", ends=1).complaint.strip(), "red")
    place, data = _sealed_place(demo.memory / SEALED)
    shutil.copytree(demo.memory, demo.home / "changed")
    (demo.home / "changed" / SEALED).write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
    demo.say(f"(a copy of the memory, with byte {place:,} changed by one bit)", "dim")
    demo.say(demo.run("verify", "changed", "--key", "file:key", ends=1).complaint.strip(), "red")
    demo.say(demo.run("verify", "memory", "--key", "file:key").output.strip())


def _forgotten(demo: _Demo) -> None:
    demo.title("5  Forgotten is forgotten")
    for what in ([_FORGOTTEN], ["--subject", "project"]):
        demo.say(demo.sealed("facts", "forget", *what, "--yes").output.strip())
    (demo.home / "later.txt").write_text(
        "When is the deadline?\nWhat is my favourite motto?\nWhere do I live?\n", "utf-8"
    )
    demo.show_turns(demo.turns(demo.sealed("chat", "--script", "later.txt", "--thread", "today").output))
