"""The tools of servers, which are known only when the servers are asked: once in a run, which then keeps them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from graphagent.errors import ToolServerError
from graphagent.events import ToolServerSkipped
from graphagent.log._entries import ToolsListed
from graphagent.protocols import ToolServer
from graphagent.run._concurrently import together
from graphagent.run._effects import Effects
from graphagent.run._final_errors import Suspend
from graphagent.run._sites import sites

if TYPE_CHECKING:
    from graphagent.llm import Tool
    from graphagent.run._agent_run import AgentRun
    from graphagent.run._sites import Site

SCOPE = "servers"
"""The beginning of the keys of answers to servers that list their tools, for which the node that comes next never looks."""


def tool_servers(sites: Iterable[Site]) -> tuple[ToolServer, ...]:
    """Return the servers among the tools of sites.

    Raises:
        ValueError: two of them have one name.
    """
    found: dict[str, ToolServer] = {}
    for each in (each for site in sites for each in site.own_tools):
        if isinstance(each, ToolServer) and found.setdefault(each.name, each) is not each:
            raise ValueError(
                f"two tool servers are named {each.name!r}, and runs know them by their names; give one name="
            )
    return tuple(found.values())


def take_tools(run: AgentRun) -> Mapping[str, Sequence[Tool]]:
    """Return the tools of the servers that the run has asked, as this process has the servers, and give them to the run.

    Raises:
        ToolServerError: the settings of a server do not fit its tools.
    """
    known, listed = run.activation.listed, dict(run.listed or {})
    for server in run.config.servers:
        if server.name in known and server.name not in listed:
            listed[server.name] = server.tools_from(run.log.take(known[server.name]))
    run.listed = listed
    return listed


async def list_tools(run: AgentRun) -> None:
    """Ask the servers that the run has not asked yet for their tools, all at the same time, and record these.

    A server that is not required and fails is recorded as one without tools.

    Raises:
        ToolServerError: one cannot be reached, or a tool of it is not valid, or has the name of another tool.
        Suspend: one asks a person.
    """
    listed = dict(take_tools(run))
    asked = [server for server in run.config.servers if server.name not in listed]
    answers: dict[str, Sequence[Mapping[str, Any]]] = {}

    async def ask(number: int) -> None:
        server = asked[number]
        try:
            found = await server.list_tools(Effects(run.walk()).within(SCOPE).within(server.name).context())
            listed[server.name] = server.tools_from(found)
        except ToolServerError as error:
            if server.required:
                raise
            run.emit(ToolServerSkipped(run.run_id, server.name, str(error)))
            found = listed[server.name] = ()
        except Suspend:  # the others finish first
            return
        answers[server.name] = found

    await together(ask, len(asked))
    for server in asked:
        if server.name in answers:
            value = run.log.keep(list(answers[server.name]))
            run.log.append(ToolsListed(at=run.frame.path, server=server.name, value=value))
    if len(answers) < len(asked):
        raise Suspend
    run.listed = listed
    of_features = {tool.name for feature in run.features.having("tools") for tool in feature.tools}
    for site in sites(run.config.strategy, run.config.tools):
        _check_names(list(site.own_tools), listed, of_features)


def _check_names(
    declared: Sequence[Tool | ToolServer], listed: Mapping[str, Sequence[Tool]], of_features: Iterable[str]
) -> None:
    own = (*of_features, *(each.name for each in declared if not isinstance(each, ToolServer)))
    taken = dict.fromkeys(own, "the agent")
    for server in declared:
        if isinstance(server, ToolServer):
            for tool in listed[server.name]:
                if tool.name in taken:
                    reason = f"has a tool {tool.name!r}, and so has {taken[tool.name]}; give the server prefix=, rename= or only="
                    raise ToolServerError(server.name, reason)
                taken[tool.name] = f"the tool server {server.name!r}"
