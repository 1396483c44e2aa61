"""Where the key of an encrypted store comes from."""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import stat
import unicodedata
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeGuard

import anyio.to_thread

from graphagent._functions import call
from graphagent.errors import KeySourceError, MissingExtraError
from graphagent.store.sealed._secret import Secret, SlotKind

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend


class Passphrase:
    """A pass phrase as the key of a store: `EncryptedStore(store, Passphrase("…"))`.

    Opening a store with it takes about 0.2 seconds and 64 MiB of memory, in a worker thread: Argon2id makes guessing slow.
    That cannot protect a short one: choose five or more random words. The same characters in other Unicode forms (NFKC) are the same
    pass phrase; capitals and spaces count. Its repr does not show it, and it cannot be pickled.

    Raises:
        ValueError: it is empty, or is not text.
    """

    __slots__ = ("_secret",)

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]  a caller without type checks
            raise ValueError(f"a pass phrase is text, not {type(text).__name__}")  # noqa: TRY004  as everything that is not a key
        if not text.strip():
            raise ValueError("a pass phrase must not be empty; choose five or more random words")
        try:
            material = unicodedata.normalize("NFKC", text).encode()
        except UnicodeEncodeError:
            raise ValueError("a pass phrase is Unicode text, and this one has half a surrogate pair") from None
        self._secret = Secret(SlotKind.PASSPHRASE, material)

    def __repr__(self) -> str:
        return "Passphrase(…)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a pass phrase cannot be pickled")

    def secret(self) -> Secret:
        """Return the secret that opens a slot."""
        return self._secret


KeySource = bytes | str | Passphrase | Callable[[], bytes | Awaitable[bytes]]
"""A key, or where to find it.

- 32 bytes, or base64 text of them, such as `new_key()` returns;
- `Passphrase("…")`;
- a recovery key, such as `new_recovery_key()` returns;
- `env:NAME` or `file:PATH`: a variable, or a file that belongs to this user and that no one else may read, with base64 text of 32
  bytes or a recovery key;
- `keyring:SERVICE/NAME`: an entry of the keyring of the operating system, with the same; it needs the extra `keyring`;
- `passphrase:` before one of these three, such as `passphrase:env:NAME`, if a pass phrase is there;
- a function that returns 32 bytes, for example from a KMS. It may be async, and is called by `async with` and whenever a store is opened.

A variable, a file or an entry is read again whenever a store is opened.
"""

KEY_BYTES = 32
_RECOVERY_BYTES = 20
_RECOVERY_SUM = 4
_RECOVERY_GROUPS = 9
_LETTERS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
"""The letters of Crockford's base 32, which leaves out letters that look like others."""
_SAME = str.maketrans("ILO", "110")
_FORMS = (
    "a key is 32 bytes, base64 text of 32 bytes (new_key() makes one), Passphrase('…'), a recovery key, 'env:NAME', 'file:PATH' or "
    "'keyring:SERVICE/NAME' of such text, the same after 'passphrase:', or a function that returns 32 bytes"
)
_HELD = "a key (base64 text of 32 bytes; new_key() makes one) or a recovery key"
_PLACES = ("env:", "file:", "keyring:")
_PASSPHRASE = "passphrase:"  # noqa: S105  the word before the place of one
_LONGEST = 4096
"""How many bytes a key file may have."""


def new_key() -> str:
    """Return a new key, as base64 text of 32 random bytes. Store it safely: data that are sealed with it cannot be read without it."""
    return base64.b64encode(os.urandom(KEY_BYTES)).decode("ascii")


def new_recovery_key() -> str:
    """Return a new recovery key: nine groups of four letters and digits, to be written down.

    Add it to a store with `store.keys.add("recovery", key)`; then it opens the store, wherever a key is asked for, when the
    others are lost. The last group is a checksum, by which a mistake in writing is found. Capitals do not matter, and the letters
    I, L and O are read as the digits 1, 1 and 0.
    """
    return _recovery_text(os.urandom(_RECOVERY_BYTES))


