"""Ready-made strategies, made of public names only: read them, use them, copy them."""

from __future__ import annotations

from graphagent_strategies._chat import chat as chat
from graphagent_strategies._personal import personal as personal
from graphagent_strategies._plan_and_execute import plan_and_execute as plan_and_execute
from graphagent_strategies._react import react as react
from graphagent_strategies._reflect import reflect as reflect
from graphagent_strategies._research import research as research
from graphagent_strategies._route import Expert as Expert
from graphagent_strategies._route import route as route
from graphagent_strategies._single_run import single_run as single_run
from graphagent_strategies._verify_with_retry import verify_with_retry as verify_with_retry
