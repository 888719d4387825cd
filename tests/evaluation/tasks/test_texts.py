"""The texts of tasks: what is in them and where, the same ones for the same seed, and data that make none."""

import re

import pytest
from helpers.evaluation_runs import PROSE, WRITTEN, decoded, documents_of, fact, write_json

from octavo.documents.text.plain_text import read_utf8
from octavo.errors import OctavoError
from octavo.evaluation.prose import BORDER
from octavo.evaluation.tasks.fixed_context import FixedContext, read_documents
from octavo.evaluation.tasks.needle import Needle, Passkey
from octavo.evaluation.tasks.prediction import Agreement, Perplexity
from octavo.evaluation.tasks.qa import QA, read_articles
from octavo.evaluation.tasks.repetition import Repetition
from octavo.evaluation.tasks.task import ARTICLES, NOVEL

pytestmark = pytest.mark.sampled

DEPTH = 3000
BY_NAME = {"ids": lambda task: task.name}


def samples_of(texts):
    return [(text, sample) for text in texts for sample in text.samples]


def assert_in_the_novel(text):
    """A text is a run of the NOVEL, whose end is followed by its beginning."""
    whole = NOVEL.read_text("utf-8")
    assert text in whole + BORDER + whole


@pytest.mark.parametrize("task", [*PROSE, QA(), QA(chat=True)], **BY_NAME)
def test_texts_are_drawn_by_the_seed_and_the_depth(words, task):
    first, again, other, deeper = (
        task.texts(words, task.data, depth, 3, seed) for depth, seed in ((DEPTH, 0), (DEPTH, 0), (DEPTH, 1), (3100, 0))
    )
    assert first == again
    assert first[0].tokens != other[0].tokens
    assert first[0].tokens != deeper[0].tokens[: len(first[0].tokens)]


@pytest.mark.parametrize("task", PROSE, **BY_NAME)
@pytest.mark.parametrize("depth", [1400, 2777])
def test_prose_is_as_long_as_was_asked_for(words, task, depth):
    assert [len(text.tokens) for text in task.texts(words, task.data, depth, 12, 0)] == [depth, depth]


@pytest.mark.parametrize("task", [*PROSE, QA()], **BY_NAME)
@pytest.mark.parametrize("n_samples", [1, 8, 11, 20])
def test_there_are_as_many_samples_as_were_asked_for(words, task, n_samples):
    texts = task.texts(words, task.data, DEPTH, n_samples, 0)
    assert len(samples_of(texts)) == n_samples
    assert all(1 <= len(text.samples) <= task.per_text for text in texts)
    assert len({tuple(text.tokens) for text in texts}) == len(texts)


@pytest.mark.parametrize("task", WRITTEN[:-1], **BY_NAME)
def test_answers_are_written_and_have_a_place(words, task):
    for _, sample in samples_of(task.texts(words, task.data, DEPTH, 5, 0)):
        assert sample.prompt
        assert (sample.continuation, sample.n_predict) == ([], task.n_tokens)
        assert 0 <= sample.position < 1


# Prose that goes on.


@pytest.mark.parametrize("task", [Perplexity(), Agreement()], **BY_NAME)
def test_samples_go_on_where_the_text_ends(llama, task):
    for text in task.texts(llama, task.data, 500, 11, 3):
        assert text.continues
        tokens = list(text.tokens)
        for number, sample in enumerate(text.samples):
            if number:
                assert sample.prompt == [tokens.pop()]  # it was predicted, and not read yet
            assert len(sample.continuation) == task.n_tokens
            assert sample.answers == (decoded(llama, sample.continuation),)
            tokens += sample.prompt + sample.continuation
        assert_in_the_novel(decoded(llama, tokens))


