"""Policies and error paths of taps: what a tap was given is passed on, whatever becomes of the tap."""

from __future__ import annotations

from dataclasses import dataclass

import anyio
import pytest

from graphagent import END, START, Agent, Strategy, node, tap
from graphagent.errors import NodeFailedError, StrategyError
from graphagent.events import NodeFailed
from graphagent.graph import Tap, TapOf
from graphagent.nodes import ask_human, passthrough
from graphagent.store import MemoryStore


@dataclass
class Page:
    text: str


def failing(*errors, times=None):
    """A tap that raises these errors, one each time, and then nothing; with how often it was executed."""
    left, times = list(errors), [] if times is None else times

    @tap(name="log")
    async def log(ctx, page: Page) -> None:
        times.append(page)
        if left:
            raise left.pop(0)

    return log, times


def both_ways(log, *on_errors, after=None):
    after = after or passthrough(Page, name="after")
    return Strategy("pages", START >> log >> after >> END, *(way >> after for way in on_errors))


async def test_a_tap_is_tried_again():
    """As often as it may, and then it passes on what it was given; each attempt counts as a node execution."""
    log, times = failing(ValueError("a"), ValueError("b"))
    result = await Agent(both_ways(log.retry(attempts=3, wait=0))).run(page := Page("x"))
    assert (result.output is page, len(times), result.nodes) == (True, 3, 4)


async def test_a_tap_that_failed_as_often_as_it_may_fails_the_run():
    """With what it raised last."""
    log, _ = failing(ValueError("a"), LookupError("b"))
    with pytest.raises(NodeFailedError, match="failed with LookupError"):
        await Agent(both_ways(log.retry(attempts=2, wait=0))).run(Page("x"))


async def test_a_tap_has_a_time_limit():
    """Then it raises TimeoutError, which an error path takes."""

    @tap
    async def wait(ctx, page: Page) -> None:
        await anyio.sleep_forever()

    limited = wait.timeout(0.01)
    result = await Agent(both_ways(limited, limited.on_error(TimeoutError))).run(page := Page("x"))
    assert result.output is page


async def test_an_error_path_of_a_tap_passes_on_what_the_tap_was_given():
    """Through conditions and changes too, in the order of the paths."""
    log, _ = failing(ValueError("a"))
    after = passthrough(Page, name="after")
    strategy = Strategy(
        "pages",
        START >> log >> after >> END,
        log.on_error(LookupError) >> END,
        log.on_error(ValueError).when(lambda page: page.text == "y") >> END,
        log.on_error(ValueError).map(lambda page: Page(page.text + "!")) >> after,
    )
    failures = []
    agent = Agent(strategy)
    agent.on(NodeFailed, failures.append)
    assert (await agent.run(Page("x"))).output == Page("x!")
    assert [failed.node for failed in failures] == ["log"]


@pytest.mark.parametrize("change", [False, True])
async def test_a_run_goes_on_from_an_error_path_of_a_tap(change):
    """In another process, with the value as its type says, and as the tap was given it: a run that is resumed has no other."""
    store = MemoryStore()
    executed, asked = [], []

    def agent():
        @tap
        async def log(ctx, page: Page) -> None:
            executed.append(page)
            if change:
                page.text += "?"
            raise ValueError

        @node
        async def tell(ctx, page: Page) -> Page:
            return page

        def question(page: Page) -> str:
            asked.append(page)
            return f"Is {page.text} good?"

        def page_of(said: str) -> Page:
            return Page(said)

        ask = ask_human(question, str, name="ask")
        strategy = Strategy(
            "pages",
            START >> tell >> log >> END,
            log.on_error(ValueError) >> ask,
            ask.map(page_of) >> END,
        )
        return Agent(strategy, store=store)

    await agent().run(Page("x"), run_id="r")
    assert (await agent().resume("r", answer="Yes.")).output == Page("Yes.")
    assert asked == [Page("x")] * 2
    assert len(executed) == 1
    assert (await agent().rerun("r", new_id="s")).output == Page("Yes.")


def test_a_tap_with_policies_is_another_one_of_the_same_type():
    """The tap itself stays as it is."""
    log, _ = failing()
    patient = log.retry(attempts=2).timeout(3)
    assert isinstance(patient, TapOf)
    assert (len(log.policies), len(patient.policies)) == (0, 2)
    assert patient.named("other").policies == patient.policies


def test_the_check_knows_what_leaves_a_tap_by_an_error_path():
    """The type that the tap is given, which must fit; and something must take what it passes on usually."""
    log, _ = failing()
    shout = passthrough(str, name="shout")
    with pytest.raises(StrategyError, match="its output Page does not fit the input str of 'shout'"):
        Strategy("pages", START >> log >> END, log.on_error(ValueError) >> shout >> END)
    with pytest.raises(StrategyError, match="only its errors"):
        Strategy("pages", START >> log, log.on_error(ValueError) >> END)
    with pytest.raises(StrategyError, match="never taken, because on error Exception before it"):
        Strategy("pages", START >> log >> END, log.on_error(Exception) >> END, log.on_error(ValueError) >> END)
    with pytest.raises(TypeError, match=r"\.on_error\(\) of tap 'log' takes a subclass of Exception"):
        log.on_error("ValueError")


def test_the_drawing_shows_policies_and_error_paths_of_taps():
    """As those of nodes."""
    log, _ = failing()
    patient = log.retry(attempts=2)
    strategy = Strategy("pages", START >> patient >> END, patient.on_error(ValueError) >> END)
    drawn = strategy.to_mermaid()
    assert "retry 2" in drawn
    assert '-.->|"on error ValueError"|' in drawn
    assert "on error ValueError" in strategy.to_svg()


def test_a_tap_takes_anything_with_an_error_path_too():
    """A tap that takes anything says nothing of what passes through it."""

    @tap
    async def count(ctx, value: object) -> None: ...

    assert isinstance(count, Tap)
    end = passthrough(str)
    assert Strategy("s", START >> count >> end >> END, count.on_error(ValueError) >> end).input_type is str
