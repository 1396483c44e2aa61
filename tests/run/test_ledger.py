"""The ledger: what a run spent is one number, wherever it is told, and however the run came to its end."""

from __future__ import annotations

import pickle
from decimal import Decimal
from itertools import repeat

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphagent import END, START, Agent, Context, Strategy, each, node, parallel, race, tool
from graphagent.errors import BudgetError, HandlerError, ModelRequestError, NodeFailedError
from graphagent.events import ModelResponded, RunFinished
from graphagent.llm import Message, ModelResponse, PricedModel, ToolCall, ToolCalls, Usage
from graphagent.memory import ActionStep, AgentMemory, FileMemoryProvider, PlanningStep, SummaryStep
from graphagent.nodes import auto_detect_facts, compress_history, execute_tools, llm_request
from graphagent.run import Charge, Ledger, list_runs
from graphagent.store import MemoryStore, SqliteStore
from graphagent.testing import ScriptedModel
from tests.run.family import PRICES, Commits, react, rows
from tests.thorough import examples, some


def priced(rule, name="m"):
    """A model that answers by a rule, any number of times."""
    return PricedModel(ScriptedModel(repeat(rule), name=name), PRICES)


def answer(request):
    """Give an answer to whatever is asked; structured output only when asked again."""
    last = request.messages[-1]
    if request.output is not None and "facts" in request.output.schema["properties"]:
        return {"facts": []}
    if request.output is not None:
        return "seven" if "Answer again" not in last.text else "7"
    if last.role == "user" and last.text.startswith("Look"):
        return ToolCalls([ToolCall("helper", {"task": "help"}, "c1"), ToolCall("note", {"text": "x y z"}, "c2")])
    return f"said after {len(request.messages)} messages"


@tool
async def note(text: str) -> str:
    """Make a note."""
    return f"noted {text}"


@node
async def look(ctx: Context, given: object) -> str:
    return "Look it up."


@node
async def twice(ctx: Context, given: object) -> list[str]:
    return ["one", "two"]


def whole(folder, store=None, **settings):
    """An agent that spends in every way there is: turns, asking again, plans, extraction, compression, forks, a sub-agent."""
    number = llm_request(output=int, name="number")
    ask, act = llm_request(name="ask"), execute_tools(limit=2, name="act")
    say = llm_request(tools=False, name="say")
    branch = Strategy("branch", START >> llm_request(tools=False, name="in") >> END)
    strategy = Strategy(
        "whole",
        START >> number >> look >> ask,
        ask.on(ToolCalls) >> act >> ask,
        ask.on(str) >> auto_detect_facts(name="learn") >> compress_history(name="compress") >> twice
        >> each(branch, transcript="keep") >> look.named("again").named("more") >> say
        >> parallel(branch.named("a"), branch.named("b")) >> look.named("then") >> race(branch.named("c")) >> END,
    )  # fmt: skip
    helper = Agent(react("help"), name="helper", description="Helps.", planning_interval=1)
    agent = Agent(
        strategy,
        model=priced(answer),
        tools=[helper, note],
        store=store,
        planning_interval=2,
        max_turns=None,
        **settings,
    )
    agent.install(AgentMemory, provider=FileMemoryProvider(folder))
    return agent


def told(memory, children=()):
    """Add up what the steps of a transcript say, with those of the sub-agents' runs."""
    own = sum((step.token_usage for step in memory.steps if getattr(step, "token_usage", None)), Usage())
    return own + sum((told(child.memory, child.result.children) for child in children), Usage())


# ---- one number


