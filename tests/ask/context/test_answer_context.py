"""The sources of an answer, by attention and by words, over all documents of a context."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from octavo.ask.answer.answer import ContextShare
from octavo.ask.context.answer_context import Context
from octavo.ask.search.ranking import Span
from octavo.ask.sources.find_sources import TokenText
from octavo.library.source_text import SourceText

FILLER = "Nobody came to the harbour that day. " * 30
TEXTS = {
    "beacon.md": f"{FILLER}The beacon was built by Zeller & Sons in 1968. {FILLER}",
    "lamp.md": f"{FILLER}The lamp cost 1,340 pounds. {FILLER}",
}


def context_of(spans: dict[str, tuple[int, int]]) -> Context:
    """Return a context of parts of the texts; tokens are characters."""
    documents = {name: SourceText(name, name, Path(name)) for name in TEXTS}
    texts = {}
    for name, (start, stop) in spans.items():
        texts[documents[name]] = TokenText(TEXTS[name], np.arange(start, stop))
    index = SimpleNamespace(n_prefix=0)
    found = [Span(document, 0, len(text.starts)) for document, text in texts.items()]
    return Context(index, found, list(texts), ContextShare("excerpts"), texts.__getitem__, None)


@pytest.fixture
def context():
    return context_of({name: (0, len(text)) for name, text in TEXTS.items()})


def attention(*parts: dict[str, float]) -> np.ndarray:
    """Return the attention of each part of an answer, given as the shares of words of the texts."""
    joined = "".join(TEXTS.values())
    made = np.zeros((len(parts), len(joined)), np.float32)
    for row, paid in zip(made, parts, strict=True):
        for words, share in paid.items():
            row[joined.index(words)] = share
    return made


def test_shares_add_up_to_one_at_most(context):
    """Each is of the part of the answer with most attention, and two parts may look at one passage each."""
    paid = attention({"Zeller": 0.9}, {"1,340": 0.6})
    found = context.sources(paid, "Zeller, and 1,340.", "Who, and how much?", 3)
    assert [(document.name, round(passage.share, 2)) for document, passage in found] == [
        ("beacon.md", 0.6),
        ("lamp.md", 0.4),
    ]
    [(_, only)] = context.sources(paid[1:], "1,340", "How much?", 3)
    assert only.share == pytest.approx(0.6)


def test_weak_attention_needs_a_word_of_the_answer(context):
    paid = attention({"Zeller": 0.07})
    [(_, found)] = context.sources(paid, "In 1968.", "When was it built?", 3)
    assert (found.by, round(found.share, 2)) == ("attention", 0.07)
    assert context.sources(paid, "In 1492.", "When was it built?", 3) == []
    assert len(context.sources(attention({"Zeller": 0.25}), "In 1492.", "When was it built?", 3)) == 1


def test_words_find_the_source_if_attention_names_none(context):
    [(document, found)] = context.sources(attention({}), "It cost 1,340 pounds.", "What did the lamp cost?", 3)
    assert (document.name, found.quote, found.by, found.share) == ("lamp.md", "The lamp cost 1,340 pounds.", "words", 0)
    assert TEXTS["lamp.md"][found.start : found.stop].strip() == found.quote
    assert found.as_json()["by"] == "words"
    assert context.sources(attention({}), "It cost 99 pounds.", "What did the lamp cost?", 3) == []


def test_words_find_only_what_the_model_saw():
    context = context_of({"beacon.md": (0, 400), "lamp.md": (0, 400)})
    nothing = np.zeros((1, 800), np.float32)
    assert context.sources(nothing, "It cost 1,340 pounds.", "What did the lamp cost?", 3) == []
