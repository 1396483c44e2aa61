"""What passes only if a moderator does not flag it."""

from __future__ import annotations

from dataclasses import dataclass

import anyio
import pytest

from graphagent import END, START, Agent, Context, Strategy, node
from graphagent.errors import FeatureError, ModelRequestError, NodeFailedError, OutputError
from graphagent.llm import Message, Moderation, ToolResult, ToolResults
from graphagent.llm.openai import OpenAIModerator
from graphagent.nodes import Flagged, llm_request, moderate
from graphagent.store import MemoryStore
from graphagent.testing import RawResponse, ScriptedModel, openai_server
from tests.nodes.everywhere import resumed_everywhere

FLAGS = {"bomb": "violence", "knife": "violence", "spam": "spam"}


def no_numbers(text: str) -> Moderation:
    return Moderation(any(map(str.isdigit, text)), ("numbers",), "it has a number")


@node
async def send(ctx: Context, text: str) -> str:
    return f"sent: {text}"


@node
async def hold(ctx: Context, held: Flagged[str]) -> str:
    return f"held: {held.categories}"


def guarded(check):
    return Strategy("guarded", START >> check, check.on(Flagged) >> hold >> END, check.on(str) >> send >> END)


async def test_a_value_passes_or_is_flagged_and_edges_decide():
    """The value is what was checked, categories and reason are those of the moderator."""
    agent = Agent(guarded(moderate(no_numbers)))
    assert (await agent.run("a rose")).output == "sent: a rose"
    assert (await agent.run("7 roses")).output == "held: ('numbers',)"
    flagged = (await Agent(moderate_alone(no_numbers)).run("7 roses")).output
    assert flagged == Flagged("7 roses", ("numbers",), "it has a number")
    assert "7 roses" not in repr(flagged)


def moderate_alone(by, *kind):
    return Strategy("alone", START >> moderate(by, *kind) >> END)


async def test_a_moderator_may_be_async_or_an_object():
    """A function that waits, and anything with an async method `moderate`."""

    async def slow(text: str) -> Moderation:
        await anyio.lowlevel.checkpoint()
        return no_numbers(text)

    class Own:
        async def moderate(self, text: str) -> Moderation:
            return no_numbers(text)

    for by in (slow, Own()):
        agent = Agent(guarded(moderate(by)))
        assert [(await agent.run(text)).output for text in ("a", "1")] == ["sent: a", "held: ('numbers',)"]


@dataclass(frozen=True)
class Mail:
    to: str
    text: str


@pytest.mark.parametrize(
    ("kind", "value", "checked"),
    [
        (Message, Message.user("hello"), "hello"),
        (ToolResults, ToolResults([ToolResult("1", "a", "one"), ToolResult("2", "b", "two")]), "one\n\ntwo"),
        (Mail, Mail("a@b", "hello"), '{"to":"a@b","text":"hello"}'),
    ],
)
async def test_values_of_any_type_are_checked_as_text(kind, value, checked):
    """Messages and results by their text, anything else as JSON; what passes is the value itself."""
    seen = []

    def look(text: str) -> Moderation:
        seen.append(text)
        return Moderation(flagged=False)

    strategy = moderate_alone(look, kind)
    assert (strategy.input_type, strategy.output_type) == (kind, kind | Flagged[kind])
    assert (await Agent(strategy).run(value)).output == value
    assert seen == [checked]


# ---- it fails closed


@pytest.mark.parametrize("said", [None, False, "fine"])
async def test_what_is_no_verdict_lets_nothing_pass(said):
    """A moderator that forgets to return, or returns something else, is an error."""
    with pytest.raises(NodeFailedError) as failed:
        await Agent(guarded(moderate(lambda text: said))).run("a rose")
    assert "so nothing passes" in str(failed.value.__cause__)


async def test_an_unreachable_moderator_lets_nothing_pass_and_the_run_can_be_resumed():
    """The error says that it cannot be reached; an error edge may take it, and a resumed run asks again."""
    with openai_server([], flags=FLAGS) as gone:
        url = gone.base_url
    store = MemoryStore()
    away = OpenAIModerator(base_url=url, max_retries=0)
    with pytest.raises(NodeFailedError, match="cannot be reached") as failed:
        await Agent(guarded(moderate(away)), store=store).run("a rose", run_id="r")
    assert isinstance(failed.value.__cause__, ModelRequestError)
    async with openai_server([], flags=FLAGS) as server:
        there = OpenAIModerator(base_url=server.base_url)
        assert (await Agent(guarded(moderate(there)), store=store).resume("r")).output == "sent: a rose"


# ---- OpenAI's endpoint


