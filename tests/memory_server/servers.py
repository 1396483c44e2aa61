"""Memory servers in processes of their own, and a client that writes and reads their lines itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from mcp import StdioServerParameters

from tests import forkserver


def stdio(*words, **env):
    """Return how the SDK's client starts `graphagent mcp`."""
    command, *given = forkserver.words("-m", "graphagent", "mcp", *words)
    kept = {name: os.environ[name] for name in ("GRAPHAGENT_HOME", "PYTHONPATH") if name in os.environ}
    return StdioServerParameters(command=command, args=given, env={**kept, **env})


class Raw:
    """A server that can be killed, with its process id, and its lines as they are."""

    def __init__(self, *words, **env):
        self.process = forkserver.Popen(
            [sys.executable, "-m", "graphagent", "mcp", *map(str, words)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | env,
        )  # fmt: skip
        info = {"name": "raw", "version": "1"}
        self.send("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=info)

    def begin(self):
        """Wait for the handshake."""
        assert "serverInfo" in self.receive()["result"]
        self._write({"method": "notifications/initialized"})
        return self

    def send(self, method, id_=0, /, **params):
        self._write({"id": id_, "method": method, "params": params})

    def call(self, id_, tool, **arguments):
        self.send("tools/call", id_, name=tool, arguments=arguments)

    def receive(self):
        """Return the next message, or None at the end."""
        line = self.process.stdout.readline()
        return json.loads(line) if line.endswith(b"\n") else None

    def _write(self, message):
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self.process.stdin.flush()

    def end(self):
        """Close its standard input, as hosts do; return its exit code and what it said."""
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err.decode()
