"""What only reads a store that does not exist refuses it, and creates nothing."""

from __future__ import annotations

import os
import pickle

import pytest

from graphagent.errors import StoreNotFoundError
from graphagent.memory import EncryptedMemoryProvider, FileMemoryProvider, Notes
from graphagent.store import EncryptedStore, SqliteStore, new_key

KEY = new_key()
MISSING = {
    "a file": lambda path: SqliteStore(path),
    "a sealed file": lambda path: EncryptedStore(SqliteStore(path), KEY),
    "readable facts": lambda path: FileMemoryProvider(path),
    "sealed facts": lambda path: EncryptedMemoryProvider(path, key=KEY),
    "notes": lambda path: Notes(path),
}


@pytest.mark.parametrize("what", MISSING)
async def test_verify_refuses_what_does_not_exist(tmp_path, what):
    """It names the path, and what is beside it; a misspelt path is not sound, and stays missing."""
    (tmp_path / "data.db").write_text("")
    with pytest.raises(StoreNotFoundError) as raised:
        await MISSING[what](tmp_path / "dta.db").verify()
    assert isinstance(raised.value, FileNotFoundError)
    assert raised.value.path.startswith(str(tmp_path / "dta.db"))
    assert "'data.db'" in str(raised.value) or what == "sealed facts"
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)
    assert os.listdir(tmp_path) == ["data.db"]
