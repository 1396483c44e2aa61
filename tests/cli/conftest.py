"""What the tests of the command line share."""

from __future__ import annotations

import functools
import io
import re
import runpy
import sys
from dataclasses import dataclass

import anyio
import pytest
import typer.main

from graphagent.cli import main
from tests.cli.programs import BEGIN, PROGRAM


@dataclass
class Ended:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def said(self):
        """What stands on standard error, without frames and line breaks."""
        return " ".join(re.sub(r"[│╭╮╰╯─]", " ", self.err).split())


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A folder of its own, that is also where memories go by default, and no key of the person who tests."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRAPHAGENT_HOME", str(tmp_path / "home"))
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


_command = functools.cache(typer.main.get_command)
"""Makes the commands of an app: ten times as much work as executing one, and always the same."""


@pytest.fixture
def run(monkeypatch, capsys):
    """Run a command in this process: `run("facts", "list", stdin="")`."""
    monkeypatch.setattr(typer.main, "get_command", _command)

    def run(*words, stdin=""):
        monkeypatch.setattr(sys, "argv", ["graphagent", *map(str, words)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()), "utf-8"))
        capsys.readouterr()
        try:
            main()
            code = 0
        except SystemExit as ended:
            code = ended.code
        out, err = capsys.readouterr()
        return Ended(0 if code is None else code, out, err)

    return run


@pytest.fixture
def begun(home):
    """Start a run, which ends or waits: `begun("agent", "mail-1", "the party")`. `begin.py` does so in a process of its own."""
    (home / "program.py").write_text(PROGRAM)
    (home / "begin.py").write_text(BEGIN)

    def begin(name, run_id="", task="the task", owner="", thread=None):
        anyio.run(
            runpy.run_path("begin.py", run_name="begin")["main"],
            runpy.run_path("program.py")[name],
            run_id,
            task,
            owner,
            thread,
        )

    return begin
