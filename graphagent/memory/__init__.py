"""Facts: what an agent knows, and where it is kept."""

from __future__ import annotations

from graphagent.memory._agent_memory import AgentMemory as AgentMemory
from graphagent.memory._agent_memory import FactUse as FactUse
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
from graphagent.memory._steps import ActionStep as ActionStep
from graphagent.memory._steps import FactsStep as FactsStep
from graphagent.memory._steps import FinalAnswerStep as FinalAnswerStep
from graphagent.memory._steps import KnownFact as KnownFact
from graphagent.memory._steps import MessageStep as MessageStep
from graphagent.memory._steps import RunMemory as RunMemory
from graphagent.memory._steps import SentPrompt as SentPrompt
from graphagent.memory._steps import Step as Step
from graphagent.memory._steps import StepFailure as StepFailure
from graphagent.memory._steps import SystemPromptStep as SystemPromptStep
from graphagent.memory._steps import TaskStep as TaskStep
from graphagent.memory._steps import Timing as Timing
from graphagent.memory._store_provider import StoreMemoryProvider as StoreMemoryProvider
from graphagent.protocols import FactProvider as FactProvider
from graphagent.protocols import KeepingProvider as KeepingProvider
