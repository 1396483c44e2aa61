"""What once was found wrongly or not at all: questions before their answers, spellings, scripts, lengths, roles, and older files."""

from __future__ import annotations

import itertools
import random
from datetime import UTC, datetime

import apsw
import pytest

from graphagent.memory import Note, Notes, NoteSettings, Ranking, Turn
from graphagent.memory._note_values import Filter
from graphagent.memory.notes.index._fts import SCHEMA, SqliteTables
from graphagent.memory.notes.index._tables import CHUNKS
from graphagent.memory.notes.recall._search import candidates
from graphagent.store import EncryptedStore, SqliteStore
from tests.memory.notes.conftest import KEY, Words, WordVectors

YOGA = [
    ("Mia", "Did you see the game?"),
    ("Ben", "No, I was away."),
    ("Mia", "How long have you been doing yoga?"),
    ("Ben", "For about three years now"),
    ("Mia", "Wow, that is great."),
    ("Ben", "Shall we cook something?"),
    ("Mia", "Pasta, please."),
]
EMBEDDERS = pytest.mark.parametrize("embedder", [None, Words(), WordVectors()], ids=["words", "vectors", "tokens"])


async def texts(notes, question, **options):
    """Return the texts that a question finds, the best first."""
    return [match.record.content for match in await notes.recall(question, **options)]


async def remember_talk(notes, turns, **options):
    """Save a conversation between people."""
    await notes.remember_conversation([Turn(text, speaker) for speaker, text in turns], **options)


# Questions and answers


@pytest.mark.parametrize("asked", ["How long has Ben been doing yoga?", "For how long has Ben done yoga?"])
async def test_a_question_does_not_outrank_its_answer(notes, asked):
    """Although the answer has no word in common with what is asked."""
    await remember_talk(notes, YOGA, session="one")
    await remember_talk(notes, [("Ben", "It rains."), ("Mia", "It was sunny.")], session="two")
    found = await texts(notes, asked)
    assert found.index("For about three years now") < found.index("How long have you been doing yoga?")


async def test_an_answer_needs_no_question_of_the_same_conversation(notes):
    """A turn that has the words and asks nothing is before a question that has them too."""
    await remember_talk(notes, [("Mia", "Is the boat red?"), ("Ben", "Later."), ("Mia", "Fine.")], session="one")
    await remember_talk(notes, [("Ben", "Hello."), ("Ben", "The boat is red.")], session="two")
    assert (await texts(notes, "Is the boat red?"))[0] == "The boat is red."


# Spellings, without an embedder

TICKETS = [
    "Error E4021 stops the pump.",
    "Error E4022 opens the valve.",
    "Ticket OPS-3317 is about invoices.",
    "Ticket OPS-3371 is about mail.",
]


@pytest.mark.parametrize("spelling", ["OPS3317", "OPS-3317", "ops 3317", "ops3317", "Ops_3317"])
@pytest.mark.parametrize("asked", ["OPS3317", "What is OPS-3317 about?", "ops 3317"])
async def test_identifiers_are_found_however_they_are_divided(notes, spelling, asked):
    """And before others that are like them."""
    await notes.remember_many([*TICKETS[:2], TICKETS[3], f"It is ticket {spelling} of today."])
    found = await notes.recall(asked)
    assert found[0].record.content == f"It is ticket {spelling} of today."
    assert found[0].score > max((match.score for match in found[1:]), default=0)


@pytest.mark.parametrize("kept", ["GitHub", "github", "Github"])
@pytest.mark.parametrize("asked", ["GitHub", "github", "GITHUB"])
async def test_names_with_capitals_inside_are_found_in_any_case(notes, kept, asked):
    """As all words are, and completely."""
    await notes.remember_many([f"The code is on {kept}.", "The hub is loud."])
    [found] = await notes.recall(asked)
    assert (found.record.content, found.score) == (f"The code is on {kept}.", pytest.approx(1))


@pytest.mark.parametrize("asked", ["getUserName", "getusername", "user name", "Where is the user's name?"])
async def test_identifiers_are_found_by_their_parts(notes, asked):
    """Where only capital letters divide them, too."""
    await notes.remember_many(["Call getUserName() first.", "Nothing of that."])
    assert await texts(notes, asked) == ["Call getUserName() first."]


