"""LongBench: its scores by hand, its prompts, and files that are not in its format."""

import json

import pytest
from helpers.evaluation_runs import decoded, evaluate, outcome

import octavo
from octavo.errors import OctavoError
from octavo.evaluation.samples import Sample
from octavo.evaluation.tasks.longbench import DATASETS, LongBench, read_questions
from octavo.evaluation.tasks.longbench_scores import (
    classification,
    code_similarity,
    count,
    first_line,
    qa_f1,
    retrieval,
    rouge_l,
)

TYPES = ("Person", "City", "Other city", "Number")


def line(**changed):
    usual = {"input": "Who?", "context": "Some text.", "answers": ["Emma"], "all_classes": None, "language": "en"}
    return {**usual, "length": 2, "dataset": "hotpotqa", "_id": "0", **changed}


def lines(path, *content):
    path.write_text("".join(json.dumps(each) + "\n" for each in content), "utf-8")
    return path


@pytest.mark.parametrize(
    ("score", "written", "answer", "expected"),
    [
        (qa_f1, "the Eiffel Tower, Paris", "Eiffel Tower", 2 * 2 / (3 + 2)),
        (qa_f1, "Rome", "Eiffel Tower", 0),
        (rouge_l, "the cat sat on the mat", "the cat lay on a mat", 2 * 4 / (6 + 6)),  # the cat on mat
        (rouge_l, "b a", "a b", 2 * 1 / 4),  # in order
        (rouge_l, "a x b y c", "a b c", 2 * 3 / (5 + 3)),  # with gaps
        (rouge_l, "", "a b c", 0),
        (code_similarity, "return x\nmore", "return x", 1),
        (code_similarity, "# why\n\nreturn y", "", 0),
        (code_similarity, "```python\n# why\nreturn y", "return x", 2 * 7 / 16),
        (code_similarity, "// nothing", "return x", 0),
        (code_similarity, "abcd", "axcd", 2 * 3 / 8),
        (classification, "City", "City", 1),
        (classification, "Type: City", "City", 1),
        (classification, "City or Person", "City", 1 / 2),
        (classification, "Other city", "Other city", 1),
        (classification, "city", "City", 0),
        (classification, "Person", "City", 0),
        (retrieval, "Paragraph 12", "Paragraph 12", 1),
        (retrieval, "It is paragraph 12, or 3", "Paragraph 12", 1 / 2),
        (retrieval, "Paragraph 1", "Paragraph 12", 0),
        (retrieval, "none", "Paragraph 12", 0),
        (count, "17", "17", 1),
        (count, "17 of 30 paragraphs, 17", "17", 2 / 3),
        (count, "seventeen", "17", 0),
    ],
)
def test_scores_by_hand(score, written, answer, expected):
    assert score(written, answer, TYPES) == pytest.approx(expected)


def test_a_class_within_the_right_one_does_not_divide():
    """ "Other" is named wherever "Other city" is."""
    assert classification("Other city", "Other city", ("Other", "Other city")) == 1
    assert classification("Other city", "Other", ("Other", "Other city")) == 1 / 2


def test_the_first_line_is_the_first_with_text():
    assert first_line("\n\nCity\nQuestion: ...") == "City"
    assert first_line("") == ""


@pytest.mark.parametrize(
    ("dataset", "written", "answers", "expected"),
    [
        ("hotpotqa", "Rome", ("Paris", "Rome"), 1),  # the best answer counts
        ("hotpotqa", "no\nRome", ("Rome",), 2 / 3),  # all lines count ...
        ("triviaqa", "\nRome\nPassage: Paris", ("Rome",), 1),  # ... but where examples are given
        ("trec", "City\nQuestion", ("City",), 1),
        ("samsum", "a b\nc", ("a b c",), 4 / 5),
        ("gov_report", "a b\nc", ("a b c",), 1),
        ("qmsum", "a b c", ("a b c d",), 6 / 7),
        ("passage_count", "4", ("4",), 1),
        ("passage_retrieval_en", "Paragraph 4", ("Paragraph 4",), 1),
        ("lcc", "x = 1\ny = 2", ("x = 1",), 1),
    ],
)
def test_each_dataset_has_its_score(dataset, written, answers, expected):
    sample = Sample([1], n_predict=8, answers=answers, classes=TYPES, kind=dataset)
    assert LongBench().score(sample, outcome(written), outcome()) == {"score": pytest.approx(expected)}


