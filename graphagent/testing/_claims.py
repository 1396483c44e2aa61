"""The contract of the claims of a store, as a test for one's own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from graphagent import _clock
from graphagent.store import Claimed
from graphagent.store._claims import claims_of
from graphagent.testing._promise import accepts, answer, keeps, promise

if TYPE_CHECKING:
    from graphagent.protocols import Claims, Store
    from graphagent.store import Key

_LONG = 600_000
"""A lease that is not over before the check is."""
_PAUSE = 0.005


async def check_claims(make: Callable[[], Store]) -> None:
    """Check that the claims of a store keep the promises of `graphagent.protocols.Claims`.

    `make` is called once for each promise and may return the same store, or another one, each time. The check uses a room that
    nothing else uses, and waits for leases of a millisecond to be over, so the clock of the store has to go on. One promise is
    checked from another event loop, in a thread. One promise cannot be checked: that processes on other machines see the same claims.

    Raises:
        AssertionError: a promise is not kept; the text says which.
    """
    for check in (_methods, _taken, _fences, _lapses, _lost, _together, _found):
        store, room = make(), f"check-{_clock.new_id()}"
        claims = claims_of(store)
        promise(claims is not None, "a store with claims has them as its attribute `claims`")
        assert claims is not None
        await keeps("claims", check, claims, room)


async def _take(claims: Claims, key: Key, holder: str, lease: int = _LONG, *, after: int = 0) -> Claimed:
    """Return a claim with a new key."""
    claimed = await claims.take(key, holder, lease, after=after)
    if claimed is None:
        raise AssertionError(f"{_take.__name__}: a key that only this check uses is claimed")
    return claimed


async def _until_lapsed(claims: Claims, key: Key) -> None:
    while not (await claims.holders([key]))[key].lapsed:  # noqa: ASYNC110  no store tells when
        await anyio.sleep(_PAUSE)


async def _methods(claims: Claims, room: str) -> None:
    """Claims have the methods of the protocol, and say how long a lease and a heartbeat are."""
    for name in ("lease", "heartbeat"):
        promise(type(getattr(claims, name, None)) is int, f"{name} is a number of milliseconds")
    promise(0 < claims.heartbeat * 3 <= claims.lease, "three heartbeats are at most a lease")
    now = await answer(getattr(claims, "now", None), "now() is an async method")
    promise(type(now) is int, "now returns milliseconds UTC")
    key = (room, "who", 0, "methods")
    text = "take(key, holder, lease, after=0, note=b'') is an async method"
    claimed = await answer(getattr(claims, "take", None), text, key, "a", _LONG, after=0, note=b"")
    promise(isinstance(claimed, Claimed), "take returns a Claimed, or None")
    promise(accepts(claims.take, key, "a", _LONG), "after and note of take have defaults")
    lost = await answer(getattr(claims, "renew", None), "renew(claims, lease) is an async method", [claimed], _LONG)
    promise(lost == [], "renew returns a list of the lost claims")
    found = await answer(getattr(claims, "holders", None), "holders(keys) is an async method", [key])
    promise(isinstance(found, dict), "holders returns a dictionary")
    found = await answer(getattr(claims, "lapsed", None), "lapsed(room, limit) is an async method", room, 1)
    promise(found == [], "lapsed returns a list")
    await answer(getattr(claims, "release", None), "release(claims) is an async method", [claimed])
    promise(await claims.renew([], _LONG) == [] and await claims.holders([]) == {}, "of no claims, nothing is found")
    await claims.release([])


async def _taken(claims: Claims, room: str) -> None:
    """A claimed key is refused, and a released one is free at once."""
    key, other = (room, "who", 0, "\0a/é🔑"), (room, "who", 0, "b")
    before = await claims.now()
    one = await _take(claims, key, "a")
    promise((one.key, one.holder, one.lapsed) == (key, "a", False), "take returns the claim: its key and its holder")
    promise(before + _LONG <= one.until <= await claims.now() + _LONG, "a claim ends one lease after it was taken")
    promise(await claims.take(key, "b", _LONG) is None, "a claimed key is refused")
    promise(await claims.take(key, "a", _LONG) is None, "a holder has to renew its claim, and cannot take it again")
    promise(await claims.take(other, "b", _LONG) is not None, "claims of other keys are independent")
    found = await claims.holders([key, other, (room, "nobody")])
    promise(
        {each: claim.holder for each, claim in found.items()} == {key: "a", other: "b"}, "holders returns who has keys"
    )
    await claims.release([one])
    promise(await claims.take(key, "b", _LONG) is not None, "a claim that was released is free at once")


async def _fences(claims: Claims, room: str) -> None:
    """The number of a claim is one more than that of the one before."""
    text = "the number of a claim is one more than that of the one before, or than `after`, whichever is higher"
    key = (room, "who", 0, "fences")
    one = await _take(claims, key, "a")
    promise(one.fence == 1, "the number of the first claim of a key is 1")
    two = await _take(claims, key, "b", after=1)
    promise(two.fence == 2, "a claim up to the number `after` is replaced though its time is not over")
    promise(await claims.take(key, "c", _LONG, after=1) is None, "a claim above the number `after` is not replaced")
    promise(await claims.renew([one], _LONG) == [one], "a claim that was replaced is lost")
    promise(await claims.renew([two], _LONG) == [], "a claim that replaced another one can be renewed")
    await claims.release([two])
    promise((await _take(claims, key, "d", 1, after=2)).fence == 3, text)
    await _until_lapsed(claims, key)
    promise((await _take(claims, key, "e", 1)).fence == 4, text)
    await _until_lapsed(claims, key)
    promise((await _take(claims, key, "f", after=9)).fence == 10, text)


async def _lapses(claims: Claims, room: str) -> None:
    """A claim whose time is over is free, and its holder has lost it."""
    key, renewed = (room, "who", 0, "lapses"), (room, "who", 0, "renewed")
    one, two = await _take(claims, key, "a", 1), await _take(claims, renewed, "b")
    await _until_lapsed(claims, key)
    promise((await claims.holders([key]))[key].holder == "a", "holders returns a claim that lapsed, until it is taken")
    promise(await claims.renew([two, one], _LONG) == [one], "a lapsed claim is lost, even if its key was not taken")
    promise(not (await claims.holders([renewed]))[renewed].lapsed, "a claim that is renewed does not lapse")
    promise(await claims.take(key, "c", _LONG) is not None, "a claim whose time is over is free")
    shorter = await claims.renew([two], 1)
    promise(shorter == [], "a claim can be renewed again")
    await _until_lapsed(claims, renewed)


async def _lost(claims: Claims, room: str) -> None:
    """The former holder of a lost claim does not disturb the present one."""
    key = (room, "who", 0, "lost")
    one = await _take(claims, key, "a", 1)
    await _until_lapsed(claims, key)
    two = await _take(claims, key, "b")
    await claims.release([one])
    promise((await claims.holders([key])).get(key, one).holder == "b", "releasing a lost claim changes nothing")
    await claims.release([two])
    promise(await claims.holders([key]) == {}, "a released claim leaves no data behind")
    promise(await claims.renew([two], _LONG) == [two], "a claim that was released is lost")


async def _together(claims: Claims, room: str) -> None:
    """Of several takers at the same time, one has the key."""
    won: list[str] = []

    async def take(name: str, key: Key) -> None:
        if await claims.take(key, name, _LONG) is not None:
            won.append(name)

    async def elsewhere(name: str, key: Key) -> None:
        await to_thread.run_sync(anyio.run, partial(take, name, key))

    for turn in range(5):
        won.clear()
        key = (room, "who", 0, f"together {turn}")
        async with anyio.create_task_group() as group:
            for number in range(8):
                group.start_soon(elsewhere if number % 4 == 0 else take, str(number), key)
        promise(len(won) == 1, "of several takers at the same time, one has the key")
        promise((await claims.holders([key]))[key].holder == won[0], "holders says who of several takers has the key")


async def _found(claims: Claims, room: str) -> None:
    """Lapsed claims are found by their room, the earliest first, with their notes."""
    keys = [(room, "who", 0, f"found {number}") for number in range(4)]
    for number, key in enumerate(keys):
        lease = 1 if number < 3 else _LONG
        promise(
            await claims.take(key, "a", lease, note=bytes([0, number, 255])) is not None,
            "an unclaimed key is free",
        )
        if number < 3:
            await _until_lapsed(claims, key)
    found = await claims.lapsed(room, 10)
    promise(
        [claim.key for claim in found] == keys[:3], "lapsed returns the claims whose time is over, the earliest first"
    )
    promise(
        [claim.note for claim in found] == [bytes([0, n, 255]) for n in range(3)],
        "lapsed returns the note of a claim",
    )
    promise(all(claim.lapsed for claim in found), "claims that lapsed returns are marked as lapsed")
    promise(
        [claim.key for claim in await claims.lapsed(room, 2)] == keys[:2], "lapsed returns at most as many as asked for"
    )
    promise(await claims.lapsed(f"{room}x", 10) == [], "lapsed returns claims of one room")
    await claims.release(found)
    promise(await claims.lapsed(room, 10) == [], "a lapsed claim can be ended by the process that found it")
    await claims.release((await claims.holders(keys)).values())
