"""`octavo bench` on a tiny model: what it reports, not how fast that is."""

import csv
import io
import itertools
import json
from datetime import datetime
from itertools import product
from unittest.mock import MagicMock

import numpy as np
import pytest
from click.testing import CliRunner
from helpers import tiny_models
from helpers.slow_compiling import SECONDS, compile_slowly

from octavo import OctavoError
from octavo.cli.bench import as_csv, as_markdown, bench
from octavo.convert.pipeline import ATTENTION_SHARE
from octavo.evaluation.bench import Bench
from octavo.evaluation.bench_plot import draw
from octavo.evaluation.bench_rows import compare
from octavo.evaluation.engines import Engine
from octavo.runtime.context import Context
from octavo.runtime.methods.attention import Attention
from octavo.system.files import sha256_of
from octavo.version import __version__

AUTO = Attention.parse("auto")
RESULT = {
    "attention",
    "budget",
    "depth",
    "prefill_tokens_per_s",
    "decode_ms",
    "decode_tokens_per_s",
    "tokens_per_step",
    "decode_ms_min",
    "decode_ms_p10",
    "decode_ms_p90",
    "decode_ms_all",
    "step_without_context_ms",
    "attention_share",
    "attention_gb_s",
    "question_tokens",
    "first_token_ms",
    "joules_per_token",
    "threads",
    "cache_type",
    "read_bandwidth_gb_s",
    "kv_bytes",
    "bytes_read_per_token",
    "kl_divergence",
    "top1_agreement",
    "loss",
    "peak_resident_bytes",
    "cannot",
}
ONLY_LLAMA_CPP, ONLY_OCTAVO = {"flash_attention"}, {"chosen"}


METHODS = ("llama.cpp", "dense", "squeezed")


def measure(model, *arguments):
    """What `octavo bench -o json` prints."""
    command = ["-m", str(model), "-t", "2", "-n", "6", "--budget", "0.2", "-o", "json"]
    command += [] if "--attention" in arguments else ["--attention", ",".join(METHODS)]
    command += arguments
    run = CliRunner().invoke(bench, command, catch_exceptions=False)
    assert run.exit_code == 0, run.output
    return json.loads(run.stdout)


@pytest.fixture(scope="module")
def result(tiny_model):
    return measure(tiny_model, "--depths", "1500,300,1500")


@pytest.fixture(scope="module")
def quantised(tiny_model):
    return measure(tiny_model, "--depths", "300,1500", "--cache-type", "q8_0")


@pytest.fixture(scope="module", params=["prefill", "copy", "random"])
def filled(request, tiny_model):
    """Results from an empty cache on, for each way to fill it."""
    return measure(tiny_model, "--depths", "0,64,1500", "--fill", request.param)


def test_drafts_are_counted_where_the_text_repeats_itself(tiny_model, tmp_path):
    (tmp_path / "text.txt").write_text("The sky is blue, and the sea is green. " * 60)
    told = ["--doc", str(tmp_path / "text.txt"), "--depths", "300", "--attention", "llama.cpp,dense"]
    for draft, least in (("off", 1.0), ("4", 1.5)):
        row, dense = measure(tiny_model, *told, "--draft", draft, "-n", "12")["results"]
        assert row["tokens_per_step"] == 1
        assert dense["tokens_per_step"] >= least
        assert dense["kl_divergence"] == 0


def test_reports_every_method_at_every_depth(result):
    rows = result["results"]
    assert [(row["depth"], row["attention"]) for row in rows] == [
        (depth, name) for depth in (300, 1500) for name in METHODS
    ]
    for row in rows:
        own = ONLY_LLAMA_CPP if row["attention"] == "llama.cpp" else ONLY_OCTAVO
        assert set(row) == RESULT | own
        assert len(row["decode_ms_all"]) == 6
        assert row["decode_ms_min"] <= row["decode_ms_p10"] <= row["decode_ms"] <= row["decode_ms_p90"]
        assert row["step_without_context_ms"] > 0
        assert row["first_token_ms"] > 0
        assert (row["threads"], row["cache_type"], row["question_tokens"]) == (2, "f16", 32)


def test_says_what_the_figures_depend_on(result, tiny_model):
    assert result["software"]["octavo"] == __version__
    assert "llama_cpp_build" in result["software"]
    assert datetime.fromisoformat(result["software"]["date"]).tzinfo is not None
    assert result["machine"]["cpu"]
    assert result["machine"]["memory_bytes"] > result["machine"]["peak_resident_bytes"] > 0
    assert set(result["machine"]["before"]) == set(result["machine"]["after"])
    model = result["model"]
    assert (model["file"], model["bytes"]) == ("tiny.gguf", tiny_model.stat().st_size)
    assert model["sha256"] == sha256_of(tiny_model)
    assert sum(model["types"].values()) == pytest.approx(1, abs=1e-3)
    assert result["text"]["name"] == "emma.txt"
    assert result["settings"]["fill"] == "prefill"


