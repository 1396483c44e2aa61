from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import apsw
import pytest

from graphagent.memory import Note, Notes, NoteSettings, Ranking, Turn
from graphagent.memory._note_values import Filter
from graphagent.memory.notes.recall import _lexical
from graphagent.memory.notes.recall._search import candidates
from graphagent.store import MemoryStore, SqliteStore
from graphagent.testing import fixed_clock
from tests.memory.notes.conftest import Words, WordVectors

AT = datetime(2024, 5, 1, tzinfo=UTC)
TEXTS = [
    "The staging database runs on port 5433.",
    "Deploy to staging on Tuesdays.",
    "The office closes at six.",
    "Ada keeps bees on the roof of the office.",
    "The production database is PostgreSQL.",
]


def at(time):
    """Have it be another time."""
    return fixed_clock(round(time.timestamp() * 1000))


def scores(matches):
    """Give what each text is worth."""
    return {match.record.content: match.score for match in matches}


@pytest.mark.parametrize("embedder", [None, Words()])
async def test_scores_are_above_nothing_and_at_most_one(store, embedder):
    """What is asked for word by word is worth 1; all else less, down to what merely stands beside it."""
    async with Notes(store, embedder=embedder) as notes:
        await notes.remember_many(TEXTS)
        for text in TEXTS:
            found = await notes.recall(text, limit=10)
            assert found[0].record.content == text
            assert found[0].score == pytest.approx(1, abs=1e-5)
            assert all(0 < match.score <= 1 for match in found)


@pytest.mark.parametrize("embedder", [None, Words()])
async def test_a_score_does_not_depend_on_what_else_is_found(store, embedder):
    """With another limit or in a smaller scope, the same text is worth the same."""
    async with Notes(store, embedder=embedder) as notes:
        await notes.remember_many(TEXTS[:3], scope="/one")
        await notes.remember_many(TEXTS[3:], scope="/two")
        whole = scores(await notes.recall("staging database of the office", limit=10))
        assert len(whole) >= 4
        assert scores(await notes.recall("staging database of the office", limit=2)).items() <= whole.items()
        for scope in ("/one", "/two"):
            inside = scores(await notes.recall("staging database of the office", limit=10, scope=scope))
            assert inside == pytest.approx({text: whole[text] for text in inside}, abs=1e-5)


async def test_reasons_say_what_the_rank_is_made_of(notes):
    """The strongest stands first, each has its part, and the score before recency is among these."""
    turns = [Turn(text, "Ada" if place % 2 else "Ben", at=AT) for place, text in enumerate(TEXTS)]
    await notes.remember_conversation(turns, session="one")
    [best, *_] = await notes.recall("What did Ada say of staging in May?", limit=3)
    assert best.record.content == TEXTS[1]
    assert {"lexical", "session", "speaker", "date"} <= set(best.reasons)
    assert set(best.parts) == {*best.reasons, "relevance"}
    assert [best.parts[name] for name in best.reasons] == sorted(
        (best.parts[name] for name in best.reasons), reverse=True
    )
    assert best.parts["relevance"] == pytest.approx(best.score)


async def test_what_stands_beside_an_answer_is_found(notes):
    """A turn without a word of the question comes before the question that it answers, with the least score."""
    await notes.remember_conversation([Turn("Which port is it?", "Ben"), Turn("5433.", "Ada")], session="one")
    found = await notes.recall("port", limit=5)
    assert [match.record.content for match in found] == ["5433.", "Which port is it?"]
    assert "answer" in found[0].reasons
    assert 0 < found[0].score < 0.1


async def test_turns_beside_that_do_not_fit_are_not_found(notes):
    """The neighbour of an answer is private, or of another scope: it stays out."""
    await notes.remember_conversation([Turn("Which port?", "Ben")], session="one", scope="/open")
    await notes.remember_conversation([Turn("5433.", "Ada")], session="one", scope="/closed")
    found = await notes.recall("port", scope="/open")
    assert [match.record.content for match in found] == ["Which port?"]


