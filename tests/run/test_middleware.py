"""Middleware: what features that are wrapped around requests, tool calls and nodes see, change and refuse."""

from __future__ import annotations

import signal
import sys
import textwrap
from contextvars import ContextVar
from dataclasses import replace

import anyio
import pytest

from graphagent import END, START, Agent, Context, Strategy, each, node, parallel, race, tool
from graphagent.errors import (
    BudgetError,
    FeatureError,
    HandlerError,
    ModelRequestError,
    NodeFailedError,
    ScriptError,
    ToolError,
    TruncatedError,
)
from graphagent.events import ModelRequested, ModelResponded, OutputStreamed, ToolCalled, ToolReturned
from graphagent.history import verify_runs
from graphagent.llm import Approve, Message, ModelRequest, ModelResponse, Text, ToolCall, ToolCalls, ToolResult, Usage
from graphagent.memory import ActionStep
from graphagent.nodes import ask_human, llm_request
from graphagent.protocols import Feature
from graphagent.run import list_runs
from graphagent.store import MemoryStore, SqliteStore
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run
from tests import forkserver
from tests.run.executors import both_executors  # noqa: F401  a fixture

pytestmark = pytest.mark.every_loop


@tool
async def send(to: str, text: str) -> str:
    """Send a message."""
    return f"sent to {to}: {text}"


CALL = ToolCall("send", {"to": "Ada", "text": "hello"}, "1")


class Seen(Feature):
    """Writes down what passes, in both directions."""

    def __init__(self, seen: list[str], name: str = "seen") -> None:
        self.seen, self.name = seen, name

    async def around_model(self, ctx, request, proceed):
        self.seen.append(f"{self.name}: asks {request.messages[-1].text}")
        response = await proceed(request)
        self.seen.append(f"{self.name}: answers {response.message.text or 'with calls'}")
        return response

    async def around_tool(self, ctx, call, proceed):
        self.seen.append(f"{self.name}: calls {call.name} {ctx.call.id}")
        result = await proceed(call)
        self.seen.append(f"{self.name}: returns {result.content}")
        return result

    async def around_node(self, ctx, value, proceed):
        self.seen.append(f"{self.name}: enters {ctx.node}")
        output = await proceed(value)
        self.seen.append(f"{self.name}: leaves {ctx.node}")
        return output


class Other(Seen):
    """The same, as another feature."""


class Redactor(Feature):
    """Keeps a name from the model, and puts it into what the model says."""

    async def around_model(self, ctx, request, proceed):
        def hidden(message: Message) -> Message:
            parts = tuple(
                replace(part, text=part.text.replace("Ada", "<name>")) if isinstance(part, Text) else part
                for part in message.parts
            )
            return message if parts == message.parts else replace(message, parts=parts)

        response = await proceed(replace(request, messages=tuple(map(hidden, request.messages))))
        return replace(response, message=Message.assistant(response.message.text.replace("<name>", "Ada")))


async def test_middleware_sees_requests_calls_and_nodes():
    """In the order of its installation: the first is the outermost."""
    seen: list[str] = []
    agent = Agent(single_run(), model=ScriptedModel([CALL, "done"]), tools=[send])
    agent.install(Seen, seen=seen, name="a")
    agent.install(Other, seen=seen, name="b")
    assert (await agent.run("go")).output == "done"
    assert seen == [
        "a: enters llm_request", "b: enters llm_request", "a: asks go", "b: asks go", "b: answers with calls",
        "a: answers with calls", "b: leaves llm_request", "a: leaves llm_request",
        "a: enters execute_tools", "b: enters execute_tools", "a: calls send 1", "b: calls send 1",
        "b: returns sent to Ada: hello", "a: returns sent to Ada: hello", "b: leaves execute_tools",
        "a: leaves execute_tools",
        "a: enters llm_request", "b: enters llm_request", "a: asks sent to Ada: hello", "b: asks sent to Ada: hello",
        "b: answers done", "a: answers done", "b: leaves llm_request", "a: leaves llm_request",
    ]  # fmt: skip


@pytest.mark.parametrize("stored", [False, True])
async def test_a_request_and_its_answer_may_be_changed(stored, tmp_path):
    """The model gets the changed request, which is what the step and the event say it was sent; the run gets the changed answer."""
    model = ScriptedModel(["Hello, <name>!", "Bye, <name>!"])
    ask = llm_request(tools=False)
    store = SqliteStore(tmp_path / "runs.db") if stored else None
    agent = Agent(Strategy("two", START >> ask >> ask.named("again") >> END), model=model, store=store)
    agent.install(Redactor)
    requested: list[str] = []
    agent.on(ModelRequested, lambda event: requested.append(event.request.messages[0].text))
    result = await agent.run("I am Ada.", run_id="r")
    assert result.output == "Bye, Ada!"
    assert [request.messages[0].text for request in model.requests] == requested == ["I am <name>."] * 2
    steps = [step for step in result.memory.steps if isinstance(step, ActionStep)]
    assert [step.model_output for step in steps] == ["Hello, Ada!", "Bye, Ada!"]
    assert [message.text for message in steps[1].model_input_messages] == ["I am <name>.", "Hello, <name>!"] + [
        model.requests[1].messages[-1].text
    ] * (len(model.requests[1].messages) - 2)
    if stored:
        kept = (await agent.read("r")).memory.steps
        assert [step.model_input_messages for step in kept if isinstance(step, ActionStep)] == [
            step.model_input_messages for step in steps
        ]


