"""Strategies as Mermaid text and as SVG."""

from __future__ import annotations
