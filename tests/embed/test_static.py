"""The table of WordLlama: what its vectors are, that they depend on nothing but the text, and that the loop goes on."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading

import anyio
import numpy as np
import pytest
from anyio import from_thread
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphagent.embed import checked
from graphagent.embed.static import StaticEmbedder
from graphagent.errors import EmbedderError
from tests.thorough import examples


@pytest.fixture(scope="module")
def embedder():
    return StaticEmbedder()


async def test_like_texts_are_near(embedder):
    """A question is nearer to the text that answers it than to others; rows are of length 1."""
    texts = ["We chose PostgreSQL as our database.", "The cat sleeps on the sofa.", "Lunch is at noon."]
    rows = await embedder.embed(texts)
    [question] = await embedder.embed(["Which database did we pick?"])
    assert rows.shape == (3, 256)
    assert rows.dtype == np.float32
    assert np.allclose(np.linalg.norm(rows, axis=1), 1)
    assert np.argmax(rows @ question) == 0


async def test_common_words_count_little(embedder):
    """What a question has around its words moves its vector less than its words do."""
    bare, asked, other = await embedder.embed(["database port", "What was the database port?", "database harbour"])
    assert bare @ asked > bare @ other


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=60), min_size=1, max_size=8))
def test_every_text_has_a_vector_of_its_own(embedder, texts):
    """Whatever a text holds, even nothing, it has a sound vector, the same alone and among others."""

    async def both():
        return await checked(embedder, texts), np.concatenate([await checked(embedder, [text]) for text in texts])

    together, alone = anyio.run(both)
    assert np.allclose(together, alone, atol=1e-6)


async def test_no_texts_have_no_vectors(embedder):
    """An empty list gives an array without rows."""
    assert (await embedder.embed([])).shape == (0, 256)


async def test_what_are_no_texts_is_refused(embedder):
    """A single text, something else than text and half a surrogate pair each say what is wrong."""
    with pytest.raises(TypeError, match=r"embed\(\[text\]\)"):
        await embedder.embed("one text")
    with pytest.raises(TypeError, match="text 2 of 2 is of type int"):
        await embedder.embed(["a", 2])
    with pytest.raises(ValueError, match=r"text 1 of 1 holds half a surrogate pair") as raised:
        await embedder.embed(["topsecret \ud800"])
    assert "topsecret" not in str(raised.value)


async def test_other_threads_embed_many_texts_and_a_cancellation_is_noticed_between_parts(monkeypatch):
    """The thread of the event loop loads and embeds nothing of a large batch, and what is cancelled embeds no further part."""
    embedder, parts, threads = StaticEmbedder(), [], set()

    def watched(texts, embed=embedder._embed):
        threads.add(threading.get_ident())
        parts.append(len(texts))
        from_thread.run_sync(scope.cancel)
        return embed(texts)

    monkeypatch.setattr(embedder, "_embed", watched)
    with anyio.CancelScope() as scope:
        await embedder.embed(["We talked about the port of the staging database for a while."] * 5_000)
    assert scope.cancelled_caught
    assert len(parts) == 1
    assert parts[0] < 5_000
    assert threading.get_ident() not in threads


async def test_another_table_is_refused(tmp_path):
    """A table with a changed byte is named, with what to do, and so is one that is gone."""
    embedder = StaticEmbedder()
    shutil.copytree(embedder._folder / "weights", tmp_path / "weights")
    [table] = (tmp_path / "weights").iterdir()
    content = bytearray(table.read_bytes())
    content[-1] ^= 1
    table.write_bytes(content)
    embedder._folder = tmp_path
    with pytest.raises(EmbedderError, match=r"l2_supercat_256.safetensors is not the file .* pip install"):
        await embedder.embed(["a"])
    table.unlink()
    with pytest.raises(EmbedderError, match=r"l2_supercat_256.safetensors cannot be read .* pip install"):
        await embedder.embed(["a"])


@pytest.mark.parametrize(
    ("module", "lacking", "extra"),
    [
        ("static", "numpy", "static"),
        ("static", "tokenizers", "static"),
        ("local", "onnxruntime", "local"),
        ("_minilm", "onnx", "local"),
    ],
)
def test_a_missing_extra_is_named(module, lacking, extra):
    """Without what an embedder needs, importing it gives the line to run."""
    program = f"import sys; sys.modules[{lacking!r}] = None; import graphagent.embed.{module}"
    ended = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert f"needs an extra: pip install 'graphagent-ai[{extra}]'" in ended.stderr


def test_the_door_loads_nothing_heavy():
    """graphagent.embed imports no library for numbers, models or HTTP."""
    program = (
        "import sys, graphagent.embed; print(*{'numpy', 'openai', 'onnxruntime', 'tokenizers'} & sys.modules.keys())"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == []


async def test_wordllama_itself_is_not_loaded():
    """Only its two files are read."""
    program = (
        "import anyio, sys; from graphagent.embed.static import StaticEmbedder;"
        " anyio.run(StaticEmbedder().embed, ['a']); print('wordllama' in sys.modules)"
    )
    ended = await anyio.run_process([sys.executable, "-c", program])
    assert ended.stdout.split() == [b"False"]
