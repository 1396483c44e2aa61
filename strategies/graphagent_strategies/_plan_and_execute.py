"""Plan first, carry out the plan step by step, and plan further with the results."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile

from graphagent import END, START, Context, Strategy, node, tap
from graphagent.llm import Message, ToolCalls
from graphagent.memory import ActionStep, MessageStep
from graphagent.nodes import Prompt, execute_tools, llm_request

_PLAN = "First make a plan: the steps that lead to the answer, each of which can be carried out by itself. Carry out none yet."
_REVIEW = "All steps were carried out. Which further steps does the answer need? If it needs none, name none."
_ANSWER = "Now give the answer, from what the steps brought."


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps that lead to the answer, in order; none if it can be given at once."""

    steps: list[str]


@dataclass(frozen=True, slots=True)
class Revision(Plan):
    """The further steps that the answer needs, in order; none if it can be given now."""


def outputs_of(ctx: Context) -> list[object]:
    """Return the outputs of the model's turns, the newest first."""
    turns = (step for step in reversed(ctx.memory.steps) if isinstance(step, ActionStep))
    return [turn.action_output for turn in turns if turn.action_output is not None and turn.error is None]


@tap
async def prepare(ctx: Context, task: Prompt) -> None:
    """Ask for a plan, and name the tools, which are not offered to the model while it makes one."""
    names = ", ".join(tool.name for tool in ctx.tools)
    tools = f" These tools can be called in a step: {names}." if names else ""
    await ctx.add(MessageStep(Message.user(_PLAN + tools)))


@node
async def next_step(ctx: Context, before: Plan | str) -> str | None:
    """Return the prompt for the first step not carried out, or None if all were."""
    outputs = outputs_of(ctx)
    done = sum(1 for _ in takewhile(lambda output: isinstance(output, str), outputs))
    plan = outputs[done]
    assert isinstance(plan, Plan)
    if done >= len(plan.steps):
        return None
    return f"Carry out step {done + 1} of {len(plan.steps)}, and say what came of it: {plan.steps[done]}"


def plan_and_execute(
    *, replans: int = 2, parallel_tools: int = 1, name: str = "plan_and_execute"
) -> Strategy[Prompt, str]:
    """Make a strategy that plans, carries out the plan step by step, and asks whether more steps are needed.

    Besides the turns with tool calls, a run takes one turn for the plan, one for each step, one for each review and one for the
    answer.

    ```mermaid
    flowchart TD
        START(("START"))
        n1("prepare"):::tap
        n2["plan"]
        n3["next_step"]
        n4["carry_out"]
        n5["execute_tools"]
        n6["review"]
        n7["answer"]
        END((("END")))
        START --> n1
        n1 --> n2
        n2 --> n3
        n3 -->|"on str"| n4
        n4 -->|"on ToolCalls"| n5
        n5 --> n4
        n4 -->|"on str"| n3
        n3 -->|"on None, when may_replan, map"| n6
        n6 --> n3
        n3 -->|"on None, map"| n7
        n7 --> END
        classDef tap stroke-dasharray: 4 3
    ```

    Args:
        replans: The largest number of reviews, each of which may add steps; 0 for none.
        parallel_tools: How many of a turn's tool calls run at once; by default one after the other.
        name: The name of the strategy.

    Raises:
        ValueError: the number of reviews is negative.
    """
    if type(replans) is not int or replans < 0:
        raise ValueError(f"{name!r}: replans={replans!r} is not a number of reviews; give 0 or more")

    def may_replan(ctx: Context, steps: None) -> bool:
        plans = [output for output in outputs_of(ctx) if isinstance(output, Plan)]
        revisions = sum(1 for _ in takewhile(lambda plan: isinstance(plan, Revision), plans))
        return bool(plans[0].steps) and revisions < replans

    plan = llm_request(output=Plan, name="plan", purpose="plan")
    carry_out = llm_request(name="carry_out", purpose="draft")
    act = execute_tools(limit=parallel_tools)
    review = llm_request(output=Revision, name="review", purpose="plan")
    answer = llm_request(tools=False, name="answer")
    return Strategy(
        name,
        START >> prepare >> plan >> next_step,
        next_step.on(str) >> carry_out,
        carry_out.on(ToolCalls) >> act >> carry_out,
        carry_out.on(str) >> next_step,
        next_step.on(None).when(may_replan).map(lambda _: _REVIEW) >> review >> next_step,
        next_step.on(None).map(lambda _: _ANSWER) >> answer >> END,
    )
