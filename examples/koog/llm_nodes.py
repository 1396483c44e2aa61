"""Koog's nodes that ask a model: text, forced calls, structured output, streaming, moderation, compression, choices.

python examples/koog/llm_nodes.py
python examples/koog/llm_nodes.py --model llama3.2 --base-url http://localhost:11434/v1
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from index import agent, show, weather

from graphagent import END, START, Strategy
from graphagent.llm import Message, ToolCall, ToolCalls
from graphagent.memory import ChunkedHistory, Concept, FoundFacts, SummaryStep, WholeHistory
from graphagent.nodes import (
    Flagged,
    choose,
    compress_history,
    execute_tools,
    llm_choices,
    llm_request,
    moderate,
)
from graphagent_strategies import single_run

if TYPE_CHECKING:
    from graphagent.protocols import Compression
    from graphagent.testing import Reply

CALL = ToolCall("weather", {"city": "Oslo"})
NO_PHONE_NUMBERS = "It must not contain a phone number."


@dataclass
class Place:
    city: str
    country: str


async def request() -> object:
    """A turn of the model gives text, or tool calls."""
    ask, act = llm_request(), execute_tools()
    strategy = Strategy("s", START >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(str) >> END)
    return (await agent(strategy, CALL, "Sunny.", tools=[weather]).run("How is Oslo?")).output


async def request_without_tools() -> object:
    """The tools of the agent are not offered."""
    strategy = Strategy("s", START >> llm_request(tools=False) >> END)
    return (await agent(strategy, "I cannot know.").run("How is Oslo?")).output


async def only_calling_tools() -> object:
    """The model must call a tool, whichever."""
    strategy = Strategy("s", START >> llm_request(tools="required") >> END)
    return [call.name for call in (await agent(strategy, CALL, tools=[weather]).run("How is Oslo?")).output]


async def force_one_tool() -> object:
    """The model must call this tool."""
    strategy = Strategy("s", START >> llm_request(force=weather) >> END)
    return [call.name for call in (await agent(strategy, CALL, tools=[weather]).run("How is Oslo?")).output]


async def structured() -> object:
    """The answer is a value of a type; one that does not fit is asked for once more."""
    strategy = Strategy("s", START >> llm_request(output=Place) >> END)
    return (await agent(strategy, {"city": "Oslo", "country": "Norway"}).run("Where is the opera in the fjord?")).output


async def structured_with_tools() -> object:
    """The answer is a value of a type, and tools are called on the way to it."""
    ask, act = llm_request(output=Place, tools=True), execute_tools()
    strategy = Strategy("s", START >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(Place) >> END)
    return (
        await agent(strategy, CALL, {"city": "Oslo", "country": "Norway"}, tools=[weather]).run("Where is it sunny?")
    ).output


async def streaming() -> object:
    """The text of any strategy can be streamed, and is in the transcript all the same."""
    stream = agent(Strategy("s", START >> llm_request(tools=False) >> END), "Once upon a time.").stream(
        "Tell me a story."
    )
    return [piece async for piece in stream.text()]


async def streaming_with_tools() -> object:
    """The turns after tool calls are streamed as well."""
    stream = agent(single_run(), CALL, "It is sunny.", tools=[weather]).stream("How is Oslo?")
    return [piece async for piece in stream.text()]


async def moderate_text() -> object:
    """A text passes, or becomes `Flagged`; an edge decides what happens then."""
    check = moderate(NO_PHONE_NUMBERS)
    strategy = Strategy(
        "s", START >> check, check.on(str) >> END, check.on(Flagged).map(lambda found: found.reason) >> END
    )
    verdict = {"reason": "it has a number", "categories": ["privacy"], "flagged": True}
    return (await agent(strategy, verdict).run("Call me: 0123 456789")).output


async def moderate_message() -> object:
    """The same for messages; `OpenAIModerator()` asks the moderation of a server instead."""
    check = moderate(NO_PHONE_NUMBERS, Message)
    strategy = Strategy(
        "s",
        START >> check,
        check.on(Message).map(lambda message: message.text) >> END,
        check.otherwise().map(repr) >> END,
    )
    verdict = {"reason": "", "categories": [], "flagged": False}
    return (await agent(strategy, verdict).run(Message.user("See you tomorrow."))).output


async def _compressed(compression: Compression, *script: Reply) -> object:
    """Ask twice, compress what was said, and ask again. Return what stands for it."""
    first, second, third = (llm_request(tools=False, name=name) for name in ("first", "second", "third"))
    compress = compress_history(compression)
    strategy = Strategy("s", START >> first >> second >> compress >> third >> END)
    result = await agent(strategy, "Oslo it is.", "By train.", *script, "Done.").run("Where do we go? I am Ada.")
    summaries = [step for step in result.memory.steps if isinstance(step, SummaryStep)]
    return [message.text.partition("\n")[2] for step in summaries for message in step.to_messages()]


async def compress_whole_history() -> object:
    """One summary of everything."""
    return await _compressed(WholeHistory(), "Ada goes to Oslo by train.")


async def compress_all_but_the_last() -> object:
    """The last turn stays as it is."""
    return await _compressed(WholeHistory(keep=1), "Ada goes to Oslo.")


async def compress_in_chunks() -> object:
    """A summary for each turn."""
    return await _compressed(ChunkedHistory(turns=1), "Ada goes to Oslo.", "By train.")


async def compress_to_facts() -> object:
    """Facts about one concept; the rest is dropped."""
    return await _compressed(FoundFacts(Concept("destination", "where Ada goes")), {"values": ["Oslo"]})


async def several_choices() -> object:
    """Several answers, of which a function chooses one; the chosen one is in the transcript."""

    def longest(answers: list[str]) -> int:
        return max(range(len(answers)), key=lambda number: len(answers[number]))

    strategy = Strategy("s", START >> llm_choices(3) >> choose(longest) >> END)
    return (await agent(strategy, "Hi.", "Good morning!", "Hello.").run("Greet me.")).output


if __name__ == "__main__":
    show(request, request_without_tools, only_calling_tools, force_one_tool, structured, structured_with_tools)
    show(streaming, streaming_with_tools, moderate_text, moderate_message)
    show(compress_whole_history, compress_all_but_the_last, compress_in_chunks, compress_to_facts, several_choices)
