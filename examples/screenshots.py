"""Screenshots: the newest two are sent to the model, the older ones are kept in the journal and sent no more.

python examples/screenshots.py
python examples/screenshots.py --model qwen2.5vl --base-url http://localhost:11434/v1
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from struct import pack
from zlib import compress, crc32

import anyio

from graphagent import Agent, Run, tool
from graphagent.llm import Image, ToolCall, ToolCalls
from graphagent.llm.openai import OpenAIModel
from graphagent.memory import ActionStep
from graphagent.store import SqliteStore
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run


def picture(shade: int) -> Image:
    """Make a grey PNG of 64 x 64 pixels, in the place of what a browser shows."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return pack(">I", len(data)) + kind + data + pack(">I", crc32(kind + data))

    rows = b"".join(b"\0" + bytes([shade]) * 64 for _ in range(64))
    head = pack(">IIBBBBB", 64, 64, 8, 0, 0, 0, 0)
    return Image(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", compress(rows)) + chunk(b"IEND", b""))


@tool
def go_to(page: int) -> str:
    """Open a page in the browser."""
    return f"page {page} is open"


async def update_screenshot(step: ActionStep, run: Run[str]) -> None:
    """Keep the newest two screenshots before the model: take the images off older steps, put a new one on this step."""
    for earlier in run.memory.steps:
        if isinstance(earlier, ActionStep) and earlier.step_number <= step.step_number - 2:
            earlier.observations_images = ()
    if step.tool_calls:
        step.observations_images = (picture(step.step_number * 20),)


async def main(options: argparse.Namespace) -> None:
    pages = [ToolCalls([ToolCall("go_to", {"page": number})]) for number in range(1, 7)]
    stand_in = ScriptedModel([*pages, "I have seen six pages."])
    model = OpenAIModel(options.model, base_url=options.base_url) if options.model else stand_in
    with tempfile.TemporaryDirectory() as folder:
        await look(Path(folder), model)


async def look(folder: Path, model: OpenAIModel | ScriptedModel) -> None:
    async with SqliteStore(folder / "browser.db") as store:
        agent = Agent(single_run(), model=model, tools=[go_to], store=store, step_callbacks=[update_screenshot])
        result = await agent.run("Look at the pages 1 to 6, one after the other.")
        print(result.output)

        turns = [step for step in result.memory.steps if isinstance(step, ActionStep)]
        shown = [sum(len(message.images) for message in turn.model_input_messages) for turn in turns]
        print(f"images in each prompt: {shown}")
        assert max(shown) <= 2

        history = await agent.history(result.run_id)
        opened = [entry.number for entry in history if entry.node == "execute_tools"]
        if not opened:
            print("the model opened no page, so no screenshot was taken")
            return
        step = (await agent.state_at(result.run_id, opened[0])).memory.steps[-1]
        assert isinstance(step, ActionStep)
        print(f"the journal still has the first: {len(step.observations_images[0].data)} bytes")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a model of an OpenAI-compatible server; without one a script answers")
    parser.add_argument("--base-url", help="where the server is")
    anyio.run(main, parser.parse_args())
