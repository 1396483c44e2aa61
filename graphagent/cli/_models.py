"""The model of a command, and the options that choose it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from graphagent.cli._options import option, value_of

if TYPE_CHECKING:
    from graphagent.cli.offline import OfflineModel
    from graphagent.llm.openai import OpenAIModel

BaseUrl = Annotated[
    str | None,
    option(
        "--base-url",
        "URL",
        "The server, such as http://localhost:11434/v1 for Ollama. Default: OpenAI, with OPENAI_API_KEY.",
    ),
]
KeyVariable = Annotated[
    str | None,
    option(
        "--api-key-env",
        "NAME",
        "The environment variable with that server's key; an OpenAI key is never sent elsewhere.",
    ),
]


def model_of(name: str, base_url: str | None, key_variable: str | None) -> OfflineModel | OpenAIModel:
    """Return the model chosen by the options of the command.

    Raises:
        BadParameter: the options do not fit together, or a key is missing.
    """
    if name == "offline":
        if base_url is not None:
            raise typer.BadParameter(
                "--base-url needs --model NAME: the offline model uses no server", param_hint="--model"
            )
        from graphagent.cli.offline import OfflineModel

        return OfflineModel()
    api_key = os.environ.get(key_variable) if key_variable else None
    if key_variable and not api_key:
        raise typer.BadParameter(f"the environment variable {key_variable!r} is not set", param_hint="--api-key-env")
    if not (base_url or api_key or os.environ.get("OPENAI_API_KEY") or os.environ.get("OPENAI_BASE_URL")):
        raise typer.BadParameter(
            f"{name!r} needs OPENAI_API_KEY in the environment, or --base-url of a server such as "
            f"http://localhost:11434/v1; without both there is --model offline",
            param_hint="--model",
        )
    from graphagent.llm.openai import OpenAIModel

    with value_of("--base-url"):
        return OpenAIModel(name, base_url=base_url, api_key=api_key)
