"""Uses the reference servers of the Model Context Protocol through agents, and prints what came as a table.

`make mcp-servers` does it, with npm, git and a network. Each server is a process of its own, whose tools a scripted model calls.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from graphagent import Agent
from graphagent.errors import GraphAgentError
from graphagent.llm import ToolCall
from graphagent.mcp import MCPServer
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run

FOLDER = Path(__file__).parents[1] / ".cache" / "servers"
FROM_NPM = tuple(
    f"@modelcontextprotocol/server-{each}" for each in ("everything", "filesystem", "memory", "sequential-thinking")
)
FROM_PYPI = ("mcp-server-fetch", "mcp-server-git", "mcp-server-time")
PICTURE = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c4944415408d763f8cfc000000301010018dd8db00000000049454e44ae426082"
)  # fmt: skip
"""A PNG of one pixel."""


@dataclass(frozen=True, slots=True)
class Use:
    """A server, and calls of its tools."""

    package: str
    calls: Mapping[str, Mapping[str, Any]]
    """The arguments, by the names of the tools."""
    arguments: Sequence[str] = ()
    """What follows the command; `{folder}` is an empty folder with a picture and a repository."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


USES = (
    Use(FROM_NPM[0], {"echo": {"message": "hi"}, "get-sum": {"a": 2, "b": 3}, "get-tiny-image": {}, "get-structured-content": {"location": "New York"}}),
    Use(FROM_NPM[1], {"write_file": {"path": "{folder}/a.txt", "content": "hi"}, "read_text_file": {"path": "{folder}/a.txt"}, "read_media_file": {"path": "{folder}/dot.png"}}, ["{folder}"]),
    Use(FROM_NPM[2], {"create_entities": {"entities": [{"name": "Ada", "entityType": "person", "observations": ["sails"]}]}, "read_graph": {}}),
    Use(FROM_NPM[3], {"sequentialthinking": {"thought": "hm", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1}}),
    Use(FROM_PYPI[0], {"fetch": {"url": "http://127.0.0.1:9/"}}),
    Use(FROM_PYPI[1], {"git_status": {"repo_path": "{folder}"}, "git_log": {"repo_path": "{folder}"}}, ["--repository", "{folder}"]),
    Use(FROM_PYPI[2], {"get_current_time": {"timezone": "Europe/Oslo"}, "convert_time": {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}}),
)  # fmt: skip


async def tried(use: Use, folder: str) -> str:
    """Return what came of the calls of a server, as a row of a table."""

    def filled(value: Any) -> Any:
        return json.loads(json.dumps(value).replace("{folder}", folder))

    name = use.package.rpartition("/")[2]
    command = FOLDER / ("node_modules/.bin" if use.package in FROM_NPM else "python/bin")
    program = str(command / (f"mcp-{name}" if use.package in FROM_NPM else name))
    server = MCPServer.stdio(
        program, *filled(list(use.arguments)), name="server", env={"MEMORY_FILE_PATH": f"{folder}/memory.json"}
    )
    calls = [
        ToolCall(tool, filled(arguments), id=str(number)) for number, (tool, arguments) in enumerate(use.calls.items())
    ]
    model = ScriptedModel([*calls, "Done."])
    try:
        async with Agent(single_run(), model=model, tools=[server]) as agent:
            await agent.run("Use the server.")
    except GraphAgentError as error:
        return f"| {name} | | | {error} |"
    results = [each for message in model.requests[-1].messages for each in message.tool_results]
    came = [
        f"{each.name}: {'error: ' * each.is_error}{shown(each.content)}{f' + {len(each.images)} image' * bool(each.images)}"
        for each in results
    ]
    return f"| {name} | {len(model.requests[0].tools)} | {sum(not each.is_error for each in results)} of {len(calls)} | {'; '.join(came)} |"


def shown(text: str) -> str:
    """Return the beginning of a text in one line of a table."""
    return " ".join(text.split()).replace("|", "/")[:60]


def main() -> None:
    """Install the servers, use each, and print a table."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    subprocess.run(["npm", "install", "--silent", "--no-save", "--prefix", FOLDER, *FROM_NPM], check=True)
    subprocess.run([sys.executable, "-m", "venv", FOLDER / "python"], check=True)
    subprocess.run(
        [FOLDER / "python" / "bin" / "pip", "--disable-pip-version-check", "-q", "install", *FROM_PYPI], check=True
    )
    print("| server | tools | calls without an error | what came |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "dot.png").write_bytes(PICTURE)
        for command in (
            ["init", "-q"],
            ["-c", "user.name=Ada", "-c", "user.email=ada@example.org", "commit", "-q", "--allow-empty", "-m", "Begin"],
        ):
            subprocess.run(["git", "-C", folder, *command], check=True)
        for use in USES:
            print(anyio.run(tried, use, folder), flush=True)


if __name__ == "__main__":
    main()
