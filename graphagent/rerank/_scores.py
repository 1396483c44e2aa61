"""Checks of the scores that a reranker returns, before they are used as an order."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from numbers import Real
from typing import TYPE_CHECKING, Any, cast

from graphagent._article import counted
from graphagent._raised import awaited
from graphagent.errors import MissingExtraError, RerankerError, RunError

if TYPE_CHECKING:
    from graphagent.protocols import Reranker


async def scores_of(reranker: Reranker, query: str, texts: Sequence[str]) -> list[float]:
    """Return a reranker's score for each text, in their order.

    Raises:
        RerankerError: The reranker failed, or did not return one finite number for each text.
        RunError: The reranker asks the model of a run, and that run cannot continue, for example because its budget is used up.
        MissingExtraError: The reranker needs a package that is not installed.
    """
    asked = f"reranker {reranker.name!r}"
    try:
        found: Any = await awaited(reranker.rerank(query, texts), asked)
        kind = type(found).__name__
        # A set has no order, and the items of the other types are not scores.
        if isinstance(found, str | bytes | Mapping | AbstractSet) or not isinstance(found, Iterable):
            raise RerankerError(f"{asked} returned {kind} instead of a list of scores")
        return check_scores(asked, list(cast("Iterable[object]", found)), len(texts))
    except (RerankerError, RunError, MissingExtraError):
        raise
    except Exception as error:
        raise RerankerError(f"{asked} failed: {type(error).__name__}, which is its cause") from error


def check_scores(asked: str, scores: Sequence[object], count: int) -> list[float]:
    """Return scores as floats.

    Raises:
        RerankerError: The scores are not one finite number for each of `count` texts.
    """
    if len(scores) != count:
        raise RerankerError(
            f"{asked} returned {counted(len(scores), 'score')} for {counted(count, 'text')}; it must return one for each"
        )
    found: list[float] = []
    for place, score in enumerate(scores, start=1):
        # A number of numpy is a Real. So is True, which is not a score.
        if isinstance(score, bool) or not isinstance(score, Real):
            given = type(score).__name__
            raise RerankerError(f"{asked} returned {given} instead of a number for text {place} of {count}")
        try:
            number = float(score)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise RerankerError(f"{asked} returned an infinite number or NaN for text {place} of {count}")
        found.append(number)
    return found
