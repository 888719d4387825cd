"""What each tool returns, by the SDK's own client within this process."""

import asyncio
import re

import anyio
import pytest
from helpers import talking_model
from mcp import Client

from octavo.runtime.methods.attention import Attention
from octavo.runtime.store.model_library import Library, known_manifest
from octavo.serve.mcp.document_answers import DocumentAnswers
from octavo.serve.mcp.named_documents import NamedDocuments
from octavo.serve.mcp.tool_server import Calls, tool_server
from octavo.serve.mcp.tool_texts import MOST_CHARACTERS, MOST_LISTED, ToolTexts
from octavo.settings import ModelSettings, ReadSettings, Sampling

TOOLS = ["list_documents", "ask", "find_passages", "read_range"]


class Tools:
    """The tools over a folder."""

    def __init__(self, folder, model, indexes, n_ctx=0, **reading):
        settings, reading = ModelSettings(model, n_ctx, n_threads=1), ReadSettings(**{"whole": "off", **reading})
        library = Library.of(model, indexes)
        sampling = Sampling(max_tokens=20, temperature=0)
        self.answers = DocumentAnswers(settings, library, Attention.of("dense"), sampling, reading)
        self.calls = Calls(NamedDocuments([folder]), ToolTexts(library, reading.extraction), self.answers)
        self.heard = []

    def run(self, work):
        """Do work with a client, in an event loop."""

        async def with_client():
            async with Client(tool_server(self.calls)) as client:
                return await work(client)

        return asyncio.run(with_client())

    async def hear(self, reached, total, message):
        self.heard.append((reached, total, message))

    def result(self, name, **arguments):
        return self.run(lambda client: client.call_tool(name, arguments, progress_callback=self.hear))

    def __call__(self, name, **arguments):
        result = self.result(name, **arguments)
        assert not result.is_error, result.content[0].text
        return result.structured_content or result.content[0].text

    def refused(self, name, **arguments):
        result = self.result(name, **arguments)
        assert result.is_error
        return result.content[0].text.removeprefix(f"Error executing tool {name}: ")


@pytest.fixture
def tools(folder, talking_file, tmp_path):
    tools = Tools(folder, talking_file, tmp_path / "indexes")
    yield tools
    tools.calls.close()


def test_the_tools_say_what_they_do(tools):
    listed = tools.run(lambda client: client.list_tools()).tools
    assert [tool.name for tool in listed] == TOOLS
    assert all(tool.annotations.read_only_hint for tool in listed)
    assert all(tool.description and "\n    " not in tool.description for tool in listed)
    assert tools.run(lambda client: client.list_tools()).tools[1].input_schema["required"] == ["question"]


def test_documents_are_listed_with_what_is_known_of_them(tools, folder):
    size = {name: (folder / name).stat().st_size for name in ("bridge.pdf", "log.md")}
    unknown = {"characters": None, "pages": None, "is_read": False}
    listed = tools("list_documents")
    assert listed == {
        "documents": [{"name": name, "bytes": n_bytes, **unknown} for name, n_bytes in size.items()],
        "notices": [],
    }
    tools("find_passages", question="Petrel")
    bridge, log = tools("list_documents")["documents"]
    assert (bridge["pages"], log["pages"], log["characters"]) == (3, None, len((folder / "log.md").read_text()))
    tools("ask", question="Who?", documents=["log.md"])
    assert [document["is_read"] for document in tools("list_documents")["documents"]] == [False, True]


def test_many_documents_are_listed_in_parts(tools, folder):
    (folder / "many").mkdir()
    for i in range(MOST_LISTED + 50):
        (folder / "many" / f"{i}.txt").write_text(f"The text of document {i}.")
    first, rest = tools("list_documents"), tools("list_documents", start=MOST_LISTED)
    assert (len(first["documents"]), len(rest["documents"])) == (MOST_LISTED, 52)
    assert first["notices"] == [f"These are 200 of 252 documents: continue with start={MOST_LISTED}."]
    assert rest["notices"] == []
    assert len({each["name"] for each in first["documents"] + rest["documents"]}) == MOST_LISTED + 52
    assert len(tools("list_documents", documents=["log.md", "bridge.pdf"])["documents"]) == 2
    assert tools.refused("list_documents", start=253) == "There are 252 documents: none has the number 253."


