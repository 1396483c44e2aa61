"""RetryModel and FallbackModel: what is asked again, who is asked next, and what is reported."""

from __future__ import annotations

import pickle

import anyio
import pytest

from graphagent import END, START, Agent, Context, Strategy, node
from graphagent.errors import (
    AllModelsFailedError,
    BudgetError,
    ModelRequestError,
    NodeFailedError,
    PromptTooLongError,
    ScriptError,
)
from graphagent.events import ModelRequestFailed, NodeFailed
from graphagent.graph import Retry
from graphagent.llm import FailedRequest, FallbackModel, Message, ModelRequest, PricedModel, Prices, RetryModel
from graphagent.llm._context_overflow import is_overflow
from graphagent.llm.openai import OpenAIModel
from graphagent.nodes import llm_request
from graphagent.testing import Cut, RawResponse, ScriptedModel, openai_server
from graphagent_strategies import single_run

HELLO = ModelRequest((Message.user("Hello?"),))
BUSY = ModelRequestError("model 'a' answered 429", status=429, retry_after=0.0)
DOWN = ModelRequestError("model 'a' cannot be reached")
REFUSED = ModelRequestError("model 'a' answered 400", status=400)
AT_ONCE = Retry(3, wait=0)


class Talker:
    """A model that says a few words and then fails."""

    name = "talker"

    def __init__(self, error, words=("Once", " upon")):
        self.error, self.words, self.asked = error, words, 0

    async def respond(self, request, on_text=None):
        self.asked += 1
        if on_text is not None:
            for each in self.words:
                on_text(each)
        raise self.error


# RetryModel


@pytest.mark.parametrize(
    "error", [BUSY, DOWN, ModelRequestError("500", status=500), ModelRequestError("529", status=529)]
)
async def test_what_may_go_away_is_asked_again_and_reported(error):
    """The answer comes as if nothing had happened, and says which attempts failed and why."""
    model = RetryModel(ScriptedModel([error, error, "Hello."], name="a"), AT_ONCE)
    response = await model.respond(HELLO)
    assert response.message.text == "Hello."
    assert response.failed == (FailedRequest("a", str(error)),) * 2


@pytest.mark.parametrize(
    "error",
    [
        REFUSED,
        ModelRequestError("401", status=401),
        ModelRequestError("too long", status=400, detail="maximum context length is 8192"),
        ModelRequestError("broke off", detail="maximum context length is 8192"),
        PromptTooLongError("too long", tokens=5, limit=4, largest="the task"),
        ValueError("a mistake in the model"),
    ],
)
async def test_what_would_fail_again_is_raised_at_once(error):
    """A refusal does not become an answer by asking again."""
    inner = ScriptedModel([error, "Hello."])
    with pytest.raises(type(error)):
        await RetryModel(inner, AT_ONCE).respond(HELLO)
    assert len(inner.requests) == 1


async def test_the_last_attempt_raises_what_it_met():
    """A number is as good as a Retry."""
    inner = ScriptedModel([DOWN, BUSY, "too late"])
    with pytest.raises(ModelRequestError, match="429"):
        await RetryModel(inner, Retry(2, wait=0)).respond(HELLO)
    assert len(inner.requests) == 2
    assert RetryModel(inner, 2).retry == Retry(2)


async def test_it_waits_as_long_as_the_server_asks(monkeypatch):
    """Retry-After counts where it is longer than the wait of the Retry. One longer than max_wait is not cut down: the error says so."""
    waits = []

    async def sleep(seconds):
        waits.append(seconds)

    monkeypatch.setattr(anyio, "sleep", sleep)
    busy = [ModelRequestError("busy", status=429, retry_after=wait) for wait in (0.5, 7.0, 900.0)]
    with pytest.raises(ModelRequestError) as info:
        await RetryModel(ScriptedModel([*busy, "Hello."]), Retry(4, wait=1.0)).respond(HELLO)
    assert waits == [1.0, 7.0]
    assert info.value.__notes__ == ["not tried again: the server asked to wait 900 seconds, and max_wait=60"]
    await RetryModel(ScriptedModel([*busy, "Hello."]), Retry(4, wait=1.0, max_wait=900)).respond(HELLO)
    assert waits == [1.0, 7.0, 1.0, 7.0, 900.0]