async def test_it_is_the_same_number_everywhere(tmp_path):
    """In the result, the ledger, the events, the heads, the run that is read again; with all that there is to spend it on."""
    async with SqliteStore(tmp_path / "runs.db") as store:
        agent, heard = whole(tmp_path / "facts", store), []
        agent.on(ModelResponded, heard.append)
        agent.on(RunFinished, heard.append)
        result = await agent.run("go", run_id="r")
        usage = result.usage
        assert usage.cost > 0
        assert result.ledger.total == usage
        answers = [event.response.usage for event in heard if isinstance(event, ModelResponded)]
        assert sum(answers, Usage()) == usage
        assert [event.usage for event in heard if isinstance(event, RunFinished) and event.run_id == "r"] == [usage]
        assert usage.cost == sum(PRICES.cost(each) for each in answers)
        stored = await agent.read("r")
        assert stored.result.usage == usage
        assert rows(stored.result.ledger) == rows(result.ledger)
        heads = {head.run_id: head for head in await list_runs(store)}
        assert (heads["r"].tokens, Decimal(heads["r"].cost)) == (usage.total_tokens, usage.cost)
        [child] = result.children
        assert heads[child.run_id].tokens == child.result.usage.total_tokens


async def test_the_steps_tell_all_but_extraction_and_what_was_dropped(tmp_path):
    """Turns, the ones asked twice too, plans and summaries say what they took; the rest stands in the ledger alone."""
    result = await whole(tmp_path).run("go", run_id="r")
    kinds = {type(step) for step in result.memory.steps if getattr(step, "token_usage", None)}
    assert kinds == {ActionStep, PlanningStep, SummaryStep}
    dropped = ("parallel/", "race/")
    elsewhere = [row for row in result.ledger.charges if row.what.startswith("facts:") or row.node.startswith(dropped)]
    assert {row.node for row in elsewhere} == {"learn", "parallel/0/a/in", "parallel/1/b/in", "race/0/c/in"}
    assert told(result.memory, result.children) + sum((row.usage for row in elsewhere), Usage()) == result.usage


async def test_it_is_the_same_number_wherever_the_process_died(tmp_path):
    """Behind every commit: the run that goes on has spent what the one has spent that was not disturbed."""
    first = whole(tmp_path, Commits())
    result = await first.run("go", run_id="r")
    for count in some(range(1, len(first.store.commits) + 1), 8):
        store = await first.store.after(count)
        agent = whole(tmp_path, store)
        before = (await agent.read("r")).result
        assert before.usage == before.ledger.total
        again = await agent.resume("r")
        stored = await agent.read("r")
        # What was asked for extraction is not recorded: where it was answered, and the node did not end, it is asked again.
        more = [row for row in stored.result.ledger.charges if row.what.startswith("facts:")][1:]
        spent = result.usage + sum((row.usage for row in more), Usage())
        assert again.usage == spent == again.ledger.total == stored.result.usage == stored.result.ledger.total
        assert len(more) <= 1
        [head] = [head for head in await list_runs(store) if head.run_id == "r"]
        assert (head.tokens, Decimal(head.cost)) == (spent.total_tokens, spent.cost)


async def test_extraction_is_paid_for_though_its_process_died(tmp_path):
    """What was spent is written down before the node ends."""
    first = whole(tmp_path, Commits())
    await first.run("go", run_id="r")
    found = 0
    for count in range(1, len(first.store.commits) + 1):
        store = await first.store.after(count)
        if (await whole(tmp_path, store).history("r"))[-1].kind != "spent":
            continue
        found += 1
        agent = whole(tmp_path, store)
        result = await agent.resume("r")
        assert len([row for row in result.ledger.charges if row.what.startswith("facts:")]) == 2
    assert found == 1


async def test_a_fork_begins_with_what_its_origin_had_spent(tmp_path):
    """And a run on recorded results spends what was spent."""
    agent = whole(tmp_path, MemoryStore())
    result = await agent.run("go", run_id="r")
    half = next(entry for entry in await agent.history("r") if entry.node == "compress")
    forked = await agent.fork("r", at=half.number, run_id="f")
    assert (forked.usage, rows(forked.ledger)) == (result.usage, rows(result.ledger))
    assert (await agent.state_at("r", half.number)).usage == (await agent.state_at("f", half.number)).usage


