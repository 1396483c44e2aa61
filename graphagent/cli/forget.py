"""`graphagent forget`: all data of an owner, or facts and notes with the data that they have reached."""

from __future__ import annotations

import re
import shlex
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import anyio
import typer

from graphagent._article import counted
from graphagent.cli import _output
from graphagent.cli._options import (
    AnchorPlace,
    Yes,
    age_of,
    argument,
    flag,
    key_option,
    key_shown,
    option,
    owner_option,
    place_option,
    scope_of,
    subject_of,
)
from graphagent.cli._phrases import whose
from graphagent.cli._prompts import ask, confirm
from graphagent.cli._store_place import StorePlace
from graphagent.cli._stores import open_everything
from graphagent.errors import StoreError
from graphagent.memory import Concept
from graphagent.store import Receipt

if TYPE_CHECKING:
    from graphagent.history import Reached


@dataclass(frozen=True, slots=True)
class Chosen:
    """The data to forget, and its place."""

    keyword: Annotated[str | None, argument("KEYWORD", "The fact to forget, as `facts list` shows it.")] = None
    notes: Annotated[
        list[str] | None,
        option("--note", "ID", "A note to forget, by its id, or the beginning or end of that; can be repeated."),
    ] = None
    subject: Annotated[str | None, option("--subject", "NAME", "Only facts about this subject.")] = None
    scope: Annotated[str | None, option("--scope", "KIND:NAME", "Only facts in this scope, such as agent:chat.")] = None
    older_than: Annotated[
        str | None,
        option(
            "--older-than",
            "AGE",
            "Forget all facts, notes and runs of this owner that are older: a number and s, m, h, d or w: 90d.",
        ),
    ] = None
    everything: Annotated[
        bool, flag("--all", text="Forget everything of this owner: facts, notes, runs, threads, caches.")
    ] = False
    owner: Annotated[str, owner_option("Whose.")] = ""
    stores: Annotated[
        list[StorePlace] | None,
        place_option(
            "A file, or a folder with the data of commands; can be repeated. Default: $GRAPHAGENT_HOME, or else your user data folder"
        ),
    ] = None
    key: Annotated[str | None, key_option("Open encrypted stores")] = None
    anchor: AnchorPlace = None

    def options(self) -> dict[str, Any]:
        """Return the arguments of `reach` and `forget` that select the data.

        Raises:
            BadParameter: Nothing is selected, a value is blank, or something is named besides --all or --older-than.
        """
        given = (
            ("KEYWORD", self.keyword),
            ("--subject", self.subject),
            ("--scope", self.scope),
            ("--note", self.notes),
        )
        for name, each in given:
            if each is not None and not all(text.strip() for text in ([each] if isinstance(each, str) else each)):
                raise typer.BadParameter("the value is blank; name one, or leave out the option", param_hint=name)
        ways = self.everything + (self.older_than is not None) + any(each for _, each in given)
        if ways != 1:
            raise typer.BadParameter(
                "say what to forget: a keyword, --subject, --scope or --note; or --all alone, or --older-than alone"
            )
        return {
            "owner": self.owner,
            "concept": Concept(self.keyword) if self.keyword else None,
            "subject": subject_of(self.subject) if self.subject else None,
            "scope": scope_of(self.scope) if self.scope else None,
            "notes": self.notes or (),
        }

    def command(self) -> str:
        """Return the command that forgets the selected data, without a key."""
        options = [
            ("--subject", self.subject),
            ("--scope", self.scope),
            ("--owner", self.owner),
            *(("--store", str(each)) for each in self.stores or ()),
            ("--key", key_shown(self.key)),
            ("--anchor", self.anchor),
        ]
        words = [self.keyword] if self.keyword else ["--all"] if self.everything else []
        words += [word for name, value in options if value for word in (name, value)]
        return f"graphagent forget {shlex.join(words)}"


