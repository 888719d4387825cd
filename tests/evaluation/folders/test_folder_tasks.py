"""Folders of documents hide what is asked for, in one document each."""

import numpy as np
import pytest

from octavo.errors import OctavoError
from octavo.evaluation.folders import FOLDER_TASKS, folder_task_class
from octavo.evaluation.folders.folder_needle import FolderNeedle
from octavo.evaluation.folders.folder_qa import FolderQA
from octavo.evaluation.folders.multikey import FolderMultikey
from octavo.evaluation.folders.whole import Whole, WholeMention

CASES = [
    (FolderNeedle(documents=12), 1500, 10),
    (FolderNeedle(documents=4), 1500, 3),
    (FolderQA(documents=15), 12000, 30),
    (FolderQA(documents=90), 12000, 5),
    (FolderMultikey(documents=5, keys=3), 2000, 15),
]


@pytest.mark.parametrize("name", FOLDER_TASKS)
def test_each_task_has_its_name_in_the_table(name):
    assert folder_task_class(name).name == folder_task_class(name)().name == name


@pytest.mark.parametrize(("task", "depth", "n"), CASES)
def test_each_answer_is_in_one_document(llama, task, depth, n):
    folder = task.folder(llama, task.data, depth, n, 0)
    assert len(folder.asked) == n
    assert len(folder.documents) == len(set(folder.documents.values())) == task.documents
    for asked in folder.asked:
        assert [name for name, text in folder.documents.items() if asked.passage in text] == [asked.document]
        assert task.score(f"It is {asked.answers[0]}.", asked) == 1
        assert task.score("Nobody knows.", asked) == 0
        assert any(answer in asked.passage for answer in asked.answers)
    assert len({asked.question for asked in folder.asked}) >= 0.9 * n


@pytest.mark.parametrize(("task", "depth", "n"), CASES[:3])
def test_documents_have_about_the_length_that_was_asked_for(llama, task, depth, n):
    folder = task.folder(llama, task.data, depth, n, 0)
    lengths = [len(llama.tokenize(text.encode())) for text in folder.documents.values()]
    assert min(lengths) >= 0.95 * depth
    assert np.median(lengths) < 1.7 * depth


def test_seeds_make_the_same_and_other_folders(llama):
    task = FolderMultikey(documents=3)
    made = [task.folder(llama, task.data, 1500, 5, seed) for seed in (1, 1, 2)]
    assert made[0] == made[1] != made[2]


@pytest.mark.parametrize(
    ("task", "depth", "n", "message"),
    [
        (FolderNeedle(documents=4), 1500, 5, "has 4 facts"),
        (FolderMultikey(documents=2, keys=2), 2000, 5, "have 4 keys"),
        (FolderMultikey(documents=2, keys=9), 100, 5, "no room for 9 paragraphs"),
        (FolderMultikey(documents=2000, keys=1), 2000, 5, "no 2000 different documents"),
        (FolderQA(documents=2), 12000, 500, "questions: give more articles"),
    ],
)
def test_too_much_is_refused(llama, task, depth, n, message):
    with pytest.raises(OctavoError, match=message):
        task.folder(llama, task.data, depth, n, 0)


def test_facts_of_a_kind_are_all_over_a_novel(llama):
    task = Whole(facts=6)
    folder = task.folder(llama, task.data, 6000, 2, 0)
    ((_, text),) = folder.documents.items()
    for asked in folder.asked:
        lines = [
            next(line for line in text.split("\n") if all(map(line.count, fact.split("|")))) for fact in asked.answers
        ]
        assert len(set(lines)) == 6
        places = sorted(text.index(line) / len(text) for line in lines)
        assert places[0] < 0.2
        assert places[-1] > 0.8
        assert task.score("\n".join(lines[:3]), asked) == 0.5
        assert task.score(" ".join(fact.split("|")[0] for fact in asked.answers), asked) == 0


def test_documents_that_mention_a_thing_are_those_with_its_sentence(llama):
    task = WholeMention(documents=6, mentions=2)
    folder = task.folder(llama, task.data, 800, 2, 0)
    for asked in folder.asked:
        place = asked.question.removesuffix("?").split(" of ")[1]
        assert tuple(sorted(name for name, text in folder.documents.items() if place in text)) == asked.answers
        assert task.score(", ".join(asked.answers), asked) == 1
        assert task.score(asked.answers[0], asked) == pytest.approx(2 / 3)
        assert task.score("None.", asked) == 0
