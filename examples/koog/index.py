"""Koog's predefined nodes, subgraphs and strategies, each beside what does the same here.

    python examples/koog/index.py       # prints the table: the name in Koog, the program, and the function in it
    python examples/koog/llm_nodes.py   # runs the examples of one program, offline
    python examples/koog/llm_nodes.py --model llama3.2 --base-url http://localhost:11434/v1

The programs, in the order in which Koog's documentation has these parts:

    utility_nodes.py    nodes without a model
    llm_nodes.py        nodes that ask a model: text, forced calls, structured output, streaming, moderation, compression, choices
    tool_nodes.py       nodes that execute tools
    parallel_nodes.py   branches, and what becomes of their results
    subgraphs.py        subgraphs with tools of their own, tasks, verification, retries
    strategies.py       ready-made strategies

Each example is a function that runs one agent, and returns the printed text.
"""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import anyio

from graphagent import Agent, Strategy, tool
from graphagent.llm.openai import OpenAIModel
from graphagent.testing import Reply, ScriptedModel

if TYPE_CHECKING:
    from graphagent.llm import Tool

EXAMPLES = {
    "nodeDoNothing": "utility_nodes.py do_nothing",
    "node { }": "utility_nodes.py custom_node",
    "nodeAppendPrompt": "utility_nodes.py append_prompt",
    "transform": "utility_nodes.py transform",
    "nodeLLMRequest": "llm_nodes.py request",
    "nodeLLMRequest(allowToolCalls = false)": "llm_nodes.py request_without_tools",
    "nodeLLMSendMessageOnlyCallingTools": "llm_nodes.py only_calling_tools",
    "nodeLLMSendMessageForceOneTool": "llm_nodes.py force_one_tool",
    "nodeLLMRequestStructured": "llm_nodes.py structured",
    "nodeSetStructuredOutput": "llm_nodes.py structured_with_tools",
    "nodeLLMRequestStreaming": "llm_nodes.py streaming",
    "nodeLLMRequestStreamingAndSendResults": "llm_nodes.py streaming_with_tools",
    "nodeLLMModerateText": "llm_nodes.py moderate_text",
    "nodeLLMModerateMessage": "llm_nodes.py moderate_message",
    "nodeLLMCompressHistory(WholeHistory)": "llm_nodes.py compress_whole_history",
    "nodeLLMCompressHistory(FromLastNMessages)": "llm_nodes.py compress_all_but_the_last",
    "nodeLLMCompressHistory(Chunked)": "llm_nodes.py compress_in_chunks",
    "nodeLLMCompressHistory(RetrieveFactsFromHistory)": "llm_nodes.py compress_to_facts",
    "nodeLLMSendResultsMultipleChoices, nodeSelectLLMChoice": "llm_nodes.py several_choices",
    "nodeExecuteTools": "tool_nodes.py one_after_the_other",
    "nodeExecuteTools(parallel = true)": "tool_nodes.py at_once",
    "nodeLLMSendToolResults": "tool_nodes.py one_after_the_other",
    "nodeExecuteSingleTool": "tool_nodes.py single_tool",
    "nodeExecuteMultipleToolsAndSendResults": "tool_nodes.py execute_and_send",
    "parallel { fold }": "parallel_nodes.py fold",
    "parallel { selectBy }": "parallel_nodes.py select_by",
    "parallel { selectByMax }": "parallel_nodes.py select_by_max",
    "parallel { selectByIndex }": "parallel_nodes.py select_by_index",
    "subgraph (ToolSelectionStrategy.ALL)": "subgraphs.py all_tools",
    "subgraph (ToolSelectionStrategy.NONE)": "subgraphs.py no_tools",
    "subgraph (ToolSelectionStrategy.Tools)": "subgraphs.py listed_tools",
    "subgraph (ToolSelectionStrategy.AutoSelectForTask)": "subgraphs.py selected_tools",
    "subgraph (freshHistory)": "subgraphs.py own_transcript",
    "subgraphWithTask": "subgraphs.py with_task",
    "subgraphWithVerification": "subgraphs.py with_verification",
    "subgraphWithRetry": "subgraphs.py with_retry",
    "singleRunStrategy": "strategies.py one_run",
    "singleRunStrategy(ToolCalls.PARALLEL)": "strategies.py one_run_parallel",
    "singleRunStrategyWithHistoryCompression": "strategies.py one_run_with_compression",
    "singleRunStrategyWithTerminalTools": "strategies.py one_run_with_terminal_tools",
    "chatAgentStrategy": "strategies.py tools_only",
    "reActStrategy": "strategies.py reasoning_and_acting",
    "structuredOutputWithToolsStrategy": "strategies.py structured_output_with_tools",
    "functionalStrategy": "strategies.py functional",
    "SimpleLLMPlanner, SimpleLLMWithCriticPlanner": "strategies.py planner",
    "AIAgent.asTool": "strategies.py agent_as_tool",
}
"""The program and the function for each name in Koog."""


@tool
def weather(city: str) -> str:
    """Return the weather of a city."""
    return f"sunny in {city}"


@tool
def clock(city: str) -> str:
    """Return the time in a city."""
    return f"noon in {city}"


def agent(
    strategy: Strategy[Any, Any], *script: Reply, tools: Sequence[Tool | Agent[Any, Any]] = (), **options: Any
) -> Agent[Any, Any]:
    """Return an agent whose model is that of the command line, or else answers with a script."""
    return Agent(strategy, model=model_of(*script), tools=tools, **options)


def model_of(*script: Reply) -> OpenAIModel | ScriptedModel:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model")
    parser.add_argument("--base-url")
    given = parser.parse_args()
    return OpenAIModel(given.model, base_url=given.base_url) if given.model else ScriptedModel(script)


def show(*examples: Callable[[], Awaitable[object]]) -> None:
    """Run examples, one after the other, and print what each returns."""
    for example in examples:
        print(f"{example.__name__}: {anyio.run(example)}")


if __name__ == "__main__":
    for name, place in EXAMPLES.items():
        print(f"{name:55} {place}")
