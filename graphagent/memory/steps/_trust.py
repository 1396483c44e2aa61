"""How far what is made of a transcript can be trusted: the one rule, for facts and notes, in nodes, tools and sub-agents."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from graphagent.memory.facts._types import TRUST_LEVELS, least_trust
from graphagent.memory.steps._types import (
    ActionStep,
    FactsStep,
    FinalAnswerStep,
    NotesStep,
    PlanningStep,
    Step,
    SummaryStep,
    TaskStep,
)

_ROLES = {"assistant": "inferred", "tool": "untrusted"}


def trust_of(steps: Iterable[Step], floor: str = "trusted") -> str:
    """Return the least trust of everything that flowed into a transcript.

    Args:
        steps: What happened: the task is trusted, what tools returned is not, what a model said is inferred at most, and
            loaded facts and notes keep the trust that they have.
        floor: The least trust of whatever else flowed in.
    """
    least = floor
    for step in steps:
        if least == TRUST_LEVELS[0]:
            break
        least = least_trust((least, level_of(step)))
    return least


def level_of(step: Step) -> str:
    """Return how far what a step brought can be trusted, whatever came before it."""
    if isinstance(step, ActionStep):
        return "untrusted" if step.is_answered or step.observations or step.observations_images else "inferred"
    if isinstance(step, FactsStep):
        return least_trust(chain(("trusted",), (known.fact.source.trust for known in step.facts)))
    if isinstance(step, NotesStep):
        return least_trust(chain(("trusted",), (note.trust for note in step.notes)))
    if isinstance(step, SummaryStep):
        said = "inferred" if step.summary else "trusted"
        return least_trust(chain((said,), (known.fact.source.trust for known in step.facts)))
    if isinstance(step, FinalAnswerStep | PlanningStep):
        return "inferred"
    if isinstance(step, TaskStep):
        return "trusted"
    return least_trust(chain(("trusted",), (_ROLES.get(message.role, "trusted") for message in step.to_messages())))


def is_less(one: str, other: str) -> bool:
    """Tell whether a trust level is below another one."""
    return TRUST_LEVELS.index(one) < TRUST_LEVELS.index(other)
