"""A session and the server make the same prompt of a conversation, whatever its template refuses."""

import pytest
from helpers import talking_model, tiny_models
from helpers.served import serving

import octavo
from octavo.ask.session import Session
from octavo.settings import Sampling

_REFUSES = "{{% if {} %}}{{{{ raise_exception('not here') }}}}{{% endif %}}<|im_start|>{{{{ m"
TEMPLATES = {
    "takes all": tiny_models.CHAT_TEMPLATE,
    "one system message": tiny_models.CHAT_TEMPLATE.replace(
        "<|im_start|>{{ m", _REFUSES.format("message.role == 'system' and not loop.first"), 1
    ),
    "no system message": tiny_models.CHAT_TEMPLATE.replace(
        "<|im_start|>{{ m", _REFUSES.format("message.role == 'system'"), 1
    ),
    "turns": tiny_models.CHAT_TEMPLATE.replace(
        "<|im_start|>{{ m", _REFUSES.format("(message.role == 'user') != (loop.index0 % 2 == 0)"), 1
    ),
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_session_and_the_server_make_the_same_prompt(name, tmp_path):
    path = talking_model.write_model(tmp_path / "model.gguf", TEMPLATES[name])
    system, more, question, answer, next_question = (
        {"role": role, "content": text}
        for role, text in (
            ("system", "Be kind."),
            ("system", "Be brief."),
            ("user", "Who?"),
            ("assistant", "I."),
            ("user", "Why?"),
        )
    )
    with serving(path, tmp_path) as served:
        prompts = [
            served.post("/apply-template", model="tiny", messages=messages)["prompt"]
            for messages in ([system, question], [system, more, question, answer, next_question])
        ]
    llama = octavo.Llama(path, n_ctx=512, n_threads=1)
    with Session(llama, Sampling(max_tokens=32, temperature=0), system["content"]) as session:
        assert session.ask(question["content"]).text == talking_model.ANSWER
        assert _context(session) == prompts[0] + talking_model.ANSWER
        session.recall([more, question, answer])
        session.ask(next_question["content"])
        assert _context(session) == prompts[1] + talking_model.ANSWER
        assert "Be brief." in prompts[1]
        assert prompts[1].index("Be kind.") < prompts[1].index("Who?") < prompts[1].index("Why?")


def _context(session):
    return session.llama.detokenize(session.llama.input_ids[: session.n_tokens].tolist(), special=True).decode()
