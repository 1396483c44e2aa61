"""Recall with a reranker: what it is shown, what it orders, and what happens if it fails."""

from __future__ import annotations

from datetime import UTC, datetime

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphagent import END, START, Agent, Strategy
from graphagent.errors import ModelRequestError, NodeFailedError, RerankerError
from graphagent.events import MemoryQueryCompleted, MemoryQueryFailed
from graphagent.memory import Match, NoteMemory, Notes, NoteSettings, NotesStep, Record, Turn
from graphagent.memory.notes.recall._rerank import reranked
from graphagent.nodes import llm_request
from graphagent.rerank import CallableReranker
from graphagent.rerank.openai import OpenAIReranker
from graphagent.store import MemoryStore, SqliteStore
from graphagent.testing import ScriptedModel, openai_server

TEA = [f"Tea {'tea ' * number}number {number}." for number in range(5)]


class Recording:
    """Scores texts by their place, the last the highest, and keeps what it was shown."""

    name = "recording"

    def __init__(self):
        self.shown = []
        self.closed = 0

    async def rerank(self, query, texts):
        self.shown.append((query, list(texts)))
        return [float(place) for place in range(len(texts))]

    async def aclose(self):
        self.closed += 1


def said(matches):
    return [match.record.content for match in matches]


async def filled(reranker, embedder=None, **settings):
    notes = Notes(MemoryStore(), reranker=reranker, embedder=embedder, settings=NoteSettings(**settings))
    await notes.remember_many(TEA)
    return notes


async def test_a_reranker_decides_the_order():
    """The scores of the matches stay what they are; its own scores are parts, and it is the first reason."""
    plain = await (await filled(None)).recall("tea")
    notes = await filled(CallableReranker(lambda query, texts: range(len(texts))))
    found = await notes.recall("tea")
    assert said(found) == said(plain)[::-1]
    assert {match.record.content: match.score for match in found} == {
        match.record.content: match.score for match in plain
    }
    assert [match.parts["reranker"] for match in found] == [4, 3, 2, 1, 0]
    for match, before in zip(found, plain[::-1], strict=True):
        assert match.reasons == ("reranker", *before.reasons)
        assert {name: part for name, part in match.parts.items() if name != "reranker"} == before.parts


@given(
    st.lists(st.sampled_from([-3.5, -0.0, 0.0, 1, 2.0]) | st.floats(allow_nan=False, allow_infinity=False), max_size=12)
)
def test_the_order_is_that_of_the_scores_and_stable(scores):
    """The highest score is first; notes with equal scores keep their order."""
    found = [Match(Record(str(place), "text"), 0.5, ("lexical",), {"lexical": 1.0}) for place in range(len(scores))]
    ordered = anyio.run(reranked, CallableReranker(lambda query, texts: scores), "q", found)
    assert [int(match.record.id) for match in ordered] == sorted(range(len(scores)), key=lambda place: -scores[place])
    assert [match.parts["reranker"] for match in ordered] == sorted(scores, reverse=True)


async def test_it_reads_notes_as_people_quote_them():
    """With the speaker and the date, as far as they are known; of a long note its beginning."""
    reranker = Recording()
    async with Notes(MemoryStore(), reranker=reranker) as notes:
        at = datetime(2023, 5, 7, 22, tzinfo=UTC)
        await notes.remember_conversation([Turn("A bowl of tea.", speaker="Melanie", at=at)], session="s")
        await notes.remember("Tea at noon.", at=at)
        await notes.remember("Tea " + "and more " * 1000)
        await notes.recall("Which tea?")
    [(query, texts)] = reranker.shown
    assert query == "Which tea?"
    assert {text for text in texts if len(text) < 100} == {
        "Melanie, 7 May 2023: A bowl of tea.",
        "7 May 2023: Tea at noon.",
    }
    [long] = [text for text in texts if len(text) >= 100]
    assert long.startswith("Tea and more ")
    assert len(long) == 2000


