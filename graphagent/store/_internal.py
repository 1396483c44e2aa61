"""What other rooms need of stores."""

from __future__ import annotations

from graphagent.store._bulk import collect as collect
from graphagent.store._bulk import get_many as get_many
from graphagent.store._cache import Cache as Cache
from graphagent.store._fork_safety import in_use as in_use
