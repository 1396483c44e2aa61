"""Messages, tools and structured output: what is said to a model, and what comes back."""

from __future__ import annotations

from graphagent.llm._context_overflow import is_overflow as is_overflow
from graphagent.llm._images import Image as Image
from graphagent.llm._images import ImageLike as ImageLike
from graphagent.llm._images import image_of as image_of
from graphagent.llm._images import images_of as images_of
from graphagent.llm._images import load_images as load_images
from graphagent.llm._images import with_images as with_images
from graphagent.llm._messages import Message as Message
from graphagent.llm._messages import ModelRequest as ModelRequest
from graphagent.llm._messages import ModelResponse as ModelResponse
from graphagent.llm._messages import Part as Part
from graphagent.llm._messages import Reasoning as Reasoning
from graphagent.llm._messages import Role as Role
from graphagent.llm._messages import Text as Text
from graphagent.llm._messages import ToolCall as ToolCall
from graphagent.llm._messages import ToolCalls as ToolCalls
from graphagent.llm._messages import ToolResult as ToolResult
from graphagent.llm._messages import ToolResults as ToolResults
from graphagent.llm._messages import Usage as Usage
from graphagent.llm._output import OutputFormat as OutputFormat
from graphagent.llm._output import structured as structured
from graphagent.llm._prices import PricedModel as PricedModel
from graphagent.llm._prices import Prices as Prices
from graphagent.llm._tools import Approve as Approve
from graphagent.llm._tools import Deny as Deny
from graphagent.llm._tools import FunctionTool as FunctionTool
from graphagent.llm._tools import InFlight as InFlight
from graphagent.llm._tools import Tool as Tool
from graphagent.llm._tools import answered as answered
from graphagent.llm._tools import call_tool as call_tool
from graphagent.llm._tools import fresh_ids as fresh_ids
from graphagent.llm._tools import refused as refused
from graphagent.llm._tools import tool as tool
from graphagent.llm._whole import check_whole as check_whole
from graphagent.llm._wire import chat_messages as chat_messages
