"""What `ctx.once` does once, in nodes of users."""

from __future__ import annotations

import pytest

from graphagent import END, START, Agent, Context, Strategy, node
from graphagent.errors import NodeFailedError, UnknownOutcomeError
from graphagent.llm import Approve, Deny
from tests.run.family import Commits


class Payments:
    """An agent that pays once, in the life of a process."""

    def __init__(self, store, in_flight, *, catches=False):
        self.paid = []

        @node
        async def pay(ctx: Context, text: str) -> str:
            try:
                return await ctx.once("pay", self._pay, in_flight=in_flight)
            except UnknownOutcomeError as error:
                if not catches:
                    raise
                return f"unknown: {error.key}"

        self.agent = Agent(Strategy("s", START >> pay >> END), store=store)

    async def _pay(self):
        self.paid.append(1)
        return "paid"


async def broken_off(in_flight):
    """Return the store of a process that died while it paid; there is one only where it is noted that this begins."""
    whole = Commits()
    await Payments(whole, in_flight).agent.run("x", run_id="r")
    found = [await whole.after(count) for count in range(1, len(whole.commits) + 1)]
    return [store for store in found if b"effect started" in await _bytes(store) and not await store.effects("once")]


async def _bytes(store):
    return b"".join([item.value async for item in store.scan(("runs",))])


async def test_what_may_be_repeated_is_not_even_noted():
    """There is nothing to pay for where the outcome does not matter."""
    assert await broken_off("retry") == []


async def test_what_is_not_to_be_repeated_fails():
    """Nobody is asked, nothing is done, however often the run is resumed; the node may catch it and look."""
    [store] = await broken_off("fail")
    for _ in range(2):
        payments = Payments(store, "fail")
        with pytest.raises(
            UnknownOutcomeError, match="'pay' was broken off during 'pay', whose outcome is unknown"
        ) as caught:
            await payments.agent.resume("r")
        assert (caught.value.node, caught.value.key, caught.value.run_id, payments.paid) == ("pay", "pay", "r", [])
    assert (await Payments(store, "fail", catches=True).agent.resume("r")).output == "unknown: pay"


@pytest.mark.parametrize("answer", [Approve(), Deny()])
async def test_a_person_is_asked_whether_to_repeat_it(answer):
    """It is done again, once, or fails as above."""
    [store] = await broken_off("ask")
    payments = Payments(store, "ask")
    waiting = await payments.agent.resume("r")
    assert (waiting.pending.kind, waiting.pending.id, payments.paid) == ("in_flight", "pay:again:1", [])
    again = Payments(store, "ask")
    if isinstance(answer, Approve):
        assert ((await again.agent.resume("r", answer=answer)).output, again.paid) == ("paid", [1])
    else:
        with pytest.raises(UnknownOutcomeError):
            await again.agent.resume("r", answer=answer)
        assert again.paid == []


async def test_each_repetition_that_is_broken_off_is_asked_about():
    """A process may die while it does again what somebody allowed."""
    [first] = await broken_off("ask")
    await Payments(first, "ask").agent.resume("r")
    await Payments(first, "ask").agent.resume("r", answer=Approve())
    cut = [await first.after(count) for count in range(1, len(first.commits) + 1)]
    [second, *_] = [store for store in cut if (await _bytes(store)).count(b"effect started") == 2]
    waiting = await Payments(second, "ask").agent.resume("r")
    assert waiting.pending.id == "pay:again:2"


async def test_a_typo_is_an_error_before_anything_is_done():
    """The words are those of tools."""
    payments = Payments(None, "retri")
    with pytest.raises(NodeFailedError) as caught:
        await payments.agent.run("x")
    assert str(caught.value.__cause__) == "in_flight='retri' is not known; did you mean 'retry'?"
    assert payments.paid == []
