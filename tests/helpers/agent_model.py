"""A tiny model that works as an agent: it calls one after another of its functions that are offered, then answers.

Its vocabulary is SmolLM2's, so that prompts have as many tokens as those of real models.
"""

import itertools
import json

import numpy as np
from gguf import GGUFReader
from helpers import tiny_models
from helpers.word_model import succession

#: What it answers: a piece is a token.
ANSWER = ["The keeper saw", " 90 ships."]

#: The template counts the messages of the assistant, and tells the model by a mark which one it writes.
TEMPLATE = """\
{%- set ns = namespace(step=0) -%}
{%- set offered = (tools or []) | map(attribute='function.name') | list -%}
{%- set marks = (SAYINGS | selectattr(0, 'in', offered) | map(attribute=1) | list) + ['<|answer|>'] -%}
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
{{ marks[[ns.step, (marks | length) - 1] | min] }}{{ message.content }}
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
{{ marks[[ns.step, (marks | length) - 1] | min] }}
{%- endif -%}
"""


def call_text(name, **arguments):
    """What it writes to call a function."""
    return f'<tool_call>\n{{"name": "{name}", "arguments": {json.dumps(arguments)}}}\n</tool_call>'


def write_model(path, sayings, vocabulary, n_ctx=65536):
    """Write the model.

    Parameters
    ----------
    sayings : sequence of (str, str)
        Functions, and what it says to call each, which is a token.
    vocabulary : path
        SmolLM2's file.
    """
    merges = GGUFReader(vocabulary).get_field("tokenizer.ggml.merges").contents()
    marks = [*(f"<|call_{number}|>" for number in range(len(sayings))), "<|answer|>"]
    texts = [*([mark, said] for mark, (_, said) in zip(marks, sayings, strict=False)), [marks[-1], *ANSWER]]
    pieces = [text for mark, *said in texts for text in said]
    first = 256 + len(merges) + len(tiny_models.SPECIALS)
    number = {text: token for token, text in enumerate([*marks, *pieces], first)}
    chains = [[*map(number.get, said), first - 1] for said in texts]  # the last token of all is <|im_end|>
    pairs = [pair for chain in chains for pair in itertools.pairwise(chain)]
    size = tiny_models.Size(1, 2, 1, 64, 128, 64, n_ctx, 32)
    metadata, tensors = succession(np.random.default_rng(0), size, first + len(number), pairs)
    spoken = sorted({after for _, after in pairs})
    others = np.setdiff1d(np.arange(first + len(number)), spoken)
    tensors["output.weight"][others] = 0.0
    tensors["output.weight"][spoken] *= 3.0  # sure, whatever the temperature
    names = [[name, mark] for (name, _), mark in zip(sayings, marks, strict=False)]
    template = TEMPLATE.replace("SAYINGS", json.dumps(names))
    more = {"merges": merges, "chat_template": template, "control": marks, "user": pieces}
    return tiny_models.write_gguf(path, "llama", metadata, tensors, **more)
