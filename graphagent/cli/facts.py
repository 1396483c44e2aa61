"""`graphagent facts`: list, correct, withdraw, forget, export and import facts.

The file is long because each command declares and describes its own options.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, TypeVar

import anyio
import typer

from graphagent._article import counted
from graphagent.cli import _output
from graphagent.cli._jsonl import lines_to, read_lines
from graphagent.cli._options import (
    AGENT_NAME,
    KEY_PLACES,
    AnchorPlace,
    AnyOwner,
    Out,
    Yes,
    argument,
    expand_options,
    flag,
    option,
    owner_option,
    scope_of,
    store_option,
    subject_of,
    time_of,
    value_of,
)
from graphagent.cli._phrases import others, were_new
from graphagent.cli._prompts import confirm
from graphagent.cli._store_place import StorePlace
from graphagent.cli._stores import open_facts, stores_of_programs
from graphagent.cli.forget import Chosen, what_stays
from graphagent.errors import StoreError, ValueNotFoundError
from graphagent.memory import (
    Concept,
    Fact,
    FactType,
    FactVersion,
    MultipleFacts,
    Scope,
    ScopeKind,
    SingleFact,
    Source,
    Subject,
    Withdrawal,
)
from graphagent.protocols import KeepingProvider

T = TypeVar("T")
facts = typer.Typer(no_args_is_help=True, help="List, correct, withdraw, forget, export and import facts.")


class Format(Enum):
    """How a command prints its result."""

    TABLE = "table"
    JSON = "json"


As = Annotated[Format, typer.Option("--format", help="A table for people, or JSON for programs.")]
Keyword = Annotated[str, argument("KEYWORD", "The fact's keyword, as `facts list` shows it.")]


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory that a command works on."""

    store: Annotated[
        StorePlace | None,
        store_option("The folder with the facts, or the file of a program that keeps them in a store", "memory"),
    ] = None
    key: Annotated[
        str | None,
        option(
            "--key",
            "KEY",
            f"Encrypt the memory, or open an encrypted one: {KEY_PLACES}. The base64 text "
            "of a key is accepted too, but would stay in your shell's history. Without a key, facts are plain files.",
        ),
    ] = None

    anchor: AnchorPlace = None

    def use(self, work: Callable[[KeepingProvider], Awaitable[T]], *, new: bool = False) -> T:
        """Open the provider, await `work` with it, close it, and return the result of `work`. `new` creates a missing memory."""

        async def main() -> T:
            async with open_facts(self.store, self.key, self.anchor, new=new) as provider:
                return await work(provider)

        return anyio.run(main)


@dataclass(frozen=True, slots=True)
class Selection(Memory):
    """Facts of one owner in a memory, of all subjects and scopes or of one."""

    owner: Annotated[str, owner_option("Whose facts: each owner has a separate memory.")] = ""
    subject: Annotated[str | None, option("--subject", "NAME", "Only facts about this subject.")] = None
    scope: Annotated[
        str | None,
        option("--scope", "KIND:NAME", "Only this scope, such as agent:chat or product:my-app.")
    ] = None  # fmt: skip

    @property
    def whose(self) -> str:
        """The owner in a sentence; empty without one."""
        return f" for owner {self.owner!r}" if self.owner else ""

    @property
    def within(self) -> Scope | None:
        """The scope; None: all scopes.

        Raises:
            BadParameter: the text is not a scope.
        """
        return scope_of(self.scope) if self.scope else None

    async def records(
        self, provider: KeepingProvider, keyword: str | None = None, *, all_owners: bool = False
    ) -> AsyncIterator[dict[str, Any]]:
        """Yield every version of every selected fact as an export has it."""
        within = self.within
        async for record in provider.export(owner=None if all_owners else self.owner):
            scope: Any = record["scope"]
            if (
                keyword in (None, record["keyword"])
                and self.subject in (None, record["subject"])
                and (within is None or scope == {"kind": within.kind.value, "name": within.name})
            ):
                yield record

    async def places(self, provider: KeepingProvider, keyword: str | None = None) -> list[tuple[Subject, Scope]]:
        """Return the subjects and scopes that have selected facts, in the order in which facts are resolved."""
        found = {
            (record["subject"], record["scope"]["kind"], record["scope"]["name"])
            async for record in self.records(provider, keyword)
        }
        places = [(subject_of(subject), Scope(ScopeKind(kind), name)) for subject, kind, name in found]
        return sorted(places, key=lambda at: (at[0].priority, at[0].name, at[1].kind.width, at[1].name))


