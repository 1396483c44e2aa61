"""What is outside of the runs of the golden journals: a model, tools and effects whose results follow from what they are given."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from anyio.lowlevel import checkpoint

from graphagent.llm import ModelRequest, ModelResponse, PricedModel, Prices
from graphagent.testing import ScriptedModel


def digest(*parts: object) -> str:
    """Return ten characters that depend on the text of some objects, the same in every process."""
    return blake2b(repr(parts).encode(), digest_size=5).hexdigest()


class Broken(Exception):
    """Raised by nodes and tools."""


@dataclass
class World:
    """What outlives a process: which effects were done, and whether this is the first process that executes the run."""

    first: bool = True
    """Some nodes fail, wait or are cancelled in the first process only."""
    done: Counter[str] = field(default_factory=Counter)
    """How often each effect was done, under its tag."""
    scope: Any = None
    """The cancel scope around the run, for a node that has it cancelled."""
    facts: Any = None
    """Where facts are kept."""
    notes: Any = None
    """Where notes are kept."""

    def do(self, *what: object) -> str:
        """Do something, and return the tag that its result contains."""
        tag = f"E:{digest(*what)}"
        self.done[tag] += 1
        return tag


class Oracle:
    """A model that answers by a rule: a function of the request and of the tag of its answer."""

    def __init__(self, world: World, rule: Any, name: str = "oracle") -> None:
        self.name = name
        self._world, self._rule = world, rule

    async def respond(self, request: ModelRequest, on_text: Any = None) -> ModelResponse:
        """Answer a request."""
        await checkpoint()
        calls = [
            (message.role, message.text, [(call.name, dict(call.arguments)) for call in message.tool_calls])
            for message in request.messages
        ]
        tag = self._world.do(self.name, calls, [each.name for each in request.tools])
        return ScriptedModel([self._rule(request, tag)], name=self.name).answer(request)


def priced(world: World, rule: Any, name: str = "oracle") -> PricedModel:
    """Return a model that has prices."""
    return PricedModel(Oracle(world, rule, name), Prices("1.5", "7", cached="0.25"))
