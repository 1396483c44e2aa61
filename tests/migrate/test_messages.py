"""Histories of LangChain 1.x (langchain-core 1.8.3), pydantic-ai 2.68 and the OpenAI Agents SDK 0.24: real dumps of scripted runs, and wrong ones."""

from __future__ import annotations

import json
import logging
import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from graphagent.llm import Image, Message, Reasoning, Text, ToolCall, ToolResult, Usage
from graphagent.memory import ActionStep, MessageStep, TaskStep
from graphagent.migrate import langchain, openai_agents, pydantic_ai
from graphagent.store import EncryptedStore, Put, SqliteStore, new_key

DATA = Path(__file__).parent / "data"
LANGCHAIN, PYDANTIC_AI, ITEMS = (
    json.loads((DATA / f"{name}.json").read_text("utf-8")) for name in ("langchain", "pydantic_ai", "openai_agents")
)
QUESTION = "How many people live in Oslo, Bergen and Atlantis?"


def milliseconds(text):
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def outcomes(step):
    """Return the results of a turn, in the order of its calls."""
    return [(result.call_id, result.name, result.content, result.is_error) for result in step.results]


@pytest.fixture
def warned(caplog):
    """Return what was logged as left out."""
    caplog.set_level(logging.WARNING, "graphagent")
    return lambda: [record.getMessage().partition(" messages: ")[2] for record in caplog.records]


@pytest.fixture
def sessions(tmp_path):
    """Return the path of a file as SQLiteSession writes it."""
    path = tmp_path / "conversations.db"
    connection = sqlite3.connect(path)
    connection.executescript((DATA / "openai_agents.sql").read_text("utf-8"))
    connection.close()
    return path


# ---- real dumps


@pytest.mark.parametrize("form", ["messages_to_dict", "dumpd", "model_dump", "objects", "json"])
def test_messages_of_langchain_are_read(form, warned):
    """In each form in which it hands them out: reasoning, parallel calls, a failed one, tokens, images; audio is named."""
    dump = LANGCHAIN.get(form, LANGCHAIN["model_dump"])
    if form == "objects":
        dump = [SimpleNamespace(model_dump=lambda each=each: each) for each in dump]
    memory = langchain.load_messages(json.dumps(dump) if form == "json" else dump)
    assert memory.system_prompt.system_prompt == "The user is called Ada."
    task, turn, answer, second, last = memory.steps
    assert task == TaskStep(QUESTION)
    assert turn.model_output_message == Message(
        "assistant",
        (
            Reasoning("Two cities, and one that may not exist."), Text("Let me look."),
            *(ToolCall("population", {"city": city}, f"call_{place}") for place, city in enumerate(("Oslo", "Bergen", "Atlantis"), 1)),
        ),
    )  # fmt: skip
    assert outcomes(turn) == [
        ("call_1", "population", "717710", False), ("call_2", "population", "291940", False),
        ("call_3", "population", "Error: there is no such city", True),
    ]  # fmt: skip
    assert turn.token_usage == Usage(40, 20, 8, 6)
    assert (answer.model_output, last.model_output, last.step_number) == (
        "Oslo has 717,710 people, Bergen 291,940; Atlantis is not a city.", "A single green pixel.", 3,
    )  # fmt: skip
    [text, pixel, link, audio] = second.task.parts
    assert (text.text, pixel.media_type, len(pixel.data), link.url) == (
        "What is this?", "image/png", 68, "https://example.com/a.png",
    )  # fmt: skip
    assert audio == Text("[audio: not imported]")
    assert warned() == ["audio (7)"]
    assert {step.at for step in memory.steps if isinstance(step, TaskStep)} == {None}
    assert turn.timing is None