async def test_an_identifier_that_no_note_has_is_found_as_it_is_divided_elsewhere(notes):
    """Its parts follow one another there."""
    await notes.remember_many(["get_user_name fails.", "The user has a name.", "Get it, user."])
    assert await texts(notes, "getUserName") == ["get_user_name fails."]


@pytest.mark.parametrize(
    "asked", ["project's", "project’s", "What is the project's deadline?", "the projects' deadline"]
)
async def test_an_apostrophe_divides_words(notes, asked):
    """As it does in notes."""
    await notes.remember_many(["The project deadline is in spring.", "Nothing else."])
    [found] = await notes.recall(asked)
    assert (found.record.content, found.score) == ("The project deadline is in spring.", pytest.approx(1))


@pytest.mark.parametrize("text", ["👍", "…", "🎉 🎉"])
async def test_notes_without_a_word_are_no_obstacle(notes, text):
    """Alone, and among others."""
    await notes.remember(text)
    assert await notes.recall("anything") == []
    await notes.remember("Anything goes.")
    assert await texts(notes, "anything") == ["Anything goes."]


@pytest.mark.parametrize("asked", ["E4021", "E-4021", "E 4021", "e4021"])
async def test_numbers_are_never_corrected(notes, asked):
    """Another code may be found by its letters, but not as if it were the same; nor is a code found that differs in a digit."""
    await notes.remember_many(TICKETS)
    found = await notes.recall(asked)
    assert found[0].record.content == TICKETS[0]
    assert all(match.score < found[0].score / 2 for match in found[1:])
    assert await texts(notes, asked.replace("4021", "4023").removeprefix("E").removeprefix("e")) == []


@pytest.mark.parametrize(
    ("asked", "word"),
    [("calender", "calendar"), ("seperate", "separate"), ("kubernets", "kubernetes"), ("colection", "collection")],
)
async def test_a_misspelt_question_finds_what_was_meant(notes, asked, word):
    """With a score that is not above that of the word itself."""
    await notes.remember_many([f"The {word} is shown to all.", "The garden is large.", "Nothing else."])
    [meant] = await notes.recall(word)
    [found] = await notes.recall(f"Where is the {asked}?")
    assert found.record == meant.record
    assert 0 < found.score <= meant.score
    assert found.reasons == meant.reasons == ("lexical",)


@pytest.mark.parametrize(("asked", "word"), [("databse", "database"), ("relase", "release"), ("purchsae", "purchase")])
async def test_a_word_whose_stem_has_another_stem_is_corrected(notes, asked, word):
    """Porter's stemmer makes `databas` of the one, and `databa` of that."""
    await notes.remember_many([f"It is about a {word}.", "It is about boats."])
    assert await texts(notes, asked) == [f"It is about a {word}."]


@pytest.mark.parametrize(
    "others",
    [["Our kitchan notes."], ["kitchane", "kitchans", "kitchang"], ["kitchan kitchane"] * 3],
    ids=["same", "closer", "both"],
)
async def test_what_others_wrote_does_not_change_the_correction(store, others):
    """Neither the notes of another owner nor those that are private to another source."""
    async with Notes(store, owner="ann") as notes, Notes(store, owner="bob") as stranger:
        await notes.remember("The kitchen is blue.")
        before = await texts(notes, "kitchan")
        await stranger.remember_many(others)
        await notes.remember_many([Note(text, source="dan", private=True) for text in others])
        assert await texts(notes, "kitchan") == before == ["The kitchen is blue."]


async def test_many_spellings_of_a_word_make_it_common_and_no_more(notes):
    """The notes that have all of them are found, with a score above that of nothing."""
    await notes.remember_many([*(f"kitchen kitchin kitchun {number}" for number in range(10)), "alpha beta"])
    found = await notes.recall("kitchan alpha", limit=20)
    assert len(found) == 11
    assert found[0].record.content == "alpha beta"
    assert all(0 < match.score < 1 for match in found)


async def test_a_known_word_is_not_corrected(notes):
    """A question whose words are all known finds only what has them."""
    await notes.remember_many(["The calendar is green.", "A calender presses paper."])
    assert await texts(notes, "calender") == ["A calender presses paper."]
    assert await texts(notes, "calendar") == ["The calendar is green."]


async def test_one_misspelt_word_does_not_outweigh_the_right_ones(notes):
    """A note that has the other words and the one that was meant is before one that is only spelt alike."""
    await notes.remember_many(["The calandra lark sings.", "The shared calendar of the choir is green."])
    assert (await texts(notes, "green calander of the choir"))[0] == "The shared calendar of the choir is green."


