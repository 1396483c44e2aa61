"""Models around models, in any order: what comes through all of them."""

from __future__ import annotations

import itertools

import pytest

from graphagent import Agent, tool
from graphagent.errors import ModelRequestError, NodeFailedError
from graphagent.events import ModelRequestFailed, TextStreamed
from graphagent.graph import Retry
from graphagent.llm import (
    CachedModel,
    FallbackModel,
    LimitedModel,
    PricedModel,
    Prices,
    RetryModel,
    ToolCall,
)
from graphagent.llm.openai import OpenAIModel
from graphagent.store import MemoryStore, SqliteStore
from graphagent.testing import Cut, RecordedModel, ScriptedModel, openai_server
from graphagent_strategies import single_run
from tests.thorough import some

DOWN = ModelRequestError("down", status=503)
CALL = ToolCall("look", {"room": 1}, "1")


@tool
def look(room: int) -> str:
    """Look into a room."""
    return f"room {room} is empty"


WRAP = {
    "retry": lambda model, path: RetryModel(model, Retry(2, wait=0)),
    "fallback": lambda model, path: FallbackModel(
        model, PricedModel(ScriptedModel([DOWN] * 9, name="other"), Prices(1, 1))
    ),
    "limit": lambda model, path: LimitedModel(model, concurrency=1, per_minute=600),
    "price": lambda model, path: PricedModel(model, Prices(1, 1)),
    "cache": lambda model, path: CachedModel(model, MemoryStore()),
    "record": lambda model, path: RecordedModel(path, model, record=True),
}


@pytest.mark.parametrize("order", some(list(itertools.permutations(WRAP))[::7], 12), ids="-".join)
async def test_wrappers_fit_into_each_other_in_any_order(order, tmp_path):
    """A streamed run with a tool and a failure at first has the same answer, pieces and report through all of them."""
    with openai_server([DOWN, CALL, "It is empty."]) as server:
        async with OpenAIModel("m", base_url=server.base_url, api_key="s3cret", max_retries=0) as model:
            for each in order:
                model = WRAP[each](model, tmp_path / "recorded.json")
            agent, heard, failed = Agent(single_run(), model=model, tools=[look], max_cost=1), [], []
            agent.on(TextStreamed, lambda event: heard.append(event.text))
            agent.on(ModelRequestFailed, failed.append)
            result = await agent.run("Look into room 1.")
    assert (result.output, "".join(heard)) == ("It is empty.", "It is empty.")
    assert len(heard) > 1
    assert [event.model for event in failed] in (["m"], ["m", "other"])  # the fallback, if it is what is asked again
    assert result.usage.cost > 0
    assert len(server.requests) == 3
    assert "s3cret" not in repr(model) + (tmp_path / "recorded.json").read_text("utf-8")


@pytest.mark.parametrize("wrap", ["retry", "fallback"])
async def test_a_stream_that_breaks_off_is_not_begun_anew(wrap, tmp_path):
    """Over real HTTP, after some words have arrived, the failure is raised; the run can be resumed, and then has one answer."""
    store = SqliteStore(tmp_path / "runs.db")
    with openai_server([Cut("One two three four five six.", after=900), "One two three."]) as server:
        async with store, OpenAIModel("m", base_url=server.base_url, max_retries=0) as inner:
            agent, heard = Agent(single_run(), model=WRAP[wrap](inner, None), store=store), []
            agent.on(TextStreamed, lambda event: heard.append(event.text))
            with pytest.raises(NodeFailedError) as info:
                await agent.run("Count.", run_id="r")
            assert isinstance(info.value.__cause__, ModelRequestError)
            assert heard
            assert len(server.requests) == 1
            heard.clear()
            assert (await agent.resume("r")).output == "".join(heard) == "One two three."


async def test_a_run_whose_every_model_fails_can_be_resumed(tmp_path):
    """Nothing is lost: what was done before is not repeated, and the run goes on when a model answers again."""
    async with SqliteStore(tmp_path / "runs.db") as store:
        first = ScriptedModel([CALL, DOWN, "It is empty."], name="a")
        agent = Agent(
            single_run(), model=FallbackModel(first, ScriptedModel([DOWN], name="b")), tools=[look], store=store
        )
        with pytest.raises(NodeFailedError, match="all 2 models failed: 'a': down; 'b': down"):
            await agent.run("Look.", run_id="r")
        assert (await agent.resume("r")).output == "It is empty."
        assert len(first.requests) == 3
