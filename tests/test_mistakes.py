"""Mistakes that would otherwise be accepted in silence are errors where they are made, which say what is wrong."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

import pytest

from graphagent import END, START, Agent, Context, Strategy, each, node, parallel, race, tap
from graphagent.errors import NodeFailedError, NoteError
from graphagent.graph import Retry, select_tools
from graphagent.history import (
    clear_cache,
    end_run,
    forget_runs,
    forget_thread,
    import_thread,
    list_questions,
    list_threads,
    measure_runs,
    prune_runs,
    read_run,
    run_owners,
)
from graphagent.llm import (
    Approve,
    CachedModel,
    Deny,
    FallbackModel,
    Image,
    LimitedModel,
    Message,
    ModelResponse,
    Moderation,
    OutputFormat,
    PricedModel,
    Prices,
    RetryModel,
    Tool,
    ToolCall,
    tool,
)
from graphagent.llm.openai import OpenAIModel, OpenAIModerator
from graphagent.memory import (
    AgentMemory,
    ChunkedHistory,
    Concept,
    ContextWindow,
    EncryptedMemoryProvider,
    FileMemoryProvider,
    FoundFacts,
    Note,
    NoteMemory,
    Notes,
    RunMemory,
    StoredFacts,
    StoreMemoryProvider,
    Subject,
    Turn,
    WholeHistory,
)
from graphagent.nodes import (
    ask_human,
    auto_detect_facts,
    choose,
    execute_tools,
    llm_choices,
    llm_request,
    load_all_facts,
    load_facts,
    moderate,
    recall_notes,
    remember_notes,
    save_facts,
    task,
    update_prompt,
    verify,
)
from graphagent.run import Console, list_runs
from graphagent.store import EncryptedStore, MemoryStore, SqliteStore
from graphagent.testing import ScriptedModel, openai_server
from graphagent_strategies import (
    Expert,
    chat,
    plan_and_execute,
    react,
    reflect,
    research,
    route,
    single_run,
    verify_with_retry,
)


@node
async def up(ctx: Context, text: str) -> str:
    """Return a text in capitals."""
    return text.upper()


@node
async def size(ctx: Context, text: str) -> int:
    """Return the length of a text."""
    return len(text)


inner = Strategy("inner", START >> up >> END)
notes = Notes(MemoryStore())
NAIVE = datetime(2026, 1, 1, 12)  # noqa: DTZ001  it is refused
CITY = Concept("city")


def agent(**options):
    """Return an agent of a strategy that asks no model."""
    return Agent(inner, **options)


def made(**options):
    """Return a tool with some options."""

    @tool(**options)
    def pay(euros: int) -> str:
        """Pay an amount."""
        return f"{euros} paid"

    return pay


async def later(text):
    """Return nothing yet."""


def tap_that_returns():
    """Return a tap that declares an output."""

    @tap
    async def count(ctx: Context, text: str) -> int:
        return len(text)

    return count


class Nameless:
    async def respond(self, request, on_text=None):
        """Return nothing."""


class Named(Nameless):
    name = "m"


class WithoutRespond:
    name = "m"


class WithoutListener(Named):
    async def respond(self, request):
        """Take no function that hears the text."""


class ByKeyword(Named):
    async def respond(self, *, request, on_text=None):
        """Take the request by its name only."""


class WithMore(Named):
    async def respond(self, request, on_text, temperature):
        """Need one more argument."""


class Generating(Named):
    async def respond(self, request, on_text=None):
        """Yield pieces."""
        yield "Hi."


WORDS = [
    (
        lambda: parallel(up, size, failures="colect"),
        ValueError,
        "failures='colect' is not known; did you mean 'collect'?",
    ),
    (lambda: parallel(up, size, failures=None), ValueError, "there are 'cancel' and 'collect'"),
    (lambda: parallel(up, size, transcript="Keep"), ValueError, "did you mean 'keep'?"),
    (lambda: each(up, failures="Cancel"), ValueError, "did you mean 'cancel'?"),
    (lambda: each(up, transcript="dropp"), ValueError, "did you mean 'drop'?"),
    (lambda: race(up, size, transcript="keeep"), ValueError, "did you mean 'keep'?"),
    (lambda: llm_request(tools="none"), ValueError, "tools='none' is not known; there are True, False and 'required'"),
    (lambda: llm_request(tools="Required"), ValueError, "tools='Required' is not known"),
    (lambda: llm_request(tools=None), ValueError, "tools=None is not known"),
    (lambda: llm_request(tools=[]), ValueError, "tools=[] is not known"),
    (lambda: llm_request(tools=1), ValueError, "tools=1 is not known"),
    (lambda: made(in_flight="retri"), ValueError, "did you mean 'retry'?"),
    (lambda: OpenAIModel("m", protocol="chatt"), ValueError, "did you mean 'chat'?"),
    (lambda: OpenAIModel("m", family="opnai"), ValueError, "did you mean 'openai'?"),
    (lambda: SqliteStore("x.db", synchronous="Full"), ValueError, "synchronous='Full' is not known"),
    (lambda: OpenAIModel("m", protocol="grpc"), ValueError, "there are 'chat' and 'responses'"),
    (lambda: llm_request(purpose="criticism"), ValueError, "is not one of answer, draft, plan, summary, extraction, "),
    (lambda: Console(level=3), ValueError, "level=3"),
    (lambda: NoteMemory(notes, recall="always"), ValueError, "recall='always' is not known"),
]
FLAGS = [
    (lambda: made(approve="no"), TypeError, "tool 'pay': approve='no' is neither True nor False"),
    (lambda: made(approve=None), TypeError, "approve=None is neither True nor False"),
    (lambda: made(deferred="no"), TypeError, "deferred='no' is neither True nor False"),
    (lambda: inner.as_tool("Does it.", approve="no"), TypeError, "approve='no' is neither True nor False"),
    (lambda: agent(name="a", description="d").as_tool(approve="no"), TypeError, "approve='no' is neither"),
    (lambda: Moderation("no"), TypeError, "flagged='no' is neither True nor False"),
    (lambda: Notes(MemoryStore(), late_interaction="x"), TypeError, "late_interaction='x' is neither True nor False"),
]
MODELS = [
    (lambda: inner.using(model="gpt"), TypeError, "model= is an object that responds"),
    (lambda: inner.using(model=ScriptedModel), TypeError, "not the class ScriptedModel"),
    (lambda: select_tools(model="gpt"), TypeError, "model= is an object that responds"),
    (lambda: task("Do it.", model="gpt"), TypeError, "model= is an object that responds"),
    (lambda: verify("It is true.", model="gpt"), TypeError, "model= is an object that responds"),
    (lambda: agent(model=WithoutRespond()), TypeError, "not a WithoutRespond"),
    (lambda: agent(model=Nameless()), TypeError, "a Nameless, has no name; give it one"),
    (lambda: agent(model=WithoutListener()), TypeError, "the respond of a WithoutListener takes (request); write"),
    (lambda: agent(model=ByKeyword()), TypeError, "takes (*, request, on_text=None); write `async def respond(self"),
    (lambda: agent(model=WithMore()), TypeError, "takes (request, on_text, temperature); write"),
    (lambda: agent(model=Generating()), TypeError, "the respond of a Generating yields"),
    (lambda: RetryModel(WithoutListener(), 3), TypeError, "takes (request); write"),
    (lambda: CachedModel(WithoutListener(), MemoryStore()), TypeError, "takes (request); write"),
    (lambda: LimitedModel(WithoutListener(), concurrency=1), TypeError, "takes (request); write"),
    (lambda: PricedModel(WithoutListener(), Prices(1, 1)), TypeError, "takes (request); write"),
    (lambda: Notes(MemoryStore(), model=WithoutListener()), TypeError, "takes (request); write"),
    (lambda: RetryModel(ScriptedModel([]), True), TypeError, "a number of attempts or a Retry, not a bool"),
    (lambda: RetryModel(ScriptedModel([]), 0), ValueError, "at least one attempt"),
    (lambda: FallbackModel(ScriptedModel, ScriptedModel), TypeError, "not the class ScriptedModel"),
    (lambda: FallbackModel(Named(), Named(), on=(int,)), TypeError, "subclass of Exception"),
    (lambda: FallbackModel(Named(), Named(), on="ValueError"), TypeError, "types of errors or a function"),
    (lambda: openai_server("Hello"), TypeError, "openai_server(['Hello'])"),
    (lambda: moderate(3), TypeError, "takes a policy as text, a moderator such as"),
    (lambda: moderate(None), TypeError, "takes a policy as text, a moderator such as"),
    (lambda: moderate(OpenAIModerator), TypeError, "takes a policy as text, a moderator such as"),
    (lambda: agent(model=OpenAIModel), TypeError, "not the class OpenAIModel"),
    (lambda: PricedModel(ScriptedModel([]), Prices), TypeError, "the class Prices"),
]
SERVERS = [
    (lambda: OpenAIModel("m", base_ulr="http://x/v1"), TypeError, "no option 'base_ulr'; did you mean base_url= or"),
    (lambda: OpenAIModel("m", api_kye="s3cret"), TypeError, "no option 'api_kye'; did you mean api_key= or"),
    (lambda: OpenAIModel("m", temprature=0), TypeError, "no option 'temprature'; did you mean temperature= or"),
    (
        lambda: OpenAIModel("m", num_ctx=9),
        TypeError,
        "did you mean extra_body={'num_ctx': …}, for parameters that only your server",
    ),
    (lambda: OpenAIModel("m", messages=[]), TypeError, "no option 'messages'"),
    (lambda: OpenAIModel("m", extra_headers={}), TypeError, "no option 'extra_headers'; did you mean headers="),
    (lambda: OpenAIModel(5), TypeError, "model= is text, not an int"),
    (lambda: OpenAIModel(""), ValueError, "model= is the name by which the server knows the model"),
    (lambda: OpenAIModel("m", base_url=5), TypeError, "base_url= is text, not an int"),
    (lambda: OpenAIModel("m", api_key=5), TypeError, "api_key= is text, not an int"),
    (lambda: OpenAIModel("m", timeout="5"), TypeError, "timeout='5' is not a number"),
    (lambda: OpenAIModel("m", timeout=True), TypeError, "timeout=True is not a number"),
    (lambda: OpenAIModel("m", timeout=-1), ValueError, "timeout=-1 must be more than 0 seconds"),
    (lambda: OpenAIModel("m", max_retries="2"), TypeError, "max_retries='2' is not a whole number"),
    (lambda: OpenAIModel("m", max_retries=True), TypeError, "max_retries=True is not a whole number"),
    (lambda: OpenAIModel("m", headers="x"), TypeError, "headers= is a dict"),
    (lambda: OpenAIModel("m", headers={"x": 2}), TypeError, "headers['x'] is text, not an int"),
    (lambda: OpenAIModel("m", family=5), TypeError, "family= is the name of a family or a ModelFamily, not an int"),
    (lambda: OpenAIModerator(5), TypeError, "model= is text, not an int"),
    (lambda: OpenAIModerator(timeout="x"), TypeError, "timeout='x' is not a number"),
]
NUMBERS = [
    (lambda: parallel(up, size, limit="2"), TypeError, "'parallel': limit='2' is not a whole number"),
    (lambda: parallel(up, size, limit=True), TypeError, "limit=True is not a whole number"),
    (lambda: each(up, limit=1.5), TypeError, "limit=1.5 is not a whole number"),
    (lambda: up.retry(attempts="3"), TypeError, "attempts='3' is not a whole number"),
    (lambda: up.retry(attempts=1.5), TypeError, "attempts=1.5 is not a whole number"),
    (lambda: up.retry(attempts=True), TypeError, "attempts=True is not a whole number"),
    (lambda: up.retry(attempts=2, wait="1"), TypeError, "wait='1' is not a number"),
    (lambda: up.retry(attempts=2, max_wait=None), TypeError, "max_wait=None is not a number"),
    (lambda: Retry(2, errors=ValueError), TypeError, "retry(errors=) takes a tuple of errors"),
    (lambda: up.timeout("5s"), TypeError, "seconds='5s' is not a number"),
    (lambda: up.timeout(True), TypeError, "seconds=True is not a number"),
    (lambda: up.timeout(None), TypeError, "seconds=None is not a number"),
    (lambda: made(timeout=True), TypeError, "timeout is seconds or None, not a bool"),
    (lambda: inner.using(max_nodes="5"), ValueError, "max_nodes='5' is not a budget; it must be a whole number"),
    (lambda: inner.using(max_nodes=-1), ValueError, "max_nodes=-1 is not a budget"),
    (lambda: inner.using(max_turns=True), ValueError, "max_turns=True is not a budget"),
    (lambda: inner.using(max_tokens=1.5), ValueError, "max_tokens=1.5 is not a budget"),
    (
        lambda: inner.using(max_cost="x"),
        ValueError,
        "max_cost='x' is not a budget; it must be a number of 0 or more, such as '0.03'",
    ),
    (lambda: agent(max_cost="-1"), ValueError, "max_cost=Decimal('-1') is not a budget"),
    (lambda: agent(max_nodes=True), ValueError, "max_nodes=True is not a budget"),
    (lambda: agent(max_turns=1.5), ValueError, "max_turns=1.5 is not a budget"),
    (lambda: agent(max_cost=Decimal("nan")), ValueError, "is not a budget"),
    (lambda: agent(max_seconds=True), ValueError, "max_seconds=True is not a budget"),
    (lambda: agent().start("x").set_budgets(max_tokens=1.5), ValueError, "max_tokens=1.5 is not a budget"),
    (lambda: agent(planning_interval="2"), TypeError, "planning_interval='2' is not a whole number"),
    (lambda: agent(planning_interval=True), TypeError, "planning_interval=True is not a whole number"),
    (lambda: select_tools(max_tools="2"), TypeError, "max_tools='2' is not a whole number"),
    (lambda: select_tools(max_tools=True), TypeError, "max_tools=True is not a whole number"),
    (lambda: execute_tools(limit="2"), ValueError, "limit='2' would run no call"),
    (lambda: execute_tools(limit=True), ValueError, "limit=True would run no call"),
    (lambda: llm_choices(2, limit="x"), ValueError, "limit='x'"),
    (lambda: task("Do it.", parallel_tools="2"), ValueError, "parallel_tools='2' would run no call"),
    (lambda: task("Do it.", max_turns="3"), ValueError, "max_turns='3' is not a budget"),
    (lambda: Notes("n.db", recency_weight=0.3), TypeError, "settings=NoteSettings(recency_weight=0.3)"),
    (lambda: Notes(key="secret"), TypeError, "EncryptedStore(SqliteStore('notes.db'), key="),
    (lambda: Agent(model=ScriptedModel(["Hi"])), TypeError, "write Agent(single_run(), model="),
    (lambda: Agent("openai:gpt-5"), TypeError, "model=OpenAIModel('gpt-5')"),
    (lambda: Agent(single_run(), instructions="Be brief."), TypeError, "system_prompt="),
    (lambda: Agent(single_run(), max_steps=3), TypeError, "max_turns=3"),
    (lambda: Agent(single_run(), output_type=int), TypeError, "llm_request(output="),
    (lambda: OutputFormat(int), TypeError, "OutputFormat.of(int)"),
    (lambda: OutputFormat("city"), TypeError, "OutputFormat.of(Type)"),
    (lambda: ScriptedModel(lambda request: "x"), TypeError, "ScriptedModel(itertools.repeat(function))"),
    (lambda: recall_notes("q", limit=0), ValueError, "limit=0 is not a limit"),
    (lambda: recall_notes("q", characters=True), ValueError, "characters=True is not a limit"),
    (lambda: plan_and_execute(replans="x"), ValueError, "replans='x'"),
    (lambda: react(reasoning_interval="2"), ValueError, "reasoning_interval='2'"),
    (lambda: reflect(rounds=True), ValueError, "rounds=True"),
    (lambda: research(questions="x"), ValueError, "questions='x'"),
    (lambda: verify_with_retry(attempts="x"), ValueError, "attempts='x'"),
    (lambda: tool(made()), TypeError, "'pay' is a tool already"),
    (lambda: tool(name="find")(made()), TypeError, "'pay' is a tool already"),
    (lambda: agent(planning_interval=0), ValueError, "would never plan"),
    (lambda: agent(planning_interval=-1), ValueError, "would never plan"),
    (lambda: agent(planning_interval=1.5), TypeError, "planning_interval=1.5 is not a whole number"),
    (lambda: up.retry(attempts=0), ValueError, "must allow at least one attempt"),
    (lambda: up.retry(attempts=2, wait=-1), ValueError, "must"),
    (lambda: up.retry(attempts=2, max_wait=float("nan")), ValueError, "must"),
    (lambda: up.retry(attempts=2, errors=BaseException), TypeError, "Exception"),
    (lambda: up.timeout(0), ValueError, "must be more than 0"),
    (lambda: up.timeout(float("nan")), ValueError, "must be more than 0"),
    (lambda: up.cached(ttl=0), ValueError, "ttl=0"),
    (lambda: up.cached(ttl=-1), ValueError, "ttl=-1"),
    (lambda: up.cached(ttl=float("nan")), ValueError, "ttl=nan"),
    (lambda: up.cached(ttl=float("inf")), ValueError, "ttl=inf"),
    (lambda: up.cached(ttl="5"), TypeError, "ttl is a number of seconds, or None to keep values for ever, not a str"),
    (lambda: up.cached(ttl=True), TypeError, "ttl is a number of seconds, or None to keep values for ever, not a bool"),
    (lambda: up.cached(key=5), TypeError, "key is the name under which values are kept, not an int"),
    (lambda: up.cached(version=1.5), TypeError, "version is text or a whole number, not a float"),
    (lambda: up.cached(version=True), TypeError, "version is text or a whole number, not a bool"),
    (lambda: made(timeout=0), ValueError, "tool 'pay': timeout=0 must be more than 0 seconds"),
    (lambda: made(timeout=float("nan")), ValueError, "timeout=nan must be more than 0"),
    (lambda: made(timeout="5"), TypeError, "tool 'pay': timeout is seconds or None, not a str"),
    (lambda: made(retry=0), ValueError, "retry(attempts=0) must allow at least one attempt"),
    (lambda: made(retry="3"), TypeError, "tool 'pay': retry is a number of attempts or a Retry, not a str"),
    (lambda: made(retry=True), TypeError, "a number of attempts or a Retry, not a bool"),
    (lambda: made(deferred=True, retry=2), ValueError, "is deferred, so it is never called; leave out timeout="),
    (lambda: made(deferred=True, timeout=2), ValueError, "tool 'pay' is deferred"),
    (lambda: made(deferred=True, concurrency=1), ValueError, "is deferred, so it is never called"),
    (lambda: made(concurrency=0), ValueError, "tool 'pay': concurrency=0 is invalid; pass an integer of at least"),
    (lambda: made(concurrency=True), ValueError, "concurrency=True is invalid; pass an integer of at least"),
    (lambda: made(max_size=399), ValueError, "max_size=399 is invalid; pass an integer of at least"),
    (lambda: made(max_size=1.5), ValueError, "max_size=1.5 is invalid; pass an integer of at least"),
    (lambda: inner.using(max_turns=-1), ValueError, "max_turns=-1 is not a budget"),
    (lambda: inner.using(max_cost=Decimal("-0.1")), ValueError, "is not a budget"),
    (lambda: agent(max_nodes=-1), ValueError, "max_nodes=-1"),
    (lambda: agent(max_tokens=-1), ValueError, "max_tokens=-1"),
    (lambda: agent(max_turns="5"), ValueError, "'5' is not a budget"),
    (lambda: agent(max_seconds=-1), ValueError, "max_seconds=-1"),
    (lambda: agent(max_cost=float("nan")), ValueError, "is not a budget"),
    (lambda: select_tools(max_tools=0), ValueError, "would never choose a tool"),
    (lambda: execute_tools(limit=0), ValueError, "limit=0"),
    (lambda: llm_choices(0), ValueError, "n=0 and limit=None are numbers of 1 or more"),
    (lambda: plan_and_execute(replans=-1), ValueError, "replans=-1 is not a number of reviews; give 0 or more"),
    (lambda: react(reasoning_interval=0), ValueError, "reasoning_interval=0 would never act"),
    (lambda: reflect(rounds=0), ValueError, "rounds=0 would never revise; give 1 or more, or use single_run"),
    (lambda: research(questions=0), ValueError, "questions=0 would research nothing"),
    (lambda: verify_with_retry(attempts=0), ValueError, "attempts=0 would never answer"),
    (lambda: ContextWindow(tokens=0), ValueError, "tokens="),
    (lambda: ContextWindow(tokens=1.5), ValueError, "tokens="),
    (lambda: ContextWindow(images=-1), ValueError, "images="),
    (lambda: ContextWindow(images=True), ValueError, "images="),
    (lambda: ContextWindow(observation_chars=100), ValueError, "observation_chars="),
    (lambda: NoteMemory(notes, limit=0), ValueError, "limit="),
    (lambda: NoteMemory(notes, limit=True), ValueError, "limit="),
    (lambda: NoteMemory(notes, characters=-1), ValueError, "characters="),
    (lambda: WholeHistory(keep=-1), ValueError, "keep="),
    (lambda: ChunkedHistory(turns=0), ValueError, "turns="),
    (lambda: StoredFacts(CITY, keep=-2), ValueError, "keep="),
]
VALUES = [
    (lambda: agent(tools=None), TypeError, "tools= is a list, not None"),
    (lambda: inner.using(tools="x"), TypeError, "tools= is a list, not a str"),
    (lambda: inner.using(tools=5), TypeError, "tools= is a list, not an int"),
    (lambda: select_tools(tools="x"), TypeError, "tools= is a list, not a str"),
    (lambda: inner.using(tools=[made]), TypeError, "'made' is not a tool; decorate the function with @tool"),
    (lambda: select_tools([5]), TypeError, "5 is not a tool"),
    (lambda: task("Do it.", tools=5), TypeError, "tools= is a list, not an int"),
    (lambda: agent(system_prompt=None), TypeError, "system_prompt= is text, not None"),
    (lambda: agent(name=3), TypeError, "name= is text, not an int"),
    (lambda: agent(description=5), TypeError, "description= is text, not an int"),
    (lambda: agent(final_answer_checks=[5]), TypeError, "a final check is a function of the answer"),
    (lambda: agent(final_answer_checks=["polite"]), TypeError, "a final check is a function of the answer"),
    (lambda: agent(final_answer_checks="polite"), TypeError, "final_answer_checks= is a list of functions"),
    (lambda: agent(final_answer_checks=None), TypeError, "final_answer_checks= is a list of functions"),
    (lambda: made(name=5), TypeError, "name is text, not an int"),
    (lambda: made(description=5), TypeError, "description is text, not an int"),
    (lambda: Tool("x", "d", "schema", print), TypeError, "parameters is a dict"),
    (lambda: Tool("x", "d", {}, "run"), TypeError, "run is a function of the arguments and the context, not a str"),
    (lambda: Approve("x"), TypeError, "arguments is a dict"),
    (lambda: Deny(5), TypeError, "reason is text, not an int"),
    (lambda: parallel(up, size, name=5), TypeError, "the name of a node is text, not an int"),
    (lambda: up.named(None), TypeError, "the name of a node is text, not None"),
    (lambda: inner.as_tool("Does it.", name=5), TypeError, "name= is text, not an int"),
    (tap_that_returns, TypeError, "@tap 'count' returns int, but a tap passes its input on, and its result is dropped"),
    (lambda: Image(b""), ValueError, "neither data nor a URL"),
    (lambda: Image(), ValueError, "neither data nor a URL"),
    (lambda: Image(b"", media_type="image/png"), ValueError, "neither data nor a URL"),
    (
        lambda: SqliteStore(":memory:"),
        ValueError,
        "':memory:' is not a path, such as 'runs.db'; for data that end with the process",
    ),
    (lambda: SqliteStore(""), ValueError, "'' is not a path"),
    (lambda: SqliteStore("sqlite:///x.db"), ValueError, "'sqlite://…' is a URL; give a path"),
    (lambda: SqliteStore("postgresql://me:s3cret@h/x"), ValueError, "'postgresql://…' is a database on a server"),
    (lambda: SqliteStore("file:x.db?mode=ro"), ValueError, "'file:…' is a URL"),
    (lambda: SqliteStore(None), TypeError, "path= is a path, such as 'runs.db', not None"),
    (lambda: Notes("sqlite:///x.db"), ValueError, "is a URL; give a path"),
    (lambda: FileMemoryProvider(":memory:"), ValueError, "is not a path, such as 'facts'"),
    (lambda: FileMemoryProvider(""), ValueError, "is not a path, such as 'facts'"),
    (lambda: EncryptedMemoryProvider(None, key="env:KEY"), TypeError, "root= is a path, such as 'facts', not None"),
    (lambda: Notes(MemoryStore(), index=5), TypeError, "index= is a search engine"),
    (lambda: Notes(MemoryStore(), on_progress=5), TypeError, "on_progress= is a function"),
    (lambda: llm_request(force=""), ValueError, "force='' names no tool"),
    (lambda: llm_request(parameters="x"), TypeError, "parameters= is a dict"),
    (lambda: llm_choices(2, parameters=5), TypeError, "parameters= is a dict"),
    (lambda: task("Find {city}"), ValueError, "nothing fills {city} in the instruction of 'task'"),
    (lambda: task("Find {input} in {place.name}"), ValueError, "nothing fills {place.name}"),
    (lambda: ask_human(5, str), TypeError, "the question of 'ask_human' is text"),
    (lambda: update_prompt(), TypeError, "'update_prompt' adds nothing"),
    (lambda: recall_notes(5), TypeError, "the query of 'recall_notes' is text"),
    (lambda: recall_notes("q", scope=5), TypeError, "scope= is a path"),
    (lambda: recall_notes("q", categories=5), TypeError, "categories= is a list of texts"),
    (lambda: remember_notes(scope=5), TypeError, "scope= is a path"),
    (lambda: chat(endings="bye"), TypeError, "endings= is a list of messages"),
    (lambda: chat(endings=3), TypeError, "endings= is a list of messages"),
    (lambda: verify_with_retry(check=3), TypeError, "check= is text, or a function"),
    (lambda: verify_with_retry(None), TypeError, "check= is text, or a function"),
    (lambda: reflect(criteria=3), TypeError, "criteria=3 is not text"),
    (lambda: route(3), TypeError, "experts are made by Expert"),
    (lambda: route({"a": Expert("a", single_run())}, choose="a"), TypeError, "choose= is a function of the question"),
    (lambda: chat(endings=["bye", 3]), TypeError, "endings=['bye', 3] has a value that is not text"),
    (lambda: route({"a": single_run()}), TypeError, "experts are made by Expert"),
    (lambda: agent(step_callbacks=print), TypeError, "list of functions"),
    (lambda: llm_request(force="pay", tools=False), TypeError, "forces a tool call"),
    (lambda: llm_request(force="pay", output=int), TypeError, "forces a tool call"),
    (lambda: choose(3), TypeError, "by criteria as text, or by a function of the answers, not by 3"),
    (lambda: choose("x", "text"), TypeError, "the output type of 'choose' must be a type, "),
    (lambda: verify(3), TypeError, "text"),
    (lambda: verify(later), TypeError, "async"),
    (lambda: verify("x", "Draft"), TypeError, "must be a type"),
    (lambda: task(3), TypeError, "is text, or a plain function that makes it of the input, not 3"),
    (lambda: task("x", output="Report"), TypeError, "not 'Report'"),
    (lambda: task("x", output=ScriptedModel), TypeError, "has no JSON form"),
    (lambda: remember_notes("text"), TypeError, "such as str"),
    (lambda: remember_notes(7), TypeError, "such as str"),
    (lambda: ToolCall("search", '{"q": 1}'), TypeError, "a str, a str and a str"),
    (lambda: Message("user", "hello"), TypeError, "Message.user"),
    (lambda: llm_request(force=print), TypeError, "decorate the function with @tool"),
    (lambda: route({"a": Expert("x", agent())}), TypeError, "or Expert('…', agent.as_node())"),
    (lambda: route(None), TypeError, "experts are made by Expert"),
    (lambda: chat(endings=None), TypeError, "endings= is a list of messages"),
    (lambda: llm_request(output="Letter"), TypeError, "output= must be a type, such as str or list[str], not 'Letter'"),
    (lambda: task(output={"a": str}), TypeError, "output= must be a type"),
    (lambda: llm_choices(2, output=[str]), TypeError, "output= must be a type"),
]

MEMORY = [
    (lambda: NoteMemory(notes, recall=1), ValueError, "recall=1 is not known; there are 'run', 'node', True and False"),
    (lambda: NoteMemory(notes, recall="runs"), ValueError, "recall='runs' is not known; did you mean 'run'?"),
    (lambda: NoteMemory(notes, tools="no"), TypeError, "tools='no' is neither True nor False"),
    (lambda: notes.slice(["/a"], read_only="no"), TypeError, "read_only='no' is neither True nor False"),
    (lambda: Note("x", at=NAIVE), ValueError, "at=2026-01-01T12:00:00 has no time zone; write datetime(…, tzinfo=UTC)"),
    (lambda: Turn("x", at=NAIVE), ValueError, "has no time zone"),
    (lambda: FoundFacts(CITY, subject="x"), TypeError, "the subject is a Subject"),
    (lambda: StoredFacts(CITY, subjects=["x"]), TypeError, "the subject is a Subject"),
    (lambda: StoredFacts(CITY, scopes=["agent"]), TypeError, "the place is a Scope or ScopeKind"),
    (lambda: RunMemory(None), TypeError, "system_prompt= is text, not None"),
    (lambda: NoteMemory("notes.db"), TypeError, "notes= are Notes"),
    (lambda: ContextWindow(compression="whole"), TypeError, "WholeHistory"),
    (lambda: WholeHistory(keep="all"), TypeError, "keep is a number of model turns, not a str"),
    (lambda: FoundFacts(), TypeError, "concept"),
    (lambda: FoundFacts("city"), TypeError, "concept"),
    (lambda: load_facts(), TypeError, "load_all_facts"),
    (lambda: load_facts("city"), TypeError, "concepts"),
    (lambda: save_facts(), TypeError, "auto_detect_facts"),
    (lambda: save_facts(CITY, subject="user"), TypeError, "a Subject"),
    (lambda: save_facts(CITY, scope="agent"), TypeError, "a list of scopes, such as [ScopeKind"),
    (lambda: auto_detect_facts(scopes="agent"), TypeError, "a list of scopes"),
    (lambda: load_all_facts(subjects=Subject("user")), TypeError, "a list of subjects"),
    (lambda: load_all_facts(subjects=["user"]), TypeError, "one of them is of type str"),
    (lambda: AgentMemory(subjects=Subject("ada")), TypeError, "subjects is a list"),
    (lambda: AgentMemory(provider=FileMemoryProvider), TypeError, "provider= is an object"),
    (lambda: AgentMemory(provider=MemoryStore()), TypeError, "StoreMemoryProvider(store)"),
    (lambda: auto_detect_facts(scopes=[Subject("ada")]), TypeError, "scopes= takes a list of scopes"),
    (lambda: ContextWindow(compression=WholeHistory), TypeError, "not the class WholeHistory"),
    (lambda: StoreMemoryProvider(MemoryStore), TypeError, "not the class MemoryStore"),
    (lambda: EncryptedStore(MemoryStore, b"k" * 32), TypeError, "the class MemoryStore"),
]
CALLS = [
    (lambda: notes.remember("x", at=NAIVE), ValueError, "at=2026-01-01T12:00:00 has no time zone"),
    (lambda: notes.remember("x", importance=True), NoteError, "importance=True is not between 0 and 1"),
    (lambda: notes.recall("x", since=NAIVE), ValueError, "since=2026-01-01T12:00:00 has no time zone"),
    (lambda: notes.recall("x", until=NAIVE), ValueError, "until=2026-01-01T12:00:00 has no time zone"),
    (lambda: notes.list_records(since=NAIVE), ValueError, "since=2026-01-01T12:00:00 has no time zone"),
    (lambda: notes.forget(older_than=NAIVE), ValueError, "older_than=2026-01-01T12:00:00 has no time zone"),
    (lambda: notes.forget("/a"), TypeError, "write forget(scope=…) or forget(ids=[…])"),
    (lambda: notes.purge("ada"), TypeError, "write purge(source=…) or purge(run_id=…)"),
    (
        lambda: StoreMemoryProvider(MemoryStore()).forget("ada"),
        TypeError,
        "write forget(concept=…) or forget(subject=…)",
    ),
    (
        lambda: prune_runs(MemoryStore(), older_than=NAIVE),
        TypeError,
        "older_than= is an age, such as timedelta(days=30)",
    ),
    (lambda: prune_runs(MemoryStore(), status="done"), TypeError, "status= is a list, such as ['done']"),
    (lambda: prune_runs(MemoryStore(), status=["don"]), ValueError, "status='don' is not known; did you mean 'done'?"),
    (lambda: prune_runs(MemoryStore(), keep="x"), TypeError, "keep='x' is not a whole number"),
    (lambda: agent(store=MemoryStore()).end(5), TypeError, "run_id= is text, not an int"),
    (lambda: agent(store=MemoryStore()).resume(5), TypeError, "run_id= is text, not an int"),
    (lambda: agent(store=MemoryStore()).fork(5, at=1), TypeError, "run_id= is text, not an int"),
    (lambda: read_run(MemoryStore(), 5), TypeError, "run_id= is text, not an int"),
    *(
        (called, ValueError, f"{name}='' is not a name; give one, such as 'order-7")
        for name, called in (
            ("run_id", lambda: agent(store=MemoryStore()).run("a", run_id="")),
            ("run_id", lambda: agent(store=MemoryStore()).submit("a", run_id="")),
            ("run_id", lambda: agent(store=MemoryStore()).fork("a", at=1, run_id="")),
            ("new_id", lambda: agent(store=MemoryStore()).rerun("a", new_id="")),
            ("run_id", lambda: agent(store=MemoryStore()).handle("")),
        )
    ),
    (lambda: agent(store=MemoryStore()).run("a", owner="\ud800"), ValueError, "owner= contains half a surrogate pair"),
    *(
        (called, TypeError, "store= is a store, such as SqliteStore('runs.db'), not a str")
        for called in (
            lambda: list_runs("runs.db"),
            lambda: list_threads("runs.db"),
            lambda: list_questions("runs.db"),
            lambda: run_owners("runs.db"),
            lambda: measure_runs("runs.db"),
            lambda: read_run("runs.db", "r"),
            lambda: end_run("runs.db", "r"),
            lambda: import_thread("runs.db", "t", RunMemory()),
            lambda: prune_runs("runs.db", keep=3),
            lambda: forget_runs("runs.db"),
            lambda: forget_thread("runs.db", "t"),
            lambda: clear_cache("runs.db"),
        )
    ),
]


@pytest.mark.parametrize(("written", "error", "said"), [*WORDS, *FLAGS, *MODELS, *SERVERS, *NUMBERS, *VALUES, *MEMORY])
def test_a_mistake_is_an_error_where_it_is_made(written, error, said):
    """The error says which option is wrong, and never shows a secret."""
    with pytest.raises((TypeError, ValueError)) as caught:
        written()
    assert type(caught.value) is error
    assert said in str(caught.value)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(("called", "error", "said"), CALLS)
async def test_a_mistake_is_an_error_where_it_is_passed(called, error, said):
    """The call says so before it reads or writes anything."""
    with pytest.raises((TypeError, ValueError, NoteError)) as caught:
        await called()
    assert type(caught.value) is error
    assert said in str(caught.value)


@pytest.mark.parametrize("answer", ["text", None])
@pytest.mark.parametrize("is_async", [False, True])
async def test_what_a_model_answers_is_no_error_of_python(answer, is_async):
    """Its respond returned no response, or is not async; the error says what to write."""

    class Plain(Named):
        def respond(self, request, on_text=None):
            return answer or ModelResponse(Message.assistant("ok"))

    class Async(Named):
        async def respond(self, request, on_text=None):
            return answer

    returned = "None" if answer is None else "a str"
    said = f"the respond of an Async returned {returned}; write" if is_async else "the respond of a Plain is not async"
    with pytest.raises(NodeFailedError, match="failed with FeatureError: ") as caught:
        await Agent(single_run(), model=Async() if is_async else Plain()).run("x")
    assert said in str(caught.value)


def test_what_is_right_is_still_accepted():
    """Braces that are no fields, parameters of both protocols and of one server alone, and taps that return nothing."""

    @tap
    async def quiet(ctx: Context, text: str) -> None:
        pass

    @tap
    async def unannotated(ctx: Context, text: str):
        pass

    for text in ("Find {input}", 'Answer with {"city": "…"}', "Answer with {}"):
        task(text)
    parameters = {"temperature": 0, "max_tokens": 5, "max_output_tokens": 5, "reasoning": {"effort": "low"}, "seed": 1}
    assert OpenAIModel("m", **parameters, extra_body={"top_k": 5}).parameters["temperature"] == 0
    assert (
        agent(model=Named(), max_cost=Decimal("0.5"), max_seconds=0.5, allow_unpriced=True).budgets.max_seconds == 0.5
    )
    assert Image(url="https://a.example/b.png").url
