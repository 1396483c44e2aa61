"""Errors in words: the same on each page, with the line of the user's code that raised them."""

from __future__ import annotations

import html
import re
from contextlib import suppress

import anyio

from graphagent import END, START, Agent, Context, Strategy, node, parallel, tool
from graphagent.errors import BudgetError, NodeFailedError
from graphagent.history import read_run
from graphagent.inspect._errors import Problem, frames_of, problem_of
from graphagent.llm import ToolCall
from graphagent.store import MemoryStore
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run
from tests.inspect.pages import address, looking


@tool
def price(product: str) -> str:
    """Look up a price.

    Args:
        product: The product.
    """
    return {"ODE-2": "345.00"}[product]


@node
async def total(ctx: Context, order: str) -> str:
    """Sum up."""
    return str(float(order))


async def plain(client, path):
    """Return the text of a page, without elements."""
    return html.unescape(re.sub(r"<[^>]+>", "", (await client.get(path)).text))


async def test_the_error_of_a_node_is_said_in_the_same_words_everywhere():
    """In the lists, in the head, in the reason, beside its row with the traceback and the way back, on the page of its entry, in the journal and in a comparison."""
    agent = Agent(Strategy("billing", START >> total >> END), store=(store := MemoryStore()))
    await agent.run("12", run_id="good")
    with suppress(NodeFailedError):
        await agent.run("1,299", run_id="bad", thread="bills")
    said = r"ValueError: could not convert string to float: '1,299' \(test_errors.py:\d+\)"
    async with looking(store) as client:
        pages = [
            await plain(client, each)
            for each in (
                address("run", id="bad"),
                address("run", id="bad", step=2),
                address("entry", id="bad", n=2),
                address("compare", a="bad", b="good"),
            )
        ]
        row = (await client.get(address("run", id="bad", step=2))).text
        listed, sought = (
            await plain(client, "/runs") + await plain(client, "/threads"),
            await plain(client, "/runs?q=convert"),
        )
    assert [len(re.findall(said, each)) for each in (*pages, listed)] == [4, 4, 1, 2, 2]
    assert "owners and reasons alone" in sought
    assert f'<a href="{address("run", id="bad")}#step">Why the run failed</a>' in row
    assert "return str(float(order))" in html.unescape(row)


async def test_the_error_of_a_branch_is_that_of_its_node():
    """Beside the branch that was cancelled; of a group of errors, the lines are those of the error in it. Two nodes with errors of one type have the type alone."""

    @node
    async def grouped(ctx: Context, order: str) -> str:
        async with anyio.create_task_group() as group:
            group.start_soon(total.function, ctx, order)
        return order

    @node
    async def slow(ctx: Context, order: str) -> str:
        await anyio.sleep_forever()
        return order

    @node
    async def both(ctx: Context, orders: tuple[str, str]) -> str:
        return "".join(orders)

    agent = Agent(
        Strategy("branches", START >> parallel(grouped, slow, name="apart") >> both >> END),
        store=(store := MemoryStore()),
    )
    with suppress(NodeFailedError):
        await agent.run("1,299", run_id="apart")
    stored = await read_run(store, "apart")
    said = {each.where: str(problem_of(stored.entries, each)) for each in stored.entries if each.kind == "failed"}
    assert re.fullmatch(r"ValueError: could not .* \(test_errors.py:\d+\)", said["apart/0/grouped"])
    assert "Cancelled" in said["apart/1/slow"]
    assert said["apart"] == "NodeFailedError: node 'apart/0/grouped' failed with ValueError"
    shown = frames_of(stored.failure.traceback)
    assert re.search(r'class="raised"><p [^>]*>test_errors.py:\d+ in total</p>', shown.text)
    assert "lines of graphagent" in shown.text
    again = [*stored.entries[:3], *stored.entries[2:]]  # as if another branch had failed in the same way
    assert str(problem_of(again, stored.entries[2])) == "ValueError"


async def test_a_budget_that_a_failing_tool_used_up_comes_second():
    """How often the tool failed, with which error and arguments, leads to its row; lines of the library are folded where no other raised."""
    replies = [ToolCall("price", {"product": name}) for name in ("ODE-2", "Niche", "Niche")]
    agent = Agent(
        single_run(), model=ScriptedModel(replies), tools=[price], store=(store := MemoryStore()), max_turns=3
    )
    with suppress(BudgetError):
        await agent.run("What does it cost?", run_id="chat")
    async with looking(store) as client:
        text = (await client.get(address("run", id="chat"))).text
    why = html.unescape(text[text.index("Why it failed") : text.index("Timeline")])
    link = address("run", id="chat", step=17)
    assert re.search(
        rf'<a href="{re.escape(link)}#step"><code>price</code></a> failed 2 of 3 times: KeyError: \'Niche\' \(test_errors.py:\d+\)',
        why,
    )
    assert 'price({"product": "Niche"})' in why
    assert why.index("failed 2 of 3 times") < why.index("the budget of 3 turns")
    assert re.search(r'<ol class="frames"><li class="pale"><details><summary>\d+ lines of graphagent</summary>', why)
    assert 'class="raised"' not in why
    assert (
        len(re.findall(r" price: KeyError: 'Niche' \(test_errors.py:\d+\)</td>", html.unescape(text))) == 2
    )  # in the journal


def test_lines_of_this_library_are_known_in_another_installation_and_in_what_a_tool_raised():
    """The user's own folder of the same name has other files; the place is the last line of the user's own code."""
    traceback = "KeyError\n  /home/ada/graphagent/shop.py:3 in book\n  C:\\lib\\graphagent\\run\\_loop.py:250 in _execute_node\n  /env/site-packages/httpx/_client.py:9 in get"
    assert str(Problem("KeyError", "'x'", traceback)) == "KeyError: 'x' (shop.py:3)"
    shown = frames_of(traceback)
    assert shown is not None
    assert re.findall(r"<summary>([^<]*)|raised\"><p [^>]*>([^<]*)", shown.text) == [
        ("", "shop.py:3 in book"),
        ("1 line of graphagent", ""),
        ("1 line of httpx", ""),
    ]
