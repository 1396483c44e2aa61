"""Large values of a run, stored once under their hash, and checked before the run is resumed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from graphagent.codec._internal import HeldBlobs, hash_of
from graphagent.errors import DamagedStoreError
from graphagent.run.journal._keys import parse

_PAYLOAD = re.compile(rb'"b":"([0-9a-f]{24})"')
"""How an entry refers to a payload. The output of a node may look the same and mean none."""


class LostPayloadError(DamagedStoreError):
    """A payload of a run is missing, or is not what was written."""

    def __init__(self, run_id: str, reason: str) -> None:
        self.reason = reason
        super().__init__(f"run {run_id!r}", reason)


class Payloads(HeldBlobs):
    """The payloads of a run."""

    def __init__(self, held: Mapping[str, bytes], run_id: str) -> None:
        super().__init__(held)
        self._run_id = run_id

    def get(self, name: str) -> bytes:
        """Return the bytes of a hash.

        Raises:
            DamagedStoreError: they are missing, or are others.
        """
        try:
            return super().get(name)
        except ValueError as error:
            reason = str(error)
        raise LostPayloadError(self._run_id, reason)


def payloads_of(entries: Iterable[bytes], payloads: Mapping[Any, bytes]) -> dict[str, bytes]:
    """Return the payloads to which entries refer."""
    named = {name.decode() for entry in entries for name in _PAYLOAD.findall(entry)}
    return {name: value for name, value in payloads.items() if name in named}


def check_payloads(run_id: str, entries: Sequence[bytes], payloads: Mapping[str, bytes]) -> None:
    """Check that every payload to which entries refer exists, and is what was written.

    This is done before a run is resumed: later a node would fail, and an error edge could take that.

    Raises:
        DamagedStoreError: one is not. It names the first entry that refers to it.
    """
    seen = set[bytes]()
    for number, entry in enumerate(entries, 1):
        for found in _PAYLOAD.findall(entry):
            if found in seen:
                continue
            name = found.decode()
            data = payloads.get(name)
            what = f"entry {number} of run {run_id!r}"
            if data is None:
                if not _names(parse(entry, what), name):
                    continue
                raise DamagedStoreError(what, "a payload that stands apart is missing")
            if hash_of(data) != name:
                raise DamagedStoreError(what, "a payload that stands apart is not what it was")
            seen.add(found)


def _names(data: object, name: str) -> bool:
    """Return whether an entry refers to a payload, and is not the output of a node that looks so."""
    if isinstance(data, list):
        return any(_names(each, name) for each in cast("list[object]", data))
    if not isinstance(data, dict):
        return False
    fields = cast("dict[str, object]", data)
    return ("$" in fields and fields.get("b") == name) or any(_names(each, name) for each in fields.values())
