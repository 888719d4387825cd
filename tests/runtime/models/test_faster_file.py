"""Test what is said about a file that this CPU reads faster than the chosen one."""

import pytest

from octavo.runtime.models.faster_file import faster_file

FEATURES = "octavo.cpu_kernels.numba_support.machine_features"
REPO = ["README.md", "m-Q8_0.gguf", "m-Q5_K_M.gguf", "m.Q4_K_M.gguf", "m-Q4_K_S.gguf", "m-Q4_0.gguf", "m-Q2_K.gguf"]


@pytest.fixture(autouse=True)
def _multiplies(monkeypatch):
    monkeypatch.setattr(f"{FEATURES}.MULTIPLIES_WEIGHTS", True)
    monkeypatch.setattr(f"{FEATURES}.ADDS_PRODUCTS", False)


def test_a_slower_file_names_the_fastest_one_and_its_loss():
    assert faster_file(REPO, "m-Q8_0.gguf") == (
        "This CPU reads Q4_K_M 1.9 times as fast as Q8_0; its KL divergence from f16 is about 0.031 where Q8_0 has "
        "0.001."
    )


@pytest.mark.parametrize(
    ("others", "chosen", "fastest"),
    [
        (["m-Q4_0.gguf"], "m-bf16.gguf", "Q4_0"),
        (["m-IQ4_NL.gguf", "m-Q6_K.gguf"], "m-IQ4_NL.gguf", "Q6_K"),
        (["m-Q5_K_S.gguf", "m-Q5_K_M.gguf"], "m-iq4_xs.gguf", "Q5_K_M"),
        (["m-Q4_K_M-00001-of-00002.gguf", "m-Q4_K_M-00002-of-00002.gguf"], "m-F16-00001-of-00003.gguf", "Q4_K_M"),
        (["q4_k_s/m.q4_k_s.gguf"], "q8_0/m.q8_0.gguf", "Q4_K_S"),
    ],
)
def test_names_are_found_in_any_form(others, chosen, fastest):
    assert f" reads {fastest} " in faster_file([*others, chosen], chosen)


@pytest.mark.parametrize(
    ("files", "chosen"),
    [
        (REPO, "m.Q4_K_M.gguf"),  # the fastest
        (REPO, "m-Q4_0.gguf"),  # hardly slower
        (REPO, "m-Q2_K.gguf"),  # not measured
        (["m-Q8_0.gguf", "m-Q2_K.gguf"], "m-Q8_0.gguf"),  # nothing else was
        (["model.gguf"], "model.gguf"),
    ],
)
def test_nothing_is_said_if_there_is_nothing_much_faster(files, chosen):
    assert faster_file(files, chosen) == ""


@pytest.mark.parametrize(("feature", "has_it"), [("MULTIPLIES_WEIGHTS", False), ("ADDS_PRODUCTS", True)])
def test_nothing_is_said_of_cpus_that_were_not_measured(monkeypatch, feature, has_it):
    """Leave out CPUs whose products are llama.cpp's, and those with other instructions than AVX2's."""
    monkeypatch.setattr(f"{FEATURES}.{feature}", has_it)
    assert faster_file(REPO, "m-Q8_0.gguf") == ""
