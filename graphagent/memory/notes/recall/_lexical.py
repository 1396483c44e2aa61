"""Search by words: which notes have the words of a question, how much these words say, and how close together they are."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, pairwise
from typing import TYPE_CHECKING

from graphagent.memory.notes.index._tables import CHUNKS, POOL, Near, Phrase
from graphagent.memory.notes.index._words import folded, is_character, parts_of, separated, word_list
from graphagent.memory.notes.recall._forms import other_forms

if TYPE_CHECKING:
    from graphagent.memory._note_values import Filter
    from graphagent.memory.notes.index._tables import NoteTables, Row, Term
    from graphagent.memory.notes.recall._query import Query

_POSTINGS = 5_000
"""If the words of a question occur in more texts than this, counted for each word, only the rarest words are searched for."""
_SCORED = 150
"""The minimum number of notes that get a score: the notes that have the most of a question."""
_TIED = 2_000
"""How many texts get a score if they all have the same of a question, and more than any other."""
_TELLING = 8
"""How many words of a long question are the whole of it."""
_PAIRS = 8
"""How many pairs of words are searched for at most."""
_SPELLED = 4
"""How many letters a word has that is searched in other spellings."""
_RESPELT, _SPELLINGS = 8, 3
"""How many words of a question are searched in other spellings, and in how many."""
_PART, _REST = 5, 3
"""How many letters a word has that is taken for a part of a compound, and how many the rest of the compound."""
_RELATED = 0.5
"""How much such a part counts, or a compound that begins with the word."""
_STOP_WORD = 1.0
"""How much a stop word says: as much as a word in one of three texts."""
_TIME = 0.5
"""How much a word that names the time which is asked for counts, in proportion to other words."""
_K1, _B = 1.2, 0.75
"""The parameters of BM25, as in SQLite's FTS5."""


@dataclass(frozen=True, slots=True)
class Words:
    """The words of a question in the notes that fit. Each word is represented by its stem."""

    weights: Mapping[str, float]
    """How much each word says: its inverse document frequency in the whole store."""
    silent: frozenset[str]
    """The words that do not count as part of the question: stop words, alone or as a phrase, words for times, and words too common
    to search."""
    time: float
    """How much the time says that the question names: as much as the word that says most; 0 without a time."""
    times: frozenset[str]
    """Of the silent words, the words that name times."""
    named: frozenset[str]
    """The words in names of speakers."""
    places: Mapping[str, Mapping[int, float]]
    """The places of the texts that have each word, with 1, or with the similarity of the word that they have in its stead."""
    lexical: Mapping[int, float]
    """The BM25 score of each row that has some of the words, as a share of that of a text of mean length that has all of them."""
    pairs: Mapping[int, float]
    """The share of the pairs of consecutive words of the question that each row has close together."""
    most: float
    """The share of the question's words that the text has which has most of them, however long it is: from 0 to 1."""

    def similarity(self, stem: str, row: Row) -> float:
        """Return 1 if a row has a word, the similarity of the word that it has in its stead, or 0."""
        places, first = self.places.get(stem), row.row * CHUNKS
        if not places:
            return 0.0
        if row.chunks == 1:
            return places.get(first, 0.0)
        return max(places.get(place, 0.0) for place in range(first, first + row.chunks))


