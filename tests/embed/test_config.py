"""Settings as crewAI has them: which embedder each makes, and what is wrong with one."""

from __future__ import annotations

import pytest

from graphagent.embed import embedder_from
from graphagent.embed.openai import OpenAIEmbedder
from graphagent.testing import openai_server

VARIABLES = (
    "OPENAI_API_KEY", "GOOGLE_API_KEY", "GEMINI_API_KEY", "COHERE_API_KEY", "VOYAGE_API_KEY", "JINA_API_KEY",
    "AZURE_OPENAI_API_KEY", "AZURE_OPENAI_ENDPOINT", "OPENAI_API_VERSION", "OPENAI_BASE_URL",
)  # fmt: skip


def key_of(embedder):
    return embedder._server._api_key


@pytest.fixture(autouse=True)
def no_variables(monkeypatch):
    for each in VARIABLES:
        monkeypatch.delenv(each, raising=False)


@pytest.mark.parametrize(
    ("provider", "settings", "shown", "variable"),
    [
        ("openai", {"model_name": "text-embedding-3-small"}, "'text-embedding-3-small'", None),
        ("google-generativeai", {"model_name": "gemini-embedding-001"}, "'gemini-embedding-001' at generativelanguage.googleapis.com", "GOOGLE_API_KEY"),
        ("cohere", {"model_name": "embed-english-v3.0"}, "'embed-english-v3.0' at api.cohere.ai", "COHERE_API_KEY"),
        ("voyageai", {"model": "voyage-3"}, "'voyage-3' at api.voyageai.com", "VOYAGE_API_KEY"),
        ("jina", {"model_name": "jina-embeddings-v2-base-en"}, "'jina-embeddings-v2-base-en' at api.jina.ai", "JINA_API_KEY"),
    ],
)  # fmt: skip
def test_services_that_speak_the_protocol(monkeypatch, provider, settings, shown, variable):
    """They become an OpenAIEmbedder with their address, and their key from the settings or the environment."""
    embedder = embedder_from({"provider": provider, "config": settings})
    assert isinstance(embedder, OpenAIEmbedder)
    assert repr(embedder) == f"<OpenAIEmbedder: embedder {shown}>"
    assert key_of(embedder) is None
    if variable:
        monkeypatch.setenv(variable, "from the environment")
        assert key_of(embedder_from({"provider": provider, "config": settings})) == "from the environment"
    assert key_of(embedder_from({"provider": provider, "config": {**settings, "api_key": "own"}})) == "own"
    assert embedder_from({"provider": provider}).name == embedder.name


async def test_any_server_of_the_protocol(monkeypatch):
    """With an api_base the request goes there, and the service's key from the environment does not."""
    monkeypatch.setenv("OPENAI_API_KEY", "topsecret")
    with openai_server([]) as server:
        settings = {"model_name": "m", "api_base": server.base_url, "dimensions": 8}
        async with embedder_from({"provider": "openai", "config": settings}) as embedder:
            [vector] = await embedder.embed(["text"])
    assert len(vector) == 8
    assert "authorization" not in server.headers[0]


async def test_ollama():
    """Its address may be that of its older endpoint; no key is sent."""
    with openai_server([]) as server:
        url = server.base_url.replace("/v1", "/api/embeddings")
        settings = {"model_name": "mxbai-embed-large", "url": url}
        async with embedder_from({"provider": "ollama", "config": settings}) as embedder:
            await embedder.embed(["text"])
    assert server.requests == [{"model": "mxbai-embed-large", "input": ["text"]}]
    assert "authorization" not in server.headers[0]
    assert repr(embedder_from({"provider": "ollama"})).endswith("'mxbai-embed-large' at localhost:11434>")


async def test_azure(monkeypatch):
    """With a version, the deployment's own address and the header api-key; without, Azure's address of version 1."""
    with openai_server([]) as server:
        base = server.base_url.removesuffix("/v1")
        given = {"deployment_id": "d", "api_key": "own", "api_base": f"{base}/", "api_version": "2024-02-01"}
        embedder = embedder_from({"provider": "azure", "config": given})
        assert embedder._server._base_url == f"{base}/openai/deployments/d"
        embedder._server._base_url = server.base_url
        async with embedder:
            await embedder.embed(["text"])
    assert server.headers[0]["api-key"] == "own"
    assert "authorization" not in server.headers[0]
    assert embedder._server._settings["default_query"] == {"api-version": "2024-02-01"}
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "https://a.openai.azure.com")
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "from the environment")
    newer = embedder_from({"provider": "azure", "config": {"deployment_id": "d"}})
    assert (newer._server._base_url, key_of(newer)) == ("https://a.openai.azure.com/openai/v1", "from the environment")


async def test_a_function_of_ones_own():
    """A function is taken, and so is the class of an object that is called."""

    class Embed:
        def __call__(self, input):
            return [[1.0]] * len(input)

    for function in (Embed, Embed(), lambda texts: [[1.0]] * len(texts)):
        embedder = embedder_from({"provider": "custom", "config": {"embedding_callable": function, "name": "own-1"}})
        assert await embedder.embed(["a", "b"]) == [[1.0], [1.0]]


@pytest.mark.parametrize(
    "provider", ["amazon-bedrock", "google-vertex", "huggingface", "sentence-transformer", "watsonx"]
)
def test_providers_with_clients_of_their_own_have_a_recipe(provider):
    """The error says where it is."""
    with pytest.raises(ValueError, match=rf"provider '{provider}' .* docs/embedders.md"):
        embedder_from({"provider": provider, "config": {"model_name": "m"}})


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({}, "an embedder is described as"),
        ("openai", "an embedder is described as"),
        ({"provider": "openai", "settings": {}}, "an embedder is described as"),
        ({"provider": "openai", "config": ["m"]}, "an embedder is described as"),
        ({"provider": "opnai"}, "there is no provider 'opnai'; the providers are amazon-bedrock, azure, cohere, custom, google-generat"),
        ({"provider": "jina", "config": {"modl": "m"}}, "'jina' has no setting 'modl'; it has api_base, api_key, dim"),
        ({"provider": "jina", "config": {"api_key": 7}}, "setting 'api_key' of provider 'jina' is not text"),
        ({"provider": "jina", "config": {"dimensions": 0}}, "setting 'dimensions' of provider 'jina' is not an integer of at"),
        ({"provider": "ollama", "config": {"url": "me:secret"}}, "setting 'url' of provider 'ollama' is not an address such as"),
        ({"provider": "azure"}, "provider 'azure' needs the setting 'deployment_id'"),
        ({"provider": "custom"}, "needs the setting 'embedding_callable'"),
    ],
)  # fmt: skip
def test_wrong_settings_say_what_there_is(config, said):
    """Providers and settings that are unknown, missing or of another type."""
    with pytest.raises(ValueError, match=said) as raised:
        embedder_from(config)
    assert "secret" not in str(raised.value)
