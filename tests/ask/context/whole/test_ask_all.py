"""A question about a whole goes to all parts or documents, and nothing that they answered is lost."""

import re

import pytest

import octavo
from octavo.ask.context import context_chooser
from octavo.ask.context.whole import ask_all
from octavo.ask.context.whole.drawn_together import drawn_together
from octavo.ask.context.whole.finding import FOUND
from octavo.cli.answers import show_sources

LIST = "List every ship and its captain."
SUMMARY = "Summarise the notes."
CAPTAINS = {"Petrel": "Ruth Ollery", "Heron": "Amos Carrow", "Tern": "Edith Garrick"}

#: The model has a token for each letter, and words are found by tokens: so this has none of those in question.
FILLER = "1 2 3 4 5 6 7 8 9 0.\n\n" * 3


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    for number, (ship, captain) in enumerate(CAPTAINS.items()):
        fact = f"The captain of the ship {ship} was {captain}.\n\n"
        (folder / f"note-{number}.txt").write_text(FILLER * 6 + fact + FILLER * 6)
    (folder / "other.txt").write_text(FILLER * 8)
    return folder


class Notices(octavo.Progress):
    def __init__(self):
        self.sentences = []

    def notice(self, sentence):
        self.sentences.append(sentence)


@pytest.fixture
def opened(folder, tiny_model, tmp_path):
    """opened(whole): a session over the folder, with its notices."""
    sessions = []

    def open_it(whole="auto", **settings):
        notices = Notices()
        settings = {"reading": octavo.ReadSettings(whole=whole, **settings)}
        model = octavo.ModelSettings(tiny_model, n_threads=2, n_ctx=4096, index_dir=tmp_path)
        sampling = octavo.Sampling(max_tokens=8)
        sessions.append(
            octavo.open_documents([folder], model, sampling=sampling, sources=True, progress=notices, **settings)
        )
        return sessions[-1], notices.sentences

    yield open_it
    for session in sessions:
        session.close()


@pytest.fixture
def steps(monkeypatch):
    """What happens in each group of answers: groups of two, and after how many of them an error comes."""
    stops = {"groups": 0, "after": None, "error": KeyboardInterrupt}

    def drawn(*arguments):
        if stops["groups"] == stops["after"]:
            raise stops["error"]
        stops["groups"] += 1
        return (yield from drawn_together(*arguments))

    monkeypatch.setattr(ask_all, "drawn_together", drawn)
    monkeypatch.setattr("octavo.runtime.context.Context.most_together", 2)
    return stops


def test_a_list_has_each_item_once_with_its_sentence(opened):
    session, notices = opened()
    answer = session.ask(LIST)
    assert answer.read.kind == "findings"
    first, *rows = answer.text.split("\n\n")[0], *answer.text.split("\n")[2:]
    assert first == "3 found:"
    for row, (number, (ship, captain)) in zip(rows, enumerate(CAPTAINS.items()), strict=True):
        assert f"“The captain of the ship {ship} was {captain}.” (note-{number}.txt, line 37)" in row
    assert [passage.quote for passage in session.sources()] == [
        f"The captain of the ship {ship} was {captain}." for ship, captain in CAPTAINS.items()
    ]
    assert any("Ctrl-C answers from those that are done" in sentence for sentence in notices)
    assert {finding.document.name for finding in session.findings} == {f"note-{number}.txt" for number in range(3)}


def test_a_list_can_be_followed_by_questions_and_answered_again(opened):
    session, _ = opened()
    listed = session.ask(LIST).text
    assert "".join(session.regenerate()) == listed
    own = session.llama.prompt().document(listed)
    session.ask("And where do they go?")
    tokens = session.llama.input_ids[session.n_document : session.n_tokens].tolist()
    assert any(tokens[start : start + len(own)] == own for start in range(len(tokens)))


def test_documents_that_mention_something_are_counted(opened):
    session, _ = opened()
    answer = session.ask("Which documents mention the ship Heron?").text
    assert answer.startswith("1 of 4 documents found:\n\n1. note-1.txt: “")


def test_files_of_one_name_are_counted_and_named_apart(opened, folder, capsys):
    for year, captain in (("2023", "Ruth Ollery"), ("2024", "Edith Garrick")):
        (folder / year).mkdir()
        fact = f"The captain of the ship Heron was {captain}.\n\n"
        (folder / year / "log.txt").write_text(FILLER * 6 + fact + FILLER * 6)
    session, _ = opened()
    answer = session.ask("Which documents mention the ship Heron?").text
    first = "The captain of the ship Heron was Ruth Ollery."
    assert answer.startswith(f"3 of 6 documents found:\n\n1. 2023/log.txt: “{first}” (2023/log.txt, line 37)")
    assert "\n2. 2024/log.txt: “" in answer
    show_sources(session, err=False)
    assert "1. 2023/log.txt, line 37" in capsys.readouterr().out


def test_a_summary_is_made_of_the_answers_of_all_documents(opened):
    session, notices = opened()
    answer = session.ask(SUMMARY)
    assert (answer.read.kind, answer.read.share) == ("findings", 1.0)
    assert len(session.findings) == len(session.read_from) == 4
    read = b"".join(map(session.llama.piece, session.llama.input_ids[: session.n_document].tolist())).decode()
    for finding in session.findings:
        assert f"[{finding.document.name}]\n{finding.answer}" in read
    assert any(sentence.startswith("4 documents: up to") for sentence in notices)
    assert session.sources() is not None


