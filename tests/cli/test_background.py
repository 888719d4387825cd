"""Answers before documents are read, as the command line tells of them; what is read meanwhile; and how to stop it."""

import json
import re
import time

import pytest
from helpers.command_line import SENTENCES, SHORT_ANSWER, cut, fails, octavo, start

from octavo import ModelSettings, Progress, index_documents
from octavo.library.background.reading_queue import ReadingQueue

AT_ONCE = "--first-answer", "0s"


@pytest.fixture(autouse=True)
def started(monkeypatch):
    """How often a reader would have been started."""
    calls = []
    monkeypatch.setattr("octavo.ask.context.growing_indexes.start_reader", lambda: calls.append(1))
    return calls


@pytest.fixture
def book(tmp_path):
    path = tmp_path / "book.md"
    path.write_text("# Isle\n\n" + "".join(f"In year {year} {SENTENCES}\n" for year in range(30)))
    return path


def test_ask_tells_what_an_answer_was_given_from_and_what_is_read_meanwhile(book, on_tiny, started):
    result = octavo("ask", book, "What happened in year 7?", *on_tiny, *SHORT_ANSWER, *AT_ONCE)
    assert result.exit_code == 0
    pattern = r"\(From 1 passage, \d+\.\d% of book\.md; the rest is being read\.\)"
    cost = r"[\d,]+ tokens, \d+ MiB of disk(, about \d+ s)?\. `octavo stop` ends this\."  # once two times agree
    assert re.fullmatch(rf"Reading book\.md in the background: {cost}\n{re.escape(cut(5))}{pattern}\n", result.stderr)
    assert started == [1]
    answer = json.loads(octavo("ask", book, "Which ship?", *on_tiny, *SHORT_ANSWER, *AT_ONCE, "-o", "json").stdout)
    assert {"kind": "excerpts", "passages": 1, "rest": "being read"}.items() <= answer["basis"].items()
    assert answer["document"] == str(book)
    again = octavo("ask", book, "What happened in year 8?", *on_tiny, *SHORT_ANSWER, *AT_ONCE)
    assert "in the background" not in again.stderr  # it is being read already


def test_of_a_half_read_document_the_part_is_told(book, on_tiny, tiny_model, tmp_path):
    class Stop(Progress):
        n_tokens = 0

        def advance(self, amount):
            self.n_tokens += amount
            if self.n_tokens > 1536:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        index_documents([book], ModelSettings(tiny_model, index_dir=tmp_path / "indexes"), progress=Stop())
    result = octavo("ask", book, "What happened in year 29?", *on_tiny, *SHORT_ANSWER, *AT_ONCE)
    said = r"\(From the part that was read and 1 passage, \d+\.\d% of book\.md; the rest is being read\.\)"
    assert re.search(said, result.stderr)


def test_questions_about_a_whole_are_noticed(book, on_tiny):
    result = octavo("ask", book, "How many ships are mentioned?", *on_tiny, *SHORT_ANSWER, *AT_ONCE)
    assert "; about all of it? Use --read document.)" in result.stderr


def test_nothing_is_read_meanwhile_if_the_user_says_so(book, on_tiny, started):
    result = octavo("ask", book, "Which ship?", *on_tiny, *SHORT_ANSWER, *AT_ONCE, "--no-background")
    assert "% of book.md; `octavo index` reads the rest.)" in result.stderr
    assert (started, ReadingQueue().documents()) == ([], [])


def test_read_document_waits(book, on_tiny, started):
    result = octavo("ask", book, "Which ship?", *on_tiny, *SHORT_ANSWER, "--read", "document")
    assert result.stderr.startswith("Indexing book.md, once: ")
    again = octavo("ask", book, "Which ship?", *on_tiny, *SHORT_ANSWER, *AT_ONCE)
    assert (again.stdout, again.stderr) == (result.stdout, cut(5))
    assert started == []


def test_wrong_times_are_refused(book, on_tiny):
    fails(
        octavo("ask", book, "Why?", *on_tiny, "--first-answer", "soon"), 2, "'soon' is not a time, such as 60s or 5m."
    )
    wrong = octavo("ask", book, "Why?", *on_tiny, "--read", "document", "--first-answer", "5m")
    fails(wrong, 2, "--first-answer goes with --read auto: leave one of them out.")


