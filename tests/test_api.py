"""`octavo.open_document` and the rest of the Python API, as a user calls them, on a tiny model."""

import ast
import dataclasses
import inspect
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.index_builds import Recorded, said
from helpers.product import ROOT

import octavo
from octavo.ask.sources.find_sources import passages
from octavo.cli.ask import ask
from octavo.cli.chat import chat
from octavo.cli.index import index
from octavo.cli.option_names import OPTIONS
from octavo.documents.document import READS
from octavo.errors import naming
from octavo.library.batch.index_result import NotIndexed

SENTENCES = "The keeper of the island lighthouse wrote down each ship that passed. One was called Petrel.\n"
SHORT = octavo.Sampling(max_tokens=5, temperature=0)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "island.txt"
    path.write_text(SENTENCES * 6)
    return path


@pytest.fixture
def how(tiny_model, tmp_path):
    """Arguments of `open_document`, for a model without indexes."""
    return {"model": octavo.ModelSettings(tiny_model, n_threads=2, index_dir=tmp_path / "indexes"), "sampling": SHORT}


def changed(how, **changes):
    """Arguments of `open_document` with other model settings."""
    return {**how, "model": replace(how["model"], **changes)}


@pytest.fixture(scope="module")
def document(tiny_model, tmp_path_factory):
    """A document that several tests ask; each clears it."""
    folder = tmp_path_factory.mktemp("api")
    (folder / "island.txt").write_text(SENTENCES * 6)
    settings = octavo.ModelSettings(tiny_model, n_threads=2, index_dir=folder)
    with octavo.open_document(folder / "island.txt", settings, sampling=SHORT) as document:
        yield document


@pytest.fixture
def cleared(document):
    document.clear()
    return document


def test_a_document_is_indexed_once_and_progress_and_notices_are_told(path, how):
    progress = Recorded()
    with octavo.open_document(str(path), progress=progress, **how) as document:
        first = document.ask("Which ship?")
        assert document.path == path
    tasks = [report[:3] for report in progress.reports if isinstance(report, tuple)]
    assert [task[0] for task in tasks] == ["Reading island.txt"]
    assert sum(report for report in progress.reports if isinstance(report, int)) == sum(task[1] for task in tasks)
    assert said(progress.notices) == ["Indexing island.txt, once."]
    progress = Recorded()
    with octavo.open_document(path, progress=progress, **how) as document:
        assert document.ask("Which ship?").text == first.text
    assert (progress.reports, progress.notices) == ([], [])


def test_it_says_nothing_unless_asked_to(path, how, capfd):
    with octavo.open_document(path, **how) as document:
        document.ask("Which ship?")
    assert capfd.readouterr() == ("", "")


def test_ask_and_stream_give_the_same_answer(cleared):
    answer = cleared.ask("Which ship?")
    assert isinstance(answer, octavo.Answer)
    assert isinstance(answer.timing, octavo.Timing)
    assert answer == cleared.answer
    assert answer.finish_reason in ("stop", "length")
    assert 0 < answer.kv_share <= 1.001
    cleared.clear()
    assert "".join(cleared.stream("Which ship?")) == answer.text == cleared.answer.text


def test_questions_are_remembered_until_they_are_cleared(cleared):
    assert cleared.n_tokens == cleared.n_document > 500
    assert cleared.n_ctx == 4096
    first = cleared.ask("Which ship?").text
    after_one = cleared.n_tokens
    cleared.ask("And why?")
    assert cleared.n_tokens > after_one > cleared.n_document
    cleared.clear()
    assert cleared.n_tokens == cleared.n_document
    assert cleared.ask("Which ship?").text == first


def test_an_answer_ends_where_the_settings_say(path, how, monkeypatch):
    monkeypatch.setattr(octavo.Llama, "ends", lambda self, token: False)
    with octavo.open_document(path, **how) as document:
        assert document.ask("Why?").finish_reason == "length"
        n_ctx = document.n_document + 100
    long = changed(how, n_ctx=n_ctx) | {"sampling": replace(SHORT, max_tokens=None)}
    with octavo.open_document(path, **long) as document:
        assert document.ask("Why?").finish_reason == "context"
        assert document.n_tokens == n_ctx - 1  # the last token of the answer is not read
    monkeypatch.setattr(octavo.Llama, "ends", lambda self, token: True)
    with octavo.open_document(path, **how) as document:
        answer = document.ask("Why?")
        assert (answer.finish_reason, answer.text) == ("stop", "")