def forget(
    *,
    chosen: Chosen,
    also: Annotated[
        str | None,
        option(
            "--also", "LIST", "Which of the places that it reached to forget too: numbers of the list, or ids: 2,3."
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        flag("--dry-run", text="Show the data to be forgotten and the data that they reached, and change nothing."),
    ] = False,
    yes: Yes = False,
) -> None:
    """Forget everything of an owner, or facts and notes with the data that they have reached, wherever stored, for good.

    The command shows where a fact or note appeared: in prompts of runs, in other facts and notes. What those took from it cannot
    be told, so you choose which of them to forget too.
    """
    options, age = chosen.options(), age_of(chosen.older_than)
    if chosen.everything or age is not None:
        if also is not None:
            raise typer.BadParameter(
                "--also is for facts and notes, not for --all or --older-than", param_hint="--also"
            )
        if age == timedelta(0):
            raise typer.BadParameter(
                f"{chosen.older_than!r} is not an age; everything is older: --all", param_hint="--older-than"
            )
        anyio.run(_forget_all, chosen, age, dry_run, yes)
    else:
        anyio.run(_forget_some, chosen, options, also, dry_run, yes)


async def _forget_all(chosen: Chosen, age: timedelta | None, dry_run: bool, yes: bool) -> None:
    from graphagent.history import forget
    from graphagent.history._forgetting import held

    async with open_everything(chosen.stores, chosen.key, chosen.anchor) as places:
        there = await held(*places, owner=chosen.owner, older_than=age)
        if not there.parts and age is None:
            _output.fail(f"there is nothing{whose(chosen.owner)} here, so nothing was forgotten")
        for place, each in there.parts.items():
            _output.say(f"{place}: {receipt_text(each)}")
        if not there.parts:
            _output.say(f"Nothing{whose(chosen.owner) or ' without an owner'} is older than {chosen.older_than}.")
        if dry_run:
            return
        owner = whose(chosen.owner) or " without an owner"
        if age is not None:
            if not yes:
                confirm(f"Forget everything older than {chosen.older_than}{owner}, {receipt_text(there)}, for good?")
            print(f"Forgotten: {receipt_text(await forget(*places, owner=chosen.owner, older_than=age))}.")
            return
        if not yes:
            confirm(f"Forget everything stored{owner}, {receipt_text(there)}, for good?")
        print(f"Forgotten: {receipt_text(await forget(*places, owner=chosen.owner, everything=True))}.")


async def _forget_some(chosen: Chosen, options: dict[str, Any], also: str | None, dry_run: bool, yes: bool) -> None:
    from graphagent.history import forget, reach
    from graphagent.history._forgetting import note_ids

    async with open_everything(chosen.stores, chosen.key, chosen.anchor) as places:
        options["notes"] = await note_ids(*places, owner=chosen.owner, named=options["notes"])
        reached = await reach(*places, **options)
        numbered = [each for each in reached if each.kind != "cached"]
        for number, each in enumerate(numbered, 1):
            _output.say(f"{number:>3}  {each.to_text()}")
        for each in reached[len(numbered) :]:
            _output.say(f"  -  {each.to_text()}")
        if not reached:
            _output.say("It appears in nothing else stored here.")
        if dry_run:
            return
        if also is None and not yes and numbered and sys.stdin.isatty():
            also = ask("Forget which of these too (such as 1,3; nothing for none)?", optional=True)
        with_it = _named(also or "", numbered)
        if not yes:
            more = f", with {', '.join(each.to_text().partition(':')[0] for each in with_it)}" if with_it else ""
            confirm(f"Forget {_what(chosen)}{whose(chosen.owner)}{more}, for good?")
        receipt = await forget(*places, **options, also=with_it)
        if not (receipt.facts or receipt.notes or receipt.runs):
            _output.fail(f"nothing stored{whose(chosen.owner)} fits, so nothing was forgotten")
        print(f"Forgotten: {receipt_text(receipt)}.")
        if len(with_it) < len(numbered):
            _output.aside(f"{counted(len(numbered) - len(with_it), 'place')} where it stood stayed.")


async def what_stays(chosen: Chosen) -> str | None:
    """Return a remark on stored data that may repeat a forgotten fact, with the command that forgets it too; None if there is none."""
    from graphagent.history import reach
    from graphagent.history._forgetting import held

    try:
        async with open_everything(chosen.stores, chosen.key, chosen.anchor) as places:
            if chosen.everything:
                kept = await held(*places, owner=chosen.owner)
                others = replace(kept, facts=0, bytes=0)
                found = receipt_text(others) if others.counts() != Receipt().counts() else ""
            else:
                numbered = [each for each in await reach(*places, **chosen.options()) if each.kind != "cached"]
                kinds = Counter(each.kind for each in numbered)
                found = ", ".join(counted(count, kind) for kind, count in kinds.items())
    except (StoreError, typer.BadParameter) as error:
        return f"Could not check whether runs or notes repeat it: {error}"
    if not found:
        return None
    return f"These may repeat it: {found}. See and forget them, too, with: {chosen.command()}"


def _what(chosen: Chosen) -> str:
    parts = [f"the fact {chosen.keyword!r}"] if chosen.keyword else []
    if not chosen.keyword and (chosen.subject or chosen.scope):
        parts.append("all facts")
    if parts and chosen.subject:
        parts[0] += f" about {chosen.subject!r}"
    if parts and chosen.scope:
        parts[0] += f" in {chosen.scope}"
    return " and ".join([*parts, *([counted(len(chosen.notes), "note")] if chosen.notes else [])])


def _named(text: str, reached: Sequence[Reached]) -> list[Reached]:
    """Return the items of a list that a person chose by numbers or ids.

    Raises:
        BadParameter: A number or id is not in the list.
    """
    found: dict[int, Reached] = {}
    for word in filter(None, re.split(r"[,\s]+", text)):
        by_id = [place for place, each in enumerate(reached) if each.id == word]
        by_number = [int(word) - 1] if word.isdecimal() and 1 <= int(word) <= len(reached) else []
        if not (by_id or by_number):
            raise typer.BadParameter(
                f"{word!r} is not in the list, which has {counted(len(reached), 'place')}; see it with --dry-run",
                param_hint="--also",
            )
        found.update((place, reached[place]) for place in by_id or by_number)
    return list(found.values())


def receipt_text(receipt: Receipt) -> str:
    """Return the counts of a receipt as words."""
    names = {"facts": "version", "notes": "note", "runs": "run", "threads": "thread", "cached": "cached value"}
    counts = receipt.counts()
    said = [
        counted(counts[name], word) + (" of facts" if name == "facts" else "")
        for name, word in names.items()
        if counts[name]
    ]
    return ", ".join([*said, *([counted(receipt.bytes, "byte")] if receipt.bytes else [])]) or "nothing"