def test_a_chat_moves_over_when_the_document_is_read(book, on_tiny, tiny_model, tmp_path, monkeypatch):
    def lines():
        yield "Which ship?"
        settings = ModelSettings(tiny_model, n_threads=2, index_dir=tmp_path / "indexes")
        index_documents([book], settings)
        yield "And then?"

    monkeypatch.setattr("octavo.cli.input_lines.piped_lines", lines)
    result = octavo("chat", book, *on_tiny, *SHORT_ANSWER, *AT_ONCE)
    assert result.exit_code == 0
    assert result.stderr.index("the rest is being read") < result.stderr.index("book.md is read now: answers come from")
    assert result.stderr.count("(From ") == 1


def test_what_is_read_in_the_background_is_listed_and_stopped(book, on_tiny, tmp_path):
    library = on_tiny[:4]
    assert octavo("stop").stderr == "Nothing is read in the background.\n"
    other = tmp_path / "other.md"
    other.write_text(book.read_text())
    for path in (book, other):
        octavo("ask", path, "Which ship?", *on_tiny, *SHORT_ANSWER, *AT_ONCE)
    queue = ReadingQueue()
    queue.note_progress(queue.next(), "Reading other.md", "tokens", 512, 2048, time.time(), 0, 125.0)
    queue.note_waiting(queue.next(), "the answer")
    assert "512 of 2,048 tokens; waits for the answer" in octavo("list", *library).stdout
    queue.note_waiting(queue.next(), "")
    shown = octavo("list", *library)
    assert re.search(r"^other\.md +tiny\.gguf +Reading other\.md: 512 of 2,048 tokens, 2:05 left", shown.stdout, re.M)
    assert re.search(r"^book\.md +tiny\.gguf +waiting", shown.stdout, re.M)
    assert shown.stderr == "Nothing reads now: the next question about one continues.\n"
    rows = {row["document"]: row for row in json.loads(octavo("list", *library, "-o", "json").stdout)}
    assert rows["other.md"]["state"] == "reading"
    assert rows["other.md"]["progress"] == {"task": "Reading other.md", "unit": "tokens", "done": 512, "total": 2048}
    assert (rows["book.md"]["state"], rows["book.md"]["progress"]) == ("waiting", None)
    queue.fail(queue.documents()[1], "It is encrypted: give its `password`.")
    assert re.search(
        r"^book\.md +tiny\.gguf +failed: It is encrypted: give its --password\.", octavo("list", *library).stdout, re.M
    )
    stopped = octavo("stop", other)
    assert stopped.stderr == "Stopped other.md (Reading other.md: 512 of 2,048 tokens, 2:05 left).\n"
    fails(octavo("stop", "other.md"), 2, "other.md is not read in the background: `octavo list` shows what is.")
    assert octavo("stop").stderr == "Stopped book.md (failed: It is encrypted: give its --password.).\n"
    assert octavo("list", *library).stderr == "Nothing is indexed yet.\n"


def test_a_first_answer_leaves_a_reader_that_makes_the_index(book, on_tiny):
    """The whole way, with real processes."""
    command = start("ask", book, "Which ship?", *on_tiny, *SHORT_ANSWER, *AT_ONCE)
    _, errors = command.communicate(timeout=120)
    assert command.returncode == 0
    assert b"the rest is being read" in errors
    queue = ReadingQueue()
    for _ in range(1200):
        if not queue.documents() and not queue.has_reader:
            break
        time.sleep(0.1)
    assert queue.documents() == []
    answered = octavo("ask", book, "Which ship?", *on_tiny, *SHORT_ANSWER, *AT_ONCE)
    assert (answered.exit_code, answered.stderr) == (0, cut(5))


def test_a_conversation_over_passages_is_continued_by_its_texts(book, on_tiny):
    first = octavo("ask", book, "Which ship?", *on_tiny, *AT_ONCE)
    assert first.exit_code == 0
    result = octavo("ask", book, "--continue", "And where?", *on_tiny, *AT_ONCE)
    assert result.exit_code == 0
    assert "The last conversation continues: 1 question, the last one “Which ship?”." in result.stderr.splitlines()
    assert "has changed" not in result.stderr
    [chat] = json.loads(octavo("chats", *on_tiny[:4], "-o", "json").stdout)
    assert [message["content"] for message in chat["messages"][::2]] == ["Which ship?", "And where?"]


def test_standard_input_is_answered_at_once_and_not_read_later(book, on_tiny, started):
    result = octavo("ask", "-", "Which ship?", *on_tiny, *SHORT_ANSWER, *AT_ONCE, stdin=book.read_text())
    assert re.search(r"\(From 1 passage, .*% of Standard input; `octavo index` reads the rest\.\)", result.stderr)
    assert started == []
