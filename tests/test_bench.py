"""`octavo bench` on a tiny model: what it reports, not how fast that is."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from octavo.cli.bench import bench
from octavo.convert.bench import compare

RESULT = {
    "attention",
    "budget",
    "depth",
    "prefill_tokens_per_s",
    "decode_ms",
    "decode_tokens_per_s",
    "kv_bytes",
    "bytes_read_per_token",
    "kl_divergence",
    "top1_agreement",
}


@pytest.fixture(scope="module")
def result(tiny_model):
    arguments = [
        "-m",
        str(tiny_model),
        "-t",
        "2",
        "--depths",
        "1500,300,1500",
        "-n",
        "6",
        "--budget",
        "0.2",
        "-o",
        "json",
    ]
    run = CliRunner().invoke(bench, arguments, catch_exceptions=False)
    assert run.exit_code == 0, run.output
    return json.loads(run.stdout)


def test_reports_every_method_at_every_depth(result):
    rows = result["results"]
    assert [(row["depth"], row["attention"]) for row in rows] == [
        (depth, name) for depth in (300, 1500) for name in ("llama.cpp", "dense", "squeezed")
    ]
    for row in rows:
        assert set(row) - {"flash_attention"} == RESULT
    assert set(result["machine"]) == {"cpu", "threads", "read_bandwidth_gb_s"}
    assert result["model"]["file"] == "tiny.gguf"


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


def test_a_text_that_is_too_short_is_refused_with_both_numbers(tiny_model, tmp_path):
    text = tmp_path / "short.txt"
    text.write_text("x y z " * 40)
    run = CliRunner().invoke(bench, ["-m", str(tiny_model), "--doc", str(text), "--depths", "600"])
    assert run.exit_code == 1
    assert "the deepest measurement needs 650" in str(run.exception)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--depths", "many"], "not a list of token counts"),
        (["--depths", "64"], "not a list of token counts"),
        (["--attention", "dense,magic"], "there is no attention named 'magic'"),
    ],
)
def test_wrong_use_exits_with_2(arguments, message):
    run = CliRunner().invoke(bench, arguments)
    assert run.exit_code == 2
    assert message in run.output


def test_compare_gives_kl_divergence_and_agreement():
    p, q = np.log([[0.5, 0.5], [0.9, 0.1]]), np.log([[0.25, 0.75], [0.9, 0.1]])
    divergence, agreement = compare(list(p), list(q))
    assert divergence == pytest.approx(0.5 * (0.5 * np.log(2) + 0.5 * np.log(2 / 3)))
    assert agreement == 0.5
