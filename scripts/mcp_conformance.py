"""Runs the official conformance suite of the Model Context Protocol against our client, and prints what passes as a table.

`make mcp-conformance` does it, with npm and a network. The suite starts a server for each scenario, and this file again as the
client: an agent that calls each tool once, and whose questions are answered as a person would.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import httpx2

from graphagent import Agent
from graphagent.errors import ToolServerError
from graphagent.llm import ModelRequest, ToolCall
from graphagent.mcp import MCPServer, OAuth
from graphagent.store import MemoryStore
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run

if TYPE_CHECKING:
    from graphagent.run import Question, RunResult

SUITE, NODE = "@modelcontextprotocol/conformance@0.2.0-alpha.12", "node@22"
FOLDER = Path(__file__).parents[1] / ".cache" / "conformance"
REDIRECT = "http://127.0.0.1:8421/callback"
LEFT_OUT = {
    "auth/client-credentials-jwt": "an extension: agents without a person",
    "auth/client-credentials-basic": "an extension: agents without a person",
    "auth/wif-jwt-bearer": "an extension: agents without a person",
    "auth/enterprise-managed-authorization": "an extension: the identity provider of a company",
    "auth/dpop": "an extension: tokens that are bound to a key",
    "auth/dpop-nonce": "an extension: tokens that are bound to a key",
}
"""Scenarios that need not pass, with the reason that `docs/mcp.md` gives."""


def call_each(request: ModelRequest) -> list[ToolCall] | str:
    """Ask for the calls that the scenario names, or for one of each tool."""
    named = context().get("toolCalls")
    if named is not None:
        return [ToolCall(each["name"], each["arguments"], id=str(number)) for number, each in enumerate(named)]
    schemas = [tool.parameters for tool in request.tools]
    calls = [ToolCall(tool.name, example(tool.parameters, schemas), id=tool.name) for tool in request.tools]
    return calls or "There are no tools."


def context() -> dict[str, Any]:
    """Return what the scenario tells the client."""
    found: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    return found


def example(schema: Mapping[str, Any], schemas: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return arguments that fit the parameters of the suite's tools: numbers, texts, and the schema of another tool."""
    other = next((each for each in schemas if each is not schema), {})
    kinds = {"number": 5, "integer": 5, "boolean": True, "object": other}
    return {name: kinds.get(each.get("type"), "text") for name, each in schema.get("properties", {}).items()}


async def answer(question: Question) -> object:
    """Return what a person answers: a form as it is filled in, and where the browser ends after a visit."""
    address = re.search(r"https?://\S+", question.question)
    if address is None:
        return {}
    async with httpx2.AsyncClient(follow_redirects=False) as browser:
        response = await browser.get(address[0])
    return response.headers["location"]


async def client(url: str) -> None:
    """Do what the suite observes: connect, list the tools, call each, answer what is asked."""
    auth = None
    if os.environ["MCP_CONFORMANCE_SCENARIO"].startswith("auth/"):
        known = context()
        auth = OAuth(
            redirect_uri=REDIRECT,
            client_id=known.get("client_id", ""),
            client_secret=known.get("client_secret", ""),
            client_metadata_url="https://conformance-test.local/client-metadata.json",
        )
    model = ScriptedModel([call_each, "Done."])
    server = MCPServer.http(url, name="server", auth=auth)
    async with Agent(single_run(), model=model, tools=[server], store=MemoryStore()) as agent:
        proceed: Callable[[], Awaitable[RunResult[str]]] = partial(agent.run, "Call each tool once.", run_id="run")
        failed = False
        while True:
            try:
                result = await proceed()
            except (
                ToolServerError
            ):  # as where the server has moved to another one for OAuth meanwhile: the run asks again
                if failed:
                    raise
                proceed, failed = partial(agent.resume, "run"), True
                continue
            if not result.questions:
                return
            proceed = partial(agent.resume, "run", answers={each.id: await answer(each) for each in result.questions})


def suite(*arguments: str) -> str:
    """Return what a command of the suite prints."""
    programs = FOLDER / "node_modules" / ".bin"
    environment = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    ended = subprocess.run(
        [programs / "conformance", *arguments], env=environment, capture_output=True, text=True, check=False
    )
    return ended.stdout + ended.stderr


def wrong(scenario: str) -> list[str]:
    """Run a scenario, and return the checks that failed."""
    with tempfile.TemporaryDirectory() as folder:
        command = f"{sys.executable} -m scripts.mcp_conformance"
        said = suite("client", "--command", command, "--scenario", scenario, "--output-dir", folder)
        files = list(Path(folder).rglob("checks.json"))
        if not files:
            return [said.strip().splitlines()[-1]]
        return [
            f"{check['name']}: {check.get('errorMessage') or check['status'].lower()}"
            for file in files
            for check in json.loads(file.read_text("utf-8"))
            if check["status"] in ("FAILURE", "WARNING")
        ]


def main() -> None:
    """Install the suite, run each scenario for clients, and print a table; the code is 1 if one fails that is not left out."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    subprocess.run(["npm", "install", "--silent", "--no-save", "--prefix", FOLDER, SUITE, NODE], check=True)
    scenarios = re.findall(
        r"^  - (\S+)", suite("list").partition("Client scenarios")[2].partition("\n\n")[0], re.MULTILINE
    )
    failed = 0
    print(f"{SUITE.rpartition('@')[2]}, {len(scenarios)} scenarios\n\n| scenario | passes | why not |\n|---|---|---|")
    for scenario in scenarios:
        problems = wrong(scenario)
        failed += bool(problems) and scenario not in LEFT_OUT
        why = LEFT_OUT.get(scenario, "; ".join(problems)) if problems else ""
        print(f"| {scenario} | {'no' if problems else 'yes'} | {why} |", flush=True)
    sys.exit(f"{failed} fail" if failed or not scenarios else 0)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        anyio.run(client, sys.argv[1])
    else:
        main()
