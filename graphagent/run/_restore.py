"""Putting a run back to where its recording says that it stands."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from graphagent.codec._internal import HeldBlobs, decode, read_usage
from graphagent.errors import StrategyChangedError
from graphagent.graph import Each, Strategy
from graphagent.llm import Approve, Deny, ModelResponse, ToolResult
from graphagent.run._engine import items_of
from graphagent.run._held import Held
from graphagent.run._journal import Journal
from graphagent.run._places import Place
from graphagent.run._plan import Plan
from graphagent.run._said import said_last, say_again
from graphagent.run._suspend import Question

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from graphagent.run._budgets import Meter
    from graphagent.run._context import Context
    from graphagent.run._log import Log
    from graphagent.run._plan import Slot
    from graphagent.run._recording import Recording


_BEGINNING = Place(0)


def restore(ctx: Context, recording: Recording) -> None:
    """Set where a run stands, what was done there, what was spent, and what it waits for.

    Raises:
        StrategyChangedError: the strategy has no such place any more.
        DamagedStoreError: an entry cannot be read.
    """
    state = ctx.state
    state.meter.nodes, state.meter.turns, state.meter.usage, state.seconds = recording.spent()
    state.charges_before = recording.charges
    places = recording.places()
    asked = open_questions(recording)
    for question in asked:  # where nothing was done before there is no other trace of a branch
        prefix = question["node"].rpartition("/")[0]
        if prefix:
            places.setdefault(f"{prefix}/", Place(0))
    said = said_last(recording)
    for number in said:
        places.setdefault(recording.entry(number).get("in", ""), Place(0))
    _stand(ctx, recording, places, *recording.next_of(places[""].number, ""))
    reached = set(_prefixes(ctx))
    gone = next((path for path in places if path not in reached), None)
    if gone is not None:
        raise _gone(recording, gone)
    _ask(ctx, recording, asked)
    say_again(ctx, recording, said)


def _prefixes(ctx: Context) -> Iterator[str]:
    yield ctx.prefix
    for part in (ctx.parts or {}).values():
        yield from _prefixes(part)


def _gone(recording: Recording, path: str) -> StrategyChangedError:
    return StrategyChangedError(recording.head.run_id, [f"- {path.rstrip('/')!r}, inside of which the run is"])


def resumed(recording: Recording, log: Log) -> Journal:
    """Give the journal that goes on behind a recording."""
    journal = Journal(log)
    journal.mark = recording.mark
    journal.task = Held.of(recording.value(1), {"$at": [1]}, HeldBlobs(), recording.takes)
    return journal


def _stand(ctx: Context, recording: Recording, places: Mapping[str, Place], slot: Slot, value: Any) -> None:
    place = places.get(ctx.prefix)
    if place is not None:
        if place.number:
            slot, value = recording.next_of(place.number, ctx.prefix)
            ctx.held = _held(recording, place.number, value)
            ctx.number = place.number
        ctx.entered = place.entered or ctx.entered
        ctx.attempts = dict(place.attempts) or None
        if ctx.meter.parent is not None and place.own:
            _spend(ctx.meter, place.own)
    ctx.at, ctx.slot = (slot, value), slot
    recording.standing[ctx.branches] = value
    if place is not None:
        _do(ctx, recording, place, slot)
    inside = slot.inside
    if isinstance(inside, Plan):
        prefix = f"{ctx.prefix}{slot.name}/"
        if any(path.startswith(prefix) for path in places) and isinstance(slot.element, Strategy):
            inner = ctx.inside(slot.name, slot.element.setting)
            ctx.parts = {"": inner}
            _stand(inner, recording, places, inside.first, value)
    elif inside:
        _fork(ctx, recording, places, inside, value)


def _held(recording: Recording, number: int, value: Any) -> Held | None:
    """Give where the journal has the value that an entry led to."""
    if value is not recording.value(number):
        return Held.of(value, {"$at": [number, "handed"]}, HeldBlobs(), recording.kind_handed(number))
    return Held.of(value, recording.place_of(number), HeldBlobs(), recording.kind_of(number))


def _fork(
    ctx: Context, recording: Recording, places: Mapping[str, Place], inside: tuple[Slot, ...], value: Any
) -> None:
    slot = ctx.slot
    assert slot is not None
    prefix = f"{ctx.prefix}{slot.name}/"
    since: dict[int, int] = {}
    for path, place in places.items():
        if path.startswith(prefix):
            part = path[len(prefix) :].partition("/")[0]
            if not part.isdecimal():
                raise _gone(recording, path)
            since[int(part)] = max(since.get(int(part), 0), place.number if path == f"{prefix}{part}/" else 0)
    every = isinstance(slot.element, Each)
    items = ([] if not isinstance(value, Iterable) else items_of(value)) if every else [value] * len(inside)
    ctx.parts = {}
    for number in sorted(since, key=lambda each: since[each]):  # the first to end has won a race
        name = f"{slot.name}/{number}"
        one, moved = inside[min(number, len(inside) - 1)], places.get(f"{prefix}{number}/", _BEGINNING)
        ended = recording.entry(moved.number).get("node", one.name) if moved.number else one.name
        if number >= len(items) or ended != one.name:
            raise _gone(recording, f"{prefix}{number}/{ended}")
        branches = (*ctx.branches, (f"{ctx.prefix}{name}/", ctx.entered))
        memory = recording.memory(branches) if recording.said_in(branches) else ctx.memory.fork()
        branch = ctx.parts[str(number)] = ctx.inside(name, memory=memory, branch=True)
        _stand(branch, recording, places, one, items[number])


def _do(ctx: Context, recording: Recording, place: Place, slot: Slot) -> None:
    """Set what was done already."""
    if place.effects or place.intents:
        ctx.effects = {}
        arrived: list[ToolResult] = []
        for key, (number, answered) in place.effects.items():
            effect = recording.effect(number, answered, kind_of_answer(key, slot))
            ctx.effects[key] = effect
            if isinstance(effect, ModelResponse):
                ctx.state.own(effect.message.tool_calls)  # so that no later call has one of their ids
                ctx.know(Held(effect.message, {"$at": [number, "message"]}))
            elif isinstance(effect, ToolResult):
                ctx.know(Held(effect, {"$at": [number]}))
                arrived.append(effect)
            elif answered >= 0 and type(effect) is str:
                ctx.know(Held(effect, {"$at": [number, "answers", answered]}))
        if arrived:
            ctx.memory.arrived = arrived
        ctx.effects.update((f"begun:{key}", True) for key in place.intents)


def kind_of_answer(key: str, slot: Slot | None) -> Any:
    """Give the declared type of what a node did under a key, where that is what a person answered."""
    if key.startswith("answer:"):
        return Approve | Deny
    return (
        getattr(getattr(slot.element, "function", None), "asks", Any) if slot is not None and key == "answer" else Any
    )


def _spend(meter: Meter, own: list[Any]) -> None:
    """Set what was spent in the strategies around, the innermost first. Of what several branches tell, the most is the last."""
    each = meter
    for nodes, turns, *usage in own:
        if each.parent is None:
            return
        each.nodes, each.turns = max(each.nodes, nodes), max(each.turns, turns)
        each.usage = max(each.usage, read_usage(usage), key=lambda spent: (spent.total_tokens, spent.cost))
        each = each.parent


def open_questions(recording: Recording) -> list[dict[str, Any]]:
    """Give the questions that were open when the run stopped, as they are kept."""
    for number in range(recording.last, 0, -1):
        entry = recording.entry(number)
        if entry["t"] != "said":
            return list(entry.get("questions", ()))
    return []


def _ask(ctx: Context, recording: Recording, asked: list[dict[str, Any]]) -> None:
    """Open questions again."""
    for kept in asked:
        asking = _find(ctx, kept["node"])
        if asking is None:
            continue
        element = asking.slot.element if asking.slot is not None else None
        with recording.reading(recording.last):
            text, about = decode(kept["question"], recording.blobs), recording.about(kept)
        kind = getattr(getattr(element, "function", None), "asks", Any)
        ctx.state.ask(Question(kept["id"], text, kept["node"], kept["kind"], about, kind), asking)


def _find(ctx: Context, node: str) -> Context | None:
    """Give who stands at a node."""
    if ctx.node == node and not ctx.parts:
        return ctx
    return next((found for part in (ctx.parts or {}).values() if (found := _find(part, node)) is not None), None)


def finished_last(recording: Recording) -> str | None:
    """Return why a model stopped when it was asked for an answer last; None: none was."""
    for number in range(recording.last, 0, -1):
        entry = recording.entry(number)
        # A tool's requests have the id of its call in front of their keys.
        if "response" in entry and "/" not in entry["key"] and not entry["key"].startswith(("plan:", "summary:")):
            finish: str = entry["response"]["finish"]
            return finish
    return None


def asked_last(recording: Recording) -> Slot | None:
    """Give the place of the agent's own strategy where a model was asked last."""
    if recording.plan is None:
        return None
    for number in range(recording.last, 0, -1):
        entry = recording.entry(number)
        if entry["t"] == "effect" and entry["key"].startswith("model:"):
            return recording.plan.slot((entry.get("in", "") + entry["node"]).partition("/")[0])
    return None
