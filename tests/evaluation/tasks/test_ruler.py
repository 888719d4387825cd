"""RULER's tasks: what is hidden is in the text as the paper says, and what is expected is what one finds there."""

import math
import re
from collections import Counter

import numpy as np
import pytest
from helpers.evaluation_runs import decoded, noise, outcome

from octavo.errors import OctavoError
from octavo.evaluation.folders.multikey import FolderMultikey
from octavo.evaluation.tasks.common_words import CommonWords
from octavo.evaluation.tasks.frequent_words import FrequentWords
from octavo.evaluation.tasks.niah import MultiKeyNiah, MultiQueryNiah, MultiValueNiah, SingleNiah
from octavo.evaluation.tasks.ruler import NOISE
from octavo.evaluation.tasks.task import NOVEL, Task
from octavo.evaluation.tasks.text_scores import recall
from octavo.evaluation.tasks.variable_tracking import VariableTracking

pytestmark = pytest.mark.sampled

DEPTH = 3000
RULER = (
    SingleNiah(),
    SingleNiah(haystack="essay"),
    SingleNiah(haystack="essay", value="uuid"),
    MultiKeyNiah(),
    MultiKeyNiah(haystack="needles"),
    MultiKeyNiah(haystack="needles", key="uuid", value="uuid"),
    MultiValueNiah(),
    MultiQueryNiah(),
    VariableTracking(),
    VariableTracking(chains=3, hops=2),
    CommonWords(),
    FrequentWords(),
)
NEEDLE = re.compile(r"One of the special magic (?:number|uuid)s for (\S+) is: (\S+)\.\n")


def named(task):
    return f"{task.name}-{'-'.join(map(str, vars(task).values()))}"


BY_NAME = {"ids": named}


def samples_of(words, task, n=4, depth=DEPTH):
    """Return text and samples, and what they say."""
    return [
        (decoded(words, text.tokens), [(decoded(words, sample.prompt), sample) for sample in text.samples])
        for text in task.texts(words, task.data, depth, n, 0)
    ]


@pytest.mark.parametrize(
    ("written", "score"),
    [
        (" 1234567, 7654321.", 1),
        ("7654321", 1 / 2),
        ("the number is 1234567", 1 / 2),
        ("1234567 and 1234567", 1 / 2),  # each counts once
        ("123456 7", 0),
        ("", 0),
    ],
)
def test_recall_is_the_share_of_the_expected_strings(written, score):
    assert recall(written, ("1234567", "7654321")) == score


def test_recall_takes_any_case():
    assert recall("the ABC", ("abc", "The")) == 1


@pytest.mark.parametrize("task", RULER, **BY_NAME)
def test_the_same_seed_draws_the_same_texts(words, task):
    first, again, other = (task.texts(words, NOVEL, DEPTH, 5, seed) for seed in (0, 0, 1))
    assert first == again
    assert first[0].tokens != other[0].tokens
    assert sum(len(text.samples) for text in first) == 5


@pytest.mark.parametrize("task", RULER, **BY_NAME)
@pytest.mark.parametrize("depth", [2500, 6000])
def test_texts_fill_the_requested_depth(words, task, depth):
    for text in task.texts(words, NOVEL, depth, 2, 0):
        assert 0.97 * depth - 40 <= len(text.tokens) <= depth


@pytest.mark.parametrize("task", RULER, **BY_NAME)
def test_all_is_right_or_noise(words, task):
    rng = np.random.default_rng(0)
    for text in task.texts(words, NOVEL, DEPTH, 4, 0):
        for sample in text.samples:
            right = outcome(" ".join(reversed(sample.answers)))
            assert task.score(sample, right, right) == {"score": 1}
            assert task.score(sample, noise(words, sample, rng), right)["score"] <= 0.2
            assert len(words.tokenize(right.text.encode(), add_bos=False)) < sample.n_predict


@pytest.mark.parametrize("task", RULER[:8], **BY_NAME)
def test_keys_have_the_expected_values(words, task):
    for text, samples in samples_of(words, task):
        values = {}
        for key, value in NEEDLE.findall(text):
            values.setdefault(key, []).append(value)
        assert {len(own) for own in values.values()} == {task.values}
        if task.haystack == "needles":
            assert len(values) > 25
        else:
            assert len(values) == max(task.keys, task.queries)
        for prompt, sample in samples:
            asked = [key for key in values if f"{key}," in prompt or f"{key} mentioned" in prompt]
            assert len(asked) == task.queries
            assert sorted(sample.answers) == sorted(value for key in asked for value in values[key])
            if sample.position is not None:
                at = text.index(f"for {asked[0]} is")
                share = len(words.tokenize(text[:at].encode(), add_bos=False)) / DEPTH
                assert share == pytest.approx(sample.position, abs=0.12)


