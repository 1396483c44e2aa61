"""The parts of the proof of rules that other rooms need. Apart from `graph/_internal.py`, since most programs never load it."""

from __future__ import annotations

from graphagent.graph.rules._proof import check_rules as check_rules
from graphagent.graph.rules._proof import resolved as resolved
