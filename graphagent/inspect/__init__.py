"""Web pages that show the runs of a store to one person: `graphagent inspect`.

The pages are made of the stored runs, facts and notes; the whole room needs the extra `inspect`. Read the files in this order: `_layout`, `_words` and
`_errors` (what all pages have), `_access` (who may see them), `_inspected` (the stores, and the shape of a view), `_spans` and `_time` (what a run did when), then the
views, a file each, with `VIEWS` and `CHANGES` at the end, `_saved` (the views of a run in one file), `_inspector`.
"""

from __future__ import annotations

from graphagent.inspect._inspector import Inspector as Inspector
