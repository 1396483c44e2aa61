"""A list of steps that knows how it was changed."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any, Self, SupportsIndex, overload
from weakref import ref

from graphagent.memory.facts._types import least_trust
from graphagent.memory.steps._trust import is_less, level_of, trust_of
from graphagent.memory.steps._types import Step, field_names
from graphagent.memory.steps._validation import check_part, check_parts

_set = object.__setattr__


class Steps(list[Step]):
    """The steps of a transcript, in the order in which they happened. It is changed like any list.

    A step stands in one place of one list: one that stands somewhere already is taken over as a copy.
    """

    __slots__ = ("__weakref__", "_before", "_self", "_watched", "edits", "floor", "reordered", "version")

    def __init__(self, steps: Iterable[Step] = ()) -> None:
        self.edits: dict[int, tuple[Step, set[str]]] = {}
        """The steps of which fields were assigned since the last look, with the names of the fields."""
        self.reordered = False
        """Whether more happened to the list since the last look than that steps came at its end."""
        self.version = 0
        """Another number after each change but those at the end."""
        self.floor: str = steps.floor if isinstance(steps, Steps) else "trusted"
        """The least trust of what flowed into the run without being a step, or is no longer one."""
        self._before = self.floor
        """How far the step could be trusted of which a field is being assigned."""
        self._watched: dict[int, Step] = {}
        self._self = ref(
            self
        )  # steps know their list, which must not keep it: a circle waits for the garbage collector
        super().__init__()
        if steps:
            self.extend(steps)

    def _welcome(self, steps: Iterable[Step]) -> list[Step]:
        """Return steps as they join the list."""
        given = list(steps)
        for step in given:
            if not isinstance(step, Step):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(
                    f"a transcript is made of steps, such as TaskStep or MessageStep, not of {type(step).__name__}"
                )
            check_parts(step)
        return [self._housed(step) for step in given]

    def _housed(self, step: Step) -> Step:
        home: ref[Steps] | None = getattr(step, "_home", None)
        if home is not None and self._watched.pop(id(step), None) is None and home() is not None:
            step = copy.copy(step)
        _set(step, "_home", self._self)
        return step

    def _changed(self) -> None:
        self.reordered = True
        self.version += 1

    def expect(self, step: Step, name: str, value: object) -> None:
        """See that a value may be assigned to a field of a step.

        Raises:
            TypeError: it is of another type than the field.
        """
        check_part(type(step), name, value)
        self._before = level_of(step)

    def edited(self, step: Step, name: str) -> None:
        """Take note that a field of a step was assigned."""
        if id(step) not in self._watched:
            self.version += 1
        if name in field_names(type(step)):  # what a property sets is told by itself
            self.edits.setdefault(id(step), (step, set()))[1].add(name)
            self._lost(self._before, level_of(step))

    def lower(self, trust: str) -> None:
        """Take note that something flowed in that can be trusted no further than this."""
        self.floor = least_trust((self.floor, trust))

    def _lost(self, before: str, now: str) -> None:
        """Keep how far something could be trusted that was replaced: a model may have read it."""
        if is_less(before, now):
            self.lower(before)

    def watch(self, step: Step) -> Step:
        """Return a step that joins the list later, and note the assignments to its fields until then."""
        [watched] = self._welcome((step,))
        self._watched[id(watched)] = watched
        return watched

    def append(self, step: Step, /) -> None:
        """Add a step at the end."""
        if isinstance(step, Step):  # pyright: ignore[reportUnnecessaryIsInstance]  what is none is refused below
            check_parts(step)
            super().append(self._housed(step))
        else:
            self.extend((step,))

    def extend(self, steps: Iterable[Step], /) -> None:
        """Add steps at the end."""
        super().extend(self._welcome(steps))

    def precede(self, steps: Iterable[Step], count: int) -> None:
        """Put copies of the steps of another list in the place of the first `count`, as if they had always been there."""
        copies = list(map(copy.copy, steps))
        for step in copies:
            _set(step, "_home", self._self)
        super().__setitem__(slice(0, count), copies)
        self.edits, self.reordered = {}, False
        self.version += 1

    def __iadd__(self, steps: Iterable[Step], /) -> Self:  # type: ignore[override,misc]
        self.extend(steps)
        return self

    def __imul__(self, count: SupportsIndex, /) -> Self:
        raise TypeError("steps happen once; a transcript cannot be multiplied")

    def insert(self, index: SupportsIndex, step: Step, /) -> None:
        """Add a step before a place."""
        [housed] = self._welcome((step,))
        self._changed()
        super().insert(index, housed)

    def pop(self, index: SupportsIndex = -1, /) -> Step:
        """Remove a step and give it."""
        step = super().pop(index)
        self._changed()
        self.lower(level_of(step))
        return _freed(step)

    def remove(self, step: Step, /) -> None:
        """Remove the first step that is equal to one."""
        del self[self.index(step)]

    def clear(self) -> None:
        """Remove all steps."""
        del self[:]

    def reverse(self) -> None:
        """Turn the order around."""
        self._changed()
        super().reverse()

    def sort(self, *, key: Any, reverse: bool = False) -> None:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        """Sort by what `key` gives for a step."""
        self._changed()
        super().sort(key=key, reverse=reverse)

    @overload
    def __setitem__(self, index: SupportsIndex, step: Step, /) -> None: ...
    @overload
    def __setitem__(self, index: slice, step: Iterable[Step], /) -> None: ...
    def __setitem__(self, index: SupportsIndex | slice, step: Any, /) -> None:
        if not isinstance(index, slice):
            going, coming = [self[index]], [step]
        else:
            going, coming = self[index], list(step)
            if index.step not in (None, 1) and len(going) != len(coming):
                raise ValueError(f"{len(coming)} steps cannot take the places of {len(going)}")
        for each in going:  # so that one that only changes its place stays the same object
            _freed(each)
        try:
            housed = self._welcome(coming)
        except TypeError:
            for each in going:
                _set(each, "_home", self._self)
            raise
        self._changed()
        self._lost(trust_of(going), trust_of(housed))
        if isinstance(index, slice):
            super().__setitem__(index, housed)
        else:
            super().__setitem__(index, housed[0])

    def __delitem__(self, index: SupportsIndex | slice, /) -> None:
        going = self[index] if isinstance(index, slice) else [self[index]]
        super().__delitem__(index)
        self._changed()
        self.lower(trust_of(going))
        for each in going:
            _freed(each)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (list(self),)


def _freed(step: Step) -> Step:
    _set(step, "_home", None)
    return step
