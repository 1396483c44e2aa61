"""What waits for people: forms from the schema of the answer, and answers from forms."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from html import unescape
from typing import Literal

from graphagent import END, START, Agent, Strategy, tool
from graphagent.history import list_questions, run_head
from graphagent.llm import ToolCall
from graphagent.nodes import ask_human
from graphagent.store import MemoryStore
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run
from tests.inspect.pages import HOSTILE, Page, filled, looking, read


@dataclass
class Seat:
    row: int
    side: Literal["window", "aisle"]
    quiet: bool
    note: str = ""
    day: date | None = None


def seats(store):
    return Agent(Strategy("seats", START >> ask_human(f"Which seat? {HOSTILE}", Seat) >> END), store=store)


def payer(store, paid):
    @tool(approve=True)
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    return Agent(
        single_run(), model=ScriptedModel([ToolCall("pay", {"amount": 20}), "Done."]), tools=[pay], store=store
    )


def fields(page):
    """Return the hidden fields of the only form of a page."""
    return {
        name: unescape(value) for name, value in re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page)
    }


async def test_a_form_answers_what_its_schema_asks_for():
    """What does not fit is said in the form and changes nothing; then the answer is recorded, and the run goes on with it."""
    agent = seats(store := MemoryStore())
    await agent.run("Oslo", run_id="trip", owner="ada")
    async with looking(store, options={"agents": [agent], "executes": False}) as client:
        form = (await client.get("/inbox")).text
        page = Page(form)
        assert page.tags.count("fieldset") >= 3
        assert {"input", "textarea", "button"} <= {*page.tags}
        assert '<input type="date" name="value.day">' in form
        assert not {each for each in page.attributes if each.startswith("on")}
        given = {**fields(form), "do": "answer", "value.row": "12", "value.side": '"aisle"', "value.quiet": "true"}
        for wrong, said in (
            ({"value.row": "no"}, "row is not valid JSON"), ({"value.row": "1.5"}, "row"), ({"value.side": '"roof"'}, "side"),
            ({"value.quiet": ""}, "quiet is not given"), ({"do": "dance"}, "does not say what to do"),
        ):  # fmt: skip
            answer = await client.post("/answer", data={**given, **wrong})
            assert answer.status_code == 422
            assert said in unescape(answer.text)
        assert (await run_head(store, "trip", owner="ada")).status == "waiting"
        for change in ({"form": ""}, {"form": "x" * 32}):
            assert (await client.post("/answer", data={**given, **change})).status_code == 403
        assert (await client.post("/answer", data=given, headers={"Origin": "https://evil.example"})).status_code == 403
        done = await client.post("/answer", data={**given, "value.day": "2027-01-31"})
        assert (done.status_code, done.headers["location"]) == (303, "/run?id=trip&owner=ada")
        again = await client.post("/answer", data=given)
        assert again.status_code == 409
        assert "not open any more" in again.text
    assert (await agent.resume("trip", owner="ada")).output == Seat(12, "aisle", True, day=date(2027, 1, 31))


async def test_a_call_is_approved_with_other_arguments_or_refused():
    """The fields of an approval are its arguments, and the reason of a refusal."""
    for change, wanted in (
        ({"do": "approve"}, [20]), ({"do": "approve", "arguments": '{"amount": 7}'}, [7]), ({"do": "deny", "reason": "Too much"}, []),
    ):  # fmt: skip
        agent = payer(store := MemoryStore(), paid := [])
        await agent.run("Pay Ada.", run_id="pays")
        async with looking(store, options={"agents": [agent], "executes": False}) as client:
            form = (await client.get("/inbox")).text
            assert "&quot;amount&quot;: 20" in form
            assert (
                await client.post("/answer", data={**fields(form), "do": "approve", "arguments": "[]"})
            ).status_code == 422
            assert (await client.post("/answer", data={**fields(form), **change})).status_code == 303
        await agent.resume("pays")
        assert paid == wanted


async def test_without_its_agent_a_question_is_answered_by_its_schema():
    """What does not fit is refused as with the agent; the answer is recorded, a worker is to go on, and whoever has the agent can."""
    agent = seats(store := await filled())
    await agent.run("Oslo", run_id="trip")
    async with looking(store) as client:
        page = (await client.get("/inbox")).text.partition("Which seat?")[2]
        assert "once graphagent worker takes it" in page
        given = {**fields(page), "do": "answer", "value.row": "12", "value.side": '"aisle"', "value.quiet": "true"}
        for wrong in ({"value.row": "1.5"}, {"value.side": '"roof"'}):
            assert (await client.post("/answer", data={**given, **wrong})).status_code == 422
        assert (await client.post("/answer", data=given)).status_code == 303
        assert (await run_head(store, "trip")).status == "queued"
        assert (await client.post("/answer", data=given)).status_code == 409
        assert "/inbox" in (await read(client, "/runs")).links
        asks = fields((await client.get("/inbox")).text)
    async with looking(store, options={"owner": "ada"}) as client:
        assert "No open questions" in (await read(client, "/inbox")).text
        assert (await client.post("/answer", data={**asks, "do": "deny"})).status_code == 403
    assert [each.run_id for each in await list_questions(store)] == ["asks"]
    assert (await agent.resume("trip")).output == Seat(12, "aisle", True)
