"""Options that are passed as keywords, and listed by a TypedDict."""

from __future__ import annotations

from collections.abc import Mapping


def check_options(owner: str, options: Mapping[str, object], kind: type, *more: str) -> None:
    """Check that each option is one of a TypedDict, or of `more`.

    Raises:
        TypeError: one is not; the error names the nearest of those that are.
    """
    for name in options:
        if name not in kind.__annotations__:
            from difflib import get_close_matches

            known = (*kind.__annotations__, *more)
            nearest = get_close_matches(name, known, n=1)
            hint = f"did you mean {nearest[0]}=?" if nearest else f"there are {', '.join(known)}"
            raise TypeError(f"{owner} has no option {name!r}; {hint}")
