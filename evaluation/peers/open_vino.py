"""Run OpenVINO GenAI, which reads GGUF files of some architectures: step by step, by continuous batching.

It reads a text in one step, as its `LLMPipeline` does, decodes tokens of its own choice, and has no logits; it scores a
text by reading it again. Keys and values are 8 bits wide by its default, also where others keep f16. Its X-Attention
leaves out blocks of a text that it reads, but for its last 100 tokens, by its own defaults.
"""

from __future__ import annotations

import time
from typing import Any

from .peer_process import Cannot, Peer, serve

#: More tokens than a text has: it is read in one step.
_ALL = 1 << 30


class OpenVino(Peer):
    """A pipeline with one request at a time."""

    def __init__(self, model: str, n_ctx: int, n_threads: int, cache_type: str, sparse: bool = False, **_: Any) -> None:
        import openvino
        import openvino_genai

        if cache_type == "q4_0":
            raise Cannot("it keeps keys and values as 8 bits or more")
        self.genai, self.to_tensor = openvino_genai, openvino.Tensor
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.max_num_batched_tokens, scheduler.max_num_seqs = _ALL, 1
        scheduler.enable_prefix_caching = False  # a text that begins as one before is read again, too
        if sparse:
            mode = openvino_genai.SparseAttentionMode.XATTENTION
            scheduler.use_sparse_attention = True
            scheduler.sparse_attention_config = openvino_genai.SparseAttentionConfig(mode)
        properties = {"INFERENCE_NUM_THREADS": n_threads}
        self.pipeline = openvino_genai.ContinuousBatchingPipeline(model, scheduler, "CPU", properties)
        self.n_ctx, self.n_requests = n_ctx, 0
        self.text: list[int] = []
        self.request: Any = None
        self.build = f"OpenVINO {openvino.get_version()}{', X-Attention' if sparse else ''}"

    def _start(self, tokens: list[int], **settings: Any) -> Any:
        import numpy

        self.n_requests += 1
        config = self.genai.GenerationConfig(ignore_eos=True, do_sample=False, **settings)
        return self.pipeline.add_request(self.n_requests, self.to_tensor(numpy.array([tokens], numpy.int64)), config)

    def _step(self) -> float:
        start = time.perf_counter()
        self.pipeline.step()
        return time.perf_counter() - start

    def read(self, tokens: list[int], last: bool) -> float:
        self.text += tokens
        if not last:
            return 0.0
        self.request = self._start(self.text, max_new_tokens=self.n_ctx)
        return self._step()

    def decode(self, token: int) -> float:
        if self.request is None:
            return self.read([token], last=True)
        return self._step()

    def back(self, length: int) -> int:
        self._end()
        return 0

    def _end(self) -> None:
        if self.request is not None:
            self.request.cancel()
            self.pipeline.step()  # which takes it out of the pipeline
        self.text, self.request = [], None

    def scores(self, tokens: list[int], lengths: list[int], path: str) -> list[float]:
        self._end()
        request = self._start(tokens[: max(lengths) + 1], max_new_tokens=1, echo=True, logprobs=1)
        while self.pipeline.has_non_finished_requests():
            self.pipeline.step()
        found = request.read_all()[0].generated_log_probs
        return [float(found[length]) for length in lengths]


def main() -> None:
    """Serve requests."""
    serve(OpenVino)
