"""Checks the encryption of sealed stores with the AES-GCM vectors of the project Wycheproof, and prints what passes as a table.

`python -m scripts.wycheproof PATH` does it, with the path of `testvectors_v1/aes_gcm_test.json` of github.com/C2SP/wycheproof, which
is not part of graphagent. A sealed store encrypts with keys of 32 bytes and nonces of 12, so these vectors count.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graphagent.store.sealed._format import UnreadableError, decrypt, encrypt


def main(arguments: list[str]) -> int:
    """Check every vector. Return 1 if one is not treated as it says, 2 without a file."""
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    counts, wrong = checked(json.loads(Path(arguments[0]).read_text("utf-8")))
    print("| vectors | what they try | right |\n| --- | ---: | ---: |")
    for (result, flags), (count, right) in sorted(counts.items()):
        print(f"| {result} | {flags} | {right} of {count} |")
    for name in wrong:
        print(f"wrong: {name}", file=sys.stderr)
    return bool(wrong)


def checked(vectors: Mapping[str, Any]) -> tuple[dict[tuple[str, str], tuple[int, int]], list[str]]:
    """Return for each kind of vector how many there are and how many are treated as they say, and the names of the others."""
    counts, right, wrong = Counter[tuple[str, str]](), Counter[tuple[str, str]](), list[str]()
    for group in vectors["testGroups"]:
        if (group["keySize"], group["ivSize"], group["tagSize"]) != (256, 96, 128):
            continue
        for vector in group["tests"]:
            kind = vector["result"], ", ".join(vector["flags"])
            counts[kind] += 1
            if _is_right(vector):
                right[kind] += 1
            else:
                wrong.append(f"{vector['tcId']}: {vector['comment']}")
    return {kind: (count, right[kind]) for kind, count in counts.items()}, wrong


def _is_right(vector: Mapping[str, Any]) -> bool:
    key, nonce, data, text = (bytes.fromhex(vector[name]) for name in ("key", "iv", "aad", "msg"))
    encrypted = bytes.fromhex(vector["ct"] + vector["tag"])
    try:
        opened = decrypt(key, encrypted, data, nonce)
    except UnreadableError:
        return bool(vector["result"] == "invalid")
    return vector["result"] == "valid" and opened == text and encrypt(key, text, data, nonce) == encrypted


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
