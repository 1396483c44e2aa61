"""`graphagent inspect`: the runs of a store, in a browser, or one of them in a file."""

from __future__ import annotations

import logging
import webbrowser
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import anyio
import typer

from graphagent._article import counted
from graphagent.cli import _stores
from graphagent.cli._options import AnyOwner, argument, expand_options, flag, option
from graphagent.cli._output import aside
from graphagent.cli._private_files import private_file
from graphagent.cli._serving import address_of, serve_until_stopped, token_at
from graphagent.cli._store_place import StorePlace
from graphagent.cli._user_code import work_at
from graphagent.cli.notes._target import embedder_of
from graphagent.cli.runs._completion import run_ids
from graphagent.cli.runs._target import RunsStore, run_named, run_of_anybody
from graphagent.errors import WrongKeyError
from graphagent.memory import Notes, StoreMemoryProvider

if TYPE_CHECKING:
    from graphagent.protocols import KeepingProvider, Store


@dataclass(frozen=True, slots=True)
class InspectOptions(RunsStore):
    """The runs that are shown."""

    owner: AnyOwner = None


@dataclass(frozen=True, slots=True)
class SaveOptions:
    """One run in a file, instead of pages in a browser."""

    html: Annotated[
        Path | None,
        option(
            "--html", "FILE", "Write one run as a page into this new file, which only you can read, and serve nothing."
        ),
    ] = None
    redact: Annotated[
        bool, flag("--redact", text="With --html: write the lengths of texts and values instead of these.")
    ] = False
    plaintext: Annotated[
        bool, flag("--plaintext", text="With --html: write a run of a sealed store into a file that is not sealed.")
    ] = False

    def check(self, run: str | None, inspected: InspectOptions, serving: Mapping[str, object]) -> None:
        """Check that the options go together.

        Args:
            run: The run that is named.
            inspected: The store.
            serving: The values of the options that are for a server, by their names.

        Raises:
            BadParameter: they do not go together.
        """
        if self.html is None:
            alone = next(
                (name for name, given in (("--redact", self.redact), ("--plaintext", self.plaintext)) if given), None
            )
            if alone is not None:
                raise typer.BadParameter(f"{alone} is for a page in a file; name the file: --html FILE")
            if run is not None:
                raise typer.BadParameter(
                    f"the pages show all runs, and {run!r} is one; leave it out, or write it into a file: --html FILE",
                    param_hint="RUN",
                )
            return
        beside = [name for name, given in serving.items() if given]
        if beside:
            raise typer.BadParameter(f"--html writes a file and serves nothing; leave out {' and '.join(beside)}")
        if inspected.key is not None and not self.plaintext:
            raise typer.BadParameter(
                "the store is sealed and the file is not, so everybody who gets it can read it; if that is wanted, add --plaintext",
                param_hint="--html",
            )


