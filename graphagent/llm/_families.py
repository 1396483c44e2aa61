"""Families of models and servers on Chat Completions: which of the fields that they attach to an answer they want returned.

The protocol has no field for reasoning, so each family has a field of its own. Some servers refuse a request without the data that they attached,
others refuse a request that has them. Each row of MODEL_FAMILIES names its documentation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from graphagent._options import check_word
from graphagent.llm._messages import Message, Reasoning, Text, ToolCall

Returned: TypeAlias = Literal["always", "tool loop", "never"]


@dataclass(frozen=True, slots=True)
class ModelFamily:
    """Servers that understand each other's data on answers.

    A server is known by its host, otherwise by the name of the model, since the models of many makers are served by others too.
    """

    name: str
    """The family of its ProviderData."""
    returned: Returned
    """When its data are returned: in every request, only until the user's next message, or never."""
    reasoning: tuple[str, ...] = ()
    """The fields of an assistant's message that have its reasoning. The first that a server fills is returned."""
    every: bool = False
    """Whether it is returned in all of these fields, since the server passes requests on to others, of which each reads its own."""
    signature: str = ""
    """The field of a message or a tool call that has a signature."""
    whole: bool = False
    """Whether all other fields that a message or a tool call has, and the protocol does not, are returned too, as they came."""
    missing: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """A placeholder for missing reasoning or a missing signature, if another model made the call. It is sent only to a
    server that refused a request for the lack of it."""
    hosts: tuple[str, ...] = ()
    """Its hosts; their subdomains belong to it."""
    models: str = ""
    """A regular expression, found anywhere in the names of its models, in lower case."""


MODEL_FAMILIES: tuple[ModelFamily, ...] = (
    # platform.openai.com/docs/api-reference/chat: the protocol has no field for reasoning; the Responses protocol has.
    ModelFamily("openai", "never", hosts=("api.openai.com",)),
    # openrouter.ai/docs/use-cases/reasoning-tokens: reasoning_details are passed back unmodified, plain reasoning too; and
    # openrouter.ai/docs/features/multimodal/pdfs: annotations, or a file is read, and paid for, again.
    ModelFamily("openrouter", "always", ("reasoning_details", "reasoning"), whole=True, hosts=("openrouter.ai",)),
    # ai.google.dev/gemini-api/docs/thought-signatures: Gemini 3 answers 400 to a call without its signature; those of text are
    # recommended; calls of other models have the signature below.
    ModelFamily(
        "google",
        "always",
        signature="extra_content",
        missing={"extra_content": {"google": {"thought_signature": "skip_thought_signature_validator"}}},
        hosts=("googleapis.com",),
        models="gemini",
    ),
    # api-docs.deepseek.com/guides/thinking_mode: after a tool call it must be passed back in all later requests (400 without
    # it), otherwise it is ignored. The placeholder is the one that github.com/NousResearch/hermes-agent/pull/18263 tried.
    ModelFamily(
        "deepseek",
        "always",
        ("reasoning_content", "reasoning"),
        missing={"reasoning_content": " "},
        hosts=("deepseek.com",),
        models="deepseek",
    ),
    # github.com/anomalyco/opencode/issues/25758: 400 "reasoning_content is missing in assistant tool call message".
    ModelFamily(
        "moonshot",
        "always",
        ("reasoning_content", "reasoning"),
        missing={"reasoning_content": " "},
        hosts=("moonshot.ai", "moonshot.cn", "kimi.com"),
        models="kimi",
    ),
    # docs.z.ai/guides/capabilities/thinking-mode: preserved and returned together with tool results.
    ModelFamily(
        "zai", "always", ("reasoning_content", "reasoning"), hosts=("z.ai", "bigmodel.cn"), models=r"\bglm-?[4-9]"
    ),
    # platform.minimax.io/docs/api-reference/text-openai-api: the whole message is returned, with reasoning_split its reasoning_details.
    ModelFamily(
        "minimax",
        "always",
        ("reasoning_details", "reasoning_content", "reasoning"),
        whole=True,
        hosts=("minimax.io", "minimaxi.com"),
        models="minimax",
    ),
    # It answers with `reasoning`, and accepts that of earlier turns in the same field (recorded in November 2026).
    ModelFamily("cerebras", "always", ("reasoning",), hosts=("cerebras.ai",)),
    # Likewise. A server of the user is on any host, and is known by its answers.
    ModelFamily("ollama", "always", ("reasoning",), hosts=("ollama.com",)),
    # It passes requests on to vLLM, SGLang, llama.cpp and others, of which each reads one of the fields; it is on any host. What
    # llama-box answered for it is known by its usage.
    ModelFamily("gpustack", "always", ("reasoning_content", "reasoning"), every=True),
    # Claude's thinking and its signature, accepted as they came (recorded in November 2026).
    ModelFamily("snowflake", "always", ("reasoning_details",), hosts=("snowflakecomputing.com",)),
    # github.com/BerriAI/litellm/issues/30835: 422 extra_forbidden for any field that its schema lacks.
    ModelFamily("mistral", "never", hosts=("mistral.ai",)),
    # platform.claude.com/docs/en/api/openai-sdk: the reasoning is not shown.
    ModelFamily("anthropic", "never", hosts=("anthropic.com",)),
    # docs.x.ai/developers/model-capabilities/text/best-practices: Chat Completions has no field for its encrypted reasoning.
    ModelFamily("xai", "never", hosts=("x.ai",)),
    # cookbook.openai.com/articles/gpt-oss/handle-raw-cot: returned until the final answer, then dropped. vLLM, Ollama, LM Studio
    # and OpenRouter call it `reasoning`, llama.cpp and older versions of vLLM `reasoning_content`.
    ModelFamily("gpt-oss", "tool loop", ("reasoning", "reasoning_content"), models="gpt-oss"),
    # alibabacloud.com/help/en/model-studio/deep-thinking: nothing is said about returning it.
    ModelFamily("qwen", "never", hosts=("aliyuncs.com",), models=r"\bqw(en|q)"),
)
"""The known families. The first whose host fits is taken, otherwise the first whose models fit; servers that none fits are
returned nothing."""