def test_a_history_of_pydantic_ai_is_read(warned):
    """With the times of its parts; images in its own alphabet of base64; failed and repeated calls; documents are named."""
    dump = PYDANTIC_AI["conversation"]
    memory = pydantic_ai.load_messages(dump)
    assert memory.system_prompt.system_prompt == "Be brief.\n\nThe user is called Ada."
    task, turn, photo, _, second, last = memory.steps
    assert task == TaskStep(QUESTION, at=milliseconds(dump[0]["parts"][1]["timestamp"]))
    assert turn.model_output_message.reasoning == "Three cities."
    assert [call.arguments for call in turn.tool_calls] == [
        {"city": city} for city in ("Oslo", "Bergen", "Atlantis")
    ] + [{}]
    assert outcomes(turn) == [
        ("c1", "population", "717710", False), ("c2", "population", "291940", False),
        ("c3", "population", "there is no such city", True), ("c4", "fail", "the register is closed", True),
    ]  # fmt: skip
    assert turn.token_usage == Usage(62, 24)
    assert (turn.timing.started, turn.timing.ended) == (task.at, milliseconds(dump[1]["timestamp"]))
    assert (photo.results[0].content, len(photo.results[0].images[0].data)) == ("a map", 68)
    assert second.at == milliseconds(dump[6]["parts"][0]["timestamp"])
    text, pixel, link, document = second.task.parts
    assert (text.text, len(pixel.data), link.url) == ("What is this?", 68, "https://example.com/a.png")
    assert document == Text("[document-url: not imported]")
    assert last.model_output == "A single green pixel."
    assert warned() == ["document-url (6)"]


def test_a_structured_answer_of_pydantic_ai_is_read():
    """The call that gives it, and what the model was told when it did not fit."""
    memory = pydantic_ai.load_messages(json.dumps(PYDANTIC_AI["structured"]).encode())
    task, wrong, text, told, right = memory.steps
    assert task.task == "The capital of Norway?"
    assert [result.is_error for result in (*wrong.results, *right.results)] == [True, False]
    assert "Field required" in wrong.results[0].content
    assert text.model_output == "no"
    assert isinstance(told, MessageStep)
    assert "Invalid JSON" in told.message.text
    assert right.tool_calls[0].arguments == {"name": "Oslo", "people": 717710}


def test_sessions_of_openai_agents_are_read(sessions, warned):
    """All of a file, with their times, which are in UTC; the items of one answer are one turn, with what its server wants back."""
    before = sessions.read_bytes()
    found = openai_agents.load_sessions(sessions)
    assert list(found) == ["ada", "bob"]
    task, turn, answer, second, last = found["ada"].steps
    when = milliseconds("2026-11-28T16:25:53+00:00")
    assert task == TaskStep(QUESTION, at=when)
    assert (turn.timing.started, turn.timing.ended, second.at - when) == (when, when, 1000)
    assert [type(part) for part in turn.model_output_message.parts] == [Reasoning, Text, ToolCall, ToolCall, ToolCall]
    assert turn.model_output_message.parts[0].provider.data["encrypted_content"] == "gAAA"
    assert outcomes(turn)[0] == ("c1", "population", "717710", False)
    assert len(turn.results) == 3
    assert (answer.model_output, last.model_output) == ("Oslo has 717,710 people.", "A single green pixel.")
    assert [type(part) for part in second.task.parts] == [Text, Image, Text]
    assert found["bob"].system_prompt.system_prompt == "Bob is a gardener."
    assert [message.text for message in found["bob"].to_messages()[1:]] == ["Hello.", "Hello, Bob."]
    assert warned() == ["input_file (10)"]
    assert sessions.read_bytes() == before

    memory = openai_agents.load_items(ITEMS["items"])
    assert memory == openai_agents.load_items(json.dumps(ITEMS["items"]))
    assert [step.model_output_message for step in memory.steps if isinstance(step, ActionStep)] == [
        step.model_output_message for step in (turn, answer, last)
    ]
    assert memory.steps[0].at is None
    assert memory.steps[1].timing is None


# ---- what else there is


def test_older_dumps_of_langchain_are_read():
    """Their messages have their type in the name of their class alone."""
    dump = [
        {**each, "kwargs": {name: value for name, value in each["kwargs"].items() if name != "type"}}
        for each in LANGCHAIN["dumpd"]
    ]
    assert langchain.load_messages(dump) == langchain.load_messages(LANGCHAIN["dumpd"])


def test_calls_and_results_of_langchain_that_do_not_match(warned):
    """Arguments that are not JSON are kept as they came; a result without its call, and a second one, are named and not invented."""
    broken, result, *_ = LANGCHAIN["other"]
    again = {"type": "tool", "data": {**result["data"], "content": "once more"}}
    memory = langchain.load_messages([result, broken, result, again])
    [turn] = memory.steps
    assert turn.tool_calls == (ToolCall("population", {}, "call_9", '{"city": '),)
    assert outcomes(turn) == [("call_9", "population", "ok", False)]
    assert warned() == ["a result without its call (0, 3)"]


