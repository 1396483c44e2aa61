"""What the agent needs of submitted runs, and users do not."""

from __future__ import annotations

from graphagent.work._submit import check_submission as check_submission
from graphagent.work._submit import submit as submit
