"""The transcript as a value: the versions of its steps, their order, and the inverse of each change.

Only `joined_by` and the methods below "changing" modify it, and only entries of the log call these. Each change keeps its
inverse under the number of its entry until the node that owns the transcript ends. This one list serves two purposes: the entry
that records a retry undoes the changes of the failed attempt, and a node that is executed again after its process died reads the
transcript as the node read it the first time. Looking up the facts and notes of steps again (`_again`) is not a change.
The file is long because each change also decides which steps a model still sees, and which data are derived anew.
"""

from __future__ import annotations

import copy
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, final

from graphagent.memory.facts._types import least_trust
from graphagent.memory.steps._trust import is_less, level_of, trust_of
from graphagent.memory.steps._types import ActionStep, MessageStep, Step, SummaryStep, TaskStep
from graphagent.memory.transcript._prompt import Prompt, Range, Versions

if TYPE_CHECKING:
    from graphagent.llm import Message, ToolResult


class Projection:
    """The steps that a model sees, as places in a transcript, in the order in which the model sees them. Steps are added at the end.

    A summary appears at the place of the first step after those that it replaces. The replaced steps are hidden, except for
    messages that set rules and for the task that the summary was made for, which is the last task before it.
    """

    __slots__ = ("_anchors", "_rules", "count", "places", "summaries", "tasks")

    def __init__(self) -> None:
        self.count = 0
        """How many steps were added."""
        self.places: list[int] = []
        """The places of the visible steps."""
        self._anchors: list[tuple[int, bool]] = []
        """Where each of these appears: at the place of a step; a summary there comes before the step."""
        self._rules: set[int] = set()
        self.tasks: list[int] = []
        """The places of the tasks, visible or not."""
        self.summaries = 0
        """How many summaries were added. Only summaries change the order of earlier steps."""

    def add(self, step: Step) -> None:
        """Add a step at the end."""
        place, self.count = self.count, self.count + 1
        if isinstance(step, SummaryStep):
            end = max(place - step.keeps, 0)
            self._hide(max(end - step.covers, 0), end)
            before = bisect_left(self._anchors, (end, True))
            self.places.insert(before, place)
            self._anchors.insert(before, (end, False))
            self.summaries += 1
            return
        if isinstance(step, TaskStep):
            self.tasks.append(place)
        elif _is_rule(step):
            self._rules.add(place)
        self.places.append(place)
        self._anchors.append((place, True))

    def _hide(self, start: int, end: int) -> None:
        left = [number for number, place in enumerate(self.places) if not start <= place < end or self.stays(place)]
        self.places, self._anchors = [self.places[each] for each in left], [self._anchors[each] for each in left]

    def stays(self, place: int) -> bool:
        """Return whether a step is visible whatever a summary at the end replaces: the last task, and rules."""
        return place in self._rules or place in self.tasks[-1:]

    @property
    def first(self) -> int:
        """The first place of a visible step that a summary at the end can replace; the number of steps if no step qualifies."""
        places = (place for place, (_, is_own) in zip(self.places, self._anchors, strict=True) if is_own)
        return next((place for place in places if not self.stays(place)), self.count)


def _changes_alike(before: Step, after: Step) -> bool:
    """Return whether a model sees the same places if one step replaces another."""
    return not any(isinstance(step, SummaryStep | TaskStep) or _is_rule(step) for step in (before, after))


def _is_rule(step: Step) -> bool:
    """Return whether a step is a message that sets rules."""
    return isinstance(step, MessageStep) and step.message.role == "system"


class Item(NamedTuple):
    """A step in a transcript: its id, which is the number of its first version, and the number of its current version."""

    id: int
    version: int


class Edit(NamedTuple):
    """A change by a user: other `steps` from `start` to `end`, where -1 means the open step; other `rules`; or less `trust`."""

    start: int = 0
    end: int = 0
    steps: tuple[Step, ...] = ()
    rules: str | None = None
    trust: str = "trusted"


class Change(NamedTuple):
    """A change and its inverse: at `start`, the items `added` replaced the items `removed`."""

    number: int
    """The number of the entry that made the change."""
    start: int
    removed: tuple[Item, ...]
    added: tuple[Item, ...]
    open: Item | None
    """The open step before the change."""
    rules: str
    """The system prompt before the change."""
    lasting: bool
    """Whether a retry keeps the change: a failed request, or an edit from outside a node."""


