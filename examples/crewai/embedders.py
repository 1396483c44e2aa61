"""Embedders: the blocks 19 to 32 of crewAI's page on memory. A server of the standard library stands in for every service.

Comparing vectors takes numpy: pip install '.[static]'

python examples/crewai/embedders.py
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from graphagent.embed import CallableEmbedder, embedder_from
from graphagent.embed.openai import OpenAIEmbedder
from graphagent.memory import Notes
from graphagent.testing import openai_server

if TYPE_CHECKING:
    from graphagent.protocols import Embedder

SAID = ["Our staging environment uses port 8080.", "The team agreed to use feature flags."]


async def finds(folder: Path, number: str, embedder: Embedder) -> None:
    """Keep two notes with an embedder, and find one by its vector."""
    async with Notes(folder / f"{number}.db", embedder=embedder) as notes:
        await notes.remember_many(SAID)
        [match] = await notes.recall("port of staging", limit=1)
        assert match.record.content == SAID[0]
        assert "semantic" in match.reasons
        print(number, embedder.name)
    if isinstance(embedder, OpenAIEmbedder):
        await embedder.aclose()


# 19 Given to the memory


async def given(folder: Path, base_url: str) -> None:
    described = {"provider": "openai", "config": {"model_name": "text-embedding-3-small", "api_base": base_url}}
    await finds(folder, "19", embedder_from(described))

    async with (
        OpenAIEmbedder("mxbai-embed-large", base_url=base_url) as own,
        Notes(folder / "19b.db", embedder=own) as notes,
    ):
        await notes.remember(SAID[0])


# 20 Of a crew


async def of_a_crew(folder: Path, base_url: str) -> None:
    # Notes have an embedder, agents have notes: whoever shares the notes shares the embedder.
    embedder = OpenAIEmbedder("text-embedding-3-small", base_url=base_url)
    async with embedder, Notes(folder / "20.db", embedder=embedder) as notes:
        researcher, writer = notes.scope("/agent/researcher"), notes.slice(["/agent/researcher"])
        await researcher.remember(SAID[0])
        [match] = await writer.recall("port of staging")
        assert "semantic" in match.reasons
        print("20", embedder.name)


def services(base_url: str) -> dict[str, dict[str, Any]]:
    """Give crewAI's settings of each service, led to the server that stands in for it."""
    home = base_url.removesuffix("/v1")
    return {
        # 21 OpenAI
        "21": {"provider": "openai", "config": {"model_name": "text-embedding-3-small", "api_key": "key"}},
        # 22 Ollama
        "22": {
            "provider": "ollama",
            "config": {"model_name": "mxbai-embed-large", "url": f"{home}/api/embeddings"},
        },
        # 24 Google AI
        "24": {"provider": "google-generativeai", "config": {"model_name": "gemini-embedding-001", "api_key": "key"}},
        # 26 Cohere
        "26": {"provider": "cohere", "config": {"model_name": "embed-english-v3.0", "api_key": "key"}},
        # 27 VoyageAI
        "27": {"provider": "voyageai", "config": {"model": "voyage-3", "api_key": "key"}},
        # 30 Jina
        "30": {"provider": "jina", "config": {"model_name": "jina-embeddings-v2-base-en", "api_key": "key"}},
    }


async def hosted(folder: Path, base_url: str) -> None:
    for number, described in services(base_url).items():
        config = described["config"] if "url" in described["config"] else described["config"] | {"api_base": base_url}
        await finds(folder, number, embedder_from(described | {"config": config}))


# 23 Azure OpenAI


async def azure() -> None:
    embedder = embedder_from({
        "provider": "azure",
        "config": {
            "deployment_id": "your-embedding-deployment",
            "api_key": "your-azure-api-key",
            "api_base": "https://your-resource.openai.azure.com",
            "api_version": "2024-02-01",
        },
    })  # fmt: skip
    assert "your-azure-api-key" not in repr(embedder)
    print("23", embedder.name)


class Client:
    """Stands in for the client of a service that does not speak OpenAI's protocol."""

    def vectors(self, texts: Sequence[str]) -> list[list[float]]:
        return [[text.count(letter) + 0.1 for letter in "aeioprst8"] for text in texts]


client = Client()

# 25 Google Vertex AI


def vertex(texts: list[str]) -> list[list[float]]:
    # [each.values for each in TextEmbeddingModel.from_pretrained("gemini-embedding-001").get_embeddings(texts)]
    return client.vectors(texts)


# 28 AWS Bedrock


def bedrock(texts: list[str]) -> list[list[float]]:
    # for each text: boto3.client("bedrock-runtime").invoke_model(modelId="amazon.titan-embed-text-v1", body=…)
    return client.vectors(texts)


# 29 Hugging Face


def hugging_face(texts: list[str]) -> list[list[float]]:
    # SentenceTransformer("all-MiniLM-L6-v2").encode(texts); or LocalEmbedder(), which has this model without torch
    return client.vectors(texts)


# 31 IBM watsonx


def watsonx(texts: list[str]) -> list[list[float]]:
    # ibm_watsonx_ai.foundation_models.Embeddings(model_id="ibm/slate-30m-english-rtrvr", …).embed_documents(texts)
    return client.vectors(texts)


# 32 A function of one's own


def my_embedder(texts: list[str]) -> list[list[float]]:
    return client.vectors(texts)


async def functions(folder: Path) -> None:
    for number, function in (
        ("25", vertex),
        ("28", bedrock),
        ("29", hugging_face),
        ("31", watsonx),
        ("32", my_embedder),
    ):
        embedder = CallableEmbedder(function, name=f"{function.__name__}-1")
        await finds(folder, number, embedder)
    custom = embedder_from({"provider": "custom", "config": {"embedding_callable": my_embedder}})
    assert await custom.embed(SAID) == my_embedder(SAID)


async def main() -> None:
    with tempfile.TemporaryDirectory() as name, openai_server([]) as server:
        folder = Path(name)
        await given(folder, server.base_url)
        await of_a_crew(folder, server.base_url)
        await hosted(folder, server.base_url)
        await azure()
        await functions(folder)
        models = [request["model"] for request in server.requests]
        assert {"text-embedding-3-small", "mxbai-embed-large", "gemini-embedding-001", "voyage-3"} <= set(models)


if __name__ == "__main__":
    anyio.run(main)
