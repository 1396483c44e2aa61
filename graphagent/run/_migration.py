"""Moving runs of an earlier version of a strategy to a later one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from graphagent._article import kind_of
from graphagent._options import check_text
from graphagent.errors import MigrationError
from graphagent.graph._internal import is_a
from graphagent.llm._internal import problems
from graphagent.log._internal import PLACED, UNSET, Migrated
from graphagent.run._past import place_of

if TYPE_CHECKING:
    from graphagent.log._internal import Frame, Log
    from graphagent.run._runtime import Runtime


@dataclass(frozen=True, slots=True)
class Migration:
    """How runs of one version of a strategy continue in the next one: `Agent(…, version="2", migrations=[Migration("1", "2", …)])`.

    A run that has not ended is moved when it continues: the node where it is gets its name in the later version, and its input
    is converted. What the node has done already, such as answers of models and results of tools, stays done.

    Raises:
        TypeError, ValueError: a version or a name is not valid.
    """

    before: str
    """The version with which the runs began: that of their agent, or the digest of its strategy (`strategy.outline.digest`)."""
    after: str
    """The version with which they continue."""
    nodes: Mapping[str, str] = field(default_factory=dict[str, str])
    """The paths of nodes, such as `draft` or `review/draft`, with the paths that they have in the later version. A run that is at
    a node that is not here stays at the node of the same path."""
    inputs: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict[str, "Callable[[Any], Any]"])
    """Functions that convert the input of a node in whose place a run is, by the path in the later version. Each gets plain data
    (texts, numbers, lists, dictionaries), and returns the input, or plain data of it."""

    def __post_init__(self) -> None:
        """Check the names."""
        for name, text in (("before=", self.before), ("after=", self.after)):
            check_text(name, text)
            if not text:
                raise ValueError(f"{name[:-1]} is the name of a version, such as '1', and not empty")
        for old, new in self.nodes.items():
            if old.rpartition("/")[0] != new.rpartition("/")[0]:
                raise ValueError(
                    f"nodes={{{old!r}: {new!r}}} moves a node to another subgraph, and a run cannot follow; "
                    "name a node of the same strategy"
                )
        for place, function in self.inputs.items():
            if not callable(function):
                raise TypeError(f"inputs={{{place!r}: …}} is a function of the input, not {kind_of(function)}")


def checked_migrations(migrations: Iterable[Migration], version: str) -> tuple[Migration, ...]:
    """Return the migrations of an agent, of which each leads to its version.

    Raises:
        TypeError: one is not a Migration.
        ValueError: two begin with the same version, or one does not lead to the version of the agent.
    """
    found = tuple(migrations)
    after: dict[str, str] = {}
    for each in found:
        if not isinstance(each, Migration):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"migrations= is a list such as [Migration('1', '2')], and one of it is {kind_of(each)}")
        if each.before in after:
            raise ValueError(f"two migrations begin with version {each.before!r}; keep one")
        after[each.before] = each.after
    for each in found:
        end, steps = each.before, 0
        while end != version and end in after and steps <= len(after):
            end, steps = after[end], steps + 1
        if end != version:
            raise ValueError(
                f"the migration from version {each.before!r} leads to {end!r}, and not to version {version!r} of the agent; "
                f"add a Migration({end!r}, {version!r})"
            )
    return found


def migrate(run: Runtime, log: Log) -> bool:
    """Append how a run of an earlier version is moved to that of its agent. Return False if no migration leads from its version.

    Raises:
        MigrationError: a function of a migration raised, or returned what the node does not take.
    """
    config, header = run.config, log.header
    by_version = {each.before: each for each in config.migrations}
    version, chain = header.version or header.strategy_digest, list[Migration]()
    while version != config.version and version in by_version:
        chain.append(by_version[version])
        version = chain[-1].after
    if not chain or version != config.version:
        return False
    for frame in log.state.root.of_agent():
        if frame.node:
            _move(run, log, frame, chain)
    return True


def _move(run: Runtime, log: Log, frame: Frame, chain: list[Migration]) -> None:
    """Append what becomes of the node in whose place a frame is."""
    outline = log.state.run.strategy
    place, origin = place_of(outline, frame.node_path), place_of(outline, frame.source.path)
    converted, value = False, None
    for each in chain:
        place, origin = each.nodes.get(place, place), each.nodes.get(origin, origin)
        convert = each.inputs.get(place)
        if convert is not None and frame.value is not UNSET:
            if not converted:
                converted, value = True, log.codec.take_plain(frame.value)
            try:
                value = convert(value)
            except Exception as error:
                raise MigrationError(
                    run.run_id, each.before, each.after, f"the function for {place!r} raised {type(error).__name__}"
                ) from error
    to = place.rpartition("/")[2]
    source = _renamed(frame.source.path, origin)
    if not converted:
        if to != frame.node or source != frame.source.path:
            log.append(Migrated(at=frame.path, to=to, source=source))
        return
    kind = run.config.kind_of(frame.path + to, PLACED)
    fitting = _fitting(value, kind)
    if isinstance(fitting, list):
        last, found = chain[-1], "; ".join(fitting)
        raise MigrationError(
            run.run_id, last.before, last.after, f"what the function for {place!r} returned does not fit: {found}"
        )
    log.append(Migrated(at=frame.path, to=to, value=log.keep(fitting[0], kind), converted=True))


def _fitting(value: Any, kind: Any) -> tuple[Any] | list[str]:
    """Return the value that a function returned, of the type that the node takes; or what does not fit."""
    if is_a(value, kind):
        return (value,)
    from pydantic import TypeAdapter, ValidationError

    try:
        return (TypeAdapter(kind).validate_python(value),)
    except ValidationError as error:
        return problems(error)


def _renamed(path: str, place: str) -> str:
    """Return a path in a run whose last part has the name of that of a path in the strategy."""
    around, slash, _ = path.rpartition("/")
    return path if place == "?" or not path else f"{around}{slash}{place.rpartition('/')[2]}"
