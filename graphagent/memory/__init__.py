"""Steps, facts and notes: what happened in a run, what an agent knows, and what was said."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphagent._lazy import lazy as _lazy
from graphagent.memory._agent_memory import AgentMemory as AgentMemory
from graphagent.memory._agent_memory import FactUse as FactUse
from graphagent.memory._compression import ChunkedHistory as ChunkedHistory
from graphagent.memory._compression import FoundFacts as FoundFacts
from graphagent.memory._compression import StoredFacts as StoredFacts
from graphagent.memory._compression import WholeHistory as WholeHistory
from graphagent.memory._compression import compress as compress
from graphagent.memory._encrypted_provider import EncryptedMemoryProvider as EncryptedMemoryProvider
from graphagent.memory._facts import EVERYTHING as EVERYTHING
from graphagent.memory._facts import TRUST_LEVELS as TRUST_LEVELS
from graphagent.memory._facts import Concept as Concept
from graphagent.memory._facts import Fact as Fact
from graphagent.memory._facts import FactType as FactType
from graphagent.memory._facts import MultipleFacts as MultipleFacts
from graphagent.memory._facts import Scope as Scope
from graphagent.memory._facts import ScopeKind as ScopeKind
from graphagent.memory._facts import SingleFact as SingleFact
from graphagent.memory._facts import Source as Source
from graphagent.memory._facts import Subject as Subject
from graphagent.memory._file_provider import FileMemoryProvider as FileMemoryProvider
from graphagent.memory._no_memory import NoMemory as NoMemory
from graphagent.memory._resolve import resolve as resolve
from graphagent.memory._run_memory import Mark as Mark
from graphagent.memory._run_memory import RunMemory as RunMemory
from graphagent.memory._sent import SentPrompt as SentPrompt
from graphagent.memory._step_list import Steps as Steps
from graphagent.memory._step_types import ActionStep as ActionStep
from graphagent.memory._step_types import FactsStep as FactsStep
from graphagent.memory._step_types import FinalAnswerStep as FinalAnswerStep
from graphagent.memory._step_types import KnownFact as KnownFact
from graphagent.memory._step_types import KnownNote as KnownNote
from graphagent.memory._step_types import MessageStep as MessageStep
from graphagent.memory._step_types import NotesStep as NotesStep
from graphagent.memory._step_types import PlanningStep as PlanningStep
from graphagent.memory._step_types import Step as Step
from graphagent.memory._step_types import StepFailure as StepFailure
from graphagent.memory._step_types import SummaryStep as SummaryStep
from graphagent.memory._step_types import SystemPromptStep as SystemPromptStep
from graphagent.memory._step_types import TaskStep as TaskStep
from graphagent.memory._step_types import Timing as Timing
from graphagent.memory._store_provider import StoreMemoryProvider as StoreMemoryProvider
from graphagent.memory._text import step_text as step_text
from graphagent.memory._window import ContextWindow as ContextWindow
from graphagent.protocols import Compression as Compression
from graphagent.protocols import FactProvider as FactProvider
from graphagent.protocols import KeepingProvider as KeepingProvider

if TYPE_CHECKING:
    from graphagent.memory.notes import Match as Match
    from graphagent.memory.notes import Note as Note
    from graphagent.memory.notes import NoteMemory as NoteMemory
    from graphagent.memory.notes import Notes as Notes
    from graphagent.memory.notes import NoteView as NoteView
    from graphagent.memory.notes import Ranking as Ranking
    from graphagent.memory.notes import Record as Record
    from graphagent.memory.notes import ScopeInfo as ScopeInfo
    from graphagent.memory.notes import ScopeTree as ScopeTree
    from graphagent.memory.notes import Turn as Turn

__getattr__ = _lazy(
    __name__, "graphagent.memory.notes",
    ("Match", "Note", "NoteMemory", "NoteView", "Notes", "Ranking", "Record", "ScopeInfo", "ScopeTree", "Turn"),
)  # fmt: skip
