"""Several memory servers over one store, and hosts that end without warning."""

from __future__ import annotations

import os
import signal

import pytest
from mcp import Client

from graphagent.memory import Concept, EncryptedMemoryProvider, Notes, Scope, SingleFact, StoreMemoryProvider, Subject
from graphagent.store import EncryptedStore, SqliteStore, new_key
from tests.memory_server.servers import Raw, stdio
from tests.memory_server.test_tools import call, refused


async def together(first, second):
    """Have two clients keep, find and forget the same things."""
    note = await call(first, "remember", text="We chose PostgreSQL.")
    fact = await call(second, "remember_fact", keyword="city", value="Oslo")
    for client in (first, second):
        found = await call(client, "recall", query="PostgreSQL city")
        assert [each["id"] for each in found["notes"]] == [note["id"]]
        assert [each["id"] for each in found["facts"]] == [fact["id"]]
    await call(first, "forget", ids=[fact["id"]])
    await call(second, "forget", ids=[note["id"]])
    for client in (first, second):
        assert "does not exist here" in await refused(client, "explain", id=fact["id"])
        assert (await call(client, "recall", query="PostgreSQL city"))["notes"] == []


@pytest.mark.parametrize("sealed", [False, True], ids=["plain", "sealed"])
async def test_two_servers_at_once_over_one_folder(sealed, tmp_path):
    """Each sees at once what the other one keeps and forgets, and the files of a sealed memory have none of it."""
    words = ["--store", str(tmp_path / "data"), "--owner", "ada", *(["--key", "env:MEMORY_KEY"] if sealed else [])]
    env = {"MEMORY_KEY": new_key()}
    async with Client(stdio(*words, **env)) as first, Client(stdio(*words, **env), mode="legacy") as second:
        await together(first, second)
        await call(first, "remember", text="swordfish")
        await call(second, "remember_fact", keyword="word", value="swordfish")
    kept = [each.read_bytes() for each in (tmp_path / "data").rglob("*") if each.is_file()]
    assert any(b"swordfish" in each for each in kept) is not sealed


async def test_two_servers_at_once_over_postgresql(postgres_dsn):
    """Facts and notes are in one database."""
    words = ("--store", "env:MEMORY_DSN", "--owner", "ada")
    env = {"MEMORY_DSN": postgres_dsn}
    async with Client(stdio(*words, **env)) as first, Client(stdio(*words, **env)) as second:
        await together(first, second)


@pytest.mark.parametrize("round_", range(3))
@pytest.mark.one_value("round_")
async def test_a_server_that_is_killed_while_it_writes_leaves_nothing_half_written(round_, tmp_path):
    """Beside another one on the same sealed file: what was confirmed is there, all of it is sound, and the other one goes on."""
    key, file = new_key(), tmp_path / "assistant.db"
    words = ("--store", str(file), "--key", "env:MEMORY_KEY", "--owner", "ada")
    killed, other = Raw(*words, MEMORY_KEY=key).begin(), Raw(*words, MEMORY_KEY=key).begin()
    for number in range(1, 61):
        for each in (killed, other):
            tool, arguments = (
                ("remember", {"text": f"note {number} {'word ' * 200}"})
                if number % 2
                else ("remember_fact", {"keyword": f"k{number % 7}", "value": f"{number} {'x' * 500}"})
            )
            each.call(number, tool, **arguments)
    confirmed = [killed.receive() for _ in range(3 + 7 * round_)]
    os.kill(killed.process.pid, signal.SIGKILL)
    while message := killed.receive():
        confirmed.append(message)
    confirmed += [other.receive() for _ in range(60)]
    other.call(99, "remember", text="The other one goes on.")
    assert other.receive()["result"]["structuredContent"]["version"] == 1
    assert other.end()[0] == 0
    killed.end()
    async with SqliteStore(file) as plain, Notes(EncryptedStore(plain, key), owner="ada") as notes:
        facts = StoreMemoryProvider(EncryptedStore(plain, key))
        await facts.verify()
        await notes.verify()
        there = {f"fact:{each['id']}" async for each in facts.export(owner="ada")}
        there |= {f"note:{each.id}" for each in await notes.list_records(limit=1000)}
    assert {each["result"]["structuredContent"]["id"] for each in confirmed} <= there


def test_a_server_ends_with_its_host(tmp_path):
    """When its standard input is closed, with exit code 0 and nothing said; SIGTERM ends it too; the log of tools stays off stdout."""
    server = Raw("--store", tmp_path / "data").begin()
    server.call(1, "remember", text="x")
    assert server.receive()["id"] == 1
    assert server.end() == (0, b"", "")
    server = Raw("--store", tmp_path / "data").begin()
    server.call(1, "remember", nothing=1)
    assert server.receive()["result"]["isError"]
    server.process.terminate()
    assert server.end()[0] == -signal.SIGTERM


async def test_a_memory_that_cannot_be_opened_ends_the_server_with_one_line(tmp_path):
    """Sealed without a key, or with another one: no traceback, no key, and nothing on standard output."""
    key, other = new_key(), new_key()
    async with EncryptedMemoryProvider(tmp_path / "data", key=key) as facts:
        await facts.save(SingleFact(Concept("city"), "Oslo"), Subject("user"), Scope.agent("chat"))
    for words, said in (((), "is sealed; say where its key is"), (("--key", "env:MEMORY_KEY"), "another key")):
        server = Raw("--store", tmp_path / "data", *words, MEMORY_KEY=other)
        code, out, err = server.end()
        assert code in (1, 2)
        assert out == b""
        assert said in " ".join(err.replace("│", " ").split())
        assert "Traceback" not in err
        assert other not in err