async def test_middleware_may_answer_without_asking():
    """Nothing is spent then, and calls that it makes up get ids of their own."""

    class Canned(Feature):
        async def around_model(self, ctx, request, proceed):
            if request.messages[-1].role == "tool":
                return ModelResponse(Message.assistant("done"))
            return ModelResponse(Message.assistant(calls=[replace(CALL, id="")]))

        async def around_tool(self, ctx, call, proceed):
            return ToolResult(call.id, call.name, "never sent")

    model = ScriptedModel([])
    agent = Agent(single_run(), model=model, tools=[send])
    agent.install(Canned)
    called: list[ToolCalled] = []
    agent.on(ToolCalled, called.append)
    result = await agent.run("go")
    assert (result.output, result.usage, model.requests, called) == ("done", Usage(), [], [])
    [step] = [step for step in result.memory.steps if isinstance(step, ActionStep) and step.tool_calls]
    assert step.tool_calls[0].id
    assert [each.content for each in step.results] == ["never sent"]


async def test_middleware_may_ask_again_and_each_time_counts():
    """In tokens and in turns, so that no loop of it is without end."""

    class Longer(Feature):
        async def around_model(self, ctx, request, proceed):
            while True:
                try:
                    return await proceed(request)
                except TruncatedError:
                    limit = request.parameters.get("max_tokens", 1) * 2
                    request = replace(request, parameters={"max_tokens": limit})

    cut = ModelResponse(Message.assistant(calls=[CALL]), Usage(1, 2), "length")
    model = ScriptedModel([cut, cut, "done"])
    agent = Agent(single_run(), model=model, tools=[send])
    agent.install(Longer)
    result = await agent.run("go")
    assert (result.output, result.turns) == ("done", 3)
    assert result.usage.total_tokens == 6 + 2
    assert [request.parameters for request in model.requests] == [{}, {"max_tokens": 2}, {"max_tokens": 4}]
    agent = Agent(single_run(), model=ScriptedModel([cut] * 9), tools=[send], max_turns=3)
    agent.install(Longer)
    with pytest.raises(BudgetError):
        await agent.run("go")


async def test_a_tool_call_may_be_changed_or_refused():
    """The changed call is made, under its own id; what a ToolError says is what the model sees."""

    class Guard(Feature):
        async def around_tool(self, ctx, call, proceed):
            if call.arguments["to"] == "Bob":
                raise ToolError("nothing is sent to Bob")
            return await proceed(replace(call, arguments={**call.arguments, "text": "(checked)"}, id="other"))

    bob = ToolCall("send", {"to": "Bob", "text": "hello"}, "2")
    model = ScriptedModel([ToolCalls([CALL, bob]), "done"])
    agent = Agent(single_run(), model=model, tools=[send])
    agent.install(Guard)
    await agent.run("go")
    told = [part for message in model.requests[-1].messages for part in message.parts if isinstance(part, ToolResult)]
    assert [(part.call_id, part.content, part.is_error) for part in told] == [
        ("1", "sent to Ada: (checked)", False),
        ("2", "Error: nothing is sent to Bob", True),
    ]


async def test_a_call_is_seen_after_its_approval_and_only_if_its_tool_exists():
    """What a person changed is what middleware sees."""

    @tool(approve=True)
    async def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    seen: list[str] = []

    class Watch(Feature):
        async def around_tool(self, ctx, call, proceed):
            seen.append(f"{call.name} {call.arguments['amount']}")
            return await proceed(call)

    calls = ToolCalls([ToolCall("pay", {"amount": 5}, "1"), ToolCall("paid", {"amount": 5}, "2")])
    agent = Agent(single_run(), model=ScriptedModel([calls, "done"]), tools=[pay], store=MemoryStore())
    agent.install(Watch)
    waiting = await agent.run("go", run_id="r")
    assert (waiting.done, seen) == (False, [])
    assert (await agent.resume("r", answer=Approve({"amount": 4}))).output == "done"
    assert seen == ["pay 4"]


