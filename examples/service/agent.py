"""The agent: a desk that knows its customers again, and pays for an order if a colleague agrees in time.

The web application submits messages to it, and workers execute them: `graphagent worker examples.service.agent:desk`.
"""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

from examples.service.stand_in import model_that_follows_rules
from graphagent import END, START, Agent, Context, Strategy, tool
from graphagent.llm import ToolCalls
from graphagent.llm.openai import OpenAIModel
from graphagent.memory import AgentMemory, StoreMemoryProvider, Subject
from graphagent.nodes import Prompt, auto_detect_facts, execute_tools, llm_request, load_all_facts
from graphagent.store import EncryptedStore
from graphagent.store.postgres import PostgresStore

FOLDER = Path(os.environ["SERVICE_FOLDER"])
DECIDE_WITHIN = timedelta(seconds=float(os.environ.get("SERVICE_DECIDE_WITHIN", "86400")))
RULES = "You are the desk of a shop. Be brief and friendly. Call the tool refund when a customer wants money back."
CUSTOMER = Subject("user", "the customer: name, city, what they prefer")


class Bank:
    """Stands in for the client of a bank, which makes one payment for each key. Payments are lines of a file here."""

    async def pay(self, order: str, euros: int, *, key: str) -> None:
        with (FOLDER / "payments.txt").open("a") as payments:
            payments.write(f"{key} {order} {euros}\n")


@tool
async def refund(ctx: Context[Bank], order: str, euros: int) -> str:
    """Pay a customer back."""
    question = f"Refund {euros} euros for {order}?"
    if not await ctx.ask(question, bool, deadline=DECIDE_WITHIN, default=False):
        return "not refunded: no colleague has agreed"
    # If the process dies in this call, it is made again, with the same key.
    await ctx.deps.pay(order, euros, key=ctx.idempotency_key)
    return f"refunded {euros} euros for {order}"


recall, learn = load_all_facts(subjects=[CUSTOMER]), auto_detect_facts(subjects=[CUSTOMER])
ask, act = llm_request(), execute_tools()
strategy: Strategy[Prompt, str] = Strategy(
    "desk",
    START >> recall >> ask,
    ask.on(ToolCalls) >> act >> ask,
    ask.on(str) >> learn >> END,
)

# Runs, threads and facts are sealed with one key.
store = EncryptedStore(PostgresStore("env:DATABASE_URL"), key=f"file:{FOLDER / 'key'}")
if "OPENAI_API_KEY" in os.environ:
    model = OpenAIModel(os.environ.get("SERVICE_MODEL", "gpt-5-mini"))
else:
    model = model_that_follows_rules()
desk = Agent(strategy, model=model, tools=[refund], store=store, system_prompt=RULES, deps_factory=Bank)
desk.install(AgentMemory, provider=StoreMemoryProvider(store))
