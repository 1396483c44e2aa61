"""The model of `graphagent chat` and `graphagent demo` that needs neither a key nor a network."""

from __future__ import annotations

from graphagent.cli.offline._model import ABOUT as ABOUT
from graphagent.cli.offline._model import STAND_IN as STAND_IN
from graphagent.cli.offline._model import OfflineModel as OfflineModel