async def test_taps_forks_and_strategies_are_nodes():
    """Each is seen once for each execution, and what it is made of inside it."""
    seen: list[str] = []

    @node
    async def upper(ctx: Context, said: str) -> str:
        return said.upper()

    inner = Strategy("inner", START >> upper >> END)
    both = parallel(inner, upper, name="both")
    agent = Agent(Strategy("outer", START >> both >> END))
    agent.install(Seen, seen=seen, name="x")
    assert (await agent.run("a")).output == ("A", "A")
    assert seen[0] == "x: enters both"
    assert seen[-1] == "x: leaves both"
    assert sorted(seen[1:-1]) == [
        "x: enters both/0/inner", "x: enters both/0/inner/upper", "x: enters both/1/upper",
        "x: leaves both/0/inner", "x: leaves both/0/inner/upper", "x: leaves both/1/upper",
    ]  # fmt: skip


async def test_a_node_may_be_given_another_input_and_output():
    """Its retries are inside: middleware sees the input, and what came of all attempts."""
    attempts: list[str] = []

    @node
    async def shaky(ctx: Context, said: str) -> str:
        attempts.append(said)
        if len(attempts) < 3:
            raise ConnectionError("not yet")
        return said

    class Louder(Feature):
        async def around_node(self, ctx, value, proceed):
            return await proceed(value + "!") + "?"

    agent = Agent(Strategy("s", START >> shaky.retry(attempts=3, wait=0) >> END))
    agent.install(Louder)
    assert (await agent.run("a")).output == "a!?"
    assert attempts == ["a!"] * 3


async def test_a_node_proceeds_once():
    """Its effects are recorded once, so a second execution would take those of the first."""

    class Twice(Feature):
        async def around_node(self, ctx, value, proceed):
            await proceed(value)
            return await proceed(value)

    @node
    async def same(ctx: Context, said: str) -> str:
        return said

    agent = Agent(Strategy("s", START >> same >> END))
    agent.install(Twice)
    with pytest.raises(NodeFailedError, match=r"executes node 'same' twice, .* put \.retry"):
        await agent.run("a")


class Broken(Feature):
    """Fails, or returns nothing, where it is told to."""

    def __init__(self, where: str, returns: bool = False) -> None:
        self.where, self.returns = where, returns

    async def _do(self, where, value, proceed):
        if where != self.where:
            return await proceed(value)
        if self.returns:
            return None
        raise KeyError("what was said")

    async def around_model(self, ctx, request, proceed):
        return await self._do("around_model", request, proceed)

    async def around_tool(self, ctx, call, proceed):
        return await self._do("around_tool", call, proceed)

    async def around_node(self, ctx, value, proceed):
        return await self._do("around_node", value, proceed)


class Outside(Seen):
    """Is wrapped around Broken."""


@pytest.mark.parametrize("where", ["around_model", "around_tool", "around_node"])
async def test_middleware_that_raises_is_named_and_the_run_goes_on_without_it(where):
    """The error says which feature and method raised, without what they said; the run is resumed by an agent that mended it."""
    store = MemoryStore()
    agent = Agent(single_run(), model=ScriptedModel([CALL]), tools=[send], store=store)
    agent.install(Outside, seen=[])
    agent.install(Broken, where=where)
    with pytest.raises(NodeFailedError, match=rf"failed with KeyError in Broken\.{where}$") as raised:
        await agent.run("go", run_id="r")
    assert isinstance(raised.value.__cause__, KeyError)
    replies = ["done"] if where == "around_tool" else [CALL, "done"]
    mended = Agent(single_run(), model=ScriptedModel(replies), tools=[send], store=store)
    assert (await mended.resume("r")).output == "done"


@pytest.mark.parametrize("where", ["around_model", "around_tool"])
async def test_middleware_that_forgets_to_return_is_named(where):
    """The error says what to write."""
    agent = Agent(single_run(), model=ScriptedModel([CALL, "done"]), tools=[send])
    agent.install(Broken, where=where, returns=True)
    with pytest.raises(
        NodeFailedError, match=rf"Broken\.{where} returned None and not a \w+; end it with: return await"
    ) as raised:
        await agent.run("go")
    assert isinstance(raised.value.__cause__, FeatureError)


async def test_errors_of_middleware_take_the_edges_of_their_type():
    """So do errors that pass through it, which keep their own type and no name of a feature."""

    class Blocked(Exception):
        """Refused."""

    class Guard(Feature):
        async def around_model(self, ctx, request, proceed):
            if "secret" in request.messages[-1].text:
                raise Blocked
            return await proceed(request)

    @node
    async def sorry(ctx: Context, error: Blocked) -> str:
        return "I cannot help with that."

    ask = llm_request(tools=False)
    strategy = Strategy("s", START >> ask >> END, ask.on_error(Blocked) >> sorry >> END)
    agent = Agent(strategy, model=ScriptedModel([ModelRequestError("it answered 400", status=400)]))
    agent.install(Guard)
    assert (await agent.run("a secret")).output == "I cannot help with that."
    with pytest.raises(NodeFailedError, match=r"failed with ModelRequestError: it answered 400$"):
        await agent.run("hello")


