"""What error messages suggest, done: each error is provoked, its suggestion is taken out of the message, and it works."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from typer.testing import CliRunner

import graphagent
from graphagent import END, START, Agent, Context, Strategy, node, parallel, tap, tool
from graphagent.cli._app import app
from graphagent.errors import GraphAgentError, StoreError, StrategyError
from graphagent.events import NodeFinished
from graphagent.graph import Node, precedes
from graphagent.llm import (
    Approve,
    CachedModel,
    Deny,
    FallbackModel,
    LimitedModel,
    Message,
    PricedModel,
    Prices,
    RetryModel,
    ToolCall,
    ToolCalls,
)
from graphagent.llm.openai import OpenAIModel
from graphagent.memory import (
    ActionStep,
    AgentMemory,
    Concept,
    FactType,
    FileMemoryProvider,
    MultipleFacts,
    Scope,
    ScopeKind,
    SingleFact,
    StoreMemoryProvider,
    Subject,
    WholeHistory,
)
from graphagent.memory.notes import NoteMemory, Notes
from graphagent.nodes import ask_human, compress_history, load_facts, passthrough, recall_notes, update_prompt
from graphagent.run import Run, RunStream
from graphagent.store import EncryptedStore, MemoryStore, SqliteStore
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run


@node
async def ln(ctx: Context, text: str) -> int:
    return len(text)


@node
async def up(ctx: Context, text: str) -> str:
    return text.upper()


@node
async def either(ctx: Context, text: str) -> str | int:
    return text


@node
async def late(ctx: Context[datetime], text: str) -> str:
    return text


@tool
async def search(query: str) -> str:
    """Search."""
    return query


SUGGESTED = {"ActionStep": ActionStep, "Run": Run, "RunStream": RunStream}
"""What suggestions name, and these tests do not."""


def done(code: str, **names: Any) -> Any:
    """Execute what a message suggests."""
    return eval(code, {**globals(), **SUGGESTED, **names})


def found(error: BaseException, pattern: str) -> str:
    """Return the part of a message that the pattern's group takes."""
    match = re.search(pattern, str(error), re.DOTALL)
    assert match is not None, str(error)
    return match[1]


def refusal(make: Any) -> BaseException:
    """Return the error that something raises."""
    try:
        make()
    except (GraphAgentError, TypeError, ValueError, RuntimeError) as error:
        return error
    raise AssertionError("nothing was refused")


async def refused(awaitable: Any) -> BaseException:
    """Return the error that something raises that is awaited."""
    try:
        await awaitable
    except (GraphAgentError, TypeError, ValueError, RuntimeError) as error:
        return error
    raise AssertionError("nothing was refused")


# ---- strategies


@pytest.mark.parametrize(
    ("paths", "ended"),
    [
        (lambda: [START >> ln >> up >> END], [START >> ln]),
        (lambda: [START >> either, either.on(int) >> up >> END, either.on(str) >> END],
         [START >> either, either.on(str) >> END]),
        (lambda: [START >> either, either.on(str) >> END, either.otherwise() >> up >> END],
         [START >> either, either.on(str) >> END]),
        (lambda: [START >> up >> END, up.on_error(OSError) >> ln >> END], [START >> up >> END]),
        (lambda: [START >> either, either.on(str) >> END, either.on(int).map(float) >> up >> END],
         [START >> either, either.on(str) >> END]),
    ],
    ids=["a plain edge", "an outlet for a type", "the rest", "an error", "a mapped outlet"],
)  # fmt: skip
def test_a_type_that_does_not_fit_can_be_mapped_as_the_error_says(paths, ended):
    """The suggested path, with a function for its `…`, stands in the place of the edge that was refused."""
    error = refusal(lambda: Strategy("s", *paths()))
    assert isinstance(error, StrategyError)
    code = found(error, r"(?:give Strategy one more: |map it: )(\w+\..*?>> \w+)$")
    path = done(code.replace("map(…)", "map(str)"))
    Strategy("s", *ended, path >> END)


@node(name="up")
async def other_up(ctx: Context, text: str) -> str:
    return text


