"""Nodes without a task of their own, for graphs that are only declared."""

from __future__ import annotations

from typing import Any

from graphagent.graph import Node, Tap, TapOf


async def nothing(ctx: Any, value: Any) -> Any:
    return value


def step(name: str, input_type: Any = Any, output_type: Any = Any) -> Node[Any, Any]:
    """Make a node of a name and two types."""
    return Node(nothing, name=name, input_type=input_type, output_type=output_type)


def steps(names: str) -> list[Node[Any, Any]]:
    """Make one node for every word."""
    return [step(name) for name in names.split()]


def taps(name: str, input_type: Any = None) -> Tap | TapOf[Any]:
    """Make a tap of a name, and of a type where it needs one."""
    return Tap(nothing, name=name) if input_type is None else TapOf(nothing, name=name, input_type=input_type)
