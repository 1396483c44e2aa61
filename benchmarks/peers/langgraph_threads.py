"""A chat in LangGraph: one invocation a message in one thread, with its AsyncSqliteSaver, which is told to wait for each checkpoint."""

from __future__ import annotations

import asyncio
import json
import operator
import sys
import time
from typing import Annotated, TypedDict

from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph

from benchmarks import durable

ANSWER = {"role": "assistant", "content": durable.message(1)["content"]}


class Talk(TypedDict):
    messages: Annotated[list[dict], operator.add]


async def answer(state: Talk) -> dict:
    return {"messages": [ANSWER]}


async def main(path: str, messages: int) -> list[float]:
    graph = StateGraph(Talk)
    graph.add_node("answer", answer)
    graph.add_edge(START, "answer")
    graph.add_edge("answer", END)
    took = []
    async with AsyncSqliteSaver.from_conn_string(path) as saver:
        await saver.conn.execute("PRAGMA synchronous=NORMAL")
        ready = graph.compile(checkpointer=saver)
        for number in range(messages):
            began = time.process_time()
            said = {"messages": [durable.message(number)]}
            state = await ready.ainvoke(said, {"configurable": {"thread_id": "chat"}}, durability="sync")
            took.append(time.process_time() - began)
    if len(state["messages"]) != 2 * messages:
        raise AssertionError(f"the chat has {len(state['messages'])} messages")
    return took


print(json.dumps(asyncio.run(main(sys.argv[1], int(sys.argv[2])))))
