#!/usr/bin/env bash
# The stored steps of an agent of smolagents that hit its limit of steps.
# Guess: the step whose output the user got as the answer is marked: `is_final_answer` is true.
# What happens: the answer is the `action_output` of a last step that has an error, AgentMaxStepsError, and `is_final_answer` false.
# For users: who looks for the answer by its mark finds none, and takes the run for one without an answer.
# In graphagent: load_steps takes it for the answer (graphagent/migrate/smolagents.py, tests/migrate/test_smolagents.py).
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check smolagents==1.26.0
cd "$folder"

cat >program.py <<'PYTHON'
import sys
from importlib.metadata import version


def compare(what, seen, recorded):
    print(f"seen: {what}: {seen}")
    if seen != recorded:
        sys.exit(f"CHANGED: it was {recorded}")


from smolagents import Model, ToolCallingAgent, tool
from smolagents.models import ChatMessage, ChatMessageToolCall, ChatMessageToolCallFunction, MessageRole

print("smolagents", version("smolagents"))
print("guess: the last step has no error, and is_final_answer is true")


@tool
def count() -> int:
    """Count the pages."""
    return 3


class Script(Model):
    """Calls the tool as often as it is asked, and sums up when no tool is offered."""

    def generate(self, messages, tools_to_call_from=None, **options):
        if tools_to_call_from is None:
            return ChatMessage(role=MessageRole.ASSISTANT, content="There are three pages.")
        call = ChatMessageToolCallFunction(name="count", arguments={})
        calls = [ChatMessageToolCall(id=f"call_{len(messages)}", type="function", function=call)]
        return ChatMessage(role=MessageRole.ASSISTANT, content="", tool_calls=calls)


agent = ToolCallingAgent(tools=[count], model=Script(), verbosity_level=0)
answer = agent.run("How many pages are there?", max_steps=2)
*_, last = agent.memory.get_full_steps()
compare("the answer", answer, "There are three pages.")
compare("output of the last step", last["action_output"], answer)
compare("its error, and its mark", (last["error"]["type"], last["is_final_answer"]), ("AgentMaxStepsError", False))
PYTHON
venv/bin/python program.py
