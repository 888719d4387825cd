"""`octavo ask`, by its output and exit codes, on a tiny model whose answers are random bytes."""

import json
import re
import signal
import subprocess
import sys
import time

import pytest
from helpers import talking_model, tiny_models
from helpers.command_line import SENTENCES, SHORT_ANSWER, cut, interrupt_when, octavo, start
from helpers.pdf_files import PdfWriter

from octavo.runtime.methods.attention import Attention

AUTO = Attention.parse("auto")


def test_ask_prints_the_answer_and_nothing_else_on_stdout(document, on_tiny):
    first = octavo("ask", document, "Which ship?", *on_tiny, *SHORT_ANSWER)
    assert first.exit_code == 0
    assert first.stdout.endswith("\n")
    assert first.stderr.startswith("Indexing island.txt, once: ")
    again = octavo("ask", document, "-", *on_tiny, *SHORT_ANSWER, stdin="Which ship?\n")
    assert (again.exit_code, again.stderr) == (0, cut(5))
    assert again.stdout == first.stdout


def test_ask_says_that_a_budget_is_too_small(document, on_tiny):
    octavo("index", document, *on_tiny, "--attention", "squeezed")
    asked = octavo(
        "ask", document, "Which ship?", *on_tiny, *SHORT_ANSWER, "--attention", "squeezed", "--budget", "0.25"
    )
    note, _cut = asked.stderr.splitlines()
    assert re.fullmatch(r"Note: squeezed cannot read as little as 0\.25 of \d+ tokens here: .* 1\.000 of them\.", note)


def test_ask_as_json(document, on_tiny):
    text = octavo("ask", document, "Which ship?", *on_tiny, *SHORT_ANSWER).stdout
    result = octavo("ask", document, "Which ship?", *on_tiny, *SHORT_ANSWER, "-o", "json")
    answer = json.loads(result.stdout)
    assert result.stderr == ""
    facts = ["answer", "reasoning", "finish_reason", "document", "model", "open_s", "tokens"]
    assert list(answer) == [*facts, "attention", "chosen", "budget", "timing", "drafts", "read", "unfounded", "notices"]
    assert list(answer["timing"]) == ["first_token_s", "decode_tokens_per_s"]
    assert (answer["finish_reason"], answer["document"], answer["model"]) == ("length", str(document), on_tiny[1])
    tokens = answer["tokens"]
    assert (answer["reasoning"], tokens["thought"], tokens["answer"]) == ("", 0, 5)
    assert tokens["context"] == tokens["document"] + tokens["question"] + tokens["answer"] - 1  # the last is not read
    assert answer["answer"] == text.removesuffix("\n") or answer["answer"] == text
    assert (answer["attention"], answer["chosen"], answer["budget"]) == ("auto", str(AUTO.resolve_for(0)), 1.0)
    assert answer["open_s"] > 0
    assert answer["read"] == {"share": pytest.approx(1, abs=0.01), "covered": None}  # everything was read
    by_quality = "--attention", "sketch:quality=0.9"
    selected = octavo("ask", document, "Which ship?", *on_tiny, *SHORT_ANSWER, "-o", "json", *by_quality)
    assert 0.9 <= json.loads(selected.stdout)["read"]["covered"] <= 1
    dense = octavo("ask", document, "Which ship?", *on_tiny, *SHORT_ANSWER, "-o", "json", "--attention", "dense")
    assert json.loads(dense.stdout)["budget"] == 1.0


def test_ask_as_lines_of_json(document, on_tiny):
    text = octavo("ask", document, "Which ship?", *on_tiny, *SHORT_ANSWER).stdout
    lines = octavo("ask", document, "Which ship?", *on_tiny, *SHORT_ANSWER, "-o", "jsonl").stdout.splitlines()
    *pieces, answer = map(json.loads, lines)
    assert len(pieces) > 1
    assert "".join(piece["piece"] for piece in pieces) == answer["answer"]
    assert text in (answer["answer"], answer["answer"] + "\n")


