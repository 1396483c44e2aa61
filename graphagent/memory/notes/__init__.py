"""Notes: what was said, as free text in scopes, found again by words and by meaning."""

from __future__ import annotations

from graphagent.memory.notes._notes import Notes as Notes
from graphagent.memory.notes._settings import NoteSettings as NoteSettings
from graphagent.memory.notes._types import Depth as Depth
from graphagent.memory.notes._types import FormerNote as FormerNote
from graphagent.memory.notes._types import Infer as Infer
from graphagent.memory.notes._types import Match as Match
from graphagent.memory.notes._types import Note as Note
from graphagent.memory.notes._types import Record as Record
from graphagent.memory.notes._types import ScopeInfo as ScopeInfo
from graphagent.memory.notes._types import ScopeTree as ScopeTree
from graphagent.memory.notes._types import Turn as Turn
from graphagent.memory.notes._view import NoteView as NoteView
from graphagent.memory.notes.enrich._lessons import apply_lessons as apply_lessons
from graphagent.memory.notes.enrich._lessons import learn_lessons as learn_lessons
from graphagent.memory.notes.feature._feature import NoteMemory as NoteMemory
from graphagent.memory.notes.index._filter import Filter as Filter
from graphagent.memory.notes.recall._ranking import Ranking as Ranking
