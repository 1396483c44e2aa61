"""Tools: typed parameters, methods, errors that the model can act upon, calls that run at once.

python examples/tools.py
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from graphagent import Agent, Context, tool
from graphagent.errors import ToolError
from graphagent.llm import ToolCall, ToolCalls
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run


class Pantry:
    """Tools may be methods, so that they share what they work on."""

    def __init__(self) -> None:
        self.grams = {"flour": 500, "sugar": 80}

    @tool
    async def take(self, what: str, grams: Annotated[int, Field(gt=0)]) -> int:
        """Take something out of the pantry, and return the remaining grams.

        Args:
            what: What to take, such as flour.
            grams: How much.
        """
        if self.grams.get(what, 0) < grams:
            raise ToolError(f"there are only {self.grams.get(what, 0)} g of {what}")
        self.grams[what] -= grams
        return self.grams[what]


@tool(name="oven")
def heat(degrees: int, ctx: Context, mode: Literal["fan", "grill"] = "fan") -> str:
    """Heat the oven. The model does not see the run's context, which comes as a parameter."""
    return f"{mode} at {degrees} °C, for run {ctx.run_id}"


pantry = Pantry()
calls = [ToolCall("take", {"what": "flour", "grams": 300}), ToolCall("take", {"what": "sugar", "grams": 100})]
model = ScriptedModel(
    [
        ToolCalls([*calls, ToolCall("oven", {"degrees": "hot"}), ToolCall("mixer")], "Let me see."),
        ToolCalls([ToolCall("take", {"what": "sugar", "grams": 60}), ToolCall("oven", {"degrees": 180})]),
        "Everything is ready.",
    ]
)
agent = Agent(single_run(parallel_tools=4), model=model, tools=[pantry.take, heat])
print(agent.run_sync("Prepare a cake.", run_id="cake").output)

for message in model.requests[-1].messages:
    if message.role == "tool":
        print(f"  {message.text}")
assert pantry.grams == {"flour": 200, "sugar": 20}
