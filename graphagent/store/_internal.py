"""What other rooms need of stores."""

from __future__ import annotations

from graphagent.store import _durable_files
from graphagent.store._bulk import collect as collect
from graphagent.store._bulk import get_many as get_many
from graphagent.store._cache import Asker as Asker
from graphagent.store._cache import Cache as Cache
from graphagent.store._cache import asker as asker
from graphagent.store._cache import cached_of as cached_of
from graphagent.store._cache import erase_expired as erase_expired
from graphagent.store._checksum import checked as checked
from graphagent.store._checksum import is_intact as is_intact
from graphagent.store._checksum import unchecked as unchecked
from graphagent.store._claims import claims_of as claims_of
from graphagent.store._claims import innermost as innermost
from graphagent.store._claims import place_in_process as place_in_process
from graphagent.store._dsn import is_dsn as is_dsn
from graphagent.store._dsn import named_database as named_database
from graphagent.store._dsn import without_password as without_password
from graphagent.store._encoding import checked_limit as checked_limit
from graphagent.store._fork_safety import in_use as in_use
from graphagent.store._fork_safety import register as register
from graphagent.store._grants import grants_of as grants_of
from graphagent.store.sealed._key_sources import put_in_keyring as put_in_keyring
from graphagent.store.sqlite._copying import give_name as give_name
from graphagent.store.sqlite._copying import is_store_file as is_store_file
from graphagent.store.sqlite._soundness import are_sound as are_sound

durable_files = _durable_files