@pytest.mark.parametrize("embedder", [None, Words()])
async def test_fresh_and_irrelevant_does_not_beat_old_and_exact(store, embedder):
    """With recency nearly everything, what hardly fits still comes last."""
    async with Notes(
        store, embedder=embedder, settings=NoteSettings(recency_weight=1.0, semantic_weight=0.1, importance_weight=0.0)
    ) as notes:
        with at(datetime(2020, 1, 1, tzinfo=UTC)):
            await notes.remember(TEXTS[0])
        for day in range(5):
            with at(datetime(2024, 1, 1, tzinfo=UTC) + timedelta(days=day)):
                await notes.remember(f"On day {day} somebody asked about a port in Spain.")
        with at(datetime(2024, 1, 6, tzinfo=UTC)):
            found = await notes.recall("staging database port 5433", limit=3)
    assert found[0].record.content == TEXTS[0]
    assert set(found[0].reasons) <= {"semantic", "recency", "importance"}
    assert all(0 < match.score <= 1 for match in found)


async def test_recency_decides_between_equals(store):
    """Of notes that fit alike, the newer is first, once recency counts."""
    async with Notes(store, settings=NoteSettings(recency_weight=0.3)) as notes:
        for year in (2020, 2024, 2022):
            with at(datetime(year, 1, 1, tzinfo=UTC)):
                await notes.remember(f"The budget was approved in {year}.")
        with at(datetime(2024, 2, 1, tzinfo=UTC)):
            found = await notes.recall("approved budget", limit=3)
    assert [match.record.content[-5:-1] for match in found] == ["2024", "2022", "2020"]


async def test_long_texts_are_found_by_one_sentence(notes):
    """A sentence deep inside a long message of many topics is found before short notes that share a word with the question."""
    words = random.Random(3)
    topics = ["music", "travel", "garden", "weather", "football", "cooking", "paint", "history"]

    def message(sentence=""):
        filler = [f"About {words.choice(topics)} there is {words.choice(topics)} to tell again." for _ in range(60)]
        filler.insert(40, sentence)
        return " ".join(filler)

    await notes.remember_many([message() for _ in range(8)])
    wanted = await notes.remember(message("The spare key lies under the blue flower pot."))
    await notes.remember_many(["The key of F is easy.", "Blue is a colour.", "A pot of tea, please."])
    [best, *_] = await notes.recall("Where is the spare key: under which flower pot?", limit=3)
    assert best.record.id == wanted.id


@pytest.mark.parametrize(
    "text", ["", "   ", "?!", '"', "a OR b AND", "NEAR(x", "text : tags", "*", "-", "ﬁ", "🙂", "\x00", "x" * 5000]
)
async def test_any_question_is_answered(notes, text):
    """Nothing in a question is syntax."""
    await notes.remember_many([*TEXTS, "a or b and NEAR text tags"])
    for match in await notes.recall(text):
        assert 0 < match.score <= 1


async def test_other_scripts_are_found(notes):
    """Words of any script that has spaces between them are found, with or without accents."""
    for text in ("데이터베이스 포트는 5433 입니다", "Порт базы данных 5433", "Le café est fermé à Zürich"):
        kept = await notes.remember(text)
        for word in text.split():
            assert kept.id in {match.record.id for match in await notes.recall(word)}
    assert (await notes.recall("cafe zurich"))[0].record.content.startswith("Le café")


async def test_common_words_do_not_hide_rare_ones(notes, monkeypatch):
    """Where words are in very many notes only the rarest are searched for, and these are found as before."""
    monkeypatch.setattr(_lexical, "_POSTINGS", 3)
    await notes.remember_many(f"The server {number} is up and running." for number in range(20))
    kept = await notes.remember("The server of the archive is up.")
    found = await notes.recall("Is the archive server up?", limit=5)
    assert [match.record.id for match in found] == [kept.id]
    assert found[0].score == pytest.approx(1)
    assert len(await notes.recall("server", limit=5)) == 5


