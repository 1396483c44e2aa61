"""Text to vectors. Embedders that need an extra or a server are imported from `static`, `multilingual`, `local` and `openai`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphagent._lazy import lazy as _lazy
from graphagent.embed._callable import CallableEmbedder as CallableEmbedder
from graphagent.embed._checked import checked as checked
from graphagent.embed._checked import checked_words as checked_words
from graphagent.embed._config import embedder_from as embedder_from

if not TYPE_CHECKING:
    __getattr__ = _lazy(__name__, {})
