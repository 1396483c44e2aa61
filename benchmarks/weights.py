"""The weights of the ranking, fitted on all material, and how well they do on conversations that they were not fitted on.

The table has weights for words alone, for vectors of texts, and for vectors of words of both kinds: static ones and contextual ones. For
vectors of texts the questions are asked with *static* and with *local*, and count together. Of single notes, the questions that are
held out are left out, and those that have an answer in common with one of these.
"""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from benchmarks.baselines import embedders
from benchmarks.fit import KINDS, NAMES, Asked, fit, ranked
from benchmarks.measure import table
from benchmarks.outcome import Outcome, recall_cells
from benchmarks.recall import DEPTHS, HELD_OUT, TITLES, chosen, head, kinds_of, remembered
from graphagent.memory._note_values import Filter
from graphagent.memory.notes.recall import _weights
from graphagent.memory.notes.recall._search import candidates

if TYPE_CHECKING:
    from benchmarks.material import Material, Sort
    from graphagent.protocols import Embedder

START: Mapping[str, Mapping[str, float]] = {
    "words": {"lexical": 0.5, "pairs": 0.4, "around": 0.7},
    "vectors": {"lexical": 0.3, "pairs": 0.3, "around": 0.3, "semantic": 0.7},
    "static": {"lexical": 0.3, "pairs": 0.3, "around": 0.3, "semantic": 0.4, "tokens": 0.3},
    "contextual": {"lexical": 0.3, "pairs": 0.3, "around": 0.3, "semantic": 0.2, "tokens": 0.6},
}
"""The weights with which fitting begins, by the tiers of the table."""
ASKED: Mapping[str, Sequence[str]] = {
    "words": ["no embedder"], "vectors": ["multilingual", "local"], "static": ["static"], "contextual": ["local"]
}  # fmt: skip
"""With which embedders the questions are asked that a tier is fitted on."""
IN_LANGUAGES = ("multilingual",)
"""With which of these the questions in many languages are asked besides, together with those about single notes."""
WITHOUT: Mapping[str, Sequence[str]] = {
    "words": ["length"],
    "vectors": [name for name in NAMES if name.startswith("tokens")],
    "static": ["standing"],
    "dialogue": ["share", "standing", "wordless"],
    "chat": ["share", "standing", "wordless", "speaker"],
    "notes": ["lexical", "semantic", "date"],
}
"""The features that a tier or a sort of material does without, although its candidates may have them.

Without vectors the length of a text counts in BM25 alone. In a collection of single notes the best one by words often has few of the
question's words, so it is only the share of them that says something; and the best one by its vector may be no better than any other. With
static vectors, `standing` would have a weight below 0 beside `wordless`.
"""
GIVEN: Mapping[str, Mapping[str, float]] = {"notes": {"date": 6.0}, "chat": {"speaker": 1.3}}
"""Weights that are not fitted, because the questions about a sort of material name hardly any times, or no speakers: about those of turns."""
FILE = Path(_weights.__file__)

Weights = dict[str, dict[str, float]]
"""The weights by the names of the features, for each tier or kind of note."""


def report(*, quick: bool) -> str:
    """Fit all weights and write them into the code, unless quick. Return Markdown tables.

    Raises:
        SystemExit: an embedder with which the weights are fitted is not installed.
    """
    weights, tables = anyio.run(functools.partial(_report, quick=quick))
    if not quick:
        FILE.write_text(code(weights), "utf-8")
    return "\n\n".join([_shown(weights), *tables])


async def _report(*, quick: bool) -> tuple[dict[str, Weights], list[str]]:
    """Return the weights by tiers and kinds of notes, and tables of how well they do."""
    installed = {"no embedder": None, **embedders()}
    needed = {name for names in ASKED.values() for name in names}
    if missing := needed - installed.keys():
        raise SystemExit(
            f"the weights are fitted with these embedders, which are not installed: {', '.join(sorted(missing))}"
        )
    tiers = {name: each for name, each in installed.items() if name in needed}
    fitted: dict[str, Weights] = {  # of a sort that has no material, the weights stay as they are
        kind: {tier: dict(_weights.WEIGHTS[tier][kind]) for tier in START} for kind in KINDS.values()
    }
    tables: list[str] = []
    for sort in KINDS:
        if not (given := chosen(sort, quick=quick)):
            continue
        title = TITLES[sort]
        asked: dict[str, list[Asked]] = {}
        for name, embedder in tiers.items():
            print(f"{title}: candidates, {name}", file=sys.stderr, flush=True)
            more = chosen("languages", quick=quick) if sort == "notes" and name in IN_LANGUAGES else []
            asked[name] = [each for part in [*given, *more] for each in await gathered(part, embedder)]
        fitted[KINDS[sort]] = fitted_on(asked, sort)
        if sort != "notes":
            rows = [
                [f"{tier}, {how}", *recall_cells(outcomes, DEPTHS, kinds_of(given))]
                for tier in asked
                for how, outcomes in (
                    ("fitted on all", with_weights(asked[tier], fitted[KINDS[sort]][_best(tier)])),
                    ("leave one out", left_out(asked, sort, tier, [each.name for each in given])),
                )
            ]
            tables.append(table([title, *head(sort, given)], rows))
    return {tier: {kind: weights[tier] for kind, weights in fitted.items()} for tier in START}, tables


