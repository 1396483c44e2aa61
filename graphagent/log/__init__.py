"""The log of a run: what happened, the state that follows from it, and the bytes in a store.

Entries come in (what nodes do), a state comes out (where the run is, and what was said), and rows go to a store on the way.
Nothing else changes the state, so a process that reads the rows has what the process that wrote them had. Read the files in this
order: `_visits` (frames, their visits, and what these cost), `_state`, `_entries` (what happens, and what follows from it), `_bytes`
(entries as bytes), `_log` (append, commit, read), `_segments`, `_header` and `_claim` (what a store has and says of a run, and who
executes it). A row is put under a key that must be new: of two processes that continue one run, the store refuses the second.
"""
