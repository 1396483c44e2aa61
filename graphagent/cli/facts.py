"""`graphagent facts`: look at what is known, correct it, forget it, take it along."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, NoReturn

import anyio
import typer

from graphagent.cli import _options, _output
from graphagent.cli._jsonl import lines_to, read_lines
from graphagent.cli._options import AnyOwner, InScope, InSubject, Key, Memory, Out, Owner, Yes
from graphagent.cli._phrases import counted, others, were_new
from graphagent.cli._prompts import confirm
from graphagent.errors import StoreError
from graphagent.memory import Concept, Fact, FactType, MultipleFacts, Scope, ScopeKind, SingleFact, Source, Subject
from graphagent.protocols import KeepingProvider

facts = typer.Typer(no_args_is_help=True, help="Look at facts, correct them, forget them, take them along.")


class Format(Enum):
    """How a command shows its result."""

    TABLE = "table"
    JSON = "json"


As = Annotated[Format, typer.Option("--format", help="A table for people, or JSON for programs.")]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where facts stand."""

    subject: str
    scope: Scope

    @property
    def named(self) -> str:
        return f"{self.scope.kind.value}:{self.scope.name}"


@facts.command("list", epilog="Example: graphagent facts list --key env:GRAPHAGENT_KEY --subject user")
def list_facts(
    memory: Memory = None,
    key: Key = None,
    owner: Owner = "",
    subject: InSubject = None,
    scope: InScope = None,
    form: As = Format.TABLE,
) -> None:
    """Show what is known: the last value of each fact."""

    async def read(provider: KeepingProvider) -> tuple[list[tuple[_Place, Fact]], set[str]]:
        found = await _places_of(provider, None, owner, subject, scope)
        known = [
            (place, fact)
            for place in found
            for fact in sorted(
                await provider.load_all(Subject(place.subject), place.scope, owner=owner),
                key=lambda fact: fact.concept.keyword,
            )
        ]
        return known, set() if known else await _owners(provider, subject, scope)

    known, owners = _with(memory, key, read)
    if form is Format.JSON:
        print(json.dumps([_plain(place, fact, owner) for place, fact in known], ensure_ascii=False, indent=2))
    elif known:
        heads = ("fact", "value", "about", "scope", "version", "since")
        _output.table(heads, [
            (
                fact.concept.keyword, ", ".join(fact.values), place.subject, place.named, str(fact.version),
                _output.moment(fact.timestamp),
            )
            for place, fact in known
        ])  # fmt: skip
    if not known:
        _output.aside(f"Nothing is known{_whose(owner)} here.{others(owners, owner, 'facts')}")


@facts.command("show", epilog="Example: graphagent facts show city")
def show(
    keyword: Annotated[str, typer.Argument(metavar="KEYWORD", help="The fact's keyword, as `facts list` shows it.")],
    memory: Memory = None,
    key: Key = None,
    owner: Owner = "",
    subject: InSubject = None,
    scope: InScope = None,
    form: As = Format.TABLE,
) -> None:
    """Show one fact with its history, the newest first: every value that it had, when, and where that came from."""
    concept = _concept(keyword)

    async def read(provider: KeepingProvider) -> list[tuple[_Place, Fact]]:
        found = await _places_of(provider, keyword, owner, subject, scope)
        return [
            (place, fact)
            for place in found
            for fact in await provider.history(concept, Subject(place.subject), place.scope, owner=owner)
        ]

    versions = _with(memory, key, read)
    if not versions:
        _output.fail(f"nothing is known of {keyword!r}{_whose(owner)}; `graphagent facts list` shows what is")
    if form is Format.JSON:
        print(json.dumps([_plain(place, fact, owner) for place, fact in versions], ensure_ascii=False, indent=2))
        return
    heads = ("version", "value", "since", "about", "scope", "source", "trust")
    _output.table(heads, [
        (
            str(fact.version), ", ".join(fact.values), _output.moment(fact.timestamp), place.subject, place.named,
            fact.source.origin, fact.source.trust,
        )
        for place, fact in versions
    ])  # fmt: skip