@settings(max_examples=examples(25), deadline=None)
@given(st.data())
def test_sums_hold_for_any_strategy(data):
    """Random nestings of turns, forks, subgraphs with budgets and sub-agents: rows, nodes and meters say the same."""
    from anyio import run as run_loop

    made = data.draw(
        st.recursive(
            st.just("ask"), lambda inner: st.tuples(KINDS, st.lists(inner, min_size=1, max_size=3)), max_leaves=8
        )
    )
    agent = Agent(Strategy("s", START >> _built(made, iter(range(100))) >> END), model=priced(answer), max_turns=None)
    result = run_loop(agent.run, "x")
    assert result.ledger.total == result.usage == sum(result.ledger.by_node.values(), Usage())
    assert len(result.ledger.charges) == result.turns


KINDS = st.sampled_from(["sequence", "parallel", "subgraph"])


@node
async def words(ctx: Context, given: object) -> str:
    return "some words"


def _built(made, numbers):
    name = f"n{next(numbers)}"
    if made == "ask":
        return Strategy(name, START >> words >> llm_request(tools=False) >> END)
    kind, parts = made
    inside = [_built(part, numbers) for part in parts]
    if kind == "parallel":
        return Strategy(name, START >> parallel(*inside) >> END)
    chain = START >> inside[0]
    for part in inside[1:]:
        chain = chain >> part
    strategy = Strategy(name, chain >> END)
    return strategy.using(max_tokens=10**9, max_cost=Decimal(1000)) if kind == "subgraph" else strategy


# ---- what goes wrong


async def test_an_answer_that_a_listener_broke_on_is_paid_for():
    """It was given and is lost: asked again, it counts twice, as it was paid twice."""
    store, broken = MemoryStore(), [True]

    def fail(event):
        if broken:
            broken.clear()
            raise ValueError

    agent = Agent(Strategy("s", START >> llm_request(tools=False) >> END), model=priced(answer), store=store)
    agent.on(ModelResponded, fail)
    with pytest.raises(HandlerError):
        await agent.run("x", run_id="r")
    stored = await agent.read("r")
    once = stored.result.usage
    assert once == stored.result.ledger.total != Usage()
    result = await agent.resume("r")
    assert result.usage == once + once == result.ledger.total
    again = await agent.read("r")
    assert again.result.usage == result.usage == again.result.ledger.total


async def test_attempts_that_failed_are_paid_for():
    """An answer that was of no use is in the step of the attempt, in the ledger and in the sum."""
    ask = llm_request(output=int).retry(attempts=3, wait=0)
    model = priced(lambda request: "7" if len(model.model.requests) > 4 else "no")
    result = await Agent(Strategy("s", START >> ask >> END), model=model).run("x")
    assert (result.output, result.turns, len(result.ledger.charges)) == (7, 5, 5)
    assert told(result.memory) == result.usage == result.ledger.total


async def test_a_request_that_fails_costs_nothing_that_is_known():
    """There is no row for it."""
    replies = [ModelRequestError("down"), "up"]
    ask = llm_request(tools=False).retry(attempts=2, wait=0)
    agent = Agent(Strategy("s", START >> ask >> END), model=PricedModel(ScriptedModel(replies), PRICES))
    result = await agent.run("x")
    assert len(result.ledger.charges) == 1
    assert told(result.memory) == result.usage == result.ledger.total


async def test_a_node_may_spend_for_itself():
    """What it asks elsewhere is counted and shown as it says."""
    store = MemoryStore()

    @node
    async def embed(ctx: Context, text: str) -> str:
        ctx.spend(Usage(5, cost=Decimal("0.5")), "vectors", "small")
        return text

    agent = Agent(Strategy("s", START >> embed >> END), store=store)
    result = await agent.run("x", run_id="r")
    assert result.ledger.charges == (Charge("embed", "vectors", "small", Usage(5, cost=Decimal("0.5"))),)
    assert (await agent.read("r")).result.ledger == result.ledger


# ---- budgets


