"""Bring a model to the end of a text under any attention, and take what it makes of samples.

Samples are read one token at a time, the question too: so every step selects, as in decoding, and no method is helped
by a batch that attends densely (Quest, Tang et al. 2024, section 4.3.1, feeds its questions so as well).
"""

from __future__ import annotations

import codecs
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from ..convert.clusters import document_layers, settings_for, whole_layer
from ..convert.index import IndexBuilder, calibrate, identity, open_index
from ..convert.progress import Progress
from ..runtime.cache.index import Index
from ..runtime.cache.kv_cache import Checkpoint
from ..runtime.llama import Llama
from ..runtime.store.library import Library
from .samples import Outcome, Sample, log_softmax

#: What llama.cpp's graphs call the output of a layer's attention, before it is projected.
_ATTENTION_OUTPUT = re.compile(r"kqv_out-(\d+)")


class Reader:
    """One model, and where it is: at the end of a text, with or without a sample's tokens after it."""

    def __init__(self, llama: Llama, progress: Progress, n_jobs: int) -> None:
        self.llama, self.progress, self.n_jobs = llama, progress, n_jobs
        self.settings = settings_for(llama.context.kv_type)
        self._n_text = 0
        self._checkpoint: Checkpoint | None = None
        self._attending: tuple[Index, str, float] | None = None

    def read(self, tokens: list[int], clusters: bool) -> Index:
        """Read a text densely. Without `clusters` it holds rows only, for methods that need no more."""
        llama, cache = self.llama, self.llama.context.cache
        self._attending = None
        llama.reset()
        llama.set_attention("dense")
        n_last = max(1, min(self.settings.exact_last, len(tokens) - 1))
        self.progress.start(f"Reading {len(tokens):,} tokens", len(tokens), "tokens")
        self._evaluate(tokens[:-n_last])
        with llama.context.captured_queries(n_last) as queries:
            self._evaluate(tokens[-n_last:])
        if clusters:
            self.progress.start("Clustering keys", len(cache.layers), "layers")
            layers = []
            for layer in document_layers(cache, range(len(cache.layers)), self.settings, self.n_jobs):
                layers.append(layer)
                self.progress.advance(1)
        else:
            layers = [whole_layer(*cache.rows(i), layer.window) for i, layer in enumerate(cache.layers)]
        return calibrate(llama, layers, queries, tokens, self.settings)

    def index(self, library: Library, name: str, text: str) -> Index:
        """The index of a user's document, made first where there is none."""
        llama = self.llama
        self._attending = None
        llama.reset()
        llama.set_attention("dense")
        path = library.index_path(name, text, identity(llama, self.settings))
        if not path.exists():
            IndexBuilder(llama, library, path, name, text, self.settings, self.progress, self.n_jobs).build()
        return open_index(path, library.model_hash)[0]

    def attend(self, document: Index, attention: str, budget: float) -> None:
        """Be at the end of a text under an attention: one that evicts reads it itself, others what was read of it.

        Raises OctavoError where the budget is too small for this document.
        """
        llama, wanted = self.llama, (document, attention, budget)
        if self._attending and self._attending[0] is document and self._attending[1:] == wanted[1:]:
            self.back()
            return
        self._attending = None
        llama.reset()
        llama.set_attention(attention, budget)
        if llama.context.cache.evicts:
            tokens = document.tokens.tolist()
            self.progress.start(f"Reading {len(tokens):,} tokens by {attention}", len(tokens), "tokens")
            self._evaluate(tokens)
            self._checkpoint = llama.context.cache.checkpoint()
        else:
            llama.attach(document)
            self._checkpoint = None
        self._n_text, self._attending = len(document.tokens), wanted

    def back(self) -> None:
        """Forget what came after the text."""
        if self._checkpoint is None:
            self.llama.rewind(self._n_text)
        else:
            self.llama.context.cache.restore(self._checkpoint)
            self.llama.n_tokens = self._n_text

    def answer(self, sample: Sample, attention_too: bool = False, in_batches: bool = False) -> Outcome:
        """Read a sample's prompt, and predict its continuation or write an answer, greedily.

        in_batches : read the prompt in batches, as `ask` does
        """
        start = time.perf_counter()
        bytes_read: list[int] = []
        if in_batches:
            self.llama.eval(sample.prompt)
        else:
            for token in sample.prompt[:-1]:
                bytes_read.append(self._step(token))
        tokens: list[int] = []
        log_probs: list[np.ndarray] = []
        outputs: list[np.ndarray] = []
        text, first_token_s = "", 0.0
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        token = sample.prompt[-1]
        for i in range(len(sample.continuation) or sample.n_predict):
            if i or not in_batches:
                if attention_too:
                    with self._watched() as layers:
                        bytes_read.append(self._step(token))
                    outputs.append(np.stack(layers))
                else:
                    bytes_read.append(self._step(token))
            log_probs.append(log_softmax(self.llama.logits()))
            first_token_s = first_token_s or time.perf_counter() - start
            token = sample.continuation[i] if sample.continuation else int(log_probs[-1].argmax())
            if not sample.continuation:
                if self.llama.ends(token):
                    break
                text += decoder.decode(self.llama.piece(token))
                if sample.stop and sample.stop in text:
                    text = text[: text.index(sample.stop)]
                    break
            tokens.append(token)
        attention = np.stack(outputs) if attention_too else None
        seconds = time.perf_counter() - start
        return Outcome(tokens, text, np.stack(log_probs), bytes_read, attention, first_token_s, seconds)

    def bytes_of(self, tokens: list[int]) -> int:
        """What the steps of these tokens after the text read; they are forgotten again."""
        read = sum(self._step(token) for token in tokens)
        self.back()
        return read

    def _step(self, token: int) -> int:
        """Read one token; gives the bytes that attention read."""
        context = self.llama.context
        context.bytes_read = 0
        self.llama.eval([token])
        return context.bytes_read

    def _evaluate(self, tokens: list[int]) -> None:
        for first in range(0, len(tokens), self.llama.n_batch):
            batch = tokens[first : first + self.llama.n_batch]
            self.llama.eval(batch)
            self.progress.advance(len(batch))

    @contextmanager
    def _watched(self) -> Iterator[list[np.ndarray]]:
        """What attention gives in each layer of a step of one token."""
        layers: list[np.ndarray] = []

        def take(name: str, values: np.ndarray) -> bool:
            layers.append(values[-1])
            return True

        with self.llama.context.observed(lambda name: _ATTENTION_OUTPUT.fullmatch(name) is not None, take):
            yield layers
