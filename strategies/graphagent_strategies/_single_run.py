"""The plainest agent: ask the model, execute the tools that it calls, until it answers with text."""

from __future__ import annotations

from graphagent import END, START, Strategy
from graphagent.llm import ToolCalls
from graphagent.nodes import Prompt, execute_tools, llm_request


def single_run(*, parallel_tools: int = 1, name: str = "single_run") -> Strategy[Prompt, str]:
    """Make a strategy that asks the model, executes the tools that it calls, and ends with its first text.

    ```mermaid
    flowchart TD
        START(("START"))
        n1["llm_request"]
        n2["execute_tools"]
        END((("END")))
        START --> n1
        n1 -->|"on ToolCalls"| n2
        n2 --> n1
        n1 -->|"on str"| END
        classDef tap stroke-dasharray: 4 3
    ```

    Args:
        parallel_tools: How many of a turn's tool calls run at once; by default one after the other.
        name: The name of the strategy.
    """
    ask = llm_request()
    act = execute_tools(limit=parallel_tools)
    return Strategy(
        name,
        START >> ask,
        ask.on(ToolCalls) >> act >> ask,
        ask.on(str) >> END,
    )
