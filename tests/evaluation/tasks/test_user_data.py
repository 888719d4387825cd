"""The forms of data that docs/evaluation.md shows are those that tasks read."""

import re

import pytest
from helpers.product import ROOT

from octavo.evaluation.tasks import TASKS
from octavo.evaluation.tasks.fixed_context import read_documents
from octavo.evaluation.tasks.qa import read_articles

PAGE = (ROOT / "docs" / "evaluation.md").read_text("utf-8")
ARTICLES, DOCUMENTS = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)


def test_articles_are_read_as_the_page_shows_them(tmp_path):
    (tmp_path / "articles.json").write_text(ARTICLES)
    [paragraph] = read_articles(tmp_path / "articles.json")
    assert paragraph.title == "Otters"
    assert [(question.text, question.answers) for question in paragraph.questions] == [
        ("How do otters sleep?", ("on their backs", "holding hands"))
    ]


def test_documents_are_read_as_the_page_shows_them(tmp_path):
    (tmp_path / "questions.json").write_text(DOCUMENTS)
    (tmp_path / "report.md").write_text("It cost 2 million.")
    first, second = read_documents(tmp_path / "questions.json")
    assert (first.name, first.text) == ("report.md", "It cost 2 million.")
    assert (second.name, second.text) == ("questions-2", "Otters sleep on their backs.")
    assert [question.answers for question in second.questions] == [("on their backs",)]


@pytest.mark.parametrize("task", TASKS)
def test_the_page_says_what_each_task_takes(task):
    table = PAGE[PAGE.index("| task | form of FILE") : PAGE.index("Articles, for `qa`")]
    ruler = ("niah-", "variable-tracking", "common-words", "frequent-words")
    assert f"`{task}`" in table or (task.startswith(ruler) and "RULER's tasks" in table)