@pytest.mark.parametrize("named", [other_up, "up"], ids=["the object", "the name"])
def test_the_path_that_a_problem_with_a_rule_suggests_names_the_node(named):
    """A node of the same name in a subgraph is not what the rule names; its path is in the problem, and the rule holds with it."""
    inner = Strategy("inner", START >> up.retry(attempts=2) >> END)
    error = refusal(lambda: Strategy("s", START >> inner >> ln >> END, rules=[precedes(named, ln)]))
    path = found(error, r"(?:by its whole path, |the node at )'(\S+)'")
    assert Strategy("s", START >> inner >> ln >> END, rules=[precedes(path, ln)]).path_rules


def test_a_path_that_is_led_as_a_broken_rule_says_keeps_it():
    """The path in the problem lacks the node that it names."""
    paths = [START >> either, either.on(int).map(str) >> ln >> END]
    rest = either.on(str)
    error = refusal(lambda: Strategy("s", *paths, rest >> up >> ln, rules=[precedes(up, ln)]))
    assert found(error, r"on the path (.*?):") == "START -> either -[on int, map str]-> ln"
    assert found(error, r"'(\w+)' has not been executed to its end before; lead the path through it") == "up"
    assert Strategy(
        "s", START >> either, either.on(int).map(str) >> up >> ln >> END, rest >> up, rules=[precedes(up, ln)]
    )


@pytest.mark.parametrize(
    ("paths", "pattern"),
    [
        (lambda: [START >> up >> ln], r"end its path with (.*)$"),
    ],
)
def test_a_path_that_a_problem_suggests_mends_the_strategy(paths, pattern):
    """It is one more path of the same strategy."""
    error = refusal(lambda: Strategy("s", *paths()))
    Strategy("s", *paths(), done(found(error, pattern)))


def test_other_problems_of_a_strategy_are_mended_as_they_say():
    """Another name, a way for the rest, parallel in the place of two plain edges, a way out of a cycle."""
    again = Node(ln.function, name="up", input_type=str, output_type=str)
    error = refusal(lambda: Strategy("s", START >> up >> again >> END))
    Strategy("s", START >> up >> done("again" + found(error, r"rename one with (\.named\(.*?\))"), again=again) >> END)

    error = refusal(lambda: Strategy("s", START >> either, either.on(str) >> END))
    assert "add .on(…) or .otherwise()" in str(error)
    Strategy("s", START >> either, either.on(str) >> END, either.otherwise() >> END)
    Strategy("s", START >> either, either.on(str) >> END, either.on(int) >> END)

    error = refusal(lambda: Strategy("s", START >> up, up >> ln >> END, up >> either >> END))
    assert "use parallel(…) for both at once, or outlets such as .on(…) and .when(…)" in str(error)
    Strategy("s", START >> up >> parallel(ln, either) >> END)
    Strategy("s", START >> up, up.when(bool) >> ln >> END, up.otherwise() >> either >> END)

    b = up.named("b")
    error = refusal(lambda: Strategy("s", START >> up >> b >> up))
    path = done(found(error, r"before the plain edge of a node, such as (.*)$").replace("…", "bool"), b=b)
    Strategy("s", START >> up >> b, path, b >> up)


def test_a_way_out_inside_a_path_is_placed_as_the_error_says():
    """The path is ended before it, and it begins one more."""
    error = refusal(lambda: START >> ln.map(str) >> up)
    assert "end this one with ln, and give Strategy one more that begins with the outlet" in str(error)
    Strategy("s", START >> ln, ln.map(str) >> up >> END)


# ---- declarations


def test_nodes_tools_and_callbacks_are_declared_as_the_errors_say():
    """The suggested line, with types for its `…`, is accepted."""

    def plain(ctx: Context, text: str) -> str:
        return text

    for wrong in (lambda: node(plain), lambda: node(lambda text: text), lambda: tap(plain)):
        names: dict[str, Any] = {}
        line = found(refusal(wrong), "write `(.*?)`").replace("<lambda>", "f").replace("…", "text: str")
        exec(f"{line}:\n    return text", globals(), names)
        assert node(next(iter(names.values()))).input_type is str

    for made, pattern in (
        (lambda: Agent(single_run(), step_callbacks=[lambda: None]), "write `(.*?)`"),
        (lambda: Agent(single_run(), final_answer_checks=[lambda: None]), "write `(.*?)`"),
    ):
        names = {}
        line = found(refusal(made), pattern).replace("<lambda>", "f")
        exec(f"{line}: ...", globals(), names)
        given = next(iter(names.values()))
        if "ActionStep" in line:
            Agent(single_run(), step_callbacks=[given])
        else:
            Agent(single_run(), final_answer_checks=[given])


