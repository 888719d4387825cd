"""A tiny model that thinks before it answers, in tags or in channels."""

import itertools

import numpy as np
from helpers import tiny_models
from helpers.word_model import succession

#: What it thinks and answers. No character comes twice: each leads to the next one, and the last to the end.
THOUGHT, ANSWER = "drum", "Ship, 90."

TAGS = ["<think>", "</think>"]
#: Tokens of channels, of which llama.cpp makes text. With the last two, it knows that <|end|> ends no answer.
CHANNELS = ["<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|return|>", "<|call|>"]
#: Control tokens of another form, which have no text.
HIDDEN = [f"<|{edge}_{what}|>" for what in ("THINKING", "RESPONSE") for edge in ("START", "END")]

#: A template with a switch, which keeps the thoughts of earlier answers.
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{% if message['reasoning_content'] %}"
    "<think>{{ message['reasoning_content'] }}</think>{% endif %}{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% if enable_thinking is defined and not enable_thinking %}"
    "<think></think>{% endif %}{% endif %}"
)
#: One whose prompt begins the thought.
OPENING = TEMPLATE.partition("{% if enable_thinking")[0] + "<think>{% endif %}"
#: Channels, as gpt-oss writes them.
IN_CHANNELS = (
    "{% for message in messages %}<|start|>{{ message['role'] }}{% if message['role'] == 'assistant' %}"
    "{% if message['thinking'] %}<|channel|>analysis<|message|>{{ message['thinking'] }}<|end|><|start|>assistant"
    "{% endif %}<|channel|>final{% endif %}<|message|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant{% endif %}"
)
#: Tags that are control tokens.
IN_HIDDEN_TAGS = tiny_models.CHAT_TEMPLATE + "{# " + "".join(HIDDEN) + " #}"


def write_model(path, template=TEMPLATE, endless=False):
    """Write the model, which says <think>THOUGHT</think>ANSWER; if it is endless, it thinks THOUGHT again and again."""
    ordinary = tiny_models.ordinary_tokens(tiny_models.MERGES)
    tokens = [*ordinary, *tiny_models.SPECIALS, *CHANNELS, *HIDDEN, *TAGS]
    number = {"\n": tokens.index("Ċ"), " ": tokens.index("Ġ")} | {token: i for i, token in enumerate(tokens)}
    said = ["\n", "<think>", *THOUGHT, "</think>", *ANSWER, "<|im_end|>"]
    if endless:
        at = said.index("</think>")
        pairs = [*itertools.pairwise(said[:at]), (THOUGHT[-1], THOUGHT[0]), *itertools.pairwise(said[at:])]
    else:
        pairs = list(itertools.pairwise(said))
    size = tiny_models.Size(2, 4, 2, 64, 512, 256, 4096, 32)
    numbers = [(number[before], number[after]) for before, after in pairs]
    metadata, tensors = succession(np.random.default_rng(0), size, len(tokens), numbers)
    return tiny_models.write_gguf(
        path, "llama", metadata, tensors, chat_template=template, control=[*CHANNELS, *HIDDEN], user=TAGS
    )


def say(monkeypatch, llama, text):
    """Have a model say a text, in its control tokens, and end."""
    tokens = iter([*llama.tokenize(text.encode(), add_bos=False, special=True), tiny_models.IM_END])
    monkeypatch.setattr(llama, "sample", lambda **_: next(tokens))
