"""The names of stored runs that other rooms of the package may import. Apart from `run/_internal.py`, since they are slow to import."""

from __future__ import annotations

from graphagent.run.engine._restore import read_run_driver as read_run_driver
from graphagent.run.stored._history import diff as diff
from graphagent.run.stored._history import fork as fork
from graphagent.run.stored._history import history as history
from graphagent.run.stored._history import rerun as rerun
from graphagent.run.stored._history import state_at as state_at
