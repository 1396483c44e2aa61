"""The functions that draw a strategy, for its methods."""

from __future__ import annotations

from graphagent.graph.drawing._mermaid import to_mermaid as to_mermaid
from graphagent.graph.drawing._svg import to_svg as to_svg