def test_a_context_manager_closes_the_model(path, how):
    with octavo.open_document(path, **how) as document:
        pass
    with pytest.raises(octavo.OctavoError, match="is closed: open it again"):
        document.ask("Why?")
    document.close()  # once more does no harm


def test_settings_reach_the_model(path, how, tiny_model, tmp_path):
    quest = octavo.Attention.parse("quest", budget=0.3)
    with octavo.open_document(path, attention=quest, **changed(how, cache_type="q8_0")) as document:
        assert (str(document.llama.attention), document.llama.attention.budget) == ("quest", 0.3)
        assert document.llama.context.kv_type == "q8_0"
    with octavo.open_document(path, **changed(how, rope_scaling="linear", rope_scale=2.0)) as document:
        assert document.n_ctx == 8192


def test_a_quality_works_as_on_the_command_line(path, how):
    with octavo.open_document(path, attention=octavo.Attention.parse("auto", quality=0.9), **how) as document:
        assert str(document.llama.attention) == "auto:quality=0.9"
        assert document.llama.attention.auto.quality == 0.9


def test_a_seed_repeats_answers(path, how):
    texts = set()
    for _ in range(2):
        with octavo.open_document(path, **how | {"sampling": replace(SHORT, temperature=1.5, seed=3)}) as document:
            texts.add(document.ask("Why?").text)
    assert len(texts) == 1


def test_a_session_needs_no_document(tiny_model, tmp_path):
    settings = octavo.ModelSettings(tiny_model, n_threads=2, index_dir=tmp_path)
    with octavo.open_session(settings, sampling=SHORT) as session:
        assert session.n_document == session.n_tokens == 0
        first = session.ask("Why?")
        session.clear()
        assert session.ask("Why?").text == first.text
    assert not list(tmp_path.iterdir())


def test_several_documents_are_indexed_by_one_model(path, how, tmp_path):
    other, progress = tmp_path / "other.txt", Recorded()
    other.write_text("x" * 300)
    folders = octavo.index_documents([path, other], how["model"], progress=progress)
    assert all((folder / "manifest.json").exists() for folder in folders)
    assert said(progress.notices) == [
        "Indexing island.txt, once.",
        f"The index of island.txt is {folders[0]}",
        "Indexing other.txt, once.",
        f"The index of other.txt is {folders[1]}",
    ]
    assert octavo.index_documents([path, other], how["model"]) == folders


# What cannot be opened.


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"attention": "magic"}, "There is no attention named 'magic'"),
        ({"attention": "llama.cpp"}, "attention='llama.cpp' reads no index"),
        ({"attention": "duo"}, "`octavo profile` measures the model"),
        (
            {"attention": octavo.Attention.parse("duo", plan="no-such-plan.json")},
            r"There is no plan no-such-plan\.json",
        ),
        ({"model": octavo.ModelSettings("no-such-model.gguf")}, r"The model no-such-model\.gguf cannot be opened"),
        ({"model": "no-such-model.gguf"}, r"The model no-such-model\.gguf cannot be opened"),
    ],
    ids=str,
)
def test_wrong_settings_are_told(path, how, wrong, message):
    with pytest.raises(octavo.OctavoError, match=message):
        octavo.open_document(path, **how | wrong)