@facts.command("set", epilog="Example: graphagent facts set city Oslo")
def set_fact(
    keyword: Annotated[str, typer.Argument(metavar="KEYWORD", help="The fact's keyword, such as city.")],
    values: Annotated[
        list[str], typer.Argument(metavar="VALUE…", help="Its value, or - to read it from standard input.")
    ],
    memory: Memory = None,
    key: Key = None,
    owner: Owner = "",
    subject: Annotated[str, typer.Option(metavar="NAME", help="Whom or what it is about.")] = "user",
    scope: Annotated[str, typer.Option(metavar="KIND:NAME", help="Where it holds.")] = f"agent:{_options.AGENT_NAME}",
    description: Annotated[
        str, typer.Option(help="What the keyword means; the known description where it has one.")
    ] = "",
    multiple: Annotated[
        bool, typer.Option("--multiple", metavar="", help="Add to the values that are known, instead of replacing.")
    ] = False,
) -> None:
    """Set a fact yourself. Earlier versions stay in its history."""
    about, place = _options.subject_of(subject), _options.scope_of(scope)
    given = [value.strip() for value in ([sys.stdin.read()] if values == ["-"] else values)]
    if not all(given):
        raise typer.BadParameter(
            f"a value has some text, and this one is blank; to remove a fact: graphagent facts forget {keyword}",
            param_hint="VALUE",
        )
    if not keyword.strip():
        raise typer.BadParameter("a keyword has some text, and this one is blank", param_hint="KEYWORD")

    async def save(provider: KeepingProvider) -> Fact:
        known = await provider.load(_concept(keyword), about, place, owner=owner)
        several = multiple or (known[0].concept.fact_type is FactType.MULTIPLE if known else len(given) > 1)
        if len(given) > 1 and not several:
            raise typer.BadParameter(
                f"{keyword!r} has one value; give one, or --multiple to have several", param_hint="VALUE"
            )
        kind = FactType.MULTIPLE if several else FactType.SINGLE
        concept = Concept(keyword, description or (known[0].concept.description if known else ""), kind)
        source = Source(origin="graphagent facts set", trust="trusted")
        try:
            fact = (
                MultipleFacts(concept, given, source=source)
                if several
                else SingleFact(concept, given[0], source=source)
            )
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="VALUE") from None
        await provider.save(fact, about, place, owner=owner)
        [kept] = await provider.load(concept, about, place, owner=owner)
        return kept

    kept = _with(memory, key, save)
    print(f"{keyword}, version {kept.version}: {_output.shortened(', '.join(kept.values))}")


@facts.command("forget", epilog="Example: graphagent facts forget city")
def forget(
    keyword: Annotated[
        str | None,
        typer.Argument(metavar="KEYWORD", help="The fact to forget; without one, all that the options choose."),
    ] = None,
    memory: Memory = None,
    key: Key = None,
    owner: Owner = "",
    subject: InSubject = None,
    scope: InScope = None,
    everything: Annotated[bool, typer.Option("--all", metavar="", help="Forget all that this owner has.")] = False,
    yes: Yes = False,
) -> None:
    """Forget facts: every version of them is removed from the disk. A receipt says what was."""
    for name, given in (("KEYWORD", keyword), ("--subject", subject), ("--scope", scope)):
        if given is not None and not given.strip():  # such as an unset variable of a script
            raise typer.BadParameter("it is blank; say which, or leave it out", param_hint=name)
    if everything == bool(keyword or subject or scope):
        raise typer.BadParameter("say what to forget: a keyword, --subject, --scope, or --all alone")
    concept = _concept(keyword) if keyword else None
    within = _options.scope_of(scope) if scope else None
    about = _options.subject_of(subject) if subject else None

    if not yes:
        _confirm(memory, key, keyword, owner, subject, within)

    async def remove(provider: KeepingProvider) -> Any:
        return await provider.forget(concept=concept, subject=about, scope=within, owner=owner, everything=everything)

    receipt = _with(memory, key, remove)
    if not receipt.bytes:
        _nothing_fits(owner)
    print(f"Forgotten: {counted(receipt.facts, 'version')}, {receipt.bytes:,} bytes.")


@facts.command("export", epilog="Example: graphagent facts export --key env:GRAPHAGENT_KEY --out facts.jsonl")
def export(
    memory: Memory = None,
    key: Key = None,
    owner: AnyOwner = None,
    out: Out = None,
) -> None:  # fmt: skip
    """Write every version of every fact as JSON lines, in the clear."""

    async def write(provider: KeepingProvider) -> None:
        count = 0
        with lines_to(out) as lines:
            async for record in provider.export(owner=owner):
                await lines.put(record)
                count += 1
        lines.tell(counted(count, "version"))

    _with(memory, key, write)


