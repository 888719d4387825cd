"""`octavo eval`, by its output and exit codes, on a tiny model."""

import csv
import json
import re
import subprocess
import sys

import pytest
from click.testing import CliRunner
from helpers.evaluation_runs import documents_of
from helpers.index_builds import Entered, Recorded

import octavo as package
from octavo.cli import main as cli_main
from octavo.evaluation.folders import FOLDER_TASKS
from octavo.evaluation.tasks import TASKS, task_class
from octavo.runtime.methods import words

QUICK = ["--attention", "dense,streaming", "--budgets", "0.8", "--depths", "300", "--samples", "2"]
COLUMNS = [
    *("attention", "budget", "depth", "samples", "score", "standard_error", "difference", "difference_standard_error"),
    *("kl_divergence", "bytes_read_share"),
]


@pytest.fixture
def on_tiny(tiny_model, tmp_path):
    return ["-m", str(tiny_model), "--index-dir", str(tmp_path), "-t", "2"]


def octavo(*arguments):
    return CliRunner().invoke(cli_main.cli, ["eval", *map(str, arguments)], prog_name="octavo")


def fails(result, code, message):
    """Nothing but one error message, on stderr."""
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr.strip().splitlines()[-1] == f"Error: {message}"
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("name", TASKS)
def test_each_task_has_its_name_in_the_table(name):
    assert task_class(name).name == name
    assert task_class(name)().name == name


