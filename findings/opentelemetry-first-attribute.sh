#!/usr/bin/env bash
# A span with one attribute more than its limit allows, by the SDK of OpenTelemetry for Python and by that for JavaScript.
# Guess: the attribute that exceeds the limit is dropped, as the specification says, and the first ones stay.
# What happens: in Python the oldest attribute goes, which was passed when the span began, and one more with each further attribute. JavaScript
#   keeps the first and drops the new ones. Of events, both keep the last ones.
# For users: what says whose span it is (the operation, the model, the id of a run) is set first, and is what a loop over 128 documents drives
#   out; in traces of both languages, the same mistake makes different attributes vanish. A sampler saw the attributes, a backend does not.
# In graphagent: a span has some twenty attributes, whatever a run does; lists of messages are one attribute (graphagent/telemetry.py).
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check opentelemetry-sdk==1.45.2 opentelemetry-api==1.45.2
cd "$folder"
npm install --silent --no-audit --no-fund @opentelemetry/api@1.9.1 @opentelemetry/sdk-trace-base@2.12.1

cat >program.mjs <<'JAVASCRIPT'
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-base';

const exporter = new InMemorySpanExporter();
const provider = new BasicTracerProvider({
  spanProcessors: [new SimpleSpanProcessor(exporter)],
  spanLimits: { attributeCountLimit: 3, eventCountLimit: 3 },
});
const span = provider.getTracer('here').startSpan('ask', { attributes: { run: 1 } });
for (const name of ['a', 'b', 'c']) span.setAttribute(name, 2);
for (const name of ['1', '2', '3', '4']) span.addEvent(name);
span.end();
const [ended] = exporter.getFinishedSpans();
console.log(JSON.stringify([Object.keys(ended.attributes), ended.events.map((each) => each.name)]));
JAVASCRIPT

cat >program.py <<'PYTHON'
import sys
from importlib.metadata import version


def compare(what, seen, recorded):
    print(f"seen: {what}: {seen}")
    if seen != recorded:
        sys.exit(f"CHANGED: it was {recorded}")


import json
import logging
import subprocess

from opentelemetry.sdk.trace import SpanLimits, TracerProvider

logging.disable()
print("opentelemetry-sdk", version("opentelemetry-sdk"), "@opentelemetry/sdk-trace-base 2.12.1")
print("guess: the attributes run, a and b, and not c, in both")

provider = TracerProvider(span_limits=SpanLimits(max_span_attributes=3, max_events=3))
span = provider.get_tracer("here").start_span("ask", attributes={"run": 1})
for name in ("a", "b", "c"):
    span.set_attribute(name, 2)
for name in ("1", "2", "3", "4"):
    span.add_event(name)
javascript = json.loads(subprocess.run(["node", "program.mjs"], capture_output=True, check=True).stdout)
compare("Python", [list(span.attributes), [each.name for each in span.events]], [["a", "b", "c"], ["2", "3", "4"]])
compare("JavaScript", javascript, [["run", "a", "b"], ["2", "3", "4"]])
PYTHON
venv/bin/python program.py
