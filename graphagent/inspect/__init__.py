"""Web pages that show the runs of a store to one person: `graphagent inspect`.

The pages are made of the stored runs, facts and notes; the whole room needs the extra `inspect`. Read the files in this order: `_layout`,
`_forms`, `_words`, `_values` and `_errors` (the parts of pages), `_access` (who may see the pages), `_inspected` (the stores, and the types of views
and changes), `_spans` and `_time` (the work of a run over time), then the views, a file each, with `VIEWS` and `CHANGES` at the end (`_list`, `_run`,
`_inbox`, `_facts` and `_notes` are what a person sees first), `_saved` (a run in one file), `_inspector`.
"""

from __future__ import annotations

from graphagent.inspect._inspector import Inspector as Inspector
