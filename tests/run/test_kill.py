"""A real process, killed with SIGKILL at random moments, until its run has ended."""

from __future__ import annotations

import os
import random
import signal
import sys
import textwrap
import time
from collections import Counter

import pytest

from tests.thorough import THOROUGH

PROGRAM = textwrap.dedent(
    """
    import os, sys
    import anyio
    from graphagent import END, START, Agent, Context, Strategy, each, node, tool
    from graphagent.errors import RunNotFoundError
    from graphagent.llm import Message, ModelResponse, ToolCall, ToolCalls
    from graphagent.nodes import execute_tools, llm_request
    from graphagent.store import SqliteStore

    def note(folder, text):
        number = os.open(f"{folder}/effects.log", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        os.write(number, f"{text}\\n".encode())
        os.close(number)

    def made(folder):
        @tool
        async def add(number: int, ctx: Context) -> int:
            "Add one."
            note(folder, f"begun {ctx.idempotency_key}")
            await anyio.sleep(0.002)
            note(folder, f"done {ctx.idempotency_key}")
            return number + 1

        class Model:
            name = "counting"

            async def respond(self, request, on_text=None):
                told = [message for message in request.messages if message.role == "tool"]
                await anyio.sleep(0.001)
                if len(told) < 4:
                    calls = [ToolCall("add", {"number": len(told)}, id=f"{len(told)}{side}") for side in "ab"]
                    return ModelResponse(Message.assistant("", calls))
                return ModelResponse(Message.assistant("+".join(message.text for message in told)))

        ask, act = llm_request(), execute_tools(limit=2)
        count = Strategy("count", START >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(str) >> END)

        @node
        async def split(ctx: Context, text: str) -> list[str]:
            return text.split()

        @node
        async def join(ctx: Context, parts: list[str]) -> str:
            return " ".join(parts)

        strategy = Strategy("s", START >> split >> each(count, limit=2) >> join >> END)
        return Agent(strategy, model=Model(), tools=[add], store=SqliteStore(f"{folder}/runs.db"), max_turns=None)

    async def main(folder):
        agent = made(folder)
        try:
            result = await agent.resume("r")
        except RunNotFoundError:
            result = await agent.run("one two", run_id="r")
        note(folder, f"result {result.output}")
    """
)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_run_that_is_killed_again_and_again_ends_right(tmp_path):
    """Over hundreds of kills each run gives its result, and a call that was recorded is not made again."""
    (tmp_path / "killed.py").write_text(PROGRAM)
    sys.path.insert(0, str(tmp_path))
    try:
        from killed import made

        made(tmp_path / "warm")  # what is imported here needs not be imported in each life
        chance = random.Random(7)
        kills, run = 0, 0
        while kills < (200 if THOROUGH else 30):
            kills += _killed_until_done(tmp_path / f"run{run}", chance)
            run += 1
        assert run >= (5 if THOROUGH else 1)
    finally:
        sys.path.remove(str(tmp_path))


def _killed_until_done(folder, chance):
    folder.mkdir()
    log = folder / "effects.log"
    kills = 0
    while _live(folder, log, seen=chance.choice((0, 0, 1, 1, 2, 3)), more=chance.uniform(0, 0.01)):
        kills += 1
    lines = _lines(log)
    assert {line for line in lines if line.startswith("result")} == {"result 1+1+3+3 1+1+3+3"}
    done = Counter(line for line in lines if line.startswith("done"))
    assert len(done) == 8
    # What was in flight when the process died may be made again, once for each time that it died.
    assert sum(done.values()) - len(done) <= 2 * kills
    return kills


def _live(folder, log, *, seen, more):
    """Let a process live until it has done something so often, and a moment more; tell whether it had to be killed."""
    before = len(_lines(log))
    child = os.fork()
    if child == 0:
        _child(folder)
    while len(_lines(log)) < before + seen:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            assert status == 0
            return False
        time.sleep(0.001)
    time.sleep(more)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL)
    return status != 0


def _child(folder):
    status = 1
    try:
        import anyio
        from killed import main

        anyio.run(main, str(folder))
        status = 0
    finally:
        os._exit(status)


def _lines(log):
    return log.read_text().splitlines() if log.exists() else []
