"""The pages in a real Chromium: what a person sees and presses, and that nothing of a run is executed or loaded."""

from __future__ import annotations

import shutil
from contextlib import asynccontextmanager

import anyio
import pytest

from graphagent import Agent, tool
from graphagent.inspect import Inspector
from graphagent.llm import ToolCall
from graphagent.memory import Notes
from graphagent.store import MemoryStore
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run
from tests.inspect.pages import address, assistant, filled
from tests.inspect.test_acts import Shop, until
from tests.inspect.test_facts import remembered
from tests.inspect.test_inbox import seats
from tests.inspect.test_notes import noted

playwright = pytest.importorskip("playwright.async_api", reason="Playwright drives the browser")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
_LONG = 240_000
"""Milliseconds, for a machine that is busy."""
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here"),
    pytest.mark.parametrize("anyio_backend", ["asyncio"]),  # of Playwright and of uvicorn
]


@asynccontextmanager
async def browsing(store, scheme="light", width=1200, **options):
    """Yield a page of a browser at the runs of a store; what goes wrong in it, and what it asks other servers for, fails the test."""
    wrong, urls = [], []
    async with anyio.create_task_group() as group:
        started = anyio.Event()

        async def serve():
            await Inspector(store, **options).serve(port=0, on_started=lambda url: (urls.append(url), started.set()))

        group.start_soon(serve)
        await started.wait()
        async with playwright.async_playwright() as driver:
            browser = await driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            context = await browser.new_context(
                base_url=urls[0], color_scheme=scheme, viewport={"width": width, "height": 800}
            )
            context.set_default_timeout(_LONG)
            page = await context.new_page()
            page.on("console", lambda each: wrong.append(each.text) if each.type in ("error", "warning") else None)
            page.on("pageerror", lambda each: wrong.append(str(each)))
            page.on("dialog", lambda each: wrong.append(each.message))
            page.on("request", lambda each: None if each.url.startswith(urls[0]) else wrong.append(each.url))
            await page.goto("/runs")
            yield page
            await browser.close()
        group.cancel_scope.cancel()
    assert wrong == []


@pytest.mark.parametrize(("scheme", "width"), [("light", 1200), ("dark", 390)])
async def test_hostile_text_stays_text_in_each_view(scheme, width, anyio_backend):
    """No script runs, nothing is loaded from elsewhere, nothing is refused by the policy, and no page scrolls sideways, also on a phone."""
    store, facts = await remembered()
    changed = await noted(notes := Notes(store))
    city = {"keyword": "city", "subject": "user", "kind": "agent", "scope": "desk"}
    async with browsing(store, scheme, width, agents=[assistant(store)], facts=facts, notes=notes) as page:
        views = [
            "/facts",
            address("fact", **city),
            address("reach", **city),
            address("notes", q="expire refund", note=changed.id),
            address("note", id=changed.id),
            "/runs",
            "/threads",
            "/inbox",
            address("prompt", id="found", step=1),
            address("entry", id="found", n=5),
            address("compare", a="found", b="asks"),
            address("fork", id="found", n=5),
        ]
        for view in [*views, *(address("run", id=each) for each in ("found", "asks", "../fails & more"))]:
            await page.goto(view)
            assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), view
            broken = "[...document.images].filter(each => each.complete && !each.naturalWidth && each.loading !== 'lazy').map(each => each.src)"
            assert await page.evaluate(broken) == []
            fields = "[...document.querySelectorAll('input:not([type=hidden]), textarea')].every(each => each.labels.length || each.ariaLabel)"
            assert await page.evaluate(fields), view


@pytest.mark.parametrize(("scheme", "width"), [("light", 1200), ("dark", 390)])
async def test_a_run_in_a_file_is_shown_without_a_server(scheme, width, anyio_backend, tmp_path):
    """With its styles and its picture, which its policy allows and nothing else; a link opens what it leads to."""
    file = tmp_path / "run.html"
    file.write_text(await Inspector(await filled()).save("found"), "utf-8")
    wrong = []
    async with playwright.async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = await browser.new_page(color_scheme=scheme, viewport={"width": width, "height": 800})
        page.on("console", lambda each: wrong.append(each.text))
        page.on("dialog", lambda each: wrong.append(each.message))
        page.on("request", lambda each: None if each.url.startswith(("file:", "data:")) else wrong.append(each.url))
        await page.goto(file.as_uri())
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert await page.evaluate("[...document.images].every(each => each.complete && each.naturalWidth > 100)")
        assert await page.evaluate("getComputedStyle(document.querySelector('.lane')).display") == "block"
        await page.get_by_role("link", name="prompt as it was sent").first.click()
        assert await page.evaluate("document.querySelector(location.hash).checkVisibility()")
        await browser.close()
    assert wrong == []


