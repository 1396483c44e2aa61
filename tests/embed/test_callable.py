"""Functions as embedders, and what is checked of the vectors that any embedder gives."""

from __future__ import annotations

import functools
import threading
import time

import anyio
import anyio.lowlevel
import numpy as np
import pytest

from graphagent.embed import CallableEmbedder, checked
from graphagent.errors import EmbedderError


def lengths(texts):
    return [[float(len(text)), 1.0] for text in texts]


class Asked:
    """An object that is called."""

    async def __call__(self, texts):
        await anyio.lowlevel.checkpoint()
        return lengths(texts)


async def later(texts):
    await anyio.lowlevel.checkpoint()
    return lengths(texts)


@pytest.mark.parametrize("function", [lengths, later, Asked(), functools.partial(later), lambda texts: later(texts)])
async def test_any_function_is_an_embedder(function):
    """Plain and async functions, objects that are called, and what gives something to be awaited."""
    assert await CallableEmbedder(function, name="own-1").embed(["a", "bb"]) == [[1.0, 1.0], [2.0, 1.0]]


async def test_a_plain_function_does_not_hold_up_the_loop():
    """It is called in another thread, with a list."""
    seen = []

    def slow(texts):
        time.sleep(0.2)
        seen.append((type(texts), threading.current_thread() is threading.main_thread()))
        return lengths(texts)

    turns = 0
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(CallableEmbedder(slow, name="slow-1").embed, ("a",))
        while not seen:
            await anyio.sleep(0.01)
            turns += 1
    assert seen == [(list, False)]
    assert turns > 5


def test_a_function_without_a_name_of_its_own_is_given_one():
    """Two lambdas, and two functions made by one, would have one name, by which their vectors would be compared."""

    def inner(texts):
        return lengths(texts)

    for function in (lambda texts: lengths(texts), inner, functools.partial(inner)):
        with pytest.raises(ValueError, match="pass name="):
            CallableEmbedder(function)
        assert CallableEmbedder(function, name="own-1").name == "own-1"


async def test_what_it_raises_is_raised():
    """An error of the function is not changed."""

    def failing(texts):
        raise LookupError("as it was")

    with pytest.raises(LookupError, match="as it was"):
        await CallableEmbedder(failing, name="failing-1").embed(["a"])


async def test_its_name_says_what_it_is():
    """A name that is given, else the function's own; no texts are no call."""
    assert CallableEmbedder(lengths, name="lengths-1").name == "lengths-1"
    assert CallableEmbedder(functools.partial(lengths)).name.endswith("test_callable.lengths")
    assert CallableEmbedder(Asked()).name.endswith("test_callable.Asked")
    assert await CallableEmbedder(len).embed([]) == []
    with pytest.raises(TypeError, match="a function of a list of texts, not str"):
        CallableEmbedder("len")


@pytest.mark.parametrize(
    "vectors", [[[3, 4], [0.0, 2.0]], np.array([[3, 4], [0, 2]], np.int8), {(3, 4): 1, (0, 2): 2}.keys()]
)
async def test_sound_vectors_become_rows_of_length_1(vectors):
    """Lists, arrays and whatever can be gone through, of whole numbers or not, become one array."""
    rows = await checked(CallableEmbedder(lambda _: vectors, name="own-1"), ["a", "b"])
    assert rows.dtype == np.float32
    assert rows.tolist() == [[np.float32(0.6), np.float32(0.8)], [0.0, 1.0]]


@pytest.mark.parametrize("size", [1e-300, 1e-30, 1e30, 1e300])
async def test_the_size_of_numbers_does_not_matter(size):
    """Numbers that single precision could not hold are brought to length 1 first."""
    rows = await checked(CallableEmbedder(lambda _: [[3 * size, 4 * size]], name="own-1"), ["a"])
    assert np.allclose(rows, [[0.6, 0.8]])


@pytest.mark.parametrize(
    ("vectors", "said"),
    [
        (None, "returned a NoneType instead of a list of vectors"),
        ("ab", "returned a str instead of a list of vectors"),
        ([[1.0]], "returned 1 vector for 2 texts"),
        ([[1.0], [1.0], [1.0]], "returned 3 vectors for 2 texts"),
        ([[1.0], [1.0, 2.0]], "returned a vector of 2 numbers for text 2 of 2, and of 1 for the first"),
        ([[1.0], [float("nan")]], r"returned an infinite number or NaN for text 2 of 2"),
        ([[1.0], [float("-inf")]], r"returned an infinite number or NaN for text 2 of 2"),
        ([[0.0], [1.0]], "returned only zeros for text 1 of 2"),
        ([[1.0], ["0.5"]], r"returned something other than a list of numbers \(list\) for text 2 of 2"),
        ([[1.0], [True]], r"returned something other than a list of numbers \(list\) for text 2 of 2"),
        ([[1.0], [None]], r"returned something other than a list of numbers \(list\) for text 2 of 2"),
        ([[1.0], [[1.0], [1.0, 2.0]]], r"returned something other than a list of numbers \(list\) for text 2 of 2"),
        ([1.0, 2.0], r"returned something other than a list of numbers \(float\) for text 1 of 2"),
        ([[], []], r"returned something other than a list of numbers \(list\) for text 1 of 2"),
    ],
)
async def test_what_is_no_vector_is_told_without_the_text(vectors, said):
    """What was given, for which text, and never the text itself."""
    embedder = CallableEmbedder(lambda _: vectors, name="broken-1")
    with pytest.raises(EmbedderError, match=f"embedder 'broken-1' {said}") as raised:
        await checked(embedder, ["topsecret", "secret, too"])
    assert "secret" not in str(raised.value)


async def test_no_texts_are_no_question():
    """Nobody is asked for nothing."""
    assert (await checked(CallableEmbedder(len), [])).shape == (0, 0)