async def test_what_middleware_asks_a_model_is_recorded_and_not_wrapped(tmp_path):
    """A judge that asks the model about each request asks once, also when the node is executed again after a stop."""

    class Judge(Feature):
        async def around_model(self, ctx, request, proceed):
            question = ModelRequest((Message.user(f"Is this harmless? {request.messages[-1].text}"),))
            verdict = await ctx.request(question)
            assert verdict.message.text == "yes"
            return await proceed(request)

    @node
    async def two(ctx: Context, said: str) -> str:
        first = await ctx.request(ModelRequest((Message.user(said),)))
        await stop(ctx)
        second = await ctx.request(ModelRequest((Message.user(first.message.text),)))
        return second.message.text

    stopping = [True]

    async def stop(ctx: Context) -> None:
        if stopping:
            raise ConnectionError

    strategy = Strategy("s", START >> two >> END)
    store = SqliteStore(tmp_path / "runs.db")
    agent = Agent(strategy, model=ScriptedModel(["yes", "one"]), store=store)
    agent.install(Judge)
    with pytest.raises(NodeFailedError):
        await agent.run("zero", run_id="r")
    stopping.clear()
    model = ScriptedModel(["yes", "two"])
    agent = Agent(strategy, model=model, store=store)
    agent.install(Judge)
    assert (await agent.resume("r")).output == "two"
    assert [request.messages[-1].text for request in model.requests] == ["Is this harmless? one", "one"]
    again = await agent.rerun("r")
    assert again.output == "two"


async def test_a_question_inside_middleware_suspends_the_run():
    """A pause is no error: nothing is noted, and the run goes on with the answer."""
    seen: list[str] = []
    ask = ask_human("Which name?", str, name="ask")
    agent = Agent(Strategy("s", START >> ask >> END), store=MemoryStore())
    agent.install(Seen, seen=seen, name="x")
    assert not (await agent.run("a", run_id="r")).done
    assert (await agent.resume("r", answer="Ada")).output == "Ada"
    assert seen == ["x: enters ask", "x: enters ask", "x: leaves ask"]


async def test_branches_and_sub_agents_pass_through_it():
    """The features of the agent that calls count for the agents that it calls, too."""
    seen: list[str] = []
    helper = Agent(single_run(), name="helper", description="Helps.")
    boss = Agent(
        single_run(), model=ScriptedModel([ToolCall("helper", {"task": "x"}, "1"), "helped", "done"]), tools=[helper]
    )
    boss.install(Seen, seen=seen, name="boss")
    assert (await boss.run("go")).output == "done"
    assert [line for line in seen if "asks" in line] == ["boss: asks go", "boss: asks x", "boss: asks helped"]
    seen.clear()
    ask = llm_request(tools=False)
    many = Agent(Strategy("many", START >> each(ask) >> END), model=ScriptedModel(["A", "B"]))
    many.install(Seen, seen=seen, name="x")
    await many.run(["a", "b"])
    assert sorted(line for line in seen if "asks" in line) == ["x: asks a", "x: asks b"]


class Watching(Seen):
    """Writes down what passes, and says that it changes no answer."""

    changes_answers = False


class Redacting(Feature):
    """Asks again after an answer of one word, and replaces a number in answers and results."""

    async def around_model(self, ctx, request, proceed):
        response = await proceed(request)
        if response.message.text == "Hm.":
            response = await proceed(request)
        return replace(response, message=changed(response.message, "4711", "****"))

    async def around_tool(self, ctx, call, proceed):
        result = await proceed(call)
        return replace(result, content=result.content.replace("4711", "****"))


class Answering(Feature):
    """Answers by itself."""

    async def around_model(self, ctx, request, proceed):
        return ModelResponse(Message.assistant("by itself"))


def changed(message, old, new):
    return Message(
        message.role,
        tuple(
            replace(part, text=part.text.replace(old, new)) if isinstance(part, Text) else part
            for part in message.parts
        ),
    )


@pytest.mark.parametrize(
    ("features", "pieces"),
    [
        ([Watching], ["a", " b", " c"]),
        ([Seen], ["a b c"]),
        ([Watching, Seen], ["a b c"]),
    ],
)
async def test_text_is_streamed_through_middleware_that_says_that_it_changes_no_answer(features, pieces):
    """Listeners get the pieces as the model says them; through any other, they get the text when it has returned."""
    agent = Agent(Strategy("s", START >> llm_request(tools=False) >> END), model=ScriptedModel(["a b c"]))
    for each_feature in features:
        agent.install(each_feature, seen=[])
    assert [text async for text in agent.stream("x").text()] == pieces


