"""Outcomes made by hand and small evaluations, for the tests in evaluation/."""

import json

import numpy as np

from octavo.evaluation.evaluate import Evaluation, Settings
from octavo.evaluation.measures import log_softmax
from octavo.evaluation.samples import Outcome
from octavo.evaluation.tasks import task_class
from octavo.evaluation.tasks.fixed_context import FixedContext
from octavo.evaluation.tasks.needle import Needle, Passkey
from octavo.evaluation.tasks.prediction import Agreement, Perplexity
from octavo.evaluation.tasks.qa import QA
from octavo.evaluation.tasks.repetition import Repetition
from octavo.progress import Silent
from octavo.runtime.methods.attention import Attention
from octavo.runtime.store.model_library import Library

PROSE = (Perplexity(), Repetition(), Passkey(), Needle(), Agreement())  # texts of exactly the requested depth
WRITTEN = (Repetition(), Passkey(), Needle(), QA(), FixedContext())  # the model writes its answers

#: Figures that no two runs share.
TIMES = ("first_token_s", "seconds")


def outcome(text="", tokens=(), log_probs=None, bytes_read=(), attention=None):
    return Outcome(list(tokens), text, log_probs, list(bytes_read), attention, 0.0, 0.0)


def distributions(rows):
    """Return the log-probabilities of rows of probabilities."""
    return np.log(np.array(rows, np.float64)).astype(np.float32)


def random_log_probs(rng, n_steps, n_vocab):
    return log_softmax(rng.standard_normal((n_steps, n_vocab))).astype(np.float32)


def certain(tokens, n_vocab):
    """Return log-probabilities of a model that expects just these tokens."""
    logits = np.zeros((len(tokens), n_vocab))
    logits[np.arange(len(tokens)), tokens] = 60
    return log_softmax(logits).astype(np.float32)


def noise(llama, sample, rng):
    """Return what a model makes of a sample whose attention reads noise."""
    n = len(sample.continuation) or sample.n_predict
    tokens = rng.integers(llama.n_vocab(), size=n).tolist()
    text = llama.detokenize(tokens).decode("utf-8", "replace")
    return outcome(text, tokens, random_log_probs(rng, n, llama.n_vocab()))


def perfect(llama, sample):
    """Return what a model makes of a sample that knows the answer."""
    tokens = sample.continuation or [0]
    return outcome(sample.answers[0], tokens, certain(tokens, llama.n_vocab()))


def mean_score(task, llama, texts, answer):
    """Return the mean score of all samples. `answer` makes an outcome of a sample; dense attention is perfect."""
    scores = [task.score(s, answer(s), perfect(llama, s))["score"] for text in texts for s in text.samples]
    return float(np.mean(scores))


def decoded(llama, tokens):
    return llama.detokenize(tokens, special=True).decode("utf-8", "replace")


def write_json(path, content):
    path.write_text(json.dumps(content), "utf-8")
    return path


def fact(number):
    return f"The keeper of lighthouse {number} is called Petrel{number}. "


def documents_of(path, *sizes):
    """Write data for fixed-context: a document for each number of facts, with four questions each."""
    return write_json(
        path,
        [
            {
                "document": "".join(fact(number) for number in range(n)),
                "questions": [
                    {"question": f"Who keeps lighthouse {number}?", "answers": [f"Petrel{number}"]}
                    for number in range(4)
                ],
            }
            for n in sizes
        ],
    )


def evaluation(
    llama,
    folder,
    task="agreement",
    progress=None,
    notice=None,
    workers=None,
    attentions=("dense",),
    plan=None,
    **settings,
):
    """Return an evaluation of a model: by default two samples at 300 tokens under dense attention.

    task : its name, or itself
    """
    chosen = task_class(task)() if isinstance(task, str) else task
    attentions = [Attention.parse(words, plan=plan) for words in attentions]
    default = {"attentions": attentions, "budgets": [0.8], "depths": [300], "n_samples": 2, "seed": 0}
    settings = Settings(**{**default, "data": chosen.data, **settings})
    library = Library.of(llama.model_path, folder)
    return Evaluation(
        llama, library, chosen, settings, progress or Silent(), notice or (lambda sentence: None), workers
    )


def evaluate(llama, folder, *arguments, **settings):
    return evaluation(llama, folder, *arguments, **settings).run()


def timeless(result):
    """Return the rows without the figures that differ between any two runs."""
    return [{name: value for name, value in row.items() if name not in TIMES} for row in result["results"]]
