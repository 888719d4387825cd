"""What a model writes without end is noticed, and what repeats itself for a reason is not."""

import pytest
from helpers.product import ROOT
from helpers.repeating_texts import LEGITIMATE, LOOPS
from helpers.talking_model import LOOP, write_model

import octavo
from octavo.ask.answer.repeats import LoopWatch


def stopped(text, question="What is there?", piece=4):
    """After how many characters a text is found to loop, as its pieces come; None if it is not."""
    watch = LoopWatch(question)
    return next((at + piece for at in range(0, len(text), piece) if watch.add(text[at : at + piece])), None)


@pytest.mark.parametrize(("before", "unit"), LOOPS, ids=lambda value: repr(value)[:24])
@pytest.mark.parametrize("piece", [1, 7, 40])
def test_a_loop_is_noticed(before, unit, piece):
    at = stopped(before + unit * 300, piece=piece)
    assert at is not None
    assert at < len(before) + 1000


def test_a_list_whose_items_are_the_same_is_a_loop():
    item = "Zambezi River: it is the largest river in Tanzania, and the largest in Africa.\n\n"
    assert stopped("".join(f"{n}. {item}" for n in range(1, 40))) < 20 * len(item)
    assert stopped("".join(f"{n}. {n * n} is the square of {n}, as is well known.\n" for n in range(1, 90))) is None


def test_sentences_that_come_again_in_another_order_are_a_loop():
    parts = [f"{name} was a hard-working man with a passion for the sea. " for name in ("Pedro", "Juan", "Luis")]
    parts += [f"{name} was a beautiful woman, and she was the daughter of a fisherman. " for name in ("Ana", "Rosa")]
    text = "".join(parts[n * n % 7 % 5] + parts[n % 5] for n in range(60))
    assert stopped(text) < 3000


@pytest.mark.parametrize("kind", LEGITIMATE)
def test_what_repeats_itself_for_a_reason_is_left_alone(kind):
    assert stopped(LEGITIMATE[kind]) is None


def test_texts_and_code_are_left_alone():
    """The texts of this project, as a model might write them."""
    paths = [
        *ROOT.glob("examples/*.md"),
        *ROOT.glob("examples/*.txt"),
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("ask/*/*.py"),
    ]
    assert len(paths) > 30
    assert [path.name for path in paths if stopped(path.read_text("utf-8")[:20_000], piece=48) is not None] == []


def test_paragraphs_that_are_told_again_are_a_loop():
    told = [
        f"{name} was a harbour master for many years. The ledger of {name} names each ship, and its captain.\n\n"
        for name in ("Pedro", "Juan", "Luis")
    ]
    assert stopped("".join(told)) is None
    assert len("".join(told)) < stopped("".join(told) * 4) <= len("".join(told * 2))
    assert stopped(told[0] * 9) <= 4 * len(told[0])
    assert stopped("".join(f"{n}. {told[n % 3]}" for n in range(30))) <= 6 * len(told[0])
    assert stopped("".join([*told, "The end.\n\n", *told[:1], "It was told.\n\n"])) is None


def test_copies_that_the_question_asks_for_are_left_alone():
    line = "I will not talk in class. "
    assert stopped(line * 40, "Write 'I will not talk in class' 40 times.") is None
    assert stopped(line * 40, "What did he write?") is not None
    assert stopped("Who is the heir? " * 60, "Who is the heir?") is not None


def test_an_answer_that_loops_is_stopped(tmp_path):
    path = tmp_path / "loops.gguf"
    write_model(path, loops=True)
    with octavo.open_session(path, sampling=octavo.Sampling(max_tokens=1000, temperature=0)) as session:
        answer = session.ask("Hello?")
        again = session.ask("And then?")
    assert answer.finish_reason == "loop"
    assert answer.text == (LOOP * 100)[: len(answer.text)]
    assert len(answer.text) <= 24 + len(LOOP)
    assert again.text == answer.text  # the conversation holds no copies