@facts.command("list", epilog="Example: graphagent facts list --key env:GRAPHAGENT_KEY --subject user")
@expand_options
def list_facts(
    selection: Selection,
    form: As = Format.TABLE,
    as_of: Annotated[
        str | None,
        option(
            "--as-of",
            "TIME",
            "The facts that held at this time, such as 2026-01-31, as far as known now. Default: now.",
        ),
    ] = None,
) -> None:
    """List the known facts: the latest value of each, and beside it less trusted values."""
    moment = time_of(as_of, "--as-of")

    async def read(provider: KeepingProvider) -> tuple[list[tuple[Subject, Scope, Fact]], set[str]]:
        known = [
            (subject, scope, fact)
            for subject, scope in await selection.places(provider)
            for fact in sorted(
                await provider.load_all(subject, scope, owner=selection.owner, as_of=moment),
                key=lambda fact: fact.concept.keyword,
            )
        ]
        if known:
            return known, set()
        try:
            return [], {record["owner"] async for record in selection.records(provider, all_owners=True)}
        except StoreError:
            return [], set()  # damaged facts of other owners do not concern this one

    known, owners = selection.use(read)
    if form is Format.JSON:
        _print_json(known, selection.owner)
    elif known:
        rows = [
            (
                fact.concept.keyword, ", ".join(fact.values), subject.name, _named(scope), str(fact.version),
                _output.moment(fact.timestamp), *_validity(fact), fact.source.trust,
            )
            for subject, scope, fact in known
        ]  # fmt: skip
        columns = ("fact", "value", "about", "scope", "version", "recorded", "from", "until", "trust")
        without = set[str]() if any(row[6] or row[7] for row in rows) else {"from", "until"}
        if all(row[8] != "untrusted" for row in rows):
            without.add("trust")
        _table(columns, rows, without=without, essential=("fact", "value"))
    if not known:
        _output.aside(
            f"Nothing is known{selection.whose} here.{others(owners, selection.owner, 'facts')}{stores_of_programs(selection.store)}"
        )


@facts.command("show", epilog="Example: graphagent facts show city")
@expand_options
def show(
    keyword: Keyword,
    selection: Selection,
    form: As = Format.TABLE,
    at: Annotated[str | None, option("--at", "TIME", "Only versions recorded by this time. Default: all.")] = None,
) -> None:
    """Show one fact with its history, newest first: every value, since when, and its source."""
    concept, moment = _concept(keyword), time_of(at, "--at")

    async def read(provider: KeepingProvider) -> list[tuple[Subject, Scope, FactVersion]]:
        return [
            (subject, scope, fact)
            for subject, scope in await selection.places(provider, keyword)
            for fact in await provider.history(concept, subject, scope, owner=selection.owner, at=moment)
        ]

    versions = selection.use(read)
    if not versions:
        _output.fail(f"nothing is known of {keyword!r}{selection.whose}; `graphagent facts list` shows the facts")
    if form is Format.JSON:
        _print_json(versions, selection.owner)
        return
    rows = [
        (
            str(fact.version), _said(fact), _output.moment(fact.timestamp), *_validity(fact), subject.name, _named(scope),
            fact.source.origin, fact.source.trust,
        )
        for subject, scope, fact in versions
    ]  # fmt: skip
    columns = ("version", "value", "recorded", "from", "until", "about", "scope", "source", "trust")
    timed = any(row[3] or row[4] for row in rows)
    _table(columns, rows, without=set() if timed else {"from", "until"}, essential=("version", "value"))


