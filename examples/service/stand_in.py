"""A model for those who have none at hand: it follows a few rules, in the place of a language model."""

from __future__ import annotations

import itertools
import re

from graphagent.llm import ModelRequest, ToolCall
from graphagent.testing import Reply, ScriptedModel


def model_that_follows_rules() -> ScriptedModel:
    return ScriptedModel(itertools.repeat(reply), name="stand-in")


def reply(request: ModelRequest) -> Reply:
    last, everything = request.messages[-1], "\n".join(message.text for message in request.messages)
    if request.output is not None:  # it is asked for facts
        name = re.search(r'"speaker":"user","text":"I am ([^".]+)', last.text)
        return {"facts": [] if name is None else [fact(name[1])]}
    if last.role == "tool":
        return f"Your order: {last.text}."
    if wanted := re.search(r"refund (\d+) euros for (\w+)", last.text, re.IGNORECASE):
        return ToolCall("refund", {"euros": int(wanted[1]), "order": wanted[2]})
    known = re.search(r'"concept":"name".*?"value":"([^"]+)"', everything)
    return f"Hello {known[1]}." if known else "Hello."


def fact(name: str) -> dict[str, str]:
    about = {"subject": "user", "keyword": "name", "description": "what the customer is called", "value": name}
    return about | {"quote": f"I am {name}", "valid_from": "", "valid_to": ""}
