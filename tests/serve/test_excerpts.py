"""Answers that are given from excerpts of several documents."""

import asyncio

import numpy as np
import pytest

from octavo.ask.search.ranking import Ranking, Span
from octavo.runtime.query_recorder import Recorder

# No other test of the shared server reads files of these names.
TEXTS = {
    "ships.notes": "The Petrel passed the lighthouse at noon. ",
    "bread.notes": "Bakers knead dough before dawn. ",
    "stars.notes": "Jupiter has many moons. ",
}
QUESTION = "When do bakers knead dough?"


@pytest.fixture(scope="module")
def three(served):
    """Ids of three documents of different words, by name."""
    return {name: served.read(name, (text * 14).encode())["id"] for name, text in TEXTS.items()}


@pytest.fixture
def chosen(monkeypatch):
    """Have excerpts of two of the documents be chosen, whatever is asked: (name, start, stop)."""
    chosen = [("ships.notes", 100, 300), ("bread.notes", 17, 200), ("ships.notes", 0, 40)]

    def excerpts(self, n_tokens):
        by_name = {document.name: document for document in self.documents}
        return [Span(by_name[name], start, stop) for name, start, stop in chosen]

    monkeypatch.setattr(Ranking, "excerpts", excerpts)
    return chosen


@pytest.fixture
def attended(monkeypatch, served):
    """attended(token): have a token of what is read be attended, and no other."""

    def attend(token):
        def paid(self, index, *steps):
            made = np.zeros((1, len(index.tokens)), np.float32)
            made[0, token] = 0.5
            return made

        monkeypatch.setattr(Recorder, "attended", paid)

    return attend


def ask(served, messages=QUESTION, **more):
    messages = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
    body = {"model": "x", "messages": messages, "max_tokens": 6, "reads": "excerpts", **more}
    return served.post("/v1/chat/completions", **body)


def n_head_of(served):
    return len(served.server.engine.llama.prompt().head())


def test_the_likeliest_document_is_told_first(served, three):
    for question, name in ((QUESTION, "bread.notes"), ("Which moons has Jupiter?", "stars.notes")):
        found = ask(served, question, document="*.notes")
        files = [(each["file_id"], each["filename"]) for each in found["document"]]
        assert files[0] == (three[name], name)
        assert set(files) <= {(file_id, name) for name, file_id in three.items()}
        usage = found["usage"]
        assert 1024 + n_head_of(served) <= usage["prompt_tokens_details"]["cached_tokens"] < usage["prompt_tokens"]


def test_excerpts_are_laid_out_in_the_place_of_a_document(served, three, chosen):
    found = ask(served, document=list(three))
    assert [each["filename"] for each in found["document"]] == ["ships.notes", "bread.notes"]
    opened = asyncio.run(served.server.finder.open(list(three), "excerpts", QUESTION))
    n_head = n_head_of(served)
    library = served.server.documents
    own = {each.name: asyncio.run(library.open_at(each)).index.tokens for each in opened.documents}
    tokens = [own[name][n_head + start : n_head + stop] for name, start, stop in chosen]
    np.testing.assert_array_equal(opened.index.tokens, np.concatenate([own["ships.notes"][:n_head], *tokens]))
    after = served.server.engine.llama.prompt().first_question(QUESTION)
    assert found["usage"]["prompt_tokens"] == len(opened.index.tokens) + len(after)


def test_excerpts_of_one_short_document_are_the_document(served):
    file = served.read("one.txt", b"The keeper of the island wrote down each ship. " * 12)
    settings = {"document": file["id"], "logprobs": True}
    excerpts = ask(served, **settings, attention="dense")
    assert excerpts["document"] == [{"file_id": file["id"], "filename": "one.txt"}]
    whole = ask(served, **settings, reads="document")
    assert excerpts["usage"]["prompt_tokens"] == whole["usage"]["prompt_tokens"]
    one, other = (
        [(token["token"], token["logprob"]) for token in answer["choices"][0]["logprobs"]["content"]]
        for answer in (excerpts, whole)
    )
    assert [token for token, _ in one] == [token for token, _ in other]
    np.testing.assert_allclose([value for _, value in one], [value for _, value in other], atol=2e-2)


def test_a_conversation_over_the_same_excerpts_goes_on(served, three, chosen):
    first = ask(served, document="*.notes")
    messages = [
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "content": first["choices"][0]["message"]["content"]},
        {"role": "user", "content": "And then?"},
    ]
    again = ask(served, messages, document="*.notes")
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] >= first["usage"]["prompt_tokens"]
    alone = ask(served, messages, document="*.notes", attention="dense")
    assert again["choices"][0]["message"]["content"] == alone["choices"][0]["message"]["content"]


@pytest.mark.parametrize(("token", "name"), [(150, "ships.notes"), (250, "bread.notes"), (403, "ships.notes")])
def test_sources_name_their_document_in_all_apis(served, three, chosen, attended, token, name):
    attended(n_head_of(served) + token)
    quotes = []
    message = ask(served, document="*.notes", sources=True)["choices"][0]["message"]
    [source] = [each["file_citation"] for each in message["annotations"]]
    quotes.append((source["file_id"], source["filename"], source["quote"]))
    text = TEXTS[name] * 14
    assert source["quote"] == " ".join(text[source["start"] : source["stop"]].split())
    assert (source["line"], source["page"]) == (1, None)

    settings = {"model": "x", "reads": "excerpts"}
    response = served.post("/v1/responses", input=QUESTION, document="*.notes", sources=True, **settings)
    [source] = response["output"][0]["content"][0]["annotations"]
    quotes.append((source["file_id"], source["filename"], source["quote"]))

    blocks = [
        {"type": "document", "source": {"type": "file", "file_id": file_id}, "citations": {"enabled": True}}
        for file_id in three.values()
    ]
    messages = [{"role": "user", "content": [*blocks, {"type": "text", "text": QUESTION}]}]
    answer = served.post("/v1/messages", messages=messages, max_tokens=6, **settings)
    [source] = answer["content"][0]["citations"]
    quotes.append((source["file_id"], source["document_title"], source["cited_text"]))
    assert source["document_index"] == ["ships.notes", "bread.notes"].index(name)
    assert quotes == [(three[name], name, quotes[0][2])] * 3


