"""What other rooms need of the proof of rules. Apart from `graph/_internal.py`, since most programs never load it."""

from __future__ import annotations

from graphagent.graph.rules._proof import check_rules as check_rules
from graphagent.graph.rules._proof import resolved as resolved