@pytest.mark.parametrize("embedder", [None, Words()])
async def test_recall_writes_nothing(tmp_path, embedder):
    """Whoever watches the file sees no change."""
    path = tmp_path / "notes.db"
    async with Notes(SqliteStore(path), embedder=embedder) as notes:
        await notes.remember_many(TEXTS)
        watcher = apsw.Connection(str(path))
        before = watcher.execute("PRAGMA data_version").fetchall()
        for text in TEXTS:
            assert await notes.recall(text)
        assert watcher.execute("PRAGMA data_version").fetchall() == before
        await notes.remember("Another one.")
        assert watcher.execute("PRAGMA data_version").fetchall() != before
        watcher.close()


async def test_long_messages_are_found_at_least_as_well_as_by_vectors_alone(tmp_path):
    """Among long messages of many topics, words and vectors together find more of what is asked for than vectors alone."""
    words = random.Random(4)
    letters = [chr(97 + number) for number in range(26)]
    vocabulary = ["".join(words.choices(letters, k=6)) for _ in range(4000)]

    def sentence():
        return f"{' '.join(words.choices(vocabulary[:80], k=8) + words.choices(vocabulary, k=4)).capitalize()}."

    messages = [[sentence() for _ in range(40)] for _ in range(30)]
    asked = [(number, words.choice(message)) for number, message in enumerate(messages)]
    dense = Ranking(lexical=0, semantic=1, neighbours=0, session=0, speaker=0, date=0)
    hits = {}
    for name, ranking in (("both", Ranking()), ("dense", dense)):
        async with Notes(
            tmp_path / f"{name}.db", embedder=Words(dimensions=64), settings=NoteSettings(ranking=ranking)
        ) as notes:
            kept = await notes.remember_many([" ".join(message) for message in messages])
            found = [await notes.recall(" ".join(text.strip(".").split()[4:10]), limit=1) for _, text in asked]
            hits[name] = sum(
                match.record.id == kept[number].id for (number, _), [match] in zip(asked, found, strict=True)
            )
    assert hits["both"] > hits["dense"], hits
    assert hits["both"] >= 25


async def test_every_match_has_a_reason(notes):
    """Also the one that fits least, and what was found by the turns around it alone."""
    talk = ["Who is at the door?", "My husband Leo fitted them.", "Wonderful. Is it dry now?"]
    await notes.remember_conversation([Turn(text) for text in talk], session="s")
    await notes.remember("But Leo is allergic to nickel.")
    found = await notes.recall("Who is Leo?")
    assert len(found) == 4
    assert all(match.reasons for match in found)
    assert {match.record.content for match in found[:2]} == {talk[1], "But Leo is allergic to nickel."}


@pytest.mark.parametrize("late_interaction", [False, True])
async def test_the_farthest_of_the_notes_that_vectors_find_has_a_reason(late_interaction):
    """All that it has is a vector, and the others are measured from it."""
    notes = Notes(MemoryStore(), embedder=Words(), late_interaction=late_interaction)
    await notes.remember_many(["a pear is sweet", "the office closes at six", "lunch is at noon"])
    for question in ("pear", "zebra"):
        assert [match.reasons for match in await notes.recall(question) if not match.reasons] == []


async def test_a_score_that_is_too_low_leaves_room_for_others(notes):
    """An answer of low score is first, and the note that has what is asked for is found all the same."""
    talk = [("Ann", "What pet did you get?"), ("Bob", "A ferret called Salt."), ("Ann", "Nice.")]
    await notes.remember_conversation([Turn(text, speaker) for speaker, text in talk], session="s")
    found = await notes.recall("Which pet did Bob get?")
    assert found[0].score < 0.6 < max(match.score for match in found)
    [match] = await notes.recall("Which pet did Bob get?", limit=1, min_score=0.6)
    assert match.score > 0.6


