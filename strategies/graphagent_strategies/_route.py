"""Choose the expert for a question, and let that expert answer it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from graphagent import END, START, Context, Node, Strategy
from graphagent.errors import OutputError
from graphagent.llm import Message, ModelRequest, OutputFormat
from graphagent.memory import ActionStep
from graphagent.nodes import Prompt

_CHOOSE = "Do not answer that yourself, but choose who should answer it:"


@dataclass(frozen=True, slots=True)
class Expert:
    """A strategy, or an `agent.as_node()`, and the description of the questions for which it is chosen."""

    description: str
    node: Node[Prompt, str]


def route(
    experts: Mapping[str, Expert],
    *,
    choose: Callable[[Prompt], str] | None = None,
    default: str | None = None,
    name: str = "route",
) -> Strategy[Prompt, str]:
    """Make a strategy that chooses one of several experts for a question, and returns the answer of that expert.

    The model is asked for the choice once more if it names no expert. The expert is not sent the choice. `strategy.using(model=…,
    tools=…, max_turns=…)` gives an expert a model, tools and budgets of its own, `agent.as_node()` a run and a transcript too.

    ```mermaid
    flowchart TD
        START(("START"))
        n1["decide"]
        subgraph n2["billing"]
            n2_START((" "))
            n2_n1["llm_request"]
            n2_END(((" ")))
            n2_START --> n2_n1
            n2_n1 --> n2_END
        end
        subgraph n3["support"]
            n3_START((" "))
            n3_n1["llm_request"]
            n3_END(((" ")))
            n3_START --> n3_n1
            n3_n1 --> n3_END
        end
        END((("END")))
        START --> n1
        n1 -->|"when billing"| n2_START
        n2_END --> END
        n1 -->|"otherwise"| n3_START
        n3_END --> END
        classDef tap stroke-dasharray: 4 3
    ```

    Args:
        experts: The experts by their names.
        choose: Returns the name of an expert for a question, without asking a model.
        default: The name of the expert who answers if the second choice names no expert either; without it, an error is raised.
        name: The name of the strategy.

    Raises:
        TypeError: A value of `experts` is not an expert, or `choose` is not a function.
        ValueError: `experts` is empty, or `default` is not one of them.
    """
    known = experts.values() if isinstance(experts, Mapping) else (None,)  # pyright: ignore[reportUnnecessaryIsInstance]
    if not all(isinstance(each, Expert) and isinstance(each.node, Node) for each in known):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{name!r}: experts are made by Expert('questions', strategy), or Expert('…', agent.as_node())")
    if choose is not None and not callable(choose):
        raise TypeError(f"{name!r}: choose= is a function of the question that returns a name, not {choose!r}")
    if not experts or (default is not None and default not in experts):
        raise ValueError(f"{name!r}: the experts are {', '.join(experts) or '(none)'}; name one of them as default=")
    listed = "\n".join(f"- {each}: {expert.description}" for each, expert in experts.items())
    choice: OutputFormat[Any] = OutputFormat.of(Literal[tuple(experts)])

    def parse(message: Message) -> Any:
        try:
            return choice.parse(message.text)
        except OutputError as error:
            raise OutputError(f"{error}; the names are {', '.join(map(repr, experts))}", output=error.output) from None

    async def ask(ctx: Context, prompt: Prompt) -> str:
        heard, asked = ctx.memory.to_messages(), Message.user(prompt) if isinstance(prompt, str) else prompt
        if isinstance(asked, Message) and asked not in heard:  # such as the task of the run
            heard = [*heard, asked]
        request = ModelRequest((*heard, Message.user(f"{_CHOOSE}\n{listed}")), output=choice)
        return str(parse((await ctx.request(request, parse=parse, counts=True)).message))

    async def decide(ctx: Context, prompt: Prompt) -> Prompt:
        try:
            chosen = choose(prompt) if choose is not None else await ask(ctx, prompt)
            if chosen not in experts:
                raise OutputError(f"{chosen!r} is none of {', '.join(experts)}", output=chosen)
        except OutputError as error:
            if default is None:
                raise OutputError(f"no expert was chosen: {error}", output=error.output) from error
            chosen = default
        await ctx.add(ActionStep(action_output=chosen))  # it has no message, so no model is sent it
        return prompt

    def is_for(expert: str) -> Callable[[Context, Prompt], bool]:
        def test(ctx: Context, prompt: Prompt) -> bool:
            return getattr(ctx.memory.steps[-1], "action_output", None) == expert

        test.__name__ = expert
        return test

    deciding = Node(decide, name="decide", input_type=Prompt, output_type=Prompt, asks_model=choose is None)
    *others, last = experts
    paths = [deciding.when(is_for(each)) >> experts[each].node.named(each) >> END for each in others]
    return Strategy(name, START >> deciding, *paths, deciding.otherwise() >> experts[last].node.named(last) >> END)
