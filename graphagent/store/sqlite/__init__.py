"""A store in one SQLite file."""

from __future__ import annotations
