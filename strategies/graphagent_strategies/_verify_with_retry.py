"""Answer, have the answer checked, and answer again with the feedback, up to a number of attempts."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from itertools import takewhile

from graphagent import END, START, Context, Strategy, node
from graphagent.events import TextStreamed
from graphagent.llm import ToolCalls
from graphagent.memory import MessageStep
from graphagent.nodes import Accepted, Prompt, Rejected, execute_tools, llm_request, update_prompt, verify

_ANNOUNCE = "Your answer is checked before it is accepted. If it is refused, you learn why and answer again.{criteria}"
_REFUSED = "The answer was refused: "
_CORRECT = "It is correct, complete, and what was asked for."

Check = Callable[[str], Accepted | Rejected | Awaitable[Accepted | Rejected]]
"""A function that judges an answer, async or not."""


def to_retry(rejected: Rejected) -> str:
    """Return the prompt of the next attempt."""
    return f"{_REFUSED}{rejected.feedback}\nAnswer again, in full."


def verify_with_retry(
    check: str | Check = _CORRECT, *, attempts: int = 3, parallel_tools: int = 1, name: str = "verify_with_retry"
) -> Strategy[Prompt, str | Rejected]:
    """Make a strategy that returns an answer as text if it passed a check, and otherwise the last one as `Rejected`.

    Refused answers and the feedback stay in the transcript. Each outcome has an edge of its own: `verified.on(Rejected) >> ask_a_person`.

    ```mermaid
    flowchart TD
        START(("START"))
        n1("prepare"):::tap
        n2["llm_request"]
        n3["execute_tools"]
        subgraph n4["verify"]
            n4_START((" "))
            subgraph n4_n1["parallel"]
                n4_n1_START((" "))
                n4_n1_n1["value"]
                n4_n1_START --> n4_n1_n1
                n4_n1_n1 --> n4_n1_END
                subgraph n4_n1_n2["judge<br/>own tools"]
                    n4_n1_n2_START((" "))
                    n4_n1_n2_n1["instruct"]
                    n4_n1_n2_n2["llm_request"]
                    n4_n1_n2_END(((" ")))
                    n4_n1_n2_START --> n4_n1_n2_n1
                    n4_n1_n2_n1 --> n4_n1_n2_n2
                    n4_n1_n2_n2 --> n4_n1_n2_END
                end
                n4_n1_START --> n4_n1_n2_START
                n4_n1_n2_END --> n4_n1_END
                n4_n1_END(((" ")))
            end
            n4_n2["decide"]
            n4_END(((" ")))
            n4_START --> n4_n1_START
            n4_n1_END --> n4_n2
            n4_n2 --> n4_END
        end
        n5["accepted_answer"]
        END((("END")))
        START --> n1
        n1 --> n2
        n2 -->|"on ToolCalls"| n3
        n3 --> n2
        n2 -->|"on str"| n4_START
        n4_END -->|"on Accepted"| n5
        n5 --> END
        n4_END -->|"on Rejected, when is_last"| END
        n4_END -->|"on Rejected, map to_retry"| n2
        classDef tap stroke-dasharray: 4 3
    ```

    Args:
        check: A requirement for answers, which the model knows when it answers and by which it judges the answer afterwards.
            Or a function of the answer, async or not, that returns `Accepted(answer)` or `Rejected(answer, feedback)`.
        attempts: The largest number of answers.
        parallel_tools: How many of a turn's tool calls run at once; by default one after the other.
        name: The name of the strategy.

    Raises:
        TypeError, ValueError: The check is neither text nor a function, or the number of attempts is less than 1.
    """
    if type(attempts) is not int or attempts < 1:
        raise ValueError(f"{name!r}: attempts={attempts!r} would never answer; give 1 or more")
    if not isinstance(check, str) and not callable(check):
        raise TypeError(f"{name!r}: check= is text, or a function that returns Accepted or Rejected, not {check!r}")
    announcement = _ANNOUNCE.format(criteria=f" This must hold: {check}" if isinstance(check, str) else "")

    @node
    async def accepted_answer(ctx: Context, accepted: Accepted[str]) -> str:
        ctx.emit(TextStreamed(ctx.run_id, ctx.node, accepted.value))  # it was not streamed while it could be refused
        return accepted.value

    def is_last(ctx: Context, rejected: Rejected) -> bool:
        said = (step.message.text for step in reversed(ctx.memory.steps) if isinstance(step, MessageStep))
        return 1 + sum(text.startswith(_REFUSED) for text in takewhile(announcement.__ne__, said)) >= attempts

    @node(name="verify")
    async def function(ctx: Context, answer: str) -> Accepted | Rejected:
        assert not isinstance(check, str)
        return await verdict if inspect.isawaitable(verdict := check(answer)) else verdict

    ask, judge = llm_request(purpose="draft"), verify(check) if isinstance(check, str) else function
    return Strategy(
        name,
        START >> update_prompt(announcement, name="prepare") >> ask,
        ask.on(ToolCalls) >> execute_tools(limit=parallel_tools) >> ask,
        ask.on(str) >> judge,
        judge.on(Accepted) >> accepted_answer >> END,
        judge.on(Rejected).when(is_last) >> END,
        judge.on(Rejected).map(to_retry) >> ask,
    )
