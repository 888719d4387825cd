"""docs/measured/README.md is the page of the reports beside it."""

import json
import sys

from helpers.product import ROOT

sys.path.append(str(ROOT / "tools"))

from measured_page import MEASURED, page

from octavo.evaluation.report_tables import quality_table, speed_table


def row(attention, decode_ms, divergence=None, cannot=None):
    figures = {"prefill_tokens_per_s": 1234.4, "decode_ms": decode_ms, "kl_divergence": divergence}
    return {"attention": attention, "cannot": cannot, **figures}


def scored(attention, score, difference):
    figures = {"difference": difference, "difference_standard_error": 0.04, "bytes_read_share": 0.25}
    return {"attention": attention, "depth": 4000, "samples": 2, "score": score, **figures}


def report():
    """A report of three tasks at one depth, and the speed at one."""
    rows = [row("llama.cpp", 6.5, 0.003), row("dense", 12.0, 0.0), row("auto", 8.0, 0.004), row("sparq", 7.5, 0.05)]
    rows += [row("window", 6.0, 0.4), row("openvino", 9.0), row("ik", 7.0, 0.6), row("mistralrs", None, None, "no")]
    tasks = [
        [scored("dense", 0.5, 0.0), scored("auto", 0.7, 0.2)],
        [scored("dense", 1.0, 0.0), scored("auto", 1.0, 0.0), scored("squeezed", 0.9, -0.1)],
        [scored("dense", 0.09, 0.0), scored("auto", 0.0, -0.09), scored("squeezed", 0.0, -0.09)],
    ]
    return {
        "report": 1,
        "model": {"name": "m.gguf"},
        "cpu": "A CPU",
        "threads": 2,
        "speed": [
            {"depth": 2048, "peers": ["openvino", "ik", "mistralrs"], "result": {"results": rows}},
            {"depth": 4096, "peers": ["llama.cpp"], "result": {"results": rows[:2]}},
            {"depth": 6000, "peers": [], "result": {"results": [*rows[:2], rows[4]]}},
            {"depth": 8000, "peers": [], "result": None},
        ],
        "quality": [{"task": "needle", "depth": 4000, "samples": 2, "result": {"results": each}} for each in tasks],
    }


def test_the_page_is_what_the_reports_give():
    assert (MEASURED / "README.md").read_text("utf-8") == page(MEASURED), "run python tools/measured_page.py"


def test_rows_of_a_report(tmp_path):
    (tmp_path / "theseus").mkdir()
    (tmp_path / "theseus" / "m.json").write_text(json.dumps(report()))
    who = "| m.gguf | A CPU | 2 | [theseus](theseus/m.json) |"
    lines = page(tmp_path).splitlines()
    *speed, quality = (line for line in lines if line.startswith("| m.gguf"))
    assert speed == [
        f"{who} 2,048 | 1,234 | 1,234 | 1,234 | 6.5 | 12.0 | 8.0 | sparq 7.5 | openvino 9.0 |",
        f"{who} 4,096 | 1,234 | 1,234 | - | 6.5 | 12.0 | - | dense 12.0 | llama.cpp 6.5 |",
        f"{who} 6,000 | 1,234 | 1,234 | - | 6.5 | 12.0 | - | dense 12.0 | - |",
    ]
    squeezed = "-0.100 ± 0.410 at 0.25 (tasks: 1, dense: 1.000)"
    assert quality == f"{who} 4,000 | 2 | 1 | 2 | 0.750 | +0.100 ± 0.290 at 0.25 | {squeezed} | - |"


def test_a_row_names_the_cache_type_and_rope_scaling():
    for table in (quality_table, speed_table):
        _, [first, *_] = table({"": {**report(), "cache_type": "q8_0", "rope": "yarn 2"}})
        assert first[0] == "m.gguf, q8_0 cache, yarn 2 rope scaling"
