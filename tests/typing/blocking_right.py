"""What `blocking` gives, used as a script uses it: clean under mypy and pyright, both strict. Checked, never executed."""

# pyright: strict

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, assert_type

from graphagent import END, START, Agent, Context, RunResult, Strategy, blocking, node
from graphagent.blocking_types import (
    BlockingAgent,
    BlockingKeepingProvider,
    BlockingNotes,
    BlockingNoteView,
    BlockingRun,
    BlockingRunStream,
    BlockingTool,
)
from graphagent.events import Event, MemoryQueryCompleted
from graphagent.memory import (
    EVERYTHING,
    Concept,
    EncryptedMemoryProvider,
    Fact,
    FileMemoryProvider,
    Match,
    NoMemory,
    Notes,
    NoteView,
    Record,
    Scope,
    Step,
    StoreMemoryProvider,
)
from graphagent.run import list_runs
from graphagent.store import EncryptedStore, Item, MemoryStore, SqliteStore, new_key


@node
async def count(ctx: Context, text: str) -> int:
    return len(text)


@node
async def begin(ctx: Context, nothing: None) -> str:
    return ""


agent = Agent(Strategy("count", START >> count >> END))
starter = Agent(Strategy("begin", START >> begin >> END))


def summary(notes: BlockingNoteView) -> str:
    return "\n".join(match.record.content for match in notes.recall("summary", limit=3, depth="shallow"))


def of_notes() -> None:
    plain = blocking(Notes("plain.db"))
    assert_type(plain, BlockingNotes)
    assert_type(plain.remember("The office closes at six.", at=datetime.now(UTC)), Record)
    assert_type(plain.recall("When does the office close?"), list[Match])
    assert_type(plain.get("an id"), Record | None)
    assert_type(plain.scope("/office").subscope("hours"), BlockingNoteView)
    assert_type(blocking(Notes().scope("/office")), BlockingNoteView)
    assert_type(plain.scopes, tuple[str, ...])
    assert_type(plain.on(MemoryQueryCompleted, lambda event: print(event.results)), BlockingNotes)
    for data in plain.export():
        assert_type(data, dict[str, Any])
    with blocking(Notes()) as notes:
        assert_type(notes, BlockingNotes)
        assert_type(summary(notes), str)
        assert_type(summary(notes.slice(["/a", "/b"])), str)
    plain.aclose()


def either(notes: Notes | NoteView) -> BlockingNoteView:
    return blocking(notes)


def of_agents() -> None:
    plain = blocking(agent)
    assert_type(plain, BlockingAgent[str, int])
    assert_type(plain.run("hi"), RunResult[int])
    assert_type(plain.run("hi").output, int)
    assert_type(plain.resume("first", answer=True).output, int)
    assert_type(blocking(starter).run().output, str)
    assert_type(plain.as_tool(), BlockingTool)
    run = plain.start("hi")
    assert_type(run, BlockingRun[int])
    assert_type(run.step(), Step | None)
    assert_type(run.output, int)
    assert_type(plain.last, BlockingRun[int] | None)
    with plain.stream("hi") as events:
        assert_type(events, BlockingRunStream[int])
        for event in events:
            assert_type(event, Event)
    assert_type(events.result.output, int)
    with plain.resume_stream("first", answer=True, all_text=True) as later:
        assert_type(later, BlockingRunStream[int])
    assert_type(blocking(agent.start("hi")).finish().output, int)


def of_facts_and_stores() -> None:
    scope, city = Scope.agent("a"), Concept("city", "where the user lives")
    store = SqliteStore("facts.db")
    for provider in (
        StoreMemoryProvider(store),
        EncryptedMemoryProvider("sealed", key=new_key()),
        FileMemoryProvider("facts.json"),
    ):
        assert_type(blocking(provider).load(city, EVERYTHING, scope), list[Fact])
    assert_type(blocking(NoMemory()), BlockingKeepingProvider)
    assert_type(blocking(store).get(("facts", "owner")), Item | None)
    assert_type(blocking(EncryptedStore(store, new_key())).verify(), int)
    assert_type(blocking(MemoryStore()).scan(("facts",)), Iterator[Item])
    assert_type(next(blocking(store).scan(("facts",))), Item)


class Own:
    async def double(self, number: int) -> int:
        return number * 2


def of_other_things() -> None:
    async def double(number: int, *, times: int = 2) -> int:
        return number * times

    assert_type(blocking(double)(4, times=3), int)
    assert_type(blocking(Own()), Any)
    listed = blocking(list_runs)(MemoryStore())
    assert_type(len(listed), int)