async def test_money_is_a_budget():
    """No model is asked when all of it is spent; the error says how much was allowed, and holds what was done."""
    ask = llm_request(tools=False)
    strategy = Strategy("s", START >> ask, ask.when(lambda _: True) >> ask, ask.otherwise() >> END)
    free = ModelResponse(Message.assistant("x"), Usage(1, 1, cost=Decimal("0.03")))
    agent = Agent(strategy, model=ScriptedModel([free] * 9), max_cost=0.1)
    with pytest.raises(BudgetError) as info:
        await agent.run("x")
    assert (info.value.budget, info.value.limit) == ("cost", 0.1)
    assert info.value.result.usage.cost == Decimal("0.12")
    assert info.value.result.ledger.total == info.value.result.usage


@pytest.mark.parametrize("limit", [0.3, "0.3"])
async def test_a_budget_is_meant_as_it_is_written(limit):
    """Three times a tenth is not less than 0.3, though as a binary fraction 0.3 is another number."""
    ask = llm_request(tools=False)
    strategy = Strategy("s", START >> ask, ask.when(lambda _: True) >> ask, ask.otherwise() >> END)
    tenth = ModelResponse(Message.assistant("x"), Usage(1, cost=Decimal("0.1")))
    model = ScriptedModel([tenth] * 9)
    with pytest.raises(BudgetError):
        await Agent(strategy, model=model, max_cost=Decimal(limit) if isinstance(limit, str) else limit).run("x")
    assert len(model.requests) == 3


async def test_a_subgraph_has_money_of_its_own():
    """`.using(max_cost=)` ends it with its place, and counts in the budget around."""
    ask = llm_request(tools=False)
    loop = Strategy("loop", START >> ask, ask.when(lambda _: True) >> ask, ask.otherwise() >> END)
    tenth = ModelResponse(Message.assistant("x"), Usage(1, cost=Decimal("0.1")))

    def agent(**settings):
        inner = loop.using(max_cost=Decimal("0.5"))
        return Agent(Strategy("s", START >> inner >> END), model=ScriptedModel([tenth] * 9), **settings)

    with pytest.raises(BudgetError) as info:
        await agent().run("x")
    assert (info.value.where, info.value.limit, info.value.result.usage.cost) == (
        "loop",
        Decimal("0.5"),
        Decimal("0.5"),
    )
    with pytest.raises(BudgetError) as info:
        await agent(max_cost=Decimal("0.2")).run("x")
    assert (info.value.where, info.value.result.usage.cost) == ("", Decimal("0.2"))