async def _elsewhere(provider: KeepingProvider, keyword: str, subject: Subject, scope: Scope, owner: str) -> list[str]:
    """Return the options that name the other subjects and scopes in which an owner has a fact under a keyword."""
    places = await Selection(owner=owner).places(provider, keyword)
    return [
        shlex.join(("--subject", about.name, "--scope", _named(place)))
        for about, place in places
        if (about, place) != (subject, scope)
    ]


@facts.command("set", epilog="Example: graphagent facts set city Oslo")
@expand_options
def set_fact(  # long because a third of it declares the options
    keyword: Annotated[str, argument("KEYWORD", "The fact's keyword, such as city.")],
    values: Annotated[list[str], argument("VALUE…", "Its value, or - to read it from standard input.")],
    memory: Memory,
    owner: Annotated[str, owner_option("Whose fact: each owner has a separate memory.")] = "",
    subject: Annotated[str, typer.Option(metavar="NAME", help="The person or thing it is about.")] = "user",
    scope: Annotated[
        str, typer.Option(metavar="KIND:NAME", help="The scope in which it holds.")
    ] = f"agent:{AGENT_NAME}",
    description: Annotated[
        str, option("--description", "TEXT", "The meaning of the keyword. Default: the known description.")
    ] = "",
    multiple: Annotated[bool, flag("--multiple", text="Add to the known values instead of replacing them.")] = False,
    begins: Annotated[
        str | None,
        option("--from", "TIME", "Since when it holds, such as 2026-05-01, also in the future. Default: now."),
    ] = None,
    ends: Annotated[
        str | None, option("--to", "TIME", "From when it does not hold any more. Default: until another value holds.")
    ] = None,
) -> None:
    """Set a fact yourself. Earlier versions stay in its history."""
    about, place = subject_of(subject), scope_of(scope)
    valid_from, valid_to = time_of(begins, "--from"), time_of(ends, "--to")
    given = [value.strip() for value in ([sys.stdin.read()] if values == ["-"] else values)]
    if not all(given):
        raise typer.BadParameter(
            f"the value is blank; to remove a fact: graphagent facts forget {keyword}",
            param_hint="VALUE",
        )
    if not keyword.strip():
        raise typer.BadParameter("the keyword is blank", param_hint="KEYWORD")

    async def save(provider: KeepingProvider) -> tuple[FactVersion, list[str]]:
        past = await provider.history(_concept(keyword), about, place, owner=owner)
        several = multiple or (past[0].concept.fact_type is FactType.MULTIPLE if past else len(given) > 1)
        if len(given) > 1 and not several:
            raise typer.BadParameter(
                f"{keyword!r} has a single value; pass one value, or --multiple to have several", param_hint="VALUE"
            )
        kind = FactType.MULTIPLE if several else FactType.SINGLE
        if several and (valid_from or valid_to):
            raise typer.BadParameter(
                f"{keyword!r} has several values, and only a single one has times; add values by `set`, and take them back by `withdraw`",
                param_hint="--from" if valid_from else "--to",
            )
        concept = Concept(keyword, description or (past[0].concept.description if past else ""), kind)
        source = Source(origin="graphagent facts set", trust="trusted")
        with value_of("VALUE"):
            fact = (
                MultipleFacts(concept, given, source=source)
                if several
                else SingleFact(concept, given[0], source=source, valid_from=valid_from, valid_to=valid_to)
            )
        await provider.save(fact, about, place, owner=owner)
        elsewhere = [] if past else await _elsewhere(provider, keyword, about, place, owner)
        return await _newest(provider, concept, about, place, owner), elsewhere

    saved, elsewhere = memory.use(save, new=True)
    print(f"{keyword}, version {saved.version}: {_output.shortened(', '.join(saved.values))}")
    if elsewhere:
        _output.aside(f"This is a new fact. The existing fact under {keyword!r} is unchanged: {'; '.join(elsewhere)}")


