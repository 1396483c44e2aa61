"""What a node returns is of the type that it declares, or the node fails and says what it returned."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, NewType, TypedDict

import pytest

from graphagent import END, START, Agent, Context, Node, Strategy, each, node, tap
from graphagent.errors import NodeFailedError, NodeTypeError, StrategyError
from graphagent.protocols import Feature
from graphagent.store import MemoryStore


@dataclass
class Trip:
    city: str


class Place(TypedDict):
    city: str


Id = NewType("Id", str)


def returning(value, kind):
    """Return a node that declares a type and returns a value."""

    async def give(ctx: Context, text: str) -> Any:
        return value

    return Node(give, name="give", input_type=str, output_type=kind)


def alone(element):
    """Return a strategy of one element."""
    return Strategy("s", START >> element >> END)


PLAIN = [
    (5, str, "it returned an int, and declares str"),
    (None, str, "it returned None, and declares str"),
    ("5", int, "it returned a str, and declares int"),
    ("5", float, "it returned a str, and declares float"),
    ({"city": "Oslo"}, Trip, "it returned a dict, and declares Trip"),
    (None, str | int, "it returned None, and declares str | int"),
    (5, None, "it returned an int, and declares None"),
    (5, Id, "it returned an int, and declares Id"),
    (5, list[str], "it returned an int, and declares list[str]"),
    (5, Literal["a", "b"], "it returned an int, and declares 'a' | 'b'"),
]
STORED = [
    ([5], list[str], "it returned a list with other items, and declares list[str]"),
    ({"a": "b"}, dict[str, int], "it returned a dict with other items, and declares dict[str, int]"),
    ((1, 2), tuple[int, str], "it returned a tuple with other items, and declares tuple[int, str]"),
    ("c", Literal["a", "b"], "it returned a str, and declares 'a' | 'b'"),
    (5, Place, "it returned an int, and declares Place"),
    (5, Iterable[str], "it returned an int, and declares Iterable[str]"),
]
FITTING = [(5, float), (True, int), ("a", Id), ([5], list[Any]), (None, object), ({"city": "Oslo"}, Place), ("a", Any)]


@pytest.mark.parametrize("store", [None, MemoryStore()], ids=["live", "stored"])
@pytest.mark.parametrize(("value", "kind", "said"), PLAIN)
async def test_an_output_of_another_class_fails_the_node(value, kind, said, store):
    """With a store and without one; the error has no value in it, and its cause is a NodeTypeError."""
    with pytest.raises(NodeFailedError) as caught:
        await Agent(alone(returning(value, kind)), store=store).run("x")
    assert f"node 'give' failed with NodeTypeError: {said}; return the declared type" in str(caught.value)
    assert isinstance(caught.value.__cause__, NodeTypeError)
    assert isinstance(caught.value.__cause__, TypeError)


@pytest.mark.parametrize(("value", "kind", "said"), STORED)
async def test_an_output_is_checked_in_full_where_it_is_stored(value, kind, said):
    """The items of small containers, literals and typed dicts are looked at before anything is written."""
    with pytest.raises(NodeFailedError) as caught:
        await Agent(alone(returning(value, kind)), store=MemoryStore()).run("x")
    assert said in str(caught.value)


@pytest.mark.parametrize("store", [None, MemoryStore()], ids=["live", "stored"])
@pytest.mark.parametrize(("value", "kind"), FITTING)
async def test_an_output_that_fits_passes(value, kind, store):
    """An int is a float, a bool an int, a NewType its base; where nothing is declared, anything passes."""
    assert (await Agent(alone(returning(value, kind)), store=store).run("x")).output == value


async def test_an_error_edge_takes_a_wrong_output():
    """It is a failure of the node as any other."""
    give = returning(5, str)
    strategy = Strategy(
        "s", START >> give, give.on_error(NodeTypeError).map(lambda error: "mended") >> END, give >> END
    )
    assert (await Agent(strategy).run("x")).output == "mended"


async def test_a_wrong_output_is_tried_again_and_not_kept():
    """A retry counts it as a failed attempt, and a cached node keeps nothing of it."""
    said = iter([5, "five"])

    @node
    async def flaky(ctx: Context, text: str) -> str:
        return next(said)

    assert (await Agent(alone(flaky.retry(attempts=2, wait=0))).run("x")).output == "five"
    said = iter([5, "five"])
    agent = Agent(alone(flaky.cached()), store=MemoryStore())
    with pytest.raises(NodeFailedError, match="it returned an int"):
        await agent.run("x")
    assert (await agent.run("x")).output == "five"


class Changing(Feature):
    async def around_node(self, ctx, value, proceed):
        """Return a number, whatever the node returned."""
        await proceed(value)
        return 5


async def test_middleware_returns_what_the_node_declares():
    """The error names the middleware, since the node returned what it declares."""
    agent = Agent(alone(returning("a", str)))
    agent.install(Changing)
    with pytest.raises(
        NodeFailedError, match=r"around_node \(Changing\) returned an int for node 'give', which returns str"
    ):
        await agent.run("x")


@node
async def upper(ctx: Context, text: str) -> str:
    """Return a text in capitals."""
    return text.upper()


def test_an_each_after_a_text_is_refused():
    """It would take each character: the strategy is not made, whether the text comes at once, through a tap or in a union."""

    @tap
    async def look(ctx: Context, value: object) -> None:
        pass

    @node
    async def either(ctx: Context, text: str) -> str | list[str]:
        return text

    for path in (START >> upper >> each(upper), START >> upper >> look >> each(upper), START >> either >> each(upper)):
        with pytest.raises(StrategyError, match=r"is text, of which 'each' would take each character; return a list"):
            Strategy("s", path >> END)
    split = Strategy("s", START >> upper, upper.map(str.splitlines) >> each(upper.named("line")) >> END)
    assert Agent(split).run_sync("a\nb").output == ["A", "B"]


@pytest.mark.parametrize("given", ["ab", "", b"ab"])
async def test_an_each_that_is_given_a_text_fails(given):
    """The check of a strategy cannot know what a task is, or what a node returns that declares nothing."""
    with pytest.raises(NodeFailedError, match="of which it would take each character; give it a list"):
        await Agent(alone(each(returning("a", Any)))).run(given)
