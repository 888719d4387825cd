"""`octavo chat`: a conversation, its commands, its interruptions, and the line editor in a pseudo-terminal."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from helpers.command_line import SENTENCES, SHORT_ANSWER, cut, octavo

from octavo.cli.chat import ChatLoop
from octavo.cli.main import cli
from octavo.errors import OctavoError
from octavo.library.background.reading_queue import ReadingQueue
from octavo.prompts.thought_splitter import Part
from octavo.runtime.methods.attention import Attention
from octavo.system import processors
from octavo.system.locks import locked
from octavo.system.processors import Look

AUTO = Attention.parse("auto")


@pytest.fixture
def chat(tiny_model, tmp_path) -> list[str]:
    """A chat over a small document that is indexed already."""
    document = tmp_path / "island.txt"
    document.write_text(SENTENCES * 6)
    on_tiny = ["-m", str(tiny_model), "--index-dir", str(tmp_path / "indexes"), "-t", "2"]
    assert CliRunner().invoke(cli, ["index", str(document), *on_tiny]).exit_code == 0
    return ["chat", str(document), *on_tiny, "--temp", "0", "-n", "4"]


# On a real model, from a pipe


def test_each_line_is_a_question(chat):
    result = CliRunner().invoke(cli, chat, input="Which ship?\n\n  \nAnd when?\n")
    assert (result.exit_code, result.stderr.replace(cut(4), "")) == (0, "")
    first = CliRunner().invoke(cli, ["ask", chat[1], "Which ship?", *chat[2:]])
    assert result.stdout.startswith(first.stdout + "\n")  # a blank line between answers
    assert len(result.stdout) > len(first.stdout) + 1


def test_answers_as_lines_of_json(chat):
    result = CliRunner().invoke(cli, [*chat, "-o", "jsonl"], input="Which ship?\nAnd when?\n/regenerate\n")
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    answers = [line for line in lines if "answer" in line]
    assert [answer.get("question") for answer in answers] == ["Which ship?", "And when?", None]
    assert answers[1]["answer"] == answers[2]["answer"]  # at a temperature of 0
    assert answers[1]["tokens"] == answers[2]["tokens"]
    assert answers[0]["document"] == chat[1]
    assert result.stderr == ""


def test_clear_starts_over(chat):
    result = CliRunner().invoke(cli, chat, input="Which ship?\nWhere?\n/clear\nWhich ship?\nWhere?\n/exit\nWho?\n")
    half = len(result.stdout) // 2
    assert result.exit_code == 0
    assert result.stderr.replace(cut(4), "") == "Cleared. The document stays.\n"
    assert result.stdout[:half] == result.stdout[half + 1 :]


def test_a_trailing_backslash_adds_a_line(chat):
    joined = CliRunner().invoke(cli, chat, input="Which ship?\\\nWhere?\n")
    asked = CliRunner().invoke(cli, ["ask", chat[1], "Which ship?\nWhere?", *chat[2:]])
    assert joined.stdout == asked.stdout


def test_stats(chat):
    result = CliRunner().invoke(cli, chat, input="/stats\nWhich ship?\n/stats\n")
    lines = result.stderr.replace(cut(4), "").splitlines()
    lines = [line for line in lines if not line.startswith("others ")]  # this machine may be busy
    before, after = lines[:4], lines[4:]
    assert [line.split()[0] for line in before] == ["context", "KV", "attention", "threads"]
    assert before[2] == f"attention  auto: {AUTO.resolve_for(0)}"
    assert [line.split()[0] for line in after] == ["context", "KV", "attention", "threads", "answer", "read"]
    assert after[4].startswith("answer     4 tokens, the first after 0.")
    share = float(after[5].split(", ")[1].split("%")[0])
    assert share == pytest.approx(100, abs=1)  # a document this short is attended whole


def test_stats_tell_what_a_quality_covered(chat):
    result = CliRunner().invoke(cli, [*chat, "--attention", "sketch:quality=0.9"], input="Which ship?\n/stats\n")
    [covered] = re.findall(r"^covered +(\d+\.\d)%", result.stderr, re.M)
    assert 90 <= float(covered) <= 100


def test_stats_tell_the_budget_of_a_method(chat):
    result = CliRunner().invoke(cli, [*chat, "--attention", "squeezed"], input="/stats\n")
    assert "attention  squeezed, budget 0.125" in result.stderr.splitlines()


@pytest.mark.parametrize(("n_cores", "advice"), [(2, ""), (8, "; -t 8 takes all")])
def test_stats_tell_what_slows_answers(n_cores, advice, chat, tmp_path, monkeypatch):
    looks = iter([Look(0, 0, 0), Look(2, 5, 2)])  # in 2 seconds all used 5 of cores' seconds, this process 2
    monkeypatch.setattr(processors, "look", lambda: next(looks))
    monkeypatch.setattr(processors, "default_threads", lambda: n_cores)
    queue = ReadingQueue()
    queue.add([tmp_path / "book.txt", tmp_path / "other.txt"], tmp_path, {})
    asked = "Which ship?\n/stats\n"
    with locked(queue.folder):  # as by the process that reads
        busy = CliRunner().invoke(cli, [*chat, "-t", "2"], input=asked).stderr.splitlines()
    assert f"threads    2 on {n_cores} cores{advice}" in busy
    assert "others     other programs used 1.5 cores during the last answer" in busy
    assert [line.split(",")[0] for line in busy if line.startswith("reading ")] == ["reading    book.txt and 1 more"]
    looks = iter([Look(0, 0, 0), Look(2, 2, 2)])
    quiet = CliRunner().invoke(cli, chat, input=asked).stderr
    assert not re.search("^(others|reading) ", quiet, re.M)


def test_bad_input_ends_a_script(chat):
    result = CliRunner().invoke(cli, chat, input=b"\xff\n")
    assert (result.exit_code, result.stderr) == (1, "Error: Standard input is not UTF-8 text: convert it first.\n")
    result = CliRunner().invoke(cli, [*chat, "-c", "900"], input="Why? " * 200 + "\nWhy?\n")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("Error: The question does not fit")


def test_a_saved_conversation_goes_on(chat, tmp_path):
    whole = CliRunner().invoke(cli, chat, input="Which ship?\nWhere?\nAnd when?\n")
    saved = CliRunner().invoke(cli, chat, input="Which ship?\nWhere?\n/save talk\nAnd when?\n")
    assert saved.stdout == whole.stdout
    assert "Saved as talk: `octavo chat --resume talk` resumes it.\n" in saved.stderr
    loaded = CliRunner().invoke(cli, chat, input="Who?\n/load talk\nAnd when?\n/regenerate\n")
    last = whole.stdout.split("\n\n")[-1]
    assert loaded.stdout.endswith(f"\n{last}\n{last}")
    assert "The conversation continues: " in loaded.stderr
    messages = {"/load nothing": "There is no conversation ", "/save": "/save takes one thing: /save NAME."}
    for line, message in messages.items():
        assert message in CliRunner().invoke(cli, chat, input=f"{line}\n").stderr


def test_another_document(chat, tmp_path):
    other = tmp_path / "harbour.txt"
    other.write_text(SENTENCES[::-1] * 5)
    asked = CliRunner().invoke(cli, ["ask", str(other), "Where?", *chat[2:]])
    result = CliRunner().invoke(cli, [*chat, "-o", "jsonl"], input=f"Which ship?\n/document {other}\nWhere?\n")
    answers = [json.loads(line) for line in result.stdout.splitlines() if "answer" in json.loads(line)]
    assert [answer["document"] for answer in answers] == [chat[1], str(other)]
    assert answers[1]["answer"] == asked.stdout.removesuffix("\n")


def test_from_a_folder_to_a_document_and_back(chat, tmp_path):
    folder = tmp_path / "notes"
    folder.mkdir()
    for name in ("harbour", "island"):
        (folder / f"{name}.txt").write_text(f"The {name} is quiet at night. " * 4)
    lines = (
        f"Which ship?\n/document {chat[1]}\nWhere?\n/document\nWhich?\n/document {folder}\n/document {tmp_path}/none\n"
    )
    result = CliRunner().invoke(cli, ["chat", str(folder), *chat[2:], "-o", "jsonl"], input=lines)
    assert result.exit_code == 1  # there is no folder of the last name
    answers = [json.loads(line) for line in result.stdout.splitlines() if "answer" in json.loads(line)]
    folders = [{each["path"] for each in answer.get("documents", ())} for answer in answers]
    both = {str(folder / "harbour.txt"), str(folder / "island.txt")}
    assert folders == [both, set(), both]
    assert answers[1]["document"] == chat[1]
    assert result.stderr.count("2 documents.\n") == 2


def test_without_documents_there_are_none_to_return_to(chat):
    result = CliRunner().invoke(cli, ["chat", *chat[2:]], input="/document\n")
    assert (result.exit_code, "This chat began without a document" in result.stderr) == (0, True)


def test_a_document_that_cannot_be_read_leaves_the_conversation(chat, monkeypatch):
    """A terminal stays; a script ends."""
    from octavo.api import open_document
    from octavo.settings import ModelSettings, Sampling

    whole = CliRunner().invoke(cli, chat, input="Which ship?\nWhere?\n")
    assert CliRunner().invoke(cli, chat, input="/document nothing.txt\n").exit_code == 1
    settings = ModelSettings(chat[3], n_threads=2, index_dir=chat[5])
    with open_document(chat[1], settings, sampling=Sampling(max_tokens=4, temperature=0)) as session:
        before = session.ask("Which ship?").text
        ChatLoop(session, interactive=True).run(iter(["/document nothing.txt"]))
        monkeypatch.setattr("octavo.api.Opening.session", lambda *_: (_ for _ in ()).throw(OctavoError("No disk.")))
        ChatLoop(session, interactive=True).run(iter([f"/document {chat[1]}"]))
        assert whole.stdout == f"{before}\n\n{session.ask('Where?').text}\n"


def test_the_last_conversation_goes_on(chat):
    whole = CliRunner().invoke(cli, chat, input="Which ship?\nWhere?\n")
    terminal = Terminal(chat)
    terminal.wait_for_prompt()
    terminal.type("Which ship?\r")
    terminal.wait_for_prompt()
    terminal.type("/exit\r")
    assert terminal.leave()[0] == 0
    result = CliRunner().invoke(cli, [*chat, "--continue"], input="Where?\n")
    assert whole.stdout.endswith(f"\n{result.stdout}")
    assert result.stderr.startswith("The last conversation continues: ")
    other = CliRunner().invoke(cli, ["chat", "--continue", *chat[2:]], input="And when?\n")  # the last of all
    assert other.exit_code == 0
    assert other.stderr.startswith("The last conversation continues: 2 questions, the last one “Where?”.\n")


def test_sources_in_a_chat(chat):
    result = CliRunner().invoke(cli, [*chat, "--sources", "-o", "jsonl"], input="Which ship?\n/sources\n")
    sources = json.loads(result.stdout.splitlines()[-1])["sources"]
    assert len(re.findall(r"^\d\. line \d+ \(\d+% of the attention\)$", result.stderr, re.MULTILINE)) == len(sources)
    assert ("No passage stands out" in result.stderr) == (not sources)
    without = CliRunner().invoke(cli, chat, input="/sources\n")
    assert without.stderr == "Sources are not recorded: open the document with sources=True.\n"
    assert "There is no document" in CliRunner().invoke(cli, ["chat", *chat[2:]], input="/sources\n").stderr
    refused = CliRunner().invoke(cli, ["chat", "--sources", *chat[2:]])
    assert (refused.exit_code, "give one" in refused.stderr) == (2, True)


# Commands and interruptions, on a scripted session


@dataclass
class ScriptedSession:
    """Answers "yes" to all but the questions that have another answer or an exception."""

    answers: dict[str, list] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    kept: list[tuple] = field(default_factory=list)
    answer = SimpleNamespace(finish_reason="stop", notices={})
    found = ()
    llama = SimpleNamespace(model_path="")
    n_tokens: int = 0
    n_document: int = 0

    def stream_parts(self, question, marks=False):
        self.asked.append(question)
        for part in self.answers.get(question, ["yes"]):
            if isinstance(part, BaseException):
                raise part
            yield Part(part)

    def keep(self, name, with_rows):
        self.kept.append((name, with_rows, len(self.asked)))
        return "island"


def test_each_answer_is_kept_at_once_by_its_texts():
    session = ScriptedSession()
    ChatLoop(session, interactive=True).run(iter(["first", "second"]))
    assert session.kept == [(None, False, 1), ("island", False, 2)]
    session = ScriptedSession()
    ChatLoop(session, interactive=False).run(iter(["first", "second"]))  # a script keeps nothing
    assert session.kept == []


def test_a_chat_that_gets_a_name_is_kept_once(tmp_path):
    session, kept = ScriptedSession(), tmp_path / "island.safetensors"
    kept.touch()
    session.save = lambda name: tmp_path / f"{name}.safetensors"
    ChatLoop(session, interactive=True).run(iter(["first", "/save talk", "second"]))
    assert not kept.exists()
    assert session.kept[0] == (None, False, 1)
    assert session.kept[1][0] == "talk"


def test_a_conversation_that_is_loaded_is_kept_under_its_name_and_the_one_before_it_under_its_own():
    session = ScriptedSession()
    session.load = lambda name: True
    ChatLoop(session, interactive=True).run(iter(["first", "/load talk", "second", "/load a/path.chat", "third"]))
    names = [(name, with_rows) for name, with_rows, _ in session.kept]
    assert names == [(None, False), ("island", True), ("talk", False), ("island", True), (None, False)]
    session = ScriptedSession()
    session.load = lambda name: True
    ChatLoop(session, interactive=False).run(iter(["first", "/load talk", "second"]))
    assert session.kept == []


def test_ctrl_c_stops_an_answer_and_returns_to_the_prompt(capsys):
    session = ScriptedSession({"first": ["It was the ", KeyboardInterrupt()]})
    ChatLoop(session, interactive=True).run(iter(["first", "second"]))
    assert session.asked == ["first", "second"]
    assert capsys.readouterr() == ("It was the \nyes\n", "(stopped)\n")


def test_ctrl_c_ends_a_script():
    session = ScriptedSession({"first": ["It was the ", KeyboardInterrupt()]})
    with pytest.raises(KeyboardInterrupt):
        ChatLoop(session, interactive=False).run(iter(["first", "second"]))
    assert session.asked == ["first"]


def test_a_refused_question_returns_to_the_prompt(capsys):
    session = ScriptedSession({"long": [OctavoError("The question does not fit.")]})
    ChatLoop(session, interactive=True).run(iter(["long", "short"]))
    assert capsys.readouterr() == ("yes\n", "Error: The question does not fit.\n")


@pytest.mark.parametrize("command", ["/exit", "/quit", "/bye"])
def test_a_chat_is_left_as_in_other_programs(command):
    session = ScriptedSession()
    ChatLoop(session, interactive=True).run(iter(["first", command, "never"]))
    assert session.asked == ["first"]


def test_commands(capsys):
    session = ScriptedSession()
    ChatLoop(session, interactive=True).run(iter(["/help", "/foo bar", " /exit ", "never"]))
    lines = capsys.readouterr().err.splitlines()
    names = [
        "/help",
        "/regenerate",
        "/sources",
        "/clear",
        "/document",
        "/stats",
        "/exit",
        "/save",
        "/load",
        "/document",
    ]
    names.append("/think")
    assert [line.split()[0] for line in lines[:11]] == names
    assert lines[-1] == "There is no command /foo: /help lists them."
    assert session.asked == []


# In a terminal


class Terminal:
    """`octavo chat` that somebody types at; what it prints on stdout and on the terminal."""

    def __init__(self, arguments: list[str]) -> None:
        self.master, slave = pty.openpty()
        command = [sys.executable, "-c", "from octavo.cli.main import main; main()", *arguments]
        environment = {**os.environ, "PROMPT_TOOLKIT_NO_CPR": "1", "TERM": "xterm"}
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=subprocess.PIPE, stderr=slave, env=environment, start_new_session=True
        )
        os.close(slave)
        self.screen = b""
        os.set_blocking(self.master, False)

    def wait_for(self, text: str) -> None:
        """Until the terminal has shown a text since this was last called."""
        deadline = time.monotonic() + 60
        while text.encode() not in self.screen:
            assert time.monotonic() < deadline, self.screen.decode()
            try:
                self.screen += os.read(self.master, 4096)
            except BlockingIOError:
                time.sleep(0.02)
        self.screen = self.screen.split(text.encode(), 1)[1]

    def wait_for_prompt(self) -> None:
        """Until a new prompt takes keys."""
        self.wait_for("\x1b[?2004h")  # brackets pastes from here on
        self.wait_for(">")

    def type(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def leave(self) -> tuple[int, str]:
        """Exit code and output of the process, which is about to end."""
        output, _ = self.process.communicate(timeout=60)
        os.close(self.master)
        return self.process.returncode, output.decode()


def test_lines_are_edited_in_a_terminal(chat):
    terminal = Terminal(chat)
    terminal.wait_for("/help lists what you can do here.")
    terminal.wait_for_prompt()
    terminal.type("Which ship?\x1b\rWhere?\r")  # Alt-Enter between
    terminal.wait_for_prompt()
    terminal.type("/nonsense\r")
    terminal.wait_for("There is no command /nonsense")
    terminal.wait_for_prompt()
    terminal.type("rubbish\x03/exit\r")  # Ctrl-C clears the line
    code, output = terminal.leave()
    asked = CliRunner().invoke(cli, ["ask", chat[1], "Which ship?\nWhere?", *chat[2:]])
    assert (code, output) == (0, asked.stdout)


def test_ctrl_d_leaves(chat):
    terminal = Terminal(chat)
    terminal.wait_for_prompt()
    terminal.type("\x04")
    assert terminal.leave() == (0, "")


def test_ctrl_c_leaves_when_it_comes_twice(chat):
    terminal = Terminal(chat)
    terminal.wait_for_prompt()
    for _ in range(2):
        terminal.type("\x03")
        terminal.wait_for("Ctrl-C once more leaves.")
        terminal.wait_for_prompt()
        terminal.type("/nonsense\r")
        terminal.wait_for("There is no command /nonsense")
        terminal.wait_for_prompt()
    terminal.type("\x03")
    terminal.wait_for("Ctrl-C once more leaves.")
    terminal.wait_for_prompt()
    terminal.type("\x03")
    assert terminal.leave() == (130, "")


def test_ctrl_c_while_a_long_question_is_read(chat):
    """The question is dropped, and the chat goes on."""
    terminal = Terminal([*chat, "-c", "300000"])
    terminal.wait_for_prompt()
    for _ in range(40):
        terminal.type(f"\x1b[200~{SENTENCES * 20}\x1b[201~")  # a bracketed paste
        time.sleep(0.05)
    terminal.type(" end of paste")
    terminal.wait_for("end of paste")
    terminal.type("\r")
    time.sleep(1.5)
    terminal.process.send_signal(signal.SIGINT)
    terminal.wait_for("(stopped)")
    terminal.wait_for_prompt()
    terminal.type("Which ship?\r")
    terminal.wait_for_prompt()
    terminal.type("\x04")
    code, output = terminal.leave()
    first = CliRunner().invoke(cli, ["ask", chat[1], "Which ship?", *chat[2:]])
    assert (code, output) == (0, first.stdout)


@pytest.mark.parametrize("form", ["text", "jsonl"])
def test_a_document_that_changes_or_goes_during_a_chat_is_named(document, on_tiny, monkeypatch, form):
    def lines():
        yield "Why?"
        document.write_text("Another text.")
        yield "Why?"
        document.unlink()
        yield "Why?"

    monkeypatch.setattr("octavo.cli.input_lines.piped_lines", lines)
    result = octavo("chat", document, *on_tiny, *SHORT_ANSWER, "-o", form)
    changed = "island.txt has changed since it was read: the answer comes from the text before."
    gone = "island.txt is gone, or cannot be reached: the answer comes from the text that was read."
    if form == "text":
        assert (result.stderr.count(changed), result.stderr.count(gone)) == (1, 1)
    else:
        ends = [line for line in map(json.loads, result.stdout.splitlines()) if "notices" in line]
        has = [tuple(any(sentence in each for each in end["notices"]) for sentence in (changed, gone)) for end in ends]
        assert has == [(False, False), (True, False), (False, True)]
