"""What the pages of a store say, and that nothing in a run gets out of its place."""

from __future__ import annotations

import re

import pytest

from graphagent import Agent
from graphagent.errors import StoreError
from graphagent.inspect import Inspector
from graphagent.llm import ToolCall
from graphagent.memory import AgentMemory, Concept, Scope, SingleFact, Source, StoreMemoryProvider, Subject
from graphagent.store import MemoryStore, Put
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run
from tests.inspect.pages import HOSTILE, Page, address, assistant, filled, look, looking, read

FAILED = "../fails & more"


async def test_the_list_says_what_waits_and_what_failed():
    """Newest first, of all owners; each leads to its run, and a failed one says why without a click."""
    async with looking(await filled()) as client:
        page = await read(client, "/runs")
        places = [page.text.index(each) for each in ("chat-2", "chat-1", "asks", FAILED, "found")]
        assert places == sorted(places)
        assert "May I refund it?" in page.text
        assert "LookupError: order 17 is not there (pages.py:" in page.text
        for link in page.links:
            if link.startswith("/run?"):
                await read(client, link)


async def test_filters_and_searches_are_in_the_address():
    """Each can be had by a link of the page."""
    async with looking(await filled()) as client:
        page = await read(client, "/runs")
        assert [each for each in page.links if "status=failed" in each and await fits(client, each, {FAILED})]
        assert [each for each in page.links if "thread=" in each and await fits(client, each, {"chat-1", "chat-2"})]
        assert [
            each
            for each in page.links
            if each.endswith("owner=") and await fits(client, each, {"found", "asks", FAILED})
        ]
        assert await fits(client, address("runs", q="QUESTION 2"), {"chat-2"})
        empty = await read(client, address("runs", q="nothing like this"))
        assert "No run fits your choice." in empty.text
        assert "Show all 5 runs" in empty.text


async def fits(client, path, wanted):
    text = (await read(client, path)).text
    return {each for each in ("chat-1", "chat-2", "asks", FAILED, "found") if each in text} == wanted


@pytest.mark.parametrize("column", ["", "tokens"])
async def test_older_runs_are_on_further_pages(column):
    """Each run is on one page; a column that was chosen sorts, with the newest first of runs with the same number, and is in the address."""
    store = MemoryStore()
    for number in range(53):
        await assistant(store, "Hello " * (1 + number % 3)).run("Hi", run_id=f"run-{number:02}")
    async with looking(store) as client:
        first = await read(client, "/runs")
        if column:
            first = await read(client, next(each for each in first.links if f"sort={column}" in each))
            assert "/runs" in first.links  # the same head sorts by time again
        older = next(each for each in first.links if "before=" in each)
        second = await read(client, older)
    found = [re.findall(r"run-\d\d", each.text) for each in (first, second)]
    assert list(map(len, found)) == [50, 3]
    wanted = sorted(range(53), key=lambda number: (number % 3 if column else 0, number), reverse=True)
    assert found[0] + found[1] == [f"run-{number:02}" for number in wanted]


async def test_threads_lead_to_their_runs():
    async with looking(await filled()) as client:
        page = await read(client, "/threads")
        assert "ada & co" in page.text
        (link,) = [each for each in page.links if "thread=" in each]
        assert await fits(client, link, {"chat-1", "chat-2"})


async def test_a_failed_run_shows_its_error_its_own_frames_and_its_input():
    """Libraries are folded, the line that raised is marked; and the command that goes on has the id as a shell takes it."""
    async with looking(await filled()) as client:
        answer = await client.get(address("run", id=FAILED))
    page = Page(answer.text)
    assert "LookupError: order 17 is not there" in page.text
    assert "graphagent runs resume '../fails & more'" in page.text
    assert re.search(r'<li class="pale"><details><summary>\d+ lines? of graphagent</summary>', answer.text)
    assert re.search(r'<li class="raised"><p [^>]*>pages.py:\d+ in fetch</p><pre>raise LookupError', answer.text)
    assert "Input of <code>fetch</code></h3><pre>17</pre>" in answer.text
    assert page.text.index("Why it failed") < page.text.index("Timeline")


async def test_a_waiting_run_shows_its_question_and_the_command_that_answers():
    async with looking(await filled()) as client:
        page = await read(client, address("run", id="asks"))
    assert "May I refund it?" in page.text
    assert '"amount": 20' in page.text
    assert "graphagent runs answer asks ANSWER" in page.text
    assert "approve waits for an answer" in page.text


async def test_a_prompt_is_shown_as_it_was_sent_and_what_is_new_in_it():
    """The second turn begins as the first one; its call and the results are new."""
    async with looking(await filled()) as client:
        run = await read(client, address("run", id="found"))
        prompts = dict.fromkeys(sorted(each for each in run.links if each.startswith("/prompt?")))
        first, second = [(await client.get(each)).text for each in prompts]
    assert "as in the turn before" not in first
    assert 'rel="next" class="button">Turn after</a>' in first
    assert ">1 message, no system message<" in first
    assert 'class="new"' not in first
    assert "3 of them new, no system message" in second
    old, new = second.split('<div class="new"')
    assert "<details open><summary>1 message as in the turn before" in old
    assert "saw &lt;script&gt;" in new
    assert "no such place" in new


