"""The check of the texts passed to an embedder."""

from __future__ import annotations

from collections.abc import Sequence


def check_texts(texts: Sequence[str]) -> list[str]:
    """Return the texts as a list.

    Raises:
        TypeError: `texts` is a single text, or an item is not a text.
        ValueError: A text is not valid Unicode.
    """
    if isinstance(texts, str):
        raise TypeError("embed() takes a list of texts; for one text write embed([text])")
    given = list(texts)
    for place, text in enumerate(given, start=1):
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]  some callers have no type checker
            raise TypeError(f"text {place} of {len(given)} must be a str, not {type(text).__name__}")
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError:
                raise ValueError(
                    f"text {place} of {len(given)} contains half a surrogate pair, which no embedder can read; "
                    f"clean it with .encode('utf-8', 'replace').decode()"
                ) from None
    return given
