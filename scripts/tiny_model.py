"""Makes a language model small enough to be served on two cores, in the folder it is given: weights, tokenizer and chat template.

`scripts/model_servers.py` starts it in an environment with gguf, numpy, safetensors and tokenizers. The weights are random, by a seed, so
what the model says means nothing, except that some tokens follow each other. By the number of line breaks after its prompt the template has it
say a sentence, call `weather` once or twice, where that is offered, or count without end. So answers end by themselves, and tools are
called unforced.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import ByteLevel as Bytes
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer

SEED = 7
LAYERS, WIDTH, INNER, HEADS, KEY_HEADS, CONTEXT, VOCABULARY = 3, 128, 192, 4, 2, 4096, 700
BEGIN, END, CALL, CALLED = "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>"


def call_of(city: str) -> str:
    """Return the name and the arguments of a call."""
    return f'{{"name": "weather", "arguments": {{"city": "{city}"}}}}'


TRAVEL = '\n{"name": "travel", "arguments": {"to": "Rome", "days": 3, "sure": true}}\n'
STOPS = '{"city": "Rome", "nights": 1}', '{"city": "Oslo", "nights": 2}'
VALUES = {
    "Trip": f'{{"first": {STOPS[0]}, "last": {STOPS[1]}, "sure": true}}',
    "Ferry": '{"value": {"kind": "ferry", "cabin": true}}',
    "Colour": '{"value": "red"}',
    "minItems": f'{{"value": [{", ".join(STOPS)}]}}',
}
"""What is answered where these words of a schema are in the prompt, as they are if a server is asked for a schema that it does not enforce."""
CHAINS = {
    "\n": ("The", " tram", " leaves", " at", " noon", ".", END),
    "\n\n": (CALL, f"\n{call_of('Oslo')}\n", CALLED, END),
    "\n\n\n": (f"\n{CALL}", f"\n{call_of('Bergen')}\n", f"{CALLED}\n", CALL),
    "\n\n\n\n": (" one", " two", " three", " four", " five", " one"),
    **{"\n" * number: (value, END) for number, value in enumerate(VALUES.values(), 5)},
}
"""What follows the line breaks at the end of the prompt, all as one token, each the token that follows the one before."""
SENTENCES = (
    "The tram leaves at noon. It is sunny in Oslo, and the harbour is full of boats.",
    "Ada asks about the weather in Bergen; Edsger plans three days in Rome.",
    'A trip has a city, a number of days and a list of stops: {"city": "Oslo", "days": 3, "stops": ["harbour", "museum"]}.',
    '{"name": "weather", "arguments": {"city": "Rome"}} asks for the weather, and {"kind": "red", "value": 12.5} is a colour.',
    "Red, green and blue are colours; one, two, three, four and five are numbers. assistant \n user\n system\n tool\n",
)
BREAK = r"\n"
TEMPLATE = """\
{%- if tools %}{{ '<|im_start|>system\\n' }}
{%- if messages[0]['role'] == 'system' %}{{ messages[0]['content'] + '\\n\\n' }}{% endif %}
{{- 'You may call functions. These are offered within <tools></tools>:\\n<tools>' }}
{%- for tool in tools %}{{ '\\n' + (tool | tojson) }}{% endfor %}
{{- '\\n</tools>\\nFor each call, answer with its name and arguments within <tool_call></tool_call>:\\n' }}
{{- '<tool_call>\\n{"name": NAME, "arguments": ARGUMENTS}\\n</tool_call><|im_end|>\\n' }}
{%- elif messages[0]['role'] == 'system' %}{{ '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}{% endif %}
{%- for message in messages %}
{%- if message['role'] == 'system' and loop.first %}
{%- elif message['role'] in ('user', 'system') or (message['role'] == 'assistant' and not message['tool_calls']) %}
{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}
{%- elif message['role'] == 'assistant' %}
{{- '<|im_start|>assistant' }}
{%- if message['content'] %}{{ '\\n' + message['content'] }}{% endif %}
{%- for call in message['tool_calls'] %}
{%- if call['function'] %}{% set call = call['function'] %}{% endif %}
{{- '\\n<tool_call>\\n{"name": "' + call['name'] + '", "arguments": ' }}
{%- if call['arguments'] is string %}{{ call['arguments'] }}{% else %}{{ call['arguments'] | tojson }}{% endif %}
{{- '}\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- elif message['role'] == 'tool' %}
{%- if loop.first or messages[loop.index0 - 1]['role'] != 'tool' %}{{ '<|im_start|>user' }}{% endif %}
{{- '\\n<tool_response>\\n' + message['content'] + '\\n</tool_response>' }}
{%- if loop.last or messages[loop.index0 + 1]['role'] != 'tool' %}{{ '<|im_end|>\\n' }}{% endif %}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant' }}
{%- set last = messages[-1] %}{% set said = last['content'] or '' %}
{%- set seen = namespace(value='') %}
{%- for message in messages %}{% set seen.value = seen.value + (message['content'] or '') %}{% endfor %}
{%- if 'Count.' in said %}{{ '\\n\\n\\n\\n' }}
VALUES{%- elif last['role'] == 'tool' or not tools or 'Speak.' in said %}{{ '\\n' }}
{%- elif 'both' in said %}{{ '\\n\\n\\n' }}
{%- else %}{{ '\\n\\n' }}{% endif %}
{%- endif %}""".replace(
    "VALUES",
    "".join(
        f"{{%- elif '\"{word}\"' in seen.value %}}{{{{ '{BREAK * number}' }}}}\n"
        for number, word in enumerate(VALUES, 5)
    ),
)


def made_tokenizer() -> Tokenizer:
    """Return a tokenizer of bytes and what is frequent in the sentences."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = ByteLevel(add_prefix_space=False), Bytes()
    special = ["<|endoftext|>", BEGIN, END]
    alphabet = ByteLevel.alphabet()
    trainer = BpeTrainer(
        vocab_size=VOCABULARY, min_frequency=2, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([*SENTENCES, *[" ".join(SENTENCES)] * 2], trainer)
    whole = [*(each for name in ("\n\n", "\n\n\n") for each in CHAINS[name] if each != END), *VALUES.values(), TRAVEL]
    breaks = [each for each in CHAINS if len(each) > 1]
    tokenizer.add_tokens([AddedToken(each, normalized=False) for each in (*whole, *breaks)])
    return tokenizer


def made_weights(tokenizer: Tokenizer) -> dict[str, np.ndarray]:
    """Return random weights, whose last layer prefers what follows in an answer."""
    chance = np.random.default_rng(SEED)
    size = tokenizer.get_vocab_size()

    def drawn(*shape: int, scale: float) -> np.ndarray:
        return chance.normal(0, scale, shape).astype(np.float32)

    key = WIDTH // HEADS * KEY_HEADS
    weights = {
        "model.embed_tokens.weight": drawn(size, WIDTH, scale=1),
        "model.norm.weight": np.ones(WIDTH, np.float32),
        "lm_head.weight": drawn(size, WIDTH, scale=0.1),
    }
    shapes = {
        "self_attn.q_proj": (WIDTH, WIDTH),
        "self_attn.k_proj": (key, WIDTH),
        "self_attn.v_proj": (key, WIDTH),
        "self_attn.o_proj": (WIDTH, WIDTH),
        "mlp.gate_proj": (INNER, WIDTH),
        "mlp.up_proj": (INNER, WIDTH),
        "mlp.down_proj": (WIDTH, INNER),
    }
    for layer in range(LAYERS):
        at = f"model.layers.{layer}"
        for name, shape in shapes.items():
            weights[f"{at}.{name}.weight"] = drawn(*shape, scale=0.3 / math.sqrt(shape[1]))
            if name[-6:] in ("q_proj", "k_proj", "v_proj"):
                weights[f"{at}.{name}.bias"] = np.zeros(shape[0], np.float32)
        for name in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{at}.{name}.weight"] = np.ones(WIDTH, np.float32)
    embedded, head = weights["model.embed_tokens.weight"], weights["lm_head.weight"]
    for chain in CHAINS.items():
        for before, after in pairwise(the_token(tokenizer, each) for each in (chain[0], *chain[1])):
            head[after] += embedded[before] * (30 / WIDTH)
    for before, after in ((".", CALL), (CALL, TRAVEL)):  # where it may not end yet, or not call `weather`
        head[the_token(tokenizer, after)] += embedded[the_token(tokenizer, before)] * (15 / WIDTH)
    head[the_token(tokenizer, CALLED)] += embedded[the_token(tokenizer, TRAVEL)] * (30 / WIDTH)
    return weights


def the_token(tokenizer: Tokenizer, text: str) -> int:
    """Return the one token of a text."""
    (found,) = tokenizer.encode(text).ids
    return found


def settings() -> dict[str, Any]:
    """Return what `config.json` says."""
    return {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "hidden_size": WIDTH,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KEY_HEADS,
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "bos_token_id": None,
    }


def save_transformers(folder: Path, tokenizer: Tokenizer, weights: Mapping[str, np.ndarray]) -> None:
    """Save the model as transformers and vLLM read it."""
    ends = the_token(tokenizer, END)
    size = tokenizer.get_vocab_size()
    config = settings() | {"vocab_size": size, "eos_token_id": ends, "pad_token_id": 0}
    of_tokenizer = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": CONTEXT,
        "eos_token": END,
        "pad_token": "<|endoftext|>",
        "clean_up_tokenization_spaces": False,
        "chat_template": TEMPLATE,
    }
    generation = {"eos_token_id": ends, "pad_token_id": 0, "do_sample": True}
    for name, content in (
        ("config.json", config),
        ("tokenizer_config.json", of_tokenizer),
        ("generation_config.json", generation),
    ):
        (folder / name).write_text(json.dumps(content, indent=1), "utf-8")
    (folder / "chat_template.jinja").write_text(TEMPLATE, "utf-8")
    tokenizer.save(str(folder / "tokenizer.json"))
    save_file(dict(weights), folder / "model.safetensors", metadata={"format": "pt"})


def save_gguf(path: Path, tokenizer: Tokenizer, weights: Mapping[str, np.ndarray]) -> None:
    """Save the model as llama.cpp reads it."""
    writer = gguf.GGUFWriter(path, "qwen2")
    writer.add_name("tiny")
    writer.add_block_count(LAYERS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEY_HEADS)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    described = json.loads(tokenizer.to_str())
    added = {each["id"]: each["special"] for each in described["added_tokens"]}
    size = tokenizer.get_vocab_size()
    kinds = [
        gguf.TokenType.NORMAL
        if each not in added
        else gguf.TokenType.CONTROL
        if added[each]
        else gguf.TokenType.USER_DEFINED
        for each in range(size)
    ]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([tokenizer.id_to_token(each) for each in range(size)])
    writer.add_token_types(kinds)
    writer.add_token_merges([" ".join(each) for each in described["model"]["merges"]])
    writer.add_eos_token_id(the_token(tokenizer, END))
    writer.add_pad_token_id(0)
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN2, LAYERS)
    for name, weight in weights.items():
        stem, _, suffix = name.rpartition(".")
        writer.add_tensor(f"{names.get_name(stem)}.{suffix}", weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    """Make the model in the folder that is named."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = made_tokenizer()
    weights = made_weights(tokenizer)
    save_transformers(folder, tokenizer, weights)
    save_gguf(folder / "tiny.gguf", tokenizer, weights)


if __name__ == "__main__":
    main()
