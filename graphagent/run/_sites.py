"""The sites of an agent: the elements of its strategy, its subgraphs and its sub-agents, with what holds at each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from graphagent._features import Features
from graphagent.errors import UnpricedModelError
from graphagent.graph import Node, Strategy, ToolSelection
from graphagent.graph._declarations import LEVELS_OF_AGENT, Declaration
from graphagent.graph._strategy import inside
from graphagent.llm import Tool
from graphagent.llm._wrappers import tells_cost
from graphagent.run._config import Budgets

if TYPE_CHECKING:
    from decimal import Decimal

    from graphagent.graph._strategy import Element
    from graphagent.protocols import Model, ToolServer
    from graphagent.run._config import RunConfig

_NO_FEATURES = Features()
_NO_BUDGETS = Budgets()


@dataclass(frozen=True, eq=False)
class AgentTool(Tool):
    """An agent as a tool of another one."""

    agent: Any = field(kw_only=True, repr=False)
    """The agent."""
    config: Callable[[], RunConfig] = field(kw_only=True, repr=False)
    """Returns the configuration of the agent's runs."""
    read: Callable[[Mapping[str, Any]], object] | None = field(default=None, kw_only=True, repr=False)
    """Returns the task that arguments make up, where they are its fields; raises ArgumentsError if they do not fit."""

    @property
    def declaration(self) -> Declaration:
        """That of the agent, wherever it is a tool or a node."""
        return cast("Declaration", self.agent.as_node().declaration)

    def check(self, arguments: Mapping[str, Any]) -> None:
        """Check that arguments fit the fields of the task."""
        if self.read is not None:
            self.read(arguments)


class AgentNode(Node[Any, Any]):
    """An agent as a node of the strategy of another one."""

    __slots__ = ("agent", "config")

    def __init__(
        self, function: Callable[[Any, Any], Any], name: str, agent: Any, config: Callable[[], RunConfig]
    ) -> None:
        strategy = agent.strategy
        super().__init__(function, name=name, input_type=strategy.input_type, output_type=strategy.output_type)
        self.declaration = Declaration(function, name, runs=strategy.declaration, levels=agent.levels + LEVELS_OF_AGENT)
        self.agent = agent
        self.config = config
        """Returns the configuration of the agent's runs."""

    @property
    def asker(self) -> str:
        """The path of the node in it that asks a person; empty if there is none."""
        inside = self.agent.strategy.asker
        return inside and f"{self.name}/{inside}"


class Site(NamedTuple):
    """An element of a strategy at its place in an agent, with what holds there."""

    path: str
    """Names it in errors; empty for the strategy of the agent itself."""
    element: Element
    """The node, tap or strategy."""
    outer: Site | None
    """The strategy or fork around it; None for the strategy of an agent."""
    model: Model | None
    """The model that it uses."""
    tools: Sequence[Any]
    """The tools, agents and servers that the model may use, as they were passed."""
    max_cost: Decimal | float | None
    """The innermost budget of money in which it counts, and which needs prices."""
    allow_unpriced: bool
    """Whether budgets of money inside need none."""
    features: Features
    """The features of the agent, and of the agents that call it."""
    has_own_tools: bool
    """Whether its tools were passed here, and not around it."""

    def below(self, name: str) -> str:
        """Return the path of something inside."""
        return f"{self.path}/{name}" if self.path else name

    def is_inside(self, other: Site) -> bool:
        """Return whether it is inside of another one."""
        return self.outer is not None and (self.outer is other or self.outer.is_inside(other))

    @property
    def node(self) -> str:
        """How errors name it, such as `node 'find'`."""
        return f"node {self.path!r}"

    @property
    def own_tools(self) -> Iterator[Tool | ToolServer]:
        """The tools and servers that were passed here."""
        return map(as_tool, self.tools if self.has_own_tools else ())

    @property
    def agents(self) -> Iterator[tuple[str, AgentTool | AgentNode]]:
        """The agents that are called here, with their names in the log: those among the tools, and that of the node."""
        yield from ((tool.name, tool) for tool in self.own_tools if isinstance(tool, AgentTool))
        if isinstance(self.element, AgentNode):
            agent = self.element.agent
            yield agent.name or agent.strategy.name, self.element

    @property
    def selection(self) -> ToolSelection | None:
        """How a model chooses its tools, if one does."""
        setting = self.element.setting if isinstance(self.element, Strategy) else None
        return setting.tools if setting is not None and isinstance(setting.tools, ToolSelection) else None