BUSY_SERVER = RawResponse(429, {"content-type": "application/json"}, "{}")


@pytest.fixture
def waits(monkeypatch):
    """The seconds between attempts, for which nobody waits."""
    waited = []

    async def sleep(seconds):
        waited.append(seconds)

    monkeypatch.setattr(anyio, "sleep", sleep)
    return waited


async def test_a_model_repeats_what_may_go_away_and_each_attempt_is_heard(waits):
    """`max_retries` is ours: the run hears of each failed request. A RetryModel around it decides instead."""
    heard = []
    with openai_server([BUSY_SERVER, BUSY_SERVER, "Hello.", BUSY_SERVER, BUSY_SERVER]) as server:
        async with OpenAIModel("m", base_url=server.base_url) as model:
            agent = Agent(single_run(), model=model)
            agent.on(ModelRequestFailed, lambda event: heard.append(event.reason))
            assert (await agent.run("Hello?")).output == "Hello."
            assert [each.partition(" answered ")[2] for each in heard] == ["429: rate limit or quota exceeded"] * 2
            assert [each for each in waits if each] == [0.5, 1.0]
            with pytest.raises(ModelRequestError) as raised:
                await RetryModel(model, Retry(2, wait=0)).respond(HELLO)
    assert (len(server.requests), len(raised.value.failed)) == (5, 2)


async def test_a_model_waits_for_a_minute_and_not_for_longer(waits):
    """A longer Retry-After is an error at once, with a note; LiteLLM has that of the server behind it under another name."""
    answers = [
        RawResponse(429, {"content-type": "application/json", name: seconds}, "{}")
        for name, seconds in (("llm_provider-retry-after", "59"), ("retry-after", "119"))
    ]
    with openai_server([*answers, "too late"]) as server:
        async with OpenAIModel("m", base_url=server.base_url) as model:
            with pytest.raises(ModelRequestError) as raised:
                await model.respond(HELLO)
    assert [each for each in waits if each] == [59.0]
    assert raised.value.__notes__ == ["not tried again: the server asked to wait 119 seconds, and max_wait=60"]


