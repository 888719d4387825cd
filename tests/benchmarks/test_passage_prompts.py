"""benchmarks/passage_prompts.py: passages fit their tokens, in both orders, and a second set is another one."""

import json
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from passage_prompts import Found, passages, unseen

from octavo.documents.document import Document
from octavo.evaluation.tasks.task import ARTICLES
from octavo.library.text_store import Piece


class Words:
    """A tokenizer of words."""

    def tokenize(self, text, add_bos):
        return text.split()


@pytest.fixture
def found():
    """Four sentences of three words; the third is the likeliest, and the fourth follows it."""
    text = "".join(f"Ship {number} left. " for number in range(4))
    pieces = [Piece(1, 13 * number, 13 * (number + 1), score) for number, score in ((2, 3.0), (0, 2.0), (3, 1.0))]
    return Found(None, Document(text), pieces)


@pytest.mark.parametrize(
    ("n_tokens", "order", "numbers"),
    [(1, "last", "2"), (6, "last", "02"), (6, "first", "20"), (9, "last", "023"), (9, "first", "230")],
)
def test_the_likeliest_passages_fit(found, n_tokens, order, numbers):
    text = passages(Words(), found, n_tokens, order)
    assert "".join(letter for letter in text if letter.isdecimal()) == numbers
    assert ("Ship 2 left. Ship 3 left." in text) == ("3" in numbers)


def test_a_second_set_lacks_the_paragraphs_of_the_first(tmp_path):
    articles = json.loads(ARTICLES.read_text())
    other = {"context": "A new one.", "qas": []}
    (tmp_path / "data.json").write_text(json.dumps([*articles, {"title": "New", "paragraphs": [other]}]))
    [article] = json.loads(unseen(tmp_path / "data.json", tmp_path).read_text())
    assert article["paragraphs"] == [other]