class HeldKey:
    """A checked key source. Its repr shows no key, and it cannot be pickled.

    Raises:
        ValueError: the value is not a key source. The message lists the key sources, and does not show the value.
        KeySourceError: the variable or the file that it names has no key.
        MissingExtraError: it names an entry of a keyring, and the extra `keyring` is not installed.
    """

    __slots__ = ("_found", "_source", "coming")

    def __init__(self, source: KeySource) -> None:
        self._found: Secret | None = None
        self.coming: HeldKey | None = None
        """The key that replaces this one by a commit that is being made, and opens the store as soon as it is made."""
        self._source: Secret | str | Callable[[], bytes | Awaitable[bytes]]
        if isinstance(source, Passphrase):
            self._source = source.secret()
        elif callable(source):
            self._source = source
        elif isinstance(source, str) and source.startswith((*_PLACES, _PASSPHRASE)):
            self._source = source
            _check_place(source)
        elif isinstance(source, str):
            self._source = _secret_in(source) or _refuse("this text is not a key")
        elif _is_key(source):
            self._source = Secret(SlotKind.KEY, source)
        else:
            _refuse(f"this value of type {type(source).__name__} is not a key")

    def __repr__(self) -> str:
        return "HeldKey(…)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a key cannot be pickled")

    def take(self, other: HeldKey) -> None:
        """Take over the source of another one, because that opens the store from now on."""
        self._source, self._found = other._source, other._found

    async def read(self) -> Secret:
        """Return the present secret that opens the store.

        Raises:
            KeySourceError: the variable, the file, the entry or the function has no key. Errors of a function are raised unchanged.
        """
        source = self._source
        if isinstance(source, str):
            found = await anyio.to_thread.run_sync(_from_place, source)
            if self._found is None or (found.kind, found.material) != (self._found.kind, self._found.material):
                self._found = found  # a key is derived only once from the same pass phrase
            return self._found
        if isinstance(source, Secret):
            return source
        given: object = await call(source)
        if not _is_key(given):
            raise KeySourceError("a function", "the function that was passed as key did not return 32 bytes")
        return Secret(SlotKind.KEY, given)


def _refuse(what: str) -> NoReturn:
    raise ValueError(f"{what}: {_FORMS}")


def _is_key(given: object) -> TypeGuard[bytes]:
    return isinstance(given, bytes) and len(given) == KEY_BYTES


def _secret_in(text: str) -> Secret | None:
    """Return the key or the recovery key in a text; None if it is neither.

    Raises:
        ValueError: it looks like a recovery key, but was written wrongly.
    """
    try:
        key = base64.b64decode(text.strip().encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        return _recovery_in(text)
    return Secret(SlotKind.KEY, key) if _is_key(key) else _recovery_in(text)


def _recovery_text(key: bytes) -> str:
    number = int.from_bytes(key, "big") << 5 * _RECOVERY_SUM
    number |= (
        int.from_bytes(hashlib.sha256(b"graphagent recovery key" + key).digest(), "big") >> 256 - 5 * _RECOVERY_SUM
    )
    letters = "".join(_LETTERS[number >> shift & 31] for shift in range(5 * (4 * _RECOVERY_GROUPS - 1), -1, -5))
    return "-".join(letters[at : at + 4] for at in range(0, len(letters), 4))


def _recovery_in(text: str) -> Secret | None:
    groups = text.strip().upper().translate(_SAME).replace("-", " ").split()
    letters = "".join(groups)
    if len(groups) < 2 and len(letters) != 4 * _RECOVERY_GROUPS:
        return None
    if not letters or not set(letters) <= set(_LETTERS):
        return None
    if len(letters) != 4 * _RECOVERY_GROUPS:
        if len(groups) < _RECOVERY_GROUPS - 2:
            return None
        raise ValueError(
            f"this recovery key has {len(letters)} letters and digits instead of {4 * _RECOVERY_GROUPS}; compare it with what was "
            f"written down"
        )
    number = 0
    for letter in letters:
        number = number << 5 | _LETTERS.index(letter)
    key = (number >> 5 * _RECOVERY_SUM).to_bytes(_RECOVERY_BYTES, "big")
    if _recovery_text(key).replace("-", "") != letters:
        raise ValueError(
            "this recovery key has a mistake in it, for its checksum is wrong; compare it with what was written down"
        )
    return Secret(SlotKind.RECOVERY, key)


def _check_place(source: str) -> None:
    """Check that a place has a key, as far as that takes no time and no permission of a person."""
    kind, _, name = source.removeprefix(_PASSPHRASE).partition(":")
    if f"{kind}:" not in _PLACES:
        raise ValueError(f"'passphrase:' stands before 'env:NAME', 'file:PATH' or 'keyring:SERVICE/NAME'; {_FORMS}")
    if not name:
        raise ValueError(f"the name after the colon is missing; {_FORMS}")
    if _secret_in(name) is not None or (kind == "env" and not name.isidentifier() and name not in os.environ):
        # Errors show the name of a place, so a text that may be a secret must not be treated as a name.
        _refuse(f"after '{kind}:' stands the name of a place, and this may be a key or a pass phrase itself")
    if kind != "keyring":
        _from_place(source)
    elif not all(name.rpartition("/")):
        raise ValueError(f"an entry of a keyring is named 'keyring:SERVICE/NAME'; {_FORMS}")
    elif find_spec("keyring") is None:
        raise MissingExtraError("a key in the keyring", "keyring")


def _from_place(source: str) -> Secret:
    kind, _, name = source.removeprefix(_PASSPHRASE).partition(":")
    if kind == "env":
        what, text = f"the environment variable {name!r}", os.environ.get(name)
        if text is None:
            wanted = "the pass phrase" if source.startswith(_PASSPHRASE) else _HELD
            raise KeySourceError(source, f"{what} is to hold the key, but is not set; set it to {wanted}")
    elif kind == "file":
        what, text = f"the key file {name!r}", _read_private(source, Path(name).expanduser())
    else:
        what, text = f"the entry {name!r} of the keyring", _from_keyring(source, name)
    try:
        secret = Passphrase(text.rstrip("\r\n")).secret() if source.startswith(_PASSPHRASE) else _secret_in(text)
    except ValueError as error:
        raise KeySourceError(source, f"{what} does not have the key: {error}") from None
    if secret is None:
        raise KeySourceError(
            source, f"{what} does not have {_HELD}; if it has a pass phrase, write passphrase:{source}"
        )
    return secret


def _read_private(source: str, path: Path) -> str:
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):  # such as a pipe, which would be empty when it is read again
                raise KeySourceError(source, f"the key file {str(path)!r} cannot be read: it is not a regular file")
            content = file.read(_LONGEST + 1)
        text = content.decode("utf-8-sig")
    except FileNotFoundError:
        raise KeySourceError(
            source, f"there is no key file {str(path)!r}; put the key there again, or make one: graphagent keys new"
        ) from None
    except KeySourceError:
        raise
    except OSError as error:
        raise KeySourceError(source, f"the key file {str(path)!r} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise KeySourceError(
            source, f"the key file {str(path)!r} is not text in UTF-8, and so has neither {_HELD} nor a pass phrase"
        ) from None
    if os.name != "nt" and (status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077):
        raise KeySourceError(
            source, f"the key file {str(path)!r} may be read by others; make it yours alone: chmod 600"
        )
    if len(content) > _LONGEST:
        raise KeySourceError(source, f"the key file {str(path)!r} is longer than {_LONGEST} bytes")
    return text


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # a pipe would wait for a writer