def test_passages_are_the_texts_own(llama):
    task = Repetition()
    border = llama.tokenize(BORDER.encode(), add_bos=False)
    for text in task.texts(llama, NOVEL, 1600, 11, 3):
        assert_in_the_novel(decoded(llama, text.tokens))
        for sample in text.samples:
            start = round(sample.position * 1600)
            cue = text.tokens[start : start + task.n_cue]
            assert sample.prompt == border + cue
            repeated = text.tokens[start + task.n_cue : start + task.n_cue + task.n_tokens]
            assert len(repeated) == task.n_tokens
            assert sample.answers == (decoded(llama, repeated),)
        positions = [sample.position for sample in text.samples]
        assert [int(2 * at * len(positions)) for at in positions] == list(range(len(positions)))  # one in each part


# Things hidden.

HIDDEN = {
    Passkey(): re.compile(r"The pass key of (\w+) is (\d{5})\. Remember it\. \2 is the pass key of \1\."),
    Needle(): re.compile(
        r"(?<=\n\n)((?:The|Captain) [^.\n]*?(?:Corvane is|Halloran is the|Tresmoor was loaded with|Nine contains a|"
        r"dog called|soup is|Ostrava was born in|Bridge is made of|sold his house to a|are afraid of)) (\w+)\.(?=\n\n)"
    ),
}


@pytest.mark.parametrize("task", HIDDEN, **BY_NAME)
def test_what_is_asked_for_is_in_the_text_near_its_place(words, task):
    for text in task.texts(words, NOVEL, 4000, 13, 0):
        whole = decoded(words, text.tokens)
        found = {match[2]: match for match in HIDDEN[task].finditer("\n\n" + whole)}
        assert len(found) == len(text.samples)
        for sample in text.samples:
            [answer] = sample.answers
            begin = found[answer][0].split(f" {answer}")[0]
            prompt = decoded(words, sample.prompt)
            assert prompt.endswith(begin)
            assert answer not in prompt
            before = words.tokenize(whole[: whole.index(found[answer][0])].encode(), add_bos=False)
            assert len(before) / 4000 == pytest.approx(sample.position, abs=0.05)


@pytest.mark.parametrize("task", HIDDEN, **BY_NAME)
def test_prose_is_around_what_is_hidden(llama, task):
    [text] = task.texts(llama, NOVEL, 1000, 2, 0)
    whole = decoded(llama, text.tokens)
    prose = whole.split("Answer the question about it.\n\n")[1]
    assert_in_the_novel(HIDDEN[task].sub("\0", prose).replace("\0\n\n", ""))


def test_a_key_is_of_one_person(words):
    for text in Passkey().texts(words, NOVEL, DEPTH, 10, 0):
        found = HIDDEN[Passkey()].findall(decoded(words, text.tokens))
        assert len({person for person, _ in found}) == len({key for _, key in found}) == 10


# Questions.


@pytest.mark.parametrize("chat", [False, True])
def test_questions_are_about_paragraphs_in_the_text(llama, chat):
    whole_data = read_articles(ARTICLES)
    for text in QA(chat=chat).texts(llama, ARTICLES, 9000, 7, 0):
        assert 0.8 * 9000 <= len(text.tokens) <= 9000
        whole = decoded(llama, text.tokens)
        for sample in text.samples:
            prompt = decoded(llama, sample.prompt)
            questioned = [
                p for p in whole_data for q in p.questions if q.text in prompt and q.answers == sample.answers
            ]
            assert questioned
            start = round(sample.position * len(text.tokens))
            places = [whole.find(f"Background: {paragraph.context}\n\n") for paragraph in questioned]
            assert max(places) >= 0
            assert abs(len(decoded(llama, text.tokens[:start])) - max(places)) < 60  # its title is before it
            assert ("Answer:" in prompt) == (not chat)


