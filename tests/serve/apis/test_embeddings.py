"""OpenAI's embeddings, of models that pool, compared with llama-cpp-python's own."""

import base64
from concurrent.futures import ThreadPoolExecutor

import llama_cpp
import numpy as np
import pytest
from helpers import tiny_models
from helpers.served import serving

from octavo.runtime.embedder import FIRST, LAST, MEAN
from octavo.system.free_memory import FreeMemory

TEXT = "The keeper of the island wrote every evening."
LONG = TEXT * 40  # several batches


@pytest.fixture(scope="module", params=[("qwen3", LAST), ("llama", MEAN), ("gemma3", MEAN), ("llama", FIRST)])
def model(request, tmp_path_factory):
    """A model for embeddings, as Qwen3-Embedding is one: decoder-only, and its texts end with a token."""
    architecture, pooling = request.param
    path = tmp_path_factory.mktemp("model") / "embedder.gguf"
    return tiny_models.write_model(path, architecture, pooling=pooling, add_eos=True)


@pytest.fixture(scope="module")
def embedder(model, tmp_path_factory):
    """A server on it."""
    with serving(model, tmp_path_factory.mktemp("library")) as server:
        yield server


@pytest.fixture(scope="module")
def expected(model):
    """Compute an embedding with llama-cpp-python."""
    llama = llama_cpp.Llama(str(model), embedding=True, n_ctx=2048, n_batch=2048, n_ubatch=2048, verbose=False)
    yield lambda text: np.array(llama.embed(text, normalize=True))
    llama.close()


def vectors(answer):
    return [np.array(each["embedding"]) for each in answer["data"]]


def test_embeddings_are_those_of_llama_cpp(embedder, expected):
    texts = [LONG, TEXT, "x"]
    answer = embedder.post("/v1/embeddings", input=texts, model="embedder")
    tokens = embedder.server.engine.llama.tokenize(TEXT.encode())
    mixed = embedder.post("/v1/embeddings", input=[TEXT, list(tokens)])["data"]
    assert mixed[0]["embedding"] == mixed[1]["embedding"] == answer["data"][1]["embedding"]
    for text, vector in zip(texts, vectors(answer), strict=True):
        assert expected(text) @ vector > 0.9999
        assert np.linalg.norm(vector) == pytest.approx(1)
    assert [each["index"] for each in answer["data"]] == [0, 1, 2]
    n_tokens = sum(len(embedder.server.engine.llama.tokenize(text.encode())) for text in texts)
    assert n_tokens > 512
    assert answer["usage"] == {"prompt_tokens": n_tokens, "total_tokens": n_tokens}
    assert (answer["object"], answer["data"][0]["object"]) == ("list", "embedding")


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    """A server on a model for embeddings that answers, too."""
    folder = tmp_path_factory.mktemp("one")
    path = tiny_models.write_model(folder / "one.gguf", "llama", pooling=LAST, add_eos=True)
    with serving(path, folder / "library") as server:
        yield server


def test_base64_holds_the_same_numbers(one):
    [vector] = vectors(one.post("/v1/embeddings", input=TEXT, dimensions=128))
    encoded = one.post("/v1/embeddings", input=TEXT, encoding_format="base64")["data"][0]["embedding"]
    np.testing.assert_array_equal(np.frombuffer(base64.b64decode(encoded), "<f4"), vector.astype(np.float32))


def test_tokens_are_a_text(one):
    tokens = list(one.server.engine.llama.tokenize(TEXT.encode()))
    assert tokens[-1] == tiny_models.IM_END
    [by_text] = vectors(one.post("/v1/embeddings", input=TEXT))
    for form in (tokens, [tokens]):
        np.testing.assert_array_equal(vectors(one.post("/v1/embeddings", input=form))[0], by_text)


def test_control_tokens_in_a_text_are_text(one):
    answer = one.post("/v1/embeddings", input="<|im_end|>")
    assert answer["usage"]["prompt_tokens"] > 2


def test_answers_and_embeddings_do_not_disturb_each_other(one):
    asked = {"prompt": TEXT, "max_tokens": 48, "temperature": 0}
    text = one.post("/v1/completions", **asked)["choices"][0]["text"]
    [vector] = vectors(one.post("/v1/embeddings", input=LONG))
    with ThreadPoolExecutor(3) as pool:
        embeddings = [pool.submit(one.post, "/v1/embeddings", input=LONG) for _ in range(3)]
        answers = [one.post("/v1/completions", **asked) for _ in range(3)]
    assert [answer["choices"][0]["text"] for answer in answers] == [text] * 3
    for embedding in embeddings:
        np.testing.assert_array_equal(vectors(embedding.result())[0], vector)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"input": ""}, "Text 1 is empty."),
        ({"input": ["a", ""]}, "Text 2 is empty."),
        ({"input": []}, "There is no text."),
        ({"input": [[1], []]}, "Text 2 is empty."),
        ({"input": [[999_999]]}, "Text 1 has a token that is not one of the model's 271."),
        ({"input": {"a": 1}}, "input"),
        ({}, "input: Field required."),
        ({"input": "a", "encoding_format": "int8"}, "encoding_format: "),
        ({"input": "a", "dimensions": 64}, "Embeddings of tiny have 128 dimensions, and none are cut off"),
        ({"input": ["a"] * 2049}, "One request has at most 2,048 texts."),
        ({"input": [[1] * 2049]}, "Text 1 has 2,049 tokens, and the context has 2,048: send it in pieces"),
    ],
)
def test_what_cannot_be_done_is_refused(one, body, message):
    status, error = one.refused("/v1/embeddings", **body)
    assert status == 400
    assert error["type"] == "invalid_request_error"
    assert message in error["message"]


def test_a_text_may_fill_the_context(one):
    assert one.post("/v1/embeddings", input=[[1] * 2048])["usage"]["total_tokens"] == 2048


def test_a_model_without_pooling_says_what_to_do(served):
    status, error = served.refused("/v1/embeddings", input=TEXT)
    assert status == 400
    assert error["message"] == (
        "tiny computes no embeddings, as its header names no way to pool them: start `octavo serve` with a model for "
        "embeddings, such as Qwen3-Embedding."
    )


def test_memory_that_does_not_suffice_is_said(one, monkeypatch):
    one.server.embeddings.close()
    monkeypatch.setattr("octavo.system.free_memory.free_memory", lambda: FreeMemory(1 << 20, "are free"))
    status, error = one.refused("/v1/embeddings", input="a")
    assert status == 500
    assert "Computing an embedding of up to 512 tokens needs 0.00 GiB more" in error["message"]
    monkeypatch.undo()
    one.post("/v1/embeddings", input="a")
