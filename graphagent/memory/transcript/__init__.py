"""The transcript of a run: steps as values, changed by entries of the log, and the views of it that users see.

Steps come in with entries of the log (or by hand, in your own transcript), and messages for a model come out. Read the files in
this order: `_transcript` (the value, the selection of steps that a model sees, and the undo), `_prompt` (the messages that a model
was sent), `_fields` (steps as data, and their check), `_again` (facts and notes looked up again), `_memory` (`RunMemory`, through
which users read and change it).
"""
