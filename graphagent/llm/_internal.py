"""The names of this room that other rooms of the package may import."""

from __future__ import annotations

from graphagent.llm._attempts import failures as failures
from graphagent.llm._chat_messages import chat_messages as chat_messages
from graphagent.llm._context_overflow import is_overflow as is_overflow
from graphagent.llm._images import image_of as image_of
from graphagent.llm._images import images_of as images_of
from graphagent.llm._images import load_images as load_images
from graphagent.llm._images import with_images as with_images
from graphagent.llm._json_form import dumps as dumps
from graphagent.llm._json_form import read_response as read_response
from graphagent.llm._json_form import request_json as request_json
from graphagent.llm._json_form import response_json as response_json
from graphagent.llm._messages import PART_KINDS as PART_KINDS
from graphagent.llm._messages import error_text as error_text
from graphagent.llm._messages import part_fields as part_fields
from graphagent.llm._messages import sendable as sendable
from graphagent.llm._partial import PartialOutput as PartialOutput
from graphagent.llm._repair import asked_again as asked_again
from graphagent.llm._repair import empty_answer as empty_answer
from graphagent.llm._responses_items import part_of as part_of
from graphagent.llm._tool_limits import SHORTEST as SHORTEST
from graphagent.llm._tool_limits import capped as capped
from graphagent.llm._tool_limits import shortened as shortened
from graphagent.llm._tools import BROKEN_OFF as BROKEN_OFF
from graphagent.llm._tools import answered as answered
from graphagent.llm._tools import because as because
from graphagent.llm._tools import call_tool as call_tool
from graphagent.llm._tools import fitted as fitted
from graphagent.llm._tools import fresh_ids as fresh_ids
from graphagent.llm._validation_messages import no_json_form as no_json_form
from graphagent.llm._validation_messages import problems as problems
from graphagent.llm._whole import check_answered as check_answered
from graphagent.llm._whole import check_whole as check_whole
from graphagent.llm._wire import read_arguments as read_arguments
from graphagent.llm._wrappers import response_of as response_of
from graphagent.llm._wrappers import stores_of as stores_of
from graphagent.llm._wrappers import tells_cost as tells_cost