def test_an_answer_has_sources_and_a_basis(tools):
    given = tools("ask", question="Who was the keeper?", documents=["bridge.pdf"])
    assert (given["answer"], given["finish_reason"]) == (talking_model.ANSWER, "stop")
    assert given["basis"] == {
        "kind": "document",
        "passages": None,
        "share": 1.0,
        "rest": "indexed",
        "documents": ["bridge.pdf"],
    }
    assert any("bridge.pdf" in sentence for sentence in given["notices"])
    reading = [message for _, _, message in tools.heard if message.startswith("Reading bridge.pdf")]
    assert reading[0].endswith("tokens")
    again = tools("ask", question="And the toll?", documents=["bridge.pdf"])
    assert (again["answer"], again["notices"]) == (talking_model.ANSWER, ["90 is not in the text that was read."])


def test_sources_name_the_document_and_the_page(tools, monkeypatch):
    from octavo.ask.session import Session
    from octavo.ask.sources.find_sources import Passage

    def sources(session):
        return [Passage("Its keeper was Agnes Moir.", 0.5, 28, 54, 3, "2", None, str(session.path))]

    monkeypatch.setattr(Session, "sources", sources)
    [source] = tools("ask", question="Who was the keeper?", documents=["bridge.pdf"])["sources"]
    assert source == {
        "document": "bridge.pdf",
        "page": "2",
        "heading": None,
        "line": 3,
        "start": 28,
        "stop": 54,
        "quote": "Its keeper was Agnes Moir.",
        "share": 0.5,
        "by": "attention",
        "marks": [],
    }


def test_sources_of_a_part_stand_in_the_whole_document(folder, tiny_model, tmp_path, monkeypatch):
    from octavo.ask.session import Session
    from octavo.ask.sources.find_sources import Passage

    text = "".join(f"The keeper wrote line {i} of the log.\n" for i in range(400))
    (folder / "long.txt").write_text(text)
    tools = Tools(folder, tiny_model, tmp_path / "indexes", n_ctx=4096)
    quoted = []

    def sources(session):
        part = known_manifest(session._chooser.source.folders[session._context.documents[0]])["document"]["part"]
        quoted.append(text[part[0] + 39 : part[0] + 60])
        return [Passage(quoted[0], 0.5, 39, 60, 3, None, None, str(session.path))]

    monkeypatch.setattr(Session, "sources", sources)
    given = tools("ask", question="Summarise the log up to line 390.", documents=["long.txt"])
    [source] = given["sources"]
    part = tools("read_range", document=source["document"], start=source["start"], stop=source["stop"])
    tools.calls.close()
    assert (given["basis"]["kind"], given["basis"]["documents"]) == ("part", ["long.txt"])
    assert source["start"] > 39
    assert part.startswith(quoted[0].rstrip())


def test_all_parts_of_a_document_answer(folder, talking_file, tmp_path):
    text = "1 2 3 4 5 6 7 8 9 0.\n\n" * 200
    (folder / "long.txt").write_text(f"{text}The keeper of the tower was Ruth Ollery.\n\n{text}")
    tools = Tools(folder, talking_file, tmp_path / "indexes", n_ctx=4096, whole="on")
    given = tools("ask", question="List every tower and its keeper.", documents=["long.txt"])
    [source] = given["sources"]
    part = tools("read_range", document=source["document"], start=source["start"], stop=source["stop"])
    tools.calls.close()
    assert (given["basis"]["kind"], given["basis"]["documents"]) == ("findings", ["long.txt"])
    assert given["answer"].startswith("1 found:\n\n1. “The keeper of the tower was Ruth Ollery.” (long.txt, part ")
    assert part.startswith("The keeper of the tower was Ruth Ollery.")


def test_a_part_of_one_of_two_files_of_one_name_stands_in_that_file(folder, tiny_model, tmp_path, monkeypatch):
    from octavo.ask.session import Session
    from octavo.ask.sources.find_sources import Passage

    for name, n_lines in (("a", 400), ("b", 404)):
        (folder / name).mkdir()
        text = "".join(f"The keeper wrote line {i} of the log {name}.\n" for i in range(n_lines))
        (folder / name / "long.txt").write_text(text)
    tools = Tools(folder, tiny_model, tmp_path / "indexes", n_ctx=4096)
    monkeypatch.setattr(
        Session, "sources", lambda session: [Passage("A", 0.5, 39, 60, 3, None, None, str(session.path))]
    )
    [source] = tools("ask", question="Who wrote line 390?", documents=["a", "b"])["sources"]
    tools.calls.close()
    assert re.fullmatch(r"[ab]/long\.txt", source["document"])
    assert source["start"] > 39


