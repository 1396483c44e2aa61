#!/usr/bin/env bash
# ML-KEM-768 with another private key, or with a ciphertext that has changed on the way.
# Guess: `decapsulate` raises, as decrypting with RSA-OAEP or AES-GCM does.
# What happens: it returns 32 bytes, the same ones each time, that nobody else knows. By design (implicit rejection): whoever sends ciphertexts
#   must not learn whether they fit. Nothing but a wrong length is an error.
# For users: that decapsulation went through says nothing about the key. A key that is used for a cipher without authentication, or stored
#   away, is wrong without anybody noticing; a test of "the wrong key is refused" belongs to the next layer.
# In graphagent: keys are sealed by HPKE, whose AES-GCM does raise: a wrong key is a WrongKeyError (graphagent/store/sealed/_slots.py,
#   tests/store/sealed/test_keys.py).
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
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

print("cryptography", version("cryptography"))
print("guess: an error, three times")

own, other = (MLKEM768PrivateKey.from_seed_bytes(bytes([number]) * 64) for number in (1, 2))
secret, ciphertext = own.public_key().encapsulate()
changed = bytes([ciphertext[0] ^ 1]) + ciphertext[1:]


def decapsulated(key, ciphertext):
    try:
        found = key.decapsulate(ciphertext)
    except (ValueError, InvalidTag) as error:
        return type(error).__name__
    same = found == key.decapsulate(ciphertext)
    return f"{len(found)} bytes, {'the secret' if found == secret else 'others'}, {'' if same else 'not '}the same when repeated"


compare("the right key", decapsulated(own, ciphertext), "32 bytes, the secret, the same when repeated")
compare("another key", decapsulated(other, ciphertext), "32 bytes, others, the same when repeated")
compare("a changed ciphertext", decapsulated(own, changed), "32 bytes, others, the same when repeated")
compare("one byte less", decapsulated(own, ciphertext[:-1]), "ValueError")

suite = Suite(KEM.MLKEM768, KDF.HKDF_SHA256, AEAD.AES_256_GCM)
sealed = suite.encrypt(b"a text", own.public_key(), b"")
try:
    seen = suite.decrypt(sealed, other, b"")
except InvalidTag:
    seen = "InvalidTag"
compare("HPKE on top, another key", seen, "InvalidTag")
PYTHON
venv/bin/python program.py
