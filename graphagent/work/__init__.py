"""Runs that are executed by workers: in other processes, at other times, on other machines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphagent._lazy import lazy as _lazy
from graphagent.work._schedules import Schedule as Schedule

if not TYPE_CHECKING:
    __getattr__ = _lazy(__name__, {})
