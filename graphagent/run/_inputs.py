"""The inputs of strategies and branches in a run with a store: every look at one gives a new object, of data that is read once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, final

from graphagent.run._compiled import items_of

if TYPE_CHECKING:
    from graphagent.log._log import Log

_UNREAD: Any = object()


@final
class StoredInput:
    """A stored value that is an input: called, it returns the value as a new object."""

    __slots__ = ("_data", "_kind", "_log", "_stored")

    def __init__(self, log: Log, stored: Any, kind: Any, data: Any = _UNREAD) -> None:
        self._log, self._stored, self._kind, self._data = log, stored, kind, data

    @classmethod
    def of(cls, log: Log, value: Any, kind: Any) -> StoredInput:
        """Return an input of which the log has no bytes. Its large payloads are not stored with the run, since no entry refers to them."""
        apart = type(log)(log.store, log.header, types=log.types)
        return cls(apart, apart.keep(value, kind), kind)

    def __call__(self) -> Any:
        """Return the value."""
        if self._data is _UNREAD:
            return self._log.take(self._stored, self._kind)
        value = self._log.value_of(self._data, self._kind)
        if type(value) is str:  # nobody can change it, so a large one is read once
            self._data = value
        return value

    def shared(self) -> StoredInput:
        """Return an input for several branches, whose values share what cannot be changed."""
        if self._data is _UNREAD:
            self._data = self._log.codec.take_data(self._stored)
        return self

    def items(self) -> Sequence[Callable[[], Any]]:
        """Return the inputs of the branches of an `each`, in the order of `items_of`."""
        self.shared()
        found = self._log.items_of(self._data, self._kind)
        if found is not None:
            return [StoredInput(self._log, None, kind, data) for data, kind in found]
        return [partial(self._item, number) for number in range(len(items_of(self())))]

    def _item(self, number: int) -> Any:
        return items_of(self())[number]
