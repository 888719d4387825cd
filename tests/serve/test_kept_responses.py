"""Responses that are kept: in all, they take no more memory than they may."""

import pytest

from octavo.serve import kept_responses
from octavo.serve.kept_responses import Item, KeptResponse, KeptResponses
from octavo.serve.request_error import RequestError


def response(number, **more):
    return KeptResponse({"id": f"resp_{number}", **more}, [Item.of({"role": "user", "content": "Hello."})], [], [])


@pytest.mark.parametrize("field", ["tools", "instructions", "output", "metadata"])
def test_all_that_a_response_repeats_counts(monkeypatch, field):
    monkeypatch.setattr(kept_responses, "_MOST_CHARACTERS", 50_000)
    kept = KeptResponses()
    for number in range(100):
        kept.keep(response(number, **{field: ["x" * 5000]}))
    assert 5 < len(kept._kept) < 10
    assert kept.get("resp_99").response[field] == ["x" * 5000]
    with pytest.raises(RequestError, match="There is no response resp_0"):
        kept.get("resp_0")
    for number in range(100):
        kept.keep(response(number))
    assert len(kept._kept) == 100


def test_what_is_removed_leaves_its_room(monkeypatch):
    kept = KeptResponses()
    kept.keep(response(1, tools=["x" * 5000]))
    kept.remove("resp_1")
    assert kept._length == 0
