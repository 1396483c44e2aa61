"""For authors of stores: keys as bytes that sort as scans return them, checks of changes, scans by pages, and replies from threads.

*A store of your own*, in the guide to testing, has a store that is written with these.
"""

from __future__ import annotations

from graphagent._concurrency import Reply
from graphagent.store._bulk import Scan
from graphagent.store._items import bounds, check_change, encode_key
from graphagent.store._items import decode as decode_key

__all__ = ["Reply", "Scan", "bounds", "check_change", "decode_key", "encode_key"]
