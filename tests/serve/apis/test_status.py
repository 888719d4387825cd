"""What a server says of itself and of its model's tokens."""

import pytest

from octavo.serve.apis import status
from octavo.serve.apis.model_card import quantization_of

TEXT = "The keeper wrote: <|im_end|> é"


@pytest.mark.parametrize("field", ["content", "prompt"])
def test_tokens_of_a_text_and_back(served, field):
    llama = served.server.engine.llama
    known = served.post("/tokenize", **{field: TEXT})
    assert known == {"tokens": llama.tokenize(TEXT.encode(), special=True), "count": len(known["tokens"])}
    plain = served.post("/tokenize", **{field: TEXT}, parse_special=False)["tokens"]
    assert plain == llama.tokenize(TEXT.encode(), special=False)
    assert served.post("/detokenize", tokens=plain) == {"content": TEXT, "prompt": TEXT}


def test_tokens_that_do_not_exist_are_refused(served):
    assert served.refused("/detokenize", tokens=[10**6])[0] == 400
    assert served.refused("/tokenize", text="?")[0] == 400


def test_special_tokens_and_the_template_are_told(served):
    told = served.client.get("/tokenizer_info").json()
    assert (told["bos_token"], told["eos_token"]) == ("<|endoftext|>", "<|im_end|>")
    assert "add_generation_prompt" in told["chat_template"]


def test_a_model_is_described(served):
    [model] = served.client.get("/v1/models").json()["data"]
    assert (model["id"], model["meta"]["n_ctx"], model["meta"]["attention"]) == ("tiny", 2048, "auto")
    assert (model["meta"]["n_ctx_train"], model["max_context_length"]) == (4096, 4096)
    assert {model[name] for name in ("context_length", "max_model_len", "loaded_context_length")} == {2048}
    assert (model["type"], model["arch"], model["quantization"]) == ("llm", "llama", "F32")
    assert served.client.get("/health").json() == {"status": "ok"}


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("Q4_K - Medium", "Q4_K_M"),
        ("IQ3_XXS - 3.0625 bpw", "IQ3_XXS"),
        ("(guessed) Q5_K - Small", "Q5_K_S"),
        ("Q8_0", "Q8_0"),
        ("all F32", "F32"),
        ("MXFP4 MoE", "MXFP4"),
    ],
)
def test_quantizations_have_their_usual_names(kind, name):
    assert quantization_of(kind) == name


def test_texts_are_tokenized_up_to_a_length(served, monkeypatch):
    """A list of millions of tokens would stop all streams."""
    monkeypatch.setattr(status, "_MOST_CHARACTERS", 50)
    monkeypatch.setattr(status, "_MOST_WITH_PIECES", 20)
    assert served.post("/tokenize", content="x" * 50)["count"] > 0
    assert len(served.post("/tokenize", content="x" * 20, with_pieces=True)["tokens"]) > 0
    for body in ({"content": "x" * 51}, {"content": "x" * 21, "with_pieces": True}):
        refused, error = served.refused("/tokenize", **body)
        assert (refused, error["param"], "send it in parts" in error["message"]) == (413, "content", True)
