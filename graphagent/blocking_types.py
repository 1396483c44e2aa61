"""What `blocking` returns, for annotations such as `def summary(notes: BlockingNotes) -> str: …`.

For type checkers these are the classes in `blocking_types.pyi`. When a program runs, one class stands for all of them.
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