@pytest.mark.parametrize("embedder", [None, Words()])
async def test_what_was_said_at_a_time_that_is_named_is_found_without_a_word_in_common(store, embedder):
    """Whether the time is named by a day, a month or words such as yesterday; nothing else is found by it."""
    async with Notes(store, embedder=embedder) as notes:
        with at(AT):
            await notes.remember_conversation(
                [
                    Turn("I went to the dentist.", at=AT - timedelta(days=1)),
                    Turn("The bicycle has a new bell.", at=AT - timedelta(days=40)),
                ],
                session="s",
            )
            for question in ("What did I do yesterday?", "What happened on 30 April 2024?", "What was in April 2024?"):
                best = (await notes.recall(question, limit=1))[0]
                assert best.record.content == "I went to the dentist."
                assert "date" in best.reasons
                assert best.score > 0.3
            assert await notes.recall("What did I do yesterday?", scope="/elsewhere") == []
            view = notes.slice(["/"], read_only=True)
            found = await view.recall("What did I do yesterday?", until=AT - timedelta(days=20))
            assert "I went to the dentist." not in [match.record.content for match in found if "date" in match.reasons]


@pytest.mark.parametrize("embedder", [None, Words()])
async def test_as_many_are_found_as_are_asked_for(store, embedder):
    """However many fit."""
    async with Notes(store, embedder=embedder) as notes:
        await notes.remember_many([f"pear number {number}" for number in range(450)])
        assert len(await notes.recall("pear", limit=400)) == 400


async def test_categories_are_found_by_their_words(notes):
    """As if they stood in the text; when they change, so does what is found."""
    kept = await notes.remember("We took PostgreSQL.", categories=["decision"])
    assert [match.record.id for match in await notes.recall("Which decisions are there?")] == [kept.id]
    await notes.update(kept.id, categories=["database"])
    assert await notes.recall("decision") == []
    assert len(await notes.recall("database")) == 1


async def test_words_that_say_nothing_find_nothing_by_themselves(notes):
    """A question of such words alone finds who said just that, and it is worth nothing."""
    await notes.remember_many(
        ["The PIN of the card is secret: how you are to know it, and I too, no one says.", "You and I."]
    )
    assert await notes.recall("How are you?") == []
    [match] = await notes.recall("you and I?")
    assert (match.record.content, match.score) == ("You and I.", 0.01)


async def test_a_long_question_does_not_make_an_answer_worth_less(notes):
    """Of many words those that tell most are what was asked for."""
    await notes.remember_many(TEXTS)
    long = (
        "Please look up for me, if you can find the time, whatever was noted of the staging database and its port " * 2
    )
    short = await notes.recall("staging database port")
    assert short[0].score == pytest.approx(1.0)
    assert (await notes.recall(long))[0].score > 0.3


async def test_a_time_that_is_named_counts_once_in_the_score(notes):
    """However many words name it; a note has it that was said then, or that has these words."""
    await notes.remember("The contract ends on 3 May 2030.")
    await notes.remember("Ada called.", at=datetime(2030, 5, 3, tzinfo=UTC))
    for question in ("contract on 2030-05-03", "contract on 3 May 2030"):
        found = scores(await notes.recall(question))
        assert found["Ada called."] == pytest.approx(0.5)
    assert found["The contract ends on 3 May 2030."] == pytest.approx(1.0)
    assert scores(await notes.recall("What happened on 3 May 2030?")).keys() == found.keys()


# A time and a topic


