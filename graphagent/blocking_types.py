"""The types that `blocking` returns, for annotations such as `def summary(notes: BlockingNotes) -> str: …`.

Type checkers see the classes in `blocking_types.pyi`. At run time, one class stands for all of them.
"""

from __future__ import annotations

from graphagent._sync import Blocking

BlockingAgent = Blocking
BlockingEncryptedStore = Blocking
BlockingKeepingProvider = Blocking
BlockingMemoryStore = Blocking
BlockingNoteView = Blocking
BlockingNotes = Blocking
BlockingRun = Blocking
BlockingRunHandle = Blocking
BlockingRunStream = Blocking
BlockingSqliteStore = Blocking
BlockingTool = Blocking
