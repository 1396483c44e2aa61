"""Reason, then act: the model thinks aloud without tools before it calls any, and again every few turns."""

from __future__ import annotations

from itertools import takewhile

from graphagent import END, START, Context, Strategy
from graphagent.llm import ToolCalls, ToolResults
from graphagent.memory import ActionStep
from graphagent.nodes import Prompt, execute_tools, llm_request, update_prompt

_REASON = """\
Before you act, think aloud: what is known, what is missing, which step comes next? Call no tool and give no answer yet."""

_ACT = "Go on from these thoughts: call the tools that you need, or give the answer."


def to_action(thoughts: str) -> str:
    """Return the prompt after the model's thoughts, which are in the transcript already."""
    return _ACT


def react(*, reasoning_interval: int = 1, parallel_tools: int = 1, name: str = "react") -> Strategy[Prompt, str]:
    """Make a strategy that reasons without tools before it acts, and again after every so many turns of tool calls.

    Thoughts are model turns of their own, and stay in the transcript; the tools are not offered while the model thinks. The
    answer comes from an acting turn, so a question that needs no tool takes two turns.

    ```mermaid
    flowchart TD
        START(("START"))
        n1("prepare"):::tap
        n2["reason"]
        n3["act"]
        n4["execute_tools"]
        END((("END")))
        START --> n1
        n1 --> n2
        n2 -->|"map to_action"| n3
        n3 -->|"on ToolCalls"| n4
        n3 -->|"on str"| END
        n4 -->|"when time_to_reason"| n1
        n4 -->|"otherwise"| n3
        classDef tap stroke-dasharray: 4 3
    ```

    Args:
        reasoning_interval: How many turns of tool calls follow one reasoning: with 1 it thinks before every turn.
        parallel_tools: How many of a turn's tool calls run at once; by default one after the other.
        name: The name of the strategy.

    Raises:
        ValueError: the interval is less than 1.
    """
    if type(reasoning_interval) is not int or reasoning_interval < 1:
        raise ValueError(f"{name!r}: reasoning_interval={reasoning_interval!r} would never act; give 1 or more")

    def time_to_reason(ctx: Context, results: ToolResults) -> bool:
        turns = (step for step in reversed(ctx.memory.steps) if isinstance(step, ActionStep))
        since = sum(1 for _ in takewhile(lambda turn: turn.tool_calls, turns))  # thoughts call no tools
        return since >= reasoning_interval

    prepare = update_prompt(_REASON, name="prepare")
    reason = llm_request(tools=False, name="reason", purpose="draft")
    act = llm_request(name="act")
    execute = execute_tools(limit=parallel_tools)
    return Strategy(
        name,
        START >> prepare >> reason,
        reason.map(to_action) >> act,
        act.on(ToolCalls) >> execute,
        act.on(str) >> END,
        execute.when(time_to_reason) >> prepare,
        execute.otherwise() >> act,
    )