def test_what_langchain_has_of_servers_and_older_releases(warned):
    """Blocks as servers send them, chunks, a role of its own, a function, a later system message; calls that no result came for."""

    def message(kind, content, **more):
        return {"type": kind, "data": {"content": content, **more}}

    call = {"name": "look", "args": {"n": 10**30}, "id": None}
    memory = langchain.load_messages(
        [
            message("human", ["a", {"type": "text", "text": "b"}, {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}]),
            message("AIMessageChunk", [
                {"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "redacted_thinking", "data": "x"},
                {"type": "reasoning", "summary": [{"type": "summary_text", "text": "short"}]}, {"type": "reasoning", "reasoning": ""},
                {"type": "tool_use", "id": "1", "name": "look", "input": {}}, {"type": "refusal", "refusal": "No."},
                {"type": "server_tool_call", "id": "s", "name": "web_search", "args": {}}, {"type": "image", "url": "https://example.com/b.png"},
            ], tool_calls=[call, call]),
            message("system", "Be kind."),
            message("chat", "I think so.", role="critic"),
            message("ai", "", additional_kwargs={"function_call": {"name": "old", "arguments": '{"a": 1}'}}),
            message("function", "42", name="old"),
        ]
    )  # fmt: skip
    said, turn, rules, critic, old = memory.steps
    assert [type(part) for part in said.task.parts] == [Text, Text, Image]
    parts = turn.model_output_message.parts
    assert [part.text for part in parts if not isinstance(part, ToolCall)] == [
        "hm", "[redacted_thinking: not imported]", "short", "No.", "[server_tool_call: not imported]", "[an image of the model: not imported]",
    ]  # fmt: skip
    assert [call.arguments["n"] for call in turn.tool_calls] == [10**30] * 2
    assert len(turn.call_ids) == 2
    assert [message.text for message in turn.to_messages()[1:]] == ["This call was not executed."] * 2
    assert (rules.message, critic.task) == (Message.system("Be kind."), "I think so.")
    assert outcomes(old) == [("old", "old", "42", False)]
    assert sorted(warned()[0].split("; ")) == [
        "a role of its own, instead of which it is the user's (3)", "an image of the model (1)", "reasoning without text (1)",
        "redacted_thinking (1)", "server_tool_call (1)",
    ]  # fmt: skip


def test_what_else_a_history_of_pydantic_ai_may_have(warned):
    """Tools of a provider, speech, summaries, older retries, later system prompts, and records that are no messages."""

    def part(kind, **fields):
        return {"part_kind": kind, **fields}

    returned = {"tool_name": "search", "tool_call_id": "n", "content": {"hits": [1]}}
    memory = pydantic_ai.load_messages(
        [
            {"kind": "request", "parts": [
                part("user-prompt", content=[{"kind": "text-content", "content": "a"}, {"kind": "binary", "data": "AAAA", "media_type": "audio/wav"}], timestamp="2026-01-31T12:00:00"),
                part("speech", speaker="user", transcript="Hello?"), part("instruction-delta", id="agent", content="x"),
            ], "instructions": "First."},
            {"kind": "response", "timestamp": "2026-01-31T11:59:00Z", "parts": [
                part("builtin-tool-call", tool_name="search", args=None, tool_call_id="n"), part("builtin-tool-return", **returned), part("text", content="Found."),
                part("thinking", content="", signature="s"), part("file", content={"kind": "binary", "data": "iVBORw0KGgo=", "media_type": "image/png"}),
                part("tool-call", tool_name="old", args="[1]", tool_call_id="o"), part("something-new", content="?"),
            ]},
            {"kind": "request", "parts": [
                part("retry-prompt", tool_name="old", tool_call_id="o", content="no"), part("retry-prompt", content="Again."), part("system-prompt", content="Later."),
                part("compaction", content="They met."), part("tool-return", tool_name="x", tool_call_id="gone", content=1),
            ], "instructions": "Second."},
        ]
    )  # fmt: skip
    assert memory.system_prompt.system_prompt == "Second."
    said, spoken, turn, again, later, summary = memory.steps
    assert said.at == milliseconds("2026-01-31T12:00:00+00:00")
    assert (said.task.text, spoken.task) == ("a[audio/wav: not imported]", "Hello?")
    assert turn.tool_calls[1].malformed == "[1]"
    assert outcomes(turn) == [("n", "search", '{"hits": [1]}', False), ("o", "old", "no", True)]
    assert turn.model_output == "Found.[an image of the model: not imported][something-new: not imported]"
    assert turn.timing.duration == 0
    assert [step.message.text for step in (again, later, summary)] == ["Again.", "Later.", "They met."]
    assert sorted(warned()[0].split("; ")) == [
        "a result without its call (2)", "an image of the model (1)", "audio/wav (0)", "instruction-delta (0)",
        "reasoning without text (1)", "something-new (1)",
    ]  # fmt: skip


def test_items_of_openai_agents_of_other_servers(warned):
    """Ids that an adapter invented are not sent to servers of OpenAI; a tool that those execute is returned to them and named."""
    memory = openai_agents.load_items(
        [
            {"role": "user", "content": "a"},
            {"id": "__fake_id__", "type": "message", "role": "assistant", "status": "completed", "content": [{"type": "output_text", "text": "b"}]},
            {"id": "ws", "type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "q"}},
            {"id": "m2", "type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "c"}]},
            {"type": "custom_tool_call", "name": "patch", "input": "x = 1", "call_id": "p"},
            {"type": "custom_tool_call_output", "call_id": "p", "output": [{"type": "input_text", "text": "done"}, {"type": "input_image", "image_url": "https://example.com/a.png"}]},
            {"type": "item_reference", "id": "m9"},
            {"type": "function_call_output", "call_id": "gone", "output": "?"},
            {"role": "developer", "content": "d"},
        ]
    )  # fmt: skip
    _, first, second, rules = memory.steps
    text, search = first.model_output_message.parts
    assert (text, search.provider.data["type"]) == (Text("b"), "web_search_call")
    assert second.model_output == "c"
    assert second.tool_calls == (ToolCall("patch", {"input": "x = 1"}, "p"),)
    assert second.results == (ToolResult("p", "patch", "done", images=(Image(url="https://example.com/a.png"),)),)
    assert rules.message == Message.system("d")
    assert warned() == ["web_search_call (2); item_reference (6); a result without its call (7)"]


# ---- what is no such dump


def answer(**fields):
    """Make an answer of a model as LangChain dumps it."""
    return {"type": "ai", "data": {"content": "Hello.", **fields}}


WRONG = [
    (langchain.load_messages, '[{"type": "human", "da', "all of its JSON; give messages_to_dict"),
    (langchain.load_messages, {"messages": []}, r"get_state\(config\)\.values\['messages'\]"),
    (langchain.load_messages, Path("dump.json"), "of a file, give path.read_bytes()"),
    (pydantic_ai.load_messages, "dump.json", "of a file, give path.read_bytes()"),
    (langchain.load_messages, b"\xff", "not a list of messages"),
    (langchain.load_messages, "[" * 100_000, "not a list of messages"),
    (langchain.load_messages, [5], "message 0 is not a message of LangChain: it is an int"),
    (langchain.load_messages, [LANGCHAIN["other"][1], {"role": "user", "content": "secret"}], "message 1 .*no type and content"),
    (langchain.load_messages, [{"lc": 1, "type": "not_implemented", "id": ["a"], "repr": "secret"}], "message 0 .*no type and content"),
    (langchain.load_messages, [{"type": "remove", "content": "", "id": "m"}], "its type is not human, ai"),
    (langchain.load_messages, [{"type": "human", "content": 5}], "its content is neither text nor a list"),
    (langchain.load_messages, [{"type": "human", "content": [{"text": "secret"}]}], r"a field.*|is not valid \(KeyError\)"),
    (langchain.load_messages, [{"type": "ai", "content": "", "tool_calls": [{"args": {}}]}], "a tool call has no name"),
    (langchain.load_messages, PYDANTIC_AI["conversation"], "message 0 .*no type and content"),
    (pydantic_ai.load_messages, LANGCHAIN["dumpd"], "neither a request nor a response"),
    (pydantic_ai.load_messages, [{"kind": "request", "parts": [{"part_kind": "user-prompt", "content": {}}]}], "neither text"),
    (pydantic_ai.load_messages, [{"kind": "request", "parts": [], "timestamp": "soon"}], "its time is not valid"),
    (pydantic_ai.load_messages, [{"kind": "response", "parts": ["secret"]}], r"is not valid \(TypeError\)"),
    (langchain.load_messages, [answer(usage_metadata={"input_tokens": 1, "output_token_details": {"reasoning": "secret"}})], "tokens is not valid"),
    (langchain.load_messages, [answer(usage_metadata={"input_tokens": 10**30})], "tokens is not valid"),
    (pydantic_ai.load_messages, [{"kind": "response", "parts": [], "usage": {"output_tokens": -1}}], "tokens is not valid"),
    (pydantic_ai.load_messages, [{"kind": "request", "parts": [{"part_kind": "tool-return", "content": "1", "tool_call_id": "a", "tool_name": ["secret"]}]}], "name of a result"),
    (openai_agents.load_items, [*LANGCHAIN["messages_to_dict"][:1], {}], "message 1 .*no type, and no role"),
    (openai_agents.load_items, [{"role": "critic", "content": "secret"}], "no role of a message"),
    (openai_agents.load_items, [{"__enc__": 1, "v": 1, "kid": "k", "payload": "secret"}], "it is encrypted"),
]  # fmt: skip


@pytest.mark.parametrize(("load", "dump", "said"), WRONG)
def test_what_is_no_dump_is_refused_without_its_values(load, dump, said):
    """The message is named by its number; none of its values is in the error, nor in what that came of."""
    with pytest.raises(ValueError, match=said) as caught:
        load(dump)
    error = caught.value
    while error is not None:
        assert "secret" not in str(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def test_files_that_are_no_sessions_are_refused(sessions, tmp_path):
    """One that is missing, cut off, of something else, sealed, or with another table, which can be named."""
    with pytest.raises(FileNotFoundError, match="no file of sessions"):
        openai_agents.load_sessions(tmp_path / "missing.db")
    cut = tmp_path / "cut.db"
    cut.write_bytes(sessions.read_bytes()[:5000])
    (tmp_path / "text.db").write_text("not a database, " * 100)
    for path in (cut, tmp_path / "text.db"):
        with pytest.raises(ValueError, match=r"is not a file of SQLiteSession that can be read: (Corrupt|NotADB)"):
            openai_agents.load_sessions(path)
    with pytest.raises(ValueError, match=r"no table 'items', but .*'agent_messages'"):
        openai_agents.load_sessions(sessions, messages_table="items")
    with pytest.raises(ValueError, match="':memory:' is not a path"):
        openai_agents.load_sessions(":memory:")
    for place, data in enumerate(["{", "[1]", '{"role": "user"}']):
        path = tmp_path / f"{place}.db"
        connection = sqlite3.connect(path)
        connection.execute("CREATE TABLE odd (id INTEGER, session_id TEXT, message_data TEXT, created_at TEXT)")
        connection.execute("INSERT INTO odd VALUES (1, 'a', ?, '2026-01-31 12:00:00')", (data,))
        connection.commit()
        connection.close()
        with pytest.raises(ValueError, match="session 'a': message 0 is not a message of the OpenAI Agents SDK"):
            openai_agents.load_sessions(path, messages_table="odd")


async def test_a_store_of_ours_is_no_file_of_sessions(tmp_path):
    """Neither a plain nor a sealed one."""
    for name, seal in (("plain.db", None), ("sealed.db", new_key())):
        plain = SqliteStore(tmp_path / name)
        store = plain if seal is None else EncryptedStore(plain, key=seal)
        await store.commit(Put(("a",), b"v"))
        await store.aclose()
        with pytest.raises(ValueError, match="it has no table 'agent_messages'"):
            openai_agents.load_sessions(tmp_path / name)


def test_times_without_a_zone_are_in_utc(sessions):
    """As SQLite writes them, whatever the zone of the machine."""
    [first, *_] = openai_agents.load_sessions(sessions)["ada"].steps
    assert datetime.fromtimestamp(first.at / 1000, UTC).isoformat() == "2026-11-28T16:25:53+00:00"
