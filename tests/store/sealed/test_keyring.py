"""Keys in the keyring of the operating system, and what is said where there is none."""

from __future__ import annotations

import keyring
import pytest
from keyring.backend import KeyringBackend
from keyring.backends import chainer, fail, null
from keyring.errors import InitError, KeyringLocked

from graphagent.errors import KeySourceError, MissingExtraError, WrongKeyError
from graphagent.memory import EncryptedMemoryProvider
from graphagent.store import EncryptedStore, MemoryStore, Put, new_key, new_recovery_key
from graphagent.store.sealed import _key_sources
from graphagent.store.sealed._key_sources import put_in_keyring

A = ("room", 1)


class Memory(KeyringBackend):
    """A keyring in memory."""

    priority = 0.1

    def __init__(self, fails=None):
        super().__init__()
        self.entries, self.fails = {}, fails

    def get_password(self, service, username):
        if self.fails:
            raise self.fails
        return self.entries.get((service, username))

    def set_password(self, service, username, password):
        self.entries[service, username] = password


class PlaintextKeyring(Memory):
    """A keyring that has what it keeps in a readable file."""


@pytest.fixture
def use():
    """Make a keyring that of the process."""
    before = keyring.get_keyring()
    yield keyring.set_keyring
    keyring.set_keyring(before)


async def test_a_key_in_the_keyring_opens_a_store(use):
    """What a keyring has in an entry is a key, a recovery key or a pass phrase, and is read again whenever a store is opened."""
    backend, inner, recovery = Memory(), MemoryStore(), new_recovery_key()
    use(backend)
    put_in_keyring("my agents/ada", new_key())
    store = EncryptedStore(inner, "keyring:my agents/ada")
    await store.commit(Put(A, b"a"))
    backend.entries["words", "ada"] = "some words"
    await store.keys.add("words", "passphrase:keyring:words/ada")
    await store.keys.add("recovery", recovery)
    backend.entries["other", "ada"] = recovery
    for source in ("keyring:my agents/ada", "passphrase:keyring:words/ada", "keyring:other/ada"):
        assert (await EncryptedStore(inner, source).get(A)).value == b"a"
    again = EncryptedStore(inner, "keyring:my agents/ada")
    backend.entries["my agents", "ada"] = new_key()
    with pytest.raises(WrongKeyError):
        await again.get(A)


async def test_an_entry_of_the_keyring_is_never_overwritten(use):
    """A key that is there already may be that of a store."""
    backend = Memory()
    use(backend)
    put_in_keyring("a/b", key := new_key())
    with pytest.raises(KeySourceError, match="already"):
        put_in_keyring("a/b", new_key())
    assert backend.entries == {("a", "b"): key}


def chained(*backends):
    """Give a keyring that asks several backends."""

    class Chain(chainer.ChainerBackend):
        pass

    Chain.backends = list(backends)
    return Chain()


@pytest.mark.parametrize(
    ("backend", "remedy"),
    [
        (fail.Keyring(), "without a desktop.*file:PATH"),
        (null.Keyring(), "without a desktop.*file:PATH"),
        (PlaintextKeyring(), "keeps secrets safely"),
        (chained(), "keeps secrets safely"),
        (chained(fail.Keyring(), PlaintextKeyring()), "keeps secrets safely"),
        (Memory(KeyringLocked("CANARY")), "locked.*unlock"),
        (Memory(InitError("CANARY")), "InitError.*without a desktop"),
        (Memory(), "no entry 'a/b'.*keys new --keyring a/b"),
        (chained(fail.Keyring(), Memory()), "no entry"),
    ],
    ids=lambda given: "" if isinstance(given, str) else type(given).__name__,
)
async def test_a_keyring_that_is_not_there(use, tmp_path, backend, remedy):
    """A server without a desktop, a readable keyring, a locked one and a missing entry each say what to do when a store is opened."""
    use(backend)
    inner = MemoryStore()
    store = EncryptedStore(inner, "keyring:a/b")
    with pytest.raises(KeySourceError, match=remedy) as caught:
        await store.commit(Put(A, b"a"))
    assert "CANARY" not in str(caught.value)
    assert caught.value.source == "keyring:a/b"
    for opened in (store, EncryptedMemoryProvider(tmp_path, key="keyring:a/b")):
        with pytest.raises(KeySourceError, match=remedy):
            async with opened:
                pass
    assert [item async for item in inner.scan(())] == []


@pytest.mark.parametrize("entry", ["keyring:", "keyring:name", "keyring:/name", "keyring:service/"])
def test_an_entry_has_a_service_and_a_name(entry):
    """What names no entry is refused when a store is declared."""
    with pytest.raises(ValueError, match="keyring:SERVICE/NAME"):
        EncryptedStore(MemoryStore(), entry)


def test_without_the_extra(monkeypatch):
    """Without the extra, the error names it when a store is declared."""
    monkeypatch.setattr(_key_sources, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"graphagent-ai\[keyring\]"):
        EncryptedStore(MemoryStore(), "keyring:a/b")
