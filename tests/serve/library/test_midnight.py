"""A server of a model whose template writes the date: documents outlive the day, a restart, and midnight itself."""

from datetime import datetime

from helpers import tiny_models
from helpers.served import serving

TEMPLATE = tiny_models.CHAT_TEMPLATE.replace("{% for", "Today: {{ strftime_now('%d %B %Y') }}\n{% for", 1)
TEXT = b"The keeper saw many ships pass the island, and wrote each of them down in his log. " * 8


def test_documents_outlive_the_day(tmp_path, monkeypatch):
    """Uploads are read in processes of their own, whose clock is today's: that of the server is another."""
    model = tiny_models.write_model(tmp_path / "tiny.gguf", "llama", chat_template=TEMPLATE)

    def answered(served, file):
        body = {"model": "tiny", "document": file, "messages": [{"role": "user", "content": "Who?"}], "max_tokens": 4}
        return served.post("/v1/chat/completions", **body)["usage"]

    for time in (datetime(2001, 5, 31), datetime(2001, 9, 30)):
        monkeypatch.setattr("octavo.prompts.chat_template.now", lambda time=time: time)
        with serving(model, tmp_path / "library") as served:
            known = [file["id"] for file in served.client.get("/v1/files").json()["data"]]
            file = served.read(f"{time.month}.txt", TEXT + str(time).encode())
            assert file["status"] == "processed"
            for each in (*known, file["id"]):
                usage = answered(served, each)
                assert usage["prompt_tokens_details"]["cached_tokens"] >= file["tokens"] - 9
            monkeypatch.setattr("octavo.prompts.chat_template.now", lambda: datetime(2001, 10, 1))
            assert answered(served, file["id"])["prompt_tokens_details"]["cached_tokens"] >= file["tokens"] - 9
    assert len(known) == 1
