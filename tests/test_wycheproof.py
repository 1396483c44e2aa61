"""The script that checks Wycheproof's vectors counts what is right, and tells what is not."""

from __future__ import annotations

import json

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from scripts import wycheproof


def vectors():
    """Two vectors of our own in Wycheproof's form, one of them with a changed tag, and a group with another nonce."""
    key, nonce, data, text = bytes(range(32)), bytes(12), b"data", b"text"
    encrypted = AESGCM(key).encrypt(nonce, text, data)
    valid = {"tcId": 1, "comment": "", "flags": ["Ktv"], "key": key.hex(), "iv": nonce.hex(), "aad": data.hex()}
    valid |= {"msg": text.hex(), "ct": encrypted[:-16].hex(), "tag": encrypted[-16:].hex(), "result": "valid"}
    invalid = {**valid, "tcId": 2, "flags": ["ModifiedTag"], "tag": bytes(16).hex(), "result": "invalid"}
    group = {"keySize": 256, "ivSize": 96, "tagSize": 128, "tests": [valid, invalid]}
    return {"testGroups": [group, {**group, "ivSize": 64}]}


def test_vectors_are_counted_by_kind():
    """Both are right, and those with nonces of other sizes do not count."""
    assert wycheproof.checked(vectors()) == ({("valid", "Ktv"): (1, 1), ("invalid", "ModifiedTag"): (1, 1)}, [])


def test_a_vector_that_is_treated_otherwise_is_named(tmp_path, capsys):
    """A vector that says otherwise is named, and the script ends with 1."""
    wrong = vectors()
    [valid, invalid] = wrong["testGroups"][0]["tests"]
    valid["result"], invalid["result"], valid["comment"] = "invalid", "valid", "turned"
    file = tmp_path / "vectors.json"
    file.write_text(json.dumps(wrong))
    assert wycheproof.main([str(file)]) == 1
    out, err = capsys.readouterr()
    assert "| invalid | Ktv | 0 of 1 |" in out
    assert "wrong: 1: turned" in err
    assert wycheproof.main([]) == 2
