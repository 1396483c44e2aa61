"""`graphagent inspect`: pages from a process of its own, and runs in files."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from contextlib import suppress

import anyio
import httpx2
import pytest

from graphagent import END, START, Agent, Strategy
from graphagent.cli import _stores
from graphagent.cli._store_place import StorePlace
from graphagent.cli.inspect import InspectOptions, _notes_of
from graphagent.embed.static import StaticEmbedder
from graphagent.errors import NodeFailedError
from graphagent.log._header import ROOM, ROWS
from graphagent.memory import Notes
from graphagent.store import EncryptedStore, Put, SqliteStore, new_key
from tests import forkserver
from tests.inspect.pages import assistant, fetch

TOKEN = "plum-quarry-ledger-ninety"


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_sealed_store_is_shown_until_the_process_is_told_to_end(anyio_backend, tmp_path):
    """Below a prefix, to who has the token; without the key, nothing is served. The commands that pages print name the store and its key."""
    key = new_key()
    async with SqliteStore(tmp_path / "runs.db") as plain, EncryptedStore(plain, key) as store:
        await assistant(store, "Hello.").run("Greet Ada.", run_id="greets")
        with suppress(NodeFailedError):
            await Agent(Strategy("orders", START >> fetch >> END), store=store).run("17", run_id="fails")
    command = [sys.executable, "-m", "graphagent", "inspect", "--store", tmp_path / "runs.db", "--http", "0"]
    env = {**os.environ, "INSPECT_TOKEN": TOKEN, "INSPECT_KEY": key}
    refused = forkserver.run(command, env=env, capture_output=True, text=True)
    assert refused.returncode == 2
    assert "sealed" in refused.stderr
    more = ["--key", "env:INSPECT_KEY", "--token", "env:INSPECT_TOKEN", "--prefix", "/team"]
    process = forkserver.Popen([*command, *more], stderr=subprocess.PIPE, env=env, text=True)
    try:
        url = re.search(r"http://\S+/team/", process.stderr.readline())[0]
        async with httpx2.AsyncClient(follow_redirects=True) as client:
            assert (await client.get(url)).status_code == 401
            client.headers["Authorization"] = f"Bearer {TOKEN}"
            page, failed = await client.get(url), await client.get(f"{url}run?id=fails")
        assert "Greet Ada." in page.text
        assert f"graphagent runs resume fails --store {tmp_path / 'runs.db'} --key env:INSPECT_KEY<" in failed.text
        assert "sealed" in page.text
        process.terminate()
        _, rest = process.communicate(timeout=60)
        assert (process.returncode, rest) == (0, "")
    finally:
        process.kill()
        process.communicate()


def test_a_run_goes_into_a_file_that_only_its_owner_can_read(run, home):
    """By the beginning of its id, with its words or without; an existing file stays, and a file that could not be written is not left."""
    anyio.run(_greeted, SqliteStore(home / "runs.db"))
    store = ["--store", "runs.db", "--html"]
    assert "'greets', " in run("inspect", "gree", *store, "whole.html").said
    assert stat.S_IMODE((home / "whole.html").stat().st_mode) == 0o600
    assert "Greet Ada." in (home / "whole.html").read_text("utf-8")
    assert "without its texts" in run("inspect", *store, "redacted.html", "--redact").said
    assert "Ada" not in (home / "redacted.html").read_text("utf-8")
    for words, code, said in (
        (["greets", *store, "whole.html"], 1, "'whole.html' exists already"),
        (["greets", *store, "there/is/none.html"], 1, "cannot be written"),
        (["nobody", *store, "new.html"], 1, "there is no run 'nobody'"),
        (["greets", *store, "new.html", "--owner", "eve"], 1, "there is no run 'greets'"),
        (["greets", *store, "new.html", "--http", "0", "--open"], 2, "leave out --http and --open"),
        (["greets", *store[:2]], 2, "--html FILE"),
        ([*store[:2], "--redact"], 2, "--redact is for a page in a file"),
    ):
        ended = run("inspect", *words)
        assert (ended.code, said in ended.said) == (code, True), ended.said
    anyio.run(_greeted, SqliteStore(home / "runs.db"), None, "ada")
    said = run("inspect", "greets", *store, "of-two.html").said
    assert "2 owners have a run 'greets': '', 'ada'" in " ".join(said.replace("│", " ").split())
    assert "'greets', " in run("inspect", *store, "newest.html").said
    assert "owner</dt><dd>ada" in (home / "newest.html").read_text("utf-8")
    assert {each.name for each in home.glob("*.html")} == {"whole.html", "redacted.html", "newest.html"}


def test_a_run_of_a_sealed_store_goes_into_a_file_only_if_that_is_said(run, home, monkeypatch):
    """Also a redacted one, whose names of nodes were sealed too; and of a damaged run there is no file."""
    monkeypatch.setenv("INSPECT_KEY", key := new_key())
    anyio.run(_greeted, SqliteStore(home / "runs.db"), key)
    words = ["inspect", "greets", "--store", "runs.db", "--key", "env:INSPECT_KEY", "--html", "page.html"]
    for more in ([], ["--redact"]):
        ended = run(*words, *more)
        assert ended.code == 2
        assert "add --plaintext" in ended.said
    assert not (home / "page.html").exists()
    assert run(*words, "--plaintext").code == 0
    assert "not encrypted, unlike its store" in (home / "page.html").read_text("utf-8")
    anyio.run(_damaged, SqliteStore(home / "plain.db"))
    ended = run("inspect", "--store", "plain.db", "--html", "damaged.html")
    assert ended.code == 1
    assert "damaged" in ended.said
    assert not (home / "damaged.html").exists()


async def _greeted(store, key=None, owner=""):
    async with store:
        inner = store if key is None else EncryptedStore(store, key)
        await assistant(inner, "Hello.").run("Greet Ada.", run_id="greets", owner=owner)


async def _damaged(store):
    await _greeted(store)
    async with store:
        item = [each async for each in store.scan((ROOM, "", ROWS))][-1]
        await store.commit(Put(item.key, item.value[:-1] + b"\x00"))


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_notes_are_those_in_the_store_or_beside_the_runs_of_a_folder(anyio_backend, tmp_path):
    """Found by the embedder of their vectors, if it is here; those that the key does not open are left out."""
    key = new_key()
    async with SqliteStore(tmp_path / "runs.db") as store:
        await assistant(store, "Hello.").run("Greet Ada.", run_id="greets")
        await Notes(store, embedder=StaticEmbedder()).remember("In the store.")
    await noted_beside(tmp_path / "plain", None)
    await noted_beside(tmp_path / "sealed", key)
    shown = []
    for given in (tmp_path / "runs.db", tmp_path / "plain", tmp_path / "sealed"):
        options = InspectOptions(store=StorePlace(str(given)))
        async with _stores.open_store("runs", options.store, None) as store, _notes_of(options, store) as notes:
            shown.append(
                None if notes is None else (notes.embedder_name, [each.content for each in await notes.list_records()])
            )
    assert shown == [(StaticEmbedder.name, ["In the store."]), (None, ["Beside."]), None]


async def noted_beside(folder, key):
    """Keep a run and a note in two files of a folder, the notes sealed if there is a key."""
    folder.mkdir()
    async with SqliteStore(folder / "runs.db") as store, SqliteStore(folder / "notes.db") as plain:
        await assistant(store, "Hello.").run("Greet Ada.")
        await Notes(plain if key is None else EncryptedStore(plain, key)).remember("Beside.")
