"""An assistant that knows the person it talks to: facts are loaded before it answers and learned afterwards."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from graphagent import END, START, Strategy
from graphagent.llm import ToolCalls
from graphagent.nodes import Prompt, auto_detect_facts, execute_tools, llm_request, load_all_facts

if TYPE_CHECKING:
    from graphagent.memory import Subject


def personal(
    *, subjects: Iterable[Subject] | None = None, parallel_tools: int = 1, name: str = "personal"
) -> Strategy[Prompt, str]:
    """Make a strategy that answers with all known facts, and keeps new facts; it needs `AgentMemory`.

    The conversation of a run is searched for facts once, after the answer, so a run costs one model request more than
    `single_run`. The facts are kept in the scope of the agent, by default under the strategy's name.

    ```mermaid
    flowchart TD
        START(("START"))
        n1("load_all_facts"):::tap
        n2["llm_request"]
        n3["execute_tools"]
        n4("auto_detect_facts"):::tap
        END((("END")))
        START --> n1
        n1 --> n2
        n2 -->|"on ToolCalls"| n3
        n3 --> n2
        n2 -->|"on str"| n4
        n4 --> END
        classDef tap stroke-dasharray: 4 3
    ```

    Args:
        subjects: The subjects of the facts; by default those passed to `install(AgentMemory, subjects=…)`.
        parallel_tools: How many of a turn's tool calls run at once; by default one after the other.
        name: The name of the strategy.
    """
    about = None if subjects is None else tuple(subjects)
    recall = load_all_facts(subjects=about)
    ask = llm_request()
    act = execute_tools(limit=parallel_tools)
    learn = auto_detect_facts(subjects=about)
    return Strategy(
        name,
        START >> recall >> ask,
        ask.on(ToolCalls) >> act >> ask,
        ask.on(str) >> learn >> END,
    )
