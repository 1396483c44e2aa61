"""Runs for which something is due at a time: whatever writes their headers keeps the room by which they are found."""

from __future__ import annotations

from datetime import timedelta

from msgspec import structs

from graphagent import END, START, Agent, Context, Strategy, node
from graphagent.history import export_runs, forget, forget_runs, import_runs, prune_runs
from graphagent.log._header import DUE, RunHeader, due_changes, due_key, read_due
from graphagent.log._log import Log
from graphagent.store import EncryptedStore, MemoryStore, Put, new_key
from graphagent.store._bulk import collect


@node
async def greet(ctx: Context, name: str) -> str:
    return f"Hello {name}"


def agent_over(store):
    return Agent(Strategy("greeting", START >> greet >> END), store=store)


async def due_at(store, owner, run_id, at):
    """Have the header of a run say that something is due."""
    log = await Log.read(store, owner, run_id)
    log.header = structs.replace(log.header, due=at)
    await log.commit(header=True)


async def rows(store):
    return [(item.key[2], *item.key[3:]) for item in await collect(store.scan((DUE,)))]


async def test_what_is_due_is_found_over_all_owners_by_its_time_and_moves_with_the_header():
    store = EncryptedStore(MemoryStore(), new_key())
    agent = agent_over(store)
    for number in range(40):
        await agent.run("Ada", run_id=f"r{number}", owner=f"o{number % 3}")
        await due_at(store, f"o{number % 3}", f"r{number}", 1_000 + (number * 7) % 40)
    found = await read_due(store, 1_019, 100)
    assert [each.at for each in found] == [*range(1_000, 1_020)]
    assert {each.strategy for each in found} == {"greeting"}
    assert all(each.owner == f"o{int(each.run_id[1:]) % 3}" for each in found)
    assert [each.at for each in await read_due(store, 1_019, 3)] == [1_000, 1_001, 1_002]
    await due_at(store, "o0", "r0", 5_000)
    await due_at(store, "o1", "r1", 0)
    assert len(await rows(store)) == 39
    assert [each.run_id for each in await read_due(store, 9_000, 100)][-1] == "r0"


async def test_a_removed_run_is_not_due_and_an_imported_one_is():
    store, other = MemoryStore(), MemoryStore()
    agent = agent_over(store)
    for run_id, owner in (("a", "ada"), ("b", "ada"), ("c", "ada"), ("d", "bob")):
        await agent.run("Ada", run_id=run_id, owner=owner)
        await due_at(store, owner, run_id, 7)
    records = [record async for record in export_runs(store, owner="ada")]
    await import_runs(other, records)
    assert sorted(await rows(other)) == [(7, "ada", "a"), (7, "ada", "b"), (7, "ada", "c")]
    await prune_runs(store, owner="ada", run_ids=["a"], older_than=timedelta(0))
    await forget_runs(store, owner="ada", run_ids=["b"])
    assert sorted(await rows(store)) == [(7, "ada", "c"), (7, "bob", "d")]
    await forget_runs(store, owner="ada")
    assert await rows(store) == [(7, "bob", "d")]
    await forget(store, owner="bob", everything=True)
    assert await rows(store) == []


async def test_a_damaged_item_is_in_the_way_of_no_other(caplog):
    """What is due for all others is found; the log names the run."""
    store = MemoryStore()
    for number in range(3):
        await store.commit(*due_changes(RunHeader(run_id=f"r{number}", strategy="s", due=number + 1), 0))
    await store.commit(Put(due_key(RunHeader(run_id="r1", due=2)), b"not what was written"))
    assert [each.run_id for each in await read_due(store, 9, 9)] == ["r0", "r2"]
    assert "run 'r1' is left alone" in caplog.text
