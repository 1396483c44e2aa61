"""Spans and metrics of runs: their attributes, and their places in the tree."""

from __future__ import annotations

import json
import sys
import textwrap

import anyio.lowlevel
import pytest
from opentelemetry import trace
from opentelemetry.exporter.otlp.json.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.json.common.trace_encoder import encode_spans
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from graphagent import END, START, Agent, Context, Strategy, node, parallel, tool
from graphagent._conventions import embedder_attributes
from graphagent.embed import CallableEmbedder
from graphagent.embed.openai import OpenAIEmbedder
from graphagent.errors import NodeFailedError
from graphagent.events import TextStreamed
from graphagent.llm import Message, ModelResponse, ToolCall, Usage
from graphagent.memory import NoteMemory, Notes
from graphagent.nodes import ask_human, llm_request
from graphagent.store import MemoryStore, SqliteStore
from graphagent.telemetry import OpenTelemetry
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run
from tests import forkserver

pytestmark = pytest.mark.every_loop


class Collected:
    """What an agent reports to an SDK of its own."""

    def __init__(self):
        self.exporter, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.meters = MeterProvider([self.reader])

    def install(self, agent, **options):
        agent.install(OpenTelemetry, tracer_provider=self.provider, meter_provider=self.meters, **options)
        return agent

    @property
    def spans(self):
        return sorted(self.exporter.get_finished_spans(), key=lambda span: (span.start_time, span.context.span_id))

    def __getitem__(self, name):
        [found] = [span for span in self.spans if span.name == name]
        return found

    def points(self):
        """Return the sums and counts of metrics, by their names."""
        found = {}
        data = self.reader.get_metrics_data()
        for resource in data.resource_metrics if data else ():
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    found[metric.name] = [
                        (dict(point.attributes), getattr(point, "count", None) or point.value)
                        for point in metric.data.data_points
                    ]
        return found


@pytest.fixture
def collected():
    return Collected()


def answer(text, **usage):
    return ModelResponse(Message.assistant(text), Usage(**usage), model="scripted-2")