def test_help_imports_nothing_heavy():
    script = (
        "import sys\nfrom octavo.cli.main import cli\n"
        "try: cli(['eval', '--help'])\nexcept SystemExit: pass\n"
        "print([name for name in ('llama_cpp', 'numba', 'numpy', 'sklearn', 'matplotlib') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_help_tells_of_each_task():
    shown = octavo("--help")
    assert shown.exit_code == 0
    usage = "".join(shown.stdout.split("\n\n")[0].split())
    assert usage == "Usage:octavoeval[OPTIONS]TASK[:KEY=VALUE,...]"
    for name, task in {**TASKS, **FOLDER_TASKS}.items():
        assert re.search(rf"^  {name} +{task.summary}$", shown.stdout, re.MULTILINE)
    for name in ("attention", "budgets", "depths", "samples", "seed", "data", "plan", "scheduler", "output", "plot"):
        assert f"--{name} " in shown.stdout
    assert "[default: 0.25,0.125]" in shown.stdout


def test_help_prints_the_parameters_of_tasks():
    shown = octavo("help")
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert "qa: Answer questions about paragraphs." in shown.stdout
    assert "  haystack=essay" in shown.stdout
    assert "(noise, essay or needles)" in shown.stdout


def test_parameters_of_a_task_stand_in_its_title(on_tiny):
    options = ["--attention", "dense", "--depths", "1500", "--samples", "1"]
    shown = octavo("niah-single:haystack=essay", *on_tiny, *options)
    assert shown.exit_code == 0
    assert shown.stdout.startswith("niah-single:haystack=essay (recall: higher is better): tiny.gguf")
    assert octavo("qa:chat=on", *on_tiny, *options).stdout.startswith("qa:chat=on (F1")


def test_results_as_json_csv_and_a_table(on_tiny, tmp_path):
    first = octavo("perplexity", *on_tiny, *QUICK, "-o", "json")
    assert first.exit_code == 0
    result = json.loads(first.stdout)
    assert result.keys() == {
        *(
            "task",
            "parameters",
            "metric",
            "higher_is_better",
            "model",
            "octavo",
            "data",
            "seed",
            "machine",
            "cache_type",
            "rope",
            "results",
            "left_out",
        )
    }
    assert (result["task"], result["metric"], result["higher_is_better"]) == (
        "perplexity",
        "bits per character",
        False,
    )
    assert result["model"].keys() == {"name", "sha256"}
    assert (result["model"]["name"], result["data"]["name"]) == ("tiny.gguf", "emma.txt")
    assert [(row["attention"], row["budget"], row["depth"], row["samples"]) for row in result["results"]] == [
        ("dense", 1, 300, 2),
        ("streaming", 0.8, 300, 2),
    ]
    for row in result["results"]:
        assert row.keys() >= {*COLUMNS}
    [kept] = (tmp_path / "tiny.octavo" / "eval").iterdir()
    assert re.fullmatch(r"perplexity-[0-9a-f]{12}\.jsonl", kept.name)
    assert first.stderr.splitlines()[-1] == f"The samples are kept in {kept}"
    assert "Reading 300 tokens: 300 tokens" in first.stderr.splitlines()

    table = octavo("perplexity", *on_tiny, *QUICK)
    assert table.exit_code == 0
    assert table.stderr == f"The samples are kept in {kept}\n"  # nothing is measured again
    lines = table.stdout.splitlines()
    assert lines[:4] == [
        f"perplexity (bits per character: lower is better): tiny.gguf, emma.txt, seed 0, octavo {package.__version__}, "
        f"{result['machine']['cpu']}, 2 threads",
        "",
        "| attention | budget | depth | samples | bits per character | standard error | to dense | standard error of "
        "that | KL to dense | share read |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    dense, streaming = result["results"]
    assert lines[4:] == [row_of(dense, "-"), row_of(streaming, "0.8")]
    assert "| 0.000 | 0.000 | 0.0000 | 1.000 |" in lines[4]

    text = octavo("perplexity", *on_tiny, *QUICK, "-o", "csv").stdout
    header, *rows = csv.reader(text.splitlines())
    assert header == COLUMNS
    assert rows == [[str(row[name]) for name in COLUMNS] for row in result["results"]]


def row_of(row, budget):
    thousandths = [f"{row[name]:.3f}" for name in COLUMNS[4:]]
    thousandths[4] = f"{row['kl_divergence']:.4f}"
    return "| " + " | ".join([row["attention"], budget, "300", "2", *thousandths]) + " |"


def test_one_sample_has_no_standard_error(on_tiny):
    options = ["--attention", "dense", "--depths", "1100", "--samples", "1"]
    last = octavo("passkey", *on_tiny, *options).stdout.splitlines()[-1]
    assert last == "| dense | - | 1,100 | 1 | 0.000 | - | 0.000 | - | 0.0000 | 1.000 |"  # nothing is judged
    row = next(csv.DictReader(octavo("passkey", *on_tiny, *options, "-o", "csv").stdout.splitlines()))
    assert (row["samples"], row["standard_error"]) == ("1", "")


def test_scores_from_0_to_1_have_a_verdict(on_tiny):
    arguments = ("passkey", *on_tiny, "--attention", "dense,quest:tokens=64", "--depths", "1100", "--samples", "2")
    table = octavo(*arguments)
    assert table.exit_code == 0
    heading, _, dense, quest = table.stdout.splitlines()[2:]
    assert "| to dense | standard error of that | at least | at most .02 lost | KL to dense |" in heading
    assert "| 0.000 | 0.000 | - | - | 0.0000 |" in dense
    assert "| 0.000 | 0.000 | - | dense is below .1 |" in quest
    dense, quest = csv.DictReader(octavo(*arguments, "-o", "csv").stdout.splitlines())
    assert (dense["verdict"], quest["verdict"], quest["at_least"]) == ("", "dense is below .1", "")


@pytest.mark.parametrize(
    ("options", "head", "words"),
    [
        ([], ("f16", None), "tiny.gguf"),
        (["--cache-type", "q4_0"], ("q4_0", None), "tiny.gguf, q4_0 cache"),
        (["--rope-scaling", "yarn", "--rope-scale", "3"], ("f16", "yarn 3"), "tiny.gguf, yarn 3 rope scaling"),
        (
            ["--rope-scaling", "linear", "--rope-scale", "1.5", "--cache-type", "q8_0"],
            ("q8_0", "linear 1.5"),
            "tiny.gguf, q8_0 cache, linear 1.5 rope scaling",
        ),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_results_say_how_keys_and_values_were_computed(on_tiny, options, head, words):
    arguments = ("perplexity", *on_tiny, *options, "--attention", "dense", "--depths", "300", "--samples", "1")
    result = json.loads(octavo(*arguments, "-o", "json").stdout)
    assert (result["cache_type"], result["rope"]) == head
    heading = octavo(*arguments).stdout.splitlines()[0]
    assert heading.startswith(f"perplexity (bits per character: lower is better): {words}, emma.txt, seed 0")


def test_documents_have_columns_of_their_own(on_tiny, tmp_path):
    data = documents_of(tmp_path / "data.json", 10)
    shown = octavo("fixed-context", *on_tiny, "--attention", "dense", "--samples", "2", "--data", data)
    assert shown.exit_code == 0
    heading = shown.stdout.splitlines()[2]
    assert "| F1 |" in heading
    assert heading.endswith("| exact match | has the answer | first token s | s a question |")


def test_an_interrupted_evaluation_says_that_it_goes_on(on_tiny, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("octavo.cli.eval.TaskProgress", lambda: Entered(Recorded(at=7)))
        result = octavo("agreement", *on_tiny, *QUICK)
    assert (result.exit_code, result.stdout) == (130, "")
    assert result.stderr.splitlines()[-1] == "Interrupted: the same command resumes where this one stopped."
    assert octavo("agreement", *on_tiny, *QUICK).exit_code == 0


def test_what_is_out_of_reach_is_said_and_left_out(on_tiny):
    result = octavo(
        "agreement",
        *on_tiny,
        "--attention",
        "quest:dense_layers=2",
        "--budgets",
        "0.3",
        "--depths",
        "600",
        "--samples",
        "1",
    )
    assert result.exit_code == 0
    left_out = (
        r"^quest:dense_layers=2 read 0\.\d{3} or more with every budget that was tried at 600 tokens: "
        r"0\.3 is left out there\.$"
    )
    assert re.search(left_out, result.stderr, re.M)
    assert [line.split(" | ")[0] for line in result.stdout.splitlines()[4:]] == ["| dense"]


def test_a_text_that_does_not_fit(on_tiny):
    fails(
        octavo("agreement", *on_tiny, "--depths", "5000", "--samples", "1"),
        1,
        "The longest text takes 5,017 tokens with its questions, and the context holds 4,096: give smaller --depths, a "
        "larger context (-c, --rope-scaling), or a long-context model with -m.",
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["puzzles"], "Invalid value for 'TASK[:KEY=VALUE,...]': There is no task named 'puzzles': choose from "
         f"{', '.join([*TASKS, *FOLDER_TASKS])}."),
        (["qa:chat=yes"], "Invalid value for 'TASK[:KEY=VALUE,...]': qa's chat has to be on or off, not yes."),
        (["passkey:keys=2"], "Invalid value for 'TASK[:KEY=VALUE,...]': passkey has no parameter named 'keys': its "
         "parameters are per_text, n_tokens."),
        (["qa", "--attention", "dense,sparse"], "Invalid value for '--attention': There is no attention named "
         f"'sparse': choose from {', '.join(words())}. Did you mean `sparq`?"),
        (["qa", "--attention", "dense,llama.cpp"],
         "--attention llama.cpp is for `octavo bench`: its results are dense's."),
        (["qa", "--budgets", "0"], "Invalid value for '--budgets': 0.0 is not in the range 0<x<=1."),
        (["qa", "--budgets", "0.5,2"], "Invalid value for '--budgets': 2.0 is not in the range 0<x<=1."),
        (["qa", "--budgets", "nan"], "Invalid value for '--budgets': nan is not in the range 0<x<=1."),
        (["qa", "--budgets", "half"], "Invalid value for '--budgets': 'half' is not a valid number."),
        (["qa", "--depths", "0"], "Invalid value for '--depths': '0' is not a list of token counts, such as "
         "1,2048,8000."),
        (["qa", "--depths", "long"], "Invalid value for '--depths': 'long' is not a list of token counts, such as "
         "1,2048,8000."),
        (["qa", "--samples", "0"], "Invalid value for '--samples': 0 is not in the range 1<=x<=100000."),
        (["longbench"], "longbench has no data of its own: name a file with --data."),
        (["fixed-context", "--depths", "400"], "fixed-context takes its texts as they are: leave out --depths."),
        (["qa", "--rope-scale", "2"], "--rope-scaling and --rope-scale go together: give both."),
        (["qa", "--rope-scaling", "yarn"], "--rope-scaling and --rope-scale go together: give both."),
        (["qa", "--rope-scaling", "yarn", "--rope-scale", "0.5"], "Invalid value for '--rope-scale' (env var: "
         "'OCTAVO_ROPE_SCALE'): 0.5 is not in the range x>=1."),
        (["folder-qa", "--scheduler", "tcp://127.0.0.1:1"],
         "folder-qa runs on this machine: leave out --scheduler."),
        (["qa", "-o", "xml"], "Invalid value for '-o' / '--output': 'xml' is not one of 'md', 'json', 'csv'."),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)  # fmt: skip
def test_wrong_options(on_tiny, arguments, message):
    fails(octavo(*arguments, *on_tiny), 2, message)


def test_a_cluster_that_is_not_there_is_told(on_tiny):
    fails(
        octavo("perplexity", *on_tiny, *QUICK, "--scheduler", "nonsense://127.0.0.1:1"),
        1,
        "There is no Dask scheduler at nonsense://127.0.0.1:1: start one with `dask scheduler`, and its workers with "
        "`dask worker`.",
    )


@pytest.mark.parametrize("task", TASKS)
def test_data_that_are_not_there(on_tiny, tmp_path, task):
    missing = tmp_path / "nowhere.json"
    fails(
        octavo(task, *on_tiny, "--data", missing),
        1,
        f"The document {missing} cannot be opened: No such file or directory.",
    )


def test_pictures_that_cannot_be_written_are_refused_before_the_work(on_tiny, tmp_path, monkeypatch):
    nowhere = tmp_path / "nowhere"
    for name, message in {
        "eval.jpg": f"{tmp_path / 'eval.jpg'} is not a PNG file's name: give one that ends in .png.",
        "nowhere/eval.png": f"There is no folder {nowhere} to write eval.png in.",
    }.items():
        result = octavo("qa", *on_tiny, "--plot", tmp_path / name)
        fails(result, 1, message)
        assert len(result.stderr.splitlines()) == 1
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    fails(
        octavo("qa", *on_tiny, "--plot", tmp_path / "eval.png"),
        1,
        "Pictures need matplotlib: pip install matplotlib.",
    )


def test_a_method_that_needs_a_plan_says_so(on_tiny):
    result = octavo("qa", *on_tiny, "--attention", "duo")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "octavo profile" in result.stderr.splitlines()[-1]
