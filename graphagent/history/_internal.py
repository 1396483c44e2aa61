"""What other rooms need of what happened in runs, and users do not."""

from __future__ import annotations

from graphagent.history._entries import diff as diff
from graphagent.history._entries import history as history
from graphagent.history._entries import state_at as state_at
from graphagent.history._following import Following as Following
from graphagent.history._forgetting import held as held
from graphagent.history._forgetting import note_ids as note_ids
from graphagent.history._fork import fork as fork
from graphagent.history._questions import questions as questions
from graphagent.history._removing import prune_fitting as prune_fitting
from graphagent.history._rerun import rerun as rerun
from graphagent.history._rules import RuleCheck as RuleCheck
from graphagent.history._runs import family as family
