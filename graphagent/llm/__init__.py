"""Messages, tools and structured output: requests to a model, and its responses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphagent._details import FailedRequest as FailedRequest
from graphagent._details import Usage as Usage
from graphagent._lazy import lazy as _lazy
from graphagent.llm._families import MODEL_FAMILIES as MODEL_FAMILIES
from graphagent.llm._families import ModelFamily as ModelFamily
from graphagent.llm._images import Image as Image
from graphagent.llm._images import ImageLike as ImageLike
from graphagent.llm._messages import Message as Message
from graphagent.llm._messages import ModelRequest as ModelRequest
from graphagent.llm._messages import ModelResponse as ModelResponse
from graphagent.llm._messages import Part as Part
from graphagent.llm._messages import ProviderData as ProviderData
from graphagent.llm._messages import Reasoning as Reasoning
from graphagent.llm._messages import Role as Role
from graphagent.llm._messages import Text as Text
from graphagent.llm._messages import ToolCall as ToolCall
from graphagent.llm._messages import ToolCalls as ToolCalls
from graphagent.llm._messages import ToolResult as ToolResult
from graphagent.llm._messages import ToolResults as ToolResults
from graphagent.llm._output import OutputFormat as OutputFormat
from graphagent.llm._tool_errors import ErrorText as ErrorText
from graphagent.llm._tools import Approve as Approve
from graphagent.llm._tools import Deny as Deny
from graphagent.llm._tools import InFlight as InFlight
from graphagent.llm._tools import Tool as Tool
from graphagent.llm._tools import tool as tool
from graphagent.llm._whole import structured as structured

if TYPE_CHECKING:
    from graphagent.llm._attempts import FallbackModel as FallbackModel
    from graphagent.llm._attempts import RetryModel as RetryModel
    from graphagent.llm._cache import CachedModel as CachedModel
    from graphagent.llm._limits import LimitedModel as LimitedModel
    from graphagent.llm._moderation import Moderation as Moderation
    from graphagent.llm._prices import PricedModel as PricedModel
    from graphagent.llm._prices import Prices as Prices
else:
    __getattr__ = _lazy(
        __name__,
        {
            "graphagent.llm._attempts": ("FallbackModel", "RetryModel"),
            "graphagent.llm._cache": ("CachedModel",),
            "graphagent.llm._limits": ("LimitedModel",),
            "graphagent.llm._moderation": ("Moderation",),
            "graphagent.llm._prices": ("PricedModel", "Prices"),
        },
    )