@expand_options
def inspect(  # long because each option is described here
    run: Annotated[
        str | None,
        argument(
            "RUN", "With --html: the id of a run, or its beginning. Default: the newest run.", autocompletion=run_ids
        ),
    ] = None,
    *,
    inspected: InspectOptions,
    save: SaveOptions,
    http: Annotated[
        str | None,
        option("--http", "[HOST:]PORT", "Where to serve the pages. Default: 127.0.0.1:8766. Port 0 takes a free one."),
    ] = None,
    token: Annotated[
        str | None,
        option(
            "--token",
            "env:NAME|file:PATH",
            "Where the token is that a browser is asked for. Only this machine is served without one.",
        ),
    ] = None,
    host: Annotated[
        list[str] | None,
        option(
            "--host",
            "NAME",
            "A further name under which browsers reach the pages, such as that of a proxy; can be repeated.",
        ),
    ] = None,
    agent: Annotated[
        str | None,
        option(
            "--agent",
            "MODULE:NAME",
            "An agent, or a list of agents, whose runs can be forked, and go on here when they are answered or resumed. Default: workers go on with them.",
        ),
    ] = None,
    leave: Annotated[
        bool,
        flag(
            "--leave-to-workers",
            text="Leave answered, resumed and forked runs to workers. Default: this command executes them.",
        ),
    ] = False,
    prefix: Annotated[
        str, option("--prefix", "PATH", "The path below which a proxy serves the pages, such as /inspect.")
    ] = "",
    read_only: Annotated[bool, flag("--read-only", text="Let the pages change nothing.")] = False,
    browser: Annotated[bool, flag("--open", text="Open the pages in the browser of this machine.")] = False,
) -> None:
    """Show the runs of a store in a browser: the outcome of each, its steps in time, its prompts, and the questions that wait for you."""
    serving = {
        "--http": http,
        "--token": token,
        "--host": host,
        "--prefix": prefix,
        "--read-only": read_only,
        "--leave-to-workers": leave,
        "--open": browser,
    }
    save.check(run, inspected, serving)
    agents = [] if agent is None else work_at(agent)[0]
    if save.html is not None:
        anyio.run(_save, run, inspected, save.html, save.redact)
        return
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    address, secret = address_of(http or "127.0.0.1:8766", "--http"), token_at(token)

    def started(url: str) -> None:
        aside(f"The runs are at {url}; Ctrl-C ends it.")
        if browser:
            webbrowser.open(url)

    async def main() -> None:
        from graphagent.inspect import Inspector

        place = _stores.place_of("runs", inspected.store, new=False)
        async with (
            _stores.open_store("runs", inspected.store, inspected.key, inspected.anchor) as store,
            _facts_of(inspected, store) as facts,
            _notes_of(inspected, store) as notes,
        ):
            for each in agents:
                each.store = store
            pages = Inspector(
                store, facts=facts, notes=notes, agents=agents, read_only=read_only, owner=inspected.owner, sealed=inspected.key is not None,
                name=_name_of(place), options=inspected.given(), executes=not leave,
            )  # fmt: skip
            await serve_until_stopped(
                lambda: pages.serve(*address, token=secret, hosts=host or (), prefix=prefix, on_started=started),
                address,
                "--http",
            )

    anyio.run(main)


async def _save(run: str | None, inspected: InspectOptions, out: Path, redact: bool) -> None:
    """Write the page of a run into a file."""
    from graphagent.inspect import Inspector

    with private_file(out) as file:
        async with (
            _stores.open_store("runs", inspected.store, inspected.key, inspected.anchor) as store,
            _facts_of(inspected, store) as facts,
            _notes_of(inspected, store) as notes,
        ):
            owner = inspected.owner
            if owner is None:
                owner, run_id = await run_of_anybody(store, run)
            else:
                run_id = await run_named(store, owner, run)
            pages = Inspector(store, facts=facts, notes=notes, sealed=inspected.key is not None)
            text = (await pages.save(run_id, owner=owner, redact=redact)).encode()
        file.write(text)
    said = "without its texts and values" if redact else "with all texts in it; --redact writes it without"
    aside(f"Run {run_id!r}, {counted(len(text), 'byte')}, written to {out}, readable by you alone, not sealed, {said}.")


@asynccontextmanager
async def _facts_of(inspected: InspectOptions, store: Store) -> AsyncGenerator[KeepingProvider | None]:
    """Yield the facts that are kept with the runs: in the same store, or in the folder of both; None if they do not exist, or have another key."""
    given = _stores.memory_of(inspected.store)
    if _stores.is_one_store(given):
        yield StoreMemoryProvider(store)
        return
    folder = _stores.place_of("facts", given, new=True)
    is_sealed = (folder.path / _stores.SEALED).exists()
    if not folder.path.is_dir() or (is_sealed and inspected.key is None):
        yield None
        return
    key, anchor = (inspected.key, inspected.anchor) if is_sealed else (None, None)
    async with _stores.open_facts(folder, key, anchor, new=False) as facts:
        yield facts


@asynccontextmanager
async def _notes_of(inspected: InspectOptions, store: Store) -> AsyncGenerator[Notes | None]:
    """Yield the notes that are kept with the runs: in the same store, or in the folder of both; None if they do not exist, or have another key."""
    given = _stores.memory_of(inspected.store)
    if _stores.is_one_store(given):
        yield Notes(store, embedder=await embedder_of(store))
        return
    place = _stores.place_of("notes", given, new=True)
    key = None if inspected.key is None else _stores.key_source(inspected.key, new=False)
    async with AsyncExitStack() as opened:
        kept: Any = None
        if place.path.exists():
            with suppress(typer.BadParameter, WrongKeyError):
                kept = await opened.enter_async_context(_stores.open_place(place, key, inspected.anchor))
        yield None if kept is None else Notes(kept, embedder=await embedder_of(kept))


def _name_of(place: StorePlace) -> str:
    """Return what the pages call a store: not where it is, which is nobody's business."""
    return "PostgreSQL" if place.is_server else place.path.name
