"""Notes: free text in scopes, found again by words and by meaning."""

from __future__ import annotations

from graphagent.memory._note_values import Filter as Filter
from graphagent.memory._note_values import FormerNote as FormerNote
from graphagent.memory._note_values import Match as Match
from graphagent.memory._note_values import Note as Note
from graphagent.memory._note_values import Record as Record
from graphagent.memory._note_values import ScopeInfo as ScopeInfo
from graphagent.memory._note_values import ScopeTree as ScopeTree
from graphagent.memory._note_values import Turn as Turn
from graphagent.memory.notes._notes import Notes as Notes
from graphagent.memory.notes._settings import NoteSettings as NoteSettings
from graphagent.memory.notes._view import NoteView as NoteView
from graphagent.memory.notes.enrich._lessons import apply_lessons as apply_lessons
from graphagent.memory.notes.enrich._lessons import learn_lessons as learn_lessons
from graphagent.memory.notes.feature._feature import NoteMemory as NoteMemory
from graphagent.memory.notes.recall._ranking import Ranking as Ranking
from graphagent.memory.notes.recall._request import Depth as Depth
from graphagent.memory.notes.write._save import Infer as Infer
