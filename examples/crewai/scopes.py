"""Scopes, views and slices: the blocks 06 to 14 of crewAI's page on memory, as docs/crewai.md numbers them.

python examples/crewai/scopes.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from graphagent.memory import Notes
from graphagent.testing import Reply, ScriptedModel

if TYPE_CHECKING:
    from graphagent.llm import ModelRequest

# 06 The tree


async def tree_of_a_company(folder: Path) -> None:
    async with Notes(folder / "06.db") as notes:
        for scope in ("/company/engineering", "/company/product", "/project/alpha", "/project/beta"):
            await notes.remember(f"A note about {scope}.", scope=scope)
        await notes.remember_many(["A finding.", "A draft."], scope="/agent/researcher")
        assert await notes.list_scopes() == ["/agent", "/company", "/project"]
        print("06", *await notes.list_scopes())


# 07 A scope that is inferred


def librarian(request: ModelRequest) -> Reply:
    """Stand in for a model that says where a note belongs."""
    said = {"scope": "/project/decisions", "categories": ["database"], "importance": 0.8, "entities": ["PostgreSQL"]}
    return {"notes": [{"number": 1, **said}]}


async def inferred(folder: Path) -> None:
    async with Notes(folder / "07.db", model=ScriptedModel([librarian])) as notes:
        kept = await notes.remember("We chose PostgreSQL for the user database.")
        assert kept.scope == "/"  # it is safe already, and nobody waited for a model
        assert await notes.settle() == 0
        [record] = await notes.list_records()
        assert (record.scope, record.categories, record.importance) == ("/project/decisions", ("database",), 0.8)
        assert record.metadata["entities"] == ["PostgreSQL"]

        told = await notes.remember("Sprint velocity is 42 points", scope="/team/metrics", infer="never")
        assert told.scope == "/team/metrics"
        print("07", record.scope, told.scope)


# 08 Printing the tree


async def printed(folder: Path) -> None:
    async with Notes(folder / "08.db") as notes:
        await notes.remember("Services talk over gRPC.", scope="/project/alpha", categories=["architecture"])
        await notes.remember("PostgreSQL keeps the users.", scope="/project/alpha", categories=["database"])
        await notes.remember("The client speaks GraphQL.", scope="/project/beta")
        tree = str(await notes.tree())
        assert (
            tree
            == "/ (3 records)\n  /project (3 records)\n    /project/alpha (2 records)\n    /project/beta (1 record)"
        )
        info = await notes.info("/project/alpha")
        assert (info.record_count, info.categories, info.child_scopes) == (2, ["architecture", "database"], [])
        assert info.oldest_record is not None
        assert info.newest_record is not None
        print("08", tree.splitlines()[1].strip())


# 09 One branch


async def branch(folder: Path) -> None:
    async with Notes(folder / "09.db") as notes:
        await notes.remember("Relevant papers are on the shelf.", scope="/agent/researcher-2")
        researcher = notes.scope("/agent/researcher")
        found = await researcher.remember("Found three relevant papers on LLM memory.")
        assert found.scope == "/agent/researcher"
        assert [match.record.id for match in await researcher.recall("relevant papers")] == [found.id]

        project = researcher.subscope("project-alpha")
        kept = await project.remember("Paper 2 has the numbers.")
        assert kept.scope == "/agent/researcher/project-alpha"
        # What a view says of its scopes can be given back to it.
        assert await researcher.list_scopes() == ["/agent/researcher/project-alpha"]
        assert await researcher.list_records(scope="/agent/researcher/project-alpha") == [kept]
        print("09", found.scope, kept.scope)


# 10 Several projects


async def several_projects(folder: Path) -> None:
    async with Notes(folder / "10.db") as notes:
        await notes.remember("Using microservices architecture", scope="/project/alpha/architecture")
        await notes.remember("GraphQL API for client apps", scope="/project/beta/api")
        everywhere = await notes.recall("API or architecture decisions")
        assert {match.record.scope for match in everywhere} == {"/project/alpha/architecture", "/project/beta/api"}
        beta = await notes.recall("API design", scope="/project/beta")
        assert [match.record.scope for match in beta] == ["/project/beta/api"]
        print("10", len(everywhere), len(beta))


# 11 Shared knowledge, and what one agent has for itself


async def shared_and_own(folder: Path) -> None:
    async with Notes(folder / "11.db") as notes:
        await notes.scope("/agent/researcher").remember("An unpublished finding about latency.")
        await notes.remember("Our house style has short sentences about latency.", scope="/company/knowledge")
        writer = notes.slice(["/agent/writer", "/company/knowledge"], read_only=True)
        found = await writer.recall("latency")
        assert [match.record.scope for match in found] == ["/company/knowledge"]
        print("11", found[0].record.content)


# 12 Customers


async def customers(folder: Path) -> None:
    async with Notes(folder / "12.db") as notes:
        await notes.remember("Prefers email communication", scope="/customer/acme-corp")
        await notes.remember("On enterprise plan, 50 seats", scope="/customer/acme-corp")
        await notes.remember("On starter plan, prefers phone", scope="/customer/acme")
        await notes.remember("Rate limit is 1000 req/min on enterprise plan", scope="/product/docs")
        acme = notes.slice(["/customer/acme-corp", "/product/docs"])
        found = await acme.recall("Which plan are they on?")
        assert {match.record.scope for match in found} == {"/customer/acme-corp", "/product/docs"}

        # Where one customer must never see another, each is an owner: no scope and no model leads across.
        tenant = Notes(folder / "12.db", owner="acme-corp")
        await tenant.remember("Has a discount.")
        assert not await notes.recall("discount")
        assert [match.record.content for match in await tenant.recall("discount")] == ["Has a discount."]
        await tenant.aclose()
        print("12", len(found))


# 13 A slice that only reads


async def reading(folder: Path) -> None:
    async with Notes(folder / "13.db") as notes:
        await notes.remember("Company policy: lock your screen.", scope="/company/knowledge")
        await notes.remember("My notes on security policies.", scope="/agent/researcher")
        await notes.remember("Security of the payroll.", scope="/company/payroll")
        view = notes.slice(["/agent/researcher", "/company/knowledge"], read_only=True)
        found = await view.recall("company security policies", limit=5)
        assert {match.record.scope for match in found} == {"/agent/researcher", "/company/knowledge"}
        try:
            await view.remember("new finding")
        except PermissionError as error:
            print("13", type(error).__name__)
        else:
            raise AssertionError("a read-only slice was written to")


# 14 A slice that writes


async def writing(folder: Path) -> None:
    async with Notes(folder / "14.db") as notes:
        view = notes.slice(["/team/alpha", "/team/beta"], read_only=False)
        kept = await view.remember("Cross-team decision", scope="/team/alpha", categories=["decisions"])
        assert (kept.scope, kept.categories) == ("/team/alpha", ("decisions",))
        refused: list[str] = []
        for scope in (None, "/team/gamma"):
            try:
                await view.remember("elsewhere", scope=scope)
            except (ValueError, PermissionError) as error:
                refused.append(type(error).__name__)
        assert refused == ["ScopeError", "NotePermissionError"]
        print("14", kept.scope, *refused)


async def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        await tree_of_a_company(folder)
        await inferred(folder)
        await printed(folder)
        await branch(folder)
        await several_projects(folder)
        await shared_and_own(folder)
        await customers(folder)
        await reading(folder)
        await writing(folder)


if __name__ == "__main__":
    anyio.run(main)
