"""A conversation in one run: the model answers, and the run waits for the person's next message."""

from __future__ import annotations

from collections.abc import Iterable

from graphagent import END, START, Context, Strategy, node
from graphagent.llm import ToolCalls
from graphagent.memory import ActionStep
from graphagent.nodes import Prompt, ask_human, execute_tools, llm_request


@node
async def last_answer(ctx: Context, farewell: str | None) -> str:
    """Return the last text of the model."""
    turns = (step for step in reversed(ctx.memory.steps) if isinstance(step, ActionStep) and step.error is None)
    return next(turn.model_output or "" for turn in turns)


def chat(
    *, endings: Iterable[str] = ("bye", "exit", "quit"), parallel_tools: int = 1, name: str = "chat"
) -> Strategy[Prompt, str]:
    """Make a strategy that answers, waits for the person's next message, and so on until the person leaves.

    Each answer of the model is the question of `result.pending`, and the next message is the answer to that question:
    `agent.resume(run_id, answer="And tomorrow?")`. None, or one of the endings, ends the conversation. Its output is the last
    answer of the model. The budgets of the agent are those of the whole conversation.

    ```mermaid
    flowchart TD
        START(("START"))
        n1["llm_request"]
        n2["execute_tools"]
        n3["listen"]
        n4["last_answer"]
        END((("END")))
        START --> n1
        n1 -->|"on ToolCalls"| n2
        n2 --> n1
        n1 -->|"on str"| n3
        n3 -->|"on None"| n4
        n4 --> END
        n3 -->|"on str, when is_farewell"| n4
        n3 -->|"on str"| n1
        classDef tap stroke-dasharray: 4 3
    ```

    Args:
        endings: The messages that end the conversation, in upper or lower case.
        parallel_tools: How many of a turn's tool calls run at once; by default one after the other.
        name: The name of the strategy.

    Raises:
        TypeError: `endings` is a single text, or a value in it is not text.
    """
    if isinstance(endings, str) or not isinstance(endings, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{name!r}: endings= is a list of messages, such as ['bye'], not {endings!r}")
    endings = tuple(endings)
    if not all(isinstance(each, str) for each in endings):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{name!r}: endings={list(endings)!r} has a value that is not text; write ['bye', 'exit']")
    words = frozenset(ending.casefold() for ending in endings)

    def is_farewell(message: str) -> bool:
        return message.strip().casefold() in words

    ask = llm_request()
    act = execute_tools(limit=parallel_tools)
    listen = ask_human(str, str | None, name="listen")
    return Strategy(
        name,
        START >> ask,
        ask.on(ToolCalls) >> act >> ask,
        ask.on(str) >> listen,
        listen.on(None) >> last_answer >> END,
        listen.on(str).when(is_farewell) >> last_answer,
        listen.on(str) >> ask,
    )
