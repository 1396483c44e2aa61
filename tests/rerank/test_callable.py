"""Functions as rerankers, and what is checked of the scores that any reranker returns."""

from __future__ import annotations

import functools
import threading

import anyio
import anyio.lowlevel
import numpy as np
import pytest

from graphagent.errors import MissingExtraError, RerankerError, RunError
from graphagent.memory import Notes
from graphagent.rerank import CallableReranker
from graphagent.store import MemoryStore


def longest(query, texts):
    return [float(len(text)) for text in texts]


async def later(query, texts):
    await anyio.lowlevel.checkpoint()
    return longest(query, texts)


class Asked:
    """An object that is called."""

    async def __call__(self, query, texts):
        return await later(query, texts)


async def recalled(function, *texts):
    """Return what is recalled of notes, the best first, with a function as the reranker."""
    async with Notes(MemoryStore(), reranker=CallableReranker(function, name="own-1")) as notes:
        await notes.remember_many(texts)
        return [match.record.content for match in await notes.recall("tea")]


@pytest.mark.parametrize(
    "function", [longest, later, Asked(), functools.partial(later), lambda query, texts: later(query, texts)]
)
async def test_any_function_is_a_reranker(function):
    """Plain and async functions, objects that are called, and what returns something to be awaited."""
    assert await CallableReranker(function).rerank("q", ("a", "bb")) == [1.0, 2.0]
    assert await recalled(function, "tea", "tea at two", "tea now") == ["tea at two", "tea now", "tea"]


async def test_a_plain_function_is_called_in_another_thread():
    """It may block, and is passed a list."""
    seen = []

    def blocking(query, texts):
        seen.append((query, type(texts), threading.current_thread() is threading.main_thread()))
        return longest(query, texts)

    await CallableReranker(blocking).rerank("q", ("a",))
    assert seen == [("q", list, False)]


def test_its_name_says_which_it_is():
    """The name that is passed, else the function's own with its module; what cannot be called is refused."""
    assert CallableReranker(longest, name="own-1").name == "own-1"
    assert CallableReranker(functools.partial(longest)).name.endswith("test_callable.longest")
    assert CallableReranker(Asked()).name.endswith("test_callable.Asked")
    assert "own-1" in repr(CallableReranker(longest, name="own-1"))
    with pytest.raises(TypeError, match="a function of a question and a list of texts, not str"):
        CallableReranker("longest")


@pytest.mark.parametrize(
    "scores",
    [[1, 2.5], np.array([1.0, 2.5], np.float32), np.array([1, 2]), {0: 1, 1: 2}.values()],
)
async def test_finite_numbers_are_scores(scores):
    """Lists, arrays, and whatever can be iterated over in order."""
    # The note saved last is shown first, so the second score is that of the other one.
    assert await recalled(lambda query, texts: scores, "tea last", "tea first") == ["tea last", "tea first"]


@pytest.mark.parametrize(
    ("scores", "said"),
    [
        (None, "returned NoneType instead of a list of scores"),
        (1.0, "returned float instead of a list of scores"),
        ("12", "returned str instead of a list of scores"),
        (b"12", "returned bytes instead of a list of scores"),
        ({0: 1.0, 1: 2.0}, "returned dict instead of a list of scores"),
        ({1.0, 2.0}, "returned set instead of a list of scores"),
        ([1.0], "returned 1 score for 2 texts"),
        ([1.0, 2.0, 3.0], "returned 3 scores for 2 texts"),
        ([1.0, "topsecret"], "returned str instead of a number for text 2 of 2"),
        ([1.0, True], "returned bool instead of a number for text 2 of 2"),
        ([1.0, None], "returned NoneType instead of a number for text 2 of 2"),
        ([1.0, [2.0]], "returned list instead of a number for text 2 of 2"),
        (np.array([[1.0], [2.0]]), "returned ndarray instead of a number for text 1 of 2"),
        ([float("nan"), 1.0], r"returned an infinite number or NaN for text 1 of 2"),
        ([1.0, float("-inf")], r"returned an infinite number or NaN for text 2 of 2"),
        ([1.0, 10**400], r"returned an infinite number or NaN for text 2 of 2"),
    ],
)
async def test_anything_else_is_an_error_without_the_text(scores, said):
    """The error names the reranker and the text by its number, and has neither the question nor a text."""
    with pytest.raises(RerankerError, match=f"reranker 'own-1' {said}") as raised:
        await recalled(lambda query, texts: scores, "tea, topsecret", "tea, secret")
    assert "secret" not in str(raised.value)


async def test_what_it_raises_is_the_cause():
    """A recall has one error for every failure of a reranker; its text, which may repeat a note, is not in it."""

    def failing(query, texts):
        raise LookupError(f"topsecret {texts}")

    with pytest.raises(RerankerError, match="reranker 'own-1' failed: LookupError, which is its cause") as raised:
        await recalled(failing, "tea")
    assert isinstance(raised.value.__cause__, LookupError)
    assert "topsecret" not in str(raised.value)


@pytest.mark.parametrize(
    "error", [RerankerError("as it was"), RunError("a budget is used up"), MissingExtraError("this", "static")]
)
async def test_errors_that_say_what_to_do_are_raised_as_they_are(error):
    """Its own error, that of a run whose model it asks, and that of an extra that is missing."""

    def failing(query, texts):
        raise error

    with pytest.raises(type(error)) as raised:
        await recalled(failing, "tea")
    assert raised.value is error


@pytest.mark.every_loop
async def test_it_can_be_cancelled():
    """A recall that waits for a reranker ends when it is cancelled."""

    async def never(query, texts):
        await anyio.sleep_forever()

    with anyio.move_on_after(0.05) as scope:
        await recalled(never, "tea")
    assert scope.cancelled_caught
