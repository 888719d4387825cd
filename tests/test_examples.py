"""The examples run: the two scripts as programs, the notebook's cells in order."""

import json
import os
import runpy
import subprocess
import sys

import pytest
from helpers import talking_model
from helpers.pdf_files import PdfWriter
from helpers.product import ROOT

import octavo

EXAMPLES = ROOT / "examples"
ISLAND = "The keeper of the island lighthouse wrote down each ship that passed. One was called Petrel. "
QUESTION = "Which ship passed?"


def run(script, *arguments, given=""):
    """Run a script as a user does, and return what it prints."""
    command = [sys.executable, EXAMPLES / script, *arguments]
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model that answers `talking_model.ANSWER`."""
    return talking_model.write_model(tmp_path_factory.mktemp("model") / "talking.gguf")


@pytest.fixture
def pdf(tmp_path):
    """A PDF of two pages."""
    lines = [(72, 770 - 20 * i, ISLAND[:70]) for i in range(20)]
    path = tmp_path / "island.pdf"
    path.write_bytes(PdfWriter().page(*lines).page((72, 770, "The second page names a ship: Albatross.")).content())
    return path


def test_ask_a_pdf(pdf, model):
    assert run("ask_a_pdf.py", pdf, QUESTION, model) == f"{talking_model.ANSWER}\n"


@pytest.mark.parametrize(
    ("script", "function", "kind", "shown"),
    [
        ("ask_a_pdf.py", "ask", octavo.Document, "page 2: A ship."),
        ("folder_with_sources.py", "ask_each", octavo.Collection, "- line 7, Island: A ship."),
    ],
)
def test_scripts_show_sources(script, function, kind, shown, pdf, model, monkeypatch, capsys):
    passage = octavo.Passage(quote="A ship.", share=0.5, start=0, stop=7, line=7, page="2", heading="Island")
    monkeypatch.setattr(kind, "sources", lambda self: [passage])
    first, second = (pdf, QUESTION) if function == "ask" else ([QUESTION], pdf.parent)
    runpy.run_path(str(EXAMPLES / script))[function](first, second, model)
    assert capsys.readouterr().out.endswith(f"\n{shown}\n")


def test_folder_with_sources(tmp_path, model):
    folder = tmp_path / "papers"
    folder.mkdir()
    (folder / "island.md").write_text("# Island\n\n" + ISLAND * 6)
    (folder / "garden.md").write_text("# Garden\n\n" + "The gardener grew pears and plums behind the old mill. " * 8)
    answers = {QUESTION: "island.md", "Who grew pears?": "garden.md"}
    assert run("folder_with_sources.py", folder, model, given="\n".join(answers)) == "".join(
        f"\n{question}\n{talking_model.ANSWER}\nfrom {name}\n" for question, name in answers.items()
    )


@pytest.mark.slow
def test_compare_methods(tmp_path, model, monkeypatch, capsys):
    monkeypatch.setitem(os.environ, "MPLBACKEND", "agg")
    (tmp_path / "island.txt").write_text(ISLAND * 12)
    notebook = json.loads((EXAMPLES / "compare_methods.ipynb").read_text("utf-8"))
    names = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [], "clear the notebook's outputs before you commit it"
            exec(compile("".join(cell["source"]), cell["id"], "exec"), names)
            if "parameters" in cell["metadata"].get("tags", []):
                names.update(MODEL=model, DOCUMENT=tmp_path / "island.txt", QUESTION=QUESTION)
    table = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in table] == ["method", *names["METHODS"]]
    assert all(talking_model.ANSWER in line for line in table[1:])
    assert names["axes"].get_legend_handles_labels()[1] == names["METHODS"]
