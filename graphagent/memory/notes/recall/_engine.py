"""The scores of a search engine of the user's own, checked before anything is ranked by them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import TYPE_CHECKING, cast

from graphagent._article import kind_of
from graphagent.errors import NoteError
from graphagent.memory.notes.index._engine import asked

if TYPE_CHECKING:
    from graphagent.memory._note_values import Filter
    from graphagent.protocols import NoteIndex

_COSINE = 1.001
"""The highest cosine: with numbers of single precision it may be a little above 1."""


async def engine_scores(index: NoteIndex, query: str, fits: Filter, limit: int) -> dict[str, dict[str, float]]:
    """Return the scores that a search engine gives to notes by their ids: of words as `lexical`, and cosines as `semantic`."""
    called = f"{type(index).__name__}.search()"
    found: object = await asked(index, "search", lambda index: index.search(query, fits, limit))
    given = _mapping(found, f"{called} returned", "a dict of scores, such as {'lexical': {id: 2.5}}")
    scores: dict[str, dict[str, float]] = {}
    for kind, of_kind in given.items():
        if not isinstance(kind, str) or kind not in ("lexical", "semantic"):
            raise NoteError(f"{called} returned scores of the kind {kind!r}; there are 'lexical' and 'semantic'")
        each = f"{called} returned for {kind!r}"
        scores[kind] = {
            _id(id_, each): _score(score, kind, f"{each} and note {id_!r}")
            for id_, score in _mapping(of_kind, each, "a dict of scores by the ids of notes").items()
        }
    return scores


def _mapping(value: object, returned: str, wanted: str) -> Mapping[object, object]:
    if not isinstance(value, Mapping):
        raise NoteError(f"{returned} {kind_of(value)} instead of {wanted}")
    return cast("Mapping[object, object]", value)


def _id(value: object, returned: str) -> str:
    if not isinstance(value, str):
        raise NoteError(f"{returned} a score for {kind_of(value)} instead of the id of a note")
    return value


def _score(value: object, kind: str, returned: str) -> float:
    # A number of numpy is a Real; True is one too, and no score.
    if isinstance(value, bool) or not isinstance(value, Real):
        raise NoteError(f"{returned} {kind_of(value)} instead of a number")
    number = float(value)
    if kind == "semantic" and not abs(number) <= _COSINE:
        raise NoteError(f"{returned} {number!r}, which is not a cosine: those are from -1 to 1")
    if kind == "lexical" and not 0 <= number < math.inf:
        raise NoteError(f"{returned} {number!r}; scores of words are finite and not below 0, the higher the better")
    return number