@pytest.mark.parametrize(
    ("make", "wrong", "message"),
    [
        (octavo.ModelSettings, {"cache_type": "q4_1"}, "Keys and values are stored as f16, q8_0, q4_0: not as 'q4_1'"),
        (octavo.ModelSettings, {"device": "tpu"}, "There is no device named 'tpu'"),
        (octavo.ModelSettings, {"rope_scaling": "magic", "rope_scale": 2.0}, "Positions are stretched as linear or"),
        (octavo.ModelSettings, {"rope_scale": 2.0}, "Positions are stretched as linear or yarn"),
        (octavo.ReadSettings, {"prefill": "auto"}, "Documents are read dense or sparse: not 'auto'"),
        (octavo.Attention.parse, {"text": "auto", "budget": 0}, "A budget is a share"),
        (octavo.Sampling, {"temperature": -1}, "A temperature is 0 or more"),
        (octavo.ModelSettings, {"n_ctx": -1}, "`n_ctx` is a whole number from 0 to 16,777,216: not -1."),
        (octavo.ModelSettings, {"n_ctx": 1 << 40}, "`n_ctx` is a whole number from 0 to"),
        (octavo.ModelSettings, {"n_ctx": None}, "`n_ctx` is a whole number from 0 to"),
        (octavo.ModelSettings, {"n_threads": 0}, "`n_threads` is a whole number from 1 to 512: not 0."),
        (octavo.ModelSettings, {"n_threads": 1.5}, "`n_threads` is a whole number"),
        (octavo.ModelSettings, {"rope_scaling": "yarn", "rope_scale": "2"}, "`rope_scale` is a number: not '2'."),
        (octavo.ReadSettings, {"state_every": "never"}, "`state_every` is a whole number: not 'never'."),
        (octavo.ReadSettings, {"first_answer": "60s"}, "`first_answer` is a number: not '60s'."),
        (octavo.ReadSettings, {"n_jobs": None}, "`n_jobs` is a whole number: not None."),
        (octavo.Sampling, {"temperature": "0"}, "`temperature` is a number: not '0'."),
        (octavo.Sampling, {"temperature": float("nan")}, "A temperature is 0 or more, and finite: nan is not"),
        (octavo.Sampling, {"top_p": None}, "`top_p` is a number: not None."),
        (octavo.Sampling, {"top_k": 0.5}, "`top_k` is a whole number: not 0.5."),
        (octavo.Sampling, {"max_tokens": 1.5}, "`max_tokens` is a whole number: not 1.5."),
        (octavo.Sampling, {"max_tokens": True}, "`max_tokens` is a whole number: not True."),
        (octavo.Sampling, {"seed": "one"}, "`seed` is a whole number: not 'one'."),
        (octavo.Sampling, {"think_budget": -1}, "A thought has 0 tokens or more"),
        (octavo.Attention.parse, {"text": "dense", "budget": "half"}, "`budget` is a number: not 'half'."),
        (octavo.Attention.parse, {"text": "auto", "quality": "good"}, "`quality` is a number: not 'good'."),
        (octavo.Attention.parse, {"text": "auto", "retrieval_heads": "all"}, "`retrieval_heads` is a number"),
        (octavo.Llama, {"model_path": "a.gguf", "n_ctx": -1}, "`n_ctx` is a whole number from 0 to"),
        (octavo.Llama, {"model_path": "a.gguf", "n_batch": 0}, "`n_batch` is a whole number from 1 to"),
        (octavo.Llama, {"model_path": "a.gguf", "n_threads": -2}, "`n_threads` is a whole number from 0 to 512"),
        (
            octavo.Llama,
            {"model_path": "a.gguf", "n_parallel": 0},
            "`n_parallel` is a whole number of 1 or more",
        ),
        (octavo.Llama, {"model_path": "a.gguf", "attention": "auto", "budget": -1}, "A budget is a share"),
        (octavo.index_documents, {"paths": ["a.txt"], "n_jobs": 0}, "`n_jobs` is a whole number of 1 or more: not 0."),
    ],
    ids=lambda value: getattr(value, "__qualname__", str(value)),
)
def test_settings_are_checked_where_they_are_made(make, wrong, message):
    with pytest.raises(octavo.OctavoError, match=re.escape(message)):
        make(**wrong)


def test_numbers_of_numpy_are_numbers(tiny_model):
    settings = octavo.ModelSettings(tiny_model, n_ctx=np.int64(256), n_threads=np.int32(1))
    assert octavo.Sampling(temperature=np.float32(0), top_k=np.int64(3)).top_k == 3
    with octavo.open_session(settings) as session:
        assert session.n_ctx == 256


def test_a_number_of_sources_is_at_least_one():
    with pytest.raises(octavo.OctavoError, match=re.escape("`most` is a whole number of 1 or more: not -1.")):
        passages(None, np.zeros((1, 1)), -1)


@pytest.mark.parametrize(
    ("sentence", "named"),
    [
        ("give a larger one (`n_ctx`).", "give a larger one (-c)."),
        ('use `device="cpu"`, or `cache_type="q8_0"`.', "use --device cpu, or --cache-type q8_0."),
        ("`octavo profile` measures; `unknown` stays.", "`octavo profile` measures; `unknown` stays."),
    ],
)
def test_errors_name_arguments_here_and_options_on_the_command_line(sentence, named):
    problem = octavo.OctavoError(sentence)
    assert str(problem) == sentence
    with naming(OPTIONS):
        assert str(problem) == named
    assert str(problem) == sentence


def test_names_of_options_are_those_of_the_settings_and_of_the_commands():
    values = (octavo.ModelSettings, octavo.ReadSettings, octavo.Sampling)
    fields = {field.name for value in values for field in dataclasses.fields(value)}
    arguments = {*inspect.signature(octavo.Attention.parse).parameters, "attention"}
    assert set(OPTIONS) <= fields | arguments
    known = {name for command in (chat, index, ask) for option in command.params for name in option.opts}
    assert set(OPTIONS.values()) <= known


