"""Bring a model to the end of a text under any attention, and measure how it continues samples.

The model reads samples, questions included, one token at a time. So every step selects, as in decoding, and no method
profits from a dense batch (Quest, Tang et al. 2024, feeds its questions in the same way).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from ..ask.answer.answer_stream import AnswerStream
from ..ask.sources.answer_marks import AnswerMarks, Found
from ..convert.clusters import ClusterSettings, settings_for
from ..convert.identity import identity
from ..convert.index_builder import IndexBuilder
from ..convert.pipeline import calibrate, cluster, document_tokens, keep_whole, prefill
from ..documents.document import Document, hash_text
from ..progress import Progress
from ..runtime.cache.kv_cache import Checkpoint
from ..runtime.document.index import Index, IndexLayer
from ..runtime.llama import Llama
from ..runtime.methods.attention import DENSE_ATTENTION, Attention
from ..runtime.query_recorder import Recorder
from ..runtime.store.index_files import open_index
from ..runtime.store.library_snapshot import LibrarySnapshot
from ..runtime.store.model_library import Library
from ..system.working_time import working_time
from .measures import log_softmax
from .samples import Outcome, Sample


class Reader:
    """A model at the end of a text, and sometimes a sample's tokens after it.

    Parameters
    ----------
    llama : Llama
        The model. The reader changes its attention.
    n_jobs : int
        Threads that cluster.
    """

    def __init__(self, llama: Llama, progress: Progress, n_jobs: int) -> None:
        self.llama, self.progress, self.n_jobs = llama, progress, n_jobs
        self._n_text = 0
        self._checkpoint: Checkpoint | None = None
        self._attending: tuple[Index, Attention] | None = None

    def read(
        self, tokens: list[int], clusterings: Sequence[Mapping[str, Any]], attention_share: float = 0.0
    ) -> list[Index]:
        """Read a text, and make indexes in memory.

        Parameters
        ----------
        clusterings : sequence of mapping
            Parameters of each clustering that differ from the defaults (`Method.clustering`).
        attention_share : float
            Share of its attention that a batch must cover; 0 to read everything.

        Returns
        -------
        list of Index
            An index for each clustering; without clusterings, one index with rows only.
        """
        llama, cache = self.llama, self.llama.context.cache
        self._attending = None
        llama.reset()
        llama.set_attention(DENSE_ATTENTION)
        self.progress.start(f"Reading {len(tokens):,} tokens", len(tokens), "tokens")
        all_settings = [settings_for(llama.context.kv_type, clustering) for clustering in clusterings]
        usual = settings_for(llama.context.kv_type)
        n_queries = [settings.n_queries(len(tokens)) for settings in [*all_settings, usual]]
        queries = prefill(llama, tokens, self.progress, max(n_queries), attention_share)

        def indexed(layers: Iterable[IndexLayer], settings: ClusterSettings) -> Index:
            last = [captured[:, -settings.n_queries(len(tokens)) :] for captured in queries]
            return calibrate(llama, list(layers), last, tokens)

        if not clusterings:
            return [indexed(keep_whole(cache), usual)]
        return [indexed(cluster(cache, settings, self.progress, self.n_jobs), settings) for settings in all_settings]

    def index(self, library: Library, name: str, text: str, clustering: Mapping[str, Any]) -> Index:
        """Open the index of a user's document by mmap; make the index first if the library lacks it.

        Parameters
        ----------
        name : str
            Name of the document.
        clustering : mapping
            Parameters of the clustering that differ from the defaults.
        """
        llama, settings = self.llama, settings_for(self.llama.context.kv_type, clustering)
        self._attending = None
        llama.reset()
        llama.set_attention(DENSE_ATTENTION)
        path = library.index_path(name, hash_text(text), identity(llama, settings))
        document, snapshot = Document(text, name=name), LibrarySnapshot(library)
        tokens = document_tokens(llama, name, text)
        IndexBuilder(llama, snapshot, path, document, tokens, settings, self.progress, self.n_jobs).build()
        return open_index(path, library.model_hash)[0]

    def attend(self, document: Index, attention: Attention) -> None:
        """Go to the end of a text under an attention, which reads the text itself if it evicts.

        Parameters
        ----------
        document : Index
            The text, read densely.
        """
        llama = self.llama
        if self._attending and self._attending[0] is document and self._attending[1] == attention:
            self.back()
            return
        self._attending = None
        llama.reset()
        llama.set_attention(attention)
        if llama.context.cache.evicts:
            tokens = document.tokens.tolist()
            self.progress.start(f"Reading {len(tokens):,} tokens by {attention}", len(tokens), "tokens")
            prefill(llama, tokens, self.progress)
            self._checkpoint = llama.context.cache.checkpoint()
            llama.context.keep_state()
        else:
            llama.attach(document)
            self._checkpoint = None
        self._n_text, self._attending = len(document.tokens), (document, attention)

    def back(self) -> None:
        """Forget the tokens after the text."""
        if self._checkpoint is None:
            self.llama.rewind(self._n_text)
        else:
            self.llama.context.cache.restore(self._checkpoint)
            self.llama.context.return_to_state(self._n_text)
            self.llama.n_tokens = self._n_text

    def answer(
        self, sample: Sample, attention_too: bool = False, in_batches: bool = False, recorder: Recorder | None = None
    ) -> Outcome:
        """Read a sample's prompt, and predict its continuation or write an answer, greedily.

        Parameters
        ----------
        attention_too : bool
            Record the output of attention in each layer of each step.
        in_batches : bool
            Read the prompt in batches, as `octavo ask` does.
        recorder : Recorder, optional
            Records the attention of the answer.
        """
        start = working_time()
        bytes_read: list[int] = []
        self.llama.context.record(recorder)
        if in_batches:
            bytes_read.append(self._step(sample.prompt))
        else:
            for token in sample.prompt[:-1]:
                bytes_read.append(self._step([token]))
        if recorder is not None:
            del recorder.steps[: -1 if in_batches else None]
        tokens: list[int] = []
        log_probs: list[np.ndarray] = []
        outputs: list[np.ndarray] = []
        stream, first_token_s = AnswerStream(sample.n_predict, stops=[sample.stop]), 0.0
        token = sample.prompt[-1]
        for i in range(len(sample.continuation) or sample.n_predict):
            if i or not in_batches:
                if attention_too:
                    with self._watched() as layers:
                        bytes_read.append(self._step([token]))
                    outputs.append(np.stack(layers))
                else:
                    bytes_read.append(self._step([token]))
            log_probs.append(log_softmax(self.llama.logits()).astype(np.float32))
            first_token_s = first_token_s or working_time() - start
            token = sample.continuation[i] if sample.continuation else int(log_probs[-1].argmax())
            if not sample.continuation:
                stream.feed(token, self.llama.piece(token), self.llama.ends(token))
                if stream.reason == "stop":
                    break
            tokens.append(token)
        attention = np.stack(outputs) if attention_too else None
        seconds = working_time() - start
        document = self._attending[0] if self._attending else None
        attended, sentences = None, list[tuple[str, np.ndarray]]()
        if recorder is not None and document is not None:
            attended = recorder.attended(document)
            AnswerMarks(stream, partial(_keep_attended, recorder, document, sentences)).add(is_over=True)
        self.llama.context.record(None)
        return Outcome(
            tokens, stream.text, np.stack(log_probs), bytes_read, attention, first_token_s, seconds, attended, sentences
        )

    def bytes_of(self, tokens: list[int]) -> int:
        """Return the bytes that attention reads in the steps of some tokens after the text; forget the tokens again."""
        read = sum(self._step([token]) for token in tokens)
        self.back()
        return read

    def _step(self, tokens: list[int]) -> int:
        """Read tokens together; return the bytes that attention read, layers with sliding windows left out."""
        context = self.llama.context
        context.bytes_read = 0
        self.llama.eval(tokens)
        return context.cache.table.counters[0]

    @contextmanager
    def _watched(self) -> Iterator[list[np.ndarray]]:
        """Collect the output of attention in each layer of a step of one token."""
        layers: list[np.ndarray] = []
        with self.llama.context.observed_attention(lambda values: layers.append(values[-1])):
            yield layers


def _keep_attended(
    recorder: Recorder,
    document: Index,
    sentences: list[tuple[str, np.ndarray]],
    start: int,
    stop: int | None,
    sentence: str,
) -> Found:
    """Keep the attention of a sentence, for a task that names its sources."""
    sentences.append((sentence, recorder.attended(document, start, stop)))
    return []