def _shown(weights: Mapping[str, Weights]) -> str:
    """Return the weights as a Markdown table, without features that count nowhere."""
    columns = {f"{tier}, {kind}": found for tier, kinds in weights.items() for kind, found in kinds.items()}
    rows = [[name, *[_two(each.get(name, 0.0)) for each in columns.values()]] for name in NAMES]
    return table(["feature", *columns], [row for row in rows if any(row[1:])])


def _two(weight: float) -> str:
    return f"{weight:.2f}" if round(weight, 2) else ""


async def gathered(given: Material, embedder: Embedder | None) -> list[Asked]:
    """Return all questions about a material with their candidates; of single notes, those with nothing in common with one held out."""
    held_out = [each for each in given.questions[HELD_OUT::3] if given.sort in ("notes", "languages")]
    answers = {id_ for each in held_out for id_ in each.gold}
    async with remembered(given, embedder) as notes:
        repository = notes._service.repository
        ids = {record.id: record.source for record in await notes.list_records(limit=100_000)}
        asked: list[Asked] = []
        for question in given.questions:
            if question in held_out or question.gold & answers:
                continue
            found = await candidates(repository, question.text, Filter(owner=""))
            gold = frozenset(number for number, row in found.rows.items() if ids[row.id] in question.gold)
            asked.append(Asked(given.name, question.kind, found, gold, len(question.gold)))
        return asked


def fitted_on(asked: Mapping[str, Sequence[Asked]], sort: Sort, without: str = "") -> Weights:
    """Return the weights of each tier for one sort of material, of whose files one may be left out."""
    return {tier: _fitted(asked, sort, tier, without) for tier in START}


def _fitted(asked: Mapping[str, Sequence[Asked]], sort: Sort, tier: str, without: str) -> dict[str, float]:
    questions = [each for name in ASKED[tier] for each in asked[name] if each.material != without]
    of_notes = {"lexical": "share", "semantic": "standing"} if sort == "notes" else {}
    start = {of_notes.get(name, name): each for name, each in START[tier].items()}
    return {**fit(questions, start, without=[*WITHOUT.get(tier, ()), *WITHOUT.get(sort, ())]), **GIVEN.get(sort, {})}


def _best(name: str) -> str:
    """Return the tier of the table that an embedder has with late interaction, or without an embedder."""
    return {"no embedder": "words", "static": "static"}.get(name, "contextual")


def left_out(asked: Mapping[str, Sequence[Asked]], sort: Sort, name: str, files: Sequence[str]) -> list[Outcome]:
    """Return how well the questions about each file are answered with weights that were fitted on the other ones."""
    found: list[Outcome] = []
    for file in files:
        print(f"leave out {file}: {name}", file=sys.stderr, flush=True)
        weights = _fitted(asked, sort, _best(name), file)
        found += with_weights([each for each in asked[name] if each.material == file], weights)
    return found


def with_weights(asked: Sequence[Asked], weights: Mapping[str, float]) -> list[Outcome]:
    """Return how well questions are answered with weights."""
    return [
        Outcome(
            each.kind,
            tuple(rank for rank, row in enumerate(ranked(each, weights), 1) if row in each.gold),
            each.golds,
        )
        for each in asked
    ]


def code(weights: Mapping[str, Weights]) -> str:
    """Return the module that has the weights, rounded to two decimals, without those that are 0 then."""
    rounded = {
        tier: {
            kind: {name: round(each[name], 2) for name in NAMES if round(each.get(name, 0.0), 2)}
            for kind, each in kinds.items()
        }
        for tier, kinds in weights.items()
    }
    text = f'''"""The weights of the features, for each kind of search and of note: written by `python -m benchmarks recall --fit`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from graphagent.memory.notes.recall._features import Kind

Tier = Literal["words", "vectors", "static", "contextual"]
"""What is searched with: `words` alone, `vectors` of texts besides, or also vectors of words, which are the same in every text (`static`)
or depend on the words around them (`contextual`)."""

WEIGHTS: Mapping[Tier, Mapping[Kind, Mapping[str, float]]] = {rounded!r}
'''
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(FILE), "-"]
    return subprocess.run(command, input=text, stdout=subprocess.PIPE, text=True, check=True).stdout
