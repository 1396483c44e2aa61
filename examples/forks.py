"""Forks: several nodes at once, one node for every item, the first to succeed; retries and timeouts on the way.

python examples/forks.py
"""

from __future__ import annotations

import anyio

from graphagent import END, START, Agent, Context, Strategy, each, node, parallel, race


@node
async def lines(ctx: Context, text: str) -> list[str]:
    return text.split(" / ")


@node
async def shout(ctx: Context, text: str) -> str:
    return text.upper()


@node
async def count(ctx: Context, text: str) -> int:
    return len(text)


@node
async def join(ctx: Context, parts: list[tuple[str, int]]) -> str:
    return ", ".join(f"{text} ({length})" for text, length in parts)


@node
async def far(ctx: Context, text: str) -> str:
    await anyio.sleep(30)
    return f"{text}, from far away"


@node
async def near(ctx: Context, text: str) -> str:
    if next(attempts) < 2:
        raise ConnectionError("the line is bad")
    return f"{text}, from nearby"


attempts = iter(range(9))
# str -> tuple[str, int]. A strategy is a node, so it can be what another fork executes for each item.
both = Strategy("both", START >> parallel(shout, count) >> END)
forks = Strategy(
    "forks",
    START >> lines >> each(both, limit=2) >> join >> race(far.timeout(5), near.retry(attempts=3, wait=0.0)) >> END,
)

result = Agent(forks).run_sync("one / two / three")
print(forks.to_mermaid())
print(result.output)
assert result.output == "ONE (3), TWO (3), THREE (5), from nearby"
assert result.seconds < 5