@facts.command("withdraw", epilog="Example: graphagent facts withdraw diet meat")
@expand_options
def withdraw(
    keyword: Keyword,
    values: Annotated[list[str], argument("VALUE…", "The values to take back, as `facts list` shows them.")],
    memory: Memory,
    owner: Annotated[str, owner_option("Whose fact: each owner has a separate memory.")] = "",
    subject: Annotated[str, typer.Option(metavar="NAME", help="The person or thing it is about.")] = "user",
    scope: Annotated[
        str, typer.Option(metavar="KIND:NAME", help="The scope in which it holds.")
    ] = f"agent:{AGENT_NAME}",
) -> None:
    """Take back values of a fact with several. Its history keeps them; `forget KEYWORD --value VALUE` erases one."""
    about, place = subject_of(subject), scope_of(scope)
    source = Source(origin="graphagent facts withdraw", trust="trusted")

    async def take_back(provider: KeepingProvider) -> FactVersion:
        concept = replace(_concept(keyword), fact_type=FactType.MULTIPLE)
        try:
            with value_of("KEYWORD"):
                await provider.withdraw(Withdrawal(concept, values, source=source), about, place, owner=owner)
        except ValueNotFoundError as error:
            elsewhere = await _elsewhere(provider, keyword, about, place, owner)
            if not elsewhere:
                raise
            raise StoreError(f"{error}; there is {keyword!r} with {' or '.join(elsewhere)}") from None
        return await _newest(provider, concept, about, place, owner)

    left = memory.use(take_back)
    values_left = "" if isinstance(left, Withdrawal) else _output.shortened(", ".join(left.values))
    print(f"{keyword}, version {left.version}: {values_left or 'no value is left'}")


@facts.command("forget", epilog="Example: graphagent facts forget city")
@expand_options
def forget(  # long because a third of it declares the options
    *,
    keyword: Annotated[
        str | None, argument("KEYWORD", "The fact to forget. Default: all facts that the options select.")
    ] = None,
    selection: Selection,
    everything: Annotated[bool, flag("--all", text="Forget everything of this owner.")] = False,
    value: Annotated[
        str | None, option("--value", "TEXT", "Only this value of a fact with several, as `facts list` shows it.")
    ] = None,
    yes: Yes = False,
) -> None:
    """Forget facts: every version is erased from the disk. Prints how much was removed."""
    for name, given in (
        ("KEYWORD", keyword), ("--subject", selection.subject), ("--scope", selection.scope), ("--value", value),
    ):  # fmt: skip
        if given is not None and not given.strip():  # probably an unset variable of a script
            raise typer.BadParameter("the value is blank; name one, or leave out the option", param_hint=name)
    if everything == bool(keyword or selection.subject or selection.scope):
        raise typer.BadParameter("say what to forget: a keyword, --subject, --scope, or --all alone")
    if value is not None and not keyword:
        raise typer.BadParameter("a value belongs to a fact; name its keyword, too", param_hint="--value")
    concept = _concept(keyword) if keyword else None
    about = subject_of(selection.subject) if selection.subject else None
    within = selection.within
    nothing = f"no fact{selection.whose} fits, so nothing was forgotten"

    if not yes:

        async def read(provider: KeepingProvider) -> list[str]:
            return [
                record["keyword"]
                async for record in selection.records(provider, keyword)
                if value is None or value in record["values"]
            ]

        versions = selection.use(read)
        if not versions:
            _output.fail(nothing)
        keywords = sorted(set(versions))
        what = ", ".join(map(repr, keywords[:5])) + (" …" if len(keywords) > 5 else "")
        part = "" if value is None else "one value in "
        confirm(
            f"Forget {part}{counted(len(versions), 'version')} of {counted(len(keywords), 'fact')} ({what}) for good?"
        )

    stays = anyio.run(
        what_stays,
        Chosen(
            keyword,
            subject=selection.subject,
            scope=selection.scope,
            everything=everything,
            owner=selection.owner,
            stores=None if selection.store is None else [selection.store],
            key=selection.key,
        ),
    )
    with value_of("--value"):
        receipt = selection.use(
            lambda provider: provider.forget(
                concept=concept, subject=about, scope=within, value=value, owner=selection.owner, everything=everything
            )
        )
    if not receipt.bytes:
        _output.fail(nothing)
    print(f"Forgotten: {counted(receipt.facts, 'version')}, {counted(receipt.bytes, 'byte')}.")
    if stays is not None:
        _output.aside(stays)


