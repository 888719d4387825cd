"""Run mistral.rs on a GGUF file: it reads a text, decodes tokens of its own choice, and scores by more requests.

It takes texts, not tokens, and its template holds the text alone. It decodes whether or not it is asked for the next
token, so that a text and all tokens after it are computed in one turn.
"""

from __future__ import annotations

import time
from array import array
from itertools import pairwise
from pathlib import Path
from typing import Any

from .peer_process import Cannot, Peer, serve

_TEMPLATE = "{{ messages[0]['content'] }}"


class MistralRs(Peer):
    """A runner with one sequence; the environment variable RAYON_NUM_THREADS sets its threads.

    Parameters
    ----------
    n_most : int
        Tokens to decode after a text.
    folder : str
        Folder for a file.
    """

    decodes_in_turn = False

    def __init__(self, model: str, n_vocab: int, n_most: int, cache_type: str, folder: str, **_: Any) -> None:
        import mistralrs

        if cache_type != "f16":
            raise Cannot("it keeps keys and values as f16")
        self.mistralrs, self.n_vocab, self.n_most = mistralrs, n_vocab, n_most
        template = Path(folder) / "text.jinja"
        template.write_text(_TEMPLATE)
        path = Path(model).resolve()
        which = mistralrs.Which.GGUF(quantized_model_id=str(path.parent), quantized_filename=path.name)
        self.runner = mistralrs.Runner(
            which,
            max_seqs=1,
            prefix_cache_n=0,  # sequences that it keeps: a text that begins as one before is read again, too
            jinja_explicit=str(template),
            token_source="none",
        )
        self.text: list[int] = []
        self.decoded: list[float] = []
        self.build = f"mistral.rs {getattr(mistralrs, '__version__', '')}".strip()

    def _send(self, tokens: list[int], **settings: Any) -> Any:
        text = self.runner.detokenize_text(tokens, False)
        request = self.mistralrs.ChatCompletionRequest(
            messages=text, model="default", temperature=0.0, ignore_eos=True, **settings
        )
        return self.runner.send_chat_completion_request(request)

    def read(self, tokens: list[int], last: bool) -> float:
        self.text += tokens
        if not last:
            return 0.0
        times = [time.perf_counter()]
        for _ in self._send(self.text, max_tokens=self.n_most + 1, stream=True):
            times.append(time.perf_counter())
        first, *others = (after - before for before, after in pairwise(times))
        self.decoded = others
        return first

    def decode(self, token: int) -> float:
        if not self.text:
            self.read([token], last=True)
        if not self.decoded:
            raise Cannot("it decoded fewer tokens than it was asked for")
        return self.decoded.pop(0)

    def back(self, length: int) -> int:
        self.text, self.decoded = [], []
        return 0

    def scores(self, tokens: list[int], lengths: list[int], path: str) -> None:
        with Path(path).open("wb") as file:
            for length in lengths:
                answer = self._send(tokens[:length], max_tokens=1, logprobs=True, top_logprobs=self.n_vocab)
                row = array("f", [float("-inf")]) * self.n_vocab
                for each in answer.choices[0].logprobs.content[0].top_logprobs:
                    row[each.token] = each.logprob
                row.tofile(file)


def main() -> None:
    """Serve requests."""
    serve(MistralRs)
