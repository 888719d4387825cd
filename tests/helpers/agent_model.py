"""A tiny model that works as an agent: its n-th message of a conversation is the n-th of its sayings.

Its vocabulary is SmolLM2's, so that prompts have as many tokens as those of real models.
"""

import itertools
import json

import numpy as np
from gguf import GGUFReader
from helpers import tiny_models
from helpers.word_model import succession

#: What it says where no functions are offered, and when it has said all the rest: a piece is a token.
ANSWER = ["The keeper saw", " 90 ships."]

#: The template counts the messages of the assistant: a mark tells the model which of them it writes.
TEMPLATE = """\
{%- set ns = namespace(step=0) -%}
{%- if tools -%}
<|im_start|>system
{% if messages[0].role == 'system' %}{{ messages[0].content }}

{% endif %}Functions:
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}A call is <tool_call>
{"name": "...", "arguments": {...}}
</tool_call><|im_end|>
{% endif -%}
{%- for message in messages -%}
{%- if message.role == 'assistant' -%}
<|im_start|>assistant
<|step_{{ [ns.step, LAST] | min if tools else LAST }}|>{{ message.content }}
{%- for call in message.tool_calls or [] -%}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor -%}
<|im_end|>
{% set ns.step = ns.step + 1 -%}
{%- elif message.role == 'tool' -%}
<|im_start|>user
<tool_response>
{{ message.content }}
</tool_response><|im_end|>
{% elif not (tools and loop.first and message.role == 'system') -%}
<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
<|step_{{ [ns.step, LAST] | min if tools else LAST }}|>
{%- endif -%}
"""


def call(name, **arguments):
    """A saying that calls a function."""
    return f'<tool_call>\n{{"name": "{name}", "arguments": {json.dumps(arguments)}}}\n</tool_call>'


def write_model(path, sayings, vocabulary, n_ctx=65536):
    """Write the model.

    Parameters
    ----------
    sayings : sequence of str
        What it says in its first, second... message; then it says ANSWER. Each is a token.
    vocabulary : path
        SmolLM2's file.
    """
    said = [*([saying] for saying in sayings), ANSWER]
    merges = GGUFReader(vocabulary).get_field("tokenizer.ggml.merges").contents()
    steps = [f"<|step_{number}|>" for number in range(len(said))]
    pieces = list(dict.fromkeys(itertools.chain(*said)))
    first = 256 + len(merges) + len(tiny_models.SPECIALS)
    number = {text: token for token, text in enumerate([*steps, *pieces], first)}
    texts = [(step, *saying) for step, saying in zip(steps, said, strict=True)]
    chains = [[*(number[text] for text in each), first - 1] for each in texts]  # the last is <|im_end|>
    pairs = [pair for chain in chains for pair in itertools.pairwise(chain)]
    size = tiny_models.Size(1, 2, 1, 64, 128, 64, n_ctx, 32)
    metadata, tensors = succession(np.random.default_rng(0), size, first + len(number), pairs)
    spoken = sorted({after for _, after in pairs})
    others = np.setdiff1d(np.arange(first + len(number)), spoken)
    tensors["output.weight"][others] = 0.0
    tensors["output.weight"][spoken] *= 3.0  # sure, whatever the temperature
    template = TEMPLATE.replace("LAST", str(len(sayings)))
    more = {"merges": merges, "chat_template": template, "control": steps, "user": pieces}
    return tiny_models.write_gguf(path, "llama", metadata, tensors, **more)
