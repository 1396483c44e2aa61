"""Reading the log of a run with the types that a strategy declares, and the facts and notes that it refers to.

A run of an earlier version of the strategy is moved to the present one, if a migration says how.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from graphagent._article import a
from graphagent.errors import (
    DamagedStoreError,
    MigrationError,
    RunError,
    RunNotFoundError,
    StrategyChangedError,
)
from graphagent.graph._forks import Each
from graphagent.graph._outline import differences
from graphagent.graph._types import is_a, show
from graphagent.llm._validation_messages import problems
from graphagent.log._bytes import may_refer, plain
from graphagent.log._entries import Migrated
from graphagent.log._log import Log
from graphagent.log._replay import Replay, place_of
from graphagent.log._segments import root_of
from graphagent.log._submitted import read_either
from graphagent.log._visits import PLACED, UNSET, Source
from graphagent.memory._references import ALL_KINDS, reference_to, references_in
from graphagent.memory.transcript._again import known_in, show_again
from graphagent.run._compiled import CompiledStrategy, items_of
from graphagent.run._session import Session

if TYPE_CHECKING:
    from graphagent._features import Features
    from graphagent.log._bytes import EntryCodec
    from graphagent.log._header import RunHeader
    from graphagent.log._log import Watch
    from graphagent.log._visits import Activation, Frame
    from graphagent.memory._blocks import Known
    from graphagent.memory.transcript._transcript import Transcript
    from graphagent.run._agent_run import AgentRun
    from graphagent.run._config import RunConfig
    from graphagent.run._migration import Migration


async def read_log(
    config: RunConfig, owner: str, run_id: str, *, until: int | None = None, watch: Watch | None = None
) -> Log:
    """Return the log of a run, read and folded: see `Log.read`.

    Raises:
        RunNotFoundError: the run does not exist.
        StoreError: it could not be read.
    """

    async def look_up(codec: EntryCodec, rows: Sequence[bytes]) -> None:
        await look_up_references(config.features_at, owner, codec, rows)

    log = await Log.read(
        config.runs, owner, run_id, types=config.kind_of_step, look_up=look_up, until=until, watch=watch
    )
    log.codec.refers_at[""] = config.refers
    return log


async def read_any_log(config: RunConfig, owner: str, run_id: str) -> Log:
    """Return the log of a run, as `read_log` does; of one that was submitted and has not begun, as it would begin now, in no thread.

    Raises:
        RunNotFoundError: the run does not exist.
        StoreError: it could not be read.
    """

    async def look_up(codec: EntryCodec, rows: Sequence[bytes]) -> None:
        await look_up_references(config.features_at, owner, codec, rows)

    log = await read_either(config.runs, owner, run_id, types=config.kind_of_step, look_up=look_up)
    log.codec.refers_at[""] = config.refers
    return log


async def read_run(config: RunConfig, owner: str, run_id: str, *, allow_changed: bool = False) -> AgentRun:
    """Return a run from the store, or that of a sub-agent in it. It is not claimed before it is resumed.

    Raises:
        RunNotFoundError: the run does not exist.
        RunError: it is that of an agent that a node runs by itself, of which nothing is known here.
        StrategyChangedError: the strategy is another one, and the run did not end with it.
        ToolServerError: the settings of a server do not fit the tools that the run has of it.
    """
    root = await root_of(config.runs, owner, run_id)
    log = None if config.has_rules else await read_log(config, owner, root)
    if log is None or any(each.ruled and each.status == "running" for each in log.state.activations()):
        replay = Replay(config.ruled_in)
        log = await read_log(config, owner, root, watch=replay.watch)
        log.past = replay.executed
    run = run_over(config, log, allow_changed=allow_changed)
    return run if root == run_id else _part_of(run, run_id)


def _part_of(run: AgentRun, run_id: str) -> AgentRun:
    """Return the run of a sub-agent inside another one."""
    agent = next((each for each in run.log.state.activations() if run.session.id_of(each) == run_id), None)
    if agent is None:
        raise RunNotFoundError(run_id, run.owner)
    found = run.session.run_of(agent)
    if found is None:
        text = f"run {run_id!r} is that of an agent that node {agent.node!r} runs by itself, so its types are not known here"
        raise run.of_run(
            RunError(f"{text}; read it with graphagent.history.read_run(store, {run_id!r}, owner={run.owner!r})")
        )
    return found


def run_over(config: RunConfig, log: Log, *, allow_changed: bool = False) -> AgentRun:
    """Return a run over a log that was read.

    Raises:
        StrategyChangedError: the strategy is another one, and the run did not end with it.
        ToolServerError: the settings of a server do not fit the tools that the run has of it.
    """
    header, run = log.header, unchecked_run(config, log)
    if not run.over:
        outline = config.strategy.outline
        other = _other_version(config, header)
        differs = bool(other) or outline.digest != header.strategy_digest
        moved = differs and not allow_changed and migrate(run, log)
        if differs and not (allow_changed or moved):
            assert log.state.run.strategy is not None
            raise _changed(run, log, header.run_id, [*other, *differences(log.state.run.strategy, outline)])
        _check_frames(run, log.state.root, config.compiled, None, allow_changed=allow_changed or moved)
        _check_agents(run, log, allow_changed=allow_changed)
        if config.compiled.ruled:
            _check_ruled(run, log)
        if config.servers:
            from graphagent.run._deps import take_tools

            take_tools(run)
    return run


def _other_version(config: RunConfig, header: RunHeader) -> list[str]:
    """Return the difference between the versions of a run and of its agent; empty if they are the same, or one has no name and the same digest."""
    if header.version == config.named_version:
        return []
    if not (header.version and config.named_version) and config.strategy.outline.digest == header.strategy_digest:
        return []
    return [f"- version {header.version or header.strategy_digest!r}", f"+ version {config.version!r}"]


def unchecked_run(config: RunConfig, log: Log) -> AgentRun:
    """Return a run over a log that was read, whether it fits the strategy or not."""
    header = log.header
    session = Session(config, log, run_id=header.run_id, owner=header.owner)
    session.thread, run = header.thread, session.run
    run.before = log.state.ran / 1000
    log.executed = lambda: run.elapsed
    return run


def _changed(run: AgentRun, log: Log, run_id: str, found: Sequence[str]) -> StrategyChangedError:
    """Return the error of a strategy that has changed: it says whether `allow_changed` would help, and otherwise what does not fit."""
    try:
        _check_frames(run, log.state.root, run.config.compiled, None, allow_changed=True)
        _check_agents(run, log, allow_changed=True)
    except StrategyChangedError as error:
        return StrategyChangedError(run_id, [*found, *error.differences])
    return StrategyChangedError(run_id, found, fits=True)


def _check_ruled(run: AgentRun, log: Log) -> None:
    """Check that nodes that have begun and that rules name are declared where they were: they would take what others did for theirs.

    Raises:
        StrategyChangedError: one is not.
    """
    for frame in run.frame.of_agent():
        place = place_of(run.config.strategy.outline, frame.node_path)
        before, now = log.state.run.declared.get(place), run.config.strategy.declarations.get(place)
        node = run.config.find(frame.node_path) if frame.visit.node and before != now else None
        asks = any(each.at == frame.path for each in log.state.questions.values())
        if (
            node is not None
            and node.rules
            and (asks or frame.visit.effects or frame.visit.started or frame.visit.inside)
        ):
            difference = f"- node {frame.node_path!r}, which has begun and which a rule names, is another one now"
            raise StrategyChangedError(run.run_id, [difference])


def _check_agents(run: AgentRun, log: Log, *, allow_changed: bool) -> None:
    """Check the same for sub-agents that have not ended."""
    for agent in log.state.activations():
        inside = (
            run.session.run_of(agent) if agent.parent is not None and agent.frame.path in log.state.frames else None
        )
        if inside is None or agent.status != "running" or agent.strategy is None:
            continue
        outline = inside.config.strategy.outline
        if not allow_changed and outline.digest != agent.strategy.digest:
            raise _changed(run, log, inside.run_id, differences(agent.strategy, outline))
        _check_frames(inside, agent.frame, inside.config.compiled, None, allow_changed=allow_changed)


def _check_frames(run: AgentRun, frame: Frame, strategy: CompiledStrategy, given: Any, *, allow_changed: bool) -> None:
    """Check that the strategy has the nodes in which the run is, and that these take the values that are there.

    `given` is the input of the frame, where it has none of its own.
    """
    path = run.path_of(frame)
    node = strategy.node(frame.visit.node or "")
    if node is None:
        raise StrategyChangedError(run.run_id, [f"- {path + (frame.visit.node or '')!r}, where the run is"])
    value = given if frame.visit.input is UNSET else value_at(run, frame)
    takes = getattr(node.element, "input_type", object)
    if allow_changed and frame.visit.node and not is_a(value, takes):
        raise StrategyChangedError(
            run.run_id,
            [f"+ node {path + frame.visit.node!r} takes {show(takes)}, and {a(type(value).__name__)} is there"],
        )
    branches = frame.visit.inside.get("branches", ())
    if branches and isinstance(node.inside, CompiledStrategy) and not branches[0].owns:
        _check_frames(run, branches[0], node.inside, value, allow_changed=allow_changed)
        return
    declared = () if isinstance(node.inside, CompiledStrategy) else node.inside
    values = [value] * len(branches)
    if declared and branches and isinstance(node.element, Each):
        values = items_of(value)
        declared = declared * len(values)
    for number, inside in enumerate(branches):
        gone = inside.path
        if number < len(declared) and inside.owns:
            branch = declared[number]
            if inside.visit.node or inside.visit.source in (Source(gone + branch.name), Source(gone, PLACED)):
                one = CompiledStrategy.of_branch(branch)
                _check_frames(run, inside, one, values[number], allow_changed=allow_changed)
                continue
            gone = inside.visit.source.path
        gone = gone[len(run.frame.path) :].rstrip("/")
        raise StrategyChangedError(run.run_id, [f"- {gone!r}, inside of which the run is"])


def value_at(run: AgentRun, frame: Frame) -> Any:
    """Return the input of the current node of a frame.

    Raises:
        StrategyChangedError: it does not fit the declared type any more.
    """
    codec, source = run.log.codec, frame.visit.source
    try:
        return codec.take(frame.visit.input, run.kind_of(source))
    except ValueError as error:
        reason = str(error)
    try:
        codec.take_plain(frame.visit.input)
    except ValueError as error:
        damage = str(error)
    else:
        node = f"node {source.path[len(run.frame.path) :]!r}" if source.path else "the task"
        raise StrategyChangedError(run.run_id, [f"- the type of the value of {node}: {reason}"])
    raise DamagedStoreError(f"run {run.run_id!r}", damage)


async def look_up_references(
    features_at: Callable[[str], Features], owner: str, codec: EntryCodec, rows: Sequence[bytes]
) -> None:
    """Look up the facts and notes to which rows refer, so that transcripts show those that still exist.

    Args:
        features_at: Returns the features that hold in the frame of a path.
        owner: Whose they are.
        codec: Gets what was found.
        rows: The rows.

    Raises:
        StoreError: they could not be read.
    """
    entries: dict[str, list[Any]] = {}
    for row in rows:
        if may_refer(row):
            for entry in plain(row)[2]:
                entries.setdefault(entry.get("at", ""), []).append(entry)
    codec.source.known = {}
    for path, there in entries.items():
        unread = list({reference_to(known): known for known in references_in(there)}.values())
        found = await _looked_up(features_at(path), owner, unread)
        codec.source.known.update(
            (reference_to(known), as_found)
            for known, as_found in zip(unread, found, strict=True)
            if as_found is not known
        )


async def _looked_up(features: Features, owner: str, known: Sequence[Known]) -> list[Known]:
    """Return facts and notes as they are stored, each kind from the first feature that refers to it; others as they are.

    Raises:
        StoreError: they could not be read.
    """
    found = list(known)
    with_references = features.having("refers")
    for kind in ALL_KINDS if found else ():
        feature = next((each for each in with_references if kind in each.refers), None)
        places = [place for place, each in enumerate(found) if reference_to(each).kind == kind]
        if feature is not None and places:
            looked_up = await feature.look_up([found[place] for place in places], owner=owner)
            for place, each in zip(places, looked_up, strict=True):
                found[place] = each
    return found


async def look_up_again(features: Features, owner: str, transcripts: Iterable[Transcript]) -> None:
    """Look up the facts and notes to which transcripts in memory refer: some may have been forgotten since.

    Raises:
        StoreError: they could not be read.
    """
    transcripts = list(transcripts)
    known = known_in(transcripts) if features.having("refers") else []
    show_again(transcripts, known, await _looked_up(features, owner, known))


async def look_up_again_in(run: AgentRun) -> None:
    """Look up the facts and notes to which a run refers that continues, those of each agent in it by its own features.

    Raises:
        StoreError: they could not be read.
    """
    agents: dict[int, tuple[Activation, list[Transcript]]] = {}
    for frame in run.frame.frames():
        agents.setdefault(id(frame.agent), (frame.agent, []))[1].append(frame.transcript)
    for agent, transcripts in agents.values():
        if agent is run.activation:
            await look_up_again(run.features, run.owner, transcripts)
        elif known_in(transcripts):
            inside = run.session.run_of(agent)
            if inside is not None:  # the features of one that a node runs by itself are known when it continues
                await look_up_again(inside.features, run.owner, transcripts)


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
