"""The value so far of structured output, while it is streamed."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphagent import END, START, Agent, Strategy, tool
from graphagent.events import ModelResponded, OutputStreamed, TextStreamed
from graphagent.llm import Message, ModelResponse, OutputFormat, Text, ToolCall, ToolCalls
from graphagent.llm._output import PartialOutput
from graphagent.llm.openai import OpenAIModel
from graphagent.nodes import Accepted, execute_tools, llm_request, verify
from graphagent.testing import ScriptedModel, openai_server
from tests.thorough import examples


@dataclass(frozen=True)
class Trip:
    city: str
    days: int
    stops: list[str]


OSLO = {"city": "Oslo by night", "days": 14, "stops": ["the opera", "the fjord"]}


def planning(output=Trip, **settings):
    return Strategy("s", START >> llm_request(output=output, **settings) >> END)


def listened(agent, **options):
    heard = []
    agent.on(OutputStreamed, lambda event: heard.append(event.partial), **options)
    return heard


class Streamed:
    """Collects what a partial output says of a text that comes in pieces."""

    def __init__(self, kind=dict):
        self.partial = PartialOutput(OutputFormat.of(kind))
        self.values, self.text = [], ""

    def add(self, *pieces):
        for piece in pieces:
            self.text += piece
            self.values += self.partial.add(piece) or ()
        return self

    def end(self):
        self.values += self.partial.end(self.text) or ()
        return self.values


async def test_listeners_hear_the_value_so_far():
    """It grows from event to event, and the last one has the whole; the result is the same as without."""
    agent = Agent(planning(), model=ScriptedModel([OSLO]))
    heard = listened(agent)
    result = await agent.run("Plan.")
    assert result.output == Trip("Oslo by night", 14, ["the opera", "the fjord"])
    assert heard[0] == {"city": "Oslo"}
    assert heard[1] == {"city": "Oslo by"}
    assert heard[-1] == OSLO
    assert all(is_begun(earlier, later) for earlier, later in itertools.pairwise(heard))


async def test_the_event_says_whose_value_it_is():
    """Node, run and purpose; the value is not in its repr."""
    agent = Agent(planning(), model=ScriptedModel([OSLO]))
    events = []
    agent.on(OutputStreamed, events.append)
    await agent.run("Plan.", run_id="r")
    assert {(event.run_id, event.node, event.output) for event in events} == {("r", "llm_request", "answer")}
    assert "Oslo" not in repr(events[-1])


async def test_a_stream_has_them_among_its_events():
    """Beside the pieces of text, and all before the answer of the model."""
    agent = Agent(planning(), model=ScriptedModel([OSLO]))
    kinds = [
        type(event)
        async for event in agent.stream("Plan.")
        if isinstance(event, OutputStreamed | TextStreamed | ModelResponded)
    ]
    assert kinds[-1] is ModelResponded
    assert {OutputStreamed, TextStreamed} <= set(kinds)


async def test_nothing_is_streamed_where_nobody_listens():
    """Without listeners there is no `on_text`; with a listener to values, text without a format has no events."""
    given = []

    class Watched(ScriptedModel):
        async def respond(self, request, on_text=None):
            given.append(on_text)
            return await super().respond(request, on_text)

    await Agent(planning(), model=Watched([OSLO])).run("Plan.")
    agent = Agent(Strategy("s", START >> llm_request(tools=False) >> END), model=Watched(["Oslo."]))
    heard = listened(agent)
    await agent.run("Plan.")
    assert given == [None, None]
    assert heard == []


async def test_a_type_that_is_no_object_is_unwrapped():
    """As the value of the node is."""
    agent = Agent(planning(list[int]), model=ScriptedModel([{"value": [1, 22, 333]}]))
    heard = listened(agent)
    assert (await agent.run("Count.")).output == [1, 22, 333]
    assert heard[-1] == [1, 22, 333]
    assert all(isinstance(value, list) for value in heard)


async def test_an_answer_that_is_asked_for_again_begins_anew():
    """What did not fit is followed by what does."""
    agent = Agent(planning(), model=ScriptedModel([{"city": "Rome"}, OSLO]))
    heard = listened(agent)
    await agent.run("Plan.")
    assert heard.index({"city": "Rome"}) < heard.index({"city": "Oslo"})
    assert heard[-1] == OSLO


async def test_verdicts_are_for_those_who_ask_for_all():
    """As their text is."""
    agent = Agent(verify("It is short."), model=ScriptedModel([{"feedback": "", "passed": True}] * 2))
    alone, everything = listened(agent), listened(agent, all_text=True)
    assert (await agent.run("x")).output == Accepted("x")
    assert alone == []
    assert everything[-1] == {"feedback": "", "passed": True}


@tool
async def look(word: str) -> str:
    """Look a word up."""
    return word


def with_tools():
    ask, act = llm_request(output=Trip, tools=True), execute_tools()
    return Strategy("s", START >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(Trip) >> END)


async def test_values_are_streamed_over_http():
    """With the real client and server, also beside tool calls, in a fence, and after prose and thoughts."""
    fenced = f"<think>{{hm}}</think>Here it is:\n```json\n{json.dumps(OSLO)}\n```"
    replies = [ModelResponse(Message("assistant", (Text("Let me see."), ToolCall("look", {"word": "x"}, "c")))), fenced]
    async with openai_server(replies) as server:
        agent = Agent(with_tools(), model=OpenAIModel("m", base_url=server.base_url), tools=[look])
        heard = listened(agent)
        assert (await agent.run("Plan.")).output == Trip(**OSLO)
    assert heard[0] == {}
    assert heard[-1] == OSLO


# ---- reading what is not complete


def is_begun(begun, whole):
    """Return whether a value is the beginning of another one."""
    if isinstance(begun, dict) and isinstance(whole, dict):
        return list(begun) == list(whole)[: len(begun)] and all(is_begun(begun[key], whole[key]) for key in begun)
    if isinstance(begun, list) and isinstance(whole, list):
        return len(begun) <= len(whole) and all(map(is_begun, begun, whole))
    if isinstance(begun, str) and isinstance(whole, str):
        return whole.startswith(begun)
    return type(begun) is type(whole) and begun == whole


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=examples(300), deadline=None)
@given(
    st.dictionaries(st.text(max_size=5), values, max_size=5), st.booleans(), st.lists(st.integers(1, 9), max_size=40)
)
def test_each_value_is_the_beginning_of_the_next_one(whole, escaped, lengths):
    """However the text is cut into pieces, nothing that was shown is taken back, and the last value is the whole."""
    text, streamed = json.dumps(whole, ensure_ascii=escaped), Streamed()
    for length in [*lengths, len(text)]:
        streamed.add(text[:length])
        text = text[length:]
    shown = streamed.end()
    assert shown[-1] == whole
    assert all(is_begun(earlier, later) for earlier, later in itertools.pairwise(shown))


@pytest.mark.parametrize(
    ("pieces", "shown"),
    [
        (['{"n": 18', "71}"], [{}, {"n": 1871}]),
        (['{"b": tr', "ue}"], [{}, {"b": True}]),
        (['{"s": "a\\', 'n"}'], [{"s": "a"}, {"s": "a\n"}]),
        (['{"s": "\\ud83d', '\\ude00"}'], [{"s": ""}, {"s": "😀"}]),
        (["no JSON at all"], []),
        (["<think>", '{"a": 1}', "</think>", '{"b": 2}'], [{"b": 2}]),
        (['{"a": NaN}'], []),
        (["[1, 2]"], []),
        (["{" * 300], []),
        (['{"a": 1}', "\n```\nThat is it."], [{"a": 1}]),
    ],
)
def test_what_is_shown_of_texts_that_are_not_complete(pieces, shown):
    """Numbers and literals when they are complete, and of strings what has arrived; of what is no JSON, nothing."""
    assert Streamed().add(*pieces).end() == shown


def test_reading_takes_linear_time():
    """Twice the text is read less than 2.2 times as much, and there are few events for a long one."""

    def read(length):
        streamed, looked = Streamed(), []
        streamed.add('{"s": "')
        for _ in range(length):
            before = streamed.partial._pieces
            streamed.add("x")
            looked.append(len(streamed.text) if streamed.partial._pieces is not before else 0)
        return sum(looked), len(streamed.values)

    (once, few), (twice, more) = read(20_000), read(40_000)
    assert twice < 2.2 * once
    assert more - few < 40
    assert more < 400
