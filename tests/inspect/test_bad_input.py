"""Whatever an address or a form says, there is an answer, and nothing is changed by what makes no sense. New views and changes are tried as well."""

from __future__ import annotations

import re
from contextlib import aclosing
from pathlib import Path
from urllib.parse import urlencode

import anyio
import pytest

from graphagent import Agent, inspect, tool
from graphagent.history import prune_runs, run_head
from graphagent.inspect import _follow, _inspector, _watch
from graphagent.inspect._follow import events
from graphagent.llm import ToolCall
from graphagent.log._header import WAITING, mark_key, thread_key
from graphagent.memory import Concept, FactType, MultipleFacts, Notes, Scope, SingleFact, StoreMemoryProvider, Subject
from graphagent.store import Delete, MemoryStore, Put
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run
from tests.inspect.pages import address, assistant, filled, looking
from tests.inspect.test_inbox import fields, seats
from tests.thorough import some

# The client leaves generators of httpx2 unfinished where an answer comes before the whole request is read, which trio alone remarks on.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator '(httpx2|httpcore2):ResourceWarning")
HOSTILE = (
    "", " ", "..", "a/b", "//", "a\nb", "\0", "x" * 5000, "\ud800", "💥", "-1", "0", "999999999999999", "9" * 30, "٣", "[]", "null", '"', "%",
    "\u202e", "ada", "[" * 9000, '{"a":' * 3000, '[["\\ud800", "\\ud800"]]', f'[["{"x" * 2000}", "found"]]', '"\\ud800"', "1e999",
)  # fmt: skip
RAW = (
    b"", b"&" * 5000, b"\xff\xfe", b"form=%ff%00", b"x" * 1_000_001, b'--b\r\nContent-Disposition: form-data; name="form"\r\n\r\nx\r\n--b--',
    b'{"form": "x"}',
)  # fmt: skip
VIEWS = [path for each in _inspector._PAGES for path, _ in each.VIEWS]
CHANGES = [path for each in _inspector._ACTING for path, _ in each.CHANGES]
CODE = "\n".join(each.read_text() for each in Path(inspect.__file__).parent.glob("_*.py"))
NAMES = sorted({"id", "run", "a", "value", "value.row", "run.x", *re.findall(r'\.get\("(\w+)"', CODE)} - {"form", "root_path"})  # fmt: skip
"""What addresses and forms may have, as the code asks for it."""


async def shown(store):
    """Return what a store and its pages have: runs of each kind, two agents, facts and notes; and an address that names what is there."""
    agent = seats(await filled(store))
    await agent.run("Oslo", run_id="trip")
    facts, notes = StoreMemoryProvider(store), Notes(store)
    await facts.save(SingleFact(Concept("city"), "Bergen"), Subject("user"), Scope.agent("desk"))
    await facts.save(
        MultipleFacts(Concept("pets", fact_type=FactType.MULTIPLE), ["cat", "dog"]),
        Subject("user"),
        Scope.agent("desk"),
    )
    note = await notes.remember("Ada likes tea.", scope="/desk")
    there = {"a": "found", "b": "chat-1", "n": "2", "step": "1", "keyword": "city", "subject": "user", "kind": "agent", "scope": "desk"}  # fmt: skip
    named = {**{view: {**there, "id": "trip"} for view in VIEWS}, "note": {"id": note.id}, "notes": {"note": note.id}}
    return {"agents": [agent], "facts": facts, "notes": notes, "executes": False}, named


def encoded(given):
    """Return what an address or a form has, as a program can send it that is no browser."""
    return urlencode({name: value.encode("utf-8", "surrogatepass") for name, value in given.items()})


async def test_every_address_has_an_answer(store):
    """With all that a view may be asked for, each missing or hostile: the page, or one that says what is wrong."""
    options, named = await shown(store)
    async with looking(store, options=options) as client:
        for view in VIEWS:
            asked = [
                {name: value for name, value in named[view].items() if name != left} for left in ("", *named[view])
            ]
            asked += [{**named[view], name: text} for name, text in some([(name, text) for name in NAMES for text in HOSTILE], 12, 200, view)]  # fmt: skip
            for each in [{}, {**named[view], "owner": "x" * 5000}, *asked]:
                answer = await client.get(f"/{view}?{encoded(each)}")
                assert answer.status_code in (200, 404, 409, 422), (view, each, answer.text)
                assert answer.status_code == 200 or answer.text.startswith("<!doctype html>"), (view, each)
            head = await client.head(f"/{view}?{encoded(each)}")
            assert (head.status_code, head.text) == (answer.status_code, ""), (view, each)
        for nowhere in ("/nowhere", "/end", "/run/found", "/%3Cscript%3E"):
            answer = await client.get(nowhere)
            assert answer.status_code == 404
            assert "<h1>Not found</h1>" in answer.text
            assert "<script>" not in answer.text