async def test_a_run_is_a_tree_of_spans_by_the_conventions_without_content(collected):
    """Also the spans that a tool makes itself are inside, and nothing that was said is in any span; OTLP can carry all of it."""

    @tool
    async def search(query: str) -> str:
        """Search."""
        with collected.provider.get_tracer("own").start_as_current_span("own"):
            return f"found {query}"

    model = ScriptedModel(
        [
            ToolCall("search", {"query": "SWORDFISH"}, "c1"),
            answer("SWORDFISH", input_tokens=10, output_tokens=2**70, cached_tokens=4),
        ]
    )
    agent = collected.install(
        Agent(single_run(), model=model, tools=[search], name="helper", system_prompt="SWORDFISH")
    )
    await agent.run("SWORDFISH", run_id="r")
    assert [span.name for span in collected.spans] == [
        "invoke_agent helper", "chat scripted", "execute_tool search", "own", "chat scripted",
    ]  # fmt: skip
    root, _, called, own, chat = collected.spans
    assert own.parent.span_id == called.context.span_id
    assert dict(root.attributes) == {
        "gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "helper", "gen_ai.conversation.id": "r",
        "graphagent.run.id": "r", "graphagent.run.outcome": "done",
    }  # fmt: skip
    assert chat.kind is SpanKind.CLIENT
    assert chat.parent.span_id == root.context.span_id
    assert dict(chat.attributes) == {
        "gen_ai.operation.name": "chat", "gen_ai.provider.name": "ScriptedModel", "gen_ai.request.model": "scripted",
        "gen_ai.response.model": "scripted-2", "gen_ai.agent.name": "helper", "gen_ai.conversation.id": "r",
        "graphagent.node": "llm_request", "gen_ai.output.type": "text", "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 10, "gen_ai.usage.output_tokens": 2**63 - 1, "gen_ai.usage.cache_read.input_tokens": 4,
    }  # fmt: skip
    assert "SWORDFISH" not in "".join(span.to_json() for span in collected.spans)
    sent = json.dumps(encode_spans(collected.spans).to_dict())
    assert '"invoke_agent helper"' in sent
    encode_metrics(collected.reader.get_metrics_data())
    points = collected.points()
    assert points["gen_ai.invoke_agent.duration"] == [
        ({"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "helper"}, 1)
    ]
    assert [sum(count for _, count in points[f"gen_ai.{name}"]) for name in (
        "client.inference.duration", "execute_tool.duration", "client.inference.usage.input_tokens",
    )] == [2, 1, 12]  # fmt: skip


async def test_content_is_reported_where_it_is_asked_for_and_clipped(collected, monkeypatch):
    """The argument wins over the environment; the last messages are kept, and half a surrogate pair does not stop the export."""

    @tool
    async def search(query: str) -> str:
        """Search."""
        return query

    model = ScriptedModel([ToolCall("search", {"query": "x" * 100}, "c1"), "the answer \ud83d"])
    agent = collected.install(Agent(single_run(), model=model, tools=[search]), content=True, clip=40)
    await agent.run("an old question")
    chat = collected.spans[-1]
    assert json.loads(chat.attributes["gen_ai.output.messages"]) == [
        {"role": "assistant", "parts": [{"type": "text", "content": "the answer \\ud83d"}], "finish_reason": "stop"}
    ]
    told = json.loads(chat.attributes["gen_ai.input.messages"])
    assert [part["type"] for message in told for part in message["parts"]] == ["tool_call_response"]
    assert chat.attributes["graphagent.input.left_out"] == 2
    assert len(collected["execute_tool search"].attributes["gen_ai.tool.call.arguments"]) == 41
    encode_spans(collected.spans)
    for said, content, expected in (("true", None, True), ("span_only", None, True), ("no_content", None, False),
                                    ("true", False, False), ("", True, True), ("", None, False)):  # fmt: skip
        monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", said)
        assert OpenTelemetry(content=content).content is expected
    for wrong in ({"content": "yes"}, {"clip": 0}, {"clip": 1.5}):
        with pytest.raises((TypeError, ValueError), match=r"content|clip"):
            OpenTelemetry(**wrong)


async def test_a_failed_tool_and_a_failed_run_are_marked_with_types_and_no_messages(collected):
    """The type of a node's error is that of its cause; with content, the exception is there too."""

    @tool
    def book(place: str) -> str:
        """Book a place."""
        raise LookupError("SWORDFISH")

    @node
    async def broken(ctx: Context, text: str) -> str:
        raise ZeroDivisionError("SWORDFISH")

    async def fail(content):
        collected.exporter.clear()
        model = ScriptedModel([ToolCall("book", {"place": "Rome"}, "c1"), "sorry"])
        inner = single_run()
        agent = Agent(Strategy("s", START >> inner >> broken >> END), model=model, tools=[book])
        collected.install(agent, content=content)
        with pytest.raises(NodeFailedError):
            await agent.run("go")
        return collected["execute_tool book"], collected["invoke_agent s"]

    for span, error in zip(await fail(content=False), ("LookupError", "ZeroDivisionError"), strict=True):
        assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, None)
        assert span.attributes["error.type"] == error
        assert not span.events
    assert collected["invoke_agent s"].attributes["graphagent.run.outcome"] == "failed"
    for span in await fail(content=True):
        assert span.status.description == "SWORDFISH"
        assert "SWORDFISH" in span.events[0].attributes["exception.stacktrace"]


async def test_threads_branches_and_sub_agents_are_inside_of_what_called_them(collected):
    """A plain function of a tool in its thread, a node in a branch, and an agent that is a tool or a node."""
    seen = {}

    def mark(name):
        seen[name] = trace.get_current_span().get_span_context().span_id

    @tool
    def look(query: str) -> str:
        """Look."""
        mark("thread")
        return query

    @node
    async def left(ctx: Context, text: str) -> str:
        await anyio.lowlevel.checkpoint()
        mark("branch")
        return text

    expert = Agent(
        single_run(), model=ScriptedModel([ToolCall("look", {"query": "x"}, "c2"), "known"]), tools=[look],
        name="expert", description="Knows.",
    )  # fmt: skip
    inner = Agent(Strategy("inner", START >> llm_request() >> END), model=ScriptedModel(["in"]), name="inner")
    model = ScriptedModel([ToolCall("expert", {"task": "t"}, "c1"), "done"])
    fork = parallel(left, left.named("right"), name="fork")

    @node
    async def join(ctx: Context, texts: tuple[str, str]) -> str:
        return texts[0]

    outer = Agent(
        Strategy("outer", START >> single_run() >> fork >> join >> inner.as_node() >> END), model=model, tools=[expert]
    )
    collected.install(outer)
    result = await outer.run("go", run_id="r")
    assert result.output == "in"
    ids = {span.context.span_id: span for span in collected.spans}
    assert {name: ids[id_].name for name, id_ in seen.items()} == {
        "thread": "execute_tool look", "branch": "invoke_agent outer"
    }  # fmt: skip
    chain, span = [], ids[seen["thread"]]
    while span is not None:
        chain.append(span.name)
        span = ids.get(span.parent.span_id) if span.parent else None
    assert chain == ["execute_tool look", "invoke_agent expert", "execute_tool expert", "invoke_agent outer"]
    assert ids[collected["invoke_agent inner"].parent.span_id].name == "invoke_agent outer"
    assert {span.attributes["gen_ai.conversation.id"] for span in collected.spans} == {"r"}
    assert trace.get_current_span() is trace.INVALID_SPAN


async def test_a_resumed_run_is_linked_to_its_earlier_span_and_reports_nothing_twice(collected, tmp_path):
    """In another process as well: the place of the span is kept with the run; so is that of a sub-agent which waited."""
    store = SqliteStore(tmp_path / "runs.db")

    def made():
        inner = Agent(
            Strategy("inner", START >> llm_request() >> ask_human("Go on?", str) >> END),
            model=ScriptedModel(["one"]),
            name="inner",
        )
        return collected.install(Agent(Strategy("outer", START >> inner.as_node() >> END), store=store))

    await made().run("go", run_id="r", owner="ada", thread="t")
    first = {span.name: span for span in collected.spans}
    assert [span.attributes["graphagent.run.outcome"] for span in (first["invoke_workflow outer"], first["invoke_agent inner"])] == [
        "suspended", "suspended",
    ]  # fmt: skip
    assert {span.status.status_code for span in collected.spans} == {StatusCode.UNSET}
    collected.exporter.clear()
    await made().resume("r", answer="yes", owner="ada")
    again = {span.name: span for span in collected.spans}
    assert again.keys() == {"invoke_workflow outer", "invoke_agent inner"}  # the model is not asked again
    for name, span in again.items():
        assert span.links[0].context.span_id == first[name].context.span_id
        assert span.attributes["gen_ai.conversation.id"] == "t"
    assert again["invoke_workflow outer"].context.trace_id != first["invoke_workflow outer"].context.trace_id
    entries = [entry for entry in await made().history("r", owner="ada") if entry.kind == "kept"]
    assert [entry.key for entry in entries] == ["OpenTelemetry"] * 4
    assert set(entries[0].value) == {"traceparent"}


async def test_no_span_is_current_where_the_events_or_steps_of_a_run_are_read(collected, caplog):
    """Whoever leaves the loop early or steps through a run sees no span of it, and nothing is detached elsewhere."""
    agent = collected.install(
        Agent(Strategy("s", START >> llm_request() >> END), model=ScriptedModel(["a b c", "d", "e f"]))
    )
    async for event in agent.stream("go"):
        assert trace.get_current_span() is trace.INVALID_SPAN
        if isinstance(event, TextStreamed):
            break
    run = agent.start("go")
    while await run.step() is not None:
        assert trace.get_current_span() is trace.INVALID_SPAN
    assert run.done
    await agent.run("go")
    assert trace.get_current_span() is trace.INVALID_SPAN
    assert not caplog.records


async def test_what_memory_does_is_reported_once_inside_of_the_run(collected):
    """Although the agent inside has the feature too, and hears of the events as the one around it does."""
    notes = Notes(MemoryStore())
    await notes.remember("Ada likes tea.")

    def with_notes(agent):
        agent.install(NoteMemory, notes=notes)
        return collected.install(agent, content=True)

    inner = with_notes(
        Agent(Strategy("inner", START >> llm_request() >> END), model=ScriptedModel(["x"]), name="inner")
    )
    outer = with_notes(Agent(Strategy("outer", START >> inner.as_node() >> END)))
    await outer.run("What does Ada like?")
    span = collected["search_memory"]
    assert span.attributes["gen_ai.memory.record.count"] == 1
    assert span.attributes["gen_ai.memory.query.text"] == "What does Ada like?"
    assert json.loads(span.attributes["gen_ai.memory.records"])[0]["content"] == "Ada likes tea."
    assert span.attributes["gen_ai.agent.name"] == "inner"
    assert span.end_time > span.start_time


async def test_a_plan_is_around_its_request_and_embeddings_are_where_they_are_made(collected):
    """Spans that an embedder makes itself are inside of its span. Its failure has a type and no text, and outside of runs nothing is reported."""
    broken = False

    async def embed(texts):
        with collected.provider.get_tracer("own").start_as_current_span(
            "own", set_status_on_exception=False, record_exception=False
        ):
            if broken:
                raise OSError("SWORDFISH")
            return [[1.0, 2.0]] * len(texts)

    @node
    async def look(ctx: Context, text: str) -> str:
        return str(len(await notes.recall("SWORDFISH")))

    notes = Notes(MemoryStore(), embedder=CallableEmbedder(embed, name="two/2"))
    await notes.remember_many(["SWORDFISH", "tea"])
    model = ScriptedModel(["1. SWORDFISH", "done", "2."])
    asked = Strategy("s", START >> look >> llm_request() >> END)
    agent = collected.install(Agent(asked, model=model, name="helper", planning_interval=3))
    collected.exporter.clear()
    await agent.run("go", run_id="r")
    ids = {span.context.span_id: span.name for span in collected.spans}
    assert [(span.name, ids[span.parent.span_id]) for span in collected.spans[1:]] == [
        ("embeddings two/2", "invoke_agent helper"), ("own", "embeddings two/2"), ("plan helper", "invoke_agent helper"),
        ("chat scripted", "plan helper"), ("chat scripted", "invoke_agent helper"),
    ]  # fmt: skip
    whose = {"gen_ai.agent.name": "helper", "gen_ai.conversation.id": "r"}
    told = {
        "gen_ai.operation.name": "embeddings", "gen_ai.request.model": "two/2", "gen_ai.provider.name": "CallableEmbedder",
    }  # fmt: skip
    plan, embeddings = collected["plan helper"], collected["embeddings two/2"]
    assert dict(plan.attributes) == {"gen_ai.operation.name": "plan", "graphagent.node": "llm_request", **whose}
    assert dict(embeddings.attributes) == {
        **told, **whose, "graphagent.embeddings.texts": 1, "gen_ai.embeddings.dimension.count": 2
    }  # fmt: skip
    assert plan.kind is embeddings.kind is SpanKind.INTERNAL
    collected.exporter.clear()
    broken = True
    with pytest.raises(NodeFailedError):
        await agent.run("go")
    assert collected["embeddings two/2"].attributes["error.type"] == "OSError"
    assert collected.points()["gen_ai.client.embeddings.duration"] == [
        (told, 1),
        ({**told, "error.type": "OSError"}, 1),
    ]
    assert "SWORDFISH" not in "".join(span.to_json() for span in collected.spans)


def test_an_embedder_of_a_server_is_told_by_its_address():
    """Without the user and the password in it; the model is named as the server knows it."""
    asked = OpenAIEmbedder("m", base_url="https://ada:s3cret@api.mistral.ai/v1", api_key="k", dimensions=3)
    assert embedder_attributes(asked) == {
        "gen_ai.operation.name": "embeddings", "gen_ai.request.model": "m", "gen_ai.provider.name": "mistral_ai",
        "server.address": "api.mistral.ai", "server.port": 443,
    }  # fmt: skip


async def test_without_an_sdk_nothing_is_kept_or_reported():
    """The API alone: the log of the run is as without the feature."""
    agent = Agent(Strategy("s", START >> llm_request() >> END), model=ScriptedModel(["x"]), store=MemoryStore())
    agent.install(OpenTelemetry)
    assert (await agent.run("go", run_id="r")).output == "x"
    assert "kept" not in [entry.kind for entry in await agent.history("r")]


async def test_a_rerun_and_a_fork_report_nothing_that_was_done_before(collected):
    """Runs do not differ by the places of their spans. A fork is linked to the run that it continues."""
    model = ScriptedModel(["one", "two", "three"])
    two = Strategy(
        "s", START >> llm_request(tools=False, name="first") >> llm_request(tools=False, name="second") >> END
    )
    agent = collected.install(Agent(two, model=model, store=MemoryStore()))
    await agent.run("go", run_id="r")
    first = collected["invoke_agent s"]
    collected.exporter.clear()
    rerun = await agent.rerun("r")
    assert [span.name for span in collected.spans] == ["invoke_agent s"]
    assert (await agent.diff("r", rerun.run_id)).only_b == ()
    collected.exporter.clear()
    await agent.fork("r", after="first")
    assert [span.name for span in collected.spans] == ["invoke_agent s", "chat scripted"]
    assert collected["invoke_agent s"].links[0].context.span_id == first.context.span_id


async def test_a_tool_that_waits_is_reported_as_suspended_and_then_once_more(collected):
    """Its duration is measured when it has a result; it waits for nobody in between."""

    @tool
    async def confirm(ctx: Context, what: str) -> str:
        """Confirm."""
        return await ctx.ask(f"{what}?", str)

    model = ScriptedModel([ToolCall("confirm", {"what": "Rome"}, "c1"), "done"])
    agent = collected.install(Agent(single_run(), model=model, tools=[confirm], store=MemoryStore()))
    await agent.run("go", run_id="r")
    await agent.resume("r", answer="yes")
    calls = [span for span in collected.spans if span.name == "execute_tool confirm"]
    assert [span.attributes.get("graphagent.tool.suspended") for span in calls] == [True, None]
    assert [span.status.status_code for span in calls] == [StatusCode.UNSET] * 2
    assert [count for _, count in collected.points()["gen_ai.execute_tool.duration"]] == [1]


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_the_spans_of_the_sdk_of_mcp_are_not_doubled_and_connections_belong_to_no_run(loop):
    """With the provider of the program, which the SDK of MCP reports to; it also tells the server where the call belongs."""
    program = textwrap.dedent(
        f"""
        import sys, anyio
        from opentelemetry import trace
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
        exporter = InMemorySpanExporter()
        trace.set_tracer_provider(TracerProvider())
        trace.get_tracer_provider().add_span_processor(SimpleSpanProcessor(exporter))
        from graphagent import Agent
        from graphagent.llm import ToolCall
        from graphagent.mcp import MCPServer
        from graphagent.telemetry import OpenTelemetry
        from graphagent.testing import ScriptedModel
        from graphagent_strategies import single_run

        async def main():
            server = MCPServer.stdio(*{forkserver.words(forkserver.HOME / "tests" / "mcp" / "server.py", "stdio")!r}, name="tests")
            agent = Agent(single_run(), model=ScriptedModel([ToolCall("add", {{"a": 1, "b": 2}}, "c"), "3"]), tools=[server])
            agent.install(OpenTelemetry)
            await agent.run("go")
            await server.aclose()

        anyio.run(main, backend={loop!r})
        spans = exporter.get_finished_spans()
        [root] = [each for each in spans if each.name.startswith("invoke_agent")]
        for each in sorted(spans, key=lambda each: each.start_time):
            print(each.name, "inside" if each.context.trace_id == root.context.trace_id else "outside")
        """
    )
    done = forkserver.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = done.stdout.splitlines()
    assert [line for line in told if line.endswith("inside")] == [
        "invoke_agent single_run inside", "MCP send tools/list inside", "chat scripted inside", "MCP send tools/call add inside",
        "chat scripted inside",
    ]  # fmt: skip
    assert [line for line in told if line.endswith("outside")] != []
