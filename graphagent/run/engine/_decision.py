"""What a model decides for a node: asked apart from the transcript, recorded, and no turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from graphagent.llm import Message, structured

if TYPE_CHECKING:
    from graphagent.llm import ModelRequest, ModelResponse, OutputFormat
    from graphagent.protocols import Model
    from graphagent.run.engine._context import LiveFrame

T = TypeVar("T")


async def decide(frame: LiveFrame, key: str, question: str, form: OutputFormat[T], model: Model | None = None) -> T:
    """Ask a model for a decision, once more if the answer does not fit. It is sent nothing but the question.

    The answers are recorded as effects of the current node, except for the last one if it does not fit: a run that fails with it, and
    is resumed, asks again.

    Args:
        frame: The frame of the node.
        key: Identifies the decision among the effects of the node.
        question: What it is asked.
        form: The JSON that the answer must be.
        model: The model; by default that of the frame.

    Raises:
        OutputError: neither answer fits.
        ModelError, BudgetError: as a request raises them.
    """
    asking = frame.detached()
    asking.effects, asking.model = frame.effects, model or frame.model
    asked = 0

    def check(response: ModelResponse) -> None:
        form.parse(response.message.text)

    async def ask(request: ModelRequest) -> ModelResponse:
        nonlocal asked
        asked += 1
        return await asking.request(
            request, key=f"{key}:{asked}", output="decision", check=check if asked > 1 else None
        )

    try:
        return await structured(ask, [Message.user(question)], form)
    finally:
        frame.effects = asking.effects
