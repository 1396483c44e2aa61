"""Tools for the tests of users: a scripted model, a fixed clock, a server that speaks the OpenAI protocols."""

from __future__ import annotations

from graphagent.testing._cassette import RecordedModel as RecordedModel
from graphagent.testing._claims import check_claims as check_claims
from graphagent.testing._clock import FixedClock as FixedClock
from graphagent.testing._clock import fixed_clock as fixed_clock
from graphagent.testing._clock import fixed_ids as fixed_ids
from graphagent.testing._edges import next_node as next_node
from graphagent.testing._model import Reply as Reply
from graphagent.testing._model import ScriptedModel as ScriptedModel
from graphagent.testing._providers import check_provider as check_provider
from graphagent.testing._server import Cut as Cut
from graphagent.testing._server import Edit as Edit
from graphagent.testing._server import OpenAIServer as OpenAIServer
from graphagent.testing._server import RawResponse as RawResponse
from graphagent.testing._server import openai_server as openai_server
from graphagent.testing._stores import check_store as check_store
from graphagent.testing._trace import Trace as Trace
from graphagent.testing._trace import record as record