async def test_a_form_that_makes_no_sense_changes_nothing(store):
    """Whatever is in it, of a thing that is not there or not named, and in whatever form: an answer says so, and the store is as it was."""
    options, _ = await shown(store)
    async with looking(store, options=options) as client:
        form = fields((await client.get("/inbox")).text)["form"]
        before = await everything(store)
        gone = {"form": form, "id": "gone", "owner": "", "all": "shown", "shown": '[["", "gone"]]'}
        for change in CHANGES:
            sent = [{}, {**gone, "form": "x"}, {**gone, "form": "\ud800"}, *({**gone, "do": do} for do in ("ask", "resume", "end", "deny"))]  # fmt: skip
            sent += [{**gone, name: text} for name, text in some([(name, text) for name in NAMES for text in HOSTILE], 30, 300, change)]  # fmt: skip
            sent.append({**gone, "do": "resume", "shown": '[["\\ud800", "\\ud800"]]'})
            for content in (*map(encoded, sent), *RAW, f"{encoded(gone)}&form=x&id=found&do=end&do=x"):
                answer = await client.post(f"/{change}", content=content)
                assert answer.status_code in (200, 303, 403, 404, 409, 413, 422), (change, content[:200], answer.text)
                if answer.status_code == 303:
                    answer = await client.get(answer.headers["location"])
                assert answer.text.startswith("<!doctype html>")
    assert await everything(store) == before


async def test_a_form_that_was_not_made_from_what_is_there_changes_nothing():
    """A fact or a note in another version than the form knows, and a choice that its page does not offer; a choice is not made for anybody."""
    options, named = await shown(store := MemoryStore())
    fact = {"subject": "user", "kind": "agent", "scope": "desk", "keyword": "pets", "version": "1"}
    note = {"id": named["note"]["id"], "version": "1"}
    async with looking(store, options=options) as client:
        form = {"form": fields((await client.get("/inbox")).text)["form"]}
        before = await everything(store)
        sent = [("forget", fact), ("set-fact", fact), ("edit-note", note)]
        for text in HOSTILE:
            sent += [("forget", {**fact, "value": text})] if text not in ("", "0") else []
            sent += [
                ("forget", {**fact, "value": "0", "also-0": text}),
                ("forget", {**fact, "version": text, "value": "0"}),
            ]
            sent += [
                ("set-fact", {**fact, "version": text, "text": "mouse"}),
                ("edit-note", {**note, "version": text, "text": "x"}),
            ]
        for change, given in sent:
            answer = await client.post(f"/{change}", content=encoded({**form, **given}))
            assert answer.status_code in (403, 409, 422), (change, given, answer.text)
        assert await everything(store) == before
        for change, given in (("set-fact", {**fact, "text": "mouse"}), ("edit-note", {**note, "text": "x"})):
            assert (await client.post(f"/{change}", content=encoded({**form, **given}))).status_code == 303


async def test_an_answer_that_makes_no_sense_is_not_one():
    """The question stays open, whatever its fields have."""
    options, _ = await shown(store := MemoryStore())
    async with looking(store, options=options) as client:
        form = fields((await client.get("/inbox")).text.rpartition("Which seat?")[2])
        before = await everything(store)
        for do in ("answer", "approve", "deny it", "\ud800"):
            for name in ("value", "value.row", "value.note", "arguments"):
                for text in HOSTILE:
                    given = {
                        **form,
                        "do": do,
                        "value.side": '"roof"',
                        "value.row": "1",
                        "value.quiet": "true",
                        name: text,
                    }
                    answer = await client.post("/answer", content=encoded(given))
                    assert answer.status_code == 422, (given, answer.text)
    assert await everything(store) == before


async def test_asking_whether_a_run_can_be_followed_does_not_follow_it():
    """A server makes the whole of a stream for HEAD, of which it sends nothing."""

    @tool
    async def wait() -> str:
        """Wait."""
        with anyio.fail_after(60):  # else it would never end
            async with looking(store) as client:
                answers.append(await client.head(address("follow", id="goes-on")))
        return "waited"

    store, answers = MemoryStore(), []
    agent = Agent(single_run(), model=ScriptedModel([ToolCall("wait"), "Done."]), tools=[wait], store=store)
    await agent.run("Wait.", run_id="goes-on")
    assert [each.status_code for each in answers] == [200]


