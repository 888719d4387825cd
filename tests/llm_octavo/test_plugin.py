"""The plugin for llm, by llm's own command and Python API."""

import asyncio
import json
import tomllib

import llm
import llm.cli
import llm_octavo
import pytest
from click.testing import CliRunner
from helpers import talking_model
from helpers.pdf_files import PdfWriter
from helpers.product import ROOT
from llm.plugins import pm
from llm_octavo import document_files

from octavo.ask.session import Session
from octavo.ask.sources.find_sources import Passage

ANSWER = talking_model.ANSWER
SENTENCE = "The keeper of the bridge was Agnes Moir.\n"


@pytest.fixture(autouse=True)
def plugin(tmp_path, monkeypatch):
    """Install the plugin, with a model that always says the same, for a user without files."""
    model = talking_model.write_model(tmp_path / "talking.gguf")
    monkeypatch.setenv("OCTAVO_MODEL", str(model))
    monkeypatch.setenv("LLM_USER_PATH", str(tmp_path / "llm"))
    monkeypatch.setattr(document_files, "_loaded", {})
    pm.register(llm_octavo, name="octavo")
    yield
    pm.unregister(name="octavo")


@pytest.fixture
def note(tmp_path):
    path = tmp_path / "note.txt"
    path.write_text(SENTENCE)
    return path


@pytest.fixture
def report(tmp_path):
    path = tmp_path / "report.pdf"
    pages = PdfWriter().page((60, 700, "The bridge opened in March.")).page((60, 700, "Its keeper was Agnes Moir."))
    path.write_bytes(pages.content())
    return path


