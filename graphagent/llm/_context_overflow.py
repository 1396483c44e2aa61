"""Whether a server refused a prompt because it is too long for the model. Each kind of server words this differently."""

from __future__ import annotations

import re

from graphagent.errors import AllModelsFailedError, ModelRequestError, PromptTooLongError

_STATUSES = (None, 400, 413, 422, 500)
"""None: the error came in the middle of a stream. Some versions of llama.cpp's server answer 500."""

_SAID = r"""
    context_length_exceeded                                 # the code of OpenAI, Azure, Groq and others
    | ContextWindowExceededError                            # LiteLLM
    | exceed_context_size                                   # the type of llama.cpp
    | maximum\ (context|prompt|model)\ length                # OpenAI, vLLM, DeepSeek, Mistral, OpenRouter, xAI
    | exceeds?\ (the\ )?(model\ )?context\ (window|limit)     # OpenAI, llama-cpp-python, Anthropic
    | exceeds\ the\ available\ context\ size                 # llama.cpp
    | context\ size\ has\ been\ exceeded                     # llama.cpp, while it answers
    | exceed(s|ed)\ (the\ )?(max(imum)?\ )?context\ length   # Ollama
    | (longer|greater)\ than\ the\ context\ length           # LM Studio
    | context\ length\ of\ only                              # LM Studio
    | too\ long\ to\ fit\ into\ the\ model                   # vLLM
    | is\ too\ long\ and\ exceeds\ limit                     # vLLM
    | (prompt|input)\ is\ too\ long                          # Anthropic, Bedrock
    | exceeds\ the\ maximum\ number\ of\ tokens              # Gemini
    | max_new_tokens`\ must\ be\ <=                          # Text Generation Inference
    | reduce\ the\ length\ of\ (the|your)\ (messages|prompt|input)
"""
"""In VERBOSE form. It is compiled when a server refuses something, which costs more than an import may."""


def is_overflow(error: ModelRequestError) -> bool:
    """Return whether a prompt is too long: for the model, by what its server said, or for the window that it was to fit into."""
    if isinstance(error, PromptTooLongError):
        return True
    if isinstance(error, AllModelsFailedError):  # a shorter prompt may help any of them
        return any(isinstance(each, ModelRequestError) and is_overflow(each) for each in error.errors)
    said = f"{error} {error.detail}"
    if error.status not in _STATUSES or "rate_limit" in said:
        return False
    return error.status == 413 or re.search(_SAID, said, re.IGNORECASE | re.VERBOSE) is not None
