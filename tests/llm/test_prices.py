"""Prices: what tokens cost, exactly, and who says so."""

from __future__ import annotations

import decimal
import random
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphagent import Agent
from graphagent.errors import ModelRequestError, NodeFailedError
from graphagent.llm import FallbackModel, Message, ModelRequest, ModelResponse, PricedModel, Prices, Usage
from graphagent.llm._chat_answer import read_usage
from graphagent.llm.openai import OpenAIModel
from graphagent.testing import ScriptedModel, openai_server
from graphagent_strategies import single_run

SMALL = Prices(input="0.15", output="0.60", cached="0.075")
COUNTS = st.integers(0, 10**9)


FREE = st.just(Decimal(0))


def usages(cost=FREE):
    return st.builds(Usage, COUNTS, COUNTS, COUNTS, COUNTS, cost)


def test_tokens_cost_what_a_million_of_them_costs():
    """Input, output, cached input and reasoning each have their price; without one of its own a part costs as the whole."""
    usage = Usage(1_000_000, 500_000, 400_000, 100_000)
    assert SMALL.cost(usage) == Decimal("0.09") + Decimal("0.03") + Decimal("0.30")
    assert Prices(1, 10).cost(usage) == 6
    assert Prices("1", "10", reasoning=0).cost(usage) == 5
    assert SMALL.cost(Usage()) == 0


@pytest.mark.parametrize("price", [0.15, "0.15", Decimal("0.15")])
def test_a_number_is_taken_as_it_is_written(price):
    """The float 0.15 means 0.15, and not the binary fraction next to it."""
    prices = Prices(price, 0)
    assert prices.input == Decimal("0.15")
    assert prices.cost(Usage(1)) == Decimal("0.00000015")


@pytest.mark.parametrize("price", ["-1", "nan", float("inf"), "a lot", True, "", None, [1]])
def test_a_price_that_is_none_is_refused(price):
    """The error names the price and what to give."""
    with pytest.raises(ValueError, match=r"output=.*pass 0 or more") as info:
        Prices("1", price)
    assert repr(price) in str(info.value)


@given(usages(), st.decimals(0, 1000, places=6), st.decimals(0, 1000, places=6))
def test_more_cached_tokens_than_there_are_never_make_a_cost_negative(usage, price, cached):
    """Servers that count cached or reasoning tokens apart from the rest do not turn an account upside down."""
    assert Prices(price, price, cached, cached).cost(usage) >= 0


@given(st.lists(usages(st.decimals(0, 10**9, places=18)), max_size=20), st.randoms())
def test_sums_are_the_same_in_any_order(parts, chance):
    """Money is added without rounding, however it is split up, and whatever else the program does with decimals."""
    shuffled = list(parts)
    chance.shuffle(shuffled)
    with decimal.localcontext(decimal.Context(prec=4)):
        total, again = sum(parts, Usage()), sum(shuffled, Usage())
        for part in parts:
            again -= part
    assert again == Usage()
    with decimal.localcontext(decimal.Context(prec=100)):
        assert total.cost == sum(part.cost for part in parts)
    assert total == sum(shuffled, Usage())


@given(st.lists(usages(), min_size=1, max_size=10))
def test_the_parts_cost_what_the_whole_costs(parts):
    """Prices of the sum are the sum of the prices, as long as parts are parts."""
    sound = [Usage(a.input_tokens, a.output_tokens, min(a.cached_tokens, a.input_tokens)) for a in parts]
    assert SMALL.cost(sum(sound, Usage())) == sum(SMALL.cost(part) for part in sound)


async def test_a_priced_model_says_what_its_answers_cost():
    """The wrapped model is asked as it is, streamed or not, and its usage gains the cost."""
    asked = ScriptedModel(["two words", "two words"], name="m")
    model = PricedModel(asked, SMALL)
    request = ModelRequest((Message.user("one two three"),))
    pieces = []
    plain, streamed = await model.respond(request), await model.respond(request, pieces.append)
    assert plain == streamed
    assert plain.usage == Usage(3, 2, cost=Decimal("0.00000165"))
    assert (model.name, pieces, asked.requests) == ("m", ["two", " words"], [request, request])
    assert "scripted" not in repr(model)
    assert "0.15" in repr(model)


async def test_what_the_server_says_is_kept():
    """A cost that came with the answer is not reckoned again."""
    told = ModelResponse(Message.assistant("x"), Usage(10, 10, cost=Decimal("0.5")))
    response = await PricedModel(ScriptedModel([told]), SMALL).respond(ModelRequest((Message.user("x"),)))
    assert response.usage.cost == Decimal("0.5")


@pytest.mark.parametrize("stream", [False, True])
async def test_the_cost_that_a_server_tells_arrives(stream):
    """`usage.cost`, as OpenRouter sends it, is the cost of the answer, streamed or not."""
    usage = Usage(194, 2, 100, 1, Decimal("0.00095"))
    with openai_server([ModelResponse(Message.assistant("yes"), usage)]) as server:
        async with OpenAIModel("m", base_url=server.base_url) as model:
            request = ModelRequest((Message.user("x"),))
            response = await model.respond(request, (lambda _: None) if stream else None)
    assert response.usage == usage


@pytest.mark.parametrize(
    ("told", "cost"),
    [
        (0.95, "0.95"), (19, "19"), ("0.00000012", "0.00000012"), (1e-07, "1e-7"), (0.1 + 0.2, "0.3"), (None, "0"),
        (-1, "0"), (float("nan"), "0"), (float("inf"), "0"), ("free", "0"), (True, "0"), ({"usd": 1}, "0"),
        ("1e999999", "0"), ("1e-999999", "0"), (10**400, "0"),
    ],
)  # fmt: skip
def test_only_an_amount_is_taken_for_one(told, cost):
    """Whatever else stands there, or is beyond all sense, counts as nothing said."""
    assert read_usage({"prompt_tokens": 1, "cost": told}) == Usage(1, cost=Decimal(cost))


async def test_a_run_knows_what_it_cost():
    """The cost of every turn is in the result, and in the step."""
    model = PricedModel(ScriptedModel(["It is sunny."]), SMALL)
    result = await Agent(single_run(), model=model).run("How is the weather?")
    assert result.usage.cost == SMALL.cost(result.usage) > 0
    assert result.memory.steps[1].token_usage == result.usage


async def test_what_failed_costs_as_the_model_that_was_asked():
    """If all models fail, or one fails for another reason, the tokens of each request have the price of its own model."""

    def failing(name, tokens):
        error = ModelRequestError(f"model {name!r} broke off its answer")
        error.usage = Usage(tokens)
        return ScriptedModel([error], name=name)

    for on in (ModelRequestError, lambda error: "'a'" in str(error)):
        model = FallbackModel(failing("a", 2_000_000), failing("b", 3_000_000), on=on)
        run = Agent(single_run(), model=PricedModel(model, {"a": Prices(1, 1), "b": Prices(10, 10)})).start("Well?")
        with pytest.raises(NodeFailedError):
            await run.finish()
        charges = run.result.ledger.charges
        assert [(each.model, each.usage.cost) for each in charges] == [("a", 2), ("b", 30)]


def test_prices_are_values():
    """Equal prices are equal, and cannot be changed."""
    assert Prices("1", "2") == Prices(1, Decimal(2))
    with pytest.raises(AttributeError):
        Prices(1, 2).input = 3
    assert len({Prices(1, random.choice(["2", 2]))}) == 1
