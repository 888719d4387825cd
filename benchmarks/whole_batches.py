"""Compare answers of parts in batches with one after another: `python benchmarks/whole_batches.py DOCUMENT [-m MODEL]`.

The document is longer than the context, and is read first. Each round draws eight answers one after another, then
together, of whole parts and of excerpts of 256 tokens. The ratios are medians of rounds; processor time counts all
threads, and depends less on other work on this machine.
"""

from __future__ import annotations

import argparse
import time
from statistics import median

import octavo
from octavo.ask.context.answer_context import Context, at_once
from octavo.ask.context.document_set import DocumentSet
from octavo.ask.context.excerpts import lay_out
from octavo.ask.context.whole.drawn_together import TOGETHER, drawn_together
from octavo.ask.search.ranking import PIECE, Span
from octavo.library.source_text import SourceText

QUESTION, N_TOKENS, ROUNDS = "Describe what happens here, in many words.", 48, 5


def seconds(session: octavo.Session, groups: list[list[Context]]) -> tuple[float, float]:
    """Draw the answers of groups; return the seconds by the clock, and of the processor."""
    began, used = time.perf_counter(), time.process_time()
    for group in groups:
        at_once(drawn_together(session.llama, group, QUESTION, [], N_TOKENS))
    return time.perf_counter() - began, time.process_time() - used


def excerpt(document: SourceText, n_tokens: int) -> Span:
    """Return 256 tokens from the middle of a document or a part, or all of a shorter one."""
    start = max(n_tokens // 2 - PIECE, 0)
    return Span(document, start, min(start + 2 * PIECE, n_tokens))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("document")
    parser.add_argument("-m", "--model")
    parser.add_argument("-c", "--n-ctx", type=int, default=8192)
    arguments = parser.parse_args()
    settings = octavo.ModelSettings(arguments.model, n_ctx=arguments.n_ctx)
    with octavo.open_documents(arguments.document, settings) as session:
        assert session._chooser is not None
        indexes, llama = session._chooser.source, session.llama
        assert isinstance(indexes, DocumentSet)
        documents = indexes.documents[:TOGETHER]
        if len(documents) == 1:
            parser.error(f"{arguments.document} fits the context, so it has no parts: give a smaller -c.")
        spans = [excerpt(document, len(indexes.texts[document])) for document in documents]
        contexts = {
            "parts": [indexes.whole(document) for document in documents],
            "excerpts": [at_once(lay_out(llama, indexes, [span], lambda: llama.n_batch)) for span in spans],
        }
        print("| of | answers | one after another, s | together, s | ratio | ratio of processor time |")
        print("| --- | ---: | ---: | ---: | ---: | ---: |")
        for name, of_name in contexts.items():
            seconds(session, [of_name])  # compiles kernels
            rounds = [
                (*seconds(session, [[each] for each in of_name]), *seconds(session, [of_name])) for _ in range(ROUNDS)
            ]
            alone, _, together, _ = map(median, zip(*rounds, strict=True))
            clock = median(first / second for first, _, second, _ in rounds)
            processor = median(first / second for _, first, _, second in rounds)
            print(f"| {name} | {len(of_name)} | {alone:.2f} | {together:.2f} | {clock:.2f} | {processor:.2f} |")


if __name__ == "__main__":
    main()
