"""The examples of README and docs/server.md that call `curl` run as they stand."""

import json
import re
import subprocess

import pytest
from helpers.product import ROOT
from helpers.served import serving
from helpers.talking_model import ANSWER, write_model

PAGES = ["README.md", "docs/server.md"]
ADDRESS = "http://127.0.0.1:8080"
REPORT = "\n".join(f"In year {year} the auditors objected to {year * 3} bills." for year in range(40))


def examples(page):
    return re.findall(r"^```sh\n(.*?)^```", (ROOT / page).read_text("utf-8"), re.M | re.S)


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A server of these tests alone, as its library is part of what the examples tell."""
    folder = tmp_path_factory.mktemp("examples")
    with serving(write_model(folder / "talking.gguf"), folder / "library") as served:
        yield served


@pytest.mark.parametrize("page", PAGES)
def test_examples_run(own, page, tmp_path):
    for name in ("report.txt", "examples/encyclopedia.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(REPORT)
    answers = []
    for example in examples(page):
        commands = example.replace(ADDRESS, own.url).replace("curl -s", r"curl --fail-with-body -sS -w '\n'")
        run = subprocess.run(["bash", "-euc", commands], cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert run.returncode == 0, run.stdout + run.stderr
        answers += [json.loads(line) for line in run.stdout.splitlines() if line]
    chats = [each for each in answers if "choices" in each]
    messages = [each["content"][0]["text"] for each in answers if each.get("type") == "message"]
    assert {*messages, *(each["choices"][0]["message"]["content"] for each in chats)} == {ANSWER}
    assert max(each["usage"]["prompt_tokens_details"]["cached_tokens"] for each in chats) > 500
    assert bool(messages) == (page != "README.md")
