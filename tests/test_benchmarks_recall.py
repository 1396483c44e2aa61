"""The material on which recall is measured is read and checked, figures follow from ranks, and weights are fitted as they should be."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

from benchmarks import baselines, recall, weights
from benchmarks.fit import NAMES, Asked, _newton, fit, matrix, ranked
from benchmarks.material import SORTS, Material, MaterialError, Question, Said, material, read, together
from benchmarks.outcome import hit_cell, outcome, recall_cells
from graphagent.memory.notes.recall._weights import WEIGHTS
from tests.thorough import some

DIALOGUE = """# A balcony
## 2024-03-03 18:10
1.1 Hanna: I planted tomatoes,
and they grow.
1.2 Ruben: At 7.30 o'clock: lovely!

## 2024-03-19 08:40
2.1 Ruben: My sister moved to Lisbon.

## questions
single | 1.1 | What did Hanna plant?
list | 1.2  2.1 | What | did Ruben say?
"""


def written(folder, text, name="dialogue-balcony"):
    """Return the path of a file."""
    path = folder / f"{name}.md"
    path.write_text(text, "utf-8")
    return path


# The material


def test_a_dialogue_is_read(tmp_path):
    """A turn may have several lines, a session gives its time, and only the first two bars of a question divide it."""
    found = read(written(tmp_path, DIALOGUE))
    assert (found.name, found.sort) == ("dialogue-balcony", "dialogue")
    assert [[each.id for each in session] for session in found.sessions] == [["1.1", "1.2"], ["2.1"]]
    first, second = found.sessions[0]
    assert (first.speaker, first.text) == ("Hanna", "I planted tomatoes,\nand they grow.")
    assert second.text == "At 7.30 o'clock: lovely!"
    assert first.at.isoformat() == "2024-03-03T18:10:00+00:00"
    assert found.questions[1] == Question("list", "What | did Ruben say?", frozenset({"1.2", "2.1"}))


def test_notes_are_read(tmp_path):
    """They have no speaker, and a time if one is written."""
    text = "# Notes\n## notes\nn1: Buy milk.\nn2 (2024-03-03): Rent is due.\n\n## questions\ncode | n2 | Rent?\n"
    [notes] = read(written(tmp_path, text, "notes-some")).sessions
    assert [(each.id, each.text, each.speaker) for each in notes] == [
        ("n1", "Buy milk.", ""),
        ("n2", "Rent is due.", ""),
    ]
    assert [each.at and each.at.date().isoformat() for each in notes] == [None, "2024-03-03"]


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("single | 1.1 |", "single | 1.9 |", r"dialogue-balcony.md: 'What did Hanna plant\?' names \['1.9'\], which do not exist"),
        ("2.1 Ruben", "2.2 Ruben", "2.2 is turn 1 of session 2"),
        ("1.2 Ruben", "1.1 Ruben", r"\['1.1'\] occur twice"),
        ("1.1 Hanna", "Hanna", "begins neither a turn nor a note"),
        ("| What did Hanna plant?", "|", r"'single \| 1.1 \|' is not `kind \| ids \| question`"),
        ("| What did Hanna plant?", "", "is not `kind"),
        ("single | 1.1 |", "single | |", "is not `kind"),
        ("single |", "|", "is not `kind"),
    ],
)  # fmt: skip
def test_bad_material_is_refused(tmp_path, right, wrong, said):
    """The error names the file and the place."""
    assert DIALOGUE.count(right) == 1
    with pytest.raises(MaterialError, match=said):
        read(written(tmp_path, DIALOGUE.replace(right, wrong)))


def test_a_chat_has_roles_only(tmp_path):
    """Anybody else is refused, and so is a file of no known sort."""
    with pytest.raises(MaterialError, match=r"1\.1 has the role 'Hanna', not one of user, assistant"):
        read(written(tmp_path, DIALOGUE, "chat-balcony"))
    with pytest.raises(
        MaterialError, match=r"'letters-balcony\.md' begins with none of dialogue, chat, notes, languages"
    ):
        read(written(tmp_path, DIALOGUE, "letters-balcony"))


def test_all_material_is_sound():
    """Each file can be read, and all have questions."""
    found = [each for sort in SORTS for each in material(sort)]
    assert len(found) > 8
    assert all(each.questions for each in found)


# The figures


def test_recall_is_the_share_of_what_answers_the_question():
    """What comes after the depth does not count."""
    found = outcome("list", {"a", "b"}, ["a", "c", "b"])
    assert [found.recall(depth) for depth in (1, 2, 3)] == [0.5, 0.5, 1.0]


@pytest.mark.parametrize(
    ("found", "hits", "reciprocal"), [("abc", (0, 0, 1), 1 / 3), ("cab", (1, 1, 1), 1), ("ab", (0, 0, 0), 0)]
)
def test_the_first_rank_decides_about_hits(found, hits, reciprocal):
    """A hit is at that rank or before it, and the reciprocal rank is 0 if nothing was found."""
    each = outcome("single", {"c", "d"}, [*found])
    assert tuple(each.hit(depth) for depth in (1, 2, 3)) == hits
    assert each.reciprocal() == reciprocal


def test_the_cells_of_a_row_are_means():
    """Kinds without a question have an empty cell."""
    outcomes = [outcome("single", {"a"}, ["a"]), outcome("list", {"a", "b"}, ["c", "a"])]
    assert recall_cells(outcomes, (1, 5), ["single", "list", "when"]) == ["50.0", "75.0", ".750", "100.0", "50.0", ""]
    assert (hit_cell(outcomes), hit_cell([])) == ("50 / 100", "")


def test_every_third_question_about_notes_is_held_out():
    """Each file counts from its own beginning."""
    given = [
        Material(name, "notes", [[Said("n1", "Text.")]], [Question("code", "?", frozenset({"n1"}))] * 4)
        for name in "ab"
    ]
    right = outcome("code", {"n1"}, ["n1"])
    wrong = outcome("code", {"n1"}, [])
    outcomes = [wrong, wrong, right, wrong] * 2
    assert recall.cells("notes", given, outcomes) == ["25 / 25", "100 / 100", "25 / 25"]


def test_fts5_alone_searches_without_stop_words(tmp_path):
    """A question of stop words alone is searched as it is."""
    bare = baselines.Fts5(tmp_path / "bare.db", ["The cat sat.", "Dogs bark.", "What is it?"])
    assert bare.search("What did the dog's friend do?", 5) == [(1, "Dogs bark.")]
    assert [place for place, _ in bare.search("what is it", 5)] == [2]
    bare.close()


async def test_dense_alone_ranks_by_cosine():
    """The length of a vector does not matter, and of equal ones the first is first."""

    class Lengths:
        name = "lengths"

        async def embed(self, texts):
            return [{"up": (0, 9), "right": (1, 0), "wide": (5, 1), "up too": (0, 1)}[text] for text in texts]

    vectors = baselines.Vectors(Lengths())
    assert await baselines.nearest(vectors, ["up", "right", "wide", "up too"], ["up", "right"], 3) == [
        [0, 3, 2],
        [1, 2, 0],
    ]


# The weights


def chat():
    """Return a chat in which what the user says answers, although the assistant says more words of the question."""
    said = [
        ("user", "My boat is named Clementine."),
        ("assistant", "What a lovely name for a boat! You may paint the name of your boat in blue."),
        ("user", "The engine broke in Split."),
        ("assistant", "An engine that broke can be repaired where it broke, in Split or elsewhere."),
        ("user", "I bought a red sail."),
        ("assistant", "A sail that you bought can be red; many colours of sail can be bought."),
    ]
    texts = [Said(f"1.{place}", text, role) for place, (role, text) in enumerate(said, 1)]
    asked = {
        "1.1": "What is the name of the boat?",
        "1.3": "Where did the engine break?",
        "1.5": "Which colour of sail was bought?",
    }
    questions = [Question("single", text, frozenset({gold})) for gold, text in asked.items()]
    return Material("chat-boat", "chat", [texts], questions)  # fmt: skip


def shuffled(asked):
    """Return the ranks of the gold rows with words alone."""
    return [ranked(each, {"lexical": 1.0}).index(next(iter(each.gold))) for each in asked]


async def test_fitted_weights_put_first_what_answers():
    """With words alone the longer message is first; the fitted weights have learned of the role."""
    asked = await weights.gathered(chat(), None)
    assert any(shuffled(asked))
    found = fit(asked, weights.START["words"])
    assert all(ranked(each, found)[0] in each.gold for each in asked)
    assert found["role"] < 0
    assert weights.with_weights(asked, found)[0].ranks == (1,)


async def test_a_feature_without_spread_is_left_out():
    """It could have any weight. So could one that is to be left out."""
    asked = await weights.gathered(chat(), None)
    found = fit(asked, weights.START["words"])
    assert found.keys() <= set(NAMES)
    assert "semantic" not in found
    assert "speaker" not in found
    assert "role" not in fit(asked, weights.START["words"], without=["role"])


async def test_a_question_without_gold_among_its_candidates_is_left_out():
    """There is nothing to learn from it."""
    asked = await weights.gathered(chat(), None)
    lost = Asked("chat-boat", "single", asked[0].found, frozenset(), 1)
    assert fit([*asked, lost], weights.START["words"]) == fit(asked, weights.START["words"])


async def test_a_question_without_candidates_changes_nothing():
    """No word of it is in any text: nothing is found, and nothing can be learned."""
    given = chat()
    empty = Material(
        given.name, given.sort, given.sessions, [*given.questions, Question("single", "Xylophone?", frozenset({"1.1"}))]
    )
    asked = await weights.gathered(empty, None)
    found = fit(asked, weights.START["words"])
    assert found == fit(asked[:-1], weights.START["words"])
    assert weights.with_weights(asked, found)[-1].ranks == ()


@pytest.mark.parametrize("seed", some(range(20), 3))
def test_the_weights_are_the_most_likely_ones(seed):
    """No other weights, near or far, have a lower loss; and those by which the gold rows were drawn are nearly found."""
    random = np.random.default_rng(seed)
    truth = np.array([2.0, -1.0, 0.5])
    sets = []
    for _ in range(400):
        features = random.standard_normal((8, 3))
        chance = np.exp(features @ truth)
        sets.append((features, np.eye(8)[random.choice(8, p=chance / chance.sum())]))
    ridge = 1e-3

    def loss(at):
        return np.mean([np.log(np.exp(each @ at).sum()) - gold @ each @ at for each, gold in sets]) + ridge * at @ at

    found = _newton(sets, ridge)
    others = [found + size * random.standard_normal(3) for size in (0.01, 0.1, 1, 5) for _ in range(5)]
    assert all(loss(found) < loss(other) for other in others)
    assert found == pytest.approx(truth, abs=0.5)


async def test_the_features_have_a_row_for_each_candidate():
    """The columns are those that are named."""
    [first, *_] = await weights.gathered(chat(), None)
    order, features = matrix(first, weights.START["words"])
    assert features.shape == (len(order), len(NAMES))
    assert features[:, NAMES.index("role")].tolist() == [
        float(first.found.rows[row].role == "assistant") for row in order
    ]


async def test_scores_are_logarithms_of_odds():
    """Of a text that answers nine times in ten, and else the other one does, the weight of what distinguishes it is ln 9."""
    sets = [(np.array([[1.0], [0.0]]), np.array([0.9, 0.1]))]
    assert _newton(sets, 0.0) == pytest.approx([np.log(9)])


async def test_everything_in_one_store_keeps_its_sorts():
    """The ids are told apart by the names of the files, turns keep their speakers, and messages their roles."""
    notes = Material("notes-some", "notes", [[Said("n1", "Buy milk.")]], [Question("code", "Milk?", frozenset({"n1"}))])
    [given] = recall.chosen("mixed", quick=True)
    assert {each.kind for each in given.questions} == {"dialogue", "chat", "notes"}
    mixed = together([notes, chat()])
    assert [each.kind for each in mixed.questions] == ["notes", "chat", "chat", "chat"]
    async with recall.remembered(mixed, None) as kept:
        records = {each.source: each for each in await kept.list_records()}
    assert records["notes-some n1"].session == ""
    assert [records[f"chat-boat 1.{place}"].role for place in (1, 2)] == ["user", "assistant"]
    assert all(question.gold <= records.keys() for question in mixed.questions)


async def test_of_notes_those_that_are_held_out_are_not_fitted():
    """A third is left for the measurement."""
    notes = [
        Said(f"n{number}", f"Note about {word}.") for number, word in enumerate(("cats", "dogs", "bees", "ants"), 1)
    ]
    questions = [Question("code", f"What about {each.text[11:]}", frozenset({each.id})) for each in notes]
    asked = await weights.gathered(Material("notes-some", "notes", [notes], questions), None)
    assert [each.found.query.text for each in asked] == [questions[place].text for place in (0, 1, 3)]


def test_the_table_of_weights_is_code():
    """It has two decimals, no weight that is 0, and its names are those of the features."""
    text = weights.code({tier: {"note": {"lexical": 1.0, "pairs": 0.123, "date": 0.004}} for tier in weights.START})
    names = {}
    exec(compile(ast.parse(text), "weights", "exec"), names)
    assert names["WEIGHTS"] == {tier: {"note": {"lexical": 1.0, "pairs": 0.12}} for tier in weights.START}


def test_the_guide_shows_the_weights_of_the_code():
    """So who reads the table knows what ranks."""
    page = (Path(__file__).parents[1] / "docs/notes-quality.md").read_text("utf-8")
    assert weights._shown(WEIGHTS) in page
