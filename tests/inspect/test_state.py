"""The state of a run after each of its entries."""

from __future__ import annotations

import pytest

from graphagent.errors import RunNotFoundError
from graphagent.history import read_run
from graphagent.store import MemoryStore
from tests.inspect.pages import Page, address, looking
from tests.inspect.test_timeline import worked


async def test_a_run_is_read_as_it_was_after_each_of_its_entries():
    """Where it was, its transcript and its totals, also those of a sub-agent, which is not there before it began."""
    stored = await worked(store := MemoryStore())
    last = await read_run(store, "worked", until=len(stored.entries))
    assert (last.at, last.nodes, last.turns, last.usage) == (stored.at, stored.nodes, stored.turns, stored.usage)
    turn = next(each.number for each in stored.entries if each.effect == "turn")
    before, after = [await read_run(store, "worked", until=number) for number in (turn - 1, turn)]
    assert (before.at, before.turns, len(before.entries)) == (("ask",), 0, turn - 1)
    assert (after.turns, after.children) == (1, ())
    name = stored.children[0].head.run_id
    began = next(each.number for each in stored.entries if each.kind == "agent started")
    assert (await read_run(store, name, until=began)).turns == 0
    with pytest.raises(RunNotFoundError):
        await read_run(store, name, until=began - 1)


async def test_the_page_of_an_entry_says_first_what_it_changed():
    """The whole state is behind a fold; each entry of a run and of a sub-agent in it has such a page."""
    stored = await worked(store := MemoryStore())
    turn = next(each.number for each in stored.entries if each.effect == "turn")
    ended = next(each.number for each in stored.entries if each.node == "join")
    name = stored.children[0].head.run_id
    async with looking(store) as client:
        page = Page((await client.get(address("entry", id="worked", n=turn))).text)
        said = page.text.partition("State after entry")[2].partition("The whole state")[0]
        assert "1 new step in the transcript" in said
        assert "turns: 0 → 1" in said
        assert "comes to" not in said
        joined = Page((await client.get(address("entry", id="worked", n=ended))).text).text
        assert "left join" in joined
        assert "comes to ask" in joined
        for run in (stored, stored.children[0]):
            for each in run.entries:
                shown = await client.get(address("entry", id=run.head.run_id, n=each.number))
                assert shown.status_code == 200
                ids = Page(shown.text).ids
                assert len(ids) == len({*ids})
        assert name == "worked/helper/" + name.rpartition("/")[2]
