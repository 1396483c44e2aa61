"""Embedders made from a dictionary that names a provider, as in crewAI's settings."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os import environ
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from graphagent.embed._callable import CallableEmbedder

if TYPE_CHECKING:
    from graphagent.protocols import Embedder

_RECIPES = "docs/embedders.md"


@dataclass(frozen=True)
class _Hosted:
    """A service with an OpenAI-compatible endpoint for embeddings."""

    model: str
    """The model if the settings name none."""
    key: tuple[str, ...] = ()
    """Environment variables that may hold the key; the first one set is used."""
    base_url: str | None = None


_HOSTED = {
    "openai": _Hosted("text-embedding-3-small", ("OPENAI_API_KEY",)),
    "google-generativeai": _Hosted(
        "gemini-embedding-001",
        ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
        "https://generativelanguage.googleapis.com/v1beta/openai",
    ),
    "cohere": _Hosted("embed-english-v3.0", ("COHERE_API_KEY",), "https://api.cohere.ai/compatibility/v1"),
    "voyageai": _Hosted("voyage-3", ("VOYAGE_API_KEY",), "https://api.voyageai.com/v1"),
    "jina": _Hosted("jina-embeddings-v2-base-en", ("JINA_API_KEY",), "https://api.jina.ai/v1"),
}
_ADDRESSES = ("api_base", "url")
"""The settings whose value is an address."""
_OWN_CLIENTS = ("amazon-bedrock", "google-vertex", "huggingface", "sentence-transformer", "watsonx")


def embedder_from(config: Mapping[str, Any]) -> Embedder:
    """Return the embedder described by `{"provider": name, "config": {…}}`.

    Without a key in the settings, the key is read from the environment.

    Raises:
        ValueError: The provider or a setting is unknown, a setting is missing or has the wrong type, or the provider needs its
            own client, for which docs/embedders.md has a recipe.
    """
    parts = dict(config) if isinstance(config, Mapping) else {}  # pyright: ignore[reportUnnecessaryIsInstance]  the value may come from a file
    provider = parts.pop("provider", None)
    settings: object = parts.pop("config", None) or {}
    if parts or not isinstance(provider, str) or not isinstance(settings, Mapping):
        raise ValueError("an embedder is described as {'provider': 'openai', 'config': {'model_name': '…'}}")
    given = _Settings(provider, cast("Mapping[str, Any]", settings))
    if provider in _HOSTED:
        return _hosted(_HOSTED[provider], given)
    if provider in _MAKERS:
        return _MAKERS[provider](given)
    if provider in _OWN_CLIENTS:
        raise ValueError(
            f"provider {provider!r} needs its own client; {_RECIPES} has a few lines that wrap it in a CallableEmbedder"
        )
    there = ", ".join(sorted([*_HOSTED, *_MAKERS, *_OWN_CLIENTS]))
    raise ValueError(
        f"there is no provider {provider!r}; the providers are {there}. For a server that speaks OpenAI's protocol, use 'openai' "
        f"with an api_base"
    )


class _Settings:
    """The settings of one provider. Messages never show a value, since it may be a key."""

    def __init__(self, provider: str, given: Mapping[str, Any]) -> None:
        self.provider = provider
        self._given = given

    def allow(self, *names: str) -> None:
        unknown = sorted(str(name) for name in self._given if name not in names)
        if unknown:
            raise ValueError(
                f"provider {self.provider!r} has no setting {unknown[0]!r}; it has {', '.join(sorted(names))}"
            )

    def text(self, *names: str, default: str | None = None, variables: tuple[str, ...] = ()) -> str | None:
        """Return the first setting in `names` that is set, else the first variable that is set, else the default."""
        for name in names:
            value = self._given.get(name)
            if value is not None:
                if not isinstance(value, str) or not value:
                    raise ValueError(f"setting {name!r} of provider {self.provider!r} is not text")
                if name in _ADDRESSES and re.match(r"https?://[^/]", value) is None:
                    raise ValueError(
                        f"setting {name!r} of provider {self.provider!r} is not an address such as 'http://localhost:11434'"
                    )
                return value
        return next((environ[each] for each in variables if environ.get(each)), default)

    def needed(self, *names: str, variables: tuple[str, ...] = ()) -> str:
        value = self.text(*names, variables=variables)
        if value is None:
            raise ValueError(f"provider {self.provider!r} needs the setting {names[0]!r}")
        return value

    def number(self, name: str) -> int | None:
        value = self._given.get(name)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise ValueError(f"setting {name!r} of provider {self.provider!r} is not an integer of at least 1")
        return value

    def any(self, name: str) -> Any:
        return self._given.get(name)


def _hosted(service: _Hosted, given: _Settings) -> Embedder:
    from graphagent.embed.openai import OpenAIEmbedder

    given.allow("model", "model_name", "api_key", "api_base", "dimensions")
    model = given.text("model_name", "model", default=service.model)
    own = given.text("api_base")
    return OpenAIEmbedder(
        cast(str, model),
        base_url=own or service.base_url,
        # The key in the environment is meant for the service itself, not for another address.
        api_key=given.text("api_key", variables=() if own else service.key),
        dimensions=given.number("dimensions"),
    )


def _ollama(given: _Settings) -> Embedder:
    from graphagent.embed.openai import OpenAIEmbedder

    given.allow("model", "model_name", "url")
    model = given.text("model_name", "model", default="mxbai-embed-large")
    url = given.text("url", default="http://localhost:11434")
    return OpenAIEmbedder(cast(str, model), base_url=_v1(cast(str, url)))


def _azure(given: _Settings) -> Embedder:
    from graphagent.embed.openai import OpenAIEmbedder

    given.allow("deployment_id", "model", "model_name", "api_key", "api_base", "api_version", "dimensions")
    deployment = given.needed("deployment_id")
    place = given.needed("api_base", variables=("AZURE_OPENAI_ENDPOINT",)).rstrip("/")
    key = given.text("api_key", variables=("AZURE_OPENAI_API_KEY",))
    version = given.text("api_version", variables=("OPENAI_API_VERSION",))
    if version is None:
        return OpenAIEmbedder(
            deployment, base_url=f"{place}/openai/v1", api_key=key, dimensions=given.number("dimensions")
        )
    return OpenAIEmbedder(
        deployment,
        base_url=f"{place}/openai/deployments/{deployment}",
        headers={"api-key": key} if key else {},
        query={"api-version": version},
        dimensions=given.number("dimensions"),
    )


def _custom(given: _Settings) -> Embedder:
    given.allow("embedding_callable", "name")
    function = given.any("embedding_callable")
    if isinstance(function, type):  # crewAI accepts a class whose objects are callable
        function = cast("Callable[[], Any]", function)()
    if not callable(function):
        raise ValueError(  # noqa: TRY004  settings may come from a file, so a wrong type is a wrong value
            "provider 'custom' needs the setting 'embedding_callable', a function of a list of texts"
        )
    return CallableEmbedder(cast("Callable[[list[str]], Any]", function), name=given.text("name"))


_MAKERS: dict[str, Callable[[_Settings], Embedder]] = {"azure": _azure, "custom": _custom, "ollama": _ollama}


def _v1(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}/v1"