async def test_each_entry_has_a_page_with_all_that_is_stored_of_it():
    async with looking(await filled()) as client:
        run = await read(client, address("run", id="found"))
        links = {each for each in run.links if each.startswith("/entry?")}
        pages = [await read(client, each) for each in links]
    assert len(links) == 12
    assert any("call_" in each.text and "look: saw <script>" in each.text for each in pages)


async def test_nothing_that_a_run_contains_becomes_an_element():
    """Ids, titles, arguments, results and answers are text, and pages load files of the server alone; nothing has a style or a script inside."""
    store = await filled()
    await assistant(store, HOSTILE).run(HOSTILE, run_id=f"{HOSTILE}/..", thread=HOSTILE, owner=HOSTILE)
    seen, left = set(), ["/runs"]
    async with looking(store) as client:
        while left and len(seen) < 120:
            path = left.pop()
            seen.add(path)
            answer = await client.get(path)
            assert answer.status_code == 200, path
            page = Page(answer.text)
            assert not {"style", "iframe", "object", "embed"} & {*page.tags}
            assert page.tags.count("script") == 1
            assert not {each for each in page.attributes if each.startswith("on") or each == "style"}
            assert all(
                re.match(r"/(inspect\.(css|js)|icon\.svg|shape\.svg\?|graph\.svg\?)", each) for each in page.loaded
            )
            assert all(each.startswith(("/", "#content")) and not each.startswith("//") for each in page.links)
            assert "\u202e" not in answer.text
            assert len(page.ids) == len({*page.ids})
            left += [each for each in page.links if each.startswith("/") and each not in seen]
            for image in page.loaded:
                drawn = await client.get(image)
                assert drawn.status_code == 200
                assert "<script" not in drawn.text
    assert len(seen) > 50


async def test_one_owner_is_shown_alone():
    """A run of somebody else is not found, whatever the address says."""
    async with looking(await filled(), options={"owner": "ada"}) as client:
        assert await fits(client, "/runs", {"chat-1", "chat-2"})
        assert (await client.get(address("run", id="found"))).status_code == 404
        assert (await client.get(address("shape.svg", id="found"))).status_code == 404


async def test_what_is_not_there_or_cannot_be_read_is_said():
    """With a status, in a page; numbers that are none are 0."""
    store = await filled()

    class Busy(MemoryStore):
        def scan(self, prefix, **options):
            raise StoreError("the store is busy")

    async with looking(store) as client:
        gone = await client.get(address("run", id="gone"))
        assert gone.status_code == 404
        assert "There is no run" in gone.text
        assert (await client.get(address("entry", id="found", n=99))).status_code == 404
        assert (await client.get(address("prompt", id="found", step="x"))).status_code == 404
        assert (await client.get(address("run", id="found", spans="-1", entries="9" * 99))).status_code == 200
    async with looking(Busy()) as client:
        busy = await client.get("/runs")
    assert busy.status_code == 503
    assert "the store is busy" in busy.text


async def test_a_damaged_run_is_in_the_list_and_its_page_says_what_is_damaged():
    store = await filled()
    await store.commit(Put(("runs", "", 0, "found"), b"nonsense"))
    async with looking(store) as client:
        assert "damaged" in (await read(client, "/runs")).text
        answer = await client.get(address("run", id="found"))
    assert answer.status_code == 500
    assert "checksum mismatch" in answer.text


async def test_a_store_without_runs_says_what_to_do():
    async with looking(MemoryStore()) as client:
        assert "This store has no runs yet" in (await read(client, "/runs")).text
        assert "No run belongs to a thread yet" in (await read(client, "/threads")).text
    with pytest.raises(TypeError, match="store"):
        Inspector(ScriptedModel())


async def test_each_part_of_a_prompt_says_where_it_came_from_and_how_far_it_is_trusted():
    """Facts with the trust of each; the rules, the task, the model's answer and the result of a tool apart."""
    facts = StoreMemoryProvider(store := MemoryStore())
    city = SingleFact(Concept("city"), "Oslo", source=Source(origin="a mail", trust="untrusted"))
    await facts.save(city, Subject("user"), Scope.agent("desk"))
    replies = [ToolCall("look", {"place": "here"}), "Done."]
    agent = Agent(single_run(), model=ScriptedModel(replies), tools=[look], store=store, system_prompt="Be brief.")
    agent.install(AgentMemory, provider=facts, agent_name="desk", subjects=[Subject("user")], recall=True, learn=False)
    await agent.run("Where am I?", run_id="told")
    async with looking(store) as client:
        run = await read(client, address("run", id="told"))
        prompt = (await client.get([each for each in run.links if each.startswith("/prompt?")][-1])).text
    found = re.findall(r'class="message from-(\w+) (\w+)"', prompt)
    assert found == [
        ("system", "trusted"),
        ("facts", "untrusted"),
        ("task", "trusted"),
        ("model", "inferred"),
        ("tool", "untrusted"),
    ]
    assert "user: city</code> from a mail" in prompt