@pytest.mark.parametrize("folder", ["api.py", "ask", "convert", "documents", "library", "metal", "runtime"])
def test_errors_of_the_library_name_no_options(folder):
    place = ROOT / folder
    found = []
    for path in [place] if place.is_file() else place.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Raise) or (isinstance(node, ast.Call) and "notice" in ast.unparse(node.func)):
                found += [f"{path}: {word}" for word in re.findall(r"(?<![\w-])--?[a-z][a-z-]*\b", ast.unparse(node))]
    # Commands that measure, which Python cannot call.
    assert {each.rpartition(": ")[2] for each in found} <= {"--heads", "--tokens", "--sinks", "--recent"}


def test_a_password_is_not_shown():
    assert "secret" not in repr(octavo.ReadSettings(password="secret"))


def test_a_document_that_does_not_fit_is_told(path, how):
    with pytest.raises(octavo.OctavoError, match="but this context holds 64"):
        octavo.open_document(path, **changed(how, n_ctx=64))


def test_wrong_files_are_told(path, how, tmp_path):
    with pytest.raises(octavo.OctavoError, match=r"The document .*nothing\.txt cannot be opened"):
        octavo.open_document(tmp_path / "nothing.txt", **how)
    with pytest.raises(octavo.OctavoError, match="is not a GGUF model"):
        octavo.open_document(path, **changed(how, model=path))
    (tmp_path / "binary.txt").write_bytes(b"\xfa\x81\0\x9c")
    with pytest.raises(octavo.OctavoError, match=r"^binary\.txt is not text: octavo reads"):
        octavo.index_documents([tmp_path / "binary.txt"], how["model"])
    assert not how["model"].index_dir.exists()  # refused before the model is loaded


def test_documents_that_fail_do_not_stop_the_others(path, how, tmp_path):
    (tmp_path / "binary.txt").write_bytes(b"\xfa\x81\0\x9c")
    named = [tmp_path / "binary.txt", path, tmp_path / "missing.txt"]
    with pytest.raises(NotIndexed) as raised:
        octavo.index_documents(named, how["model"])
    assert str(raised.value).splitlines() == [
        "2 of 3 documents could not be indexed, the others are:",
        f"- binary.txt is not text: {READS}",
        f"- The document {tmp_path}/missing.txt cannot be opened: No such file or directory.",
    ]
    assert [outcome.name for outcome in raised.value.outcomes] == ["binary.txt", "island.txt", "missing.txt"]
    [folder] = [folder for outcome in raised.value.outcomes for folder in outcome.folders]
    assert octavo.index_documents([path], how["model"]) == [folder]


def test_an_empty_question_is_told(cleared):
    with pytest.raises(octavo.OctavoError, match="The question is empty"):
        cleared.ask(" ")


@pytest.mark.parametrize("kind", [str, Path])
@pytest.mark.parametrize("many", ["", "*.txt", "island.txt"])
def test_one_path_stands_where_a_list_of_paths_does(many, kind, path, how):
    named = kind(path.parent / many)
    assert octavo.index_documents(named, how["model"]) == octavo.index_documents([path], how["model"])
    with octavo.open_documents(named, **how) as documents:
        assert documents.documents == [path]
        assert documents.about == (str(named),)


# The package.


@pytest.mark.parametrize("name", ["index_documents", "open_document", "open_documents", "open_next", "open_session"])
def test_no_function_has_more_than_eight_parameters(name):
    assert len(inspect.signature(getattr(octavo, name)).parameters) <= 8


def test_every_public_name_is_there_and_documented():
    for name in octavo.__all__:
        assert getattr(octavo, name)
        assert name.startswith("__") or getattr(octavo, name).__doc__
    with pytest.raises(AttributeError):
        _ = octavo.no_such_name


def test_dir_and_help_show_every_public_name():
    assert set(octavo.__all__) <= set(dir(octavo))
    run = subprocess.run(
        [sys.executable, "-c", "import octavo; help(octavo)"], capture_output=True, text=True, check=True
    )
    for name in set(octavo.__all__) - {"__version__"}:
        assert re.search(rf"^    (class )?{name}\b", run.stdout, re.MULTILINE), name


def test_importing_octavo_alone_is_cheap():
    code = "import octavo, sys; print([name for name in ('numba', 'llama_cpp', 'numpy') if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"
