#!/usr/bin/env bash
# Keys of X25519 whose bytes differ.
# Guess: they are different keys. One private key that was copied with a wrong bit opens nothing; and if two public keys agree on the same
#   secret with everybody, they are equal.
# What happens: five of the 256 bits of a private key do not count, and one of a public key. 32 private keys are the same one: cryptography
#   keeps their bytes as they are, and they have equal public keys. A public key with its highest bit set agrees on the same secret, but is
#   unequal; and what HPKE seals for it is not opened by the private key, since HPKE binds the bytes of the public key.
# For users: neither a comparison of key bytes nor their hash says whether two keys are the same, and a copy with a wrong bit may pass a test.
#   Compare private keys by their public keys, and store public keys as `public_bytes_raw` of the private key returned them.
# In graphagent: private keys are derived, and public keys come from them (graphagent/store/sealed/_slots.py); written keys are of 32 bytes that all
#   count, and a recovery key has a checksum (graphagent/store/sealed/_key_sources.py).
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


from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

print("cryptography", version("cryptography"))
print("guess: 1 public key of a private key, 256 of those with another bit; what agrees is equal, and HPKE opens it")

BYTES = bytes(range(32))
own = X25519PrivateKey.from_private_bytes(BYTES)
others = [(int.from_bytes(BYTES, "little") ^ 1 << bit).to_bytes(32, "little") for bit in range(256)]
keys = [X25519PrivateKey.from_private_bytes(each) for each in others]
same = [bit for bit, key in enumerate(keys) if key.public_key() == own.public_key()]
compare("bits of the private key that do not count", same, [0, 1, 2, 254, 255])
compare("their bytes are kept as given", [key.private_bytes_raw() for key in keys] == others, True)

raw = own.public_key().public_bytes_raw()
twin = X25519PublicKey.from_public_bytes(raw[:31] + bytes([raw[31] ^ 0x80]))
peer = X25519PrivateKey.from_private_bytes(bytes(range(1, 33)))
compare("the public key with another highest bit agrees", peer.exchange(twin) == peer.exchange(own.public_key()), True)
compare("and is equal", twin == own.public_key(), False)

suite = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)


def opened(public, private):
    try:
        return suite.decrypt(suite.encrypt(b"a text", public, b""), private, b"")
    except InvalidTag:
        return "InvalidTag"


compare("HPKE opens, with another private key that is the same", opened(own.public_key(), keys[0]), b"a text")
compare("HPKE opens what was sealed for the twin", opened(twin, own), "InvalidTag")
PYTHON
venv/bin/python program.py
