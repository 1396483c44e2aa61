"""Koog's nodes without a model: nodeDoNothing, nodes of one's own, nodeAppendPrompt, transform.

python examples/koog/utility_nodes.py
"""

from __future__ import annotations

from index import agent, show

from graphagent import END, START, Context, Strategy, node
from graphagent.nodes import llm_request, passthrough, update_prompt


@node
async def length(ctx: Context, text: str) -> int:
    return len(text)


async def do_nothing() -> object:
    """A place to branch: it returns its input."""
    here = passthrough(str, name="here")
    strategy = Strategy("s", START >> here, here.when(str.isupper) >> END, here.otherwise().map(str.upper) >> END)
    return (await agent(strategy).run("hello")).output


async def custom_node() -> object:
    """A node is an async function; its types are read from the annotations."""
    return (await agent(Strategy("s", START >> length >> END)).run("hello")).output


async def append_prompt() -> object:
    """A tap adds messages to what the model is sent, and passes its input on."""
    hint = update_prompt("Answer in one word.")
    strategy = Strategy("s", START >> hint >> llm_request(tools=False) >> END)
    return (await agent(strategy, "Oslo.").run("What is the capital of Norway?")).output


async def transform() -> object:
    """What leaves a node is changed on the edge."""
    strategy = Strategy("s", START >> length, length.map(str) >> END)
    return repr((await agent(strategy).run("hello")).output)


if __name__ == "__main__":
    show(do_nothing, custom_node, append_prompt, transform)