async def test_listeners_hear_what_middleware_made_of_an_answer_and_of_a_result():
    """Neither the text, nor the value so far, nor the events of the answer and of the result have what it took out."""

    @tool
    def pin() -> str:
        """Return the PIN."""
        return "4711"

    heard = []
    model = ScriptedModel([ToolCall("pin", {}), "Hm.", "The PIN is 4711."])
    agent = Agent(single_run(), model=model, tools=[pin])
    agent.install(Redacting)
    agent.on(ModelResponded, lambda event: heard.append(event.response.message.text))
    agent.on(ToolReturned, lambda event: heard.append(event.result.content))
    stream = agent.stream("PIN?")
    assert [text async for text in stream.text()] == ["The PIN is ****."]
    assert stream.result.output == "The PIN is ****."
    assert heard == ["", "****", "The PIN is ****."]

    values = []
    typed = Strategy("s", START >> llm_request(output=list[str]) >> END)
    agent = Agent(typed, model=ScriptedModel([{"value": ["a", "4711"]}]))
    agent.install(Redacting)
    agent.on(OutputStreamed, lambda event: values.append(event.partial))
    assert (await agent.run("x")).output == ["a", "****"]
    assert values == [["a", "****"]]


async def test_an_answer_of_the_middleware_itself_is_heard():
    """No model is asked, and the text comes as that of any other answer."""
    agent = Agent(Strategy("s", START >> llm_request(tools=False) >> END), model=ScriptedModel([]))
    agent.install(Answering)
    assert [text async for text in agent.stream("x").text()] == ["by itself"]


async def test_a_cancelled_run_is_cancelled_inside_middleware():
    """It does not wait, and is no failure of the feature."""

    class Slow(Feature):
        async def around_model(self, ctx, request, proceed):
            await anyio.sleep_forever()

    agent = Agent(single_run(), model=ScriptedModel([]))
    agent.install(Slow)
    with anyio.move_on_after(0.05) as scope:
        await agent.run("x")
    assert scope.cancelled_caught


def test_a_recorded_answer_does_not_pass_through_it_again(tmp_path):
    """The process is killed in the middleware of the second node: the answers of the first, as they were changed, are not asked for again."""
    program = textwrap.dedent(
        """
        import os, signal, sys
        import anyio
        from graphagent import END, START, Agent, Strategy
        from graphagent.llm import Approve, Message, ModelResponse
        from graphagent.nodes import llm_request
        from graphagent.protocols import Feature
        from graphagent.store import SqliteStore
        from graphagent.testing import ScriptedModel

        path, dies = sys.argv[1], sys.argv[2] == "dies"

        class Counter(Feature):
            async def around_model(self, ctx, request, proceed):
                print(f"around {ctx.node}", flush=True)
                if dies and ctx.node == "second":
                    os.kill(os.getpid(), signal.SIGKILL)
                response = await proceed(request)
                return ModelResponse(Message.assistant(response.message.text + "!"))

        ask = llm_request(tools=False, name="first")
        strategy = Strategy("two", START >> ask >> ask.named("second") >> END)
        agent = Agent(strategy, model=ScriptedModel(["one"] if dies else ["two"]), store=SqliteStore(path))
        agent.install(Counter)
        result = anyio.run(agent.run, "go") if dies else anyio.run(agent.resume, sys.argv[3])
        print(result.output, [step.model_output for step in result.memory.steps if hasattr(step, "model_output")])
        """
    )
    path = str(tmp_path / "runs.db")
    command = [sys.executable, "-W", "error", "-c", program, path]
    dead = forkserver.run([*command, "dies"], capture_output=True, text=True, check=False, timeout=600)
    assert dead.returncode == -signal.SIGKILL, dead.stderr
    assert dead.stdout.splitlines() == ["around first", "around second"]
    [head] = anyio.run(list_runs, SqliteStore(path))
    ended = forkserver.run([*command, "lives", head.run_id], capture_output=True, text=True, check=False, timeout=600)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == ["around second", "two! ['one!', 'two!']"]


@pytest.mark.parametrize("moment", ["behind the turn", "before the turn is stored"])
def test_the_last_request_of_middleware_is_in_the_step_after_a_kill(tmp_path, moment):
    """Middleware that asks twice, with other messages: the step has what the answer answers, also when another process reads it."""
    program = textwrap.dedent(
        """
        import os, signal, sys
        from dataclasses import replace
        import anyio
        from graphagent import END, START, Agent, Context, Strategy, node
        from graphagent.llm import Message
        from graphagent.nodes import llm_request
        from graphagent.protocols import Feature
        from graphagent.store import SqliteStore
        from graphagent.testing import ScriptedModel

        path, dies, behind = sys.argv[1], sys.argv[2] == "dies", sys.argv[3] == "behind the turn"

        class Twice(Feature):
            async def around_model(self, ctx, request, proceed):
                await proceed(request)
                answer = await proceed(replace(request, messages=(*request.messages, Message.user("Once more."))))
                if dies and not behind:
                    os.kill(os.getpid(), signal.SIGKILL)
                return answer

        @node
        async def after(ctx: Context, said: str) -> str:
            if dies:
                os.kill(os.getpid(), signal.SIGKILL)
            return said

        strategy = Strategy("s", START >> llm_request(tools=False) >> after >> END)
        answers = ["a", "b"] if dies or not behind else []
        agent = Agent(strategy, model=ScriptedModel(answers), store=SqliteStore(path))
        agent.install(Twice)
        result = anyio.run(lambda: agent.run("go", run_id="r") if dies else agent.resume("r"))
        step = next(each for each in result.memory.steps if hasattr(each, "model_output"))
        print(step.model_output, [message.text for message in step.model_input_messages])
        """
    )
    command = [sys.executable, "-W", "error", "-c", program, str(tmp_path / "runs.db")]
    dead = forkserver.run([*command, "dies", moment], capture_output=True, text=True, check=False, timeout=600)
    assert dead.returncode == -signal.SIGKILL, dead.stderr
    ended = forkserver.run([*command, "lives", moment], capture_output=True, text=True, check=False, timeout=600)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == ["b ['go', 'Once more.']"]