def test_a_full_context_is_told(document, on_tiny):
    n_tokens = json.loads(octavo("list", *on_tiny[:4], "-o", "json").stdout or "[]")
    assert not n_tokens
    octavo("index", document, *on_tiny)
    [row] = json.loads(octavo("list", *on_tiny[:4], "-o", "json").stdout)
    result = octavo("ask", document, "Why?", *on_tiny, "--temp", "0", "-n", "-1", "-c", str(row["tokens"] + 40))
    assert result.stderr.splitlines()[-1].startswith("(The answer was cut: the context of ")


def test_a_system_prompt_takes_the_same_index(document, on_tiny):
    octavo("index", document, *on_tiny)
    plain, told = (
        octavo("ask", document, "Which ship?", *on_tiny, *SHORT_ANSWER, "-o", "json", *more)
        for more in ([], ["-sys", "Be brief."])
    )
    assert (plain.stderr, told.stderr) == ("", "")
    counts = [json.loads(each.stdout)["tokens"]["question"] for each in (plain, told)]
    assert counts[1] == counts[0] + len("Be brief.\n\n")  # its tokens are bytes


def test_a_document_is_asked_with_each_type_of_cache(document, on_tiny, monkeypatch):
    """Each has an index of its own, and a question finds the right one, by option or by environment."""
    for cache_type in ("q8_0", "f16"):
        result = octavo("ask", document, "Which ship?", *on_tiny, *SHORT_ANSWER, "--cache-type", cache_type)
        assert result.exit_code == 0
        assert result.stderr.startswith("Indexing island.txt, once: ")
    rows = json.loads(octavo("list", *on_tiny[:4], "-o", "json").stdout)
    sizes = {row["cache_type"]: row["bytes"] for row in rows}
    assert sizes.keys() == {"f16", "q8_0"}
    assert 0.5 < sizes["q8_0"] / sizes["f16"] < 0.6
    for row in rows:
        assert json.loads(octavo("inspect", row["path"], "-o", "json").stdout)["cache_type"] == row["cache_type"]
        assert f"cache type          {row['cache_type']}" in octavo("inspect", row["path"]).stdout.splitlines()
        monkeypatch.setenv("OCTAVO_CACHE_TYPE", row["cache_type"])
        result = octavo("ask", document, "Which ship?", *on_tiny, *SHORT_ANSWER)
        assert (result.exit_code, result.stderr) == (0, cut(5))


def test_chat_with_the_smaller_cache(document, on_tiny):
    on_tiny = [*on_tiny, "--attention", "dense"]
    small = ["--cache-type", "q8_0", *on_tiny]
    octavo("index", document, *small)
    result = octavo("chat", document, *small, *SHORT_ANSWER, stdin="/stats\nWhich ship?\n/stats\n")
    asked = octavo("ask", document, "Which ship?", *small, *SHORT_ANSWER)
    assert (result.exit_code, result.stdout) == (0, asked.stdout)
    octavo("index", document, *on_tiny)
    full = octavo("chat", document, *on_tiny, stdin="/stats\n")
    held = [float(re.search(r"KV cache +([\d,.]+) KiB", each.stderr)[1].replace(",", "")) for each in (result, full)]
    assert held[0] / held[1] == pytest.approx((64 + 4) / (2 * 64), rel=0.01)


def test_ask_for_sources(document, on_tiny):
    """A random model attends nothing in particular."""
    result = octavo("ask", document, "Which ship?", "--sources", *on_tiny, *SHORT_ANSWER)
    text = octavo("ask", document, "Which ship?", *on_tiny, *SHORT_ANSWER).stdout
    assert result.stdout == f"{text}\nNo passage stands out: check this answer.\n"
    assert result.stderr.startswith("Preparing this model for sources, once.\n")
    as_json = octavo("ask", document, "Which ship?", "--sources", *on_tiny, *SHORT_ANSWER, "-o", "json")
    assert json.loads(as_json.stdout)["sources"] == []
    assert as_json.stderr == ""


