"""The names of rerankers that other rooms of the package may import, besides those that `graphagent.rerank` exports for users."""

from __future__ import annotations

from graphagent.rerank._scores import scores_of as scores_of
