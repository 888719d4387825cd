"""A hybrid model's prompts: a turn computes its new tokens only, as the recurrent state was kept where turns part."""

import itertools
from concurrent.futures import ThreadPoolExecutor

import pytest
from helpers import tiny_models, zoo
from helpers.index_builds import text_of
from helpers.served import serving

LONG = [3 + (7 * i + i // 11) % 200 for i in range(1400)]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("hybrid") / "model.gguf"
    return zoo.write_model(path, "qwen35", chat_template=tiny_models.CHAT_TEMPLATE, context_length=4096)


@pytest.fixture
def served(model, tmp_path):
    with serving(model, tmp_path) as served:
        yield served


def complete(served, tokens, n=4, **more):
    return served.post("/v1/completions", prompt=tokens, max_tokens=n, **more)


def cached(answer):
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def text(answer):
    return answer["choices"][0]["text"]


def test_a_prompt_that_comes_again_is_computed_from_its_last_state(served):
    first = complete(served, LONG)
    assert cached(first) == 0
    again = complete(served, LONG)
    assert cached(again) == len(LONG) - 32
    assert text(again) == text(first)
    assert cached(complete(served, [*LONG[:1390], 4, 4])) == len(LONG) - 32
    assert cached(complete(served, [*LONG[:1200], 4, 4])) == 1024
    assert cached(complete(served, LONG[:900] + [5] * 40)) == 0


def test_a_second_turn_computes_only_what_is_new(served):
    messages = [{"role": "user", "content": text_of(1200)}]
    first = served.post("/v1/chat/completions", model="tiny", messages=messages, max_tokens=20, temperature=0)
    messages += [first["choices"][0]["message"], {"role": "user", "content": "And now?"}]
    second = served.post("/v1/chat/completions", model="tiny", messages=messages, max_tokens=20, temperature=0)
    n_first, n_second = (answer["usage"]["prompt_tokens"] for answer in (first, second))
    assert cached(second) >= n_first - 32
    assert n_second - cached(second) < 100


def test_many_conversations_at_once_answer_as_they_do_alone(model, tmp_path):
    prompts = [LONG[i : 200 + 40 * i] for i in range(6)]
    with serving(model, tmp_path / "alone", n_parallel=1) as served:
        alone = [text(complete(served, prompt, 12)) for prompt in prompts]
    with serving(model, tmp_path / "at once", n_parallel=3) as served:
        for _ in range(2):  # the second time from what was kept
            with ThreadPoolExecutor(6) as pool:
                together = list(pool.map(lambda prompt: text(complete(served, prompt, 12)), prompts))
            assert sum(a == b for a, b in zip(together, alone, strict=True)) >= 5  # of two close logits either may win


def test_a_prompt_shares_what_another_holds(served):
    never = {str(token): -100 for token in range(250, served.server.engine.llama.n_vocab())}
    with ThreadPoolExecutor(2) as pool:
        running = pool.submit(complete, served, LONG, 300, logit_bias=never)
        sequences = served.server.engine.sequences
        while not any(sequence.n_tokens >= len(LONG) for sequence in sequences._running):
            assert not running.done()
        assert cached(complete(served, [*LONG[:1395], 9, 9])) == len(LONG) - 32
        assert running.result()["usage"]["completion_tokens"] == 300


def test_prompts_survive_a_restart(model, tmp_path):
    with serving(model, tmp_path) as served:
        first = complete(served, LONG, 8)
    with serving(model, tmp_path) as served:
        again = complete(served, [*LONG[:1395], *LONG[1395:]], 8)
        assert cached(again) == len(LONG) - 32
        assert text(again) == text(first)


def test_a_prompt_that_begins_as_a_document_starts_from_its_state(served):
    document = text_of(1500, seed=3)
    file = served.read("document.txt", document.encode())
    assert file["status"] == "processed"
    body = {
        "model": "tiny",
        "messages": [{"role": "user", "content": "What?"}],
        "max_tokens": 4,
        "temperature": 0,
        "document": file["id"],
    }
    answer = served.post("/v1/chat/completions", **body)
    assert cached(answer) > 1000
    assert answer["usage"]["prompt_tokens"] - cached(answer) < 60


def test_excerpts_are_read_while_answers_go_on(served, monkeypatch):
    """A batch of excerpts at a time, and a token of each answer between two of them."""
    names = [served.read(f"{seed}.note", text_of(700, seed=seed).encode())["id"] for seed in (1, 2)]
    engine = served.server.engine
    body = {
        "model": "tiny",
        "messages": [{"role": "user", "content": "Which?"}],
        "max_tokens": 4,
        "temperature": 0,
        "document": names,
        "reads": "excerpts",
    }
    turns, llama, answer = [], engine.llama, engine._answer
    read = llama.prefill
    monkeypatch.setattr(llama, "prefill", lambda tokens, *steps: turns.append(len(tokens)) or read(tokens, *steps))
    monkeypatch.setattr(engine, "_answer", lambda answering: turns.append("answer") or answer(answering))
    never = {str(token): -100 for token in range(250, llama.n_vocab())}
    with ThreadPoolExecutor(2) as pool:
        running = pool.submit(complete, served, LONG, 400, logit_bias=never)
        while turns.count("answer") < 5:
            assert not running.done()
        beside = served.post("/v1/chat/completions", **body)["choices"][0]["message"]["content"]
        between = turns[turns.index("answer") :]
        assert running.result()["usage"]["completion_tokens"] == 400
    alone = served.post("/v1/chat/completions", **body)["choices"][0]["message"]["content"]
    assert alone == beside
    room = llama.n_batch // 4
    assert max(turn for turn in between if turn != "answer") <= room
    batches = [number for number, turn in enumerate(between) if turn == room]
    assert len(batches) >= 1024 // room  # of the excerpts: the question is shorter
    assert all("answer" in between[one:other] for one, other in itertools.pairwise(batches))


def test_a_document_is_asked_while_it_is_being_read(served):
    served.hold()
    file = served.upload("book.txt", text_of(3000, seed=5).encode())
    body = {"messages": [{"role": "user", "content": "Which?"}], "document": file["id"], "max_tokens": 4}
    first, again = (served.post("/v1/chat/completions", model="tiny", temperature=0, **body) for _ in range(2))
    assert first["basis"]["kind"] == again["basis"]["kind"] == "excerpts"
    assert first["choices"] == again["choices"]
