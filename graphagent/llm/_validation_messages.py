"""Short messages for validation errors of pydantic, without the data."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError

_MOST = 8


def problems(error: ValidationError) -> list[str]:
    """Return the place and the message of each of the first problems."""
    found = error.errors(include_url=False, include_input=False, include_context=False)
    lines = [f"{'.'.join(map(str, each['loc'])) or 'all of it'}: {each['msg']}" for each in found[:_MOST]]
    return lines + ([f"and {len(found) - _MOST} more"] if len(found) > _MOST else [])