def test_the_default_says_what_it_chose(tiny_model):
    run = CliRunner().invoke(bench, ["-m", str(tiny_model), "-t", "2", "-n", "2", "--depths", "64"])
    assert run.exit_code == 0, run.output
    assert f"| auto ({AUTO.resolve_for(0)}) | 64 |" in run.stdout


def test_bytes_are_counted(result):
    row_bytes = 3 * 2 * 2 * 2 * 64  # layers, keys and values, KV heads, f16, head_dim
    llama_cpp, dense, squeezed = result["results"][3:]
    tokens = dense["bytes_read_per_token"] / row_bytes
    assert 1500 < tokens < 1515
    assert llama_cpp["bytes_read_per_token"] == pytest.approx(dense["bytes_read_per_token"], rel=1e-3)
    assert squeezed["bytes_read_per_token"] < 0.5 * dense["bytes_read_per_token"]


def test_llama_cpp_computes_the_same_and_squeezed_nearly(result):
    llama_cpp, dense, squeezed = result["results"][3:]
    assert dense["kl_divergence"] == 0
    assert dense["top1_agreement"] == 1
    assert llama_cpp["kl_divergence"] < 1e-3
    assert squeezed["kl_divergence"] > 0


def test_short_documents_are_attended_whole(result):
    _, dense, squeezed = result["results"][:3]
    assert squeezed["bytes_read_per_token"] == dense["bytes_read_per_token"]
    assert squeezed["kl_divergence"] < 1e-6


def test_every_way_to_fill_the_caches_reaches_every_depth(filled):
    rows = filled["results"]
    assert [(row["depth"], row["attention"]) for row in rows] == [
        (depth, name) for depth in (0, 64, 1500) for name in METHODS
    ]
    for row in rows:
        own = ONLY_LLAMA_CPP if row["attention"] == "llama.cpp" else ONLY_OCTAVO
        assert set(row) == RESULT | own
        assert row["decode_ms"] > 0


def test_every_way_to_fill_the_caches_gives_all_engines_the_same(filled):
    row_bytes = 3 * 2 * 2 * 2 * 64
    for row in filled["results"]:
        tokens = row["bytes_read_per_token"] / row_bytes
        if (row["attention"], row["depth"]) == ("squeezed", 1500):
            assert 0.1 < tokens / row["depth"] < 0.3
            assert 0 < row["kl_divergence"] < 2
        else:
            assert 0 <= tokens - row["depth"] < 15
            assert row["kl_divergence"] < 1e-3
            assert row["top1_agreement"] == 1


def test_a_prefill_that_was_not_timed_is_null(filled):
    timed = {
        "prefill": {"llama.cpp", "dense", "squeezed"},
        "copy": {"dense", "squeezed"},
        "random": set(),
    }[filled["settings"]["fill"]]
    for row in filled["results"]:
        speed = row["prefill_tokens_per_s"]
        assert (speed is not None) == (row["depth"] > 0 and row["attention"] in timed)


def test_the_table_shows_what_was_not_timed_as_a_dash_and_how_caches_were_filled(filled):
    heading, _, columns, _, *rows = as_markdown(filled).splitlines()
    assert "GB/s from memory" in heading
    place = columns.split(" | ").index("prefill tokens/s")
    for line, row in zip(rows, filled["results"], strict=True):
        assert (line.split(" | ")[place] == "-") == (row["prefill_tokens_per_s"] is None)
    assert heading.endswith(
        {
            "prefill": f"{filled['software']['date'][:10]}; KL is of the steps alone, not of a sparse reading",
            "copy": "; llama.cpp's keys and values are a copy of octavo's",
            "random": "; text, keys and values are random",
        }[filled["settings"]["fill"]]
    )


def test_a_cache_of_q8_0_is_compared_with_llama_cpps_own(quantised):
    rows = quantised["results"]
    assert [(row["depth"], row["attention"]) for row in rows] == [
        (depth, name) for depth in (300, 1500) for name in METHODS
    ]
    assert {row["cache_type"] for row in rows} == {"q8_0"}
    assert {row["flash_attention"] for row in rows if row["attention"] == "llama.cpp"} == {True}
    for row in rows:
        if row["attention"] == "llama.cpp":
            assert 0 < row["kl_divergence"] < 0.01  # each rounds in its own way
        if row["attention"] == "dense":
            assert row["kl_divergence"] == 0