def search_words(tables: NoteTables, query: Query, fits: Filter, pool: int = POOL, dated: Iterable[int] = ()) -> Words:
    """Return the words of a question in the notes that fit.

    About the best `pool` of them get a score, and the best `pool` among those said at the time that is asked for, whose rows are given.
    """
    stems = tables.tokens.stems_of(query.words)
    total, mean = tables.totals(fits.owner)
    terms, frequencies = _terms(tables, stems, query, fits.owner)
    places: dict[str, Mapping[int, float]] = {}
    counted = {stem: count for stem, count in frequencies.items() if count}
    any_of: dict[str, Term] = {stem: tuple(terms[stem]) for stem in sorted(counted, key=counted.__getitem__)}
    searched = _rarest(counted)
    found = tables.postings([any_of[stem] for stem in searched], fits)
    for stem in searched:
        places[stem] = dict.fromkeys(found[any_of[stem]], 1.0)
    # A word that is common in the store may be rare among the notes that fit: notes of others must not change the results.
    more = [] if tables.all_counted_fit(fits) else [stem for stem in any_of if stem not in places]
    for stem in more:
        left = _POSTINGS - sum(map(len, places.values()))
        # If nothing was found so far, the first word that is in notes that fit is searched, however common it is.
        is_bounded = any(places.values())
        term = any_of[stem]
        there = tables.postings([term], fits, max(0, left) + 1 if is_bounded else -1)[term]
        if is_bounded and len(there) > left:
            break
        places[stem] = dict.fromkeys(there, 1.0)
    for stem, has_stem in places.items():
        # For characters and parts it was not known before.
        frequencies[stem] = max(frequencies[stem], len(has_stem))
    left = 0 if query.is_phrase else _RESPELT
    order = list(stems)
    for place, (word, stem) in enumerate(stems.items()):
        if frequencies[stem] and places.get(stem, True):
            continue
        ways, has = _one_or_two(tables, word, order[max(0, place - 1) : place + 2], fits)
        if not has and left and len(stem) >= _SPELLED and stem.isalpha() and folded(word) not in query.stopwords:
            left -= 1
            ways, has = _compounds(tables, word, query, fits) if query.is_compounding else ([], {})
            ways, has = (ways, has) if has else _respelt(tables, stem, fits)
        if has:
            terms[stem], places[stem], frequencies[stem] = ways, has, len(has)
    # A word that is in no note says as much as one that is in one note: else few notes could never have much of a question.
    # One that is in several forms in a text was counted for each.
    texts = max(total, 1)
    weights = {stem: inverse_frequency(min(max(count, 1), texts), texts) for stem, count in frequencies.items()}
    split = tables.tokens.split([*query.timed, *map(separated, query.named)])
    named, times = (
        frozenset(stem for text in texts for stem in split[text])
        for texts in (map(separated, query.named), query.timed)
    )
    common = (stem for stem, count in frequencies.items() if count and stem not in places)
    silent = times.union(common, stems.values() if query.is_phrase else ())
    telling = [stem for stem in dict.fromkeys(stems.values()) if stem not in silent]
    # The time in a question counts like one more word. A note from that time has it by its date, a text that names the time only in part.
    loudest = max((weights[stem] for stem in telling or weights), default=1.0)
    time = loudest if query.spans else 0.0
    shares = {stem: _TIME * weight if time and stem in times else weight for stem, weight in weights.items()}
    having = _shares(places, shares, whole_of([*shares.values(), time]))
    lexical = _scores(tables, having, mean, max(_SCORED, pool), dated)
    pairs = _pairs(tables, [stem for stem in telling if stem not in named], terms, weights, places, fits)
    most = min(1.0, max(having.values(), default=0.0))
    return Words(weights, silent, time, times, named, places, lexical, pairs, most)


def _shares(places: Mapping[str, Mapping[int, float]], weights: Mapping[str, float], whole: float) -> dict[int, float]:
    """Return the share of a question that each text with some of its words has; of a long question, that can be more than 1."""
    sums: dict[int, float] = {}
    for stem, has in places.items():
        weight = weights[stem] / (whole or 1.0)
        for place, similarity in has.items():
            sums[place] = sums.get(place, 0.0) + weight * similarity
    return sums