def test_without_names_all_documents_are_asked(tools):
    given = tools("ask", question="Which ship was called Petrel?")
    assert given["basis"]["documents"][0] in ("log.md", "bridge.pdf")
    assert [each["is_read"] for each in tools("list_documents")["documents"]] == [True, True]


def test_an_answer_from_passages_tells_how_little_was_read(folder, talking_file, tmp_path):
    tools = Tools(folder, talking_file, tmp_path / "indexes", first_answer=0, background=False)
    given = tools("ask", question="Who was the keeper of the bridge?")
    tools.calls.close()
    assert given["basis"]["kind"] == "excerpts"
    assert given["basis"]["rest"] == "unread"
    assert given["basis"]["documents"][0] == "bridge.pdf"


def test_the_model_is_loaded_for_the_first_question_only(tools, monkeypatch):
    loaded = []
    load = "octavo.runtime.load_model.load"
    from octavo.runtime import load_model

    before = load_model.load
    monkeypatch.setattr(load, lambda *arguments: loaded.append(arguments) or before(*arguments))
    for name, arguments in (
        ("list_documents", {}),
        ("find_passages", {"question": "Petrel"}),
        ("read_range", {"document": "log.md"}),
    ):
        tools(name, **arguments)
    assert loaded == []
    for _ in range(2):
        tools("ask", question="Who?", documents=["log.md"])
    assert len(loaded) == 1


def test_passages_have_their_places(tools):
    found = tools("find_passages", question="Who was Agnes Moir?", most=1)
    [passage] = found["passages"]
    assert (passage["document"], passage["page"], passage["heading"]) == ("bridge.pdf", "1", None)
    assert passage["text"].startswith("--- page 1\nThe bridge opened in March.")
    assert "--- page 2\nIts keeper was Agnes Moir." in passage["text"]
    part = tools("read_range", document="bridge.pdf", start=passage["start"], stop=passage["stop"])
    assert passage["text"] in part
    [port] = tools("find_passages", question="dock", documents=["log.md"])["passages"]
    assert port["heading"] == "Ships > Ports"
    assert tools("find_passages", question="zebra")["passages"] == []


def test_a_passage_of_a_table_comes_below_the_names_of_its_columns(tools, folder):
    (folder / "stock.csv").write_text("part,price\n" + "".join(f"KX-{i}-A,{i % 50}.50\n" for i in range(1000, 1100)))
    [passage] = tools("find_passages", question="KX-1083-A", documents=["stock.csv"], most=1)["passages"]
    names, first, *_ = passage["text"].splitlines()
    assert names == "part,price"
    assert first.startswith("KX-10")
    assert passage["start"] > len(names)


def test_files_that_cannot_be_read_are_named(tools, folder):
    (folder / "broken.pdf").write_bytes(b"%PDF-1.7\nnothing")
    found = tools("find_passages", question="Petrel")
    assert len(found["passages"]) == 1
    assert found["notices"][0].startswith("Left out: broken.pdf")
    assert "broken.pdf" in tools.refused("find_passages", question="Petrel", documents=["broken.pdf"])
    assert "broken.pdf" in tools.refused("read_range", document="broken.pdf")


