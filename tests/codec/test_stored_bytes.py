"""The stored bytes of each type that the codec knows: a store written by an earlier version must be readable by a later one."""

# Lines that hold a form in full are as long as it is.

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import orjson
import pytest

from graphagent.codec._blobs import HeldBlobs
from graphagent.codec._values import decode, encode
from graphagent.errors import NodeFailedError
from graphagent.llm import (
    Approve,
    Deny,
    Image,
    Message,
    ProviderData,
    Reasoning,
    Text,
    ToolCall,
    ToolCalls,
    ToolResult,
    ToolResults,
    Usage,
)  # fmt: skip

PICTURE = Image(b"\x89PNG", "image/png")
STORED = [
    (Text("a"), '{"$":"text","text":"a"}'),
    (Text("\ud800"), '{"$":"text","text":{"$":"surrogates","v":"7aCA"}}'),
    (Reasoning("b"), '{"$":"reasoning","text":"b"}'),
    (Reasoning("", provider=ProviderData("f", {"id": "r"})), '{"$":"reasoning","text":"","provider":{"family":"f","data":{"id":"r"}}}'),
    (ToolCall("a", id="1", provider=ProviderData("f", {})), '{"$":"tool_call","name":"a","id":"1","provider":{"family":"f","data":{}}}'),
    (Message("assistant", (Text("x", provider=ProviderData("f", {"s": 1})),)), '{"$":"message","role":"assistant","parts":[{"$":"text","text":"x","provider":{"family":"f","data":{"s":1}}}]}'),
    (PICTURE, '{"$":"image","type":"image/png","v":"iVBORw=="}'),
    (Image(url="https://example.org/a.png", media_type="image/png"), '{"$":"image","type":"image/png","url":"https://example.org/a.png"}'),
    (Image(b"\x89PNG" * 200), '{"$":"image","type":"image/png","b":"5649d20bfd08f48fd16470af"}'),
    (ToolCall("search"), '{"$":"tool_call","name":"search"}'),
    (ToolCall("search", {"q": "x", "n": [1, None, 2.5]}, "1"), '{"$":"tool_call","name":"search","arguments":{"q":"x","n":[1,null,2.5]},"id":"1"}'),
    (ToolCall("search", {}, "1", "{"), '{"$":"tool_call","name":"search","id":"1","malformed":"{"}'),
    (ToolResult("1", "search", "found"), '{"$":"tool_result","call_id":"1","name":"search","content":"found"}'),
    (ToolResult("1", "search", "not", is_error=True), '{"$":"tool_result","call_id":"1","name":"search","content":"not","is_error":true}'),
    (ToolResult("1", "search", "cut", images=(PICTURE,), full="whole", seconds=0.25, run_id="run-1", value=object()), '{"$":"tool_result","call_id":"1","name":"search","content":"cut","images":[{"$":"image","type":"image/png","v":"iVBORw=="}],"full":"whole","seconds":0.25,"run_id":"run-1"}'),
    (ToolCalls([ToolCall("a", id="1"), ToolCall("b", {"x": (1,)}, "2")]), '{"$":"calls","v":[{"$":"tool_call","name":"a","id":"1"},{"$":"tool_call","name":"b","arguments":{"x":{"$":"tuple","v":[1]}},"id":"2"}],"text":""}'),
    (ToolCalls([], "well"), '{"$":"calls","v":[],"text":"well"}'),
    (ToolResults([ToolResult("1", "a", "x"), ToolResult("2", "b", "y", is_error=True)]), '{"$":"results","v":[{"$":"tool_result","call_id":"1","name":"a","content":"x"},{"$":"tool_result","call_id":"2","name":"b","content":"y","is_error":true}]}'),
    (Approve(), '{"$":"approve"}'),
    (Approve({"n": 1}), '{"$":"approve","v":{"n":1}}'),
    (Deny(), '{"$":"deny","v":""}'),
    (Deny("not now"), '{"$":"deny","v":"not now"}'),
    (Deny(by="Ada", at=datetime(2030, 1, 2, tzinfo=UTC)),
     '{"$":"deny","v":"","by":"Ada","at":{"$":"datetime","v":"2030-01-02T00:00:00+00:00"}}'),
    (Message.user("hello"), '{"$":"message","role":"user","parts":["hello"]}'),
    (Message("assistant", (Reasoning("hm"), Text("\ud800"), ToolCall("f", id="1"), PICTURE)), '{"$":"message","role":"assistant","parts":[{"$":"reasoning","text":"hm"},{"$":"text","text":{"$":"surrogates","v":"7aCA"}},{"$":"tool_call","name":"f","id":"1"},{"$":"image","type":"image/png","v":"iVBORw=="}]}'),
    (Message("tool", (ToolResult("1", "f", "x"),)), '{"$":"message","role":"tool","parts":[{"$":"tool_result","call_id":"1","name":"f","content":"x"}]}'),
    (Usage(1, 2, 3, 4, Decimal("0.5")), '{"$":"usage","v":[1,2,3,4,"0.5"]}'),
    (Usage(), '{"$":"usage","v":[0,0,0,0,"0"]}'),
    (NodeFailedError("count/words", TimeoutError("5 seconds")), '{"$":"failed","node":"count/words","v":"node \'count/words\' failed with TimeoutError","run":"","reason":"TimeoutError: 5 seconds"}'),
    ("\ud800", '{"$":"surrogates","v":"7aCA"}'),
    ("t" * 16_384, '{"$":"str","b":"14ebc93950bee4dd211dae7e"}'),
    (b"\0", '{"$":"bytes","v":"AA=="}'),
    (b"\0" * 512, '{"$":"bytes","b":"0188e648680b241c91b4cd66"}'),
    ((1, [2, {3}], frozenset("a"), {"a": 1}, {"$": 1}, {1: 2}), '{"$":"tuple","v":[1,[2,{"$":"set","v":[3]}],{"$":"frozenset","v":["a"]},{"a":1},{"$":"dict","v":[["$",1]]},{"$":"dict","v":[[1,2]]}]}'),
    ([2**64, float("inf"), 1j, Decimal("1.50")], '[{"$":"int","v":"0x10000000000000000"},{"$":"float","v":"inf"},{"$":"complex","v":["0.0","1.0"]},{"$":"decimal","v":"1.50"}]'),
    ([datetime(2025, 3, 4, 5, 6, 7, tzinfo=UTC), datetime(2025, 10, 26, 2, tzinfo=ZoneInfo("Europe/Berlin"), fold=1), time(1, 2)], '[{"$":"datetime","v":"2025-03-04T05:06:07+00:00"},{"$":"datetime","v":"2025-10-26T02:00:00","zone":"Europe/Berlin","fold":1},{"$":"time","v":"01:02:00"}]'),
    ([date(2025, 3, 4), timedelta(days=1, microseconds=2)], '[{"$":"date","v":"2025-03-04"},{"$":"timedelta","v":[1,0,2]}]'),
]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "stored"), STORED, ids=[f"{type(value).__name__}-{place}" for place, (value, _) in enumerate(STORED)]
)
def test_a_value_is_stored_as_it_always_was(value, stored):
    """Byte for byte, and it is read from these bytes."""
    blobs = HeldBlobs()
    assert orjson.dumps(encode(value, blobs)).decode() == stored
    again = decode(orjson.loads(stored), blobs)
    assert type(again) is type(value)
    if not isinstance(value, NodeFailedError):  # two errors are never equal
        assert again == value
