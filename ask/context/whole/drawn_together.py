"""Draw the answers to questions over several contexts at once: one step computes a token of each, greedily.

The contexts are independent sequences of one model, so a step reads the weights once for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ....prompts.direct_prompt import DirectPrompt
from ....runtime.llama import Llama
from ....runtime.query_recorder import QueryHead, Recorder
from ....runtime.sequence_pool import SequencePool
from ....runtime.sequences.sequence import TokenSequence
from ...answer.answer_stream import AnswerStream
from ..answer_context import Context, Steps

#: Most sequences that one step computes.
TOGETHER = 8


class Drawn(NamedTuple):
    """An answer over a context.

    Parameters
    ----------
    attended : float32 array, shape (n_parts, n_tokens), or None
        The attention of its parts to the context (`Recorder.attended`); None without heads that record it.
    """

    text: str
    attended: np.ndarray | None


class _Drawing:
    """An answer that is being drawn."""

    def __init__(
        self, llama: Llama, context: Context, question: str, heads: Sequence[QueryHead], most_tokens: int
    ) -> None:
        self._llama, self._context, prompt = llama, context, DirectPrompt(llama)
        self._recorder = Recorder(llama.context.nodes, llama.context.shapes, heads) if heads else None
        llama.attach(context.index)
        llama.context.record(self._recorder)
        tokens = prompt.first_question(question)
        room = max(llama.longest - llama.n_tokens - len(tokens), 1)
        self.stream = AnswerStream(room, most_tokens, prompt.stops, strips=not prompt.has_template, question=question)
        llama.eval_prompt(tokens)
        if self._recorder is not None:
            del self._recorder.steps[:-1]  # the question but for its last token
        self.sequence: TokenSequence = llama.sequence
        self.token = 0
        self.take(-1)

    def take(self, number: int) -> None:
        """Take the likeliest token after token `number` of the last step."""
        llama = self._llama
        logits = np.ctypeslib.as_array(llama.context.get_logits_ith(number), (llama.n_vocab(),))
        self.token = int(logits.argmax())
        self.stream.feed(self.token, llama.piece(self.token), llama.ends(self.token))

    def drawn(self) -> Drawn:
        """Return the whole answer."""
        attended = None
        if self._recorder is not None and self._recorder.heads:
            attended = self._recorder.attended(self._context.index)
        return Drawn(self.stream.text.strip(), attended)


def drawn_together(
    llama: Llama, contexts: Sequence[Context], question: str, heads: Sequence[QueryHead], most_tokens: int
) -> Steps[list[Drawn]]:
    """Draw the answers to a question over contexts. Afterwards the model's sequence is the one before.

    Parameters
    ----------
    contexts : sequence of Context
        One, or up to the number that the model's steps can compute (`SequencePool.most_together`).
    heads : sequence of QueryHead
        Retrieval heads, which record where answers come from; none without sources.
    most_tokens : int
        Most tokens of an answer.

    Yields
    ------
    None
        After each question that is read, and after each step. The model may compute other sequences then.

    Raises
    ------
    OctavoError
        A context cannot be attached, or memory does not suffice.
    """
    pool = SequencePool(llama)
    before = pool.current
    drawing: list[_Drawing] = []
    try:
        for context in contexts:
            pool.new()
            drawing.append(_Drawing(llama, context, question, heads, most_tokens))
            yield None
        while left := [each for each in drawing if not each.stream.ended]:
            pool.step([each.sequence for each in left], [each.token for each in left])
            for number, each in enumerate(left):
                each.take(number if len(left) > 1 else -1)
            yield None
    finally:
        pool.take(before)
    return [each.drawn() for each in drawing]
