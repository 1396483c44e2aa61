#!/usr/bin/env bash
# Two keys of different lengths, derived from the same secret, salt and info.
# Guess: they have nothing in common, as hashes of different inputs have; the length is a parameter like the others.
# What happens: with HKDF, PBKDF2 and scrypt the shorter one is the beginning of the longer one, all of it. With Argon2id, which hashes the
#   length too, they differ.
# For users: a longer key for one purpose beside a shorter one for another, such as an id that is stored openly, gives that part of the key away;
#   so does raising the length in a new version and showing a fingerprint of the old one. Different purposes want a different info.
# In graphagent: each purpose has its own info, and lengths are fixed by the format (docs/format.md).
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check cryptography==50.0.2
cd "$folder"

cat >program.py <<'PYTHON'
import sys
from importlib.metadata import version


def compare(what, seen, recorded):
    print(f"seen: {what}: {seen}")
    if seen != recorded:
        sys.exit(f"CHANGED: it was {recorded}")


from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.kdf.pbkdf2 import PBKDF2HMAC
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

print("cryptography", version("cryptography"))
print("guess: False, four times")

SALT = bytes(range(16))
WAYS = {
    "HKDF": (lambda length: HKDF(SHA256(), length, salt=SALT, info=b"purpose"), True),
    "PBKDF2": (lambda length: PBKDF2HMAC(SHA256(), length, salt=SALT, iterations=1000), True),
    "scrypt": (lambda length: Scrypt(salt=SALT, length=length, n=2**10, r=8, p=1), True),
    "Argon2id": (lambda length: Argon2id(salt=SALT, length=length, iterations=1, lanes=1, memory_cost=1024), False),
}
for name, (make, recorded) in WAYS.items():
    short, long = (make(length).derive(b"the secret of Ada") for length in (32, 64))
    compare(f"{name}: 64 bytes begin with the 32 bytes", long[:32] == short, recorded)
PYTHON
venv/bin/python program.py