def test_bytes_of_q8_0_are_counted(quantised):
    """Ours have a scale of 4 bytes for each row of 64 numbers, llama.cpp's one of 2 for each 32."""
    row_bytes = {"dense": 3 * 2 * 2 * (64 + 4), "llama.cpp": 3 * 2 * 2 * (64 + 2 * 2)}
    llama_cpp, dense, squeezed = quantised["results"][3:]
    for row in (llama_cpp, dense):
        assert 1500 < row["bytes_read_per_token"] / row_bytes[row["attention"]] < 1515
    assert llama_cpp["kv_bytes"] == 1792 * row_bytes["llama.cpp"]
    assert quantised["results"][0]["kv_bytes"] == 512 * row_bytes["llama.cpp"]  # at 300 tokens
    assert dense["kv_bytes"] == 7 * 256 * row_bytes["dense"]
    assert squeezed["bytes_read_per_token"] < 0.5 * dense["bytes_read_per_token"]


def test_the_heading_names_the_type_that_is_not_f16(result, quantised):
    headings = [as_markdown(each).splitlines()[0] for each in (result, quantised)]
    assert not headings[0].endswith("q8_0")
    assert headings[1].endswith("; keys and values are q8_0")
    swept = {**quantised, "results": [{**row, "threads": 1 + i % 2} for i, row in enumerate(quantised["results"])]}
    assert as_markdown(swept).splitlines()[0].endswith("; keys and values are q8_0")
    other = {**quantised["results"][0], "attention": "openvino", "cache_type": "u8"}
    mixed = as_markdown({**quantised, "results": [*quantised["results"], other]}).splitlines()
    assert not mixed[0].endswith("q8_0")
    assert mixed[-1].startswith("| u8 | openvino")


def test_a_head_that_llama_cpp_cannot_keep_as_q8_0_is_told(tmp_path):
    model = tiny_models.write_model(tmp_path / "odd.gguf", "llama", n_layer=1, head_dim=80)
    arguments = ["-m", str(model), "--depths", "64", "--cache-type", "q8_0", "-n", "1"]
    run = CliRunner().invoke(bench, arguments)
    assert run.exit_code == 1
    assert str(run.exception).startswith(
        "llama.cpp does not keep this model's keys and values as q8_0: leave it out with --attention dense,squeezed. "
        "It says: K cache type q8_0"
    )
    assert CliRunner().invoke(bench, [*arguments, "--attention", "dense,squeezed"]).exit_code == 0


@pytest.mark.parametrize("fill", ["copy", "random"])
def test_sliding_windows_are_refused_where_caches_are_not_read(tmp_path, fill):
    model = tiny_models.write_model(tmp_path / "gemma3.gguf", "gemma3", n_layer=6)
    run = CliRunner().invoke(bench, ["-m", str(model), "--depths", "64", "--fill", fill])
    assert run.exit_code == 1
    assert "sliding window" in str(run.exception)
    assert "use --fill prefill" in str(run.exception)


def test_a_text_that_is_too_short_is_refused_with_both_numbers(tiny_model, tmp_path):
    text = tmp_path / "short.txt"
    text.write_text("x y z " * 40)
    run = CliRunner().invoke(bench, ["-m", str(tiny_model), "--doc", str(text), "--depths", "600"])
    assert run.exit_code == 1
    assert "the deepest measurement needs 682" in str(run.exception)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--depths", "many"], "not a list of token counts"),
        (["--depths", "64,-1"], "not a list of token counts"),
        (["--depths", ""], "not a list of token counts"),
        (["--fill", "magic"], "'magic' is not one of 'prefill', 'copy', 'random'"),
        (["--fill", "random", "--doc", "text.txt"], "--fill random reads no text: leave out --doc."),
        (["--delay", "-1"], "-1.0 is not in the range x>=0"),
        (["-t", "2,0"], "0 is not in the range 1<=x<=512"),
        (["-t", "2,"], "'' is not a valid whole number"),
        (["--kernels", "-t", "1,2"], "--kernels takes one number of threads"),
        (["--fill", "copy", "--cache-type", "f16,q8_0"], "--fill copy gives engines f16 keys and values"),
        (["--fill", "copy", "--cache-type", "q8_0"], "--fill copy gives engines f16 keys and values"),
        (["--fill", "random", "--cache-type", "q8_0"], "--fill random gives engines f16 keys and values"),
        (["--cache-type", "q4_1"], "'q4_1' is not one of 'f16', 'q8_0', 'q4_0'"),
        (["--attention", "dense,magic"], "There is no attention named 'magic'"),
        (["--attention", "auto,auto"], "--attention names auto twice: name it once."),
        (["--attention", "llama.cpp,dense,llama.cpp"], "--attention names llama.cpp twice"),
        (["--attention", "dense,quest:tokens=64,quest,quest:tokens=64"], "--attention names quest:tokens=64 twice"),
        (["-t", "2,1,2"], "-t names 2 twice"),
        (["--cache-type", "f16,f16"], "--cache-type names f16 twice"),
    ],
)
def test_wrong_use_exits_with_2(arguments, message):
    run = CliRunner().invoke(bench, arguments)
    assert run.exit_code == 2
    assert message in run.output


