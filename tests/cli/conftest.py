"""What the tests of the command line share."""

from __future__ import annotations

import io
import re
import sys
from dataclasses import dataclass

import pytest

from graphagent.cli import main


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


@pytest.fixture
def run(monkeypatch, capsys):
    """Run a command in this process: `run("facts", "list", stdin="")`."""

    def run(*words, stdin=""):
        monkeypatch.setattr(sys, "argv", ["graphagent", *map(str, words)])
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        capsys.readouterr()
        try:
            main()
            code = 0
        except SystemExit as ended:
            code = ended.code
        out, err = capsys.readouterr()
        return Ended(0 if code is None else code, out, err)

    return run
