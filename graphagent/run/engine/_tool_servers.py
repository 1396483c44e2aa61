"""The tools of servers, which are known only when the servers are asked: once in a run, which then keeps them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from graphagent._features import implementing
from graphagent.codec._internal import decode
from graphagent.errors import ToolServerError
from graphagent.protocols import ToolServer
from graphagent.run._sites import sites
from graphagent.run.state._entries import ToolsListed

if TYPE_CHECKING:
    from graphagent.llm import Tool
    from graphagent.run._config import RunConfig
    from graphagent.run._sites import Site
    from graphagent.run.engine._runtime import Runtime
    from graphagent.run.journal._reader import JournalReader

Listed = Sequence[Mapping[str, Any]]


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


async def list_tools(config: RunConfig, runtime: Runtime, known: Mapping[str, Listed]) -> None:
    """Ask the servers that the run has not asked yet for their tools, and record these. Those that are known are not asked.

    Raises:
        ToolServerError: one cannot be reached, or a tool of it is not valid, or has the name of another tool.
    """
    listed = runtime.listed = runtime.listed or {}
    for server in config.servers:
        if server.name not in listed:
            found = known.get(server.name)
            found = await server.list_tools() if found is None else found
            listed[server.name] = server.tools_from(found)
            if runtime.journal is not None:
                runtime.journal.tools_listed(server.name, found)
    of_features = {tool.name for feature in implementing(runtime.features, "tools") for tool in feature.tools}
    for site in sites(config.strategy, config.tools):
        _check_names(list(site.own_tools), listed, of_features)


def _check_names(
    declared: Sequence[Tool | ToolServer], listed: Mapping[str, Sequence[Tool]], of_features: Iterable[str]
) -> None:
    taken = {*of_features, *(each.name for each in declared if not isinstance(each, ToolServer))}
    for server in declared:
        if isinstance(server, ToolServer):
            for tool in listed[server.name]:
                if tool.name in taken:
                    reason = (
                        f"has a tool {tool.name!r}, and so has the agent; give the server prefix=, rename= or only="
                    )
                    raise ToolServerError(server.name, reason)
                taken.add(tool.name)


def listed_in(reader: JournalReader) -> dict[str, Listed]:
    """Return the descriptions of tools in a journal, by the names of the servers.

    Raises:
        DamagedStoreError: an entry cannot be read.
    """
    found: dict[str, Listed] = {}
    for name, number in reader.state.listed.items():
        entry = reader.entry(number)
        assert isinstance(entry, ToolsListed)
        with reader.reading(number):
            found[name] = decode(entry.value, reader.blobs)
    return found
