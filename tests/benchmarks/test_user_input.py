"""benchmarks/user_input.py: what it measures, with a tiny model."""

from pathlib import Path

import pytest

import octavo

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    import user_input

    return user_input


def test_a_batch_by_its_mean_reads_less_than_the_union_and_everything_is_what_dense_reads(script, tiny_model):
    llama = octavo.Llama(tiny_model, n_ctx=2000, n_threads=2, attention="dense")
    tokens = [5 + i * i % 200 for i in range(1900)]
    attentions = [
        "squeezed",
        "squeezed:batch=union",
        "squeezed:batch=mean",
        "squeezed:centroids=0.1,batch=union,budget=1",
    ]
    rows = {row["attention"]: row for row in script.measure(llama, tokens, 1500, [300], attentions, 0.3)}
    assert list(rows) == ["dense", *attentions]
    assert {row["input"] for row in rows.values()} == {300}
    assert rows["dense"]["bytes_read_share"] == 1
    assert rows["dense"]["kl_divergence"] == 0
    assert rows["squeezed:batch=mean"]["bytes_read_share"] < rows["squeezed:batch=union"]["bytes_read_share"] < 1
    assert rows["squeezed"]["bytes_read_share"] == 1
    everything = rows["squeezed:centroids=0.1,batch=union,budget=1"]
    assert everything["bytes_read_share"] > 1, "the lookup comes on top"
    assert everything["kl_divergence"] == pytest.approx(0, abs=1e-3)
