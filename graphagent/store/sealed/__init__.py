"""Encryption as a store around a store."""

from __future__ import annotations