async def test_what_is_wrong_with_the_settings_is_not_tried_again(waits, monkeypatch):
    """A missing key and what cannot be sent are errors at once, without a turn; so is a connection that is refused, in the end."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    closed = "http://127.0.0.1:1/v1"
    failed, errors = [], []

    @node
    async def note(ctx: Context, error: ModelRequestError) -> str:
        errors.append(error)
        return "failed"

    ask = llm_request()
    strategy = Strategy("ask", START >> ask >> END, ask.on_error(ModelRequestError) >> note >> END)
    for model, tried in (
        (OpenAIModel("m"), 1),
        (OpenAIModel("m", base_url=closed, api_key="…"), 1),
        (OpenAIModel("m", base_url=closed), 3),
    ):
        failed.clear()
        errors.clear()
        agent = Agent(strategy, model=model)
        agent.on(ModelRequestFailed, failed.append)
        result = await agent.run("Hello?")
        assert (len(failed), result.turns, [error.sent for error in errors]) == (tried, 0, [False])


async def test_a_server_that_drops_the_connection_is_asked_again():
    """Over real HTTP: the answer breaks off before its end, then comes whole."""
    with openai_server([Cut("Hello there."), "Hello."]) as server:
        async with OpenAIModel("m", base_url=server.base_url, max_retries=0) as inner:
            response = await RetryModel(inner, AT_ONCE).respond(HELLO)
    assert response.message.text == "Hello."
    assert len(server.requests) == 2
    assert "127.0.0.1" in response.failed[0].reason


async def test_what_a_listener_has_heard_is_not_said_twice():
    """Once text has arrived, an error is raised; before, streaming is tried again."""
    heard = []
    talker = Talker(DOWN)
    with pytest.raises(ModelRequestError):
        await RetryModel(talker, AT_ONCE).respond(HELLO, heard.append)
    assert (talker.asked, heard) == (1, ["Once", " upon"])

    heard.clear()
    silent = RetryModel(ScriptedModel([DOWN, "Hello there."]), AT_ONCE)
    assert (await silent.respond(HELLO, heard.append)).message.text == "".join(heard) == "Hello there."


A, B = (ModelRequestError(f"model {name!r} answered 503", status=503) for name in "ab")


@pytest.mark.parametrize(
    ("wrapped", "said"),
    [
        (lambda a, b: a, [A]),
        (lambda a, b: RetryModel(a, AT_ONCE), [A, A, A]),
        (lambda a, b: FallbackModel(RetryModel(a, Retry(2, wait=0)), b), [A, A, B]),
        (lambda a, b: RetryModel(FallbackModel(a, b), AT_ONCE), [A, B] * 3),
        (lambda a, b: FallbackModel(a, b, on=lambda error: error is not B), [A, B]),
    ],
)
async def test_requests_are_reported_as_failed_where_none_is_answered(wrapped, said):
    """Each is an event, in order, before the node fails with the error, which has them if a wrapper asked."""
    model = wrapped(ScriptedModel([A] * 6, name="a"), ScriptedModel([B] * 6, name="b"))
    agent, heard = Agent(single_run(), model=model), []
    agent.on(ModelRequestFailed, lambda event: heard.append((event.model, event.reason)))
    agent.on(NodeFailed, lambda event: heard.append(event.error.failed))
    for _ in range(2):
        with pytest.raises(NodeFailedError):
            await agent.run("Hello?")
        *events, failed = heard
        assert events == [("a" if each is A else "b", str(each)) for each in said]
        assert [(each.model, each.reason) for each in failed] == (
            events if isinstance(model, RetryModel | FallbackModel) else []
        )
        heard.clear()


# FallbackModel


async def test_the_next_model_is_asked_when_one_fails():
    """The response says which model answered, and which failed and why."""
    model = FallbackModel(ScriptedModel([DOWN], name="a"), ScriptedModel(["Hello."], name="b"))
    response = await model.respond(HELLO)
    assert (response.message.text, response.model) == ("Hello.", "b")
    assert response.failed == (FailedRequest("a", str(DOWN)),)
    assert model.name == "a or b"


@pytest.mark.parametrize("error", [BUSY, DOWN, REFUSED, ModelRequestError("too long", status=413)])
async def test_the_first_model_is_asked_first_every_time(error):
    """A failure is forgotten by the next request; no failure costs nothing."""
    first, second = ScriptedModel([error, "from a"], name="a"), ScriptedModel(["from b"], name="b")
    model = FallbackModel(first, second)
    assert [(await model.respond(HELLO)).message.text for _ in range(2)] == ["from b", "from a"]


async def test_over_real_servers():
    """The first server is overloaded, the second answers, in a run that reports the failure as an event."""
    busy, well = openai_server([ModelRequestError("busy", status=503)]), openai_server(["Hello."])
    with busy as first, well as second:
        a = OpenAIModel("a", base_url=first.base_url, max_retries=0)
        b = OpenAIModel("b", base_url=second.base_url)
        async with a, b:
            agent, failed = Agent(single_run(), model=FallbackModel(a, b)), []
            agent.on(ModelRequestFailed, failed.append)
            assert (await agent.run("Hello?")).output == "Hello."
    [event] = failed
    assert event.model == "a"
    assert "503" in event.reason


async def test_if_every_model_fails_one_error_names_each():
    """It has every reason in its text, what each raised in `.errors`, and survives pickling; the run can be resumed."""
    odd = ValueError("may repeat what was sent: s3cret")
    model = FallbackModel(
        ScriptedModel([REFUSED], name="a"), ScriptedModel([odd], name="b"), ScriptedModel([BUSY], name="c"),
        on=Exception,
    )  # fmt: skip
    with pytest.raises(NodeFailedError) as info:
        await Agent(single_run(), model=model).run("Hello?")
    error = info.value.__cause__
    assert isinstance(error, AllModelsFailedError)
    assert str(error).startswith(
        "all 3 models failed: 'a': model 'a' answered 400; 'b': ValueError; 'c': model 'a' answered 429. Try again later"
    )
    assert error.errors == (REFUSED, odd, BUSY)
    assert (error.status, error.retry_after) == (400, 0.0)
    assert "s3cret" not in f"{info.value} {error}"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


async def test_all_models_can_be_asked_again():
    """A RetryModel around a FallbackModel tries again if any of the failures may go away."""

    def pair(first_error):
        return FallbackModel(ScriptedModel([first_error, "Hello."], name="a"), ScriptedModel([REFUSED] * 2, name="b"))

    assert (await RetryModel(pair(BUSY), AT_ONCE).respond(HELLO)).message.text == "Hello."
    with pytest.raises(AllModelsFailedError):
        await RetryModel(pair(REFUSED), AT_ONCE).respond(HELLO)


def test_a_prompt_too_long_for_one_of_all_is_too_long():
    """So a window is compressed, although the last model failed for another reason."""
    long = ModelRequestError("400", status=400, detail="maximum context length is 8192")
    assert is_overflow(AllModelsFailedError([("a", "x"), ("b", "y")], [long, BUSY]))
    assert not is_overflow(AllModelsFailedError([("a", "x"), ("b", "y")], [DOWN, BUSY]))


@pytest.mark.parametrize("error", [ScriptError("the script has ended"), BudgetError("turns", 1, None)])
async def test_what_no_model_can_cure_is_raised(error):
    """The end of a script or of a budget is not hidden by another model, whatever `on` says."""
    second = ScriptedModel(["never"])
    with pytest.raises(type(error)):
        await FallbackModel(ScriptedModel([error]), second, on=Exception).respond(HELLO)
    assert second.requests == []


@pytest.mark.every_loop
async def test_cancellation_asks_nobody_else():
    """A request that is cancelled ends, on both loops."""

    class Slow:
        name = "slow"

        async def respond(self, request, on_text=None):
            await anyio.sleep_forever()

    second = ScriptedModel(["never"])
    with anyio.move_on_after(0.01) as scope:
        await RetryModel(FallbackModel(Slow(), second, on=Exception), AT_ONCE).respond(HELLO)
    assert scope.cancelled_caught
    assert second.requests == []


async def test_on_says_which_errors_count():
    """As types or as a function of the error; any other is raised."""

    def models(error):
        return ScriptedModel([error], name="a"), ScriptedModel(["Hello."], name="b")

    for on in (ValueError, (ValueError, KeyError), lambda error: isinstance(error, ValueError)):
        assert (await FallbackModel(*models(ValueError("x")), on=on).respond(HELLO)).model == "b"
        with pytest.raises(ModelRequestError):
            await FallbackModel(*models(DOWN), on=on).respond(HELLO)


async def test_a_second_model_does_not_begin_anew_after_streamed_text():
    """Its text would follow the first words of another answer; without a listener it is asked."""
    heard = []
    with pytest.raises(ModelRequestError):
        await FallbackModel(Talker(DOWN), ScriptedModel(["Hello."])).respond(HELLO, heard.append)
    assert heard == ["Once", " upon"]
    assert (await FallbackModel(Talker(DOWN), ScriptedModel(["Hello."])).respond(HELLO)).message.text == "Hello."
    heard.clear()
    await FallbackModel(Talker(DOWN, words=()), ScriptedModel(["Hello there."])).respond(HELLO, heard.append)
    assert heard == ["Hello", " there."]


async def test_wrappers_in_any_order():
    """Failures of all levels are reported in the order in which they happened, and costs are counted."""
    a = ScriptedModel([BUSY, DOWN, BUSY], name="a")
    b = ScriptedModel([DOWN, "Hello."], name="b")
    model = PricedModel(FallbackModel(RetryModel(a, AT_ONCE), RetryModel(b, AT_ONCE)), Prices(1, 1))
    response = await model.respond(HELLO)
    assert [each.model for each in response.failed] == ["a", "a", "a", "b"]
    assert response.usage.cost > 0


def test_a_budget_of_money_sees_through_wrappers():
    """A model without prices is refused for max_cost, however it is wrapped."""
    bare = OpenAIModel("m", base_url="http://127.0.0.1:9/v1", api_key="s3cret")
    priced = PricedModel(bare, Prices(1, 1))
    for model in (RetryModel(bare, 2), FallbackModel(priced, bare), FallbackModel(bare, RetryModel(priced, 2))):
        with pytest.raises(ValueError, match="does not say what its answers cost"):
            Agent(single_run(), model=model, max_cost=1)
        assert "s3cret" not in repr(model)
    Agent(single_run(), model=FallbackModel(priced, RetryModel(priced, 2)), max_cost=1)