@facts.command("import", epilog="Example: graphagent facts import facts.jsonl --key env:GRAPHAGENT_KEY")
def import_facts(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `facts export` wrote; - is standard input.")],
    memory: Memory = None,
    key: Key = None,
) -> None:
    """Read what `facts export` wrote. Facts that are there already are left.

    Where a line is wrong or the memory is damaged, nothing is taken in. A sealed memory takes in all or none. A plain one has
    many files: where the disk fails or the process ends in between, import the same again, which adds what is missing.
    """
    records = read_lines(file)

    async def add(provider: KeepingProvider) -> int:
        return await provider.import_(records)

    try:
        added = _with(memory, key, add)
    except ValueError as error:
        raise StoreError(str(error)) from None
    print(were_new(added, len(records), "version"))


@facts.command("verify", epilog="Example: graphagent facts verify --key env:GRAPHAGENT_KEY")
def verify(memory: Memory = None, key: Key = None) -> None:
    """Read everything and check it: that nothing was changed, cut off or damaged."""

    async def check(provider: KeepingProvider) -> int:
        return await provider.verify()

    folder = _options.folder(memory)
    if not folder.exists():
        raise StoreError(f"there is no memory in {str(folder)!r}; name its folder with --memory")
    print(f"Sound: {counted(_with(memory, key, check), 'version')} of facts.")


def _confirm(
    memory: Path | None, key: str | None, keyword: str | None, owner: str, subject: str | None, scope: Scope | None
) -> None:
    """Say how much would be forgotten, and ask."""

    async def count(provider: KeepingProvider) -> tuple[int, set[str]]:
        versions, keywords = 0, set[str]()
        async for record in _records(provider, keyword, owner, subject, scope):
            versions += 1
            keywords.add(str(record["keyword"]))
        return versions, keywords

    versions, keywords = _with(memory, key, count)
    if not versions:
        _nothing_fits(owner)
    what = ", ".join(map(repr, sorted(keywords)[:5])) + (" …" if len(keywords) > 5 else "")
    confirm(f"Forget {counted(versions, 'version')} of {counted(len(keywords), 'fact')} ({what}) for good?")


def _nothing_fits(owner: str) -> NoReturn:
    _output.fail(f"nothing that is known{_whose(owner)} fits, so nothing was forgotten")


def _with(memory: Path | None, key: str | None, work: Any) -> Any:
    """Open the memory, do something with it, and close it."""
    provider = _options.provider(_options.folder(memory), key)

    async def run() -> Any:
        async with provider:
            return await work(provider)

    return anyio.run(run)


async def _records(
    provider: KeepingProvider, keyword: str | None, owner: str | None, subject: str | None, scope: Scope | None
) -> AsyncIterator[dict[str, Any]]:
    async for record in provider.export(owner=owner):
        place: Any = record["scope"]
        if (
            keyword in (None, record["keyword"])
            and subject in (None, record["subject"])
            and (scope is None or place == {"kind": scope.kind.value, "name": scope.name})
        ):
            yield record


async def _places_of(
    provider: KeepingProvider, keyword: str | None, owner: str, subject: str | None, scope: str | None
) -> list[_Place]:
    """Give where facts of an owner stand."""
    within = _options.scope_of(scope) if scope else None
    found: dict[_Place, None] = {}
    async for record in _records(provider, keyword, owner, subject, within):
        found[_Place(record["subject"], Scope(ScopeKind(record["scope"]["kind"]), record["scope"]["name"]))] = None
    return sorted(found, key=_order)


async def _owners(provider: KeepingProvider, subject: str | None, scope: str | None) -> set[str]:
    """Give which owners have facts; none where that cannot be read, which is for those to hear who ask for them."""
    within = _options.scope_of(scope) if scope else None
    try:
        return {record["owner"] async for record in _records(provider, None, None, subject, within)}
    except StoreError:
        return set()


def _order(place: _Place) -> tuple[int, str, int, str]:
    return _options.subject_of(place.subject).priority, place.subject, place.scope.kind.width, place.scope.name


def _plain(place: _Place, fact: Fact, owner: str) -> dict[str, object]:
    return {
        "keyword": fact.concept.keyword,
        "values": list(fact.values),
        "description": fact.concept.description,
        "type": fact.concept.fact_type.value,
        "owner": owner,
        "subject": place.subject,
        "scope": place.named,
        "version": fact.version,
        "timestamp": fact.timestamp,
        "source": {"run_id": fact.source.run_id, "origin": fact.source.origin, "trust": fact.source.trust},
    }


def _concept(keyword: str) -> Concept:
    try:
        return Concept(keyword)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="KEYWORD") from None


def _whose(owner: str) -> str:
    return f" for owner {owner!r}" if owner else ""
