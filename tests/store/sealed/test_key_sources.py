"""Which keys are taken, from where, and that none is shown."""

from __future__ import annotations

import base64
import os
import pickle

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphagent.errors import KeySourceError, WrongKeyError
from graphagent.memory import EncryptedMemoryProvider
from graphagent.store import EncryptedStore, MemoryStore, Passphrase, Put, new_key, new_recovery_key
from graphagent.store.sealed._key_sources import HeldKey, _from_place
from tests.thorough import examples

KEY = bytes(range(100, 132))
TEXT = base64.b64encode(KEY).decode()


async def async_key():
    await anyio.lowlevel.checkpoint()
    return KEY


class Later:
    def __call__(self):
        return async_key()


async def test_every_form_opens_the_same_store(tmp_path, monkeypatch):
    """Bytes, base64 text, a variable, a file and functions of either kind are the same key."""
    monkeypatch.setenv("STORE_TEST_KEY", f" {TEXT}\n")
    file = tmp_path / "key"
    file.write_text(TEXT + "\n")
    file.chmod(0o600)
    inner = MemoryStore()
    await EncryptedStore(inner, KEY).commit(Put(("a", "b"), b"v"))
    for source in (KEY, TEXT, "env:STORE_TEST_KEY", f"file:{file}", lambda: KEY, async_key, Later()):
        assert (await EncryptedStore(inner, source).get(("a", "b"))).value == b"v"
    with pytest.raises(WrongKeyError):
        await EncryptedStore(inner, new_key()).get(("a", "b"))


def test_a_new_key_is_fresh():
    """new_key gives base64 text of 32 bytes, another each time."""
    assert len(base64.b64decode(new_key(), validate=True)) == 32
    assert new_key() != new_key()


@pytest.mark.parametrize(
    "wrong",
    [b"short", b"", b"x" * 33, TEXT.encode(), "", "not base64!", "c2hvcnQ=", TEXT[:-1], TEXT + "AAAA", "é" * 44, "env:", "file:", None, 7, ["x"],
     f"env:{TEXT}", f"file:{TEXT}", f"keyring:{TEXT}", "file:A8CC-DATK-D0X0-8EQ1-R4YP-PA6E-APH1-0B3F-DXS9", "env:X7K2-", "passphrase:env:plum quarry ledger"],
)  # fmt: skip
def test_what_is_no_key_is_refused_at_once(wrong):
    """What is no key source raises a ValueError that names the forms and does not show what was given."""
    with pytest.raises(ValueError, match="32 bytes") as caught:
        EncryptedStore(MemoryStore(), wrong)
    for form in ("base64", "env:NAME", "file:PATH", "function"):
        assert form in str(caught.value)
    if wrong and isinstance(wrong, (str, bytes)) and not str(wrong).endswith(":"):
        assert str(wrong) not in str(caught.value)
        assert repr(wrong) not in str(caught.value)
        if isinstance(wrong, str):
            assert wrong.rpartition(":")[2] not in str(caught.value)
    assert caught.value.__cause__ is None


async def test_a_place_without_a_key(tmp_path, monkeypatch):
    """A variable or a file that is missing or has no key is named when a store is declared, and what it has is not shown."""
    monkeypatch.setenv("STORE_TEST_EMPTY", "")
    monkeypatch.setenv("STORE_TEST_BAD", "CANARY-NO-KEY")
    bad, missing = tmp_path / "bad", tmp_path / "missing"
    bad.write_bytes(b"CANARY-NO-KEY\xff")
    bad.chmod(0o600)
    for source, named, remedy in (
        ("env:STORE_TEST_UNSET", "STORE_TEST_UNSET", "set it to"),
        ("env:STORE_TEST_EMPTY", "STORE_TEST_EMPTY", "base64"),
        ("env:STORE_TEST_BAD", "STORE_TEST_BAD", "passphrase:env:STORE_TEST_BAD"),
        (f"file:{missing}", str(missing), "graphagent keys new"),
        (f"file:{bad}", str(bad), "base64"),
        (f"file:{tmp_path}", str(tmp_path), "cannot be read"),
    ):
        with pytest.raises(KeySourceError, match=remedy) as caught:
            EncryptedStore(MemoryStore(), source)
        assert named in str(caught.value)
        assert caught.value.source == source
        assert "CANARY" not in str(caught.value)
    with pytest.raises(KeySourceError, match="32 bytes") as caught:
        await EncryptedStore(MemoryStore(), lambda: b"CANARY-NO-KEY").commit(Put(("a", "b"), b"v"))
    assert "CANARY" not in str(caught.value)


async def test_a_place_that_lost_its_key(tmp_path):
    """A file is read again whenever a store is opened, so it can be replaced, and one that is gone by then is named."""
    file, inner = tmp_path / "key", MemoryStore()
    file.write_text(TEXT)
    file.chmod(0o600)
    early = EncryptedStore(inner, f"file:{file}")
    file.unlink()
    with pytest.raises(KeySourceError, match="no key file"):
        await early.commit(Put(("a", "b"), b"v"))
    assert [item async for item in inner.scan(())] == []


