"""Scores of texts for a question. The reranker that asks a server is imported from its own module, `openai`."""

from __future__ import annotations

from graphagent.rerank._callable import CallableReranker as CallableReranker