async def test_middleware_around_a_tool_has_effects_of_its_own(tmp_path):
    """What it asks a model about a call, and what the tool asks, are two requests, each recorded; another tool cannot be called."""

    @tool
    async def think(about: str, ctx: Context) -> str:
        """Think."""
        return (await ctx.request(ModelRequest((Message.user(f"think {about}"),)))).message.text

    class Judge(Feature):
        async def around_tool(self, ctx, call, proceed):
            question = ModelRequest((Message.user(f"may {ctx.call.id}?"),))
            verdict = await ctx.request(question)
            return await proceed(call if verdict.message.text == "yes" else replace(call, name="send"))

    agent = Agent(
        single_run(), model=ScriptedModel([ToolCall("think", {"about": "x"}, "1"), "yes", "thought", "done"]),
        tools=[think, send], store=SqliteStore(tmp_path / "runs.db"),
    )  # fmt: skip
    agent.install(Judge)
    result = await agent.run("go", run_id="r")
    [step] = [step for step in result.memory.steps if isinstance(step, ActionStep) and step.tool_calls]
    assert (result.output, step.observations) == ("done", "thought")
    assert (await agent.rerun("r")).output == "done"
    agent = Agent(
        single_run(), model=ScriptedModel([ToolCall("think", {"about": "x"}, "1"), "no"]), tools=[think, send]
    )
    agent.install(Judge)
    with pytest.raises(NodeFailedError, match="around_tool calls 'send' in place of 'think'"):
        await agent.run("go")


class Shouting(Feature):
    """Changes what forks and subgraphs get, and nothing else."""

    async def around_node(self, ctx, value, proceed):
        if ctx.node.rpartition("/")[2] in ("parallel", "each", "race", "inner"):
            value = [each.upper() for each in value] if isinstance(value, list) else value.upper()
        return await proceed(value)


@pytest.mark.parametrize("stored", [False, True])
async def test_what_a_fork_or_a_subgraph_gets_may_be_changed(stored):
    """Each branch gets what the middleware passed on: a value of its own in a run with a store, also after the run has waited."""

    @node
    async def one(ctx: Context, text: str) -> str:
        return f"one {text}"

    @node
    async def two(ctx: Context, text: str) -> str:
        return f"two {text}"

    @node
    async def words(ctx: Context, text: str) -> list[str]:
        return text.split()

    @node
    async def wait(ctx: Context, text: str) -> str:
        assert text == "A LONG" * 3000 or await ctx.ask("Right?", bool)
        return text

    def agent(path):
        made = Agent(Strategy("s", path), store=MemoryStore() if stored else None)
        made.install(Shouting)
        return made

    forks = (parallel(one, two), race(one), Strategy("inner", START >> one >> END), parallel(parallel(one, two), one))
    expected = (("one AB", "two AB"), "one AB", "one AB", (("one AB", "two AB"), "one AB"))
    for fork, outputs in zip(forks, expected, strict=True):
        assert (await agent(START >> fork >> END).run("ab")).output == outputs
    assert (await agent(START >> words >> each(parallel(one, two)) >> END).run("a b")).output == [
        ("one A", "two A"), ("one B", "two B"),
    ]  # fmt: skip
    assert (await agent(START >> race(wait) >> END).run("a long" * 3000)).output == "A LONG" * 3000
    if stored:
        asking = agent(START >> parallel(wait, one) >> END)
        assert (await asking.run("ab", run_id="r")).status == "waiting"
        assert (await asking.resume("r", answer=True)).output == ("AB", "one AB")
        assert await verify_runs(asking.store) == 1


async def test_forgetting_to_await_or_to_return_in_around_node_is_an_error_that_says_so():
    """A coroutine is no output, and None is none where the node declares another type; the feature is named."""

    class ForgotAwait(Feature):
        async def around_node(self, ctx, value, proceed):
            return proceed(value)

    class ForgotReturn(Feature):
        async def around_node(self, ctx, value, proceed):
            await proceed(value)

    @node
    async def shout(ctx: Context, text: str) -> str:
        return text.upper()

    @node
    async def find(ctx: Context, text: str) -> str | None:
        return text

    for feature, says in (
        (
            ForgotAwait,
            r"ForgotAwait\.around_node returned a coroutine and not the output; end it with: return await proceed",
        ),
        (ForgotReturn, r"around_node \(ForgotReturn\) returned None for node 'shout', which returns str; end it with"),
    ):
        agent = Agent(Strategy("s", START >> shout >> END))
        agent.install(feature)
        with pytest.raises(NodeFailedError, match=says) as caught:
            await agent.run("go")
        assert isinstance(caught.value.__cause__, FeatureError)
    agent = Agent(Strategy("s", START >> find >> END))
    agent.install(ForgotReturn)
    assert (await agent.run("go")).output is None


