#!/usr/bin/env bash
# What a long prompt costs.
# Guess: a dearer tier is for the tokens beyond its start, as with income tax; so a run may add up its tokens and be priced once, or in parts.
# What happens: one token more than 200,000 makes every token of the request dearer. Three requests of 100,000 tokens cost half of
#   one of 300,000, so the price of a sum is not the sum of prices.
# For users: pricing the total usage of a run is wrong in both directions. A window that keeps prompts below the tier halves the cost.
# In graphagent: each request is priced by itself, and amounts are added (graphagent/llm/_prices.py; docs/models.md).
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check genai-prices==0.2.3
cd "$folder"

cat >program.py <<'PYTHON'
import sys
from importlib.metadata import version


def compare(what, seen, recorded):
    print(f"seen: {what}: {seen}")
    if seen != recorded:
        sys.exit(f"CHANGED: it was {recorded}")


from genai_prices import Usage, calc_price

print("genai-prices", version("genai-prices"))
print("guess: 0.60 and a little more; equal")


def price(tokens):
    return calc_price(Usage(input_tokens=tokens, output_tokens=0), model_ref="claude-sonnet-4-5", provider_id="anthropic").total_price


compare("200,000 tokens, and one more", f"{price(200_000):.2f}, {price(200_001):.2f}", "0.60, 1.20")
compare("3 x 100,000, and 300,000 at once", f"{3 * price(100_000):.2f}, {price(300_000):.2f}", "0.90, 1.80")
PYTHON
venv/bin/python program.py
