"""Putting a run where its journal says that it is: frames are bound to the compiled strategy, and values are decoded."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from graphagent._article import a
from graphagent.codec._internal import HeldBlobs, decode, read_usage
from graphagent.errors import StrategyChangedError, VetoError
from graphagent.graph import Each, Strategy
from graphagent.graph._internal import differences, is_a, show
from graphagent.llm import ModelResponse, ToolResult
from graphagent.memory import ActionStep
from graphagent.run._compiled import CompiledStrategy
from graphagent.run.engine._driver import RunDriver
from graphagent.run.engine._fork import items_of
from graphagent.run.engine._stored_refs import StoredRef
from graphagent.run.engine._threads import StoredTranscript
from graphagent.run.engine._tool_servers import listed_in
from graphagent.run.journal._reader import read_journal
from graphagent.run.journal._references import look_up
from graphagent.run.journal._transcripts import is_step, transcripts
from graphagent.run.state._entries import NodeEntry, NodeInterrupted
from graphagent.run.state._questions import Question, type_of_answer
from graphagent.run.state._state import Effect

if TYPE_CHECKING:
    from graphagent.run._compiled import CompiledNode
    from graphagent.run._config import RunConfig
    from graphagent.run._result import RunResult
    from graphagent.run.engine._budgets import Meter
    from graphagent.run.engine._context import LiveFrame
    from graphagent.run.journal._header import RunHeader
    from graphagent.run.journal._reader import JournalReader
    from graphagent.run.state._state import Frame
    from graphagent.run.state._status import Status


async def read_run_driver(
    config: RunConfig, owner: str, run_id: str, *, allow_changed: bool = False, children: bool = False
) -> RunDriver:
    """Return a run from the store. It is not claimed before it is resumed.

    With `children`, the runs of sub-agents that ended are read too; those that did not end always are.

    Raises:
        RunNotFoundError: there is no such run.
        StrategyChangedError: the strategy is another one, and the run did not end with it.
        DamagedStoreError: it is not what was written.
    """
    assert config.store is not None
    reader = await read_journal(config.store, owner, run_id)
    await look_up(reader, config.features)
    run = restore(config, reader, allow_changed=allow_changed)
    from graphagent.run.engine._child_runs import read_children, take_up_children

    if not run.done:
        await take_up_children(run, config.store, reader, allow_changed=allow_changed, children=children)
    if children:
        await read_children(run, config.store, reader)
    run.at_rest = _result(run, reader)
    if run.done:
        run.runtime.memory.stored = StoredTranscript(config.store, reader.header, reader.identity)
    return run


def restore(config: RunConfig, reader: JournalReader, *, allow_changed: bool = False) -> RunDriver:
    """Return a run as it is after the last entry of a journal.

    Raises:
        StrategyChangedError: the strategy is another one, and the run did not end with it.
        DamagedStoreError: an entry cannot be read.
    """
    header = reader.header
    reader.read_for(config.compiled, config.strategy.input_type, config.strategy.output_type)
    state = reader.state
    ended = state.status == "done"
    if not ended and not allow_changed:
        _check_same(config, reader)
    run = RunDriver(
        config,
        reader.memory(),
        reader.value(reader.first),
        run_id=header.run_id,
        owner=header.owner,
        parent=header.parent,
        thread=header.thread,
    )
    run.begun, run.journal, run.untouched = True, reader, state.untouched
    runtime = run.runtime
    runtime.finish_reason, runtime.unlearned = state.finish_reason, header.unlearned
    runtime.meter.nodes, runtime.meter.turns, runtime.meter.usage = state.nodes, state.turns, reader.usage()
    runtime.seconds, runtime.charges_before = state.seconds, reader.charges
    if state.listed:
        lists = listed_in(reader)
        runtime.listed = {each.name: each.tools_from(lists[each.name]) for each in config.servers if each.name in lists}
    if not ended:
        # A branch that did nothing but ask, or add steps, has written nothing else: it has a frame that has not moved.
        around = [question["node"].rpartition("/")[0] for question in state.questions]
        drafts = (reader.entry(number) for number in state.drafts)
        for path in (
            *(f"{path}/" for path in around if path),
            *(each.path for each in drafts if isinstance(each, NodeEntry)),
        ):
            state.frame(path)
        first = config.compiled.first
        _bind(run.frame, state.root, reader, *_position(state.root, reader, first, run.task))
        _open_questions(run, reader)
        _restore_drafts(run, reader)
        if (config.checks or config.callbacks) and state.asked:  # they may have a model asked again
            runtime.asked = config.compiled.node(state.asked.partition("/")[0])
        if allow_changed:
            _check_fits(run.frame, reader)
    run.at_rest = _result(run, reader)
    return run


def _result(run: RunDriver, reader: JournalReader) -> RunResult[Any]:
    header = reader.header
    if reader.state.status == "done":
        return run.runtime.result(reader.value(reader.last))
    shown: Status = "failed" if header.state == "interrupted" else header.status
    return run.runtime.result(status=shown, unfinished=header.reason or _unfinished(header))


def _unfinished(header: RunHeader) -> str:
    return "it is being executed" if header.running else "the process that executed it died"


# ---- frames


def _position(frame: Frame, reader: JournalReader, first: CompiledNode, value: Any) -> tuple[CompiledNode, Any]:
    """Return the node before which a frame is, and the value there; `first` and `value` are those of a frame that has not moved."""
    return reader.next_of(frame.number, frame.path) if frame.number else (first, value)


def _bind(live: LiveFrame, frame: Frame, reader: JournalReader, node: CompiledNode, value: Any) -> None:
    """Make a live frame what a frame of a journal is, with the frames inside it."""
    live.number, live.since, live.begun = frame.number, frame.since, frame.begun
    live.attempts, live.own = frame.attempts, frame.own
    live.compiled, live.node, live.value = node, node.name, value
    if frame.number:
        live.ref = _ref(reader, frame.number, value)
    if live.meter.parent is not None and frame.own:
        _spend(live.meter, frame.own)
    reader.current[live.branches] = value
    _restore_effects(live, frame, reader)
    for name, inner in (frame.inside or {}).items():
        if name != node.name or not node.inside:
            raise _gone(reader, _innermost(inner).path)
        if isinstance(node.inside, CompiledStrategy):
            assert isinstance(node.element, Strategy)
            inside = live.enter(name, node.element.setting)
            _bind(inside, inner, reader, *_position(inner, reader, node.inside.first, value))
        else:
            _bind_branches(live, inner, reader, node, node.inside, value)


def _bind_branches(
    live: LiveFrame,
    fork: Frame,
    reader: JournalReader,
    node: CompiledNode,
    branches: Sequence[CompiledNode],
    value: Any,
) -> None:
    every = isinstance(node.element, Each)
    items = ([] if not isinstance(value, Iterable) else items_of(value)) if every else [value] * len(branches)  # pyright: ignore[reportUnknownArgumentType]
    if fork.number or not fork.inside:  # it was a strategy
        raise _gone(reader, fork.path)
    for name, frame in fork.inside.items():
        if not name.isdecimal():
            raise _gone(reader, _innermost(frame).path)
        entry = reader.entry(frame.number) if frame.number else None
        branch = branches[min(int(name), len(branches) - 1)]
        ended = entry.node if isinstance(entry, NodeEntry) else branch.name
        if int(name) >= len(items) or ended != branch.name:
            raise _gone(reader, f"{frame.path}{ended}")
    for name, frame in fork.inside.items():
        number = int(name)
        branch = branches[min(number, len(branches) - 1)]
        names = (*live.branches, (frame.path, live.inside_since))
        memory = reader.memory(names) if reader.has_transcript(names) else live.memory.fork()
        inside = live.enter(node.name, branch=number, memory=memory)
        _bind(inside, frame, reader, *_position(frame, reader, branch, items[number]))


def _ref(reader: JournalReader, number: int, value: Any) -> StoredRef | None:
    """Return the reference to the value that an entry passed on."""
    if value is not reader.value(number):
        return StoredRef.of(value, {"$at": [number, "handed"]}, HeldBlobs(), reader.type_passed(number))
    return StoredRef.of(value, reader.place_of(number), HeldBlobs(), reader.type_of(number))


def _restore_effects(live: LiveFrame, frame: Frame, reader: JournalReader) -> None:
    if not frame.effects:
        return
    live.effects = {}
    arrived: list[ToolResult] = []
    for key, effect in frame.effects.items():
        number, answer = effect.number, effect.answer
        outcome = reader.effect(number, answer)
        live.effects[key] = Effect(outcome, number, answer)
        if isinstance(outcome, ModelResponse):
            live.runtime.with_own_ids(outcome.message.tool_calls)  # so that no later call has one of their ids
            live.remember_ref(StoredRef(outcome.message, {"$at": [number, "message"]}))
        elif isinstance(outcome, ToolResult):
            live.remember_ref(StoredRef(outcome, {"$at": [number]}))
            arrived.append(outcome)
        elif answer >= 0 and type(outcome) is str:
            live.remember_ref(StoredRef(outcome, {"$at": [number, "answers", answer]}))
    if arrived:
        live.memory.arrived = arrived


def _spend(meter: Meter, own: Sequence[Any]) -> None:
    """Set what the enclosing strategies had spent, the innermost first. Of several branches, the largest amount is the last."""
    each = meter
    for nodes, turns, *usage in own:
        if each.parent is None:
            return
        each.nodes, each.turns = max(each.nodes, nodes), max(each.turns, turns)
        each.usage = max(each.usage, read_usage(usage), key=lambda spent: (spent.total_tokens, spent.cost))
        each = each.parent


def _innermost(frame: Frame) -> Frame:
    """Return the first of the innermost frames of a frame."""
    while frame.inside:
        frame = next(iter(frame.inside.values()))
    return frame


def _gone(reader: JournalReader, path: str) -> StrategyChangedError:
    return StrategyChangedError(reader.header.run_id, [f"- {path.rstrip('/')!r}, inside of which the run is"])


# ---- questions and drafts


def _open_questions(run: RunDriver, reader: JournalReader) -> None:
    for stored in reader.state.questions:
        asking = next((frame for frame in run.frame.live_frames() if _asks(frame, stored["node"])), None)
        if asking is None:
            continue
        element = asking.compiled.element if asking.compiled is not None else None
        with reader.reading(reader.last):
            text, about = decode(stored["question"], reader.blobs), reader.about(stored)
        kind = type_of_answer("answer", element)
        question = Question(stored["id"], text, stored["node"], stored["kind"], about, kind)
        run.runtime.ask(question, asking)


def _asks(frame: LiveFrame, path: str) -> bool:
    return frame.node_path == path and not frame.inside


def _restore_drafts(run: RunDriver, reader: JournalReader) -> None:
    """Restore the steps that interrupted nodes had added.

    Raises:
        DamagedStoreError: an entry cannot be read.
    """
    drafts = reader.state.drafts
    if not drafts:
        return
    shown = transcripts(reader, drafts_from=drafts[0])
    for number in drafts:
        entry = reader.entry(number)
        assert isinstance(entry, NodeInterrupted)
        branches = tuple((path, since) for path, since in entry.branch)
        for frame in run.frame.live_frames() if entry.node else ():  # at END, the answer is added again
            if (frame.path, frame.node, frame.branches) == (entry.path, entry.node, branches):
                _restore_draft(frame, entry, shown[branches].steps)
                break


def _restore_draft(frame: LiveFrame, entry: NodeInterrupted, shown: Sequence[Any]) -> None:
    memory, again = frame.memory, set(entry.again)
    frame.savepoint = savepoint = memory.mark()
    steps = iter(shown[len(memory.steps) :])
    for place, change in enumerate(entry.steps or ()):
        if "shut" in change:
            [step] = memory.shut()
            next(steps)
        elif is_step(change):
            step = copy.copy(next(steps))  # where it counts, it is not written yet
        elif "trust" in change:
            memory.lower(change["trust"])
            continue
        else:
            return  # an edit, which is made of steps that are added again
        memory.steps.append(step)
        step = memory.steps[-1]
        if place in again:
            if isinstance(step, ActionStep) and step.error is not None and step.error.type == "Veto":
                savepoint.refused[len(savepoint.added)] = VetoError("ActionStep", step.error.message)
            savepoint.added.append(step)


# ---- is it the same strategy?


def _check_same(config: RunConfig, reader: JournalReader) -> None:
    outline = config.strategy.outline
    if outline.digest != reader.header.strategy_digest:
        found = differences(reader.state.strategy, outline)
        if found:
            raise StrategyChangedError(reader.header.run_id, found)


def _check_fits(frame: LiveFrame, reader: JournalReader) -> None:
    """Check that every pending value still matches the input type of the node that receives it."""
    for each in frame.inside_out():
        if each.compiled is None:
            continue
        takes = getattr(each.compiled.element, "input_type", object)
        if not is_a(each.value, takes):
            raise StrategyChangedError(
                reader.header.run_id,
                [f"+ node {each.node_path!r} takes {show(takes)}, and {a(type(each.value).__name__)} is there"],
            )