class CatchesAll(Feature):
    """Turns whatever is raised into something else, as a fallback does that somebody wrote too broadly."""

    def __init__(self, method: str) -> None:
        self.method = method

    def _handled(self, method: str, error: BaseException, value):
        if method != self.method:
            raise error
        return value

    async def around_model(self, ctx, request, proceed):
        try:
            return await proceed(request)
        except BaseException as error:
            return self._handled("model", error, ModelResponse(Message.assistant("caught")))

    async def around_tool(self, ctx, call, proceed):
        try:
            return await proceed(call)
        except BaseException as error:
            return self._handled("tool", error, ToolResult(call.id, call.name, "caught"))

    async def around_node(self, ctx, value, proceed):
        try:
            return await proceed(value)
        except BaseException as error:
            return self._handled("node", error, "caught")


@tool
async def ask(question: str, ctx: Context) -> str:
    """Ask a model, and then a person."""
    response = await ctx.request(ModelRequest((Message.user(question),)))
    return await ctx.ask(f"{response.message.text}?", id="sure")


@pytest.mark.parametrize("method", ["model", "tool", "node"])
async def test_middleware_that_catches_everything_undoes_neither_a_limit_nor_the_end_of_a_run(method):
    """Used-up budgets, errors of event handlers, a script's end and suspensions pass through it; the run can be resumed."""
    asks = ToolCall("ask", {"question": "Really"}, "1")

    def agent(*replies, store=None, **limits) -> Agent:
        made = Agent(single_run(), model=ScriptedModel(list(replies)), tools=[ask], store=store, **limits)
        made.install(CatchesAll, method)
        return made

    with pytest.raises(BudgetError):
        await agent(asks, "inner", "done", max_tokens=1).run("go")
    with pytest.raises(NodeFailedError) as caught:
        await agent(asks).run("go")
    assert isinstance(caught.value.__cause__, ScriptError)

    def fails(event: object) -> None:
        raise RuntimeError("a broken listener")

    for event in (ModelRequested, ToolCalled) if method != "model" else (ModelRequested,):
        listening = agent(asks, "inner", "done")
        listening.on(event, fails)
        with pytest.raises(HandlerError):
            await listening.run("go")

    store = MemoryStore()
    asking = agent(asks, "inner", "done", store=store)
    assert (await asking.run("go", run_id="r")).status == "waiting"
    result = await asking.resume("r", answer="yes")
    assert (result.output, [each.content for each in result.memory.steps[1].results]) == ("done", ["yes"])


async def test_middleware_that_raises_something_else_for_a_used_up_budget_does_not_hide_it():
    """Neither does one that proceeds again."""

    class Renames(Feature):
        async def around_model(self, ctx, request, proceed):
            try:
                return await proceed(request)
            except BudgetError:
                try:
                    return await proceed(request)
                except BudgetError as error:
                    raise ToolError("no money") from error

    agent = Agent(single_run(), model=ScriptedModel(["one", "two"]), max_turns=1)
    agent.install(Renames)
    chat = await agent.run("go")
    assert chat.output == "one"
    two = llm_request(tools=False)
    agent = Agent(
        Strategy("two", START >> two >> two.named("second") >> END), model=ScriptedModel(["one", "two"]), max_turns=1
    )
    agent.install(Renames)
    with pytest.raises(BudgetError):
        await agent.run("go")


async def test_what_was_done_before_middleware_asks_a_person_is_not_done_again(tmp_path):
    """The person decides on the answer and on the result that pass on, and not on others that are made when the run is resumed."""
    sent: list[str] = []

    @tool
    async def order(what: str) -> str:
        """Order something."""
        sent.append(what)
        return f"order {len(sent)}"

    class Asks(Feature):
        async def around_model(self, ctx, request, proceed):
            response = await proceed(request)
            if response.message.text:
                await ctx.ask(f"Say {response.message.text!r}?", bool, id="say")
            return response

        async def around_tool(self, ctx, call, proceed):
            result = await proceed(call)
            await ctx.ask(f"Show {result.content!r}?", bool, id="show")
            return result

    model = ScriptedModel([ToolCall("order", {"what": "tea"}, "1"), "first", "second"])
    agent = Agent(single_run(), model=model, tools=[order], store=SqliteStore(tmp_path / "runs.db"))
    agent.install(Asks)
    asked: list[str] = []
    result = await agent.run("go", run_id="r")
    while result.status == "waiting":
        asked.append(result.pending.question)
        result = await agent.resume("r", answer=True)
    assert (asked, sent) == (["Show 'order 1'?", "Say 'first'?"], ["tea"])
    assert (result.output, result.turns, len(model.requests)) == ("first", 2, 2)
    again = await agent.rerun("r")
    assert (again.output, sent, len(model.requests)) == ("first", ["tea"], 2)


