"""What sealing costs: a durable save, a point read and the sealing itself, against a bare SQLite commit on the same disk.

Run: `python benchmarks/store_cost.py [FOLDER] [COUNT …]`. Saves of both kinds alternate, so that both meet the same disk.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from pathlib import Path

import anyio
import apsw

from graphagent.store import EncryptedStore, Put, SqliteStore
from graphagent.store.sealed._format import associated_data, fresh_keys, seal

VALUE = bytes(range(250)) * 4
SAVES = 300


def bare(path):
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA secure_delete=ON").fetchall()
    connection.execute(
        "CREATE TABLE IF NOT EXISTS items (key BLOB PRIMARY KEY, version INTEGER, value BLOB) WITHOUT ROWID"
    )
    return connection


def quantile(seconds, tenths):
    return sorted(seconds)[len(seconds) * tenths // 10] * 1e6


def micro(seconds):
    return " ".join(f"{quantile(seconds, tenths):7.0f} p{tenths}0" for tenths in (1, 5, 9)) + " µs"


def key_of(number):
    return ("facts", "owner", "product", "app", "user", f"keyword-{number % 100}", number)


async def measure(folder, count):
    store = EncryptedStore(SqliteStore(folder / f"sealed-{count}.db"), bytes(32), domains={"facts": 5})
    plain = SqliteStore(folder / f"plain-{count}.db")
    connection = bare(folder / f"bare-{count}.db")
    for start in range(0, count, 5000):
        puts = [Put(key_of(number), VALUE) for number in range(start, min(count, start + 5000))]
        await store.commit(*puts)
        await plain.commit(*puts)
        with connection:
            connection.executemany(
                "INSERT INTO items VALUES (?, 1, ?)", [(str(put.key).encode(), VALUE) for put in puts]
            )
    for each in (store, plain, connection):
        await each.aclose() if each is not connection else connection.close()
    connection = bare(folder / f"bare-{count}.db")  # all three begin with an empty log
    began = time.perf_counter()
    await store.get(key_of(0))
    print(f"{count:>7} records: first touch {(time.perf_counter() - began) * 1000:.1f} ms")
    timings = {"bare": [], "plain": [], "sealed": []}

    async def bare_commit(put):
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO items VALUES (?, 1, ?)", (str(put.key).encode(), put.value))
        connection.execute("COMMIT")

    ways = [("bare", bare_commit), ("plain", plain.commit), ("sealed", store.commit)]
    for number in range(count, count + SAVES):
        random.shuffle(ways)
        for name, commit in ways:
            began = time.perf_counter()
            await commit(Put(key_of(number), VALUE))
            timings[name].append(time.perf_counter() - began)
    for name, seconds in timings.items():
        quiet, usual = (quantile(seconds, tenths) / quantile(timings["bare"], tenths) for tenths in (1, 5))
        print(f"        save, {name:7} {micro(seconds)}   {quiet:.2f} × bare at p10, {usual:.2f} × at p50")
    reads = []
    for number in range(count, count + SAVES):
        began = time.perf_counter()
        await store.get(key_of(number))
        reads.append(time.perf_counter() - began)
    print(f"        read, sealed  {micro(reads)}")
    await store.aclose()
    await plain.aclose()


def sealing():
    key, number, seconds = fresh_keys()[0], 5000, []
    for _ in range(5):
        began = time.process_time()
        for _ in range(number):
            seal(key, associated_data(bytes(16), b"item", bytes(160), 3), VALUE)
        seconds.append((time.process_time() - began) / number)
    print(f"sealing {len(VALUE)} bytes: {min(seconds) * 1e6:.1f} µs CPU")


async def main(folder, counts):
    sealing()
    for count in counts:
        await measure(folder, count)


if __name__ == "__main__":
    parent = sys.argv[1] if len(sys.argv) > 1 else None
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        anyio.run(main, Path(folder), [int(each) for each in sys.argv[2:]] or [10, 1000, 100_000])
