"""Prices of several models: a table of one's own, and the published prices of genai-prices."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal

import genai_prices
import pytest
from genai_prices.data_snapshot import get_snapshot

from graphagent import Agent
from graphagent._clock import now
from graphagent.errors import ModelRequestError
from graphagent.llm import (
    CachedModel,
    FallbackModel,
    LimitedModel,
    Message,
    ModelRequest,
    ModelResponse,
    PricedModel,
    Prices,
    RetryModel,
    Usage,
)
from graphagent.llm.openai import OpenAIModel
from graphagent.store import MemoryStore
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run
from tests.thorough import some

HELLO = ModelRequest((Message.user("Hello?"),))
TABLE = {"small": Prices(1, 1), "large": Prices(10, 10)}
MILLION = Usage(1_000_000)


def answers(model="", usage=MILLION, **more):
    return ModelResponse(Message.assistant("x"), usage, model=model, **more)


async def cost_of(model):
    return (await model.respond(HELLO)).usage.cost


# A table of one's own


async def test_the_model_that_answered_is_the_one_that_is_paid():
    """By the name that its server gave it, or else by the one it was asked by."""
    assert await cost_of(PricedModel(ScriptedModel([answers("large")], name="small"), TABLE)) == 10
    assert await cost_of(PricedModel(ScriptedModel([answers("small-2026")], name="small"), TABLE)) == 1


async def test_a_fallback_costs_what_its_answering_model_costs():
    """Also where the server names the model otherwise, and through other wrappers."""
    down = ModelRequestError("no", status=500)
    large = RetryModel(ScriptedModel([down, answers("large-2026")], name="large"), 1)
    model = PricedModel(
        LimitedModel(FallbackModel(large, ScriptedModel([answers("other")], name="small")), concurrency=1), TABLE
    )
    assert [await cost_of(model) for _ in range(2)] == [1, 10]


async def test_an_answer_from_a_store_costs_nothing():
    """With the prices inside the cache, and around it."""
    for wrap in (
        lambda inner, store: CachedModel(PricedModel(inner, TABLE), store),
        lambda inner, store: PricedModel(CachedModel(inner, store), TABLE),
    ):
        model = wrap(ScriptedModel([answers("small")], name="small"), MemoryStore())
        assert [await cost_of(model) for _ in range(2)] == [1, 0]


def test_a_model_that_is_not_in_the_table_is_refused():
    """The error names it and what the table has; so does one for what are no prices."""
    with pytest.raises(ValueError, match="no price for model 'other', only for 'small', 'large'; add 'other': Prices"):
        PricedModel(FallbackModel(ScriptedModel([], name="small"), ScriptedModel([], name="other")), TABLE)
    with pytest.raises(TypeError, match="not of a dict; write PricedModel"):
        PricedModel(ScriptedModel([], name="small"), {"small": {"input": 1}})
    with pytest.raises(TypeError, match="takes a model, not a Prices"):
        PricedModel(Prices(1, 1))


# Published prices


def _published():
    return [(provider, model) for provider in get_snapshot().providers for model in provider.models]


@pytest.mark.parametrize(
    "usage", [Usage(1), Usage(1_000, 500, 400, 100), Usage(128_001, 7, 128_000), Usage(900_000, 10**6, 3, 10**6)]
)
async def test_every_published_price_is_reckoned_as_its_package_does(usage):
    """To the last digit, with cached and reasoning tokens and prices that depend on the length of the prompt or on the date."""
    told = genai_prices.Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cached_tokens,
        output_reasoning_tokens=usage.reasoning_tokens,
    )
    checked = 0
    for provider, model in some(_published(), 200):
        prices = model.get_prices(datetime.fromtimestamp(now() / 1_000, UTC))
        if prices.input_mtok is None or prices.output_mtok is None or not provider.api_pattern.startswith("https://"):
            continue
        address = provider.api_pattern.replace("\\", "").split("(")[0].split("[")[0].split(".*")[0]
        inner = ScriptedModel([answers(usage=usage)], name=model.id)
        inner.base_url = address
        try:
            [found] = {genai_prices.calc_price(told, model.id, provider_api_url=address).total_price}
        except LookupError:  # the package itself finds it by another name only
            continue
        assert await cost_of(PricedModel(inner)) == found, (provider.id, model.id)
        checked += 1
    assert checked > 50


async def test_the_server_and_the_name_decide():
    """A model of OpenAI on its own host, as dated by the server, and one that several hosts sell."""
    model = PricedModel(OpenAIModel("gpt-5-mini", api_key="s3cret"))
    assert repr(model).endswith("with prices of genai-prices>")
    for named in ("gpt-5-mini-2025-08-07", "a name of its own"):
        assert model._table.cost(answers(named)) == Decimal("0.25")
    routed = OpenAIModel("openai/gpt-oss-120b", base_url="https://openrouter.ai/api/v1", api_key="s3cret")
    assert PricedModel(routed)._table.cost(answers()) > 0


async def test_a_run_with_published_prices_has_a_budget():
    """`max_cost` is accepted, and the cost is exact."""
    model = PricedModel(ScriptedModel([answers("gpt-5-mini", Usage(1_000, 500, 400))], name="gpt-5-mini"))
    result = await Agent(single_run(), model=model, max_cost=1).run("Hello?")
    assert result.usage.cost == Decimal("0.00116")


@pytest.mark.parametrize(
    ("model", "where"),
    [
        (ScriptedModel([], name="a-model-of-mine"), "model 'a-model-of-mine';"),
        (OpenAIModel("gpt-99"), "model 'gpt-99' at https://api.openai.com/v1;"),
        (OpenAIModel("gpt-5-mini", base_url="http://u:s3cret@localhost:1/v1"), "model 'gpt-5-mini' at http://localhost:1/v1;"),
    ],
)  # fmt: skip
def test_a_model_without_a_published_price_is_refused(model, where):
    """Before anything is asked: a server of one's own has other prices than the maker of a model."""
    with pytest.raises(ValueError, match="genai-prices has no prices") as info:
        PricedModel(model)
    assert where in str(info.value)
    assert "PricedModel(model, Prices(input=…, output=…))" in str(info.value)
    assert "s3cret" not in str(info.value)


def test_prices_are_looked_up_without_a_thread_or_a_network():
    """In a program of its own, in which every connection is an error."""
    program = """
import sys, threading
sys.addaudithook(lambda event, _: event.startswith("socket.") and event not in ("socket.__new__",) and sys.exit(event))
from graphagent.llm import PricedModel
from graphagent.llm.openai import OpenAIModel
PricedModel(OpenAIModel("gpt-5-mini", api_key="x"))
print(threading.active_count())
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["1"]


def test_without_the_package_the_extra_is_named():
    """And prices of one's own need nothing."""
    program = """
import sys
sys.modules["genai_prices"] = None
from graphagent.llm import PricedModel, Prices
from graphagent.testing import ScriptedModel
PricedModel(ScriptedModel([], name="m"), {"m": Prices(1, 1)})
try:
    PricedModel(ScriptedModel([], name="m"))
except ImportError as error:
    print(error)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout == "PricedModel without Prices(…) needs an extra: pip install 'graphagent-ai[prices]'\n"
