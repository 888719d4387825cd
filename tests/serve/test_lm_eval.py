"""lm-eval's `local-completions`, unmodified, measures through the server what llama-cpp-python computes by itself.

`make test-lm-eval` installs lm-eval and runs this. The task is made here: nothing is fetched.
"""

import json
import os
import random
import subprocess

import llama_cpp
import numpy as np
import pytest
from helpers.served import serving

import octavo

#: Python of the environment that has lm-eval.
PYTHON = os.environ.get("OCTAVO_TEST_LM_EVAL")
pytestmark = pytest.mark.skipif(not PYTHON, reason="make test-lm-eval installs lm-eval and runs it")

N_QUESTIONS = 20
SHIPS = ["Petrel", "Aurora", "Northern Star", "Hirondelle", "Gannet", "Queen of the Isles", "Marigold", "Albatross"]
PORTS = ["Bergen", "Lisbon", "Saint-Malo", "Hull", "Trieste", "Reykjavik", "Cork", "Valparaiso"]
CARGOES = ["salt", "dried cod", "oranges", "railway iron", "wool", "glass", "coffee", "timber"]
TASK = """\
task: harbour
dataset_path: json
dataset_kwargs:
  data_files:
    test: {questions}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{text}}}}\\nQuestion: {{{{question}}}}\\nAnswer:"
doc_to_choice: choices
doc_to_target: label
metric_list:
  - metric: acc
  - metric: acc_norm
"""


def made_questions():
    """Questions about ships in a harbour, each with a text that answers it and four choices."""
    rng = random.Random(19)
    for _ in range(N_QUESTIONS):
        ships, ports, cargoes = (rng.sample(words, 4) for words in (SHIPS, PORTS, CARGOES))
        text = " ".join(
            f"The {ship} came from {port} in {rng.randrange(1850, 1900)}, laden with {cargo}."
            for ship, port, cargo in zip(ships, ports, cargoes, strict=True)
        )
        label = rng.randrange(4)
        question, choices = rng.choice(
            [
                (f"Which ship came from {ports[label]}?", [f"The {ship}" for ship in ships]),
                (f"Where did the {ships[label]} come from?", ports),
                (f"What was the {ships[label]} laden with?", cargoes),
            ]
        )
        yield {"text": text, "question": question, "choices": choices, "label": label}


@pytest.fixture(scope="module")
def questions():
    return list(made_questions())


def by_lm_eval(url, questions, folder):
    """Have lm-eval ask a server; returns the log probabilities of all choices, and the accuracies."""
    file = folder / "questions.jsonl"
    file.write_text("".join(json.dumps(each) + "\n" for each in questions))
    (folder / "harbour.yaml").write_text(TASK.format(questions=file))
    settings = f"model=tiny,base_url={url}/v1/completions,num_concurrent=4,max_length=2048"
    command = [PYTHON, "-m", "lm_eval", "run", "--model", "local-completions", "--model_args", settings]
    command += ["--tasks", "harbour", "--include_path", str(folder), "--log_samples", "--output_path", str(folder)]
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(folder / "cache")}
    run = subprocess.run(command, capture_output=True, text=True, env=os.environ | offline)
    assert run.returncode == 0, run.stderr
    [samples] = folder.glob("**/samples_harbour_*.jsonl")
    told = sorted(map(json.loads, samples.read_text().splitlines()), key=lambda each: each["doc_id"])
    [results] = folder.glob("**/results_*.json")
    known = json.loads(results.read_text())["results"]["harbour"]
    logprobs = np.array([[float(choice[0]) for choice in each["filtered_resps"]] for each in told])
    return logprobs, known["acc,none"], known["acc_norm,none"]


def by_itself(kind, model, questions, **settings):
    """Compute the log probabilities of all choices with a `llama_cpp.Llama`, or octavo's, alone."""
    llama = kind(str(model), n_ctx=1024, n_batch=512, n_threads=2, logits_all=True, verbose=False, **settings)
    known = []
    for each in questions:
        before = f"{each['text']}\nQuestion: {each['question']}\nAnswer:"
        n_before = len(llama.tokenize(before.encode(), add_bos=False, special=True))
        for number, choice in enumerate(each["choices"]):
            tokens = llama.tokenize(f"{before} {choice}".encode(), add_bos=False, special=True)
            llama.n_tokens = n_before if number else 0  # what comes after that is read
            llama.eval(tokens[llama.n_tokens :])
            rows = llama.scores[n_before - 1 : len(tokens) - 1].astype(np.float64)
            rows -= np.log(np.exp(rows - rows.max(1, keepdims=True)).sum(1, keepdims=True)) + rows.max(1, keepdims=True)
            known.append(sum(row[token] for row, token in zip(rows, tokens[n_before:], strict=True)))
    llama.close()
    return np.array(known).reshape(-1, 4)


def accuracies(logprobs, questions):
    """The shares of questions whose likeliest choice is right: of all, and by the choices' lengths."""
    labels = [each["label"] for each in questions]
    lengths = np.array([[len(choice) for choice in each["choices"]] for each in questions])
    return [float(np.mean(values.argmax(1) == labels)) for values in (logprobs, logprobs / lengths)]


def served_and_alone(model, questions, folder, attention):
    """What lm-eval measures through a server, and what octavo and llama.cpp's two modes compute alone."""
    with serving(model, folder / "library", attention=attention) as served:
        found, acc, acc_norm = by_lm_eval(served.url, questions, folder)
    octavo_alone = by_itself(octavo.Llama, model, questions, attention=attention)
    modes = [by_itself(llama_cpp.Llama, model, questions, flash_attn=flash) for flash in (False, True)]
    noise = np.abs(modes[0] - modes[1])
    print(f"\n{model.name}, {attention}: acc {acc:.3f}, acc_norm {acc_norm:.3f}")
    for name, known in (("octavo alone", octavo_alone), ("llama.cpp", modes[0]), ("with flash attention", modes[1])):
        differs, shares = np.abs(found - known), accuracies(known, questions)
        print(f"{name}: {differs.mean():.4f} off on average, {differs.max():.4f} at most; acc {shares[0]:.3f}")
    print(f"llama.cpp's two modes differ by {noise.mean():.4f} on average, {noise.max():.4f} at most")
    assert [acc, acc_norm] == pytest.approx(accuracies(found, questions))
    assert found.shape == (N_QUESTIONS, 4)
    return found, octavo_alone, modes, noise


def test_lm_eval_measures_what_llama_cpp_computes(tiny_model, questions, tmp_path):
    found, alone, modes, _ = served_and_alone(tiny_model, questions, tmp_path, "dense")
    np.testing.assert_allclose(found, alone, atol=0.02)
    np.testing.assert_allclose(found, modes[0], atol=0.02)
    assert accuracies(found, questions) == accuracies(modes[0], questions)


def test_a_real_model_is_as_near_as_llama_cpps_modes_are(real_model, questions, tmp_path):
    """Weights of 4 bits and values of 8 make each of them differ from the others."""
    found, alone, modes, noise = served_and_alone(real_model, questions, tmp_path, "dense")
    np.testing.assert_allclose(found, alone, atol=0.02)
    assert min(np.abs(found - mode).mean() for mode in modes) < 1.5 * noise.mean()
    assert accuracies(found, questions) == pytest.approx(accuracies(modes[0], questions), abs=2 / N_QUESTIONS)