VALUES: dict[str, tuple[Any, str]] = {
    "a tool call": (lambda: ToolCall("1", "search"), r"write (ToolCall\(.*)$"),
    "a message": (lambda: Message("hello", "user"), r"write (Message\.user\(.*?\))"),
    "prices": (lambda: PricedModel(Prices(1, 1), ScriptedModel([])), r"write (PricedModel\(.*)$"),
    "a model to ask again": (lambda: RetryModel("gpt", 3), r"write (RetryModel\(.*)$"),
    "a model with another": (lambda: FallbackModel(ScriptedModel([])), r"write (FallbackModel\(.*)$"),
    "a model with limits": (lambda: LimitedModel(ScriptedModel([])), r"write (LimitedModel\(.*)$"),
    "a model with a store": (lambda: CachedModel(ScriptedModel([]), "a.db"), r"write (CachedModel\(.*)$"),
    "a price": (lambda: Prices("free", 1), r"such as (input='0.15')$"),
    "update_prompt": (lambda: update_prompt(3), r"write (update_prompt\(.*?\))$"),
    "a script": (lambda: ScriptedModel("one"), r"write (ScriptedModel\(.*)$"),
    "concepts": (lambda: load_facts("city"), r"such as (Concept\(.*?\))"),
    "a compression": (lambda: compress_history(WholeHistory), r"such as (WholeHistory\(.*?\))"),
    "a store provider": (lambda: StoreMemoryProvider("x"), r"write (StoreMemoryProvider\(.*)$"),
    "an encrypted store": (lambda: EncryptedStore(b"k", MemoryStore()), r"write (EncryptedStore\(.*)$"),
    "a store of an agent": (lambda: Agent(single_run(), store=MemoryStore), r"such as (SqliteStore\(.*?\))"),
}


@pytest.mark.parametrize("case", VALUES)
def test_values_that_errors_suggest_can_be_made(case, tmp_path, monkeypatch):
    """The suggestion is complete code."""
    monkeypatch.chdir(tmp_path)
    wrong, pattern = VALUES[case]
    code = found(refusal(wrong), pattern)
    model = ScriptedModel([])
    names: dict[str, Any] = {"model": model, "first": model, "second": model, "store": MemoryStore()}
    names |= {"path": tmp_path / "a.db", "key": b"k" * 32}
    if case == "a price":
        code = f"Prices({code}, output=1)"
    assert done(code, **names) is not None


# ---- agents and runs