async def test_everything_is_reached_with_keys_alone(anyio_backend):
    """Rows, the search, the views, and the next problem; the error of a failed run is two keys away, and what opens over a page is closed again."""
    async with browsing(await filled()) as page:
        focused = "document.activeElement.innerText"
        await page.keyboard.press("j")
        assert await page.evaluate(focused) == "Question 2"
        await page.keyboard.press("j")
        await page.keyboard.press("k")
        await page.keyboard.press("n")
        assert await page.evaluate(focused) == "17"
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/run?*")
        await page.keyboard.press("n")
        assert "LookupError: order 17 is not there" in await page.evaluate(focused)
        await page.get_by_text("End…").press("Enter")
        await page.locator("[name=reason]:focus").press("Escape")
        assert await page.evaluate(focused) == "End…"
        await page.keyboard.press("g")
        await page.keyboard.press("t")
        await page.wait_for_url("**/threads")
        await page.keyboard.press("g")
        await page.keyboard.press("r")
        await page.wait_for_url("**/runs")
        await page.keyboard.press("/")
        await page.keyboard.type("refund")
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/runs?q=refund")
        assert await page.locator("tbody tr .title").all_inner_texts() == ["refund it"]


async def test_a_run_that_grows_while_it_is_looked_at(anyio_backend):
    """New rows come into the timeline; what is open stays open, what has the focus keeps it, and what a row leads to is shown beside it.

    The page offers what else is new, and says when nobody executes the run any more.
    """
    going = anyio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        await going.wait()
        return "waited"

    store = await filled()
    agent = Agent(single_run(), model=ScriptedModel([ToolCall("wait"), "Done."]), tools=[wait], store=store)
    async with anyio.create_task_group() as group, browsing(store) as page:
        group.start_soon(agent.start("Wait.", run_id="grows").finish)
        while await page.locator("[data-follow]").count() == 0:
            await page.goto(address("run", id="grows"))
        await page.locator("details:has(.journal) summary").click()
        rows = page.locator(".timeline tbody tr")
        await rows.nth(1).wait_for()
        await rows.first.locator("a").focus()
        await page.get_by_text("1 turns").wait_for()
        going.set()
        await page.get_by_text("Show what became of it").wait_for()
        assert await page.locator(".journal").is_visible()
        assert await rows.locator("th").all_inner_texts() == [
            "turn 1 llm_request",
            "wait execute_tools",
            "turn 2 llm_request",
        ]
        assert await page.evaluate(
            "document.activeElement.closest('tr') === document.querySelector('.timeline tbody tr')"
        )
        await page.keyboard.press("j")
        await page.keyboard.press("Enter")
        await page.locator("#step").get_by_text("waited", exact=True).wait_for()
        assert "step=" in page.url
        await page.keyboard.press("?")
        assert await page.get_by_role("dialog").get_by_text("all keys").is_visible()
        await page.keyboard.press("Escape")
        await page.get_by_text("Show what became of it").click()
        await page.get_by_text("Done.").first.wait_for()


async def test_runs_are_chosen_and_resumed_with_keys_alone(anyio_backend):
    """The report of what became of them leads to each, which has gone on; the box of all ticks each of them. A key is named where it does something, and a button says of how many."""
    shop = Shop(store := MemoryStore())
    await shop.fail("17", "18")
    shop.there = shop.sent = True
    async with browsing(store, agents=[shop.agent]) as page:
        choose = page.locator("footer").get_by_text("choose the run")
        assert not await choose.is_visible()
        await page.keyboard.press("j")
        assert await choose.is_visible()
        await page.keyboard.press("x")
        boxes = page.locator("tbody input[type=checkbox]")
        assert [await each.is_checked() for each in await boxes.all()] == [True, False]
        assert await page.get_by_role("button", name="Resume 1").is_enabled()
        await page.get_by_label("Select all 2 that can be resumed or ended").check()
        assert [await each.is_checked() for each in await boxes.all()] == [True, True]
        await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")
        await page.get_by_text("2 of 2 runs done").first.wait_for()
        await page.wait_for_load_state()  # keys are heard from then on
        await until(store, "18", "done")
        await page.keyboard.press("j")
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/run?id=1*")
    assert shop.fetched == 2


async def test_two_tabs_answer_one_question(anyio_backend):
    """The form asks for what its schema says; the second tab is told that it is too late."""
    agent = seats(store := await filled())
    await agent.run("Oslo", run_id="trip")
    async with browsing(store, agents=[agent]) as page:
        tabs = [page, await page.context.new_page()]
        for tab in tabs:
            await tab.bring_to_front()  # Chromium lets forms of tabs that nobody sees wait for seconds
            await tab.goto(page.url.replace("/runs", "/inbox"))
            form = tab.locator("section", has_text="Which seat?")
            await form.get_by_label("row").fill("12")
            await form.get_by_label("aisle").check()
            await form.get_by_label("yes").check()
        await tabs[0].bring_to_front()
        await tabs[0].locator("section", has_text="Which seat?").get_by_role("button", name="Answer").click()
        await tabs[0].wait_for_url("**/run?id=trip")
        await tabs[1].locator("section", has_text="Which seat?").get_by_role("button", name="Answer").click()
        await tabs[1].get_by_text("It was answered, or").or_(tabs[1].get_by_text("not open any more")).first.wait_for()
    assert (await agent.resume("trip")).output.row == 12
