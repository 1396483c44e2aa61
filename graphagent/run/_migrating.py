"""Moving runs of an earlier version of a strategy to a later one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphagent.errors import MigrationError
from graphagent.graph._types import is_a
from graphagent.llm._validation_messages import problems
from graphagent.log._entries import Migrated
from graphagent.log._replay import place_of
from graphagent.log._visits import PLACED, UNSET

if TYPE_CHECKING:
    from graphagent.log._log import Log
    from graphagent.log._visits import Frame
    from graphagent.run._agent_run import AgentRun
    from graphagent.run._migration import Migration


def migrate(run: AgentRun, log: Log) -> bool:
    """Append how a run of an earlier version is moved to that of its agent. Return False if no migration leads from its version."""
    config, header = run.config, log.header
    by_version = {each.before: each for each in config.migrations}
    version = header.version or header.strategy_digest
    chain: list[Migration] = []
    while version != config.version and version in by_version:
        chain.append(by_version[version])
        version = chain[-1].after
    if not chain or version != config.version:
        return False
    for frame in log.state.root.of_agent():
        if frame.visit.node:
            _move(run, log, frame, chain)
    return True


def _move(run: AgentRun, log: Log, frame: Frame, chain: list[Migration]) -> None:
    """Append what becomes of the node in whose place a frame is."""
    outline = log.state.run.strategy
    place, origin = place_of(outline, frame.node_path), place_of(outline, frame.visit.source.path)
    converted, value = False, None
    for each in chain:
        place, origin = each.nodes.get(place, place), each.nodes.get(origin, origin)
        convert = each.inputs.get(place)
        if convert is not None and frame.visit.input is not UNSET:
            if not converted:
                converted, value = True, log.codec.take_plain(frame.visit.input)
            try:
                value = convert(value)
            except Exception as error:
                raise MigrationError(
                    run.run_id, each.before, each.after, f"the function for {place!r} raised {type(error).__name__}"
                ) from error
    to = place.rpartition("/")[2]
    source = _renamed(frame.visit.source.path, origin)
    if not converted:
        if to != frame.visit.node or source != frame.visit.source.path:
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
