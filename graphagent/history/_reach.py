"""Where facts and notes that are to be forgotten have been: in prompts, as the logs of runs say, and in what was learned from these runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self, cast

from anyio import to_thread

from graphagent._article import a, counted, kind_of
from graphagent.errors import StoreError
from graphagent.history._places import Place, Places
from graphagent.log._bytes import plain
from graphagent.log._entries import EffectRecorded, TranscriptEdited
from graphagent.log._log import Log
from graphagent.log._segments import list_runs, read_segment
from graphagent.log._submitted import read_submitted
from graphagent.memory._blocks import KnownFact, KnownNote
from graphagent.memory.facts._extraction import as_compared
from graphagent.memory.facts._types import Concept, Scope, ScopeKind, Subject
from graphagent.memory.notes._owner import all_versions
from graphagent.memory.notes.index._words import with_spaces
from graphagent.memory.steps._types import SummaryStep
from graphagent.memory.transcript._again import known_of
from graphagent.store._cache import cached_of

if TYPE_CHECKING:
    from graphagent.log._entries import Entry
    from graphagent.log._header import RunHeader
    from graphagent.log._log import Applied, Watch
    from graphagent.memory._note_values import Record
    from graphagent.memory.notes._view import NoteView
    from graphagent.memory.steps._types import Step
    from graphagent.memory.transcript._prompt import Prompt
    from graphagent.protocols import KeepingProvider, Store

_SHORTEST = 3
"""How many characters a value has at least that is looked for in texts: shorter ones stand everywhere."""
_SHORTEST_UNSPACED = 2
"""How many, if it has characters of a script without spaces between words, of which two are often a name."""


_DOT = "\N{COMBINING DOT ABOVE}"
"""Of the Turkish capital İ, which is i with this dot in small letters and may stand for either."""

_WORD = re.compile(r"\w+|[^\w\s]")
_ESCAPED = re.compile(r"\\+([nrt]?)")
"""What JSON puts before quotation marks, and in the place of line breaks."""
_IN_WORD = re.compile(r"\w")

_Finder = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Reached:
    """Something that can be erased, and what a fact or a note that is to be forgotten has to do with it.

    It says where that stood, and never what was made of it: from what a text was derived cannot be told.
    """

    kind: Literal["run", "fact", "note", "cached"]
    place: str
    """The store, the provider or the notes that have it: its `repr`."""
    id: str = ""
    """Of the run, of the note, or of the last version of the fact; empty for what was cached."""
    time: int | None = None
    """Of a run, when it was begun; of a fact or a note, when it was saved: in milliseconds UTC."""
    is_source: bool = False
    """Whether it is the run in which the fact or the note was saved."""
    prompts: tuple[int, ...] = ()
    """The entries of the run that are model turns in whose prompts it stood. Their answers were given with it in view."""
    summaries: tuple[int, ...] = ()
    """The entries of the run that are summaries of a transcript in which it stood."""
    repeats: bool = False
    """Whether the text stands in it word for word, in capitals or not."""
    is_unread: bool = False
    """Whether the run could not be read, so that it may have it."""
    run_id: str = ""
    """Of a fact or a note, the run that saved it, in which the other one stood in a prompt."""
    thread: str = ""
    """The thread of the run."""
    keyword: str = ""
    """Of a fact, the keyword of its concept."""
    subject: Subject | None = None
    """Of a fact."""
    scope: Scope | None = None
    """Of a fact."""
    count: int = 1
    """The number of cached values. They are erased in any case, since one may repeat forgotten text."""

    @property
    def fact(self) -> tuple[Concept, Subject | None, Scope | None]:
        """What `forget` of a provider takes to erase the fact."""
        return Concept(self.keyword), self.subject, self.scope

    def to_text(self) -> str:
        """Return it as a line for people, without any value."""
        if self.kind == "cached":
            return f"{counted(self.count, 'cached value')} of this owner, erased in any case"
        name = {"run": f"run {self.id}", "note": f"note {self.id}", "fact": f"fact {self.keyword!r}"}[self.kind]
        if self.thread:
            name += f" of thread {self.thread!r}"
        if self.subject is not None:
            name += f" about {self.subject.name!r}"
        how = [f"saved in run {self.run_id}, in which it stood in a prompt"] if self.run_id else []
        how += ["it was saved in this run"] if self.is_source else []
        how += [f"in the {_numbered('prompt', self.prompts)}, whose answers may repeat it"] if self.prompts else []
        how += [f"summed up in {_numbered('entry', self.summaries)}"] if self.summaries else []
        how += ["its text stands there word for word"] if self.repeats else []
        how += ["it cannot be read, and may have it"] if self.is_unread else []
        return f"{name}: {'; '.join(how)}"


def _numbered(what: str, numbers: tuple[int, ...]) -> str:
    many = {"prompt": "prompts of entries", "entry": "entries"}[what] if len(numbers) > 1 else {
        "prompt": "prompt of entry", "entry": "entry"
    }[what]  # fmt: skip
    return f"{many} {', '.join(map(str, numbers))}"


@dataclass(frozen=True, slots=True)
class Selection:
    """Facts and notes of an owner."""

    concept: Concept | None
    subject: Subject | None
    scope: Scope | None
    notes: frozenset[str]

    @classmethod
    def checked(
        cls,
        concept: Concept | None,
        subject: Subject | None,
        scope: Scope | None,
        notes: Collection[str],
        *,
        everything: bool = False,
        is_more: bool = False,
    ) -> Self:
        """Return what was chosen.

        Raises:
            TypeError: something has another type.
            ValueError: nothing was chosen, and there is nothing more; or something besides everything.
        """
        for what, given, kind in (
            ("concept", concept, Concept),
            ("subject", subject, Subject),
            ("scope", scope, Scope),
        ):
            if given is not None and not isinstance(given, kind):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(f"{what}= is {a(kind.__name__)}, not {kind_of(given)}")
        if isinstance(notes, str):
            raise TypeError(f"notes= is a list of ids, such as [{notes!r}]")
        chosen = cls(concept, subject, scope, frozenset(notes))
        if everything == (chosen.of_facts or bool(notes) or is_more):
            raise ValueError(
                "say what to forget: concept=, subject=, scope= or notes=; or, for all that the owner has, everything=True and none of these"
            )
        return chosen

    @property
    def facts(self) -> tuple[Concept | None, Subject | None, Scope | None]:
        """What `forget` of a provider takes."""
        return self.concept, self.subject, self.scope

    @property
    def of_facts(self) -> bool:
        """Whether it has facts."""
        return any(each is not None for each in self.facts)

    def has_fact(self, keyword: str, subject: str, scope: Scope) -> bool:
        """Return whether a fact is in it."""
        return (
            self.of_facts
            and (self.concept is None or self.concept.keyword == keyword)
            and (self.subject is None or self.subject.name == subject)
            and self.scope in (None, scope)
        )

    def is_in(self, known: Iterable[KnownFact | KnownNote]) -> bool:
        """Return whether any of some facts and notes is in it, or was united from one that is."""
        return any(
            each.id in self.notes
            if isinstance(each, KnownNote)
            else self.has_fact(each.fact.concept.keyword, each.subject.name, each.scope) or self.is_in(each.parts)
            for each in known
        )


@dataclass(slots=True)
class _Found:
    """The sources, values and names of the chosen facts and notes."""

    sources: set[str] = field(default_factory=set[str])
    """The runs that saved it."""
    values: set[str] = field(default_factory=set[str])
    facts: list[tuple[str, dict[str, Any]]] = field(default_factory=list[tuple[str, dict[str, Any]]])
    """All other facts, last versions last, each with the name of its provider."""
    notes: list[tuple[str, Record]] = field(default_factory=list[tuple[str, "Record"]])
    """All other notes, each with the name of the notes."""

    def finder(self) -> _Finder:
        """Return what says whether any of the values stands in a text, as whole words."""
        # Looked up by their first word, since there may be thousands, and logs are long.
        beginning: dict[str, list[str]] = {}
        for value in filter(_is_long, self.values):
            words = _words(value)
            for first in _WORD.findall(words)[:1]:
                beginning.setdefault(first, []).append(words)

        def stands_in(text: str) -> bool:
            words = _words(text)
            return any(
                words.startswith(value, first.start()) and not _IN_WORD.match(words, first.start() + len(value))
                for first in (_WORD.finditer(words) if beginning else ())
                for value in beginning.get(first[0], ())
            )

        return stands_in


def _words(text: str) -> str:
    """Return a text as values are looked for in it, which may be JSON; where no spaces divide words, each character is one."""
    if "\\" in text:
        text = _ESCAPED.sub(lambda escape: " " if escape[1] else "", text)
    return " ".join(with_spaces(as_compared(text).replace(_DOT, "")).split())


def _is_long(value: str) -> bool:
    compared = as_compared(value)
    shortest = _SHORTEST if with_spaces(compared) == compared else _SHORTEST_UNSPACED
    return len(compared) >= shortest


async def reach(
    *places: Place,
    owner: str = "",
    concept: Concept | None = None,
    subject: Subject | None = None,
    scope: Scope | None = None,
    notes: Collection[str] = (),
    newest: int | None = None,
) -> list[Reached]:
    """Return where facts or notes of an owner have been, as far as the places say: what `forget(…, also=)` can erase with them.

    These are the runs that saved them, that had them in prompts, or have their text word for word; facts and notes that were saved in
    such runs, or have the text; and what was cached. Logs of runs are read for that, so the time grows with their size.

    Args:
        places: Stores, of which all facts, notes and runs count, providers and notes.
        owner: Whose.
        concept: Only facts about this concept.
        subject: Only facts about this subject.
        scope: Only facts in this scope.
        notes: The ids of notes.
        newest: How many runs of each store are read, the newest; by default all. Those of sub-agents do not count.

    Raises:
        ValueError: nothing says which facts and notes; or notes belong to another owner.
        TypeError: a place is none, or something is not of its type.
        StoreError: a place cannot be read.
    """
    found = Places.of(places, owner)
    selection = Selection.checked(concept, subject, scope, notes)
    known = _Found()
    for name, provider in (await found.all_providers(owner)).items():
        await _look_at_facts(name, provider, owner, selection, known)
    for name, view in (await found.all_notes(owner)).items():
        await _look_at_notes(name, view, selection, known)
    reached: list[Reached] = []
    cached: list[Reached] = []
    stands_in = known.finder()
    for name, store in found.stores.items():
        heads = [head for head in await list_runs(store, owner=owner) if not head.parent]
        if newest is not None:
            heads = sorted(heads, key=lambda head: head.started, reverse=True)[:newest]
        for head in heads:
            each = await _run(store, name, head, selection, known, stands_in)
            reached += () if each is None else (each,)
        if count := len([item async for item in store.scan(cached_of(owner))]):
            cached.append(Reached("cached", name, count=count))
    seen = {each.id for each in reached if each.prompts or each.summaries}
    return [*reached, *_facts(known, seen, stands_in), *_notes(known, seen, stands_in), *cached]


async def _look_at_facts(name: str, provider: KeepingProvider, owner: str, selection: Selection, known: _Found) -> None:
    async for record in provider.export(owner=owner):
        each: dict[str, Any] = record
        if not selection.has_fact(each["keyword"], each["subject"], _scope(each)):
            known.facts.append((name, each))
            continue
        known.values.update(each["values"])
        if each["source"]["run_id"]:
            known.sources.add(each["source"]["run_id"].partition("/")[0])


async def _look_at_notes(name: str, view: NoteView, selection: Selection, known: _Found) -> None:
    for record in await all_versions(view):
        if record.id not in selection.notes:
            known.notes.append((name, record))
            continue
        known.values.add(record.content)
        if record.run_id:
            known.sources.add(record.run_id.partition("/")[0])


async def _stored(store: Store, head: RunHeader, watch: Watch) -> list[Any]:
    """Return all data that a run has, each entry of which `watch` has seen."""
    await Log.read(store, head.owner, head.run_id, watch=watch)
    segment = await read_segment(store, head)
    return [*(plain(row) for _, row in segment.rows), *segment.payloads.values()]


async def _submitted(store: Store, head: RunHeader) -> list[Any]:
    """Return all data that a run begins with; none of one that has begun meanwhile."""
    found = await read_submitted(store, head)
    return [] if found is None else [plain(found[0].row), *found[0].payloads.values()]


async def _run(
    store: Store, name: str, head: RunHeader, selection: Selection, known: _Found, stands_in: _Finder
) -> Reached | None:
    """Return a run, if what was chosen has anything to do with it."""
    prompts: list[int] = []
    summaries: list[int] = []

    def watch(applied: Applied) -> None:
        for step in _steps_of(applied.entry):
            prompt: Prompt | None = getattr(step, "prompt", None)
            if isinstance(step, SummaryStep):
                frame = applied.frame
                versions: Iterable[Step] = () if frame is None else frame.transcript.versions
                if selection.is_in(known_of(step)) or any(selection.is_in(known_of(each)) for each in versions):
                    summaries.append(applied.number)
            elif prompt is not None:
                shown = (prompt.versions[each] for each in prompt.versions.visible(prompt.ranges, prompt.as_of))
                if selection.is_in(known_of(step)) or any(selection.is_in(known_of(each)) for each in shown):
                    prompts.append(applied.number)

    is_unread, repeats = False, False
    try:
        stored = await (_stored(store, head, watch) if head.begun else _submitted(store, head))
        repeats = await to_thread.run_sync(lambda: any(stands_in(text) for data in stored for text in _texts(data)))
    except StoreError:
        is_unread = True
    is_source = head.run_id in known.sources
    if not (prompts or summaries or repeats or is_unread or is_source):
        return None
    return Reached(
        "run", name, head.run_id, head.started, is_source, tuple(prompts), tuple(summaries), repeats, is_unread,
        thread=head.thread,
    )  # fmt: skip


def _steps_of(entry: Entry) -> Iterable[Step]:
    if isinstance(entry, EffectRecorded):
        return () if entry.step is None else (entry.step,)
    return entry.steps if isinstance(entry, TranscriptEdited) else ()


def _texts(data: object) -> Iterator[str]:
    """Yield the texts in what was stored."""
    waiting: list[object] = [data]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, bytes):
            yield each.decode(errors="replace")
        elif isinstance(each, dict):
            waiting += cast("dict[object, object]", each).values()
        elif isinstance(each, list):
            waiting += cast("list[object]", each)


def _facts(known: _Found, runs: Collection[str], stands_in: _Finder) -> Iterator[Reached]:
    """Yield the other facts of which a version was saved in one of these runs, or has a value."""
    concepts: dict[tuple[str, str, str, Scope], list[dict[str, Any]]] = {}
    for name, each in known.facts:
        concepts.setdefault((name, each["keyword"], each["subject"], _scope(each)), []).append(each)
    for (name, keyword, subject, scope), versions in concepts.items():
        learned = [run_id for each in versions if (run_id := each["source"]["run_id"]).partition("/")[0] in runs]
        repeats = any(stands_in(value) for each in versions for value in each["values"])
        if learned or repeats:
            last = max(versions, key=lambda each: each["version"])
            yield Reached(
                "fact", name, last["id"], last["timestamp"], repeats=repeats, run_id=learned[-1] if learned else "",
                keyword=keyword, subject=Subject(subject), scope=scope,
            )  # fmt: skip


def _notes(known: _Found, runs: Collection[str], stands_in: _Finder) -> Iterator[Reached]:
    """Yield the other notes that were saved in one of these runs, or of which a version has a value."""
    notes: dict[tuple[str, str], list[Record]] = {}
    for name, record in known.notes:
        notes.setdefault((name, record.id), []).append(record)
    for (name, id_), versions in notes.items():
        learned = next((each.run_id for each in versions if each.run_id.partition("/")[0] in runs), "")
        repeats = any(stands_in(each.content) for each in versions)
        if learned or repeats:
            saved = round(versions[0].created_at.timestamp() * 1000)
            yield Reached("note", name, id_, saved, repeats=repeats, run_id=learned)


def _scope(record: Mapping[str, Any]) -> Scope:
    return Scope(ScopeKind(record["scope"]["kind"]), record["scope"]["name"])