@pytest.mark.parametrize("budget", ["turns", "tokens", "cost", "nodes"])
async def test_a_run_that_used_up_a_budget_goes_on_with_a_larger_one(tmp_path, budget):
    """Resumed by an agent that has more, it does nothing again, and ends as if there had been no limit."""
    store, done = MemoryStore(), []

    @tool
    async def count(n: int) -> str:
        """Count."""
        done.append(n)
        return f"{n}"

    def rule(request):
        made = sum(message.role == "assistant" for message in request.messages)
        return ToolCall("count", {"n": made}) if made < 6 else f"counted {made}"

    def agent(**limits):
        return Agent(react("s"), model=priced(rule), tools=[count], store=store, **{"max_turns": None, **limits})

    free = await agent().run("x", run_id="free")
    done.clear()
    half = {"turns": 3, "tokens": free.usage.total_tokens // 2, "cost": free.usage.cost / 2, "nodes": 6}[budget]
    with pytest.raises(BudgetError) as info:
        await agent(**{f"max_{budget}": half}).run("x", run_id="r")
    assert info.value.budget == budget
    read = await agent().read("r")
    assert (read.result.status, read.result.usage) == ("failed", info.value.result.usage)
    with pytest.raises(BudgetError):
        await agent(**{f"max_{budget}": half}).resume("r")
    result = await agent().resume("r")
    assert (result.output, result.usage, done) == (free.output, free.usage, [0, 1, 2, 3, 4, 5])
    assert told(result.memory) == result.usage == result.ledger.total
    assert result.turns == free.turns


async def test_the_budget_of_a_subgraph_is_what_it_was_when_the_process_died():
    """Behind every commit, whatever its branches had spent by then: it ends where it would have ended."""
    one = Strategy("one", START >> llm_request(tools=False) >> look >> llm_request(tools=False, name="more") >> END)
    inner = Strategy(
        "inner", START >> twice >> each(one) >> look.named("then") >> llm_request(tools=False, name="last") >> END
    )

    def agent(store, limit=None):
        strategy = Strategy("s", START >> inner.using(max_tokens=limit) >> END)
        return Agent(strategy, model=priced(answer), store=store)

    free = await agent(MemoryStore(), 10**9).run("x")
    limit = free.usage.total_tokens - free.ledger.charges[-1].usage.total_tokens
    assert free.ledger.charges[-1].node == "inner/last"
    first = agent(Commits(), limit)
    with pytest.raises(BudgetError) as info:
        await first.run("x", run_id="r")
    assert info.value.where == "inner"
    for count in range(1, len(first.store.commits) + 1):
        with pytest.raises(BudgetError) as again:
            await agent(await first.store.after(count), limit).resume("r")
        assert (again.value.where, again.value.result.usage) == ("inner", info.value.result.usage)


# ---- to be read


async def test_it_is_a_table():
    """One row for every request, with the model that answered, and the total; empty columns are left out."""
    ledger = Ledger.of(
        [
            Charge("draft", "model:1", "gpt", Usage(1200, 34, 1000, 0, Decimal("0.0021"))),
            Charge("act", "researcher", "", Usage(10, 5), "r/researcher/7"),
            Charge("draft", "plan:2", "gpt", Usage(1, 1)),
            Charge("act", "researcher", "", Usage(1, 1, cost=Decimal("0.1")), "r/researcher/7"),
        ]
    )
    assert ledger.to_text().split("\n") == [
        "node   what        model  input  cached  output    cost",
        "draft  model:1     gpt    1,200   1,000      34  0.0021",
        "act    researcher            11               6     0.1",
        "draft  plan:2      gpt        1               1",
        "total                     1,212   1,000      41  0.1021",
    ]
    assert ledger.by_node == {
        "draft": Usage(1201, 35, 1000, 0, Decimal("0.0021")),
        "act": Usage(11, 6, cost=Decimal("0.1")),
    }
    assert repr(ledger) == "<ledger of 3 rows: 1,253 tokens>"


def test_a_name_cannot_move_the_cursor():
    """The name of a model comes from its server."""
    text = Ledger((Charge("n", "model:1", "evil\x1b[2J\nmodel", Usage(1)),)).to_text()
    assert "\x1b" not in text
    assert len(text.split("\n")) == 3


def test_a_run_that_spent_nothing_has_an_empty_ledger():
    """Its table is the head and the total."""
    assert Ledger(()).to_text() == "node   input  output\ntotal      0       0"
    assert Ledger(()).total == Usage()


async def test_an_unfinished_result_keeps_its_ledger():
    """What is spent later does not change what an earlier result says."""
    ask, act = llm_request(), execute_tools()
    strategy = Strategy("s", START >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(str) >> END)
    run = Agent(strategy, model=priced(answer), tools=[note]).start("Hello.")
    before = run.result
    result = await run.finish()
    assert before.ledger == Ledger(())
    assert len(result.ledger.charges) == 1


async def test_a_result_can_be_pickled_with_its_ledger(tmp_path):
    """What a BudgetError holds goes to another process too; the runs of sub-agents stay behind."""
    result = await whole(tmp_path).run("go", run_id="r")
    copied = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(result))))
    assert (copied.usage, copied.ledger, copied.output) == (result.usage, result.ledger, result.output)
    assert copied.memory == result.memory
    with pytest.raises(BudgetError) as info:
        await whole(tmp_path, max_tokens=20).run("go")
    error = pickle.loads(pickle.dumps(info.value))
    assert error.result.ledger == info.value.result.ledger


async def test_a_failed_node_leaves_its_costs():
    """The error of the run holds no cost, but the run does."""

    @node
    async def fail(ctx: Context, text: str) -> str:
        raise ValueError

    run = Agent(Strategy("s", START >> llm_request(tools=False) >> fail >> END), model=priced(answer)).start("x")
    with pytest.raises(NodeFailedError):
        await run.finish()
    assert run.result.ledger.total == run.result.usage != Usage()