@pytest.mark.parametrize("refusal", [False, True])
async def test_a_tool_is_not_called_again_because_middleware_raised_after_it(tmp_path, refusal):
    """The run goes on with the result of the call; but what a refusal withholds is not stored."""
    sent: list[str] = []

    @tool
    async def order(what: str) -> str:
        """Order something."""
        sent.append(what)
        return "marzipan"

    class Breaks(Feature):
        async def around_tool(self, ctx, call, proceed):
            result = await proceed(call)
            if refusal:
                raise ToolError("not for you")
            if len(failures) == 0:
                failures.append(1)
                raise LookupError("a bug")
            return result

    failures: list[int] = []
    path = tmp_path / "runs.db"
    model = ScriptedModel([ToolCall("order", {"what": "tea"}, "1"), "done"])
    agent = Agent(single_run(), model=model, tools=[order], store=SqliteStore(path))
    agent.install(Breaks)
    if refusal:
        assert (await agent.run("go", run_id="r")).output == "done"
        assert b"marzipan" not in b"".join(file.read_bytes() for file in tmp_path.iterdir())
    else:
        with pytest.raises(NodeFailedError, match="LookupError"):
            await agent.run("go", run_id="r")
        assert (await agent.resume("r")).output == "done"
        assert model.requests[-1].messages[-1].text == "marzipan"
    assert sent == ["tea"]


async def test_middleware_around_a_run_is_there_for_each_stretch_and_its_context_variables_in_all_of_it(tmp_path):
    """Also for a sub-agent. A value that it keeps is found by another process; runs that differ in nothing else are the same."""
    name, seen = ContextVar("name", default=""), []

    class Around(Feature):
        async def around_run(self, ctx, proceed):
            seen.append(f"{ctx.agent} {ctx.thread} after {ctx.kept('Around')}")
            ctx.keep("Around", f"{ctx.agent} {(ctx.kept('Around') or '').count(' ')}")
            token = name.set(ctx.agent)
            try:
                await proceed()
            finally:
                name.reset(token)
                seen.append(f"{ctx.agent} left")

    @node
    async def look(ctx: Context, text: str) -> str:
        seen.append(f"in {name.get()}")
        return text

    inner = Agent(Strategy("part", START >> look >> ask_human("Go on?", str) >> END), name="inner")
    strategy = Strategy("whole", START >> parallel(look, inner.as_node()) >> END)

    def made():
        agent = Agent(strategy, store=SqliteStore(tmp_path / "runs.db"))
        agent.install(Around)
        return agent

    await made().run("go", run_id="r", thread="t")
    assert sorted(seen[1:-1]) == ["in inner", "in whole", "inner left", "inner t after None"]
    assert (seen.pop(0), seen.pop()) == ("whole t after None", "whole left")
    seen.clear()
    await made().resume("r", answer="yes")
    assert seen == [
        "whole t after whole 0", "inner t after inner 0", "inner left", "whole left"
    ]  # fmt: skip
    kept = [entry.value for entry in await made().history("r") if entry.kind == "kept"]
    assert kept == ["whole 0", "inner 0", "whole 1", "inner 1"]
    assert name.get() == ""


@pytest.mark.parametrize("times", [0, 2])
async def test_middleware_around_a_run_executes_it_once(times):
    """Whoever forgets to proceed, or proceeds twice, is told so."""

    class Wrong(Feature):
        async def around_run(self, ctx, proceed):
            for _ in range(times):
                await proceed()

    agent = Agent(Strategy("s", START >> llm_request() >> END), model=ScriptedModel(["x"]))
    agent.install(Wrong)
    with pytest.raises(FeatureError, match=rf"around_run \(Wrong\) executed the run {times} times"):
        await agent.run("go")


async def test_a_run_leaves_out_the_middleware_of_a_feature_that_is_idle():
    """It is asked at each beginning, and the others stay; the feature is there all the same."""
    seen = []

    class Idle(Seen):
        is_idle = True

        async def around_run(self, ctx, proceed):
            seen.append("idle: around the run")
            await proceed()

    agent = Agent(Strategy("s", START >> llm_request() >> END), model=ScriptedModel(["x", "y"]))
    idle = agent.install(Idle, seen, "idle")
    agent.install(Seen, seen)
    await agent.run("go")
    assert not [each for each in seen if each.startswith("idle")]
    assert [each for each in seen if each.startswith("seen")]
    idle.is_idle = False
    await agent.run("go")
    assert seen.count("idle: around the run") == 1
    assert "idle: asks go" in seen
