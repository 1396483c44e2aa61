"""Draws the pictures of the pages *How it works*, *Memory server* and *Telemetry* from a strategy, runs, a prompt and calls that it makes.

`python -m scripts.drawings` writes them to `docs/pictures/`. A test fails where a picture shows something else than what happens.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
from mcp import Client
from mcp_types import Implementation
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from graphagent import END, START, Agent, Strategy, tool
from graphagent.llm import Message, ToolCall, ToolCalls
from graphagent.memory import AgentMemory, Concept, Scope, SingleFact, Source, StoreMemoryProvider, Subject
from graphagent.memory_server import MemoryServer
from graphagent.nodes import execute_tools, llm_request, load_facts
from graphagent.store import MemoryStore
from graphagent.telemetry import OpenTelemetry
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run

if TYPE_CHECKING:
    from graphagent.history import Entry

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"
WIDTH = 660
_LINE, _PAD, _LETTER = 18, 12, 7.25
_STYLE = """
.d{font:13px ui-sans-serif,system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
.d text{fill:#1d2433;white-space:pre}
.d .code{font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono","Liberation Mono",monospace}
.d .head{font-weight:600}
.d .small{font-size:12px;fill:#5b6577}
.d .number{font-weight:600;fill:#1f7a6c}
.d .box{fill:#fff;stroke:#8993a5;stroke-width:1.2}
.d .store{fill:#eef6f4;stroke:#5d9b90;stroke-width:1.2}
.d .gone{fill:#fbf0ef;stroke:#c2453d;stroke-width:1.2;stroke-dasharray:5 4}
.d .line{fill:none;stroke:#7a8496;stroke-width:1.4}
.d .tip{fill:#7a8496}
@media (prefers-color-scheme:dark){
.d text{fill:#e6e9ef}
.d .small{fill:#a9b3c3}
.d .number{fill:#5cc2b1}
.d .box{fill:#222938;stroke:#6d7890}
.d .store{fill:#1c302e;stroke:#5d9b90}
.d .gone{fill:#34211f;stroke:#ee7d74}
}
"""


# Drawing


@dataclass
class Canvas:
    """Boxes, lines of text and arrows, which become a stand-alone SVG picture."""

    title: str
    height: float = 0.0
    parts: list[str] = field(default_factory=list)

    def text(self, x: float, y: float, text: str, look: str = "") -> None:
        """Draw a line of text that begins at a place."""
        self.parts.append(f'<text x="{x:g}" y="{y:g}" class="{look}">{escape(text, quote=False)}</text>')

    def box(self, x: float, y: float, width: float, title: str, lines: list[str], look: str = "box") -> float:
        """Draw a box of a title and lines of code, and return where it ends."""
        height = _LINE * (len(lines) + bool(title)) + 2 * _PAD - 2
        self.parts.append(f'<rect class="{look}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="7"/>')
        if title:
            self.text(x + _PAD, y + _PAD + 11, title, "head")
        for at, line in enumerate(lines, bool(title)):
            self.text(x + _PAD, y + _PAD + 11 + _LINE * at, line, "code")
        self.height = max(self.height, y + height)
        return y + height

    def arrow(self, x: float, y: float, to_x: float, to_y: float) -> None:
        """Draw an upright or level arrow."""
        if x == to_x:
            back = 8 if to_y < y else -8
            tip, to_y = f"M{to_x:g} {to_y:g}l-4 {back}h8z", to_y + back
        else:
            tip, to_x = f"M{to_x:g} {to_y:g}l-8 -4v8z", to_x - 8
        self.parts.append(f'<path class="line" d="M{x:g} {y:g}L{to_x:g} {to_y:g}"/><path class="tip" d="{tip}"/>')

    def svg(self) -> str:
        """Return the picture."""
        height = self.height + 2
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="d" role="img" width="{WIDTH}" height="{height:g}" '
            f'viewBox="0 0 {WIDTH} {height:g}"><title>{escape(self.title)}</title><style>{_STYLE}</style>\n'
            + "\n".join(self.parts)
            + "\n</svg>\n"
        )


def _lines(pieces: list[str], width: float) -> list[str]:
    """Fill lines of code with pieces of text, as many as fit into a box of this width."""
    lines = [""]
    for piece in pieces:
        if len(lines[-1] + piece.rstrip()) * _LETTER > width - 2 * _PAD:
            lines.append("")
        lines[-1] += piece
    return lines


# What is drawn


@tool
def pay(name: str, euros: int) -> str:
    """Pay an invoice."""
    return f"paid {name}"


ask, act = llm_request(), execute_tools()
invoice = Strategy(
    "invoice",
    START >> ask,
    ask.on(ToolCalls) >> act >> ask,
    ask.on(str) >> END,
)
TASK = "Pay Ada 120 euros."
CODE = [
    "invoice = Strategy(",
    '    "invoice",',
    "    START >> ask,",
    "    ask.on(ToolCalls) >> act >> ask,",
    "    ask.on(str) >> END,",
    ")",
]
EDGES = {
    ("", "llm_request"): "START >> ask",
    ("llm_request", "execute_tools"): "ask.on(ToolCalls) >> act",
    ("execute_tools", "llm_request"): "act >> ask",
    ("llm_request", ""): "ask.on(str) >> END",
}
"""The part of the code that says what comes after a node."""
INSIDE = {
    "effect started": "    the tool is called",
    "effect": "    the tool returned",
    "the turn has its results": "    all tools returned",
}
"""What a node does, by what its entry says."""
LANGUAGE = Concept("language", "what they program in")
USER = Subject("user", "the user")


async def log() -> list[Entry]:
    """Run the strategy and return the entries of its log."""
    replies = [ToolCall("pay", {"name": "Ada", "euros": 120}, id="a"), "Ada is paid."]
    agent = Agent(invoice, model=ScriptedModel(replies), tools=[pay], store=MemoryStore())
    await agent.run(TASK, run_id="ada-7")
    return await agent.history("ada-7")


async def prompt() -> tuple[list[str], list[Message]]:
    """Save a fact twice, and return its versions, oldest first, and what a model is sent of it."""
    provider = StoreMemoryProvider(MemoryStore())
    scope = Scope.agent("mentor")
    for value in ("Java", "Kotlin"):
        await provider.save(SingleFact(LANGUAGE, value), USER, scope)
    model = ScriptedModel(["Try Kotest."])
    mentor = Strategy("mentor", START >> load_facts(LANGUAGE, subjects=[USER]) >> llm_request() >> END)
    agent = Agent(mentor, model=model)
    agent.install(AgentMemory, provider=provider)
    await agent.run("Which test library?")
    versions = [fact.values[0] for fact in await provider.history(LANGUAGE, USER, scope)]
    return versions[::-1], model.requests[0].messages


def said(entry: Entry) -> tuple[str, str]:
    """Return what an entry says: what happened, and with what."""
    match entry.kind:
        case "started":
            return "run started", TASK
        case "effect" if entry.key.startswith("model"):
            return "effect: model turn", shown(entry.value)
        case "effect":
            return f"effect: tool call {entry.key.removeprefix('call:')}", shown(entry.value)
        case "effect started":
            return f"effect started: tool call {entry.key.removeprefix('call:')}", ""
        case "results":
            return "the turn has its results", ""
        case "finished":
            return "node ended", f"next is {entry.next or 'END'}"
        case "stopped":
            return "run stopped: done", shown(entry.value)
        case other:
            raise ValueError(f"no drawing says what {other!r} is")


def shown(value: object) -> str:
    """Show a value of an entry in a few letters."""
    message = getattr(value, "model_output_message", value)
    calls = getattr(message, "tool_calls", ())
    if calls:
        return ", ".join(f"{call.name}({', '.join(map(repr, call.arguments.values()))})" for call in calls)
    return repr(str(getattr(message, "text", None) or getattr(message, "content", message)))


# The pictures


def compiled() -> str:
    """Draw a strategy, its graph and what it is compiled into."""
    canvas = Canvas("A strategy, its graph, and its compiled nodes and edges")
    below = canvas.box(0, 1, 300, "The code", CODE)
    nodes, edges = _graph()
    canvas.text(340, 24, "Compiled nodes, each with its compiled edges", "head")
    y = 38.0
    for name in nodes:
        lines = [f"{on:<13} -> {target}" for source, on, target in edges if source == name]
        y = canvas.box(340, y, WIDTH - 341, name, lines, "store") + 12
    graph = re.sub(r"^<svg ", f'<svg x="30" y="{below + 34:g}" ', invoice.to_svg())
    canvas.arrow(150, below, 150, below + 30)
    canvas.text(162, below + 20, "drawn by to_svg()", "small")
    canvas.parts.append(graph.strip())
    height = re.search(r'height="([\d.]+)"', graph)
    assert height
    canvas.height = max(canvas.height, below + 34 + float(height[1]))
    canvas.arrow(300, 70, 336, 70)
    return canvas.svg()


def _graph() -> tuple[list[str], list[tuple[str, str, str]]]:
    """Return the names of the nodes, and the edges as source, condition and target."""
    text = invoice.to_mermaid()
    names = dict(re.findall(r"^    (\w+)[(\[]+\"(\w+)\"", text, re.MULTILINE))
    edges = re.findall(r'^    (\w+) -->(?:\|"(?:on )?([^"]*)"\|)? (\w+)$', text, re.MULTILINE)
    return [name for name in names.values() if name != "END"], [
        (names[source], on or "always", names[target]) for source, on, target in edges
    ]


def entries(history: list[Entry]) -> str:
    """Draw the code that is executed beside the entries that it appends to the log."""
    canvas = Canvas("What is executed, and the entries that it appends to the log")
    canvas.text(0, 16, "What is executed", "head")
    canvas.text(270, 16, "Entries of the log, in their order", "head")
    y, before = 28.0, ""
    for entry in history:
        what, value = said(entry)
        code = INSIDE.get(what.split(":")[0]) or EDGES.get((before, entry.next), "END")
        if entry.kind in ("started", "finished"):
            before = entry.next
        code = "    the model is asked" if what == "effect: model turn" else code
        canvas.text(0, y + 25, code, "code")
        canvas.arrow(212, y + 20, 262, y + 20)
        _entry(canvas, 266, y, WIDTH - 267, entry, what, value)
        y += 48
    return canvas.svg()


def _entry(canvas: Canvas, x: float, y: float, width: float, entry: Entry, what: str, value: str) -> None:
    canvas.parts.append(f'<rect class="store" x="{x:g}" y="{y:g}" width="{width:g}" height="40" rx="7"/>')
    canvas.text(x + 12, y + 25, str(entry.number), "number")
    canvas.text(x + 34, y + 17, what, "small")
    canvas.text(x + 34, y + 33, ": ".join(filter(None, (entry.where, value))), "code")
    canvas.height = max(canvas.height, y + 40)


def resumed(history: list[Entry]) -> str:
    """Draw what is read of a run that was killed after its tool call, and where it continues."""
    kept, lost = history[:5], history[5]
    canvas = Canvas("What resume reads of a run that was killed, and how it continues")
    canvas.text(0, 16, "The log, as the process left it", "head")
    y = 28.0
    for entry in kept:
        what, value = said(entry)
        _entry(canvas, 1, y, 300, entry, what, value)
        y += 48
    canvas.parts.append(f'<rect class="gone" x="1" y="{y:g}" width="300" height="40" rx="7"/>')
    canvas.text(13, y + 25, f"kill -9 before entry {lost.number}", "small")
    canvas.height = max(canvas.height, y + 40)
    x = 352
    canvas.arrow(301, 120, 346, 120)
    canvas.text(x, 16, "The state that follows from them", "head")
    bottom = canvas.box(
        x, 28, WIDTH - x - 1, "",
        [
            f"frame       {lost.where}",
            f"  input     {shown(kept[1].value)}",
            f"  effects   {kept[4].key} = {shown(kept[4].value)}",
            f"  entered   with entry {kept[2].number}",
            "transcript  the task, the open turn",
            "spent       1 turn, its tokens",
        ],
    )  # fmt: skip
    canvas.arrow(x + 60, bottom, x + 60, bottom + 34)
    canvas.text(x + 72, bottom + 22, "continue in this frame", "small")
    canvas.box(
        x, bottom + 36, WIDTH - x - 1, "",
        [f"{lost.where} is executed again:", f"  {kept[4].key} is recorded,", "  so pay is not called", f"  then entry {lost.number}: {said(lost)[0]}"],
        "store",
    )  # fmt: skip
    return canvas.svg()


def remembered(versions: list[str], messages: list[Message]) -> str:
    """Draw how a fact gets from a provider into what a model is sent."""
    canvas = Canvas("How a fact gets from a provider into the prompt of a model")
    left, x = 306, 366
    right = WIDTH - x - 1
    canvas.text(1, 16, "What the agent does", "head")
    canvas.text(x, 16, "What the model is sent", "head")
    stored = [f"{LANGUAGE.keyword}, version {number}: {value}" for number, value in enumerate(versions, 1)]
    y = canvas.box(1, 28, left, "Provider", [f"subject {USER.name}, scope agent mentor", *stored], "store")
    canvas.arrow(150, y, 150, y + 32)
    canvas.text(162, y + 21, "load_facts(LANGUAGE)", "code")
    y = canvas.box(1, y + 34, left, "resolve: one pure function", [f"the last version counts: {versions[-1]}"])
    canvas.arrow(150, y, 150, y + 32)
    canvas.text(162, y + 21, "escaped as JSON", "small")
    fact = messages[0].text.splitlines()[-2]
    block = ["<facts>", *_lines(re.split(r'(?<=,)(?=")', fact), left), "</facts>"]
    bottom = canvas.box(1, y + 34, left, "Block of data", block)
    first, second = (message.text for message in messages)
    introduction = re.split(r"(?<= )", first.partition("<facts>")[0].strip())
    message = [*_lines(introduction, right), block[0], "  the fact", block[-1]]
    y = canvas.box(x, 28, right, f"Message 1, role {messages[0].role}", message)
    target = y - _PAD - 1.5 * _LINE
    canvas.parts.append(f'<path class="line" d="M{left + 1} {bottom - 40:g}H{(left + x) / 2:g}V{target:g}H{x - 8}"/>')
    canvas.parts.append(f'<path class="tip" d="M{x} {target:g}l-8 -4v8z"/>')
    canvas.box(x, y + 12, right, f"Message 2, role {messages[1].role}", [second])
    return canvas.svg()


async def served() -> str:
    """Draw what two clients of a memory server do, and what each gets."""
    provider = StoreMemoryProvider(MemoryStore())
    trusted = Source(origin="graphagent facts set", trust="trusted")
    await provider.save(SingleFact(Concept("city"), "Oslo", source=trusted), USER, Scope.agent("chat"))
    server = MemoryServer(facts=provider).mcp
    canvas = Canvas("Two clients of a memory server, and what each gets")
    canvas.text(1, 16, "Who does what", "head")
    canvas.text(304, 16, "What the memory has, and what the client gets", "head")
    y = _call(canvas, 28, "A person", ["graphagent facts set city Oslo"], ["version 1  Oslo, trusted"])
    async with (
        Client(server, client_info=Implementation(name="assistant", version="1")) as assistant,
        Client(server, client_info=Implementation(name="editor", version="1")) as editor,
    ):
        saved = await _structured(assistant, "remember_fact", keyword="city", value="Rome")
        found = ["version {version}  Rome, {trust}".format(**saved), *_lines(re.split(r"(?<= )", saved["hint"]), 350)]
        y = _call(
            canvas, y, "An assistant, which has read a page", ["remember_fact", '  keyword="city", value="Rome"'], found
        )
        known = (await _structured(editor, "facts", query="city"))["facts"]
        found = [f"{each['values'][0]}  {each['trust']}{', contradicted' * each['contradicted']}" for each in known]
        y = _call(canvas, y, "An editor", ['facts query="city"'], found)
        why = await _structured(editor, "explain", id=known[1]["id"])
        found = ["version {version}  {values[0]}, {origin}".format(**each) for each in why["fact_versions"]]
        _call(canvas, y, "An editor", ["explain id=fact:…"], found)
    return canvas.svg()


async def _structured(client: Client, tool: str, **arguments: object) -> dict[str, Any]:
    found = (await client.call_tool(tool, arguments)).structured_content
    assert found is not None
    return found


def _call(canvas: Canvas, y: float, who: str, code: list[str], found: list[str]) -> float:
    below = canvas.box(1, y, 260, who, code)
    canvas.arrow(261, y + 25, 299, y + 25)
    return max(below, canvas.box(303, y, WIDTH - 304, "", found, "store")) + 12


@tool
def look_up(booking: int) -> str:
    """Look a booking up."""
    return f"booking {booking}: paid by card"


@tool(approve=True)
def refund(booking: int) -> str:
    """Send money back."""
    return f"refunded booking {booking}"


async def traced() -> str:
    """Draw the spans of a run that waits for a person and is resumed elsewhere: those of each process in a box, and the link between them."""
    store, traces = MemoryStore(), list[list[ReadableSpan]]()
    for replies, answer in (
        ([[ToolCall("look_up", {"booking": 7})], [ToolCall("refund", {"booking": 7})]], None),
        (["It is refunded."], True),
    ):
        exporter, provider = InMemorySpanExporter(), TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        agent = Agent(single_run(), model=ScriptedModel(replies), tools=[look_up, refund], store=store, name="desk")
        agent.install(OpenTelemetry, tracer_provider=provider)
        await (
            agent.run("Refund booking 7", run_id="mail-7") if answer is None else agent.resume("mail-7", answer=answer)
        )
        traces.append(sorted(exporter.get_finished_spans(), key=lambda span: span.start_time or 0))
    canvas = Canvas("The spans of a run that waits for a person, and of another process that resumes it")
    first, second = traces
    end = canvas.box(1, 1, WIDTH - 2, 'agent.run("Refund booking 7")', [*map(_span, first)])
    canvas.box(1, end + 46, WIDTH - 2, 'agent.resume("mail-7", answer=True), in another process', [*map(_span, second)])
    (link,) = second[0].links
    assert first[0].context is not None
    assert link.context.span_id == first[0].context.span_id
    canvas.arrow(60, end + 46, 60, end)
    canvas.text(
        74, end + 28, "a link to the span before: the approval may take days, and no span is open meanwhile", "small"
    )
    return canvas.svg()


def _span(span: ReadableSpan) -> str:
    """Return the name of a span, and some of its attributes."""
    told = span.attributes or {}
    sent, said = told.get("gen_ai.usage.input_tokens"), told.get("gen_ai.usage.output_tokens")
    tokens = f"{sent} tokens in, {said} out" if sent is not None else ""
    name = f"{'  ' * bool(span.parent)}{span.name}"
    return f"{name:<32}{told.get('graphagent.run.outcome') or tokens or told.get('graphagent.node')}"


async def _pictures() -> dict[str, str]:
    history = await log()
    return {
        "compiled": compiled(),
        "entries": entries(history),
        "resumed": resumed(history),
        "remembered": remembered(*await prompt()),
        "memory_server": await served(),
        "spans": await traced(),
    }


def pictures() -> dict[str, str]:
    """Draw all pictures. Return them by their names."""
    return anyio.run(_pictures)


if __name__ == "__main__":
    for name, svg in pictures().items():
        (FOLDER / f"{name}.svg").write_text(svg, "utf-8")
