"""How runs of an earlier version of a strategy continue in a later one, as an agent declares it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from graphagent._article import kind_of
from graphagent._options import check_text, check_word

if TYPE_CHECKING:
    from graphagent.graph import Outline


@dataclass(frozen=True, slots=True)
class Migration:
    """How runs of one version of a strategy continue in the next one: `Agent(…, version="2", migrations=[Migration("1", "2", …)])`.

    A run that has not ended is moved when it continues: the node where it is gets its name in the later version, and its input
    is converted. What the node has done already, such as answers of models and results of tools, stays done.

    Raises:
        TypeError, ValueError: a version or a name is not valid.
    """

    before: str
    """The version with which the runs began: that of their agent, or the digest of its strategy (`strategy.outline.digest`)."""
    after: str
    """The version with which they continue."""
    nodes: Mapping[str, str] = field(default_factory=dict[str, str])
    """The paths of nodes, such as `draft` or `review/draft`, with the paths that they have in the later version. A run that is at
    a node that is not here stays at the node of the same path. An agent with the later version must have the nodes."""
    inputs: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict[str, "Callable[[Any], Any]"])
    """Functions that convert the input of a node in whose place a run is, by the path in the later version. Each gets plain data
    (texts, numbers, lists, dictionaries), and returns the input, or plain data of it."""

    def __post_init__(self) -> None:
        """Check the names."""
        for name, text in (("before=", self.before), ("after=", self.after)):
            check_text(name, text)
            if not text:
                raise ValueError(f"{name[:-1]} is the name of a version, such as '1', and not empty")
        for old, new in self.nodes.items():
            if old.rpartition("/")[0] != new.rpartition("/")[0]:
                raise ValueError(
                    f"nodes={{{old!r}: {new!r}}} moves a node to another subgraph, and a run cannot follow; "
                    "name a node of the same strategy"
                )
        for place, function in self.inputs.items():
            if not callable(function):
                raise TypeError(f"inputs={{{place!r}: …}} is a function of the input, not {kind_of(function)}")


def checked_migrations(migrations: Iterable[Migration], version: str, outline: Outline) -> tuple[Migration, ...]:
    """Return the migrations of an agent, of which each leads to its version, and those of the last step to nodes of its strategy.

    Raises:
        TypeError: one is not a Migration.
        ValueError: two begin with the same version, one does not lead to the version of the agent, or a node does not exist there.
    """
    found = tuple(migrations)
    after: dict[str, str] = {}
    for each in found:
        if not isinstance(each, Migration):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"migrations= is a list such as [Migration('1', '2')], and one of it is {kind_of(each)}")
        if each.before in after:
            raise ValueError(f"two migrations begin with version {each.before!r}; keep one")
        after[each.before] = each.after
        if each.after == version:
            _check_nodes(each, outline)
    for each in found:
        end, steps = each.before, 0
        while end != version and end in after and steps <= len(after):
            end, steps = after[end], steps + 1
        if end != version:
            raise ValueError(
                f"the migration from version {each.before!r} leads to {end!r}, and not to version {version!r} of the agent; "
                f"add a Migration({end!r}, {version!r})"
            )
    return found


def _check_nodes(migration: Migration, outline: Outline) -> None:
    """Check that the later version of a migration, which is that of an agent, has the nodes that it names.

    Raises:
        ValueError: it does not; the error names the nearest of those that it has.
    """
    there = [path for path, _ in outline.walk()]
    for place in (*migration.nodes.values(), *migration.inputs):
        check_word(f"Migration({migration.before!r}, {migration.after!r}): node", place, there)