@pytest.mark.slow
def test_a_real_model_names_the_right_source(real_model, tmp_path):
    document = tmp_path / "keeper.md"
    filler = "The sea was calm, and nobody came to the harbour that day.\n\n"
    fact = "The password of the lighthouse at Corvane is marmalade."
    document.write_text(f"# Log\n\n{filler * 12}## Keys\n\n{fact}\n\n## Weather\n\n{filler * 12}")
    options = ["-m", str(real_model), "--index-dir", str(tmp_path), "--temp", "0", "-n", "24"]
    question = "What is the password of the lighthouse at Corvane?"
    result = json.loads(octavo("ask", document, question, "--sources", *options, "-o", "json").stdout)
    assert "marmalade" in result["answer"]
    source = result["sources"][0]
    assert fact in source["quote"]
    assert (source["line"], source["heading"], source["page"]) == (29, "Log > Keys", None)
    assert document.read_text()[source["start"] :].startswith(source["quote"][:20])
    shown = octavo("ask", document, question, "--sources", *options).stdout
    assert "\n1. Log > Keys, line 29 (" in shown


@pytest.mark.slow
def test_the_source_of_a_pdf_names_the_page(real_model, tmp_path):
    filler = ["The sea was calm, and nobody came to the harbour on that day,", "as the log of the keeper says."]
    facts = ["The ship that sank near Tresmoor was loaded with timber.", "The dog of Captain Ferris is called Biscuit."]
    writer = PdfWriter()
    for fact in ["", *facts, ""]:
        texts = [*filler * 4, fact, *filler * 4]
        writer.page(*((60, 700 - 13 * i - 20 * (i // 2), text) for i, text in enumerate(texts) if text))
    document = tmp_path / "log.pdf"
    document.write_bytes(writer.content())
    options = ["-m", str(real_model), "--index-dir", str(tmp_path), "--temp", "0", "-n", "24", "-o", "json"]
    result = octavo("ask", document, "What is the dog of Captain Ferris called?", "--sources", *options)
    answer = json.loads(result.stdout)
    assert "Biscuit" in answer["answer"]
    assert facts[1] in answer["sources"][0]["quote"]
    assert answer["sources"][0]["page"] == "3"


def test_same_seed_same_answer(document, on_tiny):
    first, second = (octavo("ask", document, "Why?", *on_tiny, "-n", "8", "--seed", "7").stdout for _ in range(2))
    assert first == second


def test_control_tokens_in_a_document_are_text(document, on_tiny):
    plain = json.loads(octavo("index", document, *on_tiny, "-o", "json").stdout)[0]["path"]
    document.write_text(SENTENCES * 6 + "<|im_end|>")
    result = octavo("index", document, *on_tiny, "-o", "json")
    marked = json.loads(result.stdout)[0]["path"]
    assert result.stderr.startswith("island.txt has changed since it was indexed, so it is indexed again: ")
    sizes = {row["path"]: row["tokens"] for row in json.loads(octavo("list", *on_tiny[:4], "-o", "json").stdout)}
    assert sizes[marked] - sizes[plain] == len(["<", "|", "i", "m", "_", "e", "nd", "|", ">"])


def test_model_without_a_chat_template(document, tmp_path):
    model = tiny_models.write_model(tmp_path / "plain.gguf", "llama")
    result = octavo("ask", document, "Why?", "-m", model, "--index-dir", tmp_path, *SHORT_ANSWER)
    assert result.exit_code == 0
    assert "this model has no chat template" in result.stderr.splitlines()[0]
    assert "chat template       no" in octavo("inspect", model).stdout.splitlines()


def test_context_longer_than_the_models_own_is_told(document, on_tiny):
    result = octavo("ask", document, "Why?", *on_tiny, *SHORT_ANSWER, "-c", "5000")
    assert result.exit_code == 0
    assert result.stderr.splitlines()[0] == "Note: this model was trained on 4,096 tokens, and -c allows 5,000."


def test_interrupted_answer(document, on_tiny, monkeypatch):
    """What came is kept, and its line is ended."""
    from octavo.ask.session import Session
    from octavo.prompts.thought_splitter import Part

    def stream_parts(self, question, marks=False):
        yield Part("The Pet")
        raise KeyboardInterrupt

    monkeypatch.setattr(Session, "stream_parts", stream_parts)
    result = octavo("ask", document, "Which ship?", *on_tiny)
    assert (result.exit_code, result.stdout) == (130, "The Pet\n")
    assert result.stderr.splitlines()[-1] == "Interrupted."


def test_ctrl_c_while_a_question_is_read(document, on_tiny, tmp_path):
    question = tmp_path / "question.txt"
    question.write_text(SENTENCES * 2000)
    octavo("index", document, *on_tiny)

    def is_read() -> bool:
        """Whether the document is open: the question comes next."""
        is_open = any((tmp_path / "indexes").glob("*/*/used"))
        time.sleep(2 * is_open)
        return is_open

    with question.open() as stdin:
        process = start("ask", document, "-", *on_tiny, "-c", "400000", stdin=stdin)
        _, errors = interrupt_when(process, is_read)
    noted, interrupted = errors.splitlines()
    assert noted.startswith("Note: this model was trained on 4,096 tokens")
    assert (process.returncode, interrupted) == (130, "Interrupted.")


def test_closed_pipe_is_quiet(document, on_tiny):
    octavo("index", document, *on_tiny)
    process = start("ask", document, "Why?", *on_tiny, "-n", "100", "--temp", "0")
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() != 0


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "ship.txt").write_text(SENTENCES * 3)
    (folder / "tower.txt").write_text("Nobody wrote down who built the tower, or when it fell into the sea.\n" * 5)
    return folder


def test_ask_a_folder(folder, on_tiny):
    first = octavo("ask", folder, "Which ship?", *on_tiny, *SHORT_ANSWER)
    assert first.exit_code == 0
    assert first.stderr.count("\nIndexing tower.txt, once: ") + first.stderr.count("\nIndexing ship.txt, once: ") == 2
    assert re.search(r"^\(From 2 passages of (ship|tower)\.txt and (ship|tower)\.txt\.\)$", first.stderr, re.M)
    whole = ["Which ship?", "--read", "document"]
    first = octavo("ask", folder, *whole, *on_tiny, *SHORT_ANSWER)
    again = octavo("ask", folder / "ship.txt", folder / "tower.txt", *whole, *on_tiny, *SHORT_ANSWER)
    *_, which = again.stderr.splitlines(keepends=True)
    named = re.fullmatch(r"\(From ((ship|tower)\.txt)\.\)\n", which)[1]
    assert again.stdout == first.stdout
    alone = octavo("ask", folder / named, "Which ship?", *on_tiny, *SHORT_ANSWER)
    assert alone.stdout == first.stdout
    answer = json.loads(octavo("ask", folder, *whole, *on_tiny, *SHORT_ANSWER, "-o", "json").stdout)
    assert answer["document"] == str(folder / named)
    assert {each["path"] for each in answer["documents"]} == {str(folder / "ship.txt"), str(folder / "tower.txt")}
    assert sum(each["share"] for each in answer["documents"]) == pytest.approx(1, abs=1e-3)


def test_ask_for_excerpts_of_a_folder(folder, on_tiny):
    octavo("index", folder, *on_tiny)
    result = octavo("ask", folder, "Which ship?", *on_tiny, *SHORT_ANSWER, "--read", "excerpts", "--sources")
    assert (result.exit_code, "Traceback" in result.stderr) == (0, False)
    which = re.search(r"^\(From \d passages of (.*) and (.*)\.\)$", result.stderr, re.M)
    assert {which[1], which[2]} == {"ship.txt", "tower.txt"}
    assert re.search(r"^\d\. (ship|tower)\.txt, line \d+ \(|^No passage stands out", result.stdout, re.M)
    settings = [*on_tiny, *SHORT_ANSWER, "--read", "excerpts", "-o", "json"]
    answer = json.loads(octavo("ask", folder, "Which ship?", *settings).stdout)
    assert {answer["document"], *answer["read_from"]} == {str(folder / "ship.txt"), str(folder / "tower.txt")}
    one = json.loads(octavo("ask", folder / "ship.txt", "Which ship?", *settings).stdout)
    assert one["read_from"] == [str(folder / "ship.txt")]


def test_a_folder_without_documents_is_refused(tmp_path, on_tiny):
    (tmp_path / "empty").mkdir()
    result = octavo("ask", tmp_path / "empty", "Which ship?", *on_tiny)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("Error: There is no document in the folder ")


def test_ask_a_document_that_is_longer_than_the_context(tmp_path, on_tiny):
    long = tmp_path / "long.txt"
    long.write_text(SENTENCES * 60)
    result = octavo("ask", long, "Which ship?", *on_tiny, *SHORT_ANSWER, "-c", "1024")
    assert (result.exit_code, "Traceback" in result.stderr) == (0, False)
    assert re.search(
        r"^long\.txt has about [\d,]+ tokens, more than the context of 1,024\. So it is read in", result.stderr, re.M
    )
    assert re.search(r"^\(From \d passages?, [\d.]+% of long\.txt\.\)$", result.stderr, re.M)
    result = octavo("ask", long, "Summarise it.", *on_tiny, *SHORT_ANSWER, "-c", "1024")
    assert re.search(
        r"^\d+ parts: up to \d+ s; Ctrl-C answers from those that are done\.$", result.stderr, re.MULTILINE
    )
    assert result.stderr.endswith("(From the answers of all of long.txt.)\n")
    asked = "ask", long, "Summarise it.", *on_tiny, *SHORT_ANSWER, "-c", "1024"
    answer = json.loads(octavo(*asked, "-o", "json").stdout)
    assert answer["basis"]["kind"] == "findings"
    assert all(found["document"].startswith("long.txt, part ") and found["read"] for found in answer["findings"])
    result = octavo(*asked, "--whole", "off")
    assert re.search(
        r"^\(From long\.txt, part \d+ of \d+; the question may be about all of it\.\)$", result.stderr, re.M
    )


#: `octavo`, which a signal ends after it has kept so many answers of documents.
KILLED = """
import os, signal, sys
from octavo.ask.context.whole.finding import KeptFindings
from octavo.cli.main import main

add, left = KeptFindings.add, [int(sys.argv.pop(1))]

def killed(self, *arguments):
    add(self, *arguments)
    left[0] -= 1
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)

KeptFindings.add = killed
main()
"""


def test_a_process_that_is_killed_while_all_documents_are_asked_loses_no_answer(tmp_path, on_tiny):
    """At any document of any batch: the question, asked again, goes to the others alone."""
    notes = tmp_path / "notes"
    notes.mkdir()
    for number in range(12):
        (notes / f"{number:02}.txt").write_text(f"Note {number}. {SENTENCES}")
    octavo("index", notes, *on_tiny)
    asked = ["ask", notes, "Summarise the notes.", *on_tiny, *SHORT_ANSWER, "-o", "json"]
    for n_kept, known in ((3, ""), (6, "3 of 12 answers are known from before.")):
        command = [sys.executable, "-P", "-c", KILLED, *map(str, [n_kept, *asked])]
        process = subprocess.run(command, capture_output=True, timeout=120, text=True)
        assert process.returncode == -signal.SIGKILL, process.stderr
        assert known in process.stderr
    again = octavo(*asked)
    assert "9 of 12 answers are known from before." in again.stderr
    answer = json.loads(again.stdout)
    assert len(answer["findings"]) > 2
    for path in tmp_path.rglob("found.json"):
        path.unlink()
    undisturbed = json.loads(octavo(*asked).stdout)
    assert (undisturbed["answer"], undisturbed["findings"]) == (answer["answer"], answer["findings"])


def test_files_that_are_left_out_are_told_once_a_change(folder, on_tiny):
    (folder / "photo.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (folder / "broken.pdf").write_bytes(b"%PDF-1.4 nothing")
    asked = "ask", folder, "Which ship?", *on_tiny, *SHORT_ANSWER

    def told(*options):
        lines = octavo(*asked, *options).stderr.splitlines()
        return [line.split()[0] for line in lines if " left out of " in line or line.startswith("Left out: ")]

    assert told("-q") == []
    assert told() == ["photo.png", "Left"]
    assert told() == []
    (folder / "other.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    assert told() == ["other.png,"]
    assert told() == []
    (folder / "other.png").unlink()
    assert told() == ["photo.png"]
    assert " left out of " in octavo("index", folder, *on_tiny).stderr
    assert " left out of " in octavo("index", folder, *on_tiny).stderr


def test_the_default_model_says_once_that_it_is_small(document, on_tiny, monkeypatch):
    arguments = ["ask", document, "Why?", *SHORT_ANSWER, *on_tiny]
    small = "This model is small, to try octavo with. -hf bartowski/Llama-3.2-1B-Instruct-GGUF fetches a better one"
    assert small not in octavo(*arguments).stderr  # it is another model
    monkeypatch.setattr("octavo.runtime.models.find_model.is_default", lambda path: True)
    assert small not in octavo(*arguments, "-q").stderr
    assert octavo(*arguments).stderr.count(small) == 1
    assert small not in octavo(*arguments).stderr


def test_an_answer_that_loops_is_followed_by_passages(document, tmp_path):
    model = talking_model.write_model(tmp_path / "looping.gguf", loops=True)
    document.write_text(f"{document.read_text()}\n\nThe lighthouse of Skerry was painted by Tobias Quill.\n")
    arguments = ["ask", document, "Who painted the lighthouse?", "-m", model, "--index-dir", tmp_path / "x", "-t", 2]
    result = octavo(*arguments, "--temp", "0")
    assert len(result.stdout) < 60  # without its repeats
    said = result.stderr.partition("These passages have words of the question:\n")[2]
    assert "The lighthouse of Skerry was painted by Tobias Quill." in said.splitlines()[1]
    assert said.startswith("1. line ")
    assert "These passages" not in octavo(*arguments, "--temp", "0", "-q").stderr


@pytest.mark.parametrize("how", [("--first-answer", "0s", "--no-background"), ("--read", "excerpts"), ()], ids=str)
def test_what_a_text_lacks_is_said_each_time(on_tiny, tmp_path, how):
    """Whoever extracted it first is not the only one to know; of a folder, once is enough."""
    path = tmp_path / "papers" / "cafe.txt"
    path.parent.mkdir()
    path.write_bytes(("Der Wärter läutete schön im Nebel, über der Straße. " * 20).encode("cp1252"))
    sentence = "cafe.txt is read as cp1252: give its --encoding, or save it as UTF-8, if that is wrong."
    for _ in range(3):
        told = octavo("ask", path, "What is open?", *on_tiny, *SHORT_ANSWER, *how).stderr
        assert told.count(sentence) == 1
    told = [octavo("ask", path.parent, "What is open?", *on_tiny, *SHORT_ANSWER, *how).stderr for _ in range(2)]
    assert [each.count(sentence) for each in told] == [1, 0]


@pytest.mark.parametrize("how", [("--first-answer", "0s", "--no-background"), ()], ids=str)
def test_a_wrong_encoding_does_not_stick(on_tiny, tmp_path, how):
    path = tmp_path / "cafe.txt"
    path.write_text("Le caf\xe9 est ouvert. " * 20, "utf-8")
    asked = "ask", path, "What is open?", *on_tiny, *SHORT_ANSWER, *how, "-o", "json"
    wrong, right, again = (
        json.loads(octavo(*asked, *given).stdout)["tokens"]["document"] for given in (("--encoding", "cp437"), (), ())
    )
    assert wrong != right == again


def test_notices_are_in_json_too(document, on_tiny):
    answer = json.loads(octavo("ask", document, "Why?", *on_tiny, *SHORT_ANSWER, "-o", "json").stdout)
    assert "The answer was cut after 5 tokens." in answer["notices"]
    *_, last = octavo("ask", document, "Why?", *on_tiny, *SHORT_ANSWER, "-o", "jsonl").stdout.splitlines()
    assert json.loads(last)["notices"] == answer["notices"]
