"""The version, which pyproject.toml has too."""

from __future__ import annotations

__version__ = "0.1.0"