@final
class Transcript:
    """The steps of a run, or of a branch, in order. Steps in it are never modified; an edit makes another version."""

    __slots__ = (
        "_projection", "_prompted", "_ranges", "_settled", "_shared", "_summaries", "_visible", "begun", "changes", "floor", "inherited",
        "items", "open", "rules", "task_trust", "versions",
    )  # fmt: skip

    def __init__(self, rules: str = "", steps: Iterable[Step] = (), floor: str = "trusted") -> None:
        self.rules = rules
        """The system prompt."""
        self.versions = Versions(steps)
        """Every version of every step, in order of creation."""
        self.items = [Item(number, number) for number in range(len(self.versions))] if self.versions else []
        """The steps, in order."""
        self.open: Item | None = None
        """The step that has not joined the steps: callbacks see it, or its tool calls are being executed."""
        self.floor = floor
        """The least trust of content that flowed in outside the steps, or whose step was removed."""
        self.begun = self.inherited = len(self.items)
        """The number of steps when the run, and when the branch, began."""
        self.task_trust = "trusted"
        """How far the task can be trusted; the task of a sub-agent, as far as everything that its caller had read."""
        self.changes: list[Change] = []
        self._shared = False
        self._projection: Projection | None = None
        self._prompted: tuple[object, list[Message], Prompt] | None = None
        """The last prompt, reused until a change; its first item is `versions.made` at that time."""
        self._summaries: int = -1
        self._settled: int = 0
        # The rest of what messages need is made with the first prompt: few runs ask a model.

    # ---- reading

    def __len__(self) -> int:
        return len(self.items)

    @property
    def steps(self) -> list[Step]:
        """The steps in order. They must not be modified."""
        versions = self.versions
        return [versions[item.version] for item in self.items]

    @property
    def projection(self) -> Projection:
        """The selection of steps that a model sees."""
        found = self._projection
        if found is None:
            found = self._projection = Projection()
        for item in self.items[found.count :]:
            found.add(self.versions[item.version])
        return found

    @property
    def open_step(self) -> Step | None:
        """The open step."""
        return None if self.open is None else self.versions[self.open.version]

    @property
    def open_turn(self) -> ActionStep | None:
        """The model turn whose tool calls are being executed."""
        step = self.open_step
        return step if isinstance(step, ActionStep) else None

    @property
    def last_turn(self) -> tuple[Item, ActionStep] | None:
        """The last model turn with an answer: the open step, or one of the steps, as in a branch."""
        for item in chain([] if self.open is None else [self.open], reversed(self.items)):
            step = self.versions[item.version]
            if isinstance(step, ActionStep) and step.model_output_message is not None:
                return item, step
        return None

    @property
    def calling(self) -> tuple[Item, ActionStep] | None:
        """The last model turn with an answer, if it calls tools."""
        found = self.last_turn
        return found if found is not None and found[1].tool_calls else None

    @property
    def trust(self) -> str:
        """The least trust of everything that flowed in."""
        items = chain([] if self.open is None else [self.open], self.items)
        return trust_of((self.versions[item.version] for item in items), self.floor)

    def made_of(self) -> list[str]:
        """Return, for each step of the run, the highest trust that its words can have: the least trust of content before them.

        The task comes first, so earlier content does not count for it. For a step that was changed, everything counts that had
        flowed in before the change.
        """
        versions = self.versions
        before = [self.floor]
        for step in versions:
            before.append(least_trust((before[-1], level_of(step))))
        found: list[str] = []
        for place, (id_, version) in enumerate(self.items[self.begun :]):
            first, step = versions[id_], versions[version]
            if place == 0 and isinstance(step, TaskStep):
                changed = trust_of(versions[id_ + 1 : version], self.floor) if version > id_ else "trusted"
                found.append(least_trust((self.task_trust, changed)))
            elif isinstance(first, ActionStep) and isinstance(step, ActionStep):  # a turn gets its results later
                same = first.model_output_message == step.model_output_message
                found.append(before[id_ if same else version])
            else:
                found.append(before[version])
        return found

    def find(self, id_: int) -> tuple[int, Item] | None:
        """Return the place and the item of a step; the place of the open step is -1. Return None for a removed step."""
        if self.open is not None and self.open.id == id_:
            return -1, self.open
        places = range(len(self.items) - 1, -1, -1)
        return next(((place, self.items[place]) for place in places if self.items[place].id == id_), None)

    def results_of(self, id_: int) -> list[tuple[ToolResult, ...]]:
        """Return the results in each version of a model turn."""
        versions = zip(self.versions.ids[id_:], self.versions[id_:], strict=True)
        return [step.results for each, step in versions if each == id_ and isinstance(step, ActionStep)]

    def prompt(self) -> tuple[list[Message], Prompt]:
        """Return the messages for a request made now, and the reference to them."""
        versions, items, projection = self.versions, self.items, self.projection
        if self._prompted is not None and self._prompted[0] is versions.made:
            return [*self._prompted[1]], self._prompted[2]
        tail = items[self._settled :]
        if self._summaries != projection.summaries:
            # A summary replaces steps that were settled before it.
            self._forget_messages()
            tail = [items[place] for place in projection.places]
        last = next((n for n in range(len(tail), 0, -1) if isinstance(versions[tail[n - 1].version], ActionStep)), 0)
        if last:
            # Later steps do not change the visible steps up to the last model turn.
            self._visible += [item.version for item in tail[:last]]
            versions.ranges(tail[:last], self._ranges, len(versions) - 1)
            tail = tail[last:]
            self._settled = len(items) - len(tail)
            if tail == items[self._settled :]:
                self._summaries = projection.summaries
        rest = tail if self.open is None else [*tail, self.open]
        ranges = [*self._ranges]
        versions.ranges(rest, ranges, len(versions) - 1)
        messages = versions.messages(self.rules, [*self._visible, *(item.version for item in rest)])
        prompt = Prompt(versions, self.rules, tuple(ranges), len(versions) - 1)
        self._prompted = versions.made, messages, prompt
        return [*messages], prompt

    def as_of(self, number: int) -> Transcript:
        """Return this transcript as it was at an entry of the current visit of the node."""
        found = self.copied()
        found.changes = list(self.changes)
        found.rewind(number, keep_lasting=False)
        return found

    # ---- branches

    def copied(self) -> Transcript:
        """Return a transcript with the same steps. The first of the two that changes copies the lists."""
        found = Transcript(self.rules, floor=self.floor)
        found.versions, found.items, found.open = self.versions, self.items, self.open
        found.begun, found.inherited, found.task_trust = self.begun, self.inherited, self.task_trust
        self._shared = found._shared = True
        return found

    def branch(self) -> Transcript:
        """Return the transcript of a branch. An open turn is the last of its first steps; only the parent completes that turn."""
        found = self.copied()
        if self.open is not None:
            found.items, found.open = [*self.items, self.open], None
        found.inherited = len(found.items)
        return found

    @property
    def own_steps(self) -> list[Step]:
        """The steps of a branch without the inherited ones; its summaries then cover only these."""
        found: list[Step] = []
        for place, step in enumerate(self.steps[self.inherited :]):
            if isinstance(step, SummaryStep) and step.covers > place - step.keeps:
                step = copy.copy(step)
                step.covers = max(place - step.keeps, 0)
            found.append(step)
        return found

    def joined_by(self, number: int, branch: Transcript) -> None:
        """Add the steps of an ended branch, without the inherited ones."""
        branch.settle(number)
        if steps := branch.own_steps:
            self.settle(number)
            self.change(number, len(self.items), len(self.items), steps)

    # ---- changing

    def edit(self, number: int, edit: Edit, *, lasting: bool = False) -> None:
        """Apply a change by a user."""
        if edit.rules is not None:
            self.set_rules(number, edit.rules, lasting=lasting)
        elif edit.trust != "trusted":
            self.lower(edit.trust)
        elif edit.start < 0:
            self.put_open(number, edit.steps[0])
        else:
            self.change(number, edit.start, edit.end, edit.steps, lasting=lasting)

    def change(self, number: int, start: int, end: int, steps: Sequence[Step], *, lasting: bool = False) -> None:
        """Replace the steps from `start` to `end`. A single step that replaces a single one is another version of it."""
        if start == len(self.items) and len(steps) == 1:
            self.add(number, steps[0], lasting=lasting)
            return
        self._own()
        removed = tuple(self.items[start:end])
        if len(removed) == len(steps) == 1:
            added: tuple[Item, ...] = (Item(removed[0].id, self.versions.add(steps[0], removed[0].id)),)
        else:
            added = tuple(Item(number, number) for number in map(self.versions.add, steps))
        self._note(number, start, removed, added, lasting=lasting)
        self.items[start:end] = added
        if removed:  # a model may have read the replaced steps
            before = trust_of(self.versions[item.version] for item in removed)
            if is_less(before, trust_of(steps)):
                self.lower(before)
        if start < len(self.items) - len(added) or removed:
            self._forget_messages()
            if not (len(removed) == len(steps) == 1 and _changes_alike(self.versions[removed[0].version], steps[0])):
                self._projection = None

    def add(self, number: int, step: Step, *, lasting: bool = False) -> None:
        """Add a step at the end: `change` for the most frequent case."""
        self._own()
        version = self.versions.add(step)
        item = Item(version, version)
        self._note(number, len(self.items), (), (item,), lasting=lasting)
        self.items.append(item)

    def put(self, steps: Iterable[Step]) -> None:
        """Add steps at the end, for good: no retry takes them back."""
        self._own()
        self._prompted = None
        for step in steps:
            version = self.versions.add(step)
            self.items.append(Item(version, version))

    def put_open(self, number: int, step: Step) -> None:
        """Set the open step, or add another version of it."""
        self._own()
        self._note(number, len(self.items), (), ())
        before, id_ = self.open_step, None if self.open is None else self.open.id
        version = self.versions.add(step, id_)
        self.open = Item(version if id_ is None else id_, version)
        if before is not None and is_less(lost := level_of(before), level_of(step)):
            self.lower(lost)

    def settle(self, number: int, *, lasting: bool = False) -> None:
        """Move the open step to the end of the steps."""
        if self.open is None:
            return
        self._own()
        self._note(number, len(self.items), (), (self.open,), lasting=lasting)
        self.items.append(self.open)
        self.open = None

    def answer(self, number: int, results: Iterable[ToolResult]) -> None:
        """Add results of tool calls to the last model turn, if it made the calls."""
        found = self.calling
        if found is None:
            return
        item, turn = found
        given = [result for result in results if result.call_id in turn.call_ids]
        if not given:
            return
        if item is self.open:
            self.put_open(number, turn.with_results(given))
        elif (there := self.find(item.id)) is not None:
            self.change(number, there[0], there[0] + 1, (turn.with_results(given),))

    def set_rules(self, number: int, rules: str, *, lasting: bool = False) -> None:
        """Replace the system prompt."""
        self._note(number, len(self.items), (), (), lasting=lasting)
        self.rules = rules
        self._forget_messages()

    def lower(self, trust: str) -> None:
        """Record that content with this trust flowed in."""
        if trust != "trusted":
            self.floor = least_trust((self.floor, trust))

    def rewind(self, number: int, *, keep_lasting: bool = True) -> None:
        """Undo the changes after an entry. Trust does not rise again, since the content was read."""
        lasting: list[Change] = []
        if self.changes and self.changes[-1].number > number:
            self._own()
            self._forget_messages()
            self._projection = None
        while self.changes and self.changes[-1].number > number:
            change = self.changes.pop()
            self.lower(trust_of(self.versions[item.version] for item in change.added))
            self.items[change.start : change.start + len(change.added)] = change.removed
            self.open, self.rules = change.open, change.rules
            if change.lasting and keep_lasting:
                lasting.append(change)
        for change in reversed(lasting):
            self._again(change)
        if lasting:
            self._forget_messages()
            self._projection = None

    def _again(self, change: Change) -> None:
        """Apply a lasting change again that was undone together with others."""
        found = [self.find(each.id) for each in change.removed]
        removed = [each[0] for each in found if each is not None and each[0] >= 0]
        start = removed[0] if removed else len(self.items)
        end = removed[-1] + 1 if removed else start
        self._note(change.number, start, tuple(self.items[start:end]), change.added, lasting=True)
        self.items[start:end] = change.added

    def forget_changes(self) -> None:
        """Forget the inverses of the changes: the node that made them has ended."""
        if self.changes:
            self.changes.clear()

    def _note(
        self, number: int, start: int, removed: tuple[Item, ...], added: tuple[Item, ...], *, lasting: bool = False
    ) -> None:
        self._prompted = None
        self.changes.append(Change(number, start, removed, added, self.open, self.rules, lasting))

    def _own(self) -> None:
        """Copy the lists that are shared with a branch."""
        if self._shared:
            self.versions, self.items, self._shared = self.versions.copied(), list(self.items), False

    def _forget_messages(self) -> None:
        self._prompted = None
        self._settled = 0
        self._summaries = -1
        self._visible: list[int] = []
        self._ranges: list[Range] = []
