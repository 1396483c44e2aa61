"""Entries, payloads and headers that are not what was written, in plain and in sealed stores: refused before anything is executed."""

from __future__ import annotations

import pytest
from msgspec import msgpack

from graphagent import END, START, Agent, Context, Strategy, node
from graphagent.errors import DamagedStoreError, RunExistsError
from graphagent.history import export_runs, forget_runs, read_run, verify_runs
from graphagent.log._header import WAITING, RunHeader, header_key, mark_key, rows_key, thread_key
from graphagent.nodes import ask_human, llm_request
from graphagent.run import list_runs
from graphagent.store import Delete, Item, MemoryStore, Put
from graphagent.store._items import checked
from graphagent.testing import ScriptedModel
from tests.run.test_journal import copy_of, rows
from tests.store.sealed.test_store import put_rows, rows_of, sealed
from tests.thorough import some

ROWS = rows_key(RunHeader(run_id="r"))
LONG = "A very long letter. " * 1000
"""So long that it is a payload."""


class Program:
    """An agent over a store, and what its nodes and its model did."""

    def __init__(self, store):
        self.done = []

        @node
        async def greet(ctx: Context, topic: str) -> str:
            self.done.append("greet")
            return f"hello {topic}"

        def reply(request):
            self.done.append("reply")
            return "a word"

        strategy = Strategy("s", START >> greet >> llm_request() >> ask_human("Right?", bool) >> END)
        self.store = store
        self.agent = Agent(strategy, model=ScriptedModel([reply] * 9), store=store)

    def ways(self):
        """Return each way to the run."""
        return {
            "resume": lambda: self.agent.resume("r", answer=True),
            "read": lambda: self.agent.read("r"),
            "read_run": lambda: read_run(self.store, "r"),
            "verify": lambda: verify_runs(self.store),
            "export": lambda: _all(export_runs(self.store, run_ids=["r"])),
        }


async def _all(records):
    return [record async for record in records]


async def waiting():
    """Return what a store has of a run that waits for an answer."""
    store = MemoryStore()
    assert (await Program(store).agent.run("secret", run_id="r")).status == "waiting"
    return await rows(store)


async def refused(kept, match):
    """Check that every way to a run is refused, that nothing is executed and nothing written, and no value is shown."""
    program = Program(await copy_of(kept))
    for name, way in program.ways().items():
        with pytest.raises(DamagedStoreError, match=match) as raised:
            await way()
            pytest.fail(f"{name} did not refuse it")
        assert "secret" not in str(raised.value)
    assert program.done == []
    assert await rows(program.store) == kept


def changed(kept, number, change):
    """Return rows in which the entries of one are others, under a checksum that is right."""
    time, ran, entries = msgpack.decode(kept[(*ROWS, number)][4:])
    return {**kept, (*ROWS, number): checked(msgpack.encode((time, ran, change(entries))))}


def without(entry, name):
    return {key: value for key, value in entry.items() if key != name}


# ---- entries