@pytest.mark.parametrize(
    ("blocks", "named", "ships", "bread"),
    [
        (["bread.notes", "stars.notes", "ships.notes"], [], 2, 0),
        (["stars.notes", "stars.notes", "bread.notes", "bread.notes", "ships.notes"], [], 4, 2),
        (["stars.notes", "bread.notes"], ["ships.notes"], 2, 1),
        (["stars.notes"], ["bread.notes", "stars.notes", "ships.notes"], 2, 1),
        ([], ["*.notes"], None, None),
    ],
)
def test_a_citation_counts_the_documents_of_the_request(served, three, chosen, attended, blocks, named, ships, bread):
    """Over all messages, in the client's order, whichever are chosen; those that it only names follow."""

    def block(name):
        source = {"type": "file", "file_id": three[name]}
        return {"type": "document", "source": source, "citations": {"enabled": True}}

    first, others = [{"type": "text", "text": "Read."}, *map(block, blocks[:1])], list(map(block, blocks[1:]))
    messages = [
        {"role": "user", "content": first},
        {"role": "assistant", "content": "Yes."},
        {"role": "user", "content": [{"type": "text", "text": QUESTION}, *others]},
    ]
    numbers = {}
    for token in (150, 250):
        attended(n_head_of(served) + token)
        body = {"model": "x", "max_tokens": 6, "reads": "excerpts", "document": named, "sources": True}
        [cited] = served.post("/v1/messages", messages=messages, **body)["content"][0]["citations"]
        numbers[cited["document_title"]] = cited["document_index"]
    if ships is None:
        assert set(numbers.values()) < {0, 1, 2}
        assert numbers["ships.notes"] != numbers["bread.notes"]
    else:
        assert numbers == {"ships.notes": ships, "bread.notes": bread}


def test_a_citation_has_the_title_that_the_request_gives_its_document(served, three, chosen, attended):
    sources = [{"type": "file", "file_id": three["ships.notes"]}]  # the next one's text is known under another name
    sources += [{"type": "text", "media_type": "text/plain", "data": TEXTS["bread.notes"] * 14}]
    blocks = [{"type": "document", "source": source, "citations": {"enabled": True}} for source in sources]
    cited = {}
    for titles in (["Log", "Bread, II"], [None, ""]):
        content = [{**block, "title": title} for block, title in zip(blocks, titles, strict=True)]
        messages = [{"role": "user", "content": [*content, {"type": "text", "text": QUESTION}]}]
        for token in (150, 250):
            attended(n_head_of(served) + token)
            answer = served.post("/v1/messages", model="x", max_tokens=6, reads="excerpts", messages=messages)
            [citation] = answer["content"][0]["citations"]
            cited.setdefault(citation["document_index"], []).append(citation["document_title"])
    assert cited == {0: ["Log", "ships.notes"], 1: ["Bread, II", "bread.notes"]}


def test_a_removed_document_leaves_no_excerpts(served, monkeypatch):
    files = {name: served.read(name, (name * 40).encode()) for name in ("a.tmp", "b.tmp")}
    ask(served, document="*.tmp")
    sequences, removed = served.server.engine.sequences, files["a.tmp"]["id"]

    def over_it():
        opened = [own for own in sequences._contexts.values() if own is not None]
        return [own for own in opened if any(each.id == removed for each in own.documents)]

    served.wait_until_idle()
    [own] = over_it()
    assert sequences._bytes_of_idle() >= own.index.n_bytes > 0
    assert served.client.delete(f"/v1/files/{removed}").status_code == 200
    found = ask(served, document="*.tmp")
    assert [each["filename"] for each in found["document"]] == ["b.tmp"]
    assert over_it() == []


def test_documents_that_cannot_be_laid_out_are_refused(served, three, monkeypatch):
    monkeypatch.setattr("octavo.ask.context.excerpts.keep_all_rows", lambda layers: False)
    body = {"model": "x", "messages": [{"role": "user", "content": QUESTION}], "document": "*.notes"}
    status, error = served.refused("/v1/chat/completions", **body, reads="excerpts")
    assert (status, error["param"]) == (400, "reads")
    assert 'read "document" in place of "excerpts"' in error["message"]
    assert ask(served, document="*.notes", reads="document")["document"]["filename"] == "bread.notes"


def test_answers_are_given_from_what_there_is(served, three):
    body = {"model": "x", "messages": [{"role": "user", "content": QUESTION}], "document": "*.notes"}
    status, error = served.refused("/v1/chat/completions", **body, reads="pages")
    assert (status, "reads" in error["message"]) == (400, True)
    status, error = served.refused("/v1/chat/completions", **{**body, "document": "*.gone"}, reads="excerpts")
    assert status == 404