# Scripts without spaces between words, without an embedder


@pytest.mark.parametrize(
    ("kept", "asked"),
    [
        ("生产数据库的端口是5433。", "数据库端口是多少？"),
        ("生产数据库的端口是5433。", "5433"),
        ("データベースのポートは5433です。", "データベースのポートは？"),
        ("会議は東京タワーで行います。", "東京タワーで何がありますか"),
        ("데이터베이스의 포트는 5433입니다.", "데이터베이스 포트가 뭐예요?"),
        ("我们在用GitHub托管代码", "代码在哪里托管"),
        ("ﾃﾞｰﾀは社内にある", "ﾃﾞｰﾀはどこ"),
    ],
)
async def test_chinese_japanese_and_korean_questions_find_their_notes(notes, kept, asked):
    """Whatever is written before and after what they have in common."""
    await notes.remember_many(
        ["他每天早上喝茶。", "昨日は雨でした。", "오늘은 비가 옵니다.", kept, "The port is blue."]
    )
    assert (await texts(notes, asked))[0] == kept


async def test_an_unrelated_question_in_such_a_script_finds_nothing(notes):
    """What has no two characters in common does not fit."""
    await notes.remember_many(["他每天早上喝茶。", "昨日は雨でした。"])
    assert await texts(notes, "数据库端口") == []


# Lengths

FILLER = [
    "meeting",
    "report",
    "project",
    "office",
    "people",
    "morning",
    "agenda",
    "paper",
    "table",
    "window",
    "coffee",
    "matter",
    "subject",
    "minutes",
    "chair",
]


def short_notes():
    """Return 200 short notes."""
    rng = random.Random(5)
    return [f"The {rng.choice(FILLER)} of the {rng.choice(FILLER)} is number {number}." for number in range(200)]


