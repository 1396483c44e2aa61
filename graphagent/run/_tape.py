"""Recorded results in the place of live calls."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from graphagent.errors import DivergedError, StrategyChangedError
from graphagent.graph import Race
from graphagent.llm import ModelRequest, ModelResponse, ToolCall, ToolCalls, ToolResult
from graphagent.run._ledger import Charge
from graphagent.run._restore import kind_of_answer, open_questions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from graphagent.run._context import Context
    from graphagent.run._recording import Recording


@dataclass(slots=True)
class _Did:
    """What one execution of a node did."""

    node: str
    """Its path."""
    done: dict[str, Any] = field(default_factory=dict[str, Any])
    """The results, under their keys."""
    over: bool = False
    """Whether it ended."""
    again: bool = False
    """Whether it was tried again, or something around it was."""
    left: bool = False
    """Whether what stands around it ended."""
    calls: dict[str, Mapping[str, Any]] = field(default_factory=dict[str, "Mapping[str, Any]"])
    """The arguments of the tool calls that stood before it, under their ids."""


_Tracks = dict[str, list[_Did]]
"""What the strategies and branches did, each under its prefix, in order."""


@dataclass(slots=True)
class _Round:
    """One execution of a race."""

    winner: int
    tracks: _Tracks
    """What its branches did."""
    rounds: dict[str, list[_Round]]
    """The races inside of them."""


class Tape:
    """What the nodes of a run did, up to an entry of it."""

    def __init__(self, recording: Recording, until: int, *, live: bool) -> None:
        """Read it.

        Args:
            recording: The run.
            until: The entry.
            live: Whether what is behind it is done live.
        """
        self._charged = recording.charged
        self._live = live
        reader = _Reader(recording, until)
        self._tracks, self._rounds = reader.tracks, reader.rounds
        self._waiting = {
            (asked["node"], f"call:{asked['id']}")
            for asked in (open_questions(recording) if until == recording.last else ())
            if asked["kind"] in ("approval", "result")
        }
        """The tool calls, with their nodes, that wait for a person or for a result from outside: nothing is recorded of these."""
        self._now: dict[str, _Did] = {}
        """The executions that are under way, under the prefixes of their strategies and branches."""
        self._last: dict[str, _Did] = {}
        """Those that were begun last."""

    # ---- what a node is about to do

    def has(self, ctx: Context[Any], key: str, like: object) -> bool:
        """Tell whether there is a result for what a node is about to do; it is done live only behind the recorded ones.

        Raises:
            DivergedError: it does something else than what was recorded.
        """
        did = self._find(ctx, key)
        if did is not None and key in did.done:
            if not _is_alike(like, did.done[key], did):
                raise _diverged(ctx, f"it does {key!r} with something else")
            return True
        if self._is_behind(ctx, did) or (ctx.node, key) in self._waiting:
            return False
        known = next(iter(did.done), None) if did is not None else None
        following = next(iter(self._tracks.get(ctx.prefix, ())), None)
        if known is not None:
            raise _diverged(ctx, f"it does {key!r}, and {known!r} was recorded")
        if did is None and following is not None:
            raise _diverged(ctx, f"it does {key!r}, where node {following.node!r} came next")
        raise _diverged(ctx, f"it does {key!r}, and nothing more was recorded of it")

    def refuse(self, ctx: Context[Any], what: str) -> None:
        """Refuse what is not recorded, but where all is done live.

        Raises:
            DivergedError: it is not.
        """
        if not self._is_behind(ctx, self._find(ctx, "")):
            raise _diverged(ctx, f"{what}, which is not recorded")

    def answers(self, ctx: Context[Any], key: str) -> bool:
        """Tell whether something was recorded under a key of the node, such as a person's answer."""
        did = self._find(ctx, key)
        return did is not None and key in did.done

    def take(self, ctx: Context[Any], key: str) -> Any:
        """Give the result, once, and count what it cost."""
        did = self._now[ctx.prefix]
        found = did.done.pop(key)
        if isinstance(found, ModelResponse):
            ctx.spend(found.usage, key, found.model)
        elif isinstance(found, ToolResult):
            # What was done within a call whose result is known is left out.
            for name in [name for name in did.done if name.startswith(f"{found.call_id}/")]:
                inside = did.done.pop(name)
                if isinstance(inside, ModelResponse):
                    ctx.spend(inside.usage, name, inside.model)
            if found.run_id:
                ctx.spend(self._charged(found.run_id), found.name, run_id=found.run_id)
        return found

    def _find(self, ctx: Context, key: str) -> _Did | None:
        """Give what was recorded of the execution of a node that is under way."""
        prefix = ctx.prefix
        did = self._now.get(prefix) or self._next(prefix, ctx.node)
        while did is not None and did.again and key and key not in did.done:  # what failed there may not fail now
            later = self._next(prefix, ctx.node)
            if later is None:
                break
            did = later
        return did

    def _next(self, prefix: str, node: str) -> _Did | None:
        track, last = self._tracks.get(prefix, []), self._last.get(prefix)
        for place, did in enumerate(track):
            if did.node == node:
                del track[: place + 1]
                self._now[prefix] = self._last[prefix] = did
                return did
            # Nodes that do nothing may come and go; what others did may be left out only if it was tried again.
            if did.done and not (last is not None and last.again):
                return None
        return None

    def _is_behind(self, ctx: Context, did: _Did | None) -> bool:
        """Tell whether a node is about to do something that comes behind all that was recorded."""
        if not self._live or (did is not None and did.over):
            return False
        parts = ctx.prefix.split("/")
        return not any(self._tracks.get("".join(f"{part}/" for part in parts[:depth])) for depth in range(len(parts)))

    # ---- what has been done

    def left(self, prefix: str, node: str) -> None:
        """Take note that the execution of a node came to an end; of all nodes of a strategy, where none is named."""
        path = prefix + node
        for inside in [each for each in self._now if each.startswith(f"{path}/" if node else prefix)]:
            del self._now[inside]
        if self._now.pop(prefix, None) is None and node:
            track = self._tracks.get(prefix)
            while track and not track[0].done:  # it did nothing, or something of the past did
                if track.pop(0).node == path:
                    break

    def winner(self, ctx: Context) -> int | None:
        """Give the branch that won a race that is about to begin; None where that was not recorded.

        What the others did is left out, and what it cost is counted.
        """
        rounds = self._rounds.get(ctx.node)
        if not rounds:
            return None
        recorded = rounds.pop(0)
        own = f"{ctx.node}/{recorded.winner}/"
        for prefix, track in recorded.tracks.items():
            if prefix.startswith(own):
                self._tracks[prefix] = [*track, *self._tracks.get(prefix, ())]
                continue
            for did in track:
                self._count(ctx, did)
        for path, inside in recorded.rounds.items():
            if path.startswith(own):
                self._rounds[path] = [*inside, *self._rounds.get(path, ())]
            else:
                for did in (did for each in inside for did in _all(each)):
                    self._count(ctx, did)
        return recorded.winner

    def _count(self, ctx: Context, did: _Did) -> None:
        for key, found in did.done.items():
            charge: Charge | None = None
            if isinstance(found, ModelResponse):
                charge = Charge(did.node, key, found.model, found.usage)
                if key.rpartition("/")[2].startswith("model:"):
                    ctx.meter.count_turn(ctx.state)
            elif isinstance(found, ToolResult) and found.run_id:
                charge = Charge(did.node, found.name, "", self._charged(found.run_id), found.run_id)
            if charge is not None:
                ctx.meter.spend(charge.usage)
                ctx.state.charges.append(charge)


