"""The transcript of a run: steps as values, which entries of the log change, and the views of it that users see.

Steps come in with entries of the log (or by hand, in a transcript of one's own), messages for a model come out. Read the files in
this order: `_transcript` (the value and its undo), `_prompt` (what a model was sent), `_fields` (the form of a step as data, and
its check), `_again` (what it refers to, looked up again), `_memory` (`RunMemory`, through which users read and change it).
"""