def test_a_sweep_measures_each_number_of_threads_with_each_type(tiny_model, tmp_path):
    picture = tmp_path / "sweep.png"
    swept = measure(
        tiny_model,
        *("--depths", "64", "--attention", "dense,auto", "-n", "1", "--question", "0"),
        *("-t", "1,2", "--cache-type", "f16,q8_0", "--plot", str(picture)),
    )
    rows = swept["results"]
    assert [(row["cache_type"], row["threads"], row["attention"]) for row in rows] == list(
        product(("f16", "q8_0"), (1, 2), ("dense", "auto:most=0.2"))
    )
    assert {row["first_token_ms"] for row in rows} == {None}
    table = as_markdown(swept)
    assert "| threads | keys, values | attention |" in table
    assert "first token" not in table
    assert picture.read_bytes().startswith(b"\x89PNG")
    lines = list(csv.DictReader(io.StringIO(as_csv(swept))))
    assert [line["threads"] for line in lines] == ["1", "1", "2", "2"] * 2
    assert {line["model.sha256"] for line in lines} == {swept["model"]["sha256"]}
    assert {line["machine.before.times_throttled"] for line in lines} == {
        "" if (count := swept["machine"]["before"]["times_throttled"]) is None else str(count)
    }


def test_what_a_sweep_has_measured_is_kept_when_a_later_run_fails(tmp_path):
    """llama.cpp keeps no heads of 80 numbers as q8_0."""
    model = tiny_models.write_model(tmp_path / "odd.gguf", "llama", n_layer=1, head_dim=80)
    swept = measure(model, "--depths", "64", "-n", "1", "-t", "1", "--cache-type", "f16,q8_0", "--question", "0")
    assert [(row["attention"], row["cache_type"]) for row in swept["results"]] == [(name, "f16") for name in METHODS]
    [missing] = swept["missing"]
    assert missing.startswith(
        "1 threads, keys and values as q8_0: llama.cpp does not keep this model's keys and values"
    )


def test_depths_that_were_measured_are_kept_when_a_deeper_one_fails(tiny_model, monkeypatch):
    answer = Bench._answer

    def fail(bench, depth):
        if depth > 64:
            raise MemoryError
        answer(bench, depth)

    monkeypatch.setattr(Bench, "_answer", fail)
    command = ["-m", str(tiny_model), "-t", "2", "-n", "1", "--attention", "dense"]
    run = CliRunner().invoke(bench, [*command, "--depths", "32,64,96"])
    assert run.exit_code == 0
    assert [line.split(" | ")[1] for line in run.stdout.splitlines()[4:]] == ["32", "64"]
    assert "Not measured, or not all of it: 2 threads, keys and values as f16: MemoryError" in run.stderr
    assert isinstance(CliRunner().invoke(bench, [*command, "--depths", "96"]).exception, MemoryError)


def test_the_table_is_printed_before_the_picture_is_drawn(tiny_model, tmp_path, monkeypatch):
    monkeypatch.setattr("octavo.evaluation.bench_plot.save", MagicMock(side_effect=OctavoError("The disk is full.")))
    command = ["-m", str(tiny_model), "-t", "2", "-n", "1", "--attention", "dense", "--depths", "16"]
    run = CliRunner().invoke(bench, [*command, "--plot", str(tmp_path / "p.png")])
    assert str(run.exception) == "The disk is full."
    assert "| dense | 16 |" in run.stdout


