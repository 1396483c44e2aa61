"""Runs that are kept in a store: begun, claimed, let go, read again."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio

from graphagent import _clock
from graphagent._article import a
from graphagent.errors import (
    GraphAgentError,
    RunClaimedError,
    RunExistsError,
    SerializationError,
    StrategyChangedError,
)
from graphagent.graph import Each, Node, Parallel, Race, Strategy, Tap, TapOf
from graphagent.graph._internal import is_a, show
from graphagent.run._claim import Claim, Token
from graphagent.run._facts import look_up
from graphagent.run._head import Head
from graphagent.run._journal import Journal
from graphagent.run._log import Log
from graphagent.run._recording import Recording, read_head, read_recording
from graphagent.run._restore import asked_last, finished_last, restore, resumed
from graphagent.run._run import Run

if TYPE_CHECKING:
    from graphagent.graph import Edge
    from graphagent.memory import FinalAnswerStep
    from graphagent.protocols import Store
    from graphagent.run._context import Context
    from graphagent.run._result import RunResult, Status
    from graphagent.run._setup import Setup

_log = logging.getLogger("graphagent")
_TITLE = 80


async def create(run: Run[Any], store: Store) -> None:
    """Write the beginning of a run.

    Raises:
        RunExistsError: there is one of this id.
        StoreError: it could not be written.
    """
    setup, state, ctx = run.setup, run.state, run.context
    lines = describe(setup.strategy)
    now = _clock.now()
    token = Token(state.journal.log.token if state.journal is not None else None)
    task = run.task
    head = Head(
        state.run_id, state.owner, setup.strategy.name, fingerprint(lines), now, now,
        title=task[:_TITLE] if isinstance(task, str) else "", parent=run.parent, claim=Claim.of(token),
    )  # fmt: skip
    # Where this was broken off before, the run may be there already, as it was written then.
    journal = state.journal or Journal(Log(store, head, token.id))
    state.journal = journal
    try:
        with token, anyio.CancelScope(shield=True):  # cancelled in its middle, nobody would let the run go
            await journal.begin(ctx, lines, task, setup.strategy.input_type, setup.plan.first)
    except RunClaimedError as error:
        state.journal = None
        raise RunExistsError(state.run_id, state.owner) from error
    except SerializationError:
        state.journal = None
        raise
    run.token = token


async def claim(run: Run[Any], store: Store) -> None:
    """Take a run that nobody executes, and write that it goes on, with the answers that there are.

    Raises:
        RunClaimedError: someone executes it, or went on with it since it was read.
        StoreError: it could not be read or written.
    """
    state = run.state
    head, version = await read_head(store, state.owner, state.run_id)
    if head.claim is not None and head.claim.holds():
        raise RunClaimedError(state.run_id, head.claim.holder)
    journal, recording = state.journal, run.recording
    known = journal.log.last if journal is not None else recording.last if recording is not None else 0
    if head.last > known:  # of entries alone it could not be told: two that say the same in one millisecond are alike
        raise RunClaimedError(state.run_id, "someone else, who went on with it")
    token = Token()
    taken = replace(head, claim=Claim.of(token), status="running", reason="")
    if journal is not None and journal.answered:  # it has only to be committed
        journal.log.take(_told(run, head, "done", ""), token.id, version)
        run.token = token
        return
    if journal is None:
        assert recording is not None
        if recording.facts or recording.notes:  # some may have been forgotten since it was read
            await look_up(recording, run.setup.features)
        lines = describe(run.setup.strategy)
        changed = fingerprint(lines) != head.fingerprint
        taken = replace(taken, fingerprint=fingerprint(lines))
        log = Log(store, taken, token.id, last=recording.last, version=version)
        if recording.head.origin is None:  # payloads of an origin may go with it
            log.has(recording.blobs.held)
        journal = resumed(recording, log)
        journal.changed = lines if changed else None
        state.journal = journal
        run.recording = None
    else:
        journal.log.take(taken, token.id, version)
    answers = [
        (state.asking[id_], state.questions[id_].key, *state.questions[id_].kept(answer))
        for id_, answer in state.answers.items()
    ]
    journal.resumed(run.context, answers)
    note_edits(run, journal)
    with token, anyio.CancelScope(shield=True):
        await journal.commit(head=True)
    run.token = token


async def let_go(run: Run[Any], status: Status, reason: str, failure: Exception | None) -> None:
    """Write that a run stops, and let it go. Where it failed, or was cancelled, no other error is raised."""
    state, journal = run.state, run.state.journal
    if journal is None:
        return
    try:
        if journal.answered:  # nothing may come behind the answer
            await journal.commit(head=True)
        else:
            journal.log.head = _told(run, journal.log.head, status, reason)
            await journal.stopped(run.context, _standing(run.context), failure)
    except GraphAgentError as error:
        if status not in ("failed", "cancelled"):
            raise
        _log.warning("run %r could not be let go: %s", state.run_id, type(error).__name__)
    finally:
        run.token = None


async def conclude(run: Run[Any], step: FinalAnswerStep) -> None:
    """Write the answer of a run, and let it go.

    Raises:
        NodeFailedError: it cannot be kept.
        RunError: it could not be committed; it is, when the run is finished again.
    """
    journal = run.state.journal
    assert journal is not None
    if not journal.answered:
        journal.final(run.context, step.output)
        journal.log.head = _told(run, journal.log.head, "done", "")
    await journal.commit(head=True)
    run.token = None


async def keep_edits(run: Run[Any]) -> None:
    """Write what was changed in the transcripts while the run stood still.

    Raises:
        RunError: it could not be committed; it is, when the run goes on.
    """
    journal = run.state.journal
    if journal is not None and not journal.answered:
        note_edits(run, journal)
        await journal.commit()


def note_edits(run: Run[Any], journal: Journal) -> None:
    """Tell what was changed in the transcripts, but for those to which a node has added that has not ended."""
    standing: dict[int, Context] = {}
    adding = set[int]()
    for ctx in _standing(run.context):
        standing.setdefault(id(ctx.memory), ctx)
        if ctx.mark is not None and ctx.mark.added:
            adding.add(id(ctx.memory))
    for ctx in reversed(standing.values()):  # branches begin with what stands around them
        if id(ctx.memory) not in adding:
            journal.edited(ctx)


def _told(run: Run[Any], head: Head, status: Status, reason: str) -> Head:
    state = run.state
    return replace(
        head, status=status, reason=reason, claim=None, turns=state.meter.turns, tokens=state.usage.total_tokens,
        cost=str(state.usage.cost), seconds=round(state.elapsed, 3),
    )  # fmt: skip


def _standing(ctx: Context) -> Iterator[Context]:
    """Give all contexts, what stands inside first: there a value is that was heard last."""
    for part in (ctx.parts or {}).values():
        yield from _standing(part)
    yield ctx


async def read(
    setup: Setup, owner: str, run_id: str, *, allow_changed: bool = False, children: bool = False
) -> Run[Any]:
    """Give a run from the store, as it stands there. It is not claimed before it goes on.

    With `children`, the runs of sub-agents that ended are read too; those that did not always are.

    Raises:
        RunNotFoundError: there is none.
        StrategyChangedError: the strategy is another one, and the run did not end with it.
        DamagedStoreError: it is not what was written.
    """
    assert setup.store is not None
    recording, _ = await read_recording(setup.store, owner, run_id)
    await look_up(recording, setup.features)
    run = stand(setup, recording, allow_changed=allow_changed)
    if not run.done:
        from graphagent.run._sub_agents import take_up

        await take_up(run, setup.store, recording, allow_changed=allow_changed, children=children)
    if children:
        from graphagent.run._sub_agents import read_children

        await read_children(run, setup.store, recording)
    run.at_rest = _shown(run, recording)
    return run


def stand(setup: Setup, recording: Recording, *, allow_changed: bool = False) -> Run[Any]:
    """Give a run as it stands in a recording."""
    head = recording.head
    recording.read_for(setup.plan, setup.strategy.input_type, setup.strategy.output_type)
    ended = recording.last and recording.entry(recording.last)["t"] == "final"
    if not ended and not allow_changed:
        _check_same(setup.strategy, recording)
    run: Run[Any] = Run(
        setup,
        recording.memory(),
        recording.value(1),
        run_id=head.run_id,
        owner=head.owner,
        parent=head.parent,
        begun=True,
    )
    run.recording, run.untouched = recording, _untouched(recording)
    state = run.state
    state.finish_reason, state.unlearned = finished_last(recording), head.unlearned
    if ended:
        state.meter.nodes, state.meter.turns, state.meter.usage, state.seconds = recording.spent()
        state.charges_before = recording.charges
        run.at_rest = _shown(run, recording)
        return run
    restore(run.context, recording)
    if setup.checks or setup.callbacks:  # they may have a model asked again
        state.asked = asked_last(recording)
    if allow_changed:
        _check_fits(run.context, recording)
    run.at_rest = _shown(run, recording)
    return run


def _untouched(recording: Recording) -> bool:
    """Tell whether callbacks have yet to let pass what the run was given: it failed before it did anything."""
    last = recording.last
    while last > 1 and recording.entry(last)["t"] == "resume":
        last -= 1
    if last == 1:
        return True
    failed = recording.entry(last).get("status") == "failed" and not recording.spent()[0]
    return failed and all(recording.entry(number)["t"] in ("stop", "resume") for number in range(2, last))


def _shown(run: Run[Any], recording: Recording) -> RunResult[Any]:
    if recording.last and recording.entry(recording.last)["t"] == "final":
        return run.state.result(recording.value(recording.last))
    head = recording.head
    status = head.state
    shown: Status = "failed" if status == "interrupted" else head.status
    return run.state.result(status=shown, unfinished=head.reason or _unfinished(head))


def _unfinished(head: Head) -> str:
    return "it is being executed" if head.running else "the process that executed it died"


def _check_same(strategy: Strategy[Any, Any], recording: Recording) -> None:
    lines = describe(strategy)
    if fingerprint(lines) == recording.head.fingerprint:
        return
    before = next(
        recording.entry(number)["strategy"]
        for number in range(recording.last, 0, -1)
        if "strategy" in recording.entry(number)
    )
    if before != lines:
        gone = [f"- {line}" for line in before if line not in lines]
        new = [f"+ {line}" for line in lines if line not in before]
        raise StrategyChangedError(recording.head.run_id, [*gone, *new] or ["the order of its paths"])


def _check_fits(ctx: Context, recording: Recording) -> None:
    """See that what stands somewhere is still taken there."""
    for part in _standing(ctx):
        if part.at is None:
            continue
        slot, value = part.at
        takes = getattr(slot.element, "input_type", object)
        if not is_a(value, takes):
            raise StrategyChangedError(
                recording.head.run_id,
                [f"+ node {part.node!r} takes {show(takes)}, and {a(type(value).__name__)} is there"],
            )


def describe(strategy: Strategy[Any, Any]) -> list[str]:
    """Give what a resume compares of a strategy: names, edges and declared types, a line each. Not what tests do."""
    return [
        f"strategy {strategy.name}: {show(strategy.input_type)} -> {show(strategy.output_type)}",
        *_lines(strategy, ""),
    ]


def _lines(node: Node[Any, Any], prefix: str) -> Iterator[str]:
    if isinstance(node, Strategy):
        for name, element in node.elements_by_name.items():
            if isinstance(element, Tap | TapOf):
                yield f"tap {prefix}{name}"
                continue
            kind = type(element).__name__.lower()
            yield f"{kind} {prefix}{name}: {show(element.input_type)} -> {show(element.output_type)}"
            yield from _lines(element, f"{prefix}{name}/")
        for edge in node.edges:
            label = _label(edge)
            yield f"edge {prefix}{edge.source.name} -> {prefix}{edge.target.name}{f' {label}' if label else ''}"
    elif isinstance(node, Parallel | Each | Race):
        for number, branch in enumerate(node.branches):
            yield f"branch {prefix}{number}/{branch.name}: {show(branch.input_type)} -> {show(branch.output_type)}"
            yield from _lines(branch, f"{prefix}{number}/{branch.name}/")


def _label(edge: Edge) -> str:
    rules = edge.outlet.rules if edge.outlet is not None else ()
    told = (
        rule.label if rule.kinds or rule.error or rule.label == "otherwise" else rule.label.split()[0] for rule in rules
    )
    return ", ".join(told)


def fingerprint(lines: list[str]) -> str:
    """Name a strategy by what `describe` says of it."""
    import hashlib

    return hashlib.blake2b("\n".join(lines).encode(), digest_size=12).hexdigest()