def test_questions_are_those_of_the_paper(words):
    [(text, [(prompt, _)])] = samples_of(words, MultiQueryNiah(), 1)
    user = "<|im_start|>user\n"
    assert text.split(user)[1].startswith(
        "Some special magic numbers are hidden within the following text. Make sure to memorize it. I will quiz you "
        "about the numbers afterwards.\n"
    )
    assert re.fullmatch(
        r"\nWhat are all the special magic numbers for (\S+, \S+, \S+, and \S+) mentioned in the provided text\?"
        r"<\|im_end\|>\n<\|im_start\|>assistant\n"
        r"The special magic numbers for \1 mentioned in the provided text are",
        prompt,
    )
    [(_, [(prompt, _)])] = samples_of(words, SingleNiah(value="uuid"), 1)
    assert re.search(r"What is the special magic uuid for (\S+) mentioned in the provided text\?", prompt)
    assert re.search(r"The special magic uuid for (\S+) mentioned in the provided text is$", prompt)


def test_a_model_without_a_template_reads_the_task_as_it_is(llama, monkeypatch):
    """Table 6, base models."""
    monkeypatch.setattr(llama, "chat_template", None)
    [text] = SingleNiah().texts(llama, NOVEL, 1500, 1, 0)
    assert decoded(llama, text.tokens).startswith("Some special magic numbers are hidden")
    assert re.fullmatch(
        r"\nWhat is the special magic number for (\S+) mentioned in the provided text\? "
        r"The special magic number for \1 mentioned in the provided text is",
        decoded(llama, text.samples[0].prompt),
    )


def test_haystacks(words):
    [(text, _)] = samples_of(words, SingleNiah(), 1)
    lines = text.split("afterwards.\n")[1].splitlines(keepends=True)
    assert set(lines) - {NOISE} == {line for line in lines if NEEDLE.fullmatch(line)}
    [(text, _)] = samples_of(words, MultiKeyNiah(haystack="needles"), 1)
    assert all(NEEDLE.fullmatch(line) for line in text.split("afterwards.\n")[1].splitlines(keepends=True))
    [(text, _)] = samples_of(words, MultiKeyNiah(), 1)
    prose = NEEDLE.sub("\0", text.split("afterwards.\n")[1]).replace("\0\n", "")
    whole = NOVEL.read_text("utf-8")
    assert prose in f"{whole}\n\n{whole}"


@pytest.mark.parametrize("task", RULER[8:10], **BY_NAME)
def test_variables_are_those_that_lead_to_the_value(words, task):
    for text, samples in samples_of(words, task, 6):
        _, example, hidden = text.split(
            "Memorize and track the chain(s) of variable assignment hidden in the following"
        )
        value, named_variables = re.search(r"assigned the value (\d+), they are: (.*)\n", example).groups()
        assert followed(example, value) == named_variables.split()
        assert len(re.findall("VAR", hidden)) == task.chains * (task.hops + 1)
        assert len(samples) == task.chains
        for prompt, sample in samples:
            value = re.search(r"Find all variables that are assigned the value (\d+) in the text above", prompt)[1]
            assert f"{task.hops + 1} variables are assigned the value {value}, they are:" in prompt
            assert followed(hidden, value) == list(sample.answers)
            assert len(sample.answers) == task.hops + 1


def followed(text, value):
    """Return the variables that have a value, reading line by line: each is assigned after the one before it."""
    known = [value]
    for name, given in re.findall(r"VAR (\w+) = (\w+)\n", text):
        if given in known:
            known.append(name)
    return known[1:]


