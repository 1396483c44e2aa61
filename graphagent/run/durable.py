"""Runs that are kept in a store: read, forked, compared, executed again, taken along, pruned. A plain file, since it is slow to import."""

from __future__ import annotations

from graphagent.run._durable import describe as describe
from graphagent.run._durable import read as read
from graphagent.run._portable import export_runs as export_runs
from graphagent.run._portable import import_runs as import_runs
from graphagent.run._recording import Recording as Recording
from graphagent.run._recording import read_recording as read_recording
from graphagent.run._runs import RunSize as RunSize
from graphagent.run._runs import choose_runs as choose_runs
from graphagent.run._runs import family as family
from graphagent.run._runs import forget_runs as forget_runs
from graphagent.run._runs import measure_runs as measure_runs
from graphagent.run._runs import prune_runs as prune_runs
from graphagent.run._runs import run_owners as run_owners
from graphagent.run._runs import tree_of as tree_of
from graphagent.run._stored import Moment as Moment
from graphagent.run._stored import Stand as Stand
from graphagent.run._stored import StoredRun as StoredRun
from graphagent.run._stored import compare_runs as compare_runs
from graphagent.run._stored import follow_run as follow_run
from graphagent.run._stored import read_run as read_run
from graphagent.run._stored import run_head as run_head
from graphagent.run._sub_agents import run_inside as run_inside
from graphagent.run._travel import Diff as Diff
from graphagent.run._travel import Entry as Entry
from graphagent.run._travel import Snapshot as Snapshot
from graphagent.run._travel import diff as diff
from graphagent.run._travel import fork as fork
from graphagent.run._travel import history as history
from graphagent.run._travel import rerun as rerun
from graphagent.run._travel import state_at as state_at
