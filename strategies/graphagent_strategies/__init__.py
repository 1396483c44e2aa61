"""Ready-made strategies, made of public names only: read them, use them, copy them."""

from __future__ import annotations

from graphagent_strategies._personal import personal as personal
from graphagent_strategies._react import react as react
from graphagent_strategies._single_run import single_run as single_run