async def test_what_is_damaged_is_said_and_hides_nothing_else():
    """Whatever item has a changed byte, each view and each change has an answer; a run that waits and cannot be read hides no other question."""
    options, named = await shown(store := MemoryStore())
    items = [item async for item in store.scan(())]
    damaged = [item for item in items if item.value]
    rows = [item for item in damaged if item.key[:4] == ("runs", "", 1, "asks")]
    async with looking(store, options=options) as client:
        form = fields((await client.get("/inbox")).text.rpartition("Which seat?")[2])
        for item in [*some(damaged, 8), rows[0]]:
            changed = bytes([*item.value[:-1], item.value[-1] ^ 1])
            await store.commit(Put(item.key, changed))
            for view in VIEWS:
                for given in (named[view], {**named[view], "id": "asks", "at": str(len(changed))}):
                    answer = await client.get(f"/{view}?{encoded(given)}")
                    assert answer.status_code in (200, 404, 409, 422, 500), (item.key, view, answer.text)
            for change in CHANGES:
                answer = await client.post(f"/{change}", data={**form, "do": "no", "id": "found"})
                assert answer.status_code in (303, 403, 404, 409, 422, 500), (item.key, change, answer.text)
            if item is not rows[0]:
                await store.commit(Put(item.key, item.value))
        inbox = (await client.get("/inbox")).text
        assert "cannot be read" in inbox
        assert "Which seat?" in inbox
        sent = {**form, "do": "answer", "value.row": "1", "value.side": '"aisle"', "value.quiet": "true"}
        assert (await client.post("/answer", data=sent)).status_code == 303


async def test_an_item_that_has_the_content_of_another_one_is_damaged():
    """Its checksum fits, and it is not what was written there; a page says so."""
    store = await filled()
    facts = StoreMemoryProvider(store)
    await facts.save(SingleFact(Concept("city"), "Bergen"), Subject("user"), Scope.agent("desk"))
    other = [item async for item in store.scan(("facts",))][-1]
    async with looking(store) as client:
        for view, key in (("threads", thread_key("ada", "ada & co")), ("inbox", mark_key(WAITING, "", "asks"))):
            assert (await client.get(f"/{view}")).status_code == 200
            await store.commit(Put(key, other.value))
            answer = await client.get(f"/{view}")
            assert answer.status_code == 500
            assert "it has the content of another item" in answer.text


class Removing(MemoryStore):
    """A store in which a run is removed before one of the next readings."""

    def __init__(self):
        super().__init__()
        self.readings = 0

    async def read(self):
        self.readings -= 1
        if not self.readings:
            await prune_runs(self, run_ids=["found"])

    async def get(self, key):
        await self.read()
        return await super().get(key)

    async def get_many(self, keys):
        await self.read()
        return await super().get_many(keys)

    async def scan(self, prefix, **options):
        await self.read()
        async for item in super().scan(prefix, **options):
            yield item


async def test_a_run_that_is_removed_while_it_is_read_is_not_damaged():
    """At whatever moment, each view shows it or says that it is not there."""
    options, named = await shown(store := Removing())
    items = [item async for item in store.scan(())]
    gone = {**named["run"], "id": "found"}
    async with looking(store, options={**options, "agents": [assistant(store)]}) as client:
        for view in VIEWS:
            for place in range(1, 60):
                store.readings = place
                answer = await client.get(f"/{view}?{encoded(gone | {'at': str(place)})}")
                assert answer.status_code in (200, 404, 409), (view, place, answer.text)
                if store.readings > 0:
                    break
                await store.commit(*[Put(item.key, item.value) for item in items])


async def test_a_list_that_is_older_than_the_server_hears_of_changes(monkeypatch):
    """Its number is one that this start of the server has not reached yet."""
    monkeypatch.setattr(_watch, "_PAUSE", 0)
    store = await filled()
    async with looking(store) as client:
        await client.get("/runs")
        assert (await client.get("/changes?since=500")).json()["changed"] == 0
        await assistant(store, "Hello.").run("Greet Ada.")
        assert (await client.get("/changes?since=500")).json()["changed"] == 1


async def test_a_run_that_is_removed_or_damaged_while_it_is_followed(monkeypatch):
    """Nobody executes the one, the other may be read again; and a browser that knows too many entries is told those that there are."""
    monkeypatch.setattr(_follow, "_PAUSE", 0)
    told = []

    @tool
    async def wait() -> str:
        """Wait."""
        for seen, change in ((0, lambda item: Delete(item.key)), (10**15, lambda item: Put(item.key, b"x"))):
            there = MemoryStore()
            await there.commit(*[Put(item.key, item.value) async for item in store.scan(())])
            head = await run_head(there, "goes-on")
            async with aclosing(events(there, head, seen)) as heard:
                first = await anext(heard)
                await there.commit(*[change(item) async for item in there.scan(("runs",))])
                told.append([first.partition("data")[0], *[each.partition("data")[0] async for each in heard]])
        return "waited"

    store = MemoryStore()
    agent = Agent(single_run(), model=ScriptedModel([ToolCall("wait"), "Done."]), tools=[wait], store=store)
    await agent.run("Wait.", run_id="goes-on")
    (first, over), (again, lost) = told
    assert first == again
    assert over.endswith("event: over\n")
    assert lost.endswith("event: lost\n")


async def everything(store):
    return [(item.key, item.version, item.value) async for item in store.scan(())]
