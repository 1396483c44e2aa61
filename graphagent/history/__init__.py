"""What happened in runs: read, forked, compared, executed again, exported, removed.

Rows of a log come in, entries for people, other runs and files come out. Read the files in this order: `_entries` (what happened, and
the state after each entry), `_carried` and `_fork` (runs that begin as others), `_rerun` (executing a run again),
`_import` (conversations of elsewhere),
`_runs`, `_questions`, `_removing`, `_export` and `_redacting` (the runs of a store), `_places`, `_reach` and `_forgetting` (over everything kept),
`_inspect` and `_drawing` (a run with its drawing), `_following`, `_watching`, `_rules` and `_without_agent` (runs without their agents).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphagent._lazy import lazy as _lazy
from graphagent.history._entries import Diff as Diff
from graphagent.history._entries import Entry as Entry
from graphagent.history._entries import Snapshot as Snapshot
from graphagent.history._entries import compare_runs as compare_runs
from graphagent.history._export import export_runs as export_runs
from graphagent.history._export import import_runs as import_runs
from graphagent.history._export import verify_runs as verify_runs
from graphagent.history._forgetting import forget as forget
from graphagent.history._import import import_thread as import_thread
from graphagent.history._inspect import NodeStatus as NodeStatus
from graphagent.history._inspect import Progress as Progress
from graphagent.history._inspect import StoredRun as StoredRun
from graphagent.history._inspect import follow_run as follow_run
from graphagent.history._inspect import read_failure as read_failure
from graphagent.history._inspect import read_run as read_run
from graphagent.history._places import Place as Place
from graphagent.history._questions import PendingQuestion as PendingQuestion
from graphagent.history._questions import list_questions as list_questions
from graphagent.history._reach import Reached as Reached
from graphagent.history._reach import reach as reach
from graphagent.history._redacting import redact_runs as redact_runs
from graphagent.history._removing import clear_cache as clear_cache
from graphagent.history._removing import forget_runs as forget_runs
from graphagent.history._removing import forget_thread as forget_thread
from graphagent.history._removing import prune_runs as prune_runs
from graphagent.history._rules import broken_rules as broken_rules
from graphagent.history._runs import RunSize as RunSize
from graphagent.history._runs import Thread as Thread
from graphagent.history._runs import choose_runs as choose_runs
from graphagent.history._runs import family as family
from graphagent.history._runs import list_threads as list_threads
from graphagent.history._runs import measure_runs as measure_runs
from graphagent.history._runs import run_head as run_head
from graphagent.history._runs import run_owners as run_owners
from graphagent.history._watching import RunWatch as RunWatch
from graphagent.history._without_agent import answer_run as answer_run
from graphagent.history._without_agent import end_run as end_run
from graphagent.history._without_agent import pause_run as pause_run
from graphagent.history._without_agent import resume_run as resume_run

if not TYPE_CHECKING:
    __getattr__ = _lazy(__name__, {})
