"""The next prompt of a conversation is what the whole template makes of it, and only what differs is read again."""

import pytest
from helpers import talking_model, tiny_models

import octavo
from octavo.ask.chats.history import History, tokens_of
from octavo.ask.session import Session
from octavo.prompts.chat_template import INSTRUCTION
from octavo.settings import Sampling

DOCUMENT = "The sky is blue."
#: An answer that is finished begins with an empty thought, and a new one does not: as GLM's and gpt-oss's do.
FINISHED = tiny_models.CHAT_TEMPLATE.replace(
    "{{ message['content'] }}",
    "{% if message['role'] == 'assistant' %}<think></think>{% endif %}{{ message['content'] }}",
)
#: Thoughts are part of the last answer only: as Qwen3's.
THOUGHTS = tiny_models.CHAT_TEMPLATE.replace(
    "{{ message['content'] }}",
    "{% if message.reasoning_content and loop.index > messages | length - 3 %}<think>"
    "{{ message.reasoning_content }}</think>{% endif %}{{ message['content'] | trim }}",
)


@pytest.fixture(scope="module")
def talks(tmp_path_factory):
    """Return a session with a model that answers `talking_model.ANSWER`, over a document or over nothing."""
    folder, made = tmp_path_factory.mktemp("talks"), {}

    def of(template, has_document=True, system="", **sampling):
        if template not in made:
            path = talking_model.write_model(folder / f"{len(made)}.gguf", template)
            made[template] = octavo.Llama(path, n_ctx=1024, n_threads=2)
        llama = made[template]
        llama.reset()
        prompt = llama.prompt()
        if has_document:
            llama.eval(prompt.head() + prompt.document(DOCUMENT))
        return Session(llama, Sampling(max_tokens=32, temperature=0, **sampling), system)

    yield of
    for llama in made.values():
        llama.close()


def context_of(session):
    return session.llama.detokenize(session.llama.input_ids[: session.n_tokens].tolist(), special=True).decode()


def with_texts(llama, tokens):
    return [(token, llama.piece(token)) for token in tokens]


def messages_of(questions, first="", answer=talking_model.ANSWER):
    messages = []
    for question in questions:
        messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    messages[0]["content"] = first + messages[0]["content"]
    return messages[:-1]


@pytest.mark.parametrize("has_document", [True, False])
@pytest.mark.parametrize("template", [tiny_models.CHAT_TEMPLATE, FINISHED])
def test_each_turn_is_what_the_whole_template_gives(talks, template, has_document):
    session = talks(template, has_document)
    first = f"{INSTRUCTION}{DOCUMENT}\n\n" if has_document else ""
    for n_questions in (1, 2, 3):
        asked = [f"Number {number}?" for number in range(n_questions)]
        assert session.ask(asked[-1]).text == talking_model.ANSWER
        expected = session.llama.chat_template.render(messages_of(asked, first))
        assert context_of(session) == expected + talking_model.ANSWER
    assert "".join(session.regenerate()) == talking_model.ANSWER
    assert context_of(session) == expected + talking_model.ANSWER


def test_only_what_differs_is_read_again(talks):
    llama = talks(FINISHED).llama
    tokens = llama.tokenize(talking_model.ANSWER.encode(), add_bos=False)
    for template, n_again in ((tiny_models.CHAT_TEMPLATE, 0), (FINISHED, len(tokens))):
        session = talks(template)
        session.ask("Who?")
        n_before, n_read = session.n_tokens, []
        evaluate = session.llama.eval
        session.llama.eval = lambda given, evaluate=evaluate, n_read=n_read: (
            n_read.append(len(given)),
            evaluate(given),
        )
        session.ask("Why?")
        del session.llama.eval
        assert n_read[0] == session.n_tokens - len(tokens) - n_before + n_again


def test_thoughts_that_the_template_strips_leave_the_context(talks):
    session = talks(THOUGHTS)
    llama, history = session.llama, History()
    thought = llama.tokenize(b"<think>Hm. So?</think>\n Yes.", add_bos=False, special=True)
    history = history.asked("Who?")
    history.answer("\n Yes.", "Hm. So?", with_texts(llama, thought))
    history = history.asked("Why?")

    def rendered(history):
        tokens = llama.prompt().tokens(history.messages, written=history.spoken)
        return llama.detokenize(tokens, special=True).decode()

    assert "<think>Hm. So?</think>Yes.<|im_end|>" in rendered(history)
    history.answer("No.", "", [])
    history = history.asked("When?")
    assert "Hm." not in rendered(history)


def test_an_answer_keeps_the_tokens_that_the_model_drew(talks):
    """A text may have several tokenizations: the model drew letters here."""
    session = talks(tiny_models.CHAT_TEMPLATE)
    llama = session.llama
    drawn = [llama.tokenize(letter.encode(), add_bos=False)[0] for letter in " the ship\n"]
    assert tokens_of(with_texts(llama, drawn), "the ship") == drawn[1:-1]
    assert llama.tokenize(b"the ship", add_bos=False) != drawn[1:-1]
    whole = llama.tokenize(b"the ship", add_bos=False)
    assert tokens_of(with_texts(llama, [tiny_models.IM_START, *whole, tiny_models.IM_END]), "the ship") == whole
    assert tokens_of(with_texts(llama, [whole[0], tiny_models.IM_END, *whole[1:]]), "the ship") == []
    assert tokens_of(with_texts(llama, whole), "he ship") == ([] if len(llama.piece(whole[0])) > 1 else whole[1:])


def test_an_answer_whose_bytes_are_not_utf_8_keeps_its_tokens(talks):
    llama = talks(tiny_models.CHAT_TEMPLATE).llama
    euro = llama.tokenize("12 €".encode(), add_bos=False)
    assert llama.piece(euro[-1]) != "€".encode()
    assert tokens_of(with_texts(llama, euro[:-1]), "12 \ufffd") == euro[:-1]


def test_a_question_without_an_answer_is_replaced(talks):
    session = talks(FINISHED)
    session.ask("Who?")
    stream = session.stream("Why?")
    stream.close()
    with pytest.raises(octavo.OctavoError, match="does not fit"):
        session.ask("long " * 2000)
    session.ask("When?")
    assert context_of(session).count("<|im_start|>user") == 2
    assert "Why?" not in context_of(session)


def test_a_saved_conversation_goes_on_by_its_messages(talks, tmp_path):
    session = talks(FINISHED)
    session.ask("Who?")
    session.save(str(tmp_path / "talk.safetensors"))
    session.clear()
    session.load(str(tmp_path / "talk.safetensors"))
    session.ask("Why?")
    expected = session.llama.chat_template.render(messages_of(["Who?", "Why?"], f"{INSTRUCTION}{DOCUMENT}\n\n"))
    assert context_of(session) == expected + talking_model.ANSWER


def test_a_conversation_that_an_older_octavo_saved_goes_on(talks):
    session = talks(tiny_models.CHAT_TEMPLATE)
    session.ask("Who?")
    older = session.conversation()
    session.resume(type(older)(older.follows, older.tokens, older.rows, older.unread, older.last))
    session.ask("Why?")
    assert context_of(session).count("<|im_start|>user") == 2


def test_the_system_prompt_has_its_place(talks):
    over = talks(tiny_models.CHAT_TEMPLATE, system="Be kind.")
    over.ask("Who?")
    assert f"{DOCUMENT}\n\nBe kind.\n\nWho?<|im_end|>" in context_of(over)
    alone = talks(tiny_models.CHAT_TEMPLATE, has_document=False, system="Be kind.")
    alone.ask("Who?")
    assert context_of(alone).startswith("<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nWho?<|im_end|>")