def test_the_example_is_of_another_paragraph(llama):
    whole_data = read_articles(ARTICLES)
    of_question = {question.text: paragraph for paragraph in whole_data for question in paragraph.questions}
    examples = set()
    texts = [text for seed in range(8) for text in QA().texts(llama, ARTICLES, 5000, 10, seed)]
    for text in texts:
        whole = decoded(llama, text.tokens)
        for sample in text.samples:
            one_shot = re.fullmatch(
                r"Title: .*\nQuestion: (.*)\nAnswer: (.*)\n\nTitle: (.*)\nQuestion: (.*)\nAnswer:",
                decoded(llama, sample.prompt),
            )
            example, questioned = of_question[one_shot[1]], of_question[one_shot[4]]
            assert example.context in whole
            assert example.context != questioned.context
            assert any(question.answers[0] == one_shot[2] for question in example.questions)
            assert one_shot[3] == questioned.title
            examples.add(one_shot[1])
    assert 1 < len(examples) <= len(texts)  # one for each text


# A user's documents.


def test_documents_have_their_own_questions(llama, tmp_path):
    data = documents_of(tmp_path / "data.json", 10, 20)
    texts = FixedContext().texts(llama, data, 0, 3, 0)
    assert [text.document for text in texts] == ["".join(fact(i) for i in range(n)) for n in (10, 20)]
    assert [text.name for text in texts] == ["data-1", "data-2"]
    for text in texts:
        assert text.document in decoded(llama, text.tokens)
        assert len(text.samples) == 3
        for sample in text.samples:
            number = sample.answers[0].removeprefix("Petrel")
            assert f"Who keeps lighthouse {number}?" in decoded(llama, sample.prompt)


def test_questions_are_drawn_by_the_seed(llama, tmp_path):
    data = documents_of(tmp_path / "data.json", 10)
    drawn = [FixedContext().texts(llama, data, 0, 2, seed)[0].samples for seed in (0, 0, 1, 2, 3)]
    assert drawn[0] == drawn[1]
    assert any(samples != drawn[0] for samples in drawn[2:])
    assert len(FixedContext().texts(llama, data, 0, 100, 0)[0].samples) == 4


def test_a_document_may_be_a_file_beside_the_data(llama, tmp_path):
    (tmp_path / "island.txt").write_text("An island. " * 20)
    questions = [{"question": "What?", "answers": ["An island"]}]
    data = write_json(tmp_path / "data.json", {"file": "island.txt", "questions": questions})
    [text] = FixedContext().texts(llama, data, 0, 3, 0)
    assert (text.name, text.document) == ("island.txt", "An island. " * 20)
    before = FixedContext().content(data)
    (tmp_path / "island.txt").write_text("A hill. " * 20)
    assert FixedContext().content(data) != before


# Data that are refused.


def refusal(make):
    with pytest.raises(OctavoError) as refused:
        make()
    return str(refused.value)


@pytest.mark.parametrize("task", PROSE, **BY_NAME)
def test_too_short_a_text_is_refused(words, task, tmp_path):
    path = tmp_path / "short.txt"
    path.write_text("A short text. " * 100)
    sentence = refusal(lambda: task.texts(words, path, 2000, 2, 0))
    assert re.fullmatch(
        rf"{re.escape(str(path))} has \d{{3}} tokens, and this takes [12],\d{{3}}: give a longer text with --data, or "
        r"smaller --depths\.",
        sentence,
    )


def test_too_few_paragraphs_are_refused(words):
    sentence = refusal(lambda: QA().texts(words, ARTICLES, 200_000, 1, 0))
    assert re.fullmatch(
        rf"{re.escape(str(ARTICLES))} makes a text of [\d,]+ tokens and 80 paragraphs, and 200,000 tokens were asked "
        r"for: give more with --data, or other --depths\.",
        sentence,
    )
    assert "and 0 paragraphs" in refusal(lambda: QA().texts(words, ARTICLES, 20, 1, 0))


def test_too_much_to_hide_is_refused(words):
    for task in (Passkey(), Needle()):
        sentence = refusal(lambda task=task: task.texts(words, NOVEL, 200, 20, 0))
        assert re.fullmatch(
            r"10 paragraphs are too much to hide in so few tokens \(1\d\d beside the prompt's\): give larger --depths "
            r"or fewer --samples\.",
            sentence,
        )


