"""`graphagent inspect` in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import httpx2
import pytest

from graphagent.store import EncryptedStore, SqliteStore, new_key
from tests import forkserver
from tests.inspect.pages import assistant

TOKEN = "plum-quarry-ledger-ninety"


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_sealed_store_is_shown_until_the_process_is_told_to_end(anyio_backend, tmp_path):
    """Below a prefix, to who has the token; without the key, nothing is served."""
    key = new_key()
    async with SqliteStore(tmp_path / "runs.db") as plain, EncryptedStore(plain, key) as store:
        await assistant(store, "Hello.").run("Greet Ada.", run_id="greets")
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
            page = await client.get(url, headers={"Authorization": f"Bearer {TOKEN}"})
        assert "Greet Ada." in page.text
        assert "sealed" in page.text
        process.terminate()
        _, rest = process.communicate(timeout=60)
        assert (process.returncode, rest) == (0, "")
    finally:
        process.kill()
        process.communicate()
