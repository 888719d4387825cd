"""Anthropic's blocks: each sentence with sources is one, with its citations, whole and streamed."""

import json
from pathlib import Path

from octavo.ask.sources.find_sources import Passage
from octavo.serve.apis.messages import _Writer
from octavo.serve.engine.request import AnswerPart
from octavo.serve.library.served_document import ServedDocument


def source(quote):
    document = ServedDocument(quote, "log.txt", Path("log.txt"), id="file-1")
    return document, Passage(quote, 0.3, 0, len(quote), 1, None, None)


def test_a_sentence_with_sources_is_a_block():
    writer = _Writer("tiny", (), {"file-1": 2}, ())
    events = [
        AnswerPart("Hm", is_thought=True),
        AnswerPart("It le"),
        AnswerPart("ft.", sources=()),
        AnswerPart(" It came"),
        AnswerPart(" back.", sources=[source("Back."), source("Came.")]),
        AnswerPart("\n"),
        AnswerPart("Why?"),
        AnswerPart("", sources=[source("Why.")]),
    ]
    lines = [line for event in events for line in writer.add(event)]
    _, *blocks = writer.message()["content"]
    assert [block["text"] for block in blocks] == ["It left.", " It came back.\n", "Why?"]
    cited = [[one["cited_text"] for one in block["citations"]] for block in blocks]
    assert cited == [[], ["Back.", "Came."], ["Why."]]
    assert blocks[1]["citations"][0]["document_index"] == 2
    streamed = [json.loads(line.partition("data: ")[2]) for line in lines]
    deltas = [(each["index"], each["delta"]) for each in streamed if each["type"] == "content_block_delta"]
    of_blocks = {index: [delta for at, delta in deltas if at == index] for index in (1, 2, 3)}
    assert ["".join(one.get("text", "") for one in of_blocks[index]) for index in (1, 2, 3)] == [
        block["text"] for block in blocks
    ]
    assert [one["citation"]["cited_text"] for one in of_blocks[2] if "citation" in one] == ["Back.", "Came."]
    starts = [each["content_block"] for each in streamed if each["type"] == "content_block_start"]
    assert starts[1:] == [{"type": "text", "text": "", "citations": []}] * 3