_OTHER_SERVICES = ("azure.com", "groq.com", "together.xyz")
"""Hosts of services that want nothing back, or by the name of the model."""


def is_openai(host: str) -> bool:
    """Return whether a host is OpenAI's own, which is the default."""
    return host in ("", "api.openai.com") or host.endswith(".api.openai.com")


def is_service(host: str) -> bool:
    """Return whether a host is that of a known service, and not of a server that anybody may run, such as vLLM."""
    known = (*_OTHER_SERVICES, *(each for family in MODEL_FAMILIES for each in family.hosts))
    return is_openai(host) or any(host == each or host.endswith(f".{each}") for each in known)


@lru_cache(maxsize=64)
def family_of(host: str, model: str) -> ModelFamily | None:
    """Return the family of a model on a host."""
    model = model.lower()
    for family in MODEL_FAMILIES:
        if any(host == each or host.endswith(f".{each}") for each in family.hosts):
            return family
    return next((family for family in MODEL_FAMILIES if family.models and re.search(family.models, model)), None)


def family_said(answer: Mapping[str, Any], address: str) -> ModelFamily | None:
    """Return a separate family for a server that is known by its answer: its data are returned to that address alone.

    Ollama and GPUStack are on any host, and serve models of any name.
    """
    usage = answer.get("usage")
    if answer.get("system_fingerprint") == "fp_ollama":
        return _at_address("ollama", address)
    # The counts of its engine, llama-box: github.com/gpustack/llama-box.
    return _at_address("gpustack", address) if isinstance(usage, Mapping) and "draft_tokens" in usage else None


def family_before(messages: Iterable[Message], address: str) -> ModelFamily | None:
    """Return the family of a server that was told by an answer in a conversation."""
    attached = {
        part.provider.family
        for message in messages
        for part in message.parts
        if isinstance(part, Reasoning | Text | ToolCall) and part.provider is not None
    }
    return next((family for name in _TOLD if (family := _at_address(name, address)).name in attached), None)


_TOLD = ("ollama", "gpustack")


def _at_address(name: str, address: str) -> ModelFamily:
    return replace(family_named(name), name=f"{name}:{address}")


def family_named(name: str) -> ModelFamily:
    """Return the family of that name.

    Raises:
        ValueError: there is none.
    """
    named = {family.name: family for family in MODEL_FAMILIES}
    check_word("family", name, named)
    return named[name]
