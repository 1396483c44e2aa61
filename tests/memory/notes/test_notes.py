"""Opening and closing notes, with an embedder behind a real HTTP server."""

from __future__ import annotations

import gc
import threading
import warnings

import anyio
import pytest

from graphagent.embed.openai import OpenAIEmbedder
from graphagent.memory import Notes
from graphagent.testing import openai_server
from tests.memory.notes.conftest import Words
from tests.test_openai_http import connected


@pytest.fixture
def server():
    with openai_server([]) as running:
        yield running


async def test_the_obvious_program_leaves_nothing_open(server, tmp_path):
    """An embedder that is made on the way into notes is closed with them: no connection is left, and no warning."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        async with Notes(tmp_path / "notes.db", embedder=OpenAIEmbedder("m", base_url=server.base_url)) as notes:
            await notes.remember("The staging port is 8000.")
            assert [each.record.content for each in await notes.recall("port?")] == ["The staging port is 8000."]
            assert connected(server, 1)
        assert connected(server, 0)
        del notes
        gc.collect()
    assert [str(each.message) for each in warned] == []


async def test_an_embedder_may_be_shared(server, tmp_path):
    """Closing one of two notes breaks nothing of the other, not even what it is having embedded at that moment."""
    arrived, release, serve = threading.Event(), threading.Event(), server.serve
    embedder = OpenAIEmbedder("m", base_url=server.base_url)

    def held(path, body, headers):
        arrived.set()
        assert release.wait(600)
        return serve(path, body, headers)

    async with Notes(tmp_path / "one.db", embedder=embedder) as one:
        other = Notes(tmp_path / "other.db", embedder=embedder)
        await one.remember("Lunch is at noon.")
        await other.remember("Dogs bark.")
        server.serve = held
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one.remember, "The staging port is 8000.")
            assert await anyio.to_thread.run_sync(arrived.wait, 600)
            await other.aclose()
            release.set()
        assert {each.content for each in await one.list_records()} == {
            "Lunch is at noon.",
            "The staging port is 8000.",
        }
        assert (await one.recall("port?"))[0].record.content == "The staging port is 8000."
    assert connected(server, 0)


async def test_a_file_is_closed_whatever_its_embedder_does(tmp_path):
    """What an embedder raises as it is closed is raised, and the file is closed all the same."""

    class Stuck(Words):
        async def aclose(self):
            raise RuntimeError("stuck")

    notes = Notes(tmp_path / "notes.db", embedder=Stuck())
    await notes.remember("Lunch is at noon.")
    with pytest.raises(RuntimeError, match="stuck"):
        await notes.aclose()
    assert notes._own._opened is None
    assert not (tmp_path / "notes.db-wal").exists()
