"""Lists of models in the forms of LM Studio's and Anthropic's clients; OpenAI's is in test_status.py."""

from datetime import datetime

import anthropic
import pytest

from octavo.serve.apis.model_card import described_header

VERSION = {"anthropic-version": "2023-06-01"}


def test_lm_studios_clients_find_state_and_context(talking):
    [model] = talking.client.get("/api/v0/models").json()["data"]
    known = {"id": "tiny", "object": "model", "type": "llm", "arch": "llama", "quantization": "F32", "state": "loaded"}
    assert model == {
        **known,
        "publisher": "",
        "compatibility_type": "gguf",
        "max_context_length": 4096,
        "loaded_context_length": 2048,
    }
    assert talking.client.get("/api/v0/models/tiny").json() == model
    answer = talking.client.get("/api/v0/models/other")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")


def test_a_header_describes_a_model_that_is_not_loaded(tiny_model, tmp_path):
    described = described_header(tiny_model)
    assert described == {"type": "llm", "arch": "llama", "max_context_length": 4096}
    (tmp_path / "no.gguf").write_text("no")
    assert described_header(tmp_path / "no.gguf") == described_header(tmp_path / "gone.gguf") == {}


def test_anthropics_client_lists_models(talking):
    with anthropic.Anthropic(base_url=talking.url, api_key="none", max_retries=0) as client:
        [model] = client.models.list()
        assert (model.id, model.type, model.display_name, model.max_input_tokens) == ("tiny", "model", "tiny", 2048)
        assert model.created_at.timestamp() == talking.server.started
        assert client.models.retrieve("tiny") == model
        with pytest.raises(anthropic.NotFoundError) as raised:
            client.models.retrieve("other")
    assert raised.value.body["error"]["type"] == "not_found_error"


def test_anthropics_list_has_pages(talking):
    page = talking.client.get("/v1/models", headers=VERSION).json()
    assert {name: page[name] for name in ("first_id", "last_id", "has_more")} == {
        "first_id": "tiny",
        "last_id": "tiny",
        "has_more": False,
    }
    assert datetime.fromisoformat(page["data"][0]["created_at"]).tzinfo is not None
    after = talking.client.get("/v1/models", headers=VERSION, params={"after_id": "tiny", "limit": 1000}).json()
    assert (after["data"], after["first_id"]) == ([], None)
    wrong = talking.client.get("/v1/models", headers=VERSION, params={"limit": 1001})
    assert (wrong.status_code, wrong.json()["type"]) == (400, "error")