async def test_what_a_run_lacks_is_added_as_the_errors_say():
    """A feature, a model, deps, a task, a budget with prices, a name for a sub-agent, a store."""
    facts = Strategy("s", START >> load_facts(Concept("city")) >> END)
    agent = Agent(facts)
    error = await refused(agent.run("x"))
    done(found(error, r"add (agent\.install\(\w+, …\))").replace("…", "agent_name='a'"), agent=agent)
    await agent.run("x")

    error = refusal(lambda: Agent(facts).install(AgentMemory()))
    done(found(error, r"write (agent\.install\(\w+, …\))").replace("…", "agent_name='a'"), agent=Agent(facts))

    error = await refused(Agent(single_run()).run("x"))
    code = found(error, r"write (Agent\(.*\))$").replace("…", "ScriptedModel(['said'])")
    assert (await done(code, strategy=single_run()).run("x")).output == "said"

    agent = Agent(Strategy("s", START >> late >> END), store=MemoryStore())
    error = await refused(agent.run("x"))
    code = found(error, r"write (agent\.run\(.*?\)) with a datetime").replace("…", "datetime(2026, 1, 1, tzinfo=UTC)")
    assert (await done(code, agent=agent, task="x")).output == "x"

    agent = Agent(Strategy("s", START >> passthrough(list[str]) >> END))
    error = await refused(agent.run("x"))
    code = found(error, r"write (agent\.run\(task\)) with a list\[str\]")
    assert (await done(code, agent=agent, task=["x"])).output == ["x"]

    unpriced = OpenAIModel("gpt-5-mini", base_url="http://localhost:1/v1")
    error = refusal(lambda: Agent(single_run(), model=unpriced, max_cost=1))
    code = found(error, r"write (PricedModel\(.*?\)\))").replace("…", "'0.15'")
    Agent(single_run(), model=done(code, model=unpriced), max_cost=1)

    inner = Agent(single_run())
    error = refusal(lambda: Agent(single_run(), tools=[inner]))
    code = found(error, r"write (Agent\(.*?\))$").replace(
        "(…, name=…, description=…)", "(s, name='a', description='b')"
    )
    Agent(single_run(), tools=[done(code, s=single_run())])

    error = await refused(Agent(single_run()).read("r"))
    code = found(error, r"store: (Agent\(.*?\)\))").replace("…", "s").replace("SqliteStore('runs.db')", "MemoryStore()")
    assert done(code, s=single_run()).store is not None

    agent = Agent(Strategy("s", START >> ask_human("Go on?", str) >> END))
    await agent.run("x")
    error = await refused(agent.resume("r", answer="yes"))
    done(found(error, r"(agent\.last\.answer\(.*?\)),").replace("…", "'yes'"), agent=agent)
    assert (await done(found(error, r"await (agent\.last\.finish\(\))"), agent=agent)).output == "yes"

    agent = Agent(single_run())
    error = refusal(lambda: agent.install(AgentMemory, provider=StoreMemoryProvider(MemoryStore()), learn="background"))
    learning = f"agent.install(AgentMemory, {found(error, r'at its place: (learn=.*)$')})"
    assert done(learning, agent=agent, AgentMemory=AgentMemory).learns

    error = refusal(lambda: Agent(single_run()).on(print, NodeFinished))
    done(found(error, r"write (agent\.on\(.*\))$"), agent=Agent(single_run()), handler=print)

    error = refusal(lambda: Agent(single_run(), tools=search))
    done(f"Agent(s, {found(error, r'write (tools=.*)$')})", s=single_run(), tool=search)

    error = refusal(lambda: Agent(single_run(), tools=[search, search]))
    assert "rename one with @tool(name=…)" in str(error)
    Agent(single_run(), tools=[search, tool(name="find")(search.function)])


@pytest.mark.parametrize("owner", ["", "ada"])
async def test_a_run_that_exists_is_resumed_as_the_error_says(owner):
    """The call names the owner too, without whom there is no such run."""
    agent = Agent(Strategy("s", START >> ask_human("Go on?", bool) >> END), store=MemoryStore())
    await agent.run("x", run_id="r", owner=owner)
    error = await refused(agent.run("x", run_id="r", owner=owner))
    assert (await done(found(error, r"with (agent\.resume\(.*?\)),"), agent=agent)).status == "waiting"
    error = await refused(agent.fork("r", at=1, run_id="r", owner=owner))
    assert (await done(found(error, r"with (agent\.resume\(.*?\)),"), agent=agent)).status == "waiting"


class Filling(MemoryStore):
    """A store with room for some commits."""

    room = 0

    async def commit(self, *changes: Any) -> Any:
        if not self.room:
            raise StoreError("the disk is full")
        self.room -= 1
        return await super().commit(*changes)


@pytest.mark.parametrize("owner", ["", "ada"])
async def test_a_run_that_could_not_be_kept_goes_on_as_the_error_says(owner):
    """It is resumed, unless nothing of it was kept: then there is nothing to resume, and the error does not say so."""
    store = Filling()
    agent = Agent(Strategy("s", START >> up >> END), store=store)
    error = await refused(agent.run("x", owner=owner))
    assert "It had not begun; run the task again when the store works again" in str(error)
    assert "resume" not in str(error)
    store.room = 1
    error = await refused(agent.run("x", owner=owner))
    store.room = 100
    assert (await done(found(error, r"go on with (agent\.resume\(.*?\)) when"), agent=agent)).output == "X"