def test_many_answers_are_summed_up_in_levels(opened, monkeypatch):
    session, _ = opened()
    session.ask(SUMMARY)
    lengths = [len(ask_all.shown_tokens(session.llama, finding)) for finding in session.findings]
    monkeypatch.setattr(ask_all, "PASSAGE_TOKENS", max(a + b for a, b in zip(lengths[::2], lengths[1::2], strict=True)))
    session.clear()
    session.ask(SUMMARY)
    assert len(session._context.shown) < 4
    assert len(session.findings) == 4


def test_each_chapter_answers_below_its_heading(opened, folder):
    """Also where a part of a long document ends within it; a document without headings answers whole."""
    chapters = [f"# Chapter {number}\n\n{FILLER * 5}Here the {ship} sails.\n\n" for number, ship in enumerate(CAPTAINS)]
    (folder / "novel.md").write_text("".join(["Of ships.\n\n", *chapters, *(FILLER * 9,) * 9]))
    session, notices = opened()
    answer = session.ask("Summarise each chapter.").text
    headings = [line.removeprefix("## ") for line in answer.split("\n") if line.startswith("## ")]
    found = session.findings
    assert [each.heading for each in found if each.document.name.startswith("novel.md, part ")][:3] == [
        f"Chapter {number}" for number in range(3)
    ]
    assert [heading for heading in headings if "novel" in heading] == [f"novel.md, Chapter {n}" for n in range(3)]
    assert [heading for heading in headings if "novel" not in heading] == [
        each.document.name for each in found if not each.heading
    ]
    assert all(finding.answer in answer for finding in found)
    assert any(re.match(r"\d+ chapters of \d+ documents: up to", sentence) for sentence in notices)
    for passage in session.sources():
        [(start, stop)] = passage.marks
        assert answer[start:stop] in [finding.answer for finding in found]


@pytest.mark.parametrize("question", [LIST, SUMMARY])
def test_ctrl_c_answers_from_those_that_are_done_and_asking_again_continues(opened, steps, question):
    steps["after"] = 1
    session, notices = opened()
    answer = session.ask(question)
    assert answer.read.kind == "findings"
    assert 0 < answer.read.share < 1
    assert any(sentence.startswith("Stopped: the answer comes from 2 of") for sentence in notices)
    session.close()
    steps |= {"groups": 0, "after": None}
    session, notices = opened()
    again = session.ask(question)
    assert again.read.share == 1.0
    assert any(" answers are known from before." in sentence for sentence in notices)
    assert steps["groups"] == 1  # of two
    session.clear()
    assert session.ask(question).text == again.text
    assert steps["groups"] == 1


def test_answers_that_one_context_does_not_hold_are_counted(opened, steps, monkeypatch):
    steps["after"] = 1
    monkeypatch.setattr(ask_all, "PASSAGE_TOKENS", 1)
    session, notices = opened()
    session.ask(SUMMARY)
    assert len(session._context.shown) == 1
    assert any(sentence.startswith("One context holds 1 of these 2 answers") for sentence in notices)


def test_ctrl_c_before_the_first_answer_ends_the_question(opened, steps):
    steps["after"] = 0
    session, _ = opened()
    with pytest.raises(KeyboardInterrupt):
        session.ask(LIST)
    assert not session.has_turns


def test_a_crash_loses_no_answer(opened, steps):
    steps |= {"after": 1, "error": RuntimeError}
    session, _ = opened()
    with pytest.raises(RuntimeError):
        session.ask(LIST)
    session.close()
    steps |= {"groups": 0, "after": None}
    session, _ = opened()
    assert session.ask(LIST).text.startswith("3 found:")
    assert steps["groups"] == 1


def test_damaged_answers_are_found_again(opened, tmp_path):
    session, _ = opened()
    listed = session.ask(LIST).text
    kept = list(tmp_path.rglob(FOUND))
    assert kept
    for path in kept:
        path.write_bytes(b"{" + path.read_bytes())
    session.clear()
    assert session.ask(LIST).text == listed


@pytest.mark.parametrize(
    ("whole", "question", "kind"),
    [
        ("auto", "Who was the captain of the ship Tern?", "excerpts"),
        ("on", "Who was the captain of the ship Tern?", "findings"),
        ("off", LIST, "document"),
        ("auto", "List every comet and its astronomer.", "document"),  # nothing is found
    ],
)
def test_all_are_asked_if_the_question_is_about_them(opened, whole, question, kind):
    session, _ = opened(whole)
    assert session.ask(question).read.kind == kind


def test_auto_leaves_what_takes_too_long_to_the_user(opened, monkeypatch):
    monkeypatch.setattr(context_chooser, "_MOST_SECONDS", 0.0)
    session, notices = opened()
    assert session.ask(SUMMARY).read.kind == "document"
    assert any(sentence.endswith("so none is asked unless `whole` is on.") for sentence in notices)


def test_documents_that_are_not_read_answer_from_passages(opened, folder):
    session, _ = opened()
    session.close()
    (folder / "new.txt").write_text(FILLER * 3 + "The captain of the ship Dunlin was Noah Bell.\n\n" + FILLER * 300)
    session, notices = opened(first_answer=0.0, background=False)
    answer = session.ask(LIST)
    assert answer.text.startswith("4 found:")
    assert "The captain of the ship Dunlin was Noah Bell." in answer.text
    assert "Not read yet, so answered from passages: new.txt." in notices
    assert [finding.document.name for finding in session.findings if not finding.is_read] == ["new.txt"]


def test_all_are_asked_on_off_or_by_the_question():
    with pytest.raises(octavo.OctavoError, match="auto, on or off: not 'always'"):
        octavo.ReadSettings(whole="always")