async def test_only_the_best_notes_are_shown_to_it():
    """`rerank_limit` of them; the others follow in their order. With 0 it is not asked."""
    plain = said(await (await filled(None)).recall("tea"))
    for count, limit in ((2, 10), (2, 4), (4, 2), (1, 10), (50, 3)):
        reranker = Recording()
        found = said(await (await filled(reranker, rerank_limit=count)).recall("tea", limit=limit))
        assert found == [*plain[:count][::-1], *plain[count:]][:limit]
        assert len(reranker.shown[0][1]) == min(count, 5)
    reranker = Recording()
    assert said(await (await filled(reranker, rerank_limit=0)).recall("tea")) == plain
    assert reranker.shown == []


async def test_nothing_to_order_is_not_asked_about():
    """Neither no match, nor a blank question, nor a limit of 0."""
    reranker = Recording()
    notes = await filled(reranker)
    assert await notes.recall("coffee") == []
    assert await notes.recall(" ") == []
    assert await notes.recall("tea", limit=0) == []
    assert reranker.shown == []


async def test_notes_below_the_lowest_score_are_not_shown_to_it():
    """`min_score` is about the score of a match, whatever the reranker says; what has less leaves room for others."""
    reranker = Recording()
    async with Notes(MemoryStore(), reranker=reranker) as notes:
        await notes.remember_many(["Green tea at noon.", "Green tea.", "Tea.", "Green."])
        assert set(said(await notes.recall("green tea", min_score=0.9, limit=2))) == {
            "Green tea at noon.",
            "Green tea.",
        }
    assert {*reranker.shown[0][1]} == {"Green tea at noon.", "Green tea."}


async def test_it_sees_only_what_the_caller_may_see():
    """Filters, views, private notes and owners apply before it is asked."""
    reranker, store = Recording(), MemoryStore()
    notes = Notes(store, reranker=reranker)
    await notes.remember("Tea of Ann, private.", source="ann", private=True)
    await notes.remember("Tea of all.", scope="/open", categories=["x"])
    await notes.remember("Tea elsewhere.", scope="/shut")
    await Notes(store, owner="bob").remember("Tea of Bob.")
    await notes.scope("/open").recall("tea")
    await notes.recall("tea", categories=["x"])
    await notes.of("eve").recall("tea")
    assert [sorted(texts) for _, texts in reranker.shown] == [
        ["Tea of all."], ["Tea of all."], ["Tea elsewhere.", "Tea of all."],
    ]  # fmt: skip


@pytest.mark.parametrize("depth", ["shallow", "deep", "auto"])
async def test_it_is_asked_once_at_every_depth(depth):
    """A deeper search finds more with several phrases; all of it is ordered by the question itself."""
    analysis = {"phrases": ["coffee"], "since": None, "until": "", "scopes": [], "complexity": 0.1}
    gaps = {"gaps": [{"missing": "the milk", "phrase": "oat milk"}]}
    replies = {"shallow": [], "deep": [analysis], "auto": [gaps]}[depth]
    reranker = Recording()
    async with Notes(MemoryStore(), model=ScriptedModel(replies), reranker=reranker) as notes:
        await notes.remember_many(["Coffee at noon.", *TEA], infer="never")
        found = await notes.recall("tea for nine strange purple elephants", depth=depth)
    assert [query for query, _ in reranker.shown] == ["tea for nine strange purple elephants"]
    assert said(found) == reranker.shown[0][1][::-1]
    assert ("Coffee at noon." in said(found)) is (depth == "deep")
    assert {match.gaps for match in found} == ({("the milk",)} if depth == "auto" else {()})


async def test_recency_and_importance_choose_what_is_shown_to_it():
    """With crewAI's weights their mean is the score and decides which notes it is shown; the order is the reranker's."""
    reranker = Recording()
    async with Notes(
        MemoryStore(), reranker=reranker, settings=NoteSettings(importance_weight=1.0, rerank_limit=2)
    ) as notes:
        for number, importance in enumerate((0.1, 0.9, 0.5)):
            await notes.remember(f"Tea {number}.", importance=importance)
        found = await notes.recall("tea")
    assert reranker.shown == [("tea", ["Tea 1.", "Tea 2."])]
    assert said(found) == ["Tea 2.", "Tea 1.", "Tea 0."]
    assert found[1].score > found[0].score > found[2].score
    assert found[0].reasons[0] == "reranker"
    assert "importance" in found[0].reasons