def _all(round_: _Round) -> Iterator[_Did]:
    for track in round_.tracks.values():
        yield from track
    for inside in round_.rounds.values():
        for each in inside:
            yield from _all(each)


class _Reader:
    """Reads what nodes did, execution by execution."""

    def __init__(self, recording: Recording, until: int) -> None:
        self._recording = recording
        self.tracks: _Tracks = {}
        self.rounds: dict[str, list[_Round]] = {}
        self._led: dict[str, int] = {"": 1}
        self._first: dict[str, int] = {}
        """The branch of each race that ended first."""
        for number in range(1, until + 1):
            self._read(number, recording.entry(number))

    def _read(self, number: int, entry: Mapping[str, Any]) -> None:
        kind, prefix = entry["t"], entry.get("in", "")
        if kind == "effect":
            did = self._did(prefix, prefix + entry["node"])
            did.done[entry["key"]] = self._recording.value(number)
        elif kind == "resume":
            for answered, given in enumerate(entry.get("answers", ())):
                within = given.get("in", "")
                node = within + given["node"]
                slot = self._recording.slot(node)
                value = self._recording.effect(number, answered, kind_of_answer(given["key"], slot))
                self._did(within, node).done[given["key"]] = value
        elif kind in ("node", "recovered", "failed", "again"):
            self._ended(number, entry, prefix, prefix + entry["node"])
        elif kind == "edit" and "next" in entry:
            self._close(prefix, again=False)
            self._led[prefix] = number

    def _ended(self, number: int, entry: Mapping[str, Any], prefix: str, path: str) -> None:
        kind, again = entry["t"], entry["t"] == "again"
        if again and not entry["node"]:
            self._close(prefix, again=True)
            return
        if not again or path in (did.node for did in self.tracks.get(prefix, ())[-1:]):
            did = self._did(prefix, path)
            did.over, did.again = True, again
        self._close(f"{path}/", again=again)
        if kind in ("node", "recovered"):
            self._led[prefix] = number
            if not entry["next"]:
                race, _, branch = prefix[:-1].rpartition("/")
                if branch.isdecimal():
                    self._first.setdefault(race, int(branch))
        if kind == "node":
            self._race(path)
        self._first.pop(path, None)

    def _race(self, path: str) -> None:
        """Put aside what the branches of a race did that has ended."""
        slot = None
        with suppress(StrategyChangedError):  # what does nothing may have gone
            slot = self._recording.slot(path)
        if slot is None or not isinstance(slot.element, Race) or path not in self._first:
            return
        inside = f"{path}/"
        tracks = {prefix: self.tracks.pop(prefix) for prefix in [*self.tracks] if prefix.startswith(inside)}
        rounds = {race: self.rounds.pop(race) for race in [*self.rounds] if race.startswith(inside)}
        self.rounds.setdefault(path, []).append(_Round(self._first[path], tracks, rounds))

    def _close(self, inside: str, *, again: bool) -> None:
        for prefix, track in self.tracks.items():
            if prefix.startswith(inside):
                for did in reversed(track):
                    if did.left:
                        break
                    did.again, did.over, did.left = did.again or again, True, True
        for prefix in [prefix for prefix in self._led if prefix.startswith(inside) and prefix]:
            del self._led[prefix]

    def _did(self, prefix: str, node: str) -> _Did:
        track = self.tracks.setdefault(prefix, [])
        if not track or track[-1].over or track[-1].node != node:
            track.append(_Did(node, calls=self._calls(prefix)))
        return track[-1]

    def _calls(self, prefix: str) -> dict[str, Mapping[str, Any]]:
        """Give the arguments of the tool calls that stand before a node, under their ids."""
        number = self._led.get(prefix)
        with suppress(StrategyChangedError):
            if number is not None and isinstance(self._recording.value(number), ToolCalls):
                standing = self._recording.handed(number)
                return {call.id: call.arguments for call in standing} if isinstance(standing, ToolCalls) else {}
        return {}


def _diverged(ctx: Context, reason: str) -> DivergedError:
    error = DivergedError(ctx.node, reason)
    error.run_id = ctx.run_id
    return error


def _is_alike(like: object, found: object, did: _Did) -> bool:
    if isinstance(like, ModelRequest):
        return isinstance(found, ModelResponse)
    if isinstance(like, ToolCall):
        known = did.calls.get(like.id, like.arguments)
        return isinstance(found, ToolResult) and found.name == like.name and dict(known) == dict(like.arguments)
    return True
