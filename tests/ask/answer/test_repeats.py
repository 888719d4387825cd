"""What a model writes without end is noticed, and what repeats itself for a reason is not."""

import json

import pytest
from helpers.product import ROOT
from helpers.talking_model import LOOP, write_model

import octavo
from octavo.ask.answer.repeats import LoopWatch

#: Loops that small models wrote: the text before, and what comes again and again.
LOOPS = [
    ("The Colosseum is the largest amphitheatre. ", "It was built to hold 500 spectators. "),
    ("", "terrestrial planet that is a "),
    ("Autumn\n\n", "A harvest moon's light,\n"),
    ("Some synonyms are:\n", "* Pleasureful\n"),
    ("", "ha "),
    ("In other languages: ", '"Good Morning" in Hebrew, '),
]

GIFTS = ["partridge in a pear tree", "two turtle doves", "three French hens", "four calling birds", "five gold rings"]
GIFTS += ["six geese a-laying", "seven swans a-swimming", "eight maids a-milking", "nine ladies dancing"]
JACK = ["the house that Jack built", "the malt that lay in", "the rat that ate", "the cat that killed"]
JACK += ["the dog that worried", "the cow with the crumpled horn that tossed", "the maiden all forlorn that milked"]

LEGITIMATE = {
    "cumulative song": "".join(f"On day {n}:\n" + ",\n".join(GIFTS[n::-1]) + ".\n\n" for n in range(len(GIFTS))),
    "nursery rhyme": "".join("This is " + "\n".join(JACK[n::-1]) + ".\n\n" for n in range(len(JACK))),
    "counting song": "".join(
        f"{n} bottles of beer on the wall, {n} bottles of beer.\nTake one down, {n - 1} bottles on the wall.\n\n"
        for n in range(99, 1, -1)
    ),
    "chorus": "".join(
        f"Verse {n} is about {about}, in words of its own.\n\nAnd it's no, nay, never,\nNo, nay, never, no more,\n"
        "Will I play the wild rover,\nNo, never, no more.\n\n"
        for n, about in enumerate(("sea", "land", "wine", "gold", "home", "roads"))
    ),
    "round": "Row, row, row your boat\nGently down the stream.\nMerrily, merrily, merrily,\nLife is but a dream.\n" * 3,
    "litany": "".join(f"Saint {name}, pray for us.\n" for name in (*JACK, *GIFTS, *JACK, *GIFTS)),
    "integers": ", ".join(map(str, range(800))),
    "zeros": ("0, " * 28 + "\n") * 28,
    "table": "| n | square |\n| --- | --- |\n" + "".join(f"| {n} | {n * n} |\n" for n in range(200)),
    "equal rows": "| day | weather | sold |\n| --- | --- | --- |\n" + "| Monday | sunny | 0 |\n" * 18,
    "log": "".join(f"2024-05-01 10:{m:02}:00 INFO request served in {m * 7 % 50} ms\n" for m in range(60)),
    "JSON": json.dumps([{"name": "sensor", "unit": "kelvin", "value": 0}] * 30),
    "code": "```python\n" + "".join(f"def test_{n}():\n    assert f({n}) == 0\n\n" for n in range(60)) + "```",
    "equal lines of code": "```\n" + "    x = block(x)\n" * 15 + "```",
    "form": "Name: ______________________________\nStreet: ____________________________\n" * 6,
    "lines": "Contents " + "." * 300 + " 5\n" + "-" * 300 + "\n",
}


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
    assert answer.finish_reason == "loop"
    assert answer.text == (LOOP * 100)[: len(answer.text)]
    assert 300 <= len(answer.text) < 400