@pytest.mark.parametrize("embedder", [None, Words(dimensions=64), WordVectors(dimensions=64)])
async def test_the_one_note_of_the_topic_and_of_the_time_is_first(embedder, tmp_path):
    """However many notes say more of the topic at other times, and however many are newer of that time; whatever the limit is."""
    march = datetime(2024, 3, 1, tzinfo=UTC)
    async with SqliteStore(tmp_path / "notes.db") as store:
        notes = Notes(store, embedder=embedder)
        others = [
            Note(f"The boiler repair, boiler {number}.", at=datetime(2022, 1, 1, tzinfo=UTC)) for number in range(150)
        ]
        then = [
            Note(f"Walk number {number} along the sea.", at=march + timedelta(days=9, minutes=number))
            for number in range(150)
        ]
        asked = "The man who came about the boiler took a whole morning, and left without his hat."
        await notes.remember_many([*others, Note(asked, at=march), *then])
        for limit in (1, 200):
            [first, *_] = await notes.recall("What about the boiler in March 2024?", limit=limit)
            assert first.record.content == asked
        found = [match.record.content for match in await notes.recall("What happened in March 2024?", limit=50)]
        assert found == [note.content for note in then[::-1]][:50]


async def test_a_month_without_a_year_is_that_of_earlier_years_too():
    """A note of the topic is found, though it is not of last March."""
    notes = Notes(MemoryStore())
    with at(datetime(2024, 6, 1, tzinfo=UTC)):
        for year in (2019, 2021, 2024):
            await notes.remember(f"Planted {year} peas.", at=datetime(year, 3, 5, tzinfo=UTC))
            await notes.remember(f"Planted {year} beans.", at=datetime(year, 5, 5, tzinfo=UTC))
        for text in ("What was planted in March?", "What was planted in early March?"):
            found = [match.record.content for match in await notes.recall(text, limit=3)]
            assert sorted(found) == ["Planted 2019 peas.", "Planted 2021 peas.", "Planted 2024 peas."]


async def test_reasons_are_what_raised_a_match():
    """What lowered it is in its parts alone."""
    notes = Notes(MemoryStore())
    await notes.remember_conversation(
        [Turn("Which lock is broken?", role="user"), Turn("The lock of the shed is broken.", role="assistant")],
        session="s",
    )
    [asked, answered] = sorted(await notes.recall("broken lock"), key=lambda match: match.record.place)
    assert answered.parts["role"] < 0
    assert asked.parts["answer"] < 0
    assert "role" not in answered.reasons
    assert "answer" not in asked.reasons
    assert "lexical" in asked.reasons


# Identifiers of a letter and a number


@pytest.mark.parametrize(
    ("asked", "first"),
    [
        ("Which bucket of S3 is full?", "The S3 bucket is full."),
        ("Where does the M1 end?", "The M1 ends in Leeds."),
        ("Who gave A4 paper?", "Paper in A4 came from Ada."),
        ("Is there a vaccine for Hepatitis A?", "Hepatitis A has a vaccine."),
    ],
)
async def test_a_letter_of_an_identifier_is_searched_for(asked, first):
    """Though it is a stop word elsewhere."""
    notes = Notes(MemoryStore())
    await notes.remember_many(
        [
            "It's 3 o'clock, and the bucket is full.", "Exit 1 is where the road ends.", "Who has paper? I gave 4 sheets.",
            "The vaccine for hepatitis B is there.", "The S3 bucket is full.", "The M1 ends in Leeds.",
            "Paper in A4 came from Ada.", "Hepatitis A has a vaccine.",
        ]
    )  # fmt: skip
    assert (await notes.recall(asked, limit=1))[0].record.content == first


# Speakers


async def test_a_speaker_who_has_said_nothing_that_fits_hides_none_who_has():
    """Ana Maria is not in this scope, so "Ana Maria" names Ana there."""
    notes = Notes(MemoryStore())
    await notes.remember_conversation([Turn("The soup was hot.", "Ana Maria")], session="1", scope="/b")
    turns = [Turn("The soup was cold.", "Bo"), Turn("Nobody ate soup.", "Ana"), Turn("Fine.", "Bo")]
    await notes.remember_conversation(turns, session="2", scope="/a")
    [first, *_] = await notes.recall("What did Ana Maria say of the soup?", scope="/a")
    assert first.record.speaker == "Ana"
    assert "speaker" in first.reasons


