"""Runs are forked from their entries, with another value, arguments, result of a tool or text, and go on."""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import unescape

from graphagent import END, START, Agent, Context, Strategy, node
from graphagent.history import run_head
from graphagent.llm import ToolCall
from graphagent.run import list_runs
from graphagent.store import MemoryStore
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run
from tests.inspect.pages import address, filled, look, looking, read
from tests.inspect.test_acts import until
from tests.inspect.test_inbox import fields


def areas(page):
    """Return the labels and texts of the fields of several lines, by their names."""
    found = re.findall(r"<label>([^<]*)<textarea name=\"([^\"]+)\"[^>]*>\n([^<]*)</textarea>", page)
    return {name: (unescape(label), unescape(text)) for label, name, text in found}


async def forked(client, store, change, run_id="r", **at):
    """Fork a run at an entry with other texts, and return the header and the transcript of the fork when it is done."""
    page = (await client.get(address("fork", id=run_id, **at))).text
    shown = {name: text for name, (_, text) in areas(page).items()}
    assert change.keys() <= shown.keys(), shown
    sent = {**fields(page), **shown, **change}
    answer = await client.post("/fork", data={name: text.replace("\n", "\r\n") for name, text in sent.items()})
    assert answer.status_code == 303, unescape(answer.text)
    new = answer.headers["location"].partition("id=")[2]
    await until(store, new, "done")
    return new, [areas(page)[name][0] for name in change]


async def test_a_run_of_a_model_is_forked_with_what_was_changed():
    """Its task, the arguments of its calls, a result while its node is executed and afterwards, the text of a turn, and its answer."""
    store = MemoryStore()
    calls = [ToolCall("look", {"place": "Oslo"}, "c1"), ToolCall("look", {"place": "Rome"}, "c2")]
    model = ScriptedModel([calls, "It rains.", "1", "2", "3", "4"])
    agent = Agent(single_run(), model=model, tools=[look], store=store)
    await agent.run("Weather?", run_id="r")
    kinds = {each.kind: each.number for each in reversed(await agent.history("r"))}
    ended = [each.number for each in await agent.history("r") if each.node]
    async with looking(store, options={"agents": [agent]}) as client:
        entry = (await client.get(address("entry", id="r", n=5))).text
        assert "Fork from here" in entry
        wanted = (
            ({"value.0": "Snow?"}, kinds["started"], ["Input of llm_request"], "1"),
            ({"value.0.0": '{"place": "Bergen"}'}, ended[0], ["Arguments of call 1, look, as JSON"], "2"),
            ({"result.c1": "saw\nsnow"}, 5, ["Result of call 1, look"], "3"),
            ({"value.0.1": "saw sun"}, ended[1], ["Result of call 2, look"], "4"),
            ({"value.0": "It snows."}, ended[2], ["Output"], "It snows."),
        )
        made = []
        for change, at, labels, output in wanted:
            new, shown = await forked(client, store, change, n=at)
            made.append((await agent.read(new)).memory)
            assert shown == labels
            assert (await agent.read(new)).output == output
        task, turn, results, last = (
            made[0].steps[0],
            made[1].steps[1],
            made[2].steps[1].results,
            made[3].steps[1].results,
        )
        assert task.task == "Snow?"
        assert [each.arguments["place"] for each in turn.tool_calls] == ["Bergen", "Rome"]
        assert [each.content for each in turn.results] == ["saw Bergen", "saw Rome"]
        assert [each.content for each in results] == ["saw\nsnow", "saw Rome"]
        assert [each.content for each in last] == ["saw Oslo", "saw sun"]
        assert made[4].steps[2].model_output == "It snows."
        mid = (await client.get(address("fork", id="r", n=5))).text
        assert f'It ended with <a href="/fork?id=r&amp;n={ended[1]}"' in mid
        assert (await client.get(address("compare", a="r", b=new))).status_code == 200
    assert (await run_head(store, new)).origin[0] == "r"


@dataclass
class Order:
    place: str
    amount: int = 1


async def test_values_of_declared_types_are_checked_and_nothing_is_written_of_what_does_not_fit():
    """The page has what was written, and says why; a second fork of the same id, malformed forms, and forms of other pages are refused."""

    @node
    async def order(ctx: Context, place: str) -> Order:
        """Order."""
        return Order(place)

    @node
    async def send(ctx: Context, order: Order) -> str:
        """Send."""
        return f"{order.amount} to {order.place}"

    store = MemoryStore()
    agent = Agent(Strategy("orders", START >> order >> send >> END), store=store)
    await agent.run("Oslo", run_id="r", owner="ada")
    async with looking(store, options={"agents": [agent]}) as client:
        page = (await client.get(address("fork", id="r", owner="ada", n=2))).text
        label, text = areas(page)["value.0"]
        assert (label, text) == ("Input of send, as JSON", '{\n  "place": "Oslo",\n  "amount": 1\n}')
        form = {**fields(page), "value.0": text}
        for wrong, said in (
            ({"value.0": '{"place": "Oslo", "amount": "many"}'}, "amount: "), ({"value.0": "{"}, "does not fit"), ({"name": "r"}, "'r'"),
        ):  # fmt: skip
            answer = await client.post("/fork", data={**form, **wrong})
            assert answer.status_code == 422
            assert said in unescape(answer.text)
            assert next(iter(wrong.values())) in unescape(answer.text)
        for wrong, status in (
            ({"form": "x"}, 403), ({"n": "99"}, 404), ({"n": "x"}, 404), ({"id": "gone"}, 404), ({"owner": "ben"}, 404),
        ):  # fmt: skip
            assert (await client.post("/fork", data={**form, **wrong})).status_code == status
        assert [each.run_id for each in await list_runs(store, owner="ada")] == ["r"]
        right = {**form, "value.0": '{"place": "Oslo", "amount": 3}', "name": "three"}
        assert (await client.post("/fork", data=right)).headers["location"] == "/run?id=three&owner=ada"
        assert (await client.post("/fork", data=right)).status_code == 422  # the second of two tabs
        while (await run_head(store, "three", owner="ada")).status != "done":
            await read(client, "/runs")
    assert (await agent.read("three", owner="ada")).output == "3 to Oslo"


async def test_forks_are_greyed_out_with_the_reason():
    """Without the agent, of a part of a run, and where pages only read, there are none; nothing is made of a form that is sent all the same."""
    store = await filled()
    for options in ({}, {"read_only": True}, {"owner": "ada"}):
        async with looking(store, options=options) as client:
            run = {"id": "chat-1", "owner": "ada"} if "owner" in options else {"id": "asks"}
            page = (await client.get(address("entry", **run, n=1))).text
            assert ("disabled>Fork from here" in page) == ("read_only" not in options)
            assert "/fork?" not in page
            assert (await client.get(address("fork", **run, n=1))).status_code == 409
            assert (await client.post("/fork", data={"form": "", "id": "asks", "n": "1"})).status_code == 403
    assert len(await list_runs(store)) == 3
