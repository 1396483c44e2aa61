"""Draft, criticise, revise: until the critic has nothing to improve, or for a number of rounds."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile

from graphagent import END, START, Context, Strategy, node
from graphagent.events import TextStreamed
from graphagent.llm import ToolCalls
from graphagent.memory import ActionStep, MessageStep
from graphagent.nodes import Prompt, execute_tools, llm_request, update_prompt

_ANNOUNCE = "Your answer is a draft: it will be criticised, and then you revise it.{criteria}"
_CRITICISE = "Criticise the last draft as a strict reader. Name only improvements that matter, each with its place."
_REVISE = "Revise the draft. Answer with the whole new text and nothing else. Improve this:\n"


@dataclass(frozen=True, slots=True)
class Critique:
    """What would make a draft better, point by point; nothing if it is good enough."""

    improvements: list[str]


@node
async def last_draft(ctx: Context, end: Critique | str) -> str:
    """Return the last draft as the answer, and stream it now, since it could be revised before."""
    outputs = (step.action_output for step in reversed(ctx.memory.steps) if isinstance(step, ActionStep))
    answer = next(output for output in outputs if isinstance(output, str))
    ctx.emit(TextStreamed(ctx.run_id, ctx.node, answer))
    return answer


def is_satisfied(critique: Critique) -> bool:
    """Return whether there is nothing to improve."""
    return not critique.improvements


def to_revision(critique: Critique) -> str:
    """Return the prompt of the next draft."""
    return _REVISE + "\n".join(f"- {point}" for point in critique.improvements)


def reflect(
    *, criteria: str = "", rounds: int = 2, parallel_tools: int = 1, name: str = "reflect"
) -> Strategy[Prompt, str]:
    """Make a strategy that has the model criticise and revise its own text.

    The last revision is not criticised, so a run takes at most `1 + 2 * rounds` turns, and those with tool calls.

    ```mermaid
    flowchart TD
        START(("START"))
        n1("prepare"):::tap
        n2["draft"]
        n3["execute_tools"]
        n4["criticise"]
        n5["last_draft"]
        END((("END")))
        START --> n1
        n1 --> n2
        n2 -->|"on ToolCalls"| n3
        n3 --> n2
        n2 -->|"on str, when rounds_are_left, map to_critique"| n4
        n2 -->|"on str"| n5
        n5 --> END
        n4 -->|"when is_satisfied"| n5
        n4 -->|"otherwise, map to_revision"| n2
        classDef tap stroke-dasharray: 4 3
    ```

    Args:
        criteria: The criteria for a good text; the model knows them when it drafts, criticises and revises.
        rounds: The largest number of revisions.
        parallel_tools: How many of a turn's tool calls run at once; by default one after the other.
        name: The name of the strategy.

    Raises:
        TypeError: the criteria are not text.
        ValueError: the number of rounds is less than 1.
    """
    if type(rounds) is not int or rounds < 1:
        raise ValueError(f"{name!r}: rounds={rounds!r} would never revise; give 1 or more, or use single_run")
    if not isinstance(criteria, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{name!r}: criteria={criteria!r} is not text; write criteria='short and plain'")
    announcement = _ANNOUNCE.format(criteria=f" It should be like this: {criteria}" if criteria else "")

    def rounds_are_left(ctx: Context, draft: str) -> bool:
        said = (step.message.text for step in reversed(ctx.memory.steps) if isinstance(step, MessageStep))
        revised = sum(text.startswith(_REVISE) for text in takewhile(lambda text: text != announcement, said))
        return revised < rounds

    def to_critique(draft: str) -> str:
        return _CRITICISE

    prepare = update_prompt(announcement, name="prepare")
    draft = llm_request(name="draft", purpose="draft")
    act = execute_tools(limit=parallel_tools)
    criticise = llm_request(output=Critique, name="criticise", purpose="decision")
    return Strategy(
        name,
        START >> prepare >> draft,
        draft.on(ToolCalls) >> act >> draft,
        draft.on(str).when(rounds_are_left).map(to_critique) >> criticise,
        draft.on(str) >> last_draft >> END,
        criticise.when(is_satisfied) >> last_draft,
        criticise.otherwise().map(to_revision) >> draft,
    )
