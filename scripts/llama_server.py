"""Serves a model with llama.cpp: `llama_server.py FILE PORT KEY`, in an environment with xllamacpp, until the process is ended."""

from __future__ import annotations

import sys
import threading

import xllamacpp


def main() -> None:
    """Serve the file on loopback."""
    file, port, key = sys.argv[1:]
    settings = xllamacpp.CommonParams()
    settings.model.path = file
    settings.model_alias = {"tiny"}
    settings.hostnames = ["127.0.0.1"]
    settings.port = int(port)
    settings.api_keys = [key]
    settings.n_ctx = 4096
    settings.n_parallel = 1
    settings.warmup = False
    server = xllamacpp.Server(settings)  # it serves as long as the object exists
    threading.Event().wait()
    del server


if __name__ == "__main__":
    main()