def put_in_keyring(entry: str, key: str) -> None:
    """Put a key into an entry `SERVICE/NAME` of the keyring, which must not exist yet.

    Raises:
        ValueError: `entry` does not have this form.
        KeySourceError: there is such an entry already, or the keyring is locked, or there is none that keeps secrets safely.
    """
    source = f"keyring:{entry}"
    _check_place(source)
    backends, text = _found_in_keyring(source, entry)
    if text is not None:
        raise KeySourceError(
            source, f"the keyring has an entry {entry!r} already, which may be the key of a store; name another one"
        )
    service, _, name = entry.rpartition("/")
    with _keyring_errors(source, entry):
        backends[0].set_password(service, name, key)  # pyright: ignore[reportUnknownMemberType]  its decorator has no types


def _from_keyring(source: str, entry: str) -> str:
    _, text = _found_in_keyring(source, entry)
    if text is None:
        make = f"graphagent keys new --keyring {entry}"
        raise KeySourceError(
            source, f"the keyring has no entry {entry!r}; put the key there again, or make one: {make}"
        )
    return text


def _found_in_keyring(source: str, entry: str) -> tuple[list[KeyringBackend], str | None]:
    """Return the backends that keep secrets, at least one, and their values of an entry."""
    import keyring

    service, _, name = entry.rpartition("/")
    with _keyring_errors(source, entry):
        backends = [each for each in _backends(keyring.get_keyring()) if _keeps_secrets(each)]
        texts = [text for each in backends if (text := each.get_password(service, name)) is not None]
    if not backends:
        raise KeySourceError(source, f"there is no keyring here that keeps secrets safely; {_INSTEAD}")
    return backends, texts[0] if texts else None


@contextmanager
def _keyring_errors(source: str, entry: str) -> Generator[None]:
    from keyring.errors import KeyringError, KeyringLocked

    try:
        yield
    except KeyringLocked:
        raise KeySourceError(
            source, f"the keyring is locked, so its entry {entry!r} cannot be used; unlock it and try again"
        ) from None
    except KeyringError as error:
        raise KeySourceError(source, f"the keyring cannot be used ({type(error).__name__}); {_INSTEAD}") from None


_INSTEAD = (
    "on a server without a desktop, keep the key in 'file:PATH' or 'env:NAME', or pass a function that asks your KMS"
)


def _backends(keyring: KeyringBackend) -> list[KeyringBackend]:
    """Return the backends that a keyring asks one after another, or itself."""
    chained: list[KeyringBackend] | None = getattr(keyring, "backends", None)
    return [keyring] if chained is None else list(chained)


def _keeps_secrets(backend: KeyringBackend) -> bool:
    from keyring.backends import fail, null

    return not isinstance(backend, fail.Keyring | null.Keyring) and "Plaintext" not in type(backend).__name__
