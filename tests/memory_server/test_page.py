"""The commands and the files of hosts that docs/memory-server.md shows start servers that answer."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from mcp import Client

from graphagent.store import new_key
from tests.memory_server.servers import Raw
from tests.memory_server.test_http import serving
from tests.memory_server.test_tools import call

PAGE = (Path(__file__).parents[2] / "docs" / "memory-server.md").read_text("utf-8")
LINES = re.findall(r"^\$ graphagent mcp(.*?)(?: +#.*)?$", PAGE, re.MULTILINE)
FILES = [json.loads(each) for each in re.findall(r"^```json\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)]
ARGUMENTS = [
    shlex.join(server["args"][1:]) for file in FILES for servers in file.values() for server in servers.values()
]


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A home of its own, with the key and the token that the page names."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GRAPHAGENT_HOME", str(tmp_path / "home"))
    for name, text in ((".graphagent-key", new_key()), ("token", "plum-quarry-ledger-ninety")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o600)
    return tmp_path


@pytest.mark.parametrize("line", [each for each in LINES + ARGUMENTS if "--http" not in each])
def test_a_command_of_the_page_serves_its_host(line):
    """It lists its tools over standard input and output, and ends with the host."""
    server = Raw(*shlex.split(line)).begin()
    server.send("tools/list", 1)
    names = [each["name"] for each in server.receive()["result"]["tools"]]
    assert ("remember" in names) is ("--read-only" not in line)
    assert ("answer" in names) is ("--answers" in line)
    assert server.end() == (0, b"", "")


@pytest.mark.parametrize("line", [each for each in LINES if "--http" in each])
async def test_a_command_of_the_page_serves_over_http(line, tmp_path):
    """At a free port of this machine."""
    words = shlex.split(re.sub(r"--http \S+", "", line))
    with serving(tmp_path, *words) as url:
        if "--token" not in line:
            async with Client(url) as client:
                assert (await call(client, "notes"))["notes"] == []


def test_the_page_has_commands_and_files():
    """They are found by how they are written."""
    assert (len(LINES), len(ARGUMENTS)) == (9, 2)
