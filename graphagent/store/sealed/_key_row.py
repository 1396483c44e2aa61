"""Reading the key row of a store, and changing it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import anyio.to_thread

from graphagent import _clock
from graphagent.errors import (
    DamagedStoreError,
    DestroyedStoreError,
    NewerFormatError,
    RemovedKeyError,
    WrongKeyError,
)
from graphagent.store._items import Change, DeleteAll, Item, Put
from graphagent.store._sealed_detection import KEYS
from graphagent.store.sealed._format import UnreadableError
from graphagent.store.sealed._keyset import (
    FORMAT,
    Keyset,
    NoSlotsError,
    OtherFormatError,
    OtherKeyError,
    RemovedSlotError,
)
from graphagent.store.sealed._slots import NewerSlotError

if TYPE_CHECKING:
    from graphagent.store.sealed._key_sources import HeldKey
    from graphagent.store.sealed._secret import Secret

T = TypeVar("T")
_REPLACED = (*KEYS, "replaced")


async def with_secret(secret: Secret, work: Callable[[Secret], T]) -> T:
    """Call a function with a secret, in a worker thread if that takes long."""
    if secret.slow:
        return await anyio.to_thread.run_sync(work, secret)
    return work(secret)


async def opened_keyset(found: Item, key: HeldKey, where: str) -> Keyset:
    """Return the keyset in a key row.

    Raises:
        KeySourceError: the key is not where it is to be.
        WrongKeyError: the store was sealed with another key.
        RemovedKeyError: this key was removed.
    """
    try:
        return await with_secret(await key.read(), partial(_opened, found, where))
    except RemovedKeyError as removed:
        if key.coming is None:
            raise
        try:
            return await with_secret(await key.coming.read(), partial(_opened, found, where))
        except WrongKeyError:  # another process has removed it, and not the commit of this one
            raise removed from None


def _opened(found: Item, where: str, secret: Secret) -> Keyset:
    try:
        return Keyset.open(found.value, found.version, secret)
    except OtherKeyError:
        raise WrongKeyError(where) from None
    except RemovedSlotError as error:
        slot = error.args[0]
        raise RemovedKeyError(where, slot.name, moment(slot.removed)) from None
    except NoSlotsError as error:
        raise DestroyedStoreError(where, moment(error.args[0])) from None
    except OtherFormatError as error:
        raise NewerFormatError(where, f"in format {error.args[0]}, and this one reads formats 1 to {FORMAT}") from None
    except NewerSlotError:
        raise NewerFormatError(where, "which opens it in a way that this one does not know") from None
    except UnreadableError as error:
        raise DamagedStoreError(where, f"the row with its keys {error}") from None


def replacing(version: int, keyset: Keyset, *, erased: bool = False) -> list[Change]:
    """Return the changes that put a keyset in the place of that in the key row, which is at `version`.

    With `erased`, the bytes of the row before are erased from the files as well: `DeleteAll` erases whatever a file does not
    contain any more, if there is something for it to remove.
    """
    put = Put(KEYS, keyset.row(version + 1), expected=version)
    return [put, Put(_REPLACED, b""), DeleteAll(_REPLACED)] if erased else [put]


def moment(milliseconds: int) -> datetime:
    """Return a time in UTC."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def fresh_keyset(secret: Secret) -> Keyset:
    """Return the keyset of a new store."""
    return Keyset.fresh(secret, now=_clock.now())