@facts.command("export", epilog="Example: graphagent facts export --key env:GRAPHAGENT_KEY --out facts.jsonl")
@expand_options
def export(memory: Memory, owner: AnyOwner = None, out: Out = None) -> None:
    """Write every version of every fact as JSON lines, in plain text."""

    async def write(provider: KeepingProvider) -> None:
        count = 0
        with lines_to(out) as lines:
            async for record in provider.export(owner=owner):
                await lines.put(record)
                count += 1
        lines.report(counted(count, "version"))

    memory.use(write)


@facts.command("import", epilog="Example: graphagent facts import facts.jsonl --key env:GRAPHAGENT_KEY")
@expand_options
def import_facts(
    file: Annotated[Path, argument("FILE", "A file written by `facts export`; - is standard input.")],
    memory: Memory,
) -> None:
    """Read facts from a file written by `facts export`. Existing facts are skipped.

    If a line is invalid or the memory is damaged, nothing is imported. An encrypted memory imports all facts or none. A plain
    one has many files: if the disk fails or the process ends before the last, import the file again to add the missing ones.
    """
    records = read_lines(file)
    try:
        added = memory.use(lambda provider: provider.import_(records), new=True)
    except ValueError as error:
        raise StoreError(str(error)) from None
    print(were_new(added, len(records), "version"))


def _print_json(found: Iterable[tuple[Subject, Scope, FactVersion]], owner: str) -> None:
    records = [
        {
            "keyword": fact.concept.keyword,
            "values": list(fact.values),
            "description": fact.concept.description,
            "type": fact.concept.fact_type.value,
            "owner": owner,
            "subject": subject.name,
            "scope": _named(scope),
            "version": fact.version,
            "timestamp": fact.timestamp,
            "source": {"run_id": fact.source.run_id, "origin": fact.source.origin, "trust": fact.source.trust},
            **_times(fact),
            **({"withdrawn": True} if isinstance(fact, Withdrawal) else {}),
        }
        for subject, scope, fact in found
    ]
    print(json.dumps(records, ensure_ascii=False, indent=2))


def _times(fact: FactVersion) -> dict[str, str]:
    """Return from when and until when a fact holds, as far as known."""
    times = {"valid_from": fact.valid_from, "valid_to": fact.valid_to} if isinstance(fact, SingleFact) else {}
    return {name: moment.isoformat() for name, moment in times.items() if moment is not None}


def _validity(fact: FactVersion) -> tuple[str, str]:
    """Return from when and until when a fact holds, for a table."""
    times = _times(fact)
    return times.get("valid_from", "")[:16].replace("T", " "), times.get("valid_to", "")[:16].replace("T", " ")


def _said(fact: FactVersion) -> str:
    values = ", ".join(fact.values)
    if isinstance(fact, Withdrawal):
        return f"withdrawn: {values}" if values else "withdrawn, and erased"
    return values


def _table(
    columns: tuple[str, ...], rows: Sequence[tuple[str, ...]], *, without: set[str], essential: tuple[str, ...]
) -> None:
    kept = [place for place, name in enumerate(columns) if name not in without]
    shown = [tuple(row[place] for place in kept) for row in rows]
    _output.table(tuple(columns[place] for place in kept), shown, essential=essential)


async def _newest(provider: KeepingProvider, concept: Concept, about: Subject, place: Scope, owner: str) -> FactVersion:
    """Return the version saved last, with all values known at that time."""
    last, *_ = await provider.history(concept, about, place, owner=owner)
    known = await provider.load(concept, about, place, owner=owner)
    return next((fact for fact in known if fact.version == last.version), last)


def _named(scope: Scope) -> str:
    return f"{scope.kind.value}:{scope.name}"


def _concept(keyword: str) -> Concept:
    with value_of("KEYWORD"):
        return Concept(keyword)