async def test_runs_that_wait_and_runs_of_the_store_are_continued_as_the_errors_say(capsys):
    """Several answers by their ids, replay of a run that was read, deps again, another place of a fork."""

    @tool(approve=True)
    async def look(query: str) -> str:
        """Look."""
        return query

    calls = ToolCalls([ToolCall("look", {"query": "a"}, "1"), ToolCall("look", {"query": "b"}, "2")])
    agent = Agent(single_run(), model=ScriptedModel([calls, "done"]), tools=[look], store=MemoryStore())
    await agent.run("x", run_id="r")
    other = Agent(single_run(), model=agent.model, tools=[look], store=agent.store)
    error = refusal(other.replay)
    await_ = found(error, r": \((await agent\.read\(run_id\))\)\.replay\(\)$")
    (await done(await_.removeprefix("await "), agent=other, run_id="r")).replay()
    assert "look" in capsys.readouterr().out

    error = await refused(other.resume("r", answer=True))
    ids = re.findall("'(.*?)'", found(error, "the ids are (.*)$"))
    assert "pass answers={id: …}" in str(error)
    error = await refused(other.resume("r", answers=dict.fromkeys(ids, 3)))
    assert "answer True, False, Approve(arguments=…) or Deny(reason)" in str(error)
    given = dict(zip(ids, [Approve(arguments={"query": "c"}), Deny("no")], strict=True))
    assert (await other.resume("r", answers=given)).output == "done"

    agent = Agent(Strategy("s", START >> late >> ask_human("Go on?", str) >> END), store=MemoryStore())
    await agent.run("x", run_id="r", deps=datetime(2026, 1, 1, tzinfo=UTC))
    for call, names in (("resume", {"answer": "y"}), ("fork", {"at": 1}), ("rerun", {})):
        error = await refused(getattr(agent, call)("r", **names))
        code = found(error, r"write (agent\..*?\)) with a datetime")
        code = code.replace("deps=…", f"deps=datetime(2026, 1, 1, tzinfo=UTC), **{names}").replace("…, ", "")
        assert (await done(code, agent=agent, run_id="r", origin="r")).status in ("done", "waiting")

    error = await refused(agent.fork("r", deps=datetime(2026, 1, 1, tzinfo=UTC)))
    assert "give one of at=, before= and after=" in str(error)
    for place in ({"at": 1}, {"before": "late"}, {"after": "late"}):
        await agent.fork("r", **place, deps=datetime(2026, 1, 1, tzinfo=UTC))


async def test_events_that_were_read_go_on_as_the_error_says():
    """`RunStream(events.run)` reads those that come when the run goes on."""
    agent = Agent(Strategy("s", START >> up >> END))
    async with agent.stream("x") as events:
        async for _ in events:
            pass
    error = await refused(events.__aenter__())
    async with done(found(error, r": (RunStream\(.*?\))"), events=events) as again:
        async for _ in again:
            pass
    assert again.result.output == "X"


# ---- memory


async def test_calls_of_providers_and_memories_work_as_the_errors_say(tmp_path):
    """Each error of an exchanged argument ends with the call, and its names mean what they say."""
    names: dict[str, Any] = {
        "fact": SingleFact(Concept("city"), "Rome"), "concept": Concept("city"), "subject": Subject("ada"),
        "scope": Scope.agent("shop"), "description": "city",
    }  # fmt: skip
    for provider in (FileMemoryProvider(tmp_path), StoreMemoryProvider(MemoryStore())):
        for call in ("save", "load", "load_all", "load_by_description", "history"):
            first = {"save": names["fact"], "load_by_description": "city", "load_all": None}.get(call, names["concept"])
            wrong = [each for each in (first, names["scope"], names["subject"]) if each is not None]
            code = found(await refused(getattr(provider, call)(*wrong)), r"write (.*)$")
            await done(f"it.{code}", it=provider, **names)
    memory = AgentMemory(provider=StoreMemoryProvider(MemoryStore()), agent_name="a")
    for call, wrong in (("save", [names["fact"], names["scope"]]), ("history", ["city"]), ("load", ["city"])):
        code = found(await refused(getattr(memory, call)(*wrong)), r"write (.*)$")
        code = code.replace("subjects=[…], scopes=[…]", "subjects=[subject], scopes=[scope]")
        await done(f"it.{code}", it=memory, **names)
    for wrong in ({"subjects": names["subject"]}, {"scopes": names["scope"]}):
        code = found(await refused(memory.load_all(**wrong)), r"write (.*)$")
        await done(f"it.load_all({code})", it=memory, **names)
    for part in re.split(", or ", found(await refused(memory.load_all(scopes=["a"])), r"write (.*)$")):
        name = "save(fact, subject" if part.startswith("scope=") else "load_all("
        await done(f"it.{name}{', ' if name[-1] != '(' else ''}{part})", it=memory, **names)
    error = await refused(memory.load(Concept("city"), scopes=[ScopeKind.PRODUCT]))
    setting = found(error, r"add (\w+=)… to install\(AgentMemory, …\)")
    AgentMemory(provider=memory.provider, **{setting[:-1]: "p"})
    several = Concept("langs", fact_type=FactType.MULTIPLE)
    made = found(refusal(lambda: SingleFact(several, "x")), r"make a (\w+) of it")
    assert done(f"{made}(several, ['x'])", several=several).values == ("x",)
    made = found(refusal(lambda: MultipleFacts(Concept("city"), ["x"])), r"make a (\w+) of it")
    assert done(f"{made}(Concept('city'), 'x')").value == "x"