def long_note(size, detail):
    """Return a note of about so many words with a sentence in it."""
    rng = random.Random(size)
    sentences = [" ".join(rng.choices(FILLER, k=9)).capitalize() + "." for _ in range(size // 9)]
    sentences.insert(len(sentences) * 2 // 3, detail)
    return " ".join(sentences)


@pytest.mark.parametrize("size", [130, 150, 200])
@pytest.mark.parametrize("embedder", [None, Words(dimensions=512)], ids=["words", "vectors"])
async def test_a_longer_note_is_found_by_a_detail(store, size, embedder):
    """Among many short ones, some of which have one of the words."""
    async with Notes(store, embedder=embedder) as notes:
        await notes.remember_many(
            [*short_notes(), "The key of the office is red.", "A pot of coffee.", "It is spare paper."]
        )
        kept = await notes.remember(long_note(size, "The spare key lies under the blue flower pot."))
        found = await notes.recall("Under which flower pot is the spare key?", limit=3)
    assert found[0].record.id == kept.id


@pytest.mark.parametrize("size", [105, 150, 200])
async def test_a_longer_note_does_not_drown_a_short_one_that_answers_better(store, size):
    """One that has all of the words is before one that has half of them, however long it is."""
    async with Notes(store) as notes:
        await notes.remember_many([*short_notes(), long_note(size, "The spare tyre lies under the blue flower bed.")])
        kept = await notes.remember("The spare key is under the flower pot.")
        found = await notes.recall("Under which flower pot is the spare key?", limit=3)
    assert found[0].record.id == kept.id


async def test_a_long_note_without_spaces_is_found_by_a_detail(notes):
    """Its sentences are pieces, of which one has most of the question, so it is before a short note with less of it."""
    around = [f"我们在第{number}天谈到了花园和天气。" for number in range(60)]
    long = "".join([*around[:40], "备用钥匙放在蓝色花盆下面。", *around[40:]])
    await notes.remember_many([f"第{number}个椅子是红色的。" for number in range(100)])
    await notes.remember_many([long, "备用花盆在商店里。", "钥匙在桌子下面。", "蓝色的天空很美。", "今天下雨。"])
    assert (await texts(notes, "备用钥匙在蓝色花盆下面吗", limit=1)) == [long]


async def test_a_long_note_leaves_room_for_short_ones(notes):
    """Though each of its pieces has more of the question."""
    book = " ".join(f"The falcon is in the harbour {number}. {'word ' * 60}." for number in range(300))
    await notes.remember_many([book, *(f"harbour note {number}" for number in range(5))])
    assert len(await notes.recall("falcon harbour")) == 6


async def test_as_many_are_found_as_are_asked_for(notes):
    """Also those that have less of the question than many others."""
    await notes.remember_many([f"harbour {'falcon' if number % 3 else 'x'} {number}" for number in range(400)])
    assert len(await notes.recall("falcon harbour", limit=400)) == 400


# Names of speakers


@pytest.mark.parametrize("name", ["user1", "R2D2", "田中太郎", "Ana Maria", "O'Brien", "Zoë"])
async def test_the_speaker_who_is_named_is_recognised(notes, name):
    """Also by a name that is divided in searching, and by a longer one than that of another speaker."""
    turns = [(name, "I like tea."), ("Ana", "I like tea."), ("Maria", "I like tea.")]
    await remember_talk(notes, turns, session="one")
    found = await notes.recall(f"What does {name} like?")
    assert [match.record.speaker for match in found if "speaker" in match.reasons] == [name]


# Roles


def chat():
    """Return messages of a user and of an assistant, which repeats and extends what the user said."""
    answers = " ".join(f"Tip {number}: plan the budget for the trip to Lisbon with care." for number in range(30))
    return [
        {"role": "user", "content": "My budget for the trip to Lisbon is 900 euros."},
        {"role": "assistant", "content": f"The budget for the trip to Lisbon is fine. {answers}"},
        {"role": "user", "content": "Thanks."},
        {"role": "assistant", "content": "You are welcome."},
    ]


@EMBEDDERS
async def test_messages_of_an_assistant_do_not_outrank_what_the_user_said(store, embedder):
    """However often they repeat its words."""
    async with Notes(store, embedder=embedder) as notes:
        await notes.remember_conversation(chat(), session="one")
        found = await notes.recall("What is my budget for the trip to Lisbon?")
    assert (found[0].record.role, found[0].record.place) == ("user", 1)


async def test_a_role_may_count_for_nothing_or_otherwise(store):
    """A factor of 0 leaves out what was fitted, and `roles` adds to that."""
    async with Notes(store, settings=NoteSettings(ranking=Ranking(role=0))) as notes:
        await notes.remember_conversation(chat(), session="one")
        assert not any("role" in match.reasons for match in await notes.recall("budget Lisbon"))
    async with Notes(store, settings=NoteSettings(ranking=Ranking(roles={"assistant": 50.0}))) as notes:
        found = await notes.recall("budget Lisbon", limit=2)
        assert {match.record.role for match in found} == {"assistant"}
        assert found[0].reasons[0] == "role"


# Reasons

QUESTIONS = ["How long has Ben been doing yoga?", "When was pasta cooked in May?", "Where is Mia?", "yoga pasta game"]


@pytest.mark.parametrize("reason", ["lexical", "semantic", "neighbours", "answer", "session", "speaker", "date"])
@EMBEDDERS
async def test_a_reason_that_is_left_out_is_in_no_match(store, reason, embedder):
    """Whatever is asked, and whatever the search is made of."""
    async with Notes(store, embedder=embedder, settings=NoteSettings(ranking=Ranking(**{reason: 0}))) as notes:
        at = datetime(2024, 5, 1, tzinfo=UTC)
        await notes.remember_conversation([Turn(text, speaker, at=at) for speaker, text in YOGA], session="one")
        for question in QUESTIONS:
            for match in await notes.recall(question):
                assert reason not in match.reasons or match.parts[reason] == 0
                assert reason not in match.parts or match.parts[reason] == 0


@EMBEDDERS
async def test_parts_add_up_to_the_order(store, embedder):
    """Their sum falls from match to match, and the reasons are in the order of their parts."""
    async with Notes(store, embedder=embedder) as notes:
        at = datetime(2024, 5, 1, tzinfo=UTC)
        await notes.remember_conversation([Turn(text, speaker, at=at) for speaker, text in YOGA], session="one")
        await notes.remember_conversation(chat(), session="two")
        await notes.remember_many(["Ben does yoga.", "Pasta for three.", "A game of chess."])
        for question in QUESTIONS:
            found = await notes.recall(question, limit=20)
            sums = [sum(part for name, part in match.parts.items() if name != "relevance") for match in found]
            assert found
            assert all(one >= other - 1e-9 for one, other in itertools.pairwise(sums))
            for match in found:
                added = {name: part for name, part in match.parts.items() if part > 0 and name != "relevance"}
                assert list(match.reasons) == sorted(added, key=lambda name: -added[name])


# Notes, dialogues and chats in one store


@EMBEDDERS
@pytest.mark.parametrize(
    ("asked", "first"),
    [
        ("the login name of the user", "Login name of the user: mk-harbour."),
        ("Which colour has the harbour boat?", "The harbour boat is blue."),
        ("How long has Ben been doing yoga?", "For about three years now"),
        ("What is my budget for the greenhouse?", "My budget for the greenhouse is 900 euros."),
        ("What did Mia see at the lock?", "I saw a heron at the lock."),
    ],
)
async def test_notes_turns_and_messages_are_ranked_together(store, asked, first, embedder):
    """A note that answers is not lost among turns that are near some word, nor is a turn or a message among notes."""
    async with Notes(store, embedder=embedder) as notes:
        await notes.remember_many([f"Page {number} of the handbook is about ropes." for number in range(40)])
        await notes.remember_many(["Login name of the user: mk-harbour.", "The harbour boat is blue."])
        await remember_talk(
            notes, [*YOGA, ("Mia", "I saw a heron at the lock."), ("Ben", "A boat with a name?")], session="one"
        )
        chat = [
            ("user", "My budget for the greenhouse is 900 euros."),
            ("assistant", "A budget for a greenhouse names the glass, the frame and the user of the greenhouse. " * 20),
        ]
        await notes.remember_conversation([Turn(text, role=role) for role, text in chat], session="two")
        assert (await texts(notes, asked))[0] == first


# Speakers


@EMBEDDERS
async def test_who_said_something_is_asked_alone(store, embedder):
    """Without anything else in the question, what they said comes first, and not what is near by chance."""
    async with Notes(store, embedder=embedder) as notes:
        talk = [
            ("Mia", "Did you say so?"),
            ("Dee", "Boats."),
            ("Mia", "What a pity."),
            ("Dee", "Trees."),
            ("Mia", "I did."),
        ]
        await remember_talk(notes, talk, session="one")
        for asked in ("What did Dee say?", "Dee"):
            assert set((await texts(notes, asked))[:2]) == {"Boats.", "Trees."}


@pytest.mark.parametrize("embedder", [None, Words(dimensions=512), WordVectors(dimensions=512)])
async def test_a_speaker_in_a_chat_with_roles_counts(store, embedder):
    """As one in a conversation between people does."""
    async with Notes(store, embedder=embedder) as notes:
        for name, colour in COLOURS:
            said = Turn(f"My favourite colour is {colour}.", name, role="user")
            chat = [Turn("Hello, I am here.", name, role="user"), Turn("How nice!", role="assistant"), said]
            await notes.remember_conversation(chat, session=name)
        for name, colour in COLOURS:
            assert (await texts(notes, f"What is {name}'s favourite colour?"))[0] == f"My favourite colour is {colour}."


COLOURS = [("Ana", "red"), ("Ben", "blue"), ("Cy", "green")]


@pytest.mark.parametrize("asked", ["Who is Will?", "What does Will have?", "Will"])
async def test_a_name_that_is_a_common_word_is_found(notes, asked):
    """In notes without speakers too."""
    await notes.remember_many(["Will has the flu.", "Who knows what that is.", "It is raining."])
    assert (await texts(notes, asked))[0] == "Will has the flu."


async def test_a_speaker_whose_name_is_a_common_word_is_found(notes):
    """Will is one, where it is written so."""
    await remember_talk(notes, [("Ada", "I have a cold."), ("Will", "I have the flu."), ("Ada", "Oh.")], session="one")
    assert (await texts(notes, "What does Will have?"))[0] == "I have the flu."


async def test_speakers_of_other_scopes_change_nothing(store):
    """Nor do those of private notes of others: a question is read by the notes that may answer it."""
    found = []
    async with Notes(store, embedder=Words()) as notes:
        view = notes.scope("/a")
        await view.remember_many(["Rose petals make tea.", "Rose is a colour.", "Tea is green."])
        for step in range(3):
            if step == 1:
                await notes.scope("/b").remember_conversation([Turn("Hello.", "Rose")], session="one")
            if step == 2:
                await notes.scope("/a").of("bob").remember("Hello.", private=True)
            # How rare a word is, is counted over the whole store; so only the vector of the question can be the same.
            fits = Filter(owner="", scopes=("/a",))
            there = await candidates(notes._service.repository, "Which tea does Rose make?", fits)
            found.append((there.query, sorted(there.cosines.values())))
    assert found[0] == found[1] == found[2]


# Limits


@EMBEDDERS
async def test_the_order_does_not_depend_on_the_limit(store, embedder):
    """However many notes are asked for, the first ones are the same."""
    words = ["ada", "ben", "boat", "tree", "tea", "key", "cup", "pen", "hat", "map", "sun", "sea"]
    rng = random.Random(5)
    async with Notes(store, embedder=embedder) as notes:
        await notes.remember_many([f"{number} {' '.join(rng.choices(words, k=6))}" for number in range(300)])
        first = await texts(notes, "Where is the boat of ada?", limit=10)
        for limit in (11, 100, 150, 299):
            assert (await texts(notes, "Where is the boat of ada?", limit=limit))[:10] == first


# Scripts


@pytest.mark.parametrize(
    ("kept", "asked"),
    [
        ("Zoë spielt Geige.", "Zoe\u0308"),
        ("Zoe\u0308 spielt Geige.", "Zoë"),
        ("Ｐｏｒｔ ８０８０", "port 8080"),
        ("שָׁלוֹם עולם", "שלום"),
        ("كِتَابٌ جديد", "كتاب"),
        ("ｶﾀｶﾅ の本", "カタカナ"),
        ("カ\u3099ラス", "ガラス"),
    ],
)
async def test_what_unicode_writes_in_several_ways_is_found_in_each(notes, kept, asked):
    """Composed or not, full-width or not, with vowel points or without."""
    await notes.remember_many([kept, "Nothing of that."])
    for one, other in ((kept, asked), (asked, kept)):
        assert kept in await texts(notes, other if one == kept else one)


# Files of older versions

SCHEMA_3 = [
    "CREATE VIRTUAL TABLE notes_words USING fts5(text, tags, content='', contentless_delete=1, tokenize='porter unicode61 remove_diacritics 2')",
    SCHEMA[1].replace(" traits INTEGER NOT NULL,", ""),
    *SCHEMA[2:],
]


def downgrade(path):
    """Replace the tables of a file by those of format 3, filled as that version filled them."""
    connection = apsw.Connection(str(path))
    fields = "row, owner, id, scope, session, place, speaker, role, said, created, importance, source, private, chunks, sameness"
    with connection:
        rows = connection.execute(f"SELECT {fields} FROM notes_rows").fetchall()
        SqliteTables(connection).drop()
        for statement in SCHEMA_3:
            connection.execute(statement)
        connection.executemany(f"INSERT INTO notes_rows VALUES ({', '.join('?' * 15)})", rows)
        for row, *_ in rows:  # what the words are does not matter, but that there are some
            connection.execute(
                "INSERT INTO notes_words(rowid, text, tags) VALUES (?, 'old', 'visible0')", (row * CHUNKS,)
            )
        connection.execute("INSERT INTO notes_state VALUES ('format', 3), ('made', randomblob(16))")
    assert not SqliteTables(connection).are_made()
    connection.close()


@pytest.mark.every_kind
@pytest.mark.parametrize("sealed", [False, True])
async def test_a_file_of_an_older_format_is_rebuilt_on_opening(tmp_path, sealed):
    """It finds the same notes as before, in the same order, and identifiers however they are divided."""
    path = tmp_path / "notes.db"

    def opened():
        store = SqliteStore(path)
        return Notes(EncryptedStore(store, KEY) if sealed else store)

    questions = [*QUESTIONS, "OPS3317", "数据库"]
    async with opened() as notes:
        await remember_talk(notes, YOGA, session="one")
        await notes.remember_many(
            [*TICKETS, "生产数据库的端口", long_note(200, "The spare key lies there.")], scope="/x"
        )
        before = [[match.record.id for match in await notes.recall(question)] for question in questions]
        count = await notes.verify()
    if not sealed:  # a sealed store has its tables in memory
        downgrade(path)
    async with opened() as notes:
        assert [[match.record.id for match in await notes.recall(question)] for question in questions] == before
        assert await notes.verify() == count
        kept = await notes.remember("The boat is red.")
        assert (await notes.recall("boat"))[0].record.id == kept.id
    assert all(before)