def test_a_mean_beyond_the_percentiles_is_drawn_and_rows_that_failed_are_not(result):
    rows = [row for row in result["results"] if row["depth"] == 300]
    drafted = {**rows[1], "decode_ms": rows[1]["decode_ms_p90"] + 1, "step_without_context_ms": None}
    below = {**rows[2], "decode_ms": rows[2]["decode_ms_p10"] / 2}
    figure = draw({**result, "results": [drafted, below, {**rows[0], "cannot": "it ended, after 1 of 6 tokens"}]})
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == ["dense", "squeezed"]
    with pytest.raises(OctavoError, match="nothing to draw"):
        draw({**result, "results": [{**rows[0], "cannot": "it cannot"}]})


def test_engines_warm_up_by_time_before_their_steps_over_nothing_are_measured(tiny_model, monkeypatch):
    """A clock of the test goes on by a second with each step, and each time that it is asked."""
    clock, decoded, decode = itertools.count(), [], Engine.decode

    def note(engine, token, warm):
        next(clock)
        decoded.append((engine.name, warm))
        decode(engine, token, warm)

    monkeypatch.setattr("octavo.evaluation.bench._WARM_UP_S", 50)
    monkeypatch.setattr("octavo.evaluation.bench.working_time", lambda: next(clock))
    monkeypatch.setattr(Engine, "decode", note)
    row, _ = measure(tiny_model, "--depths", "0", "--attention", "dense,quest", "-n", "3", "--question", "0")["results"]
    before = decoded[: decoded.index(("dense", True))]
    assert 40 < before.count(("dense", False)) < 70
    assert 40 < before.count(("quest", False)) < 70
    assert len(row["decode_ms_all"]) == 3


@pytest.mark.parametrize("order", [[], ["--alone"]])
def test_repetitions_and_order_give_every_engine_the_same_text(tiny_model, order):
    told = ["--depths", "300", "--attention", "llama.cpp,dense,squeezed", "-n", "3", "-r", "2", "--question", "5"]
    for row in measure(tiny_model, *told, *order)["results"]:
        assert len(row["decode_ms_all"]) == 6
        assert row["kl_divergence"] < 1e-3


def test_a_pause_precedes_each_repetition_but_the_first(tiny_model, monkeypatch):
    pauses = []
    monkeypatch.setattr("octavo.evaluation.bench.time.sleep", pauses.append)
    measure(tiny_model, "--depths", "0", "--attention", "dense", "-n", "1", "-r", "3", "--delay", "7")
    assert pauses.count(7) == 2


def test_an_engine_that_attends_an_index_has_the_time_of_reading_one(tiny_model, monkeypatch):
    """Reading as `octavo index` does leaves out keys of a long document; here each length is long."""
    shares = []
    attending_share = Context.attending_share
    monkeypatch.setattr("octavo.evaluation.bench._LONG", 64)
    monkeypatch.setattr(
        Context, "attending_share", lambda self, share: shares.append(share) or attending_share(self, share)
    )
    rows = measure(tiny_model, "--depths", "64", "--attention", "dense,auto", "-n", "1")["results"]
    assert shares == [ATTENTION_SHARE]
    assert all(row["prefill_tokens_per_s"] for row in rows)


def test_compare_gives_kl_divergence_and_agreement():
    p, q = np.log([[0.5, 0.5], [0.9, 0.1]]), np.log([[0.25, 0.75], [0.9, 0.1]])
    divergence, agreement = compare(list(p), list(q))
    assert divergence == pytest.approx(0.5 * (0.5 * np.log(2) + 0.5 * np.log(2 / 3)))
    assert agreement == 0.5


@pytest.mark.parametrize("fill", ["prefill", "random"])
def test_compiling_is_not_timed(tiny_model, monkeypatch, fill):
    compile_slowly(monkeypatch)
    result = measure(tiny_model, "--depths", "16", "--fill", fill, "--attention", "dense,auto", "-n", "1")
    for row in result["results"]:
        assert row["decode_ms"] < SECONDS * 1e3 / 2
        assert row["prefill_tokens_per_s"] is None or row["prefill_tokens_per_s"] > 16 / SECONDS


class Begun(Exception):
    """The first measurement begins."""


def test_what_compiles_elsewhere_is_compiled_before_anything_is_timed(tiny_model, monkeypatch):
    events = []

    def begin(*_, **_named):
        raise Begun

    background = "octavo.cpu_kernels.numba_support.background_compile"
    monkeypatch.setattr(f"{background}.compile_ahead", lambda functions: events.append("asked"))
    monkeypatch.setattr(f"{background}.wait", lambda *_: events.append("waited"))
    monkeypatch.setattr("octavo.evaluation.bench.Bench._decode", begin)
    with pytest.raises(Begun):
        measure(tiny_model, "--depths", "64", "--attention", "dense,auto")
    assert events == ["asked", "waited"] * 2
