"""A run as one file: everything of it inside, nothing loaded, and on request no word of it."""

from __future__ import annotations

import base64
import re

import pytest

from graphagent import END, START, Agent, Context, Strategy, node
from graphagent.errors import RunNotFoundError
from graphagent.inspect import Inspector
from graphagent.memory import Notes, StoreMemoryProvider
from graphagent.run import list_runs
from graphagent.store import MemoryStore
from tests.inspect.pages import HOSTILE, Page, filled
from tests.run.canaries import NUMBER, written

WORDS = re.compile(rf"zq\w+|{NUMBER}")
PICTURE = re.compile(r"data:image/svg\+xml;base64,([\w+/=]+)")


def whole(text):
    """Return the text of a file with its pictures as text."""
    return PICTURE.sub(lambda found: base64.b64decode(found[1]).decode(), text)


@node
async def counts(ctx: Context, task: str) -> str:
    """Do many things."""

    async def work() -> int:
        return 1

    for number in range(1010):
        await ctx.once(f"step {number}", work)
    return "done"


async def test_a_run_is_one_file_that_loads_nothing():
    """Prompts, entries and sub-agents are in it, each link leads to a part of it, no id is there twice, and hostile text is text."""
    runs = await written(store := await filled())
    pages = Inspector(store, facts=StoreMemoryProvider(store), notes=Notes(store))
    runs |= {"found": "", "../fails & more": "", "asks": "", "chat-2": "ada"}
    texts = {run_id: await pages.save(run_id, owner=owner) for run_id, owner in runs.items()}
    for run_id, text in texts.items():
        page = Page(text)
        assert all(each.startswith("data:image/svg+xml;base64,") for each in page.loaded), run_id
        assert {each.removeprefix("#") for each in page.links} <= {*page.ids}, run_id
        assert len(page.ids) == len({*page.ids}), run_id
        assert not {"script", "form", "input", "button", "link"} & {*page.tags}, run_id
        assert not {each for each in page.attributes if each.startswith("on")} | ({"style"} & page.attributes), run_id
        assert "default-src &#39;none&#39;" in text
    assert "<img src=x onerror=alert(2)>" in Page(texts["found"]).text
    talk = Page(texts["talks"]).text
    for said in (
        "zqfact",
        "zqnote",
        "zqsubanswer",
        "zqreasoning",
        "Prompt of turn 5",
        "Entry 41",
        "messages as in the turn before",
    ):
        assert said in talk
    assert HOSTILE not in texts["found"]
    assert "Why it failed" in texts["breaks"]


async def test_no_word_of_a_run_is_in_a_redacted_file():
    """Nor in its pictures. What the run did stays, and that of a sub-agent."""
    runs = await written(store := MemoryStore())
    pages, seen = Inspector(store, facts=StoreMemoryProvider(store), notes=Notes(store)), set()
    for run_id, owner in runs.items():
        seen |= {*WORDS.findall(whole(await pages.save(run_id, owner=owner)))}
        redacted = whole(await pages.save(run_id, owner=owner, redact=True))
        assert WORDS.findall(redacted) == [], run_id
        assert "redacted" in redacted
    assert len(seen) > 40
    failed = Page(await pages.save("breaks", redact=True)).text
    assert "ValueError: [36 characters]" in failed
    assert re.search(r"canaries.py:\d+ in breaks", failed)
    assert "4 lines of graphagent" in failed
    (part,) = [each.run_id for each in await list_runs(store, owner="zqowner") if each.parent]
    assert "1 turn" in Page(await pages.save("talks", owner="zqowner", redact=True)).text
    assert f" / {part}" in Page(await pages.save(part, owner="zqowner", redact=True)).text
    with pytest.raises(RunNotFoundError):
        await pages.save("talks", redact=True)


async def test_a_run_that_is_executed_is_said_to_be_in_a_redacted_file_too():
    """Although what is read is a copy that nobody executes."""
    store, said = MemoryStore(), []

    @node
    async def saves(ctx: Context, task: str) -> str:
        said.append(await Inspector(store).save("lives", redact=True))
        return "done"

    await Agent(Strategy("living", START >> saves >> END), store=store).run("zqtask", run_id="lives")
    page = Page(said[0]).text
    assert "▶ running" in page
    assert "⌁ interrupted" not in page


async def test_of_a_large_run_the_end_is_in_the_file_and_what_is_left_out_is_said():
    store = MemoryStore()
    await Agent(Strategy("many", START >> counts >> END), store=store).run("Count", run_id="counts")
    page = Page(await Inspector(store).save("counts"))
    assert "Entry 1,013" in page.text
    assert "Entry 13 " not in page.text
    assert "13 entries from its beginning are left out" in page.text
    assert {each.removeprefix("#") for each in page.links} <= {*page.ids}
