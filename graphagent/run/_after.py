"""What features do after the end of a run: nothing of it is recorded in the run, and what it costs is counted."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from graphagent._features import implementing
from graphagent.log._internal import TASK, UNSET, Log
from graphagent.run._effects import Effects
from graphagent.run._learning import learn_again
from graphagent.run._runtime import Runtime
from graphagent.run._scope import Execution

if TYPE_CHECKING:
    from graphagent.protocols import Feature


async def look_back(run: Runtime) -> None:
    """Show the run, which has ended, to the features, and let the taps learn that failed to."""
    if run.recorded is None:
        for feature in implementing(run.features, "ended"):
            if not _ends_outside(run, feature):
                await feature.ended(after_the_end(run).context(), run.answer_read())
    if run.unlearned and run.log.durable:
        await learn_again(run, run.unlearned, after_the_end)
    run.looked_back = True


def _ends_outside(run: Runtime, feature: Feature) -> bool:
    """Return whether a run around this one shows its own end to a feature, or to one that does the same."""
    around = run.parent
    while around is not None:
        if any(each is feature for each in around.features.values()) or any(
            each.learns_for(feature) for each in implementing(around.features, "learns_for")
        ):
            return True
        around = around.parent
    return False


def after_the_end(run: Runtime, path: str = "") -> Effects:
    """Return effects over the transcript of a run that has ended, with a log of their own that is not stored."""
    if run.after is None:
        run.after = Log()
        run.after.state.root.transcript = run.frame.transcript.copied()
    config, frame = run.config, run.after.state.root
    after = Runtime(config, run.after, frame, run_id=run.run_id, owner=run.owner)
    after.lineage, after.handlers, after.features, after.listed = run.lineage, run.handlers, run.features, run.listed
    # The same number in each process: a fact that one saved before it died keeps its id.
    frame.moved(path, UNSET, TASK, 0)
    spent, limits = run.frame.usage, after.limits
    limits.max_tokens -= spent.total_tokens
    if isinstance(limits.max_cost, Decimal):
        limits.max_cost -= spent.cost
    return Effects(Execution(after, frame, config.compiled, limits, config.model, config.tools, lambda: None))
