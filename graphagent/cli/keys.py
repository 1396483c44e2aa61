"""The commands of `graphagent keys`: making keys, and the keys that open sealed stores."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Annotated, TypeVar

import anyio
import typer

from graphagent.cli import _output
from graphagent.cli._options import (
    AnchorPlace,
    Json,
    Out,
    Yes,
    argument,
    expand_options,
    flag,
    key_option,
    option,
    place_option,
    value_of,
)
from graphagent.cli._private_files import private_file
from graphagent.cli._progress_bar import progress_bar
from graphagent.cli._prompts import confirm_by_typing
from graphagent.cli._store_place import StorePlace
from graphagent.cli._stores import key_source, plain_store, sealed_store, stores_in
from graphagent.errors import PlainStoreError, StoreError
from graphagent.store import (
    KeySource,
    RotationProgress,
    StoreKey,
    StoreKeys,
    new_key,
    new_recovery_key,
)
from graphagent.store.sealed._key_sources import put_in_keyring

T = TypeVar("T")
keys = typer.Typer(
    no_args_is_help=True, help="Make keys; list, add, remove, rotate and destroy those of a sealed store."
)
Name = Annotated[str, argument("NAME", "The name of the key, as `keys list` shows it.")]
NewKey = Annotated[
    str | None,
    option("--new-key", "KEY", "The new key, in one of the forms of --key. passphrase asks for it, twice."),
]
Recovery = Annotated[bool, flag("--recovery", text="Make a recovery key, and print it once.")]


@dataclass(frozen=True, slots=True)
class Sealed:
    """Sealed stores, and a key that opens them."""

    store: Annotated[
        StorePlace | None,
        place_option(
            "The file of a store, or a folder: the sealed stores in it. Default: those in "
            "$GRAPHAGENT_HOME, or else in your user data folder"
        ),
    ] = None
    key: Annotated[str | None, key_option("A key that opens the store")] = None
    anchor: AnchorPlace = None

    def use(self, work: Callable[[dict[StorePlace, StoreKeys]], Awaitable[T]]) -> T:
        """Open the stores, await `work` with the keys of each, close them, and return the result of `work`.

        Raises:
            BadParameter: The key is missing or not a key.
            StoreError: No sealed store exists, or one does not open with this key. Nothing was changed.
        """
        paths = stores_in(self.store)
        if self.key is None:
            raise typer.BadParameter("name the key that opens the store now", param_hint="--key")
        given = key_source(self.key)

        async def main() -> T:
            async with AsyncExitStack() as stack:
                opened: dict[StorePlace, StoreKeys] = {}
                for path in paths:
                    store = sealed_store(plain_store(path), path, given, self.anchor)
                    with value_of("--key"):
                        await stack.enter_async_context(store)
                    try:
                        if await store.keys.list():  # a wrong key fails here, before any change
                            opened[path] = store.keys
                    except PlainStoreError:
                        if len(paths) == 1:
                            raise
                if not opened:
                    raise StoreError(f"no sealed store was found in {', '.join(map(str, paths))}")
                return await work(opened)

        return anyio.run(main)


@keys.command("new", epilog="Example: graphagent keys new --out ~/.graphagent-key")
def new(
    out: Out = None,
    keyring: Annotated[
        str | None, option("--keyring", "SERVICE/NAME", "An entry of the system's keyring to put the key in.")
    ] = None,
    recovery: Annotated[bool, flag("--recovery", text="Make a recovery key, to be written down.")] = False,
) -> None:
    """Create a key. Keep it safe: without it, no one can read the data encrypted with it."""
    text = new_recovery_key() if recovery else new_key()
    if keyring is not None:
        if out is not None:
            raise typer.BadParameter("a key is put in a file or in the keyring, not in both", param_hint="--keyring")
        with value_of("--keyring"):
            put_in_keyring(keyring, text)
        _output.aside(f"The key is in the keyring. Use it with --key keyring:{keyring}, and keep a copy elsewhere.")
    elif out is None:
        print(text)
    else:
        out = out.expanduser()
        with private_file(out) as file:
            file.write(f"{text}\n".encode())
        _output.aside(f"The key is in {out}. Use it with --key file:{out}, and keep a copy elsewhere.")


@keys.command("list", epilog="Example: graphagent keys list --store memory --key file:~/.graphagent-key")
@expand_options
def list_keys(target: Sealed, json: Json = False) -> None:
    """List the keys that open a store: their names, kinds and dates, and which of them was given. No secret is shown."""

    async def read(stores: dict[StorePlace, StoreKeys]) -> list[tuple[StorePlace, StoreKey]]:
        return [(path, each) for path, store in stores.items() for each in await store.list()]

    found = target.use(read)
    if json:
        data = [
            {
                "store": str(path),
                "name": each.name,
                "kind": each.kind,
                "added": each.added and each.added.isoformat(),
                "current": each.current,
            }
            for path, each in found
        ]
        print(_output.json_text(data))
        return
    rows = [
        (
            each.name,
            {"passphrase": "pass phrase", "recovery": "recovery key"}.get(each.kind, each.kind),
            _output.moment(int(each.added.timestamp() * 1000) if each.added else None),
            "this one" if each.current else "",
            str(path),
        )
        for path, each in found
    ]
    _output.table(("name", "kind", "added", "given", "store"), rows)


@keys.command("add", epilog="Example: graphagent keys add phone --new-key passphrase --key file:~/.graphagent-key")
@expand_options
def add(name: Name, target: Sealed, new_key: NewKey = None, recovery: Recovery = False) -> None:
    """Add another key that opens a store."""
    key = _new(new_key, recovery=recovery)

    async def work(stores: dict[StorePlace, StoreKeys]) -> None:
        for store in stores.values():
            with value_of():
                await store.add(name, key)

    target.use(work)
    if recovery:
        print(key)
        _output.say("This recovery key is shown once. Write it down, and keep it apart from the store.")
    _output.aside(f"{name!r} opens the store.")


@keys.command("remove", epilog="Example: graphagent keys remove laptop --key file:~/.graphagent-key")
@expand_options
def remove(name: Name, target: Sealed) -> None:
    """Remove a key, which then does not open the store any more; another one is given with --key."""

    async def work(stores: dict[StorePlace, StoreKeys]) -> None:
        for store in stores.values():
            with value_of():
                await store.remove(name)

    target.use(work)
    _output.aside(f"{name!r} does not open the store any more. Copies of the store from before still open with it.")


@keys.command("rotate", epilog="Example: graphagent keys rotate --key file:old --new-key file:new")
@expand_options
def rotate(
    target: Sealed,
    new_key: NewKey = None,
    name: Annotated[str | None, option("--name", "NAME", "A new name of the key. Default: as before.")] = None,
    data: Annotated[
        bool,
        flag(
            "--data",
            text="Also seal everything that is stored with new keys, so that the old key opens nothing, even with an old copy. "
            "Others may read and write meanwhile; if it is interrupted, the same with the new key as --key continues it.",
        ),
    ] = False,
) -> None:
    """Replace the given key with a new one. Without --data, this takes one commit, however much is stored."""
    if new_key is None and name is not None:
        raise typer.BadParameter("the new key gets this name; give --new-key too", param_hint="--name")
    key = None if data and new_key is None else _new(new_key)

    async def work(stores: dict[StorePlace, StoreKeys]) -> None:
        for path, store in stores.items():
            if key is not None:
                with value_of():
                    await store.rotate(key, name=name)
                _output.aside(f"The new key opens {path}, and the old one does not.")
        for path, store in stores.items():
            if data:
                await _rotate_data(path, store)

    target.use(work)


async def _rotate_data(path: StorePlace, store: StoreKeys) -> None:
    with progress_bar(f"Sealing the parts of {path} anew") as show:

        def report(now: RotationProgress) -> None:
            show(now.domains, now.total)

        await store.rotate_data(report)
    _output.aside(f"Everything in {path} is sealed with new keys.")


@keys.command("destroy", epilog="Example: graphagent keys destroy --store memory/facts.db --key file:~/.graphagent-key")
@expand_options
def destroy(target: Sealed, yes: Yes = False) -> None:
    """Destroy all keys of a store, and with them its data, for good: no one can read any of it again, with any key."""

    async def work(stores: dict[StorePlace, StoreKeys]) -> None:
        if not yes:
            _output.say(
                f"Everything in {', '.join(map(str, stores))} is destroyed: no one can read it again, with any key or recovery key. "
                f"Only copies made before stay readable."
            )
            confirm_by_typing("destroy")
        for path, store in stores.items():
            await store.destroy()
            _output.aside(f"The keys of {path} are destroyed.")

    target.use(work)


def _new(text: str | None, *, recovery: bool = False) -> KeySource:
    if recovery == (text is not None):
        raise typer.BadParameter(
            "--recovery makes the key itself; leave out --new-key" if recovery else "name the new key",
            param_hint="--new-key",
        )
    return new_recovery_key() if text is None else key_source(text, new=True, what="The new pass phrase")
