"""Dialogues, chats and notes with questions about them, written for this project: the weights of the ranking are fitted on them.

Each file is a text that can be read as it is::

    # A title
    ## 2024-03-03 18:10
    1.1 Hanna: What was said, also over
    several lines.
    1.2 Ruben: An answer.

    ## questions
    single | 1.1 | What did Hanna say?

A heading with a time begins a session. A line that begins with the number of the session and of the turn begins a turn. In chats the
speakers are `user` and `assistant`, which are roles. In files of notes a line such as `n12: …` or `n12 (2024-03-03): …` begins a note.
A question has a kind, the turns or notes that answer it, and its text. A file of `languages` has notes in the language of its name and some in
English; its kinds are `same`, for questions in the language of their note, and `across`, for the others.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

Sort = Literal["dialogue", "chat", "notes", "languages", "mixed"]
FOLDER = Path(__file__).parent
MIXED: tuple[Sort, ...] = ("dialogue", "chat", "notes")
"""The sorts of which `mixed` is one collection."""
SORTS: tuple[Sort, ...] = (*MIXED, "languages")
"""The sorts of files."""
ROLES = ("user", "assistant")
_TURN = re.compile(r"(\d+\.\d+) ([^:\n]{1,40}): (.*)", re.DOTALL)
_NOTE = re.compile(r"(n\d+)(?: \((\d{4}-\d\d-\d\d)\))?: (.*)", re.DOTALL)
_BEGINS = re.compile(r"^(?=\d+\.\d+ [^:\n]{1,40}: |n\d+(?: \(\d{4}-\d\d-\d\d\))?: )", re.MULTILINE)


class MaterialError(ValueError):
    """A file that is not in the form of the material."""


@dataclass(frozen=True, slots=True)
class Said:
    """A turn of a conversation, a message of a chat, whose speaker is a role, or a note, which has no speaker."""

    id: str
    text: str
    speaker: str = ""
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and the ids of what answers it."""

    kind: str
    text: str
    gold: frozenset[str]


@dataclass(frozen=True, slots=True)
class Material:
    """A conversation of several sessions, or a collection of notes in a single one, and the questions about it."""

    name: str
    sort: Sort
    sessions: Sequence[Sequence[Said]]
    questions: Sequence[Question]


def read(path: Path) -> Material:
    """Return the material of a file, whose name begins with its sort.

    Raises:
        MaterialError: the file is not in the form of the material; the text names the place.
    """
    sort = next((each for each in SORTS if path.stem.startswith(each)), None)
    if sort is None:
        raise MaterialError(f"{path.name!r} begins with none of {', '.join(SORTS)}")
    _, *parts = re.split(r"^## ", path.read_text("utf-8"), flags=re.MULTILINE)
    sessions: list[list[Said]] = []
    questions: list[Question] = []
    for part in parts:
        heading, _, body = part.partition("\n")
        if heading.strip() == "questions":
            questions += [_question(path, line) for line in body.splitlines() if line.strip()]
        else:
            at = None if heading.strip() == "notes" else datetime.fromisoformat(heading.strip()).replace(tzinfo=UTC)
            sessions.append([_said(path, sort, each, at) for each in _BEGINS.split(body) if each.strip()])
    _check(path, sessions, questions)
    return Material(path.stem, sort, sessions, questions)


def material(sort: Sort) -> list[Material]:
    """Return all material of a sort, in the order of the names. All notes are one collection.

    Of `mixed`, which is one collection of everything, the kind of a question is its sort, and the names of the files are part of the ids.
    """
    if sort == "mixed":
        return [together([each for name in MIXED for each in material(name)])]
    found = [read(path) for path in sorted(FOLDER.glob(f"{sort}*.md"))]
    if sort != "notes" or not found:
        return found
    notes = [note for each in found for [some] in [each.sessions] for note in some]
    return [Material("notes", sort, [notes], [question for each in found for question in each.questions])]


def together(given: Sequence[Material]) -> Material:
    """Return one collection of everything."""
    return Material(
        "mixed",
        "mixed",
        [
            [replace(said, id=f"{each.name} {said.id}") for said in session]
            for each in given
            for session in each.sessions
        ],
        [
            Question(each.sort, question.text, frozenset(f"{each.name} {id_}" for id_ in question.gold))
            for each in given
            for question in each.questions
        ],
    )


def _said(path: Path, sort: Sort, text: str, at: datetime | None) -> Said:
    found = (_NOTE if sort in ("notes", "languages") else _TURN).fullmatch(text.strip())
    if found is None:
        raise MaterialError(f"{path.name}: {text.strip()[:60]!r} begins neither a turn nor a note")
    if found.re is _NOTE:
        when = None if found[2] is None else datetime.fromisoformat(found[2]).replace(tzinfo=UTC)
        return Said(found[1], found[3].strip(), at=when)
    if sort == "chat" and found[2] not in ROLES:
        raise MaterialError(f"{path.name}: {found[1]} has the role {found[2]!r}, not one of {', '.join(ROLES)}")
    return Said(found[1], found[3].strip(), found[2], at)


def _question(path: Path, line: str) -> Question:
    kind, gold, text = (each.strip() for each in [*line.split("|", 2), "", ""][:3])
    if not (kind and gold and text):
        raise MaterialError(f"{path.name}: {line[:60]!r} is not `kind | ids | question`")
    return Question(kind, text, frozenset(gold.split()))


def _check(path: Path, sessions: Sequence[Sequence[Said]], questions: Sequence[Question]) -> None:
    ids = [each.id for session in sessions for each in session]
    if twice := {id_ for id_ in ids if ids.count(id_) > 1}:
        raise MaterialError(f"{path.name}: {sorted(twice)} occur twice")
    for number, session in enumerate(sessions, 1):
        for place, each in enumerate(session, 1):
            if not each.id.startswith("n") and each.id != f"{number}.{place}":
                raise MaterialError(f"{path.name}: {each.id} is turn {place} of session {number}")
    for question in questions:
        if unknown := question.gold.difference(ids):
            raise MaterialError(f"{path.name}: {question.text!r} names {sorted(unknown)}, which do not exist")