def sites(
    strategy: Strategy[Any, Any],
    tools: Sequence[Any],
    *,
    model: Model | None = None,
    budgets: Budgets = _NO_BUDGETS,
    caller: Site | None = None,
    features: Features = _NO_FEATURES,
    path: str = "",
) -> Iterator[Site]:
    """Yield the sites of an agent: its strategy, and everything in it. A sub-agent has the site of its caller."""
    around, allowed = (None, False) if caller is None else (caller.max_cost, caller.allow_unpriced)
    allowed = allowed or budgets.allow_unpriced
    max_cost = around if allowed or budgets.max_cost is None else budgets.max_cost
    return _walk(Site(path, strategy, None, model, tools, max_cost, allowed, features, has_own_tools=True))


def with_sub_agents(own: Iterable[Site]) -> Iterator[Site]:
    """Yield the sites of an agent, and then those of its sub-agents, which take from it what they lack."""
    own = list(own)
    yield from own
    any_model = next((site.model for site in own if site.model is not None), None)
    for site in own:
        for name, called in site.agents:
            agent = called.agent
            inner = sites(
                agent.strategy,
                (*agent.tools, *agent.tool_servers),
                model=next((each for each in (agent.model, site.model) if each is not None), any_model),
                budgets=agent.budgets,
                caller=site,
                features=Features({**site.features, **agent.features}),
                path=site.below(name),
            )
            yield from with_sub_agents(inner)


def _walk(site: Site) -> Iterator[Site]:
    path, element, outer, model, tools, max_cost, allow_unpriced, features, has_own_tools = site
    if isinstance(element, Strategy) and element.setting is not None:
        own = element.setting
        model = model if own.model is None else own.model
        max_cost = max_cost if allow_unpriced or own.max_cost is None else own.max_cost
        if own.available is not None:
            tools, has_own_tools = own.available, True
        site = Site(path, element, outer, model, tools, max_cost, allow_unpriced, features, has_own_tools)
    yield site
    for name, part in inside(element):
        below = site.below(name)
        yield from _walk(Site(below, part, site, model, tools, max_cost, allow_unpriced, features, has_own_tools=False))


def agent_tool(strategy: Strategy[Any, Any], tools: Sequence[Any], place: str, name: str) -> AgentTool | None:
    """Return the agent of a name among the tools of an agent and of its subgraphs, the innermost around a path first."""
    every = [site for site in sites(strategy, tools) if site.has_own_tools]
    around = [site for site in every if f"{place}/".startswith(site.below(""))]
    found = (tool for site in (*reversed(around), *every) for tool in site.own_tools if tool.name == name)
    return next((tool for tool in found if isinstance(tool, AgentTool)), None)


def as_tool(given: Any) -> Tool | ToolServer:
    """Return a tool as it is, an agent as a tool, and a server of tools as it is."""
    return cast(
        "Tool | ToolServer", given if isinstance(given, Tool) or not hasattr(given, "as_tool") else given.as_tool()
    )


def check_prices(sites: Iterable[Site]) -> None:
    """Check that a budget of money has prices to count with."""
    for site in sites:
        used = [(site.model, site.max_cost)]
        if site.selection is not None and site.outer is not None:
            used.append((site.selection.model, site.outer.max_cost))
        for model, most in used:
            if most is not None and model is not None and not tells_cost(model):
                raise UnpricedModelError(model.name, most)