def test_common_words_are_common(words):
    for text, [(prompt, sample)] in samples_of(words, CommonWords(), 3):
        _, example, listed = text.split("Memorize the ones that appear most often.\n")
        entries = re.findall(r"(\d+)\. (\w+)", listed)
        assert [int(number) for number, _ in entries] == list(range(1, len(entries) + 1))
        counts = Counter(word for _, word in entries)
        assert {word for word, n in counts.items() if n == 30} == set(sample.answers)
        assert len(sample.answers) == 10
        assert {n for word, n in counts.items() if word not in sample.answers} == {3}
        assert "What are the 10 most common words in the above list?" in prompt
        shown, answer = example.split("in the list are: ")
        shown_counts = Counter(word for _, word in re.findall(r"(\d+)\. (\w+)", shown))
        assert {word for word, _ in shown_counts.most_common(10)} == set(answer.split()[:10])
        assert not counts.keys() & shown_counts.keys()


def test_frequent_words_fall_by_a_power_of_the_rank(words):
    for text, [(_, sample)] in samples_of(words, FrequentWords(), 3, 6000):
        coded = text.split("coded words.\n")[1].split()
        counts = Counter(coded)
        [(noise_word, _), *frequent] = counts.most_common(4)
        assert noise_word == "..."
        assert [word for word, _ in frequent] == list(sample.answers)
        for rank, (_, n) in enumerate(counts.most_common(8), 1):
            assert n == pytest.approx(len(coded) * rank**-2 / (math.pi**2 / 6), rel=0.05, abs=1)


@pytest.mark.parametrize("task", RULER, **BY_NAME)
def test_too_few_tokens_are_refused(words, task):
    with pytest.raises(OctavoError, match=rf"^\d+ tokens have no room for what {task.name} hides in them: give larger"):
        task.texts(words, NOVEL, 70, 1, 0)


def test_too_few_words_are_refused(words, tmp_path):
    data = tmp_path / "short.txt"
    data.write_text(
        "only these seven small words occur here " * 9 + "and more come after them once again maybe", "utf-8"
    )
    with pytest.raises(OctavoError, match=r"short\.txt has \d+ different words .* too few for a list of 3,000 tokens"):
        CommonWords(common=2).texts(words, data, DEPTH, 1, 0)


GEORGIAN = "ყველა ბედნიერი ოჯახი ერთმანეთს ჰგავს.\n\n" * 60


@pytest.mark.parametrize(
    ("task", "text", "has"),
    [
        (SingleNiah(), GEORGIAN, 0),
        (MultiKeyNiah(haystack="needles"), GEORGIAN, 0),
        (SingleNiah(key="number", value="word"), GEORGIAN, 0),
        (MultiKeyNiah(haystack="needles"), "Only three words of this.\n\n" * 300, 3),
        (CommonWords(), GEORGIAN, 0),
        (CommonWords(), "Only three words of this.\n\n" * 300, 3),
    ],
    ids=lambda value: named(value) if isinstance(value, Task) else "",
)
def test_a_text_without_enough_words_is_refused(words, tmp_path, task, text, has):
    path = tmp_path / "text.txt"
    path.write_text(text, "utf-8")
    with pytest.raises(OctavoError, match=rf"text.txt has {has} different words of four to nine small letters"):
        task.texts(words, path, 600, 2, 0)


def test_a_folder_of_a_text_without_words_is_refused(words, tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(GEORGIAN, "utf-8")
    with pytest.raises(OctavoError, match=r"text.txt has 0 different words"):
        FolderMultikey(documents=2).folder(words, path, 300, 2, 0)


def test_uuids_need_no_words(words, tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(GEORGIAN, "utf-8")
    [text] = MultiKeyNiah(haystack="needles", key="uuid", value="uuid").texts(words, path, 1500, 2, 0)
    assert len(text.samples) == 2


@pytest.mark.parametrize(
    "task",
    [
        MultiKeyNiah(keys=10**12),
        MultiValueNiah(values=10**12),
        MultiValueNiah(values=10**12, haystack="needles"),
        MultiQueryNiah(queries=10**12),
        VariableTracking(chains=10**12),
        VariableTracking(hops=10**12),
    ],
    **BY_NAME,
)
def test_more_than_fits_is_refused_before_it_is_drawn(words, task):
    with pytest.raises(OctavoError, match=r"have no room for what"):
        task.texts(words, NOVEL, DEPTH, 1, 0)


def test_more_keys_than_fit_a_document_are_refused_before_they_are_drawn(words):
    with pytest.raises(OctavoError, match=r"300 tokens have no room for 1,000,000,000,000 paragraphs"):
        FolderMultikey(keys=10**12).folder(words, NOVEL, 300, 2, 0)
