"""`graphagent backup`, `restore`, `verify` and `store copy`: the commands for stores of every kind."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, cast

import anyio
import typer

from graphagent._article import counted
from graphagent.cli import _output
from graphagent.cli._options import AnchorPlace, AnyPlace, Json, flag, key_option, option, place_argument, value_of
from graphagent.cli._prompts import confirm
from graphagent.cli._store_place import SERVER, StorePlace
from graphagent.cli._stores import (
    all_kept,
    check_anchor,
    is_new,
    key_source,
    open_place,
    open_plain,
    plain_store,
    sealed_store,
)
from graphagent.errors import DamagedStoreError, SealedStoreError, StoreError, StoreExistsError, StoreNotFoundError
from graphagent.memory import Notes, StoreMemoryProvider
from graphagent.store import EncryptedStore, backup, copy_store, restore
from graphagent.store.sqlite._copying import give_name

if TYPE_CHECKING:
    from graphagent.history import Place
    from graphagent.protocols import Store
    from graphagent.store import BackupReport

store = typer.Typer(no_args_is_help=True, help="Copy a store.", epilog="Example: graphagent store copy notes.db new.db")
_PART = ".part"
"""The suffix of the name of a copy until the copy is complete."""
Replace = Annotated[bool, flag("--replace", text="Replace an existing store.")]


def back_up(
    path: Annotated[
        StorePlace, place_argument("STORE", "The file of a store, or a folder with stores and readable facts.")
    ],
    to: Annotated[
        StorePlace, place_argument("TO", "A new path. For a folder, it may be an earlier backup of the same.")
    ],
    replace: Replace = False,
) -> None:
    """Copy a store, or all in a folder, while others use it. No key is needed: sealed data stays sealed.

    Keep the keys elsewhere; without them no one can read a backup of sealed data. Of a folder of readable facts, a second backup
    writes only changed files. Keys and other files are not copied. A database has tools of its own; this prints their command.
    """
    report = anyio.run(partial(backup, _named(path), _named(to), replace=replace))
    print(f"Backed up: {_what(report)}, {counted(report.bytes, 'byte')} written.")
    if report.left:
        named = ", ".join(map(repr, report.left[:4])) + (" …" if len(report.left) > 4 else "")
        _output.aside(
            f"Not copied, because they are neither stores nor readable facts, or are links to folders: {named}"
        )


def put_back(
    path: Annotated[StorePlace, place_argument("FROM", "The backup: a file, or a folder.")],
    to: Annotated[StorePlace, place_argument("STORE", "Where the store is to be.")],
    replace: Replace = False,
) -> None:
    """Put a backup back, entirely or not at all. A store that is replaced must not be in use, and stays until the new one was checked."""
    report = anyio.run(partial(restore, _named(path), _named(to), replace=replace))
    print(f"Restored: {_what(report)}.")
    _output.aside(
        "Everything is as it was when the backup was made. Data forgotten since then is back: forget it again. "
        "If anything was stored since then, the store is older than its anchor, and refused until you accept it: graphagent anchor reset"
    )


def _named(place: StorePlace) -> str:
    return place.text if place.is_server else str(place.path)


def _what(report: BackupReport) -> str:
    kinds = ((report.stores, "store"), (report.files, "file"))
    return " and ".join(
        counted(count, kind) + (" of readable facts" if kind == "file" else "") for count, kind in kinds if count
    )


def verify(
    path: AnyPlace = None,
    key: Annotated[str | None, key_option("Open sealed stores")] = None,
    anchor: AnchorPlace = None,
    as_json: Json = False,
) -> None:
    """Read all stored data, and check that nothing was changed, cut off or damaged."""
    found = anyio.run(_verify, path, key, anchor)
    if as_json:
        print(_output.json_text(found))
    else:
        for each, counts in found.items():
            if "damaged" in counts:
                _output.complain(str(counts["damaged"]))
            else:
                kinds = (("versions", "version"), ("notes", "note"), ("runs", "run"))
                parts = [
                    counted(int(counts[name]), kind) + (" of facts" if kind == "version" else "")
                    for name, kind in kinds
                    if counts[name]
                ]
                print(f"{each}: sound; {', '.join(parts) or 'empty'}")
    if any("damaged" in counts for counts in found.values()):
        raise typer.Exit(1)


async def _verify(path: StorePlace | None, key: str | None, anchor: str | None) -> dict[str, dict[str, int | str]]:
    """Return the counts of each place, or why it is damaged."""
    found: dict[str, dict[str, int | str]] = {}
    try:
        places = all_kept(None if path is None else [path])
    except typer.BadParameter as error:
        error.param_hint = "STORE"
        raise
    given = None if key is None else key_source(key)
    for each in places:
        try:
            async with open_place(each, given, anchor) as place:
                found[str(each)] = await _counts(place)
        except DamagedStoreError as error:
            remedy = "; rebuild the index: graphagent notes reindex" if error.where.startswith("the index ") else ""
            found[str(each)] = {"damaged": f"{error}{remedy}"}
    return found


async def _counts(place: Place) -> dict[str, int | str]:
    from graphagent.history import verify_runs
    from graphagent.protocols import KeepingProvider

    if isinstance(place, KeepingProvider):
        return {"versions": await place.verify(), "notes": 0, "runs": 0}
    kept = cast("Store", place)
    notes = 0
    for owner in await Notes(kept).owners():
        notes += await Notes(kept, owner=owner).verify()
    versions = await StoreMemoryProvider(kept).verify()
    return {"versions": versions, "notes": notes, "runs": await verify_runs(kept)}


@store.command("copy", epilog="Example: graphagent store copy notes.db new.db --key file:OLD --new-key file:NEW")
def copy(
    path: Annotated[StorePlace, place_argument("FROM", f"The file of the store, or a database: {SERVER}.")],
    to: Annotated[StorePlace, place_argument("TO", "The file of the new store, or a database without one.")],
    key: Annotated[str | None, key_option("Open FROM, if it is sealed")] = None,
    new_key: Annotated[
        str | None, option("--new-key", "KEY", "Encrypt TO with this key, in one of the forms of --key.")
    ] = None,
    anchor: AnchorPlace = None,
) -> None:
    """Copy everything in a store into a new one: facts, notes, runs, threads, under another key or none.

    This replaces all keys of a sealed store, those by which names are hidden too. If it is interrupted, it is continued by the same
    command; until it is complete, a copy in a file has another name.
    """
    if not (path.is_server or path.path.is_file()):
        raise StoreNotFoundError("store", str(path.path), "name the file of an existing store")
    if not to.is_server and to.path.exists():
        raise StoreExistsError(str(to.path), "give another path")
    if path == to:
        raise typer.BadParameter("TO is the same as FROM; name another one", param_hint="TO")
    check_anchor(key, anchor)
    part = to if to.is_server else StorePlace(str(to.path.with_name(to.path.name + _PART)))
    if new_key is None and key is not None:
        confirm("FROM is encrypted, and TO would not be: give --new-key. Copy it in plain text?")
    count = anyio.run(_copy, path, part, key, new_key, anchor)
    if not to.is_server:
        give_name(part.path, to.path)
    print(f"Copied: {counted(count, 'item')}.")


async def _copy(path: StorePlace, part: StorePlace, key: str | None, new_key: str | None, anchor: str | None) -> int:
    async with open_plain(path) as source, plain_store(part) as target:
        one: Store = source if key is None else sealed_store(source, path, key_source(key), anchor)
        two: Store = target
        if new_key is not None:
            new = key_source(new_key, new=await is_new(part, target), what="The new pass phrase")
            with value_of("--new-key"):
                two = EncryptedStore(target, new)
        await one.get(("copying",))  # the item does not exist; but a wrong or missing key fails here, before any change
        try:
            return await copy_store(one, two)
        except SealedStoreError:
            raise StoreError(
                f"{part} is a copy that was begun with --new-key; give that again, or {_remedy(part)}"
            ) from None
        except StoreExistsError:
            raise StoreExistsError(
                str(part), f"it is not a copy of FROM that was interrupted; {_remedy(part)}, and copy again"
            ) from None


def _remedy(part: StorePlace) -> str:
    return "give another schema (?schema=NAME) or database" if part.is_server else "remove it"