def run(*arguments, code=0):
    """Run `llm`; as a process of its own it would not know which documents were loaded before."""
    document_files._loaded.clear()
    options = ["-o", "temperature", "0", "-o", "max_tokens", "20"]
    result = CliRunner().invoke(llm.cli.cli, ["prompt", *options, *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def asked(monkeypatch):
    """Record the history and the question of each prompt."""
    found, recall, stream = [], Session.recall, Session.stream_parts

    def recording(session, messages):
        found.append([message["content"] for message in messages])
        recall(session, messages)

    def asking(session, question):
        found[-1].append(question)
        return stream(session, question)

    monkeypatch.setattr(Session, "recall", recording)
    monkeypatch.setattr(Session, "stream_parts", asking, raising=False)
    return found


def test_the_entry_point_leads_to_the_plugin():
    project = tomllib.loads((ROOT / "llm-octavo" / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["entry-points"]["llm"] == {"octavo": llm_octavo.__name__}


def test_a_question_without_documents():
    assert run("-m", "octavo", "Who?").stdout == f"{ANSWER}\n"


def test_a_text_is_a_document_that_is_read_once(note, asked):
    first = run("-m", "octavo", "-f", note, "Who was the keeper?", "--usage")
    assert first.stdout == f"{ANSWER}\n"
    assert "Indexing" in first.stderr
    assert "Token usage: " in first.stderr
    again = run("-m", "octavo", "-f", note, "And who not?")
    assert (again.stdout, "Indexing" in again.stderr) == (f"{ANSWER}\n", False)
    assert asked == [["Who was the keeper?"], ["And who not?"]]


def test_the_loader_gives_the_text_of_a_pdf(report):
    fragment = llm_octavo.load_document(str(report))
    assert "Its keeper was Agnes Moir." in fragment
    assert fragment.source == f"octavo:{report}"
    assert run("-m", "octavo", "-f", f"octavo:{report}", "Who?").stdout == f"{ANSWER}\n"


def test_a_pdf_is_a_document_as_fragment_and_as_attachment(report):
    assert "Indexing report.pdf" in run("-m", "octavo", "-f", f"octavo:{report}", "Who?").stderr
    assert "Indexing" not in run("-m", "octavo", "-a", report, "Who?").stderr


@pytest.mark.parametrize("how", ["fragment", "attachment", "text"])
def test_a_conversation_continues_over_its_documents(report, note, asked, how):
    given = {"fragment": ("-f", f"octavo:{report}"), "attachment": ("-a", report), "text": ("-f", note)}[how]
    run("-m", "octavo", *given, "Who?")
    continued = run("-c", "And when?")
    assert (continued.stdout, "Indexing" in continued.stderr) == (f"{ANSWER}\n", False)
    assert run("-c", "Why?").stdout == f"{ANSWER}\n"
    assert asked == [["Who?"], ["Who?", ANSWER, "And when?"], ["Who?", ANSWER, "And when?", ANSWER, "Why?"]]


def test_sources_follow_the_answer_and_are_no_part_of_the_conversation(report, asked, monkeypatch):
    passage = Passage("Its keeper was Agnes Moir.", 0.5, 28, 54, 3, "2", None)
    monkeypatch.setattr(Session, "sources", lambda session: [passage])
    shown = run("-m", "octavo", "-f", f"octavo:{report}", "Who?", "-o", "sources", "true").stdout
    assert shown == f"{ANSWER}\n\nSources:\n- page 2, line 3: Its keeper was Agnes Moir.\n\n"
    run("-c", "When?")
    assert asked[-1] == ["Who?", ANSWER, "When?"]
    monkeypatch.setattr(Session, "sources", lambda session: [])
    assert run("-m", "octavo", "-f", note_of(report), "Who?", "-o", "sources", "true").stdout.endswith(
        "None: check this answer.\n"
    )


def note_of(report):
    """Write a text beside a document."""
    path = report.with_suffix(".txt")
    path.write_text(SENTENCE)
    return path


def test_of_several_documents_the_one_of_the_question_answers(report, note):
    result = run("-m", "octavo", "-f", f"octavo:{report}", "-f", note, "When did the bridge open?")
    assert result.stdout == f"{ANSWER}\n"
    assert "Indexing report.pdf" in result.stderr


def test_a_system_message_reaches_the_model(note, monkeypatch):
    systems, before = [], Session.__init__
    monkeypatch.setattr(
        Session,
        "__init__",
        lambda self, llama, sampling, system="", *more, **named: (
            systems.append(system) or before(self, llama, sampling, system, *more, **named)
        ),
    )
    run("-m", "octavo", "-s", "Be short.", "-f", note, "Who?")
    run("-c", "When?")
    assert systems == ["Be short.", "Be short."]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("-f", "octavo:nothing.pdf", "Who?"), "nothing.pdf"),
        (("Who?", "-o", "model_file", "nothing.gguf"), "nothing.gguf"),
        (("Who?", "-o", "attention", "zebra"), "zebra"),
    ],
)
def test_what_octavo_refuses_is_a_sentence(arguments, sentence):
    result = run("-m", "octavo", *arguments, code=1)
    assert result.stderr.startswith("Error: ")
    assert sentence in result.stderr
    assert "Traceback" not in result.output


def test_an_answer_that_was_cut_says_so(note):
    result = run("-m", "octavo", "-f", note, "Who?", "-o", "max_tokens", "2")
    assert ANSWER.startswith(result.stdout.strip())
    assert "(The answer was cut after 2 tokens: -o max_tokens sets the limit.)" in result.stderr


def test_python_gets_usage_and_basis(note):
    model = llm.get_model("octavo")
    response = model.prompt("Who?", fragments=[llm.Fragment(note.read_text(), str(note))], temperature=0)
    assert response.text() == ANSWER
    assert response.usage().input > 0
    assert response.usage().output > 0
    assert response.response_json["finish_reason"] == "stop"
    assert response.response_json["basis"]["kind"] == "document"
    conversation = model.conversation()
    assert conversation.prompt("Who?", fragments=[note.read_text()], temperature=0).text() == ANSWER
    assert conversation.prompt("When?", temperature=0).text() == ANSWER


def test_asynchronous_programs_get_the_same(note):
    async def answer():
        model = llm.get_async_model("octavo")
        pieces = [piece async for piece in model.prompt("Who?", fragments=[note.read_text()], temperature=0)]
        return "".join(pieces), len(pieces)

    text, n_pieces = asyncio.run(answer())
    assert (text, n_pieces > 1) == (ANSWER, True)


def test_kept_files_are_private(note, tmp_path):
    run("-m", "octavo", "-f", note, "Who?")
    folder = tmp_path / "llm" / "octavo"
    assert folder.stat().st_mode & 0o077 == 0
    [text], [kept] = list(folder.glob("*.md")), list(folder.glob("*.json"))
    assert json.loads(kept.read_text()) == {"question": "Who?", "documents": [str(text)]}
    assert text.read_text() == SENTENCE


def test_a_conversation_says_that_its_document_has_changed_or_is_gone(report, capsys):
    conversation = llm.get_model("octavo").conversation()
    told = []
    for change in (lambda: None, lambda: report.write_bytes(b"Another text."), report.unlink):
        change()
        attachments = [] if told else [llm.Attachment(path=str(report), type="application/pdf")]
        response = conversation.prompt("Who?", attachments=attachments, temperature=0)
        assert response.text() == ANSWER
        told.append(" ".join(response.response_json["notices"]))
        assert told[-1] in "".join(capsys.readouterr().err).replace("(", "").replace(")\n", " ")
    has = [("has changed since it was read" in each, "is gone, or cannot be reached" in each) for each in told]
    assert has == [(False, False), (True, False), (False, True)]
