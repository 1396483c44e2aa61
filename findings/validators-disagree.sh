#!/usr/bin/env bash
# One JSON schema, three validators: pydantic, which made it, jsonschema and msgspec.
# Guess: what pydantic accepts fits the schema that pydantic wrote.
# What happens: 19.99 is a multiple of 0.01 for pydantic, and is none for jsonschema and msgspec, which divide floats. "12" and a line feed
#   matches ^[0-9]+$ for jsonschema and msgspec, whose $ is Python's, and not for pydantic, whose $ is that of Rust.
# For users: an MCP server with pydantic and a client with jsonschema refuse each other's amounts; a model is told again and again to correct a
#   number that is right.
# In graphagent: arguments, results and forms of MCP servers are checked by jsonschema with a rule of our own for multiples, and patterns are
#   left to the server (graphagent/mcp/_tools.py; tests/mcp/test_stdio.py::test_a_number_is_a_multiple_as_it_is_written).
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check jsonschema==4.26.0 msgspec==0.22.0 pydantic==2.14.4
cd "$folder"

cat >program.py <<'PYTHON'
import sys
from importlib.metadata import version


def compare(what, seen, recorded):
    print(f"seen: {what}: {seen}")
    if seen != recorded:
        sys.exit(f"CHANGED: it was {recorded}")


from typing import Annotated

import jsonschema
import msgspec
from pydantic import Field, TypeAdapter, ValidationError

print(*(f"{name} {version(name)}" for name in ("pydantic", "jsonschema", "msgspec")))
print("guess: all three agree")


def fits(check):
    try:
        check()
    except (ValidationError, msgspec.ValidationError, jsonschema.ValidationError):
        return False
    return True


def three(kind, value, **limits):
    pydantic = TypeAdapter(Annotated[kind, Field(**limits)])
    schema = pydantic.json_schema()
    return {
        "pydantic": fits(lambda: pydantic.validate_python(value)),
        "jsonschema": fits(lambda: jsonschema.validate(value, schema)),
        "msgspec": fits(lambda: msgspec.convert(value, Annotated[kind, msgspec.Meta(**limits)])),
    }


compare("19.99 is a multiple of 0.01", three(float, 19.99, multiple_of=0.01), {"pydantic": True, "jsonschema": False, "msgspec": False})
compare(
    "'12\\n' matches ^[0-9]+$", three(str, "12\n", pattern="^[0-9]+$"), {"pydantic": False, "jsonschema": True, "msgspec": True}
)
PYTHON
venv/bin/python program.py
