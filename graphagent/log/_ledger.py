"""The ledger of a run: what it spent, row by row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from graphagent._article import counted
from graphagent.llm import Usage


@dataclass(frozen=True, slots=True)
class Charge:
    """What one model request took, or one run of a sub-agent."""

    node: str
    """The path of the node that asked."""
    what: str
    """What for, as the node names it: `model:1` is its first model request, `plan:3` the plan after the third turn; for
    sub-agents their name."""
    model: str
    """The model that answered, as its server names it; empty for sub-agents, which may ask several."""
    usage: Usage
    run_id: str = ""
    """The run of the sub-agent, where it was one."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """What a run spent: a row for every model request, and one for every run of a sub-agent with all that it took."""

    charges: tuple[Charge, ...]
    """The rows, in the order of spending."""

    @staticmethod
    def of(charges: Iterable[Charge]) -> Ledger:
        """Make one of charges. Those of one sub-agent's run become one row, where the first of them stood."""
        rows: list[Charge] = []
        places: dict[str, int] = {}
        for charge in charges:
            place = places.get(charge.run_id) if charge.run_id else None
            if place is not None:
                rows[place] = replace(rows[place], usage=rows[place].usage + charge.usage)
                continue
            if charge.run_id:
                places[charge.run_id] = len(rows)
            rows.append(charge)
        return Ledger(tuple(rows))

    @property
    def total(self) -> Usage:
        """All of it: what `result.usage` says."""
        return spent(self.charges)

    @property
    def by_node(self) -> dict[str, Usage]:
        """What each node took, under its path, in the order of spending."""
        nodes = dict.fromkeys(each.node for each in self.charges)
        return {node: spent(each for each in self.charges if each.node == node) for node in nodes}

    def to_text(self) -> str:
        """Return it as a table, with the total at the end. Empty columns are left out."""
        rows = [_cells(each.node, each.what, each.model, each.usage) for each in self.charges]
        rows.append(_cells("total", "", "", self.total))
        kept = [n for n in range(len(_COLUMNS)) if n in _ALWAYS or any(row[n] for row in rows)]
        table = [[row[n] for n in kept] for row in (list(_COLUMNS), *rows)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        is_text = [n < _TEXTS for n in kept]
        return "\n".join("  ".join(_aligned(row, widths, is_text)).rstrip() for row in table)

    def __repr__(self) -> str:
        return f"<ledger of {counted(len(self.charges), 'row')}: {counted(self.total.total_tokens, 'token')}>"


NOTHING = Usage()
_COLUMNS = ("node", "what", "model", "input", "cached", "output", "reasoning", "cost")
_TEXTS = 3
"""How many columns, from the first on, hold text."""
_ALWAYS = (0, 3, 5)
"""The columns that are always there."""


def spent(charges: Iterable[Charge]) -> Usage:
    """Return the sum of rows of a ledger."""
    return sum((each.usage for each in charges), NOTHING)


def _cells(node: str, what: str, model: str, usage: Usage) -> list[str]:
    return [
        _line(node),
        _line(what),
        _line(model),
        f"{usage.input_tokens:,}",
        f"{usage.cached_tokens:,}" if usage.cached_tokens else "",
        f"{usage.output_tokens:,}",
        f"{usage.reasoning_tokens:,}" if usage.reasoning_tokens else "",
        f"{usage.cost.normalize():f}" if usage.cost else "",
    ]


def _line(text: str) -> str:
    """Return a name as one line that moves no cursor: a model's name comes from its server."""
    return "".join(each if each.isprintable() else "�" for each in text)


def _aligned(row: list[str], widths: list[int], is_text: list[bool]) -> Iterator[str]:
    for cell, width, left in zip(row, widths, is_text, strict=True):
        yield cell.ljust(width) if left else cell.rjust(width)
