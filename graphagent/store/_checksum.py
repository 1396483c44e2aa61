"""Values with a checksum: a plain store returns whatever bytes are in the file."""

from __future__ import annotations

import zlib


def checked(data: bytes) -> bytes:
    """Return bytes after their CRC-32, which takes four bytes."""
    return zlib.crc32(data).to_bytes(4, "big") + data


def is_intact(value: bytes) -> bool:
    """Return whether bytes fit their checksum."""
    return len(value) > 4 and zlib.crc32(memoryview(value)[4:]) == int.from_bytes(value[:4], "big")


def unchecked(value: bytes) -> bytes:
    """Return bytes without their checksum.

    Raises:
        ValueError: they do not fit it.
    """
    if not is_intact(value):
        raise ValueError("checksum mismatch")
    return value[4:]
