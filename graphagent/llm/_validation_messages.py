"""What pydantic finds wrong with data, told briefly and without the data."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError

_MOST = 8


def problems(error: ValidationError) -> list[str]:
    """Give where each of the first problems is, and what it is."""
    found = error.errors(include_url=False, include_input=False, include_context=False)
    told = [f"{'.'.join(map(str, each['loc'])) or 'all of it'}: {each['msg']}" for each in found[:_MOST]]
    return told + ([f"and {len(found) - _MOST} more"] if len(found) > _MOST else [])
