"""A chat with one run a message: how much it takes on disk, and how much CPU time a message takes as the chat grows.

Each way is measured in a process of its own, `python -m benchmarks.threads WAY FILE MESSAGES`, which prints a line of JSON: the
CPU seconds of each message. Ways: `thread`, `steps` (the transcript of the run before, which the store has), `copies` (a
transcript that the store does not have) and `start` (a thread, and a new agent for each message).
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import repeat
from pathlib import Path

import anyio

from benchmarks.compare import HOME, PEERS, installed
from benchmarks.durable import message
from benchmarks.measure import milli, table, weight
from graphagent import END, START, Agent, Strategy
from graphagent.memory import RunMemory
from graphagent.nodes import llm_request
from graphagent.store import SqliteStore
from graphagent.testing import ScriptedModel

ANSWER = message(1)["content"]
WAYS = {
    "thread": "`agent.run(…, thread=…)`",
    "start": "the same, read anew for each message",
    "steps": "`agent.run(…, steps=result.memory)`",
    "copies": "`steps=` of a transcript that the store does not have",
}
LANGGRAPH = "LangGraph, `AsyncSqliteSaver`"


def report(*, quick: bool) -> str:
    """Chat in each way. Return the table."""
    messages = 20 if quick else 320
    rows = [_row(name, [sys.executable, "-m", "benchmarks.threads", way], messages) for way, name in WAYS.items()]
    if installed("langgraph.checkpoint.sqlite"):
        rows.append(_row(LANGGRAPH, [str(PEERS), "-m", "benchmarks.peers.langgraph_threads"], messages))
    head = [f"{messages} messages, one run each", "on disk", "CPU in all", "CPU a message, first tenth", "last tenth"]
    return table(head, rows)


def _row(name: str, command: list[str], messages: int) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "chat.db"
        ended = subprocess.run(
            [*command, str(path), str(messages)], cwd=HOME, capture_output=True, text=True, check=True
        )
        took = json.loads(ended.stdout)
        size = sum(file.stat().st_size for file in Path(folder).iterdir())
    part = max(len(took) // 10, 1)
    means = [milli(statistics.median(each)) for each in (took[:part], took[-part:])]
    return [name, weight(size), f"{sum(took):.2f} s", *means]


async def chat(way: str, path: Path, messages: int) -> list[float]:
    """Chat. Return the CPU seconds of each message."""
    strategy = Strategy("chat", START >> llm_request() >> END)
    async with SqliteStore(path, synchronous="NORMAL") as store:
        agent = Agent(strategy, model=ScriptedModel(repeat(ANSWER)), store=store)
        took: list[float] = []
        steps: RunMemory | None = None
        for number in range(messages):
            began = time.process_time()
            if way in ("thread", "start"):
                if way == "start":
                    agent = Agent(strategy, model=ScriptedModel(repeat(ANSWER)), store=store)
                result = await agent.run(message(number)["content"], thread="chat")
            else:
                result = await agent.run(message(number)["content"], steps=steps)
            steps = result.memory if way != "copies" else RunMemory(steps=result.memory.steps)
            took.append(time.process_time() - began)
    if len(result.memory.steps) != 3 * messages:
        raise AssertionError(f"the chat has {len(result.memory.steps)} steps")
    return took


if __name__ == "__main__":
    print(json.dumps(anyio.run(chat, sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))))