WRONG = {
    "an unknown kind": ("Invalid value 'teleported'", lambda es: [{**es[0], "type": "teleported"}]),
    "no kind": ("missing required field `type`", lambda es: [without(es[0], "type")]),
    "a missing field": ("missing required field `to`", lambda es: [without(es[0], "to")]),
    "an extra field": ("unknown field `more`", lambda es: [{**es[0], "more": 1}]),
    "a field of another type": ("Expected `str`, got `int`", lambda es: [{**es[0], "to": 1}]),
    "something else than an entry": ("Expected `object`, got `int`", lambda es: [7]),
    "a frame that is not there": ("does not follow from", lambda es: [{**es[0], "at": "nowhere/"}]),
    "a second start": ("begins a second time", lambda es: [*es, {"type": "started", "first": "greet", "value": "secret"}]),
    "a transcript carried later": ("it is not the first", lambda es: [*es, {"type": "carried", "steps": [], "items": [], "versions": 0}]),
    "a trust level that is none": ("does not follow from", lambda es: [*es, {"type": "edited", "trust": "secret"}]),
    "an edit behind the end": ("steps that do not exist", lambda es: [*es, {"type": "edited", "start": 9, "end": 9}]),
    "an edit beyond the end": ("steps that do not exist", lambda es: [*es, {"type": "edited", "start": 0, "end": 9}]),
    "an edit that ends before it begins": ("steps that do not exist", lambda es: [*es, {"type": "edited", "start": 1}]),
    "an open step that is none": ("does not follow from", lambda es: [*es, {"type": "edited", "start": -1}]),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
async def test_an_entry_that_does_not_fit_is_refused_by_its_number(what):
    """Also under a right checksum: by every way to the run, before anything is executed, without a value of it."""
    reason, change = WRONG[what]
    kept = await waiting()
    await refused(changed(kept, 2, change), f"^entry [23] of run 'r' is damaged: .*{reason}")


async def test_a_row_under_another_number_is_refused():
    """Moved, exchanged with another one, doubled, or emptied."""
    kept = await waiting()
    two, three = (*ROWS, 2), (*ROWS, 3)
    rest = {key: value for key, value in kept.items() if key != two}
    await refused({**rest, (*ROWS, 50): kept[two]}, "^entry 2 of run 'r' is damaged: it is missing")
    await refused({**kept, two: kept[three], three: kept[two]}, r"^entry \d of run 'r' is damaged: it is missing")
    await refused({**kept, (*ROWS, 50): kept[two]}, r"^entry \d+ of run 'r' is damaged: it is missing")
    await refused({**kept, (*ROWS, 4): kept[two]}, r"^entry \d+ of run 'r' is damaged: it is missing")
    await refused(
        {**kept, (*ROWS, 0): kept[two]}, "^entry 0 of run 'r' is damaged: the run does not begin with its start"
    )
    await refused(changed(kept, 2, lambda entries: []), "^entry 2 of run 'r' is damaged: it is missing")


# ---- payloads


async def test_a_missing_payload_of_a_value_is_found_by_verify():
    """Though no step has it, and no value of it is needed any more; a node that needs it is not executed."""
    executed = []

    @node
    async def write(ctx: Context, topic: str) -> str:
        return topic + LONG

    @node
    async def count(ctx: Context, text: str) -> int:
        executed.append(text)
        return len(text)

    ask = ask_human("Right?", bool)
    strategies = (
        Strategy("after", START >> write >> count >> ask >> END),
        Strategy("before", START >> write >> ask >> END),
    )
    for strategy in strategies:
        store = MemoryStore()
        agent = Agent(strategy, store=store)
        await agent.run("x", run_id="r")
        [key] = [key for key in await rows(store) if key[:-1] == (*ROWS, 0)]
        assert await verify_runs(store) == 1
        sound = (await store.get(key)).value
        for change, reason in ((Delete(key), "a payload is missing"), (Put(key, sound[:-1]), "checksum mismatch")):
            await store.commit(change)
            with pytest.raises(DamagedStoreError, match=rf"^entry \d of run 'r' is damaged: {reason}"):
                await verify_runs(store)
            with pytest.raises(DamagedStoreError, match=rf"^entry \d of run 'r' is damaged: {reason}"):
                await _all(export_runs(store))
            with pytest.raises(DamagedStoreError, match=rf"^run 'r' is damaged: {reason}"):
                [each.value for each in await agent.history("r")]
        executed.clear()
        if strategy.name == "before":
            with pytest.raises(DamagedStoreError, match="checksum mismatch in a payload"):
                await agent.resume("r", answer=True)
        assert executed == []


# ---- headers and threads


@pytest.mark.parametrize(
    "gone", ["the header", "the header and the first entry", "the header and all but the last entry"]
)
async def test_entries_without_a_header_are_damage_and_no_new_run(gone):
    """Also for who begins a run of this id: no node is executed, and nothing is added to what is there."""
    kept = await waiting()
    numbers = sorted(key[-1] for key in kept if key[:-1] == ROWS)
    lost = {"the header": [], "the header and the first entry": numbers[:1]}.get(gone, numbers[:-1])
    left = {
        key: kept[key] for key in kept if key != header_key("", "r") and key not in {(*ROWS, each) for each in lost}
    }
    await refused(left, "^the header of run 'r' is damaged: it is missing, and its entries are there")
    program = Program(await copy_of(left))
    with pytest.raises(DamagedStoreError, match=r"^the header of run 'r' is damaged: it is missing"):
        await program.agent.run("again", run_id="r")
    assert program.done == []
    assert await rows(program.store) == left


async def test_a_later_run_of_a_thread_without_its_header_is_damage():
    """It is found by its id, which no other run may have; when it is removed in order, the id is free again."""
    store = MemoryStore()
    agent = Agent(
        Strategy("s", START >> llm_request() >> END), model=ScriptedModel(["one", "two", "three"]), store=store
    )
    for run_id in ("one", "two"):
        await agent.run("x", thread="t", run_id=run_id)
    header = await store.get(header_key("", "two"))
    await store.commit(Delete(header_key("", "two")))
    with pytest.raises(DamagedStoreError, match=r"^the header of run 'two' is damaged: it is missing"):
        await agent.read("two")
    with pytest.raises(DamagedStoreError, match=r"^the header of run 'two' is damaged: it is missing"):
        await agent.run("y", run_id="two")
    assert len(agent.model.requests) == 2
    await store.commit(Put(header_key("", "two"), header.value))
    await forget_runs(store, run_ids=["two"])
    assert (await agent.run("y", run_id="two")).output == "three"


async def test_a_thread_whose_row_is_missing_is_damage_and_no_new_thread():
    """The next message is refused before anything is executed, and `verify` names the thread."""
    store = MemoryStore()
    strategy = Strategy("s", START >> llm_request() >> END)
    agent = Agent(strategy, model=ScriptedModel(["one", "two"]), store=store)
    await agent.run("x", thread="t", run_id="one")
    await store.commit(Delete(thread_key("", "t")))
    kept = await rows(store)
    with pytest.raises(DamagedStoreError, match=r"^thread 't' is damaged: the row that names its last run is missing"):
        await agent.run("y", thread="t", run_id="two")
    with pytest.raises(DamagedStoreError, match=r"^thread 't' is damaged: the row that names its last run is missing"):
        await verify_runs(store)
    assert len(agent.model.requests) == 1
    assert await rows(store) == kept
    assert [head.run_id for head in await list_runs(store)] == ["one"]


# ---- sealed


async def test_damage_in_any_byte_of_a_sealed_run_is_refused():
    """Any bit of its rows, a row that is cut, and one that is missing: nothing is executed, and no other run is begun."""
    inner = MemoryStore()
    assert (await Program(sealed(inner)).agent.run("secret", run_id="r")).status == "waiting"
    await sealed(inner).commit(Delete(mark_key(WAITING, "", "r")))  # which is an index, and no part of the run
    kept = rows_of(inner)
    assert not any(b"secret" in item.value for item in kept.values())
    values = {key: item.value for key, item in kept.items()}
    flipped = [(key, at) for key, value in values.items() for at in range(len(value))]
    damages = [(key, _flipped(values[key], at)) for key, at in some(flipped, 150)]
    damages += [(key, value[: len(value) // 2]) for key, value in values.items()]
    damages += [(key, None) for key in values]
    for key, value in damages:
        left = {each: item for each, item in kept.items() if each != key}
        if value is not None:
            left[key] = Item(key, value, kept[key].version)
        store = MemoryStore()
        put_rows(store, left)
        program = Program(sealed(store))
        with pytest.raises(DamagedStoreError):
            await program.agent.resume("r", answer=True)
        # Where its header is sound, there is a run of this id.
        with pytest.raises((DamagedStoreError, RunExistsError)):
            await program.agent.run("again", run_id="r")
        assert program.done == []


def _flipped(value, at):
    return b"%b%c%b" % (value[:at], value[at] ^ 1 << at % 8, value[at + 1 :])