def test_a_file_has_all_of_a_pass_phrase_or_is_refused(tmp_path):
    """None is cut off or guessed: a file that is too long or in another encoding is named, and a byte order mark is not part of it."""
    file = tmp_path / "phrase"
    file.touch(0o600)
    for content, wrong in ((b"a " * 2049, "longer than 4096"), ("é".encode("latin-1"), "UTF-8")):
        file.write_bytes(content)
        with pytest.raises(KeySourceError, match=wrong):
            HeldKey(f"passphrase:file:{file}")
    file.write_text("plum quarry\n", encoding="utf-8-sig")
    assert _from_place(f"passphrase:file:{file}").material == b"plum quarry"


@pytest.mark.skipif(os.name == "nt", reason="pipes with names are of POSIX")
def test_a_pipe_is_no_key_file(tmp_path):
    """It could be read once, and a key is read whenever a store is opened; nobody waits for who would write it."""
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(KeySourceError, match="not a regular file"):
        HeldKey(f"file:{tmp_path / 'pipe'}")


@pytest.mark.skipif(os.name == "nt", reason="file modes are of POSIX")
async def test_a_key_file_that_others_may_read(tmp_path):
    """A key file is refused while others may read it."""
    file = tmp_path / "key"
    file.write_text(TEXT)
    for mode in (0o644, 0o640, 0o604, 0o660):
        file.chmod(mode)
        with pytest.raises(KeySourceError, match="chmod 600"):
            EncryptedStore(MemoryStore(), f"file:{file}")
    file.chmod(0o400)
    await EncryptedStore(MemoryStore(), f"file:{file}").commit(Put(("a", "b"), b"v"))


async def test_what_a_function_raises_comes_through():
    """An error of one's own key function is not hidden."""

    def failing():
        raise LookupError("the key service is away")

    with pytest.raises(LookupError, match="key service"):
        await EncryptedStore(MemoryStore(), failing).commit(Put(("a", "b"), b"v"))


@pytest.mark.parametrize("wrong", ["", " ", "\n\t", "half \ud800", None, b"CANARY words", 7])
def test_what_is_no_pass_phrase_is_refused(wrong):
    """An empty pass phrase, and what is not Unicode text, is a ValueError that does not show it."""
    with pytest.raises(ValueError, match="pass phrase") as caught:
        Passphrase(wrong)
    assert "CANARY" not in str(caught.value)


async def test_a_pass_phrase_in_a_place(tmp_path, monkeypatch):
    """A pass phrase may be in a variable or a private file, whose line end does not belong to it; an empty one is named."""
    file, inner = tmp_path / "words", MemoryStore()
    file.write_text("Caf\u00e9 au lait\n", "utf-8")
    file.chmod(0o600)
    monkeypatch.setenv("STORE_TEST_WORDS", "Cafe\u0301 au lait")
    await EncryptedStore(inner, Passphrase("Caf\u00e9 au lait")).commit(Put(("a", "b"), b"v"))
    for source in (f"passphrase:file:{file}", "passphrase:env:STORE_TEST_WORDS"):
        assert (await EncryptedStore(inner, source).get(("a", "b"))).value == b"v"
    monkeypatch.setenv("STORE_TEST_WORDS", "")
    for source in ("passphrase:env:STORE_TEST_WORDS", "passphrase:env:STORE_TEST_UNSET"):
        with pytest.raises(KeySourceError, match="pass phrase") as caught:
            EncryptedMemoryProvider(tmp_path / "memory", key=source)
        assert caught.value.source == source
    for source in ("passphrase:", "passphrase:words", "passphrase:passphrase:env:X"):
        with pytest.raises(ValueError, match="'passphrase:' stands before"):
            EncryptedStore(inner, source)


@settings(max_examples=examples(60))
@given(st.integers(0, 35), st.sampled_from("0123456789ABCDEFGHJKMNPQRSTVWXYZ"))
def test_a_mistake_in_a_recovery_key_is_found(at, letter):
    """Any other letter in any place, one too few or one too many is found, and the key is not shown."""
    key = new_recovery_key()
    letters = key.replace("-", "")
    EncryptedStore(MemoryStore(), letters.lower())
    changed = letters[:at] + letter + letters[at + 1 :]
    for wrong, why in ((changed, "checksum"), (key[:-1], "35 letters"), (f"{key}{letter}", "37 letters")):
        if wrong != letters:
            with pytest.raises(ValueError, match=why) as caught:
                EncryptedStore(MemoryStore(), wrong)
            assert wrong not in str(caught.value)


def test_keys_are_not_shown_or_pickled():
    """Neither a pass phrase nor what holds one shows it or can be pickled."""
    words = Passphrase("CANARY words")
    store = EncryptedStore(MemoryStore(), words)
    assert "CANARY" not in f"{words!r} {words} {store!r} {store.keys!r}"
    for held in (words, store, store._key):
        with pytest.raises(TypeError, match="pickled"):
            pickle.dumps(held)
