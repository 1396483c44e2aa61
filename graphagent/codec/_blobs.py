"""Blobs: large payloads that are stored outside the data that they belong to, under their hash."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from graphagent.codec._errors import DecodeError


class Blobs(Protocol):
    """Stores payloads under their hashes and finds them again."""

    def put(self, data: bytes) -> str:
        """Store bytes and return their hash."""
        ...

    def get(self, name: str) -> bytes:
        """Return the bytes of a hash.

        Raises:
            ValueError: they are missing, or do not have this hash.
        """
        ...


class HeldBlobs:
    """Blobs in memory."""

    def __init__(self, held: Mapping[str, bytes] | None = None) -> None:
        self.held: dict[str, bytes] = dict(held or {})

    def put(self, data: bytes) -> str:
        """Store bytes and return their hash."""
        name = hash_of(data)
        self.held[name] = data
        return name

    def get(self, name: str) -> bytes:
        """Return the bytes of a hash.

        Raises:
            ValueError: they are missing, or do not have this hash.
        """
        data = self.held.get(name)
        if data is None:
            raise DecodeError("a payload that stands apart is missing")
        if hash_of(data) != name:
            raise DecodeError("a payload that is stored apart has changed")
        return data


def hash_of(data: bytes) -> str:
    """Return the hash of bytes: 24 hex digits of their BLAKE2b."""
    import hashlib

    return hashlib.blake2b(data, digest_size=12).hexdigest()
