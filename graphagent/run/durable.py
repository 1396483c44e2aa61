"""Runs in a store: read without their agent, compared, exported, pruned. A plain file, since it is slow to import."""

from __future__ import annotations

from graphagent.run.stored._export import export_runs as export_runs
from graphagent.run.stored._export import import_runs as import_runs
from graphagent.run.stored._history import Diff as Diff
from graphagent.run.stored._history import Entry as Entry
from graphagent.run.stored._history import Snapshot as Snapshot
from graphagent.run.stored._inspect import Moment as Moment
from graphagent.run.stored._inspect import Stand as Stand
from graphagent.run.stored._inspect import StoredRun as StoredRun
from graphagent.run.stored._inspect import compare_runs as compare_runs
from graphagent.run.stored._inspect import follow_run as follow_run
from graphagent.run.stored._inspect import read_run as read_run
from graphagent.run.stored._inspect import run_head as run_head
from graphagent.run.stored._manage import RunSize as RunSize
from graphagent.run.stored._manage import Thread as Thread
from graphagent.run.stored._manage import choose_runs as choose_runs
from graphagent.run.stored._manage import clear_cache as clear_cache
from graphagent.run.stored._manage import family as family
from graphagent.run.stored._manage import forget_runs as forget_runs
from graphagent.run.stored._manage import forget_thread as forget_thread
from graphagent.run.stored._manage import list_threads as list_threads
from graphagent.run.stored._manage import measure_runs as measure_runs
from graphagent.run.stored._manage import prune_runs as prune_runs
from graphagent.run.stored._manage import run_owners as run_owners
from graphagent.run.stored._manage import tree_of as tree_of
from graphagent.run.stored._rules import broken_rules as broken_rules