def test_passages_that_do_not_fit_are_refused(words):
    assert refusal(lambda: Repetition().texts(words, NOVEL, 1295, 8, 0)) == (
        "8 passages of 80 tokens are too much for the first half of 1,295 tokens: give larger --depths or fewer "
        "--samples."
    )
    [text] = Repetition().texts(words, NOVEL, 1296, 8, 0)
    assert [round(1296 * sample.position) for sample in text.samples] == list(range(0, 648, 81))


@pytest.mark.parametrize("task", [*PROSE, QA(), FixedContext()], **BY_NAME)
def test_data_that_are_no_text_are_refused(words, task, tmp_path):
    for name in ("nowhere.txt", "."):
        sentence = refusal(lambda name=name: task.texts(words, tmp_path / name, 2000, 2, 0))
        assert str(tmp_path / name) in sentence
        assert sentence.count(". ") <= 1


ANSWERED = {"question": "Who?", "answers": ["Petrel"]}


@pytest.mark.parametrize("task", [QA(), FixedContext()], **BY_NAME)
@pytest.mark.parametrize(
    "content",
    [
        {},
        [{}],
        [],
        ["text"],
        3,
        None,
        [3],
        {"data": []},
        {"document": "text"},
        {"document": "text", "questions": [{"question": "Who?"}]},
        {"document": "text", "questions": ["Who?"]},
        {"document": "text", "questions": []},
        {"document": "text", "questions": [{"question": "Who?", "answers": []}]},
        {"document": "text", "questions": [{"question": "Who?", "answers": "Petrel"}]},
        {"document": "text", "questions": [{"question": "Who?", "answers": [{"text": "Petrel"}]}]},
        [{"title": "A"}],
        [{"title": "A", "paragraphs": [{"context": "text", "qas": []}]}],
        [{"title": "A", "paragraphs": [{"context": "text", "qas": [{"question": "Who?", "answers": []}]}]}],
        [{"title": "A", "paragraphs": [{"context": "text", "qas": [{"question": "Who?", "answers": "Petrel"}]}]}],
        [{"title": "A", "paragraphs": [{"context": "t", "qas": [{"question": "Q", "answers": [{"text": "P"}]}]}]}],
        [{"title": 3, "paragraphs": [{"context": "text", "qas": [ANSWERED]}]}],
    ],
    ids=repr,
)
def test_json_of_another_form_is_refused(words, task, content, tmp_path):
    path = write_json(tmp_path / "data.json", content)
    sentence = refusal(lambda: task.texts(words, path, 2000, 2, 0))
    assert sentence.startswith(str(path))
    assert "\n" not in sentence


@pytest.mark.parametrize("task", [QA(), FixedContext()], **BY_NAME)
def test_what_is_not_json_is_refused(words, task, tmp_path):
    path = tmp_path / "data.json"
    path.write_text('[{"title": "A",\n oh')
    assert refusal(lambda: task.texts(words, path, 2000, 2, 0)).startswith(f"{path} is not JSON: ")


def test_what_is_of_the_right_form_is_taken(tmp_path):
    assert read_documents(write_json(tmp_path / "a.json", {"document": "text", "questions": [ANSWERED]}))
    paragraph = {"context": "text", "qas": [ANSWERED]}
    [read] = read_articles(write_json(tmp_path / "b.json", [{"title": "An_island", "paragraphs": [paragraph]}]))
    assert (read.title, read.context, read.questions[0].answers) == ("An island", "text", ("Petrel",))


def test_shipped_data_are_of_the_right_form():
    assert len(read_articles(ARTICLES)) == 80
    [document] = read_documents(FixedContext.data)
    assert document.text == read_utf8(ARTICLES.with_name(document.name))
    assert len(document.questions) > 100