async def test_the_first_name_names_the_one_speaker_who_has_it():
    """Whoever has it elsewhere does not count."""
    notes = Notes(MemoryStore())
    for scope, speaker in (("/a", "Ann Baker"), ("/b", "Ann Lee")):
        await notes.remember_conversation(
            [Turn("The soup was hot.", speaker), Turn("The soup was cold.", "Tom")], session=scope, scope=scope
        )
    for scope, speaker in (("/a", "Ann Baker"), ("/b", "Ann Lee")):
        [first, *_] = await notes.recall("What did Ann say of the soup?", scope=scope)
        assert first.record.speaker == speaker
        assert "speaker" in first.reasons
    assert not any("speaker" in each.reasons for each in await notes.recall("What did Ann say of the soup?"))


async def test_the_last_of_many_speakers_is_named():
    """A store may have thousands."""
    notes = Notes(MemoryStore())
    turns = [Turn("The soup was hot.", f"p{number:04}") for number in range(1500)]
    await notes.remember_conversation(turns, session="s")
    [first, *_] = await notes.recall("What did p1499 say of the soup?")
    assert (first.record.speaker, "speaker" in first.reasons) == ("p1499", True)


# Vectors of words


async def test_rare_words_of_a_question_count_more_where_vectors_of_words_are_compared():
    """As they do where words are."""
    async with Notes(MemoryStore(), embedder=WordVectors(dimensions=256)) as notes:
        await notes.remember_many(["A lamp so bright.", "A kiln so warm.", *[f"The lamp is {n}." for n in range(9)]])
        found = await candidates(notes._service.repository, "lamp kiln", Filter(""))
        rows = {each.id: number for number, each in found.rows.items()}
        lamp, kiln = [
            found.scores["tokens"][rows[record.id]]
            for text in ("A lamp so bright.", "A kiln so warm.")
            for record in await notes.list_records()
            if record.content == text
        ]
        assert kiln > lamp + 0.5


async def test_tables_that_were_built_again_meanwhile_are_searched_with_vectors_of_their_own(tmp_path):
    """Rows have other numbers in them, so the vectors in memory are read again."""

    class Slow(Words):
        async def embed(self, texts):
            if texts == ["bees on the roof"] and not self.calls:
                with apsw.Connection(str(tmp_path / "notes.db")) as connection:
                    connection.execute("UPDATE notes_state SET value=randomblob(16) WHERE name='made'")
            return await super().embed(texts)

    embedder = Slow()
    async with SqliteStore(tmp_path / "notes.db") as store:
        notes = Notes(store, embedder=embedder)
        await notes.remember_many(TEXTS)
        embedder.calls = 0
        [first, *_] = await notes.recall("bees on the roof")
        assert first.record.content == TEXTS[3]
        assert embedder.calls == 2  # the question is asked again


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("दावा", "बीमा का दावा मंगलवार को भेजा"),
        ("मीरा", "मीरा ने फोन किया"),
        ("தமிழ்", "தமிழ் பாடம் நாளை"),
        ("ẹ̀kọ́", "Mo fẹ́ràn ẹ̀kọ́ ní ilé-ìwé"),
        ("eko", "Mo fẹ́ràn ẹ̀kọ́ ní ilé-ìwé"),
        ("Lodz", "My grandmother lived in Łódź"),
        ("Da Nang", "ảnh của Đà Nẵng"),
        ("irmakta", "Kız kardeşim ırmakta yüzer"),
        ("Tromso", "Vi flytter til Tromsø"),
    ],
)
async def test_a_word_ends_at_no_vowel_sign_and_is_found_without_its_strokes(question, text):
    """A question finds the note with its whole word alone, and not those with a part of it."""
    others = [
        "पान की दुकान बंद है",
        "सीता घर पर है",
        "நாளை மழை",
        "Ó dára",
        "Lost and found",
        "İyi günler",
        "The sky is blue",
    ]
    notes = Notes(MemoryStore())
    await notes.remember_many([*others, text])
    assert [(match.record.content, match.score) for match in await notes.recall(question)] == [(text, 1.0)]
