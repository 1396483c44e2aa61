"""What the tests of ready-made strategies share: edges that were not taken, and runs that are cut off and resumed."""

from __future__ import annotations

from graphagent import Agent
from graphagent.errors import RunNotFoundError
from graphagent.testing import ScriptedModel
from tests.run.lives import Watched, cut


def left_out(strategy, *runs):
    """Give the nodes that no run executed, and the edges with a label that none took."""
    executed = {node for taken in runs for node in taken.nodes}
    chosen = {path for taken in runs for path in taken.paths}
    labelled = {(edge.source.name, edge.label, edge.target.name) for edge in strategy.edges if edge.label}
    return (strategy.elements_by_name.keys() - executed) | (labelled - chosen)


async def resumed_everywhere(strategy, reply, *, task="the task", tools=(), answers=None):
    """Run a strategy, and then again from each of its commits. Give the result of the first run.

    Each resumed run must end with the same output and messages, and ask the model no more often than the first did.

    Args:
        strategy: What is run.
        reply: What the model answers a request: a function of it, since another process answers alike.
        task: The task.
        tools: What the model may call.
        answers: What a person answers each question.
    """

    async def live(store):
        model = ScriptedModel([reply] * 300)
        agent = Agent(strategy, model=model, tools=tools, store=store, max_turns=100)
        try:
            result = await agent.resume("r")
        except RunNotFoundError:
            result = await agent.run(task, run_id="r")
        while result.status == "waiting":
            result = await agent.resume("r", answer=answers[result.pending.question])
        return result, len(model.requests)

    store = Watched()
    whole, requests = await live(store)
    assert whole.status == "done"
    for number in range(1, len(store.commits)):
        result, again = await live(await cut(store.commits[:number]))
        assert result.output == whole.output
        assert result.memory.to_messages() == whole.memory.to_messages()
        assert again <= requests
    return whole
