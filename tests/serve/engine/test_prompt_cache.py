"""Prompts on disk are shared by servers, each of which may remove them."""

from types import SimpleNamespace

import numpy as np
import pytest

from octavo.errors import OctavoError
from octavo.serve.engine import prompt_cache
from octavo.serve.engine.prompt_cache import PromptCache


@pytest.fixture(autouse=True)
def _plain_files(monkeypatch):
    """Write tokens alone."""

    def read(path, *arguments, checked=True):
        if not path.exists():
            raise OctavoError("It is missing.")
        return conversation(*map(int, path.read_text().split()))

    def write(path, kept, *arguments):
        path.parent.mkdir(exist_ok=True)
        path.write_text(" ".join(map(str, kept.tokens)))

    monkeypatch.setattr(prompt_cache, "read_conversation", read)
    monkeypatch.setattr(prompt_cache, "write_conversation", write)


def conversation(*tokens):
    return SimpleNamespace(tokens=tokens, follows="", rows=[[np.zeros(4, np.uint8)]], states=[])


def cache(folder):
    return PromptCache(folder, None, 1 << 20)


def test_a_prompt_that_another_server_removes_while_it_is_read_serves(tmp_path, monkeypatch):
    first = cache(tmp_path)
    first._write(conversation(1, 2, 3))
    second = cache(tmp_path)
    _, found = second.longest("", np.array([1, 2, 3, 4]))
    read = prompt_cache.read_conversation

    def and_it_goes(path, *arguments, **more):
        kept = read(path, *arguments, **more)
        path.unlink()
        return kept

    with monkeypatch.context() as patched:
        patched.setattr(prompt_cache, "read_conversation", and_it_goes)
        assert second.read(found).tokens == (1, 2, 3)
    with pytest.raises(OctavoError, match="missing"):
        first.read(first.longest("", np.array([1, 2, 3]))[1])
    assert first.longest("", np.array([1, 2, 3])) == (0, None)


def test_a_server_begins_while_another_one_removes_prompts(tmp_path, monkeypatch):
    first = cache(tmp_path)
    for token in range(3):
        first._write(conversation(token))
    paths = sorted(tmp_path.iterdir())
    by_age = prompt_cache.by_age

    def and_one_goes(found):
        paths[0].unlink()
        oldest = by_age(found)
        paths[1].unlink()
        return oldest

    monkeypatch.setattr(prompt_cache, "by_age", and_one_goes)
    assert cache(tmp_path).n_bytes == paths[2].stat().st_size


def test_a_prompt_that_goes_as_soon_as_it_is_written_is_not_kept(tmp_path, monkeypatch):
    written, write = cache(tmp_path), prompt_cache.write_conversation

    def and_it_goes(path, *arguments):
        write(path, *arguments)
        path.unlink()

    monkeypatch.setattr(prompt_cache, "write_conversation", and_it_goes)
    written._write(conversation(1, 2))
    assert written.n_bytes == 0