async def test_the_endpoint_of_openai_says_what_is_flagged():
    """The real client asks for it, with the text and the model, and reads the categories that apply."""
    async with openai_server([], flags=FLAGS) as server, OpenAIModerator(base_url=server.base_url) as moderator:
        agent = Agent(guarded(moderate(moderator)))
        assert (await agent.run("a rose")).output == "sent: a rose"
        assert (await agent.run("spam and a knife")).output == "held: ('violence', 'spam')"
        assert server.requests[0] == {"model": "omni-moderation-latest", "input": "a rose"}
        assert "authorization" not in server.headers[0]
        assert await moderator.moderate(" \n") == Moderation(flagged=False)  # the real server refuses that
        assert len(server.requests) == 2


@pytest.mark.parametrize(
    "body",
    [
        "{}",
        '{"results": []}',
        '{"results": [{}]}',
        '{"results": [{"flagged": "no"}]}',
        '{"results": [3]}',
        "[]",
        "null",
    ],
)
async def test_an_answer_without_a_verdict_is_an_error(body, monkeypatch):
    """Whatever a server sends instead, nothing passes."""
    async with openai_server([]) as server:
        monkeypatch.setattr(server, "serve", lambda *_: RawResponse(200, {"content-type": "application/json"}, body))
        with pytest.raises(ModelRequestError, match="answered without a verdict"):
            await OpenAIModerator(base_url=server.base_url).moderate("a rose")


@pytest.mark.parametrize("text", ["<html>", "flagged: no"])
async def test_an_answer_that_is_no_json_is_an_error(text, monkeypatch):
    """Such as the page of a proxy."""
    async with openai_server([]) as server:
        monkeypatch.setattr(server, "serve", lambda *_: RawResponse(200, {"content-type": "text/html"}, text))
        with pytest.raises(ModelRequestError, match="something other than JSON"):
            await OpenAIModerator(base_url=server.base_url).moderate("a rose")


async def test_a_server_without_the_endpoint_is_named():
    """The error has its address and the status, and neither key nor text."""
    async with openai_server([]) as server:
        elsewhere = OpenAIModerator(base_url=server.base_url.removesuffix("/v1"), api_key="secret-key")
        with pytest.raises(ModelRequestError, match="404") as failed:
            await elsewhere.moderate("a rose")
    assert "secret-key" not in str(failed.value)
    assert "rose" not in str(failed.value)
    assert repr(elsewhere).startswith("<OpenAIModerator: moderator 'omni-moderation-latest' at 127.0.0.1")


# ---- a policy


async def test_a_policy_is_applied_by_the_model_of_the_run():
    """Asked apart from the transcript, with the text last; the verdict is no turn."""
    verdict = {"reason": "It names a dose.", "categories": ["medicine"], "flagged": True}
    model = ScriptedModel(["Take 5 mg.", verdict])
    draft, check = llm_request(tools=False), moderate("No medical advice.")
    strategy = Strategy("s", START >> draft >> check >> END)
    result = await Agent(strategy, model=model).run("What shall I take?")
    assert result.output == Flagged("Take 5 mg.", ("medicine",), "It names a dose.")
    [asked] = model.requests[1].messages
    assert "No medical advice." in asked.text
    assert asked.text.endswith("\n\nTake 5 mg.")
    assert model.requests[1].output.strict
    assert result.turns == 1
    assert len(result.memory.to_messages()) == 2


async def test_a_policy_without_a_verdict_lets_nothing_pass():
    """An answer that is none is asked for once more, and then an error; a resumed run asks again."""
    store, strategy = MemoryStore(), moderate_alone("Be kind.")
    with pytest.raises(NodeFailedError) as failed:
        await Agent(strategy, model=ScriptedModel(["Fine.", "Fine!"]), store=store).run("x", run_id="r")
    assert isinstance(failed.value.__cause__, OutputError)
    again = Agent(strategy, model=ScriptedModel([{"reason": "", "categories": [], "flagged": False}]), store=store)
    assert (await again.resume("r")).output == "x"


async def test_a_policy_needs_a_model_and_a_moderator_does_not():
    """The run is refused before its first node."""
    with pytest.raises(FeatureError, match="asks a model"):
        await Agent(moderate_alone("Be kind.")).run("x")
    assert (await Agent(moderate_alone(no_numbers)).run("x")).output == "x"


def by_turns(request):
    last = request.messages[-1].text
    if last.startswith("Check a text"):
        return {"reason": "", "categories": ["x"], "flagged": last.endswith("first")}
    return "second" if last == "again" else "first"


async def test_a_moderation_is_resumed_from_any_step():
    """No recorded verdict is asked for again."""
    draft, check = llm_request(tools=False), moderate("Not the first.")
    strategy = Strategy(
        "s", START >> draft >> check, check.on(Flagged).map(lambda held: "again") >> draft, check.on(str) >> END
    )
    result, model = await resumed_everywhere(strategy, by_turns)
    assert result.output == "second"
    assert len(model.requests) == 4
