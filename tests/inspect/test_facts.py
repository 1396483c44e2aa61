"""What is known, from where, how far it is trusted; and facts in prompts."""

from __future__ import annotations

from graphagent import Agent
from graphagent.memory import (
    AgentMemory,
    Concept,
    FactType,
    MultipleFacts,
    Scope,
    SingleFact,
    Source,
    StoreMemoryProvider,
    Subject,
)
from graphagent.store import Put
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run
from tests.inspect.pages import HOSTILE, address, filled, looking, read

USER, DESK = Subject("user"), Scope.agent("desk")


async def remembered(*, owner=""):
    """Return a store, and the facts in it: a city that a person said, and another one that a run learnt from a mail."""
    facts = StoreMemoryProvider(store := await filled())
    for value, source in (
        ("Bergen", Source(trust="trusted", origin="import")), (f"Rome {HOSTILE}", Source("found", 1, "a mail", "untrusted")),
    ):  # fmt: skip
        await facts.save(SingleFact(Concept("city", "where they live"), value, source=source), USER, DESK, owner=owner)
    return store, facts


async def test_two_values_that_contradict_each_other_are_seen_without_looking_for_them():
    """With the trust of each, and the run that one came from."""
    store, facts = await remembered()
    async with looking(store, options={"facts": facts}) as client:
        page = await read(client, "/facts")
        assert page.text.count("told with the other value") == 2
        assert "Rome <script>" in page.text
        assert "/run?id=found" in page.links
        await read(client, "/run?id=found")
        assert "Bergen" not in (await read(client, address("facts", q="mail"))).text
        assert "Rome" not in (await read(client, address("facts", trust="trusted"))).text
        assert "No fact fits" in (await read(client, address("facts", q="nothing"))).text
        (link,) = {each for each in page.links if each.startswith("/fact?")}
        past = (await read(client, link)).text
        assert past.rindex("Rome") < past.rindex("Bergen")
        assert "where they live" in past
        assert (
            await client.get(address("fact", keyword="pet", subject="user", kind="agent", scope="desk"))
        ).status_code == 404
        assert (await client.get(address("fact", keyword="pet", subject="", kind="x"))).status_code == 404


async def test_of_values_in_several_scopes_it_is_said_which_is_hidden_and_for_whom():
    """As agents are told them: a narrower scope hides a wider one, unless nobody vouches for it; several values are united."""
    facts, shop = StoreMemoryProvider(store := await filled()), Scope.product("shop")
    for keyword, scope, value, trust in (
        ("city", DESK, "Bergen", "inferred"), ("city", shop, "Oslo", "trusted"), ("city", Scope.agent("other"), "Rome", ""),
        ("pet", DESK, "a cat", "untrusted"), ("pet", shop, "a dog", "trusted"), ("name", DESK, "Ada", ""), ("name", shop, "Ada", ""),
    ):  # fmt: skip
        await facts.save(SingleFact(Concept(keyword), value, source=Source(trust=trust)), USER, scope)
    for scope, value in ((DESK, "tea"), (shop, "coffee")):
        await facts.save(MultipleFacts(Concept("drinks", "", FactType.MULTIPLE), [value]), USER, scope)
    async with looking(store, options={"facts": facts}) as client:
        page = (await read(client, "/facts")).text
        for value, said in (
            ("Bergen", "hides the value of product:shop for agent:desk"), ("Oslo", "hidden for agent:desk by its own value"),
            ("Rome", "hides the value of product:shop for agent:other"), ("a cat", "told to agent:desk with the value of product:shop, and counts less"),
            ("a dog", "told to agent:desk with its own value, and counts more"),
            ("tea", "told to agent:desk together with the value of product:shop"),
        ):  # fmt: skip
            assert f"{value}{said}" in page
        assert "Ada" + "hid" not in page
        one = await read(client, address("fact", keyword="city", subject="user", kind="agent", scope="desk"))
        assert "for agent:desk: Oslo" in one.text
        assert address("fact", keyword="city", subject="user", kind="product", scope="shop") in one.links


async def test_facts_of_others_are_not_shown_to_who_sees_one_owner():
    store, facts = await remembered(owner="eve")
    async with looking(store, options={"facts": facts, "owner": "ada"}) as client:
        assert "Nothing is known yet" in (await read(client, "/facts")).text
        other = address("fact", keyword="city", subject="user", kind="agent", scope="desk", owner="eve")
        assert (await client.get(other)).status_code == 404
    async with looking(store) as client:
        assert "/facts" not in (await read(client, "/runs")).links
        assert (await client.get("/facts")).status_code == 404


async def test_a_prompt_has_the_facts_that_it_was_sent_with():
    """If they are here; a fact that was forgotten since is said to be, and one that is damaged is in the way of no run."""
    store, facts = await remembered()
    agent = Agent(single_run(), model=ScriptedModel(["Done."]), store=store)
    agent.install(AgentMemory, provider=facts, agent_name="desk", subjects=[USER], recall=True, learn=False)
    await agent.run("Where do I live?", run_id="told")
    shown = []
    async with looking(store, options={"facts": facts}) as client:
        for _ in range(2):
            run = await read(client, address("run", id="told"))
            shown.append((await read(client, next(each for each in run.links if each.startswith("/prompt?")))).text)
            await facts.forget(concept=Concept("city"), subject=USER, scope=DESK)
            await facts.save(SingleFact(Concept("pet"), "a cat"), USER, DESK)
    assert "Bergen" in shown[0]
    assert "Bergen" not in shown[1]
    assert "[forgotten]" in shown[1]
    async for item in store.scan(("facts",)):
        if item.value:
            await store.commit(Put(item.key, item.value + b"x"))
    async with looking(store, options={"facts": facts}) as client:
        run = await read(client, address("run", id="told"))
        damaged = await read(client, next(each for each in run.links if each.startswith("/prompt?")))
        assert "[kept elsewhere]" in damaged.text
        assert (await client.get("/facts")).status_code == 500
