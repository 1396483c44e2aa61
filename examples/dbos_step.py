"""A run as a step of a DBOS workflow, for programs that have their workflows there: pip install dbos.

DBOS executes a step again whose process died. That is safe here: what a run has done is in its own log, so `agent.resume` goes on with
it, and one that is over is only read.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from graphagent import END, START, Agent, Context, Strategy, node
from graphagent.nodes import ask_human
from graphagent.store import SqliteStore

paid: list[str] = []


async def transfer() -> str:
    paid.append("Ada")
    return "paid"


@node
async def pay(ctx: Context, approved: bool) -> str:
    return await ctx.once("transfer", transfer) if approved else "not paid"


payment = Strategy("payment", START >> ask_human("Pay 30 euros to Ada?", bool) >> pay >> END)


async def main(folder: Path) -> None:
    from dbos import DBOS, DBOSConfig, SetWorkflowID

    agent = Agent(payment, store=SqliteStore(folder / "runs.db"))
    config: DBOSConfig = {
        "name": "payments", "system_database_url": f"sqlite:///{folder}/dbos.db", "log_level": "ERROR", "run_admin_server": False,
    }  # fmt: skip
    DBOS(config=config)

    @DBOS.step()
    async def begin(run_id: str) -> str:
        handle = await agent.submit("the invoice of Ada", run_id=run_id)  # repeated, it is the same run
        return (await agent.resume(handle.run_id)).status

    @DBOS.step()
    async def go_on(run_id: str, approved: bool) -> str:
        run = await agent.read(run_id)
        if run.questions:
            run.answer(approved)
        return (await run.finish()).output

    @DBOS.workflow()
    async def invoice(run_id: str) -> str:
        status = await begin(run_id)
        approved = await DBOS.recv_async("approval") if status == "waiting" else True
        return await go_on(run_id, bool(approved))

    DBOS.launch()
    with SetWorkflowID("ada-7"):
        workflow = await DBOS.start_workflow_async(invoice, "ada-7")
    await DBOS.send_async("ada-7", True, topic="approval")
    print(await workflow.get_result())

    # A step that is executed again, as after the death of its process, does nothing twice.
    assert await go_on("ada-7", True) == "paid"
    assert paid == ["Ada"]
    DBOS.destroy()


if find_spec("dbos") is None:
    print("This example needs DBOS: pip install dbos")
    sys.exit()
with tempfile.TemporaryDirectory() as given:
    asyncio.run(main(Path(given)))
