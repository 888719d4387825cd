"""Which share of a model's products is octavo's."""

import pytest
from gguf import GGMLQuantizationType as Type

from octavo.runtime.models import own_products
from octavo.runtime.models.own_products import products_of

CASES = {
    "octavo multiplies 75 % of the weights (Q4_K, Q6_K), llama.cpp the others (F16)": {
        Type.F16: 25,
        Type.Q6_K: 15,
        Type.Q4_K: 60,
    },
    "octavo multiplies 99.9 % of the weights (Q4_0), llama.cpp the others (F32)": {Type.F32: 1, Type.Q4_0: 9999},
    "octavo multiplies 100 % of the weights (MXFP4)": {Type.MXFP4: 7},
    "llama.cpp multiplies all weights (F32, type 999)": {Type.F32: 8, 999: 7},
    "llama.cpp multiplies all weights (none)": {},
}


@pytest.mark.parametrize("sentence", CASES)
def test_share_follows_from_the_types(sentence, monkeypatch):
    monkeypatch.setattr(own_products, "MULTIPLIES_WEIGHTS", True)
    monkeypatch.setattr(own_products, "HAS_AMX", False)
    assert str(products_of(CASES[sentence])) == sentence


def test_few_tokens_are_llama_cpps_with_amx(monkeypatch):
    monkeypatch.setattr(own_products, "MULTIPLIES_WEIGHTS", True)
    monkeypatch.setattr(own_products, "HAS_AMX", True)
    found = str(products_of({Type.F16: 1, Type.Q4_0: 1}))
    assert found == "octavo multiplies 50 % of the weights (Q4_0) by 33 tokens and more, llama.cpp the others (F16)"


def test_on_other_cpus_all_are_llama_cpps(monkeypatch):
    monkeypatch.setattr(own_products, "MULTIPLIES_WEIGHTS", False)
    found = products_of({Type.Q4_0: 2, Type.Q8_0: 3})
    assert str(found) == "llama.cpp multiplies all weights (Q8_0, Q4_0)"
    assert found.share == 0