async def test_a_sealed_store_is_opened_as_the_error_says(tmp_path):
    """With the key, around the store."""
    path, key = tmp_path / "a.db", b"k" * 32
    async with EncryptedStore(SqliteStore(path), key) as store:
        await StoreMemoryProvider(store).save(SingleFact(Concept("city"), "Rome"), Subject("ada"), Scope.agent("a"))
    async with SqliteStore(path) as plain:
        error = await refused(plain.get(("facts",)))
    async with done(found(error, r"Give (EncryptedStore\(.*?\), key\))"), path=path, key=key) as store:
        assert await StoreMemoryProvider(store).load_all(Subject("ada"), Scope.agent("a"))


async def test_notes_are_made_as_the_errors_say(tmp_path):
    """A store that was a class, a turn that was none, a view that may be written, a home for what is learnt."""
    error = refusal(lambda: Notes(MemoryStore))
    assert done(found(error, r"make one: (\w+\(…\))$").replace("…", "")) is not None
    notes = Notes(MemoryStore())
    view = notes.slice(["/a"], read_only=True)
    error = await refused(view.remember("x", scope="/a"))
    code = found(error, r"take (notes\.slice\(…, read_only=False\))").replace("…", "['/a']")
    await done(code, notes=notes).remember("x", scope="/a")
    error = refusal(lambda: NoteMemory("notes"))
    for code in re.findall(r"(notes\.\w+\(.*?\))", str(error)):
        assert NoteMemory(done(code.replace("[…]", "['/a']"), notes=notes), learn=False)
    error = await refused(Agent(Strategy("s", START >> recall_notes() >> END)).run("x"))
    agent = Agent(Strategy("s", START >> recall_notes() >> END))
    done(found(error, r"add (agent\.install\(\w+, …\))").replace("…", "notes=notes"), agent=agent, notes=notes)
    await agent.run("x")


# ---- commands


@pytest.mark.parametrize("owner", ["", "ada"])
async def test_the_command_that_finds_a_run_finds_it(tmp_path, owner):
    """It lists the runs of the owner that was asked for, and only those."""
    file = tmp_path / "runs.db"
    async with SqliteStore(file) as store:
        agent = Agent(Strategy("s", START >> up >> END), store=store)
        await agent.run("x", run_id="there", owner=owner)
        await agent.run("x", run_id="of-another", owner="bob")
        error = await refused(agent.read("r", owner=owner))
    words = found(error, "`graphagent (.*?)`").replace("NAME", owner).split()
    listed = await anyio.to_thread.run_sync(CliRunner().invoke, app, [*words, "--store", str(file), "--json"])
    assert listed.exit_code == 0, listed.output
    assert "there" in listed.output
    assert "of-another" not in listed.output


def test_commands_that_messages_suggest_exist():
    """Each `graphagent …` in the package is a command with its options."""
    texts = [path.read_text(encoding="utf-8") for path in Path(graphagent.__file__).parent.rglob("*.py")]
    commands = sorted({each for text in texts for each in re.findall(r"`graphagent ([a-z]+(?: [a-z]+)?)", text)})
    assert len(commands) > 8
    for each in commands:
        assert CliRunner().invoke(app, [*each.split(), "--help"]).exit_code == 0, each