@pytest.mark.parametrize(
    ("pages", "expected"),
    [
        ("2", "--- page 2\nIts keeper was Agnes Moir.\n"),
        ("3", "--- page 3\nThe toll was two shillings.\n"),
        ("2-3", "--- page 2\nIts keeper was Agnes Moir.\n\n--- page 3\nThe toll was two shillings.\n"),
        ("1 - 1", "--- page 1\nThe bridge opened in March.\n"),
    ],
)
def test_pages_are_read_as_octavo_read_prints_them(tools, pages, expected):
    text = tools("read_range", document="bridge.pdf", pages=pages)
    shown, _, told = text.partition("--- bridge.pdf, ")
    assert shown.strip().replace("\n\n", "\n") == expected.strip().replace("\n\n", "\n")
    assert told.startswith("characters ")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"document": "bridge.pdf", "pages": "4"}, "bridge.pdf has the pages 1 to 3: not 4."),
        ({"document": "bridge.pdf", "pages": "3-2"}, "bridge.pdf has the pages 1 to 3: not 3-2."),
        ({"document": "log.md", "pages": "1"}, "log.md has no pages: give start and stop, in characters."),
        ({"document": "log.md", "pages": "1", "start": 0}, "Give pages, or start and stop in characters: not both."),
        ({"document": "log.md", "start": 5, "stop": 5}, "log.md has 61 characters: it cannot be read from 5 to 5."),
        ({"document": "log.md", "start": -1}, "log.md has 61 characters: it cannot be read from -1 to 61."),
        ({"document": "log.md", "start": 61}, "log.md has 61 characters: it cannot be read from 61 to 61."),
    ],
)
def test_what_is_not_there_is_refused(tools, folder, arguments, sentence):
    assert len((folder / "log.md").read_text()) == 61
    assert tools.refused("read_range", **arguments) == sentence


def test_a_long_range_is_read_in_parts_and_nothing_is_lost(tools, folder):
    text = "".join(f"Line {i} of the log.\n" for i in range(3000))
    (folder / "long.txt").write_text(text)
    read, start, stop = "", 0, None
    while start is not None:
        part = tools("read_range", document="long.txt", start=start, **({"stop": stop} if stop else {}))
        shown, _, told = part.rpartition("--- long.txt, ")
        assert len(shown) <= MOST_CHARACTERS + 1
        end = int(told.split(" to ")[1].split(" ")[0])
        assert shown.removesuffix("\n") == text[start:end].removesuffix("\n")
        read, start, stop = read + text[start:end], None, None
        if "continue with start=" in told:
            start, stop = (int(piece.split(",")[0]) for piece in told.split("start=")[1].split(", stop="))
    assert read == text


def test_bad_input_gets_a_sentence(tools):
    assert tools.refused("ask", question=" ") == "The question is empty."
    assert tools.refused("ask", question="Who?", documents=[]) == "There are no documents to answer from."
    assert tools.refused("find_passages", question="") == "The question is empty: give words to look for."
    for most in (0, 26):
        assert tools.refused("find_passages", question="a", most=most) == f"1 to 25 passages are found: not {most}."
    for name in ("ask", "find_passages"):
        assert "outside of what may be used" in tools.refused(name, question="a", documents=["../secret.txt"])
    assert "outside of what may be used" in tools.refused("read_range", document="../secret.txt")


def test_a_call_that_is_given_up_ends_its_work(folder, tiny_model, tmp_path):
    (folder / "long.txt").write_text("".join(f"The keeper wrote line {i} of the log.\n" for i in range(4000)))
    tools = Tools(folder, tiny_model, tmp_path / "indexes")

    async def give_up(client):
        with anyio.CancelScope() as scope:

            async def hear(reached, total, message):
                tools.heard.append(message)
                if message.startswith("Reading long.txt"):
                    scope.cancel()

            await client.call_tool("ask", {"question": "Who?", "documents": ["long.txt"]}, progress_callback=hear)
        assert scope.cancelled_caught
        return await client.call_tool("ask", {"question": "Who?", "documents": ["log.md"]})

    assert not tools.run(give_up).is_error
    tools.calls.close()
    n_whole = sum(1 for path in (tmp_path / "indexes").glob("*/long*") if not path.name.endswith(".partial"))
    assert n_whole == 0, tools.heard


@pytest.mark.parametrize("name", ["find_passages", "read_range", "ask"])
def test_what_a_text_lacks_is_said_in_each_call(tools, folder, name):
    (folder / "cafe.txt").write_bytes(("Der Wärter läutete schön im Nebel, über der Straße. " * 20).encode("cp1252"))
    arguments = {"read_range": {"document": "cafe.txt"}}
    given = arguments.get(name, {"question": "What is open?", "documents": ["cafe.txt"]})
    for _ in range(3):
        assert str(tools(name, **given)).count("cafe.txt is read as cp1252") == 1
