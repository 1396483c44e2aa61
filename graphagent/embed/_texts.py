"""The check of texts that every embedder makes."""

from __future__ import annotations

from collections.abc import Sequence


def check_texts(texts: Sequence[str]) -> list[str]:
    """Return the texts as a list.

    Raises:
        TypeError: they are one text instead of several, or not all text.
        ValueError: one of them is no Unicode text.
    """
    if isinstance(texts, str):
        raise TypeError("an embedder takes a list of texts; for one text write embed([text])")
    given = list(texts)
    for place, text in enumerate(given, start=1):
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]  callers without a type checker
            raise TypeError(f"text {place} of {len(given)} is of type {type(text).__name__}")
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError:
                raise ValueError(
                    f"text {place} of {len(given)} holds half a surrogate pair, which no embedder can read; "
                    f"clean it with .encode('utf-8', 'replace').decode()"
                ) from None
    return given
