"""`RunMemory`: the transcript that users read and change."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableSequence, Sequence
from typing import TYPE_CHECKING, Any, Protocol, SupportsIndex, cast, overload
from weakref import ref

from graphagent._article import counted, kind_of
from graphagent._options import check_text
from graphagent.memory.facts._types import TRUST_LEVELS
from graphagent.memory.steps._types import ActionStep, Step, SystemPromptStep, field_names
from graphagent.memory.transcript._fields import check_field, check_step
from graphagent.memory.transcript._transcript import Edit, Item, Transcript

if TYPE_CHECKING:
    from graphagent.llm import Message

_set = object.__setattr__
_MISSING: Any = object()


def id_of(step: Step) -> int:
    """Return the id of a step in its transcript."""
    return cast("int", object.__getattribute__(step, "_id"))


class Editor(Protocol):
    """Records the changes of a transcript that belongs to a run."""

    @property
    def transcript(self) -> Transcript:
        """The transcript as seen from here: a node that is executed again sees it as the first time."""
        ...

    def edit(self, edit: Edit) -> None:
        """Apply a change, and record it."""
        ...


class Detached:
    """The editor of a transcript that belongs to no run."""

    __slots__ = ("transcript",)

    def __init__(self, transcript: Transcript) -> None:
        self.transcript = transcript

    def edit(self, edit: Edit) -> None:
        """Apply a change."""
        self.transcript.edit(0, edit)
        self.transcript.forget_changes()


class RunMemory:
    """The transcript of a run: the system prompt, and the steps in the order in which they happened.

    `RunMemory("You compute.", steps)` makes a transcript by hand, to begin a run with. Two are equal if their contents are.
    """

    __slots__ = ("__weakref__", "_handles", "_rules", "_self", "editor")

    def __init__(self, system_prompt: str = "", steps: Iterable[Step] = (), *, editor: Editor | None = None) -> None:
        if editor is None:
            check_text("system_prompt=", system_prompt)
            # Steps that were removed from the other transcript were read there before.
            floor = steps.memory.transcript.floor if isinstance(steps, Steps) else "trusted"
            editor = Detached(Transcript(system_prompt, _checked(steps), floor))
        self.editor: Editor = editor
        """Records the changes of the transcript."""
        # Weak, since a reference cycle of steps and memory would wait for the garbage collector.
        self._self = ref(self)
        self._handles: dict[int, tuple[Step, Step]] = {}
        """The steps that users have read, by their ids, each with the version that it showed last."""
        self._rules: SystemPromptStep | None = None

    @property
    def transcript(self) -> Transcript:
        """The value of the transcript."""
        return self.editor.transcript

    @property
    def system_prompt(self) -> SystemPromptStep:
        """The rules for the model. Assign another step, or a text, to change them."""
        rules = self.transcript.rules
        if self._rules is None or self._rules.system_prompt != rules:
            self._rules = SystemPromptStep(rules)
            _set(self._rules, "_home", self._self)
        return self._rules

    @system_prompt.setter
    def system_prompt(self, step: SystemPromptStep) -> None:
        if not isinstance(step, SystemPromptStep):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"the system prompt of a transcript is a SystemPromptStep(text), not {kind_of(step)}")
        check_step(step)
        self.editor.edit(Edit(rules=step.system_prompt))

    @property
    def steps(self) -> Steps:
        """The steps. Change them as you change a list: append, assign, delete, or assign a field of a step."""
        return Steps(self)

    @steps.setter
    def steps(self, steps: Iterable[Step]) -> None:
        self.steps[:] = steps

    @property
    def run_steps(self) -> list[Step]:
        """The steps of this run, without those before it."""
        return self.steps[self.transcript.begun :]

    def backwards(self) -> Iterator[Step]:
        """Yield the steps of this run, the last one first."""
        transcript = self.transcript
        for item in itertools.islice(reversed(transcript.items), len(transcript.items) - transcript.begun):
            yield self.handle(item, transcript)

    @property
    def visible(self) -> list[Step]:
        """The steps that a model is sent, without those that a summary replaces."""
        steps = self.steps
        return [steps[place] for place in self.transcript.projection.places]

    @property
    def open(self) -> ActionStep | None:
        """The model turn whose tool calls are being executed, with the results so far; with all results, it joins the steps."""
        transcript = self.transcript
        if transcript.open is None or transcript.open_turn is None:
            return None
        return cast("ActionStep", self.handle(transcript.open, transcript))

    @property
    def last_turn(self) -> ActionStep | None:
        """The last model turn with an answer."""
        transcript = self.transcript
        found = transcript.last_turn
        return None if found is None else cast("ActionStep", self.handle(found[0], transcript))

    @property
    def turns(self) -> int:
        """The number of the last model turn; 0 before the first."""
        transcript = self.transcript
        steps = (transcript.versions[item.version] for item in reversed(transcript.items))
        turn = transcript.open_turn
        if turn is not None and turn.step_number:
            return turn.step_number
        return next((step.step_number for step in steps if isinstance(step, ActionStep) and step.step_number), 0)

    @property
    def trust(self) -> str:
        """How far content made from the transcript can be trusted, one of TRUST_LEVELS: the least of everything that flowed in.

        The task is trusted; that of a sub-agent only as far as the calling run. Results of tools are untrusted. Answers of a
        model are inferred at most. Facts and notes keep their own trust. Removed steps still count.
        """
        return self.transcript.trust

    def lower_trust(self, level: str) -> None:
        """Record that content of this trust level flowed in outside the steps."""
        if level not in TRUST_LEVELS:
            raise ValueError(f"{level!r} is not a trust level; the levels are {', '.join(TRUST_LEVELS)}")
        if level != "trusted" and TRUST_LEVELS.index(level) < TRUST_LEVELS.index(self.transcript.trust):
            self.editor.edit(Edit(trust=level))

    def to_messages(self) -> list[Message]:
        """Return the messages for a request made now. Facts loaded before the first turn precede the task."""
        return self.transcript.prompt()[0]

    def to_text(self, *, detailed: bool = False, inside: Mapping[str, str] | None = None) -> str:
        """Return the transcript as text for people, and for other agents.

        Args:
            detailed: Whether the text includes the messages that the model was sent.
            inside: The texts of sub-agents' runs by run id, which are placed below their calls.
        """
        from graphagent.memory.steps._render import to_text

        return to_text(self.system_prompt, self.steps, self.open, detailed=detailed, inside=inside or {})

    def full_steps(self) -> list[dict[str, Any]]:
        """Return the steps as plain JSON data, with the messages that the model was sent."""
        from graphagent.memory.steps._dump import plain_steps

        return plain_steps(self.transcript.steps, self.transcript.open_turn)

    def succinct_steps(self) -> list[dict[str, Any]]:
        """Return the steps as plain JSON data, without the messages that the model was sent."""
        from graphagent.memory.steps._dump import plain_steps

        return plain_steps(self.transcript.steps, self.transcript.open_turn, without="model_input_messages")

    def to_json(self) -> str:
        """Return the transcript as JSON text, without loss.

        Raises:
            SerializationError: a value in the transcript cannot be stored; the error names the step.
        """
        from graphagent.memory.transcript._saved import to_json

        return to_json(self.transcript)

    @staticmethod
    def from_json(text: str | bytes) -> RunMemory:
        """Load a transcript from the text that `to_json` returned.

        Raises:
            ValueError: the text is not a saved transcript.
        """
        from graphagent.memory.transcript._saved import from_json

        return RunMemory(editor=Detached(from_json(text)))

    def detached(self) -> RunMemory:
        """Return a copy that does not belong to a run."""
        return RunMemory(editor=Detached(self.transcript.copied()))

    def detach(self) -> Detached:
        """Turn this transcript into a copy that does not belong to a run: later changes stay in the copy."""
        self.editor = editor = Detached(self.transcript.copied())
        return editor

    # ---- steps that users have read

    def known(self, id_: int) -> Step | None:
        """Return the object of a step, if a user has read it."""
        found = self._handles.get(id_)
        return None if found is None else found[0]

    def take(self, step: Step, item: Item, transcript: Transcript) -> None:
        """Make an object that a user has read the object of this step."""
        _set(step, "_home", self._self)
        _set(step, "_id", item.id)
        self._handles[item.id] = step, transcript.versions[item.version]

    def adopt(self, steps: Iterable[tuple[Step, Item]], transcript: Transcript) -> None:
        """Make objects that users have read the objects of these steps, and forget all others."""
        self._handles.clear()
        for step, item in steps:
            self.take(step, item, transcript)

    def handle(self, item: Item, transcript: Transcript) -> Step:
        """Return the object of a step for users: the same object each time, with the fields of the current version."""
        version = transcript.versions[item.version]
        found = self._handles.get(item.id)
        if found is None or type(found[0]) is not type(version):
            step = copy.copy(version)
            _set(step, "_home", self._self)
            _set(step, "_id", item.id)
        else:
            step, shown = found
            if shown is version:
                return step
            for name in field_names(type(version)):
                value = getattr(version, name, _MISSING)
                if value is not _MISSING:
                    _set(step, name, value)
        self._handles[item.id] = step, version
        return step

    def expect(self, step: Step, name: str, value: object) -> None:
        """Check that a value may be assigned to a field of a step.

        Raises:
            TypeError: the value does not have the type of the field.
        """
        check_field(type(step), name, value)

    def edited(self, step: Step, name: str) -> None:
        """Record that a field of a step was assigned.

        Raises:
            SerializationError: the value cannot be stored. The step keeps its old value.
        """
        if self._rules is not None and step is self._rules:
            self.editor.edit(Edit(rules=self._rules.system_prompt))
            return
        if name not in field_names(type(step)):
            return  # a property, whose own fields are assigned
        transcript = self.transcript
        found = transcript.find(id_of(step))
        if found is None:
            return  # the step was removed
        place, item = found
        version = copy.copy(transcript.versions[item.version])
        _set(version, name, getattr(step, name))
        try:
            self.editor.edit(Edit(place, place + 1, (version,)))
        except BaseException:
            _set(step, name, getattr(transcript.versions[item.version], name))
            raise
        self._handles[item.id] = step, version

    def change(self, start: int, end: int, steps: Sequence[Step]) -> None:
        """Replace the steps from `start` to `end`. The given objects become the steps, unless they are in another transcript."""
        steps = list(steps)
        versions = _checked(steps)
        gone = self.transcript.items[start:end]
        self.editor.edit(Edit(start, end, versions))
        for item in gone:
            handle = self._handles.pop(item.id, None)
            if handle is not None:
                _set(handle[0], "_home", None)
        transcript = self.transcript
        for place, (step, version) in enumerate(zip(steps, versions, strict=True), start):
            put = transcript.items[place] if place < len(transcript.items) else None
            home = getattr(step, "_home", None)
            is_free = home is None or home() is None
            if put is not None and is_free and transcript.versions[put.version] is version:
                self.take(step, put, transcript)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RunMemory):
            return NotImplemented
        one, two = self.transcript, other.transcript
        return (one.rules, one.steps, one.open_step) == (two.rules, two.steps, two.open_step)

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        transcript = self.transcript
        return _restored, (transcript.rules, transcript.steps, transcript.open_step, transcript.floor, transcript.begun)

    def _repr_html_(self) -> str:
        from graphagent._notebook import card, steps

        return card(repr(self).strip("<>"), steps(self.to_text()))

    def __repr__(self) -> str:
        return f"<transcript of {counted(len(self.transcript), 'step')}>"


def _restored(rules: str, steps: list[Step], open_step: Step | None, floor: str, begun: int) -> RunMemory:
    transcript = Transcript(rules, steps, floor)
    transcript.begun = begun
    if open_step is not None:
        transcript.put_open(0, open_step)
        transcript.forget_changes()
    return RunMemory(editor=Detached(transcript))


def _checked(steps: Iterable[Step]) -> tuple[Step, ...]:
    """Return checked copies of steps, as a transcript keeps them."""
    given = tuple(steps)
    for step in given:
        if not isinstance(step, Step):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                f"a transcript is made of steps, such as TaskStep or MessageStep, not of {type(step).__name__}"
            )
        check_step(step)
    return tuple(map(copy.copy, given))


class Steps(MutableSequence[Step]):
    """The steps of a transcript, as a list. The run records each change of the list, and of a field of a step in it."""

    __slots__ = ("memory",)

    def __init__(self, memory: RunMemory) -> None:
        self.memory = memory

    def __len__(self) -> int:
        return len(self.memory.transcript.items)

    @overload
    def __getitem__(self, index: SupportsIndex) -> Step: ...
    @overload
    def __getitem__(self, index: slice) -> list[Step]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> Step | list[Step]:
        memory = self.memory
        transcript = memory.transcript
        if isinstance(index, slice):
            return [memory.handle(item, transcript) for item in transcript.items[index]]
        return memory.handle(transcript.items[index], transcript)

    @overload
    def __setitem__(self, index: SupportsIndex, value: Step) -> None: ...
    @overload
    def __setitem__(self, index: slice, value: Iterable[Step]) -> None: ...
    def __setitem__(self, index: SupportsIndex | slice, value: Step | Iterable[Step]) -> None:
        if not isinstance(index, slice):
            place = range(len(self))[index]
            self.memory.change(place, place + 1, (cast("Step", value),))
            return
        start, end, step = index.indices(len(self))
        steps = list(cast("Iterable[Step]", value))
        if step == 1:
            self.memory.change(start, max(start, end), steps)
            return
        places = range(start, end, step)
        if len(places) != len(steps):
            raise ValueError(f"{counted(len(steps), 'step')} cannot replace {len(places)}")
        for place, each in zip(places, steps, strict=True):
            self.memory.change(place, place + 1, (each,))

    def __delitem__(self, index: SupportsIndex | slice) -> None:
        if not isinstance(index, slice):
            place = range(len(self))[index]
            self.memory.change(place, place + 1, ())
            return
        start, end, step = index.indices(len(self))
        if step == 1:
            self.memory.change(start, max(start, end), ())
            return
        for place in sorted(range(start, end, step), reverse=True):
            self.memory.change(place, place + 1, ())

    def insert(self, index: SupportsIndex, value: Step) -> None:
        """Insert a step before an index."""
        place = slice(index, None).indices(len(self))[0]
        self.memory.change(place, place, (value,))

    def extend(self, values: Iterable[Step]) -> None:
        """Add steps at the end, as one change."""
        self.memory.change(len(self), len(self), list(values))

    def sort(self, *, key: Callable[[Step], Any], reverse: bool = False) -> None:
        """Sort the steps by a key."""
        self[:] = sorted(self, key=key, reverse=reverse)

    def reverse(self) -> None:
        """Reverse the order of the steps."""
        self[:] = list(reversed(self))

    def copy(self) -> list[Step]:
        """Return the steps as an ordinary list."""
        return list(self)

    def __add__(self, others: Iterable[Step]) -> list[Step]:
        return [*self, *others]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Steps):
            return self.memory.transcript.steps == other.memory.transcript.steps
        return list(self) == other if isinstance(other, list) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self.memory.transcript.steps),)
