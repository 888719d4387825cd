"""llm-comply, unmodified: a program that checks servers against the published schemas of three APIs."""

import json
import subprocess
import sys

import pytest

#: The APIs that it knows and octavo has, and how a key is sent to each.
APIS = {
    "openai-chat": [],
    "open-responses": [],
    "anthropic": ["--auth-header", "x-api-key", "--no-bearer", "--header", "anthropic-version:2023-06-01"],
}


#: What it wants to be refused and octavo takes, as llama.cpp's server does: a request that names no model.
TAKEN = {"openai-chat": {"chat-error-handling"}, "open-responses": {"error-handling"}, "anthropic": set()}


@pytest.mark.parametrize("api", APIS)
def test_answers_keep_to_the_schemas(talking, api):
    command = [sys.executable, "-m", "llm_comply.cli", "--format", api, *APIS[api], "--json"]
    told = ["--base-url", f"{talking.url}/v1", "--api-key", "none", "--model", "tiny"]
    run = subprocess.run([*command, *told], capture_output=True, text=True)
    results = {each["id"]: each for each in json.loads(run.stdout)["results"]}
    failed = {name: each for name, each in results.items() if each["status"] == "failed"}
    [image] = [name for name in results if "image" in name]
    assert failed.keys() == {image, *TAKEN[api]}, failed
    assert "HTTP 400" in failed[image]["errors"][0]
    assert len(results) >= 8
    assert [each["warnings"] for name, each in results.items() if each.get("warnings") and "compact" not in name] == []
