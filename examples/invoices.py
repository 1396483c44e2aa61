"""Pays four invoices, and may be killed at any moment: what was done is not done again.

    python examples/invoices.py

While it pays, stop it with `kill -9` from another terminal, and start it again. Its files are in a temporary folder that outlives
the process, and are removed when all is paid.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import anyio

from graphagent import END, START, Agent, Context, Strategy, tool
from graphagent.errors import RunNotFoundError
from graphagent.llm import Message, ModelRequest, ModelResponse, ToolCall, ToolCalls
from graphagent.nodes import execute_tools, llm_request
from graphagent.store import SqliteStore

INVOICES = [("Ada", 120), ("Grace", 340), ("Edsger", 95), ("Barbara", 210)]
FOLDER = Path(tempfile.gettempdir()) / f"invoices-{os.getuid()}"
BANK = FOLDER / "bank.txt"
SECONDS = float(os.environ.get("SECONDS_PER_PAYMENT", "0.8"))


def transfer(name: str, euros: int, key: str) -> None:
    """What a bank does: it knows a payment by its key, and makes it once."""
    booked = BANK.read_text("utf-8") if BANK.exists() else ""
    if f"key {key}\n" not in booked:
        BANK.write_text(f"{booked}{name} {euros}, key {key}\n", "utf-8")


@tool
async def pay(name: str, euros: int, ctx: Context) -> str:
    """Pay an invoice."""
    await anyio.sleep(SECONDS)
    transfer(
        name, euros, ctx.idempotency_key
    )  # a call that the end of the process cut short is made again, with the same key
    print(f"  bank:  paid {name} {euros} euros", flush=True)
    return "paid"


class Clerk:
    """Stands in for a model such as OpenAIModel("gpt-5-mini"): asks for one payment after the other."""

    name = "clerk"

    async def respond(self, request: ModelRequest, on_text: Callable[[str], None] | None = None) -> ModelResponse:
        paid = sum(message.role == "tool" for message in request.messages)
        if paid == len(INVOICES):
            return ModelResponse(Message.assistant("All invoices are paid."))
        name, euros = INVOICES[paid]
        print(f"  model: pay {name} {euros} euros", flush=True)
        return ModelResponse(Message.assistant("", [ToolCall("pay", {"name": name, "euros": euros}, id=name)]))


FOLDER.mkdir(mode=0o700, exist_ok=True)
ask, act = llm_request(), execute_tools()
invoices = Strategy("invoices", START >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(str) >> END)
agent = Agent(invoices, model=Clerk(), tools=[pay], store=SqliteStore(FOLDER / "runs.db"))


async def main() -> None:
    try:
        result = await agent.resume("november")
    except RunNotFoundError:
        result = await agent.run("Pay the invoices of November.", run_id="november")
    print(result.output)
    print("The bank has booked:", *(line.partition(",")[0] for line in BANK.read_text("utf-8").splitlines()), sep="\n")


anyio.run(main)
shutil.rmtree(FOLDER)