def _scores(
    tables: NoteTables, sums: dict[int, float], mean: float, most: int, dated: Iterable[int]
) -> dict[int, float]:
    """Return the BM25 scores of the rows that have the most of a question, in all and among some, each that of its best text.

    The shares of the question that texts have are given.
    """
    if len(sums) > most:
        ordered = sorted(reversed(sums), key=sums.__getitem__, reverse=True)  # noqa: C414  of equal ones, the newest first
        kept = _best(ordered, sums, most)
        if some := set(dated):
            kept |= _best([place for place in ordered if place // CHUNKS in some], sums, most)
        sums = {place: sums[place] for place in kept}
    lengths = tables.lengths(sums)
    # BM25's factor for the length of a text that has a word once, which is 1 for the mean length: Robertson and Zaragoza, "The
    # Probabilistic Relevance Framework: BM25 and Beyond" (2009), section 3.4.
    top, shortest, slope = _K1 + 1, 1 + _K1 * (1 - _B), _K1 * _B / mean
    found: dict[int, float] = {}
    for place, score in sums.items():
        row, score = place // CHUNKS, score * top / (shortest + slope * lengths[place])
        if found.get(row, 0.0) < score:
            found[row] = score
    return found


def _best(ordered: Sequence[int], scores: Mapping[int, float], most: int) -> set[int]:
    """Return the first places, of so many rows. If all of these have the highest score, so do more, as far as they are not too many."""
    highest = scores[ordered[0]] if ordered else 0.0
    rows: set[int] = set()
    kept: set[int] = set()
    for place in ordered:
        if len(rows) >= most and (scores[place] < highest or len(kept) >= _TIED):
            break
        rows.add(place // CHUNKS)
        kept.add(place)
    return kept


def weights_in(tables: NoteTables, query: Query, words: Words) -> list[float]:
    """Return how much each word of the bare text of a question says: on average 1.

    A word is a run of letters and digits, or a Chinese, Japanese or Korean character.
    """
    given = word_list(query.bare)
    stems = tables.tokens.stems_of(given)
    rarest = max(words.weights.values(), default=_STOP_WORD)
    weights = [
        _STOP_WORD if folded(word) in query.stopwords else words.weights.get(stems.get(word, ""), rarest)
        for word in given
    ]
    mean = math.fsum(weights) / len(weights) if weights else 1.0
    return [weight / mean for weight in weights]


def whole_of(weights: Iterable[float]) -> float:
    """Return the weight of a whole question: of a long one, that of its eight rarest words, since no answer has all of them."""
    return math.fsum(sorted(weights, reverse=True)[:_TELLING])


def _pairs(
    tables: NoteTables,
    stems: list[str],
    terms: Mapping[str, Sequence[Phrase]],
    weights: Mapping[str, float],
    places: Mapping[str, Mapping[int, float]],
    fits: Filter,
) -> dict[int, float]:
    """Return the share of the pairs of consecutive words that each row has with at most two other words between them."""
    pairs = list(pairwise(stems))[:_PAIRS]
    whole = math.fsum(weights[one] + weights[other] for one, other in pairs)
    near: dict[Term, float] = {
        tuple(Near(form, after) for form in terms[one] for after in terms[other]): (weights[one] + weights[other])
        / whole
        for one, other in pairs
        if one in places and other in places and not places[one].keys().isdisjoint(places[other])
    }
    found: dict[int, float] = defaultdict(float)
    for term, having in tables.postings(near, fits).items():
        for row in {place // CHUNKS for place in having}:
            found[row] += near[term]
    return dict(found)


def _terms(
    tables: NoteTables, stems: Mapping[str, str], query: Query, owner: str
) -> tuple[dict[str, list[Phrase]], dict[str, int]]:
    """Return the terms to search for each stem, and the number of texts for each term.

    The first is the word as it was written. If no text has it, a word such as `getUserName` is searched by its parts, one after the
    other. The rest are the forms of the word with other stems, the whole that hyphens make of it and others, and its stems in the
    language of the question.
    """
    wholes = tables.tokens.stems_of(query.joined.values())
    others = {stem: dict(other_forms(tables.tokens).get(stem, {})) for stem in stems.values()}
    for word, whole in query.joined.items():
        if word in stems and whole in wholes:
            others[stems[word]][wholes[whole]] = whole
    own = tables.tokens.stems_of(chain.from_iterable(query.stems.values()))
    counts = tables.frequencies({*others, *chain.from_iterable(others.values()), *own.values()}, owner)
    terms: dict[str, list[Phrase]] = {}
    frequencies: dict[str, int] = {}
    for word, stem in stems.items():
        if stem in terms:
            continue
        first, count = Phrase(word), counts[stem]
        if " " in stem:
            count = 1  # a phrase: in how many texts it is, is not known before
        elif is_character(word):
            first, count = Phrase(word, is_prefix=True), max(1, count)
        elif not count and (parts := parts_of(word)) != word:
            first, count = Phrase(parts), 1
        forms = {other: Phrase(form) for other, form in others[stem].items() if counts[other]}
        bases = {own[base]: Phrase(base) for base in query.stems.get(word, ()) if counts.get(own.get(base, ""))}
        terms[stem] = list(dict.fromkeys([first, *forms.values(), *bases.values()]))
        # A text that has a form of the word in the language of the question has its stem too.
        frequencies[stem] = max(count + sum(counts[other] for other in forms), *(counts[base] for base in bases), 0)
    return terms, frequencies


def _one_or_two(
    tables: NoteTables, word: str, beside: Sequence[str], fits: Filter
) -> tuple[list[Phrase], dict[int, float]]:
    """Return the other ways in which a word may be written, as far as they are in some text, and the places of the matching ones.

    These are two words, such as `e mail` for `email`, and one with the word beside it in the question, such as `wifi` for `wi fi`.
    `beside` has the word between those beside it.
    """
    wholes = [f"{one}{other}" for one, other in pairwise(beside) if f"{one}{other}".isalpha()]
    stems = tables.tokens.stems_of(wholes)
    counts = tables.frequencies(stems.values(), fits.owner)
    ways = _divided(tables, word, fits.owner) + [Phrase(whole) for whole, stem in stems.items() if counts[stem]]
    found = tables.postings([tuple(ways)] if ways else [], fits)
    return ways, dict.fromkeys(chain.from_iterable(found.values()), 1.0)


def _divided(tables: NoteTables, word: str, owner: str) -> list[Phrase]:
    """Return the phrases of two words that a word may be written as, such as `e mail`, if both words are in some text."""
    pairs = [(word[:place], word[place:]) for place in range(1, len(word))] if word.isalpha() else []
    stems = tables.tokens.stems_of(dict.fromkeys(chain.from_iterable(pairs)))
    counts = tables.frequencies(set(stems.values()), owner)
    return [
        Phrase(f"{one} {other}")
        for one, other in pairs
        if counts.get(stems.get(one, "")) and counts.get(stems.get(other, ""))
    ]


def _compounds(tables: NoteTables, word: str, query: Query, fits: Filter) -> tuple[list[Phrase], dict[int, float]]:
    """Return the terms for the words related to one that no text has which fits, and the places of these words.

    They are the compounds that begin with it, and the longest words that it begins and ends with: `Zahnarzt` and `Zahnarzttermin` find
    each other.
    """
    word = word.casefold()
    begins = [word[:place] for place in range(_PART, len(word) - _REST + 1)]
    ends = [word[place:] for place in range(_REST, len(word) - _PART + 1)]
    stems = tables.tokens.stems_of([part for part in (*begins, *ends) if part not in query.stopwords])
    counts = tables.frequencies(set(stems.values()), fits.owner)
    candidates = (
        [Phrase(word, is_prefix=True)],
        *([Phrase(part) for part in parts if counts.get(stems.get(part, ""))] for parts in (reversed(begins), ends)),
    )
    found: dict[Phrase, list[int]] = {}
    for terms in candidates:
        # Only words in texts that fit count: notes of others must not change the results.
        having = ((term, tables.postings([(term,)], fits)[(term,)]) for term in terms)
        found.update(islice((each for each in having if each[1]), 1))
    return list(found), dict.fromkeys(chain.from_iterable(found.values()), _RELATED)


def _respelt(tables: NoteTables, stem: str, fits: Filter) -> tuple[list[Phrase], dict[int, float]]:
    """Return the word spelled most like one that no fitting text has, and the places of the three words most like it.

    Only words in texts that fit count: notes of others must not change the results.
    """
    best: list[Phrase] = []
    spellings = 0
    places: dict[int, float] = {}
    for alike, similarity in tables.similar(stem, fits.owner).items():
        term = Phrase(tables.tokens.word_of(alike))
        if has := tables.postings([(term,)], fits)[(term,)]:
            best = best or [term]
            places = dict.fromkeys(has, similarity) | places
            spellings += 1
            if spellings == _SPELLINGS:
                break
    return best, places


def _rarest(frequencies: Mapping[str, int]) -> list[str]:
    """Return the stems, the rarest first, as long as they occur in few texts of the store."""
    found: list[str] = []
    postings = 0
    for stem in sorted(frequencies, key=frequencies.__getitem__):
        postings += frequencies[stem]
        if found and postings > _POSTINGS:
            break
        found.append(stem)
    return found


def inverse_frequency(count: int, total: int) -> float:
    """Return the inverse document frequency of a word in `count` of `total` texts, as in BM25: ln(1 + (N - n + 0.5) / (n + 0.5))."""
    return math.log(1 + (total - count + 0.5) / (count + 0.5))
