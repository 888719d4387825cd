"""Chat templates: those of common models in short forms, and those that fail, hang, or change what is written."""

import pytest
from helpers import tiny_models

import octavo
from octavo.runtime.models import model_file

pytestmark = pytest.mark.sampled

_EACH = "{% for m in messages %}"
_END = "{% endfor %}"

#: Those that are used.
USED = {
    "ChatML": _EACH + "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n" + _END + "<|im_start|>assistant\n",
    "Llama 2": _EACH
    + "{% if m.role == 'user' %}{{ bos_token + '[INST] ' + m.content.strip() + ' [/INST]' }}"
    + "{% elif m.role == 'system' %}{{ '<<SYS>>\n' + m.content + '\n<</SYS>>\n\n' }}"
    + "{% else %}{{ ' ' + m.content + ' ' + eos_token }}{% endif %}"
    + _END,
    "Llama 3": _EACH
    + "{{ '<|start_header_id|>' + m['role'] + '<|end_header_id|>\n\n' + m['content'] | trim + '<|eot_id|>' }}"
    + _END,
    "Gemma": "{{ bos_token }}{% if messages[0].role == 'system' %}{{ raise_exception('No system role') }}{% endif %}"
    + _EACH
    + "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate') }}{% endif %}"
    + "<start_of_turn>{{ ('model' if m.role == 'assistant' else m.role) + '\n' + m.content | trim }}<end_of_turn>\n"
    + _END,
    "Mistral": "{{ bos_token }}" + _EACH + "{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]"
    "{% elif m.role == 'assistant' %}{{ m.content }}{{ eos_token }}{% else %}{{ m.content }}{% endif %}" + _END,
    "Phi": _EACH + "{{ '<|' + m.role + '|>\n' + m.content + '<|end|>\n' }}" + _END + "<|assistant|>\n",
    "Qwen with tools": "{% if tools %}# Tools\n{% for tool in tools %}{{ tool | tojson }}{% endfor %}{% endif %}"
    + _EACH
    + "{% if m.tool_calls is defined %}{{ m.tool_calls | tojson }}{% endif %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    + _END,
    "DeepSeek": "{% set ns = namespace(system='') %}"
    + _EACH
    + "{% if m.role == 'system' %}{% set ns.system = m.content %}{% endif %}"
    + _END
    + "{{ ns.system }}"
    + _EACH
    + "{% if m.role == 'user' %}User: {{ m.content }}\n\n{% elif m.role == 'assistant' %}Assistant: {{ m.content }}"
    "{{ eos_token }}{% endif %}" + _END + "Assistant:",
    "Command R": _EACH
    + "<|START_OF_TURN_TOKEN|><|{{ m.role | upper }}_TOKEN|>{{ m.content }}<|END_OF_TURN_TOKEN|>"
    + _END,
    "Zephyr": _EACH + "{{ '<|' + m['role'] + '|>\n' + m['content'] + eos_token }}\n" + _END,
    "with the date": "{{ strftime_now('%d %B') }}" + _EACH + "{{ m.role }}: {{ m.content }}\n" + _END,
    "with loop controls": _EACH + "{% if m.role == 'tool' %}{% continue %}{% endif %}{{ m.content }}\n" + _END,
    "with generation tags": _EACH + "{% generation %}{{ m.content }}{% endgeneration %}\n" + _END,
}

_LONG = "{% for i in range(99999) %}"

#: Those that are not, and why.
REFUSED = {
    "a loop in a loop": (
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "too much time",
    ),
    "a loop that a switch begins": (
        _EACH + "{{ m.content }}" + _END + "{% if enable_thinking is defined %}{% for i in range(99999) %}"
        "{% for j in range(99999) %}{% endfor %}{% endfor %}{% endif %}",
        "too much time",
    ),
    "a large range": ("{% for i in range(10 ** 9) %}{% endfor %}", "fails: Range too big"),
    "much text": ("{{ 'a' * 3000000 }}", "3,000,000 characters"),
    "text beyond memory": ("{{ 'a' * 10 ** 11 }}", "too much time or memory"),
    "a large number": ("{{ 10 ** 10 ** 7 }}", "too much|fails|leaves it out"),
    "what raises": ("{{ raise_exception('Not today') }}", "fails: Not today"),
    "bad syntax": ("{% for %}", "fails: Expected an expression"),
    "an unknown tag": ("{% import_os %}", "fails: Encountered unknown tag"),
    "an unknown filter": (_EACH + "{{ m.content | shout }}" + _END, "fails: No filter named 'shout'"),
    "an unknown function": ("{{ run('ls') }}", "fails: 'run' is undefined"),
    "a way out of the sandbox": ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "fails: access to attribute"),
    "a way out by format": ("{{ '{0.__class__}'.format(messages) }}", "fails|leaves it out"),
    "recursion": ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "too much|fails"),
    "upper case": (_EACH + "{{ m.content | upper }}" + _END, "changes or repeats"),
    "repetition": (_EACH + "{{ m.content }}{{ m.content }}" + _END, "changes or repeats"),
    "no answers": (_EACH + "{% if m.role == 'user' %}{{ m.content }}{% endif %}" + _END, "leaves it out"),
    "the last message alone": ("{{ messages[-1].content }}", "leaves it out"),
    "the reverse order": ("{% for m in messages | reverse %}{{ m.content }}{% endfor %}", "changes the order"),
    "division by zero": ("{{ 1 / 0 }}", "fails: division by zero"),
    "an include": ("{% include '/etc/passwd' %}", "fails"),
    "nothing": ("", "leaves it out"),
}


@pytest.fixture
def loaded(tmp_path, loads_apart, monkeypatch):
    """Load a model with a template; the first load is in a process of its own, as for users."""
    monkeypatch.setattr(model_file, "load_apart", loads_apart)

    def load(template):
        path = tiny_models.write_model(tmp_path / "model.gguf", "llama", chat_template=template)
        return octavo.Llama(path, n_ctx=256, n_batch=64, n_threads=2)

    return load


@pytest.mark.parametrize("name", USED)
def test_a_template_that_is_used(loaded, tally, name):
    llama = loaded(USED[name])
    assert llama.template_problem == ""
    assert llama.prompt().has_template
    for prompt in (llama.prompt(), llama.prompt(has_document=False, system="Be short.")):
        assert prompt.head()
        assert prompt.next_question("Why?")
    tally("a chat template", "used")


@pytest.mark.parametrize("name", REFUSED)
def test_a_template_that_falls_back(loaded, tally, name):
    template, reason = REFUSED[name]
    llama = loaded(template)
    if template:
        assert any(each in llama.template_problem for each in reason.split("|")), llama.template_problem
    prompt = llama.prompt()
    assert not prompt.has_template
    assert prompt.stops == ["\n\nQuestion:"]
    tally("a chat template", "the plain form in its place")
