"""Steps, facts and notes: what happened in a run, what an agent knows, and what was said."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphagent._lazy import lazy as _lazy
from graphagent.memory._blocks import KnownFact as KnownFact
from graphagent.memory._blocks import KnownNote as KnownNote
from graphagent.memory.facts._resolve import resolve as resolve
from graphagent.memory.facts._types import EVERYTHING as EVERYTHING
from graphagent.memory.facts._types import TRUST_LEVELS as TRUST_LEVELS
from graphagent.memory.facts._types import Concept as Concept
from graphagent.memory.facts._types import Fact as Fact
from graphagent.memory.facts._types import FactType as FactType
from graphagent.memory.facts._types import FactVersion as FactVersion
from graphagent.memory.facts._types import MultipleFacts as MultipleFacts
from graphagent.memory.facts._types import Scope as Scope
from graphagent.memory.facts._types import ScopeKind as ScopeKind
from graphagent.memory.facts._types import SingleFact as SingleFact
from graphagent.memory.facts._types import Source as Source
from graphagent.memory.facts._types import Subject as Subject
from graphagent.memory.facts._types import Withdrawal as Withdrawal
from graphagent.memory.steps._types import ActionStep as ActionStep
from graphagent.memory.steps._types import FactsStep as FactsStep
from graphagent.memory.steps._types import FinalAnswerStep as FinalAnswerStep
from graphagent.memory.steps._types import MessageStep as MessageStep
from graphagent.memory.steps._types import NotesStep as NotesStep
from graphagent.memory.steps._types import PlanningStep as PlanningStep
from graphagent.memory.steps._types import Step as Step
from graphagent.memory.steps._types import StepFailure as StepFailure
from graphagent.memory.steps._types import SummaryStep as SummaryStep
from graphagent.memory.steps._types import SystemPromptStep as SystemPromptStep
from graphagent.memory.steps._types import TaskStep as TaskStep
from graphagent.memory.steps._types import Timing as Timing
from graphagent.memory.transcript._memory import RunMemory as RunMemory
from graphagent.protocols import Compression as Compression
from graphagent.protocols import FactProvider as FactProvider
from graphagent.protocols import KeepingProvider as KeepingProvider

if TYPE_CHECKING:
    from graphagent.memory.agent_memory._feature import AgentMemory as AgentMemory
    from graphagent.memory.compaction._compression import ChunkedHistory as ChunkedHistory
    from graphagent.memory.compaction._compression import FoundFacts as FoundFacts
    from graphagent.memory.compaction._compression import StoredFacts as StoredFacts
    from graphagent.memory.compaction._compression import WholeHistory as WholeHistory
    from graphagent.memory.compaction._compression import compress as compress
    from graphagent.memory.compaction._window import ContextWindow as ContextWindow
    from graphagent.memory.facts._provider_encrypted import EncryptedMemoryProvider as EncryptedMemoryProvider
    from graphagent.memory.facts._provider_file import FileMemoryProvider as FileMemoryProvider
    from graphagent.memory.facts._provider_none import NoMemory as NoMemory
    from graphagent.memory.facts._provider_store import StoreMemoryProvider as StoreMemoryProvider
    from graphagent.memory.notes import FormerNote as FormerNote
    from graphagent.memory.notes import Match as Match
    from graphagent.memory.notes import Note as Note
    from graphagent.memory.notes import NoteMemory as NoteMemory
    from graphagent.memory.notes import Notes as Notes
    from graphagent.memory.notes import NoteSettings as NoteSettings
    from graphagent.memory.notes import NoteView as NoteView
    from graphagent.memory.notes import Ranking as Ranking
    from graphagent.memory.notes import Record as Record
    from graphagent.memory.notes import ScopeInfo as ScopeInfo
    from graphagent.memory.notes import ScopeTree as ScopeTree
    from graphagent.memory.notes import Turn as Turn
else:
    __getattr__ = _lazy(
        __name__,
        {
            "graphagent.memory.agent_memory._feature": ("AgentMemory",),
            "graphagent.memory.compaction._compression": ("ChunkedHistory", "FoundFacts", "StoredFacts", "WholeHistory", "compress"),
            "graphagent.memory.compaction._window": ("ContextWindow",),
            "graphagent.memory.facts._provider_encrypted": ("EncryptedMemoryProvider",),
            "graphagent.memory.facts._provider_file": ("FileMemoryProvider",),
            "graphagent.memory.facts._provider_none": ("NoMemory",),
            "graphagent.memory.facts._provider_store": ("StoreMemoryProvider",),
            "graphagent.memory.notes": (
                "FormerNote", "Match", "Note", "NoteMemory", "NoteSettings", "NoteView", "Notes", "Ranking", "Record", "ScopeInfo", "ScopeTree", "Turn",
            ),
        },
    )  # fmt: skip
