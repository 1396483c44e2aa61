"""The ready-made strategies, by their names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from graphagent import Strategy

_CRITERIA = ("reflect", "verify_with_retry")
"""The strategies that take criteria."""
EXAMPLES = ("billing=invoices and payments", "support=how the product is used")
"""The experts in a drawing of `route` if none is named."""


def ready_made() -> dict[str, str]:
    """Return the ready-made strategies by name, each with a description of one line."""
    import graphagent_strategies

    functions = {name: value for name, value in vars(graphagent_strategies).items() if inspect.isfunction(value)}
    first = {name: (inspect.getdoc(function) or "").partition("\n")[0] for name, function in functions.items()}
    return {
        name: line.removeprefix("Make a strategy that ").replace("`", "").rstrip(".") for name, line in first.items()
    }


def names_beginning(incomplete: str) -> list[str]:
    """Return the names that begin with the typed text, for shell completion."""
    return [name for name in ready_made() if name.startswith(incomplete)]


def strategy_named(name: str, *, criteria: str | None = None, experts: Sequence[str] = ()) -> Strategy[Any, Any]:
    """Return the ready-made strategy with a name. Each of the experts is a `NAME=DESCRIPTION`.

    Raises:
        BadParameter: an option is missing, or not for this strategy.
    """
    import graphagent_strategies

    for option, given, users in (("--criteria", criteria is not None, _CRITERIA), ("--expert", experts, ("route",))):
        if given and name not in users:
            raise typer.BadParameter(f"{option} is for {' and '.join(users)}, not for {name}", param_hint=option)
    if name == "route" and not experts:
        raise typer.BadParameter(
            "route needs experts: --expert NAME=DESCRIPTION for each; or name a strategy of your own: MODULE:NAME"
        )
    factory: Callable[..., Strategy[Any, Any]] = getattr(graphagent_strategies, name)
    if name == "route":
        return factory(dict(map(_expert, experts)))
    if name == "verify_with_retry" and criteria is not None:
        return factory(criteria)
    return factory() if criteria is None else factory(criteria=criteria)


def _expert(text: str) -> tuple[str, Any]:
    """Return the name of an expert, and the expert, who answers with all tools."""
    from graphagent import END, START, Strategy
    from graphagent.nodes import update_prompt
    from graphagent_strategies import Expert, single_run

    name, equals, description = (part.strip() for part in text.partition("="))
    if not (name and equals and description):
        raise typer.BadParameter(f"{text!r} is not an expert; write NAME=DESCRIPTION", param_hint="--expert")
    rules = update_prompt(f"You answer questions about {description}.", name="rules")
    return name, Expert(description, Strategy(name, START >> rules >> single_run() >> END))
