"""The names of this room that other rooms of the package may import, besides those that its door exports for users."""

from __future__ import annotations

from graphagent.run._after import settle as settle
from graphagent.run._after import settle_quietly as settle_quietly
from graphagent.run._answering import begin_features as begin_features
from graphagent.run._assembly import check_features as check_features
from graphagent.run._assembly import check_models as check_models
from graphagent.run._assembly import check_nothing_cached as check_nothing_cached
from graphagent.run._assembly import check_prices as check_prices
from graphagent.run._assembly import check_refusals as check_refusals
from graphagent.run._assembly import check_storable as check_storable
from graphagent.run._assembly import check_tool_edges as check_tool_edges
from graphagent.run._assembly import checked_tools as checked_tools
from graphagent.run._assembly import takes_calls as takes_calls
from graphagent.run._assembly import tool_of as tool_of
from graphagent.run._assembly import tool_with_fields as tool_with_fields
from graphagent.run._beginning import begin as begin
from graphagent.run._building import compile_root as compile_root
from graphagent.run._callbacks import StepCallbacks as StepCallbacks
from graphagent.run._callbacks import callbacks_with_types as callbacks_with_types
from graphagent.run._callbacks import final_checks as final_checks
from graphagent.run._compiled import items_of as items_of
from graphagent.run._config import FinalCheck as FinalCheck
from graphagent.run._config import RunConfig as RunConfig
from graphagent.run._deps import check_deps as check_deps
from graphagent.run._deps import deps_users as deps_users
from graphagent.run._effects import RunEditor as RunEditor
from graphagent.run._final_errors import matching as matching
from graphagent.run._handle import Run as Run
from graphagent.run._past import Past as Past
from graphagent.run._past import new_rules as new_rules
from graphagent.run._questions import Question as Question
from graphagent.run._questions import answer_type as answer_type
from graphagent.run._questions import open_question as open_question
from graphagent.run._reading import look_up_references as look_up_references
from graphagent.run._reading import read_log as read_log
from graphagent.run._reading import read_run as read_run
from graphagent.run._reading import run_over as run_over
from graphagent.run._recorded import Recording as Recording
from graphagent.run._runtime import Runtime as Runtime
from graphagent.run._servers import tool_servers as tool_servers
from graphagent.run._sites import Site as Site
from graphagent.run._sites import sites as sites
from graphagent.run._sites import with_sub_agents as with_sub_agents
from graphagent.run._threads import run_of as run_of
from graphagent.run._threads import thread_record as thread_record