@pytest.mark.parametrize("dataset", DATASETS)
def test_prompts_have_context_and_question_once(words, tmp_path, dataset):
    data = lines(tmp_path / "data.jsonl", line(dataset=dataset, context="{THE TEXT}", input="{THE INPUT}"))
    [text] = LongBench().texts(words, data, 0, 9, 0)
    [sample] = text.samples
    before, after = decoded(words, text.tokens), decoded(words, sample.prompt)
    assert before.endswith("{THE TEXT}")
    takes_input = dataset not in ("gov_report", "multi_news", "passage_count", "lcc")
    assert (before + after).count("{THE INPUT}") == after.count("{THE INPUT}") == takes_input
    chat = dataset not in ("trec", "triviaqa", "samsum", "lcc", "repobench-p")
    assert before.startswith("<|im_start|>") == after.endswith("<|im_start|>assistant\n") == chat
    assert sample.n_predict == DATASETS[dataset].n_tokens
    assert sample.answers == ("Emma",)


def test_lines_are_drawn_and_those_of_middling_length_come_first(words, tmp_path):
    all_lines = [line(context="word " * n, answers=[f"{n}"]) for n in (10, 190, 30, 120, 60)]
    data = lines(tmp_path / "data.jsonl", *all_lines)
    texts = LongBench().texts(words, data, 0, 5, 0)
    lengths = [len(text.tokens) for text in texts]
    assert lengths[0] == sorted(lengths)[2]
    assert {text.depth for text in texts} == {lengths[0]}
    assert sorted(text.samples[0].answers[0] for text in texts) == ["10", "120", "190", "30", "60"]
    few = LongBench().texts(words, data, 0, 2, 0)
    assert len(few) == 2
    assert few == LongBench().texts(words, data, 0, 2, 0)


def test_texts_that_do_not_fit_are_counted_and_left_out(tiny_model, tmp_path):
    """The tiny model has about a token a character."""
    data = lines(tmp_path / "data.jsonl", *(line(context="x" * n) for n in (400, 600, 5000, 9000)))
    llama, notices = octavo.Llama(tiny_model, n_ctx=1024, n_threads=2), []
    settings = {"data": data, "n_samples": 4, "attentions": ["streaming"]}
    result = evaluate(llama, tmp_path, "longbench", notice=notices.append, **settings)
    assert notices == [
        "2 of 4 texts do not fit the context of 1,024 tokens and are left out: a larger context (-c, --rope-scaling) "
        "or a long-context model (-m) takes more."
    ]
    assert 600 < result["results"][0]["depth"] < 800  # the middle of those that fit
    assert [(row["attention"], row["samples"]) for row in result["results"]] == [("dense", 2), ("streaming", 2)]
    with pytest.raises(OctavoError, match=r"^The longest text takes [\d,]+ tokens"):
        evaluate(llama, tmp_path, "longbench", data=lines(data, line(context="x" * 5000)))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([line(dataset="dureader", language="zh")], "line 1 is Chinese, where scores count words that octavo cannot"),
        ([line(), line(dataset="puzzles")], "line 2 has the dataset 'puzzles': choose from narrativeqa, "),
        ([line(), line(dataset="musique")], "holds the datasets hotpotqa, musique: give a file of one dataset"),
        ([line(answers=[])], "line 1 is not in LongBench's format"),
        ([line(answers="Emma")], "line 1 is not in LongBench's format"),
        ([{"context": "a"}], "line 1 is not in LongBench's format"),
        (["text"], "line 1 is not in LongBench's format"),
        ([], "is empty: there is nothing to read in it"),
    ],
)
def test_other_files_are_refused(tmp_path, content, message):
    with pytest.raises(OctavoError) as refused:
        read_questions(lines(tmp_path / "data.jsonl", *content))
    assert message in str(refused.value)


def test_a_line_that_is_not_json_is_named(tmp_path):
    data = tmp_path / "data.jsonl"
    data.write_text(json.dumps(line(dataset="hotpotqa_e")) + "\n\nnothing\n", "utf-8")
    with pytest.raises(OctavoError, match=r"data\.jsonl, line 3 is not in LongBench's format"):
        read_questions(data)