async def test_a_failure_fails_the_recall():
    """The error is the reranker's, and an event says so; a reranker around it that returns equal scores keeps the order."""

    def failing(query, texts):
        raise OSError("the disk is full")

    async def patient(query, texts):
        try:
            return await inner.rerank(query, texts)
        except OSError:
            return [0.0] * len(texts)

    plain, inner, events = await filled(None), CallableReranker(failing, name="own-1"), []
    notes = await filled(inner)
    notes.on(MemoryQueryFailed, events.append)
    with pytest.raises(RerankerError, match="reranker 'own-1' failed: OSError"):
        await notes.recall("tea")
    assert [event.error for event in events] == ["RerankerError"]
    assert said(await (await filled(CallableReranker(patient))).recall("tea")) == said(await plain.recall("tea"))


async def test_over_http_the_best_note_comes_first():
    """The question and the notes are one request; the event has the matches in the order in which they are returned."""
    events = []
    with openai_server([]) as server:
        reranker = OpenAIReranker("m", base_url=server.base_url)
        async with Notes(MemoryStore(), reranker=reranker) as notes:
            notes.on(MemoryQueryCompleted, events.append)
            texts = ["When, oh when, does it start? When?", "It starts in June, when the office opens.", "The office?"]
            await notes.remember_many(texts)
            found = await notes.recall("when does the office start")
    assert said(found)[0] == "It starts in June, when the office opens."
    assert list(events[0].results) == found
    [request] = server.requests
    assert (request["query"], sorted(request["documents"])) == ("when does the office start", sorted(texts))


@pytest.mark.every_loop
async def test_it_is_closed_with_the_notes():
    """Its connections are closed, and so is the file, even if the embedder cannot be closed."""

    class Embedder:
        name = "broken-1"

        async def embed(self, texts):
            return [[1.0, 2.0] for _ in texts]

        async def aclose(self):
            raise OSError("no connection")

    reranker = Recording()
    async with await filled(reranker):
        pass
    assert reranker.closed == 1
    with pytest.raises(OSError, match="no connection"):
        await (await filled(reranker, embedder=Embedder())).aclose()
    assert reranker.closed == 2


async def test_a_run_shows_the_model_what_it_put_first(tmp_path):
    """Notes shown unasked are in its order. A run that is resumed does not ask again."""
    reranker = Recording()
    notes = await filled(reranker)
    model = ScriptedModel([ModelRequestError("no line"), "Tea it is."])
    agent = Agent(
        Strategy("a", START >> llm_request(tools=False) >> END), model=model, store=SqliteStore(tmp_path / "runs.db")
    )
    agent.install(NoteMemory, notes=notes, limit=2, learn=False, tools=False)
    with pytest.raises(NodeFailedError):
        await agent.run("tea", run_id="r")
    result = await agent.resume("r")
    [step] = [step for step in result.memory.steps if isinstance(step, NotesStep)]
    [(_, texts)] = reranker.shown
    assert [note.content for note in step.notes] == texts[::-1][:2]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (Recording, r"is the class Recording; make one: Recording\(…\)"),
        (lambda query, texts: [], r"not a function; give CallableReranker\(function\), of graphagent.rerank"),
        ("m", "not a str; give OpenAIReranker"),
        (type("Own", (), {"rerank": lambda query, texts: []})(), "is an Own without a name; give it one"),
    ],
)
def test_what_is_no_reranker_is_refused_at_once(given, said):
    """A class, a function, a text, and an object without a name, each with what to do instead; and a limit below 0."""
    with pytest.raises(TypeError, match=f"reranker= .*{said}"):
        Notes(MemoryStore(), reranker=given)
    with pytest.raises(ValueError, match="rerank_limit"):
        Notes(MemoryStore(), settings=NoteSettings(rerank_limit=-1))
