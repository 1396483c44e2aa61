"""The names of this room that other rooms of the package may import, besides those that its door exports for users."""

from __future__ import annotations

from graphagent.run._assembly import check_features as check_features
from graphagent.run._assembly import check_models as check_models
from graphagent.run._assembly import check_nothing_cached as check_nothing_cached
from graphagent.run._assembly import check_prices as check_prices
from graphagent.run._assembly import check_refusals as check_refusals
from graphagent.run._assembly import check_storable as check_storable
from graphagent.run._assembly import check_tool_edges as check_tool_edges
from graphagent.run._assembly import checked_tools as checked_tools
from graphagent.run._assembly import tool_of as tool_of
from graphagent.run._assembly import tool_with_fields as tool_with_fields
from graphagent.run._config import RunConfig as RunConfig
from graphagent.run._deps import check_deps as check_deps
from graphagent.run._deps import deps_users as deps_users
from graphagent.run._sites import Site as Site
from graphagent.run._sites import sites as sites
from graphagent.run._sites import with_sub_agents as with_sub_agents
from graphagent.run.engine._budgets import check_budgets as check_budgets
from graphagent.run.engine._cache import CacheEntry as CacheEntry
from graphagent.run.engine._callbacks import Check as Check
from graphagent.run.engine._callbacks import callbacks_with_types as callbacks_with_types
from graphagent.run.engine._child_runs import child_run_of as child_run_of
from graphagent.run.engine._compile import compile_root as compile_root
from graphagent.run.engine._decision import decide as decide
from graphagent.run.engine._driver import begin as begin
from graphagent.run.engine._execute import matching as matching
from graphagent.run.engine._middleware import pass_through as pass_through
from graphagent.run.engine._suspend import Suspend as Suspend
from graphagent.run.engine._task_group import together as together
from graphagent.run.engine._tool_servers import tool_servers as tool_servers
