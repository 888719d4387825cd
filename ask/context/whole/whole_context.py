"""The context of an answer about a whole: what its parts answered, each with its own sources."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ....library.source_text import SourceText
from ....prompts.thought_splitter import Part
from ....runtime.llama import Llama
from ....system.working_time import working_time
from ...answer.answer import Answer, ContextShare, Timing
from ...answer.notices import notices_of_changed
from ...search.ranking import Candidate, Span
from ...sources.find_sources import Passage, TokenText
from ..answer_context import Context, Steps
from ..excerpts import evaluate_as_text
from .finding import Finding


@dataclass(frozen=True, eq=False)
class WholeContext(Context):
    """What parts or documents answered, as text.

    Parameters
    ----------
    findings : sequence of Finding
        All answers.
    shown : sequence of (int, int, Finding)
        The tokens of the index that have an answer, and that answer.
    listed : str
        The answer, where code writes it, as a list; "" where the model does.
    items : sequence of (Finding, (int, int))
        The answers that the list has, in order, and where each begins and ends in it.
    """

    findings: Sequence[Finding] = ()
    shown: Sequence[tuple[int, int, Finding]] = ()
    listed: str = ""
    items: Sequence[tuple[Finding, tuple[int, int]]] = ()

    def sources(self, attended: np.ndarray, answer: str, question: str, most: int) -> list[tuple[SourceText, Passage]]:
        """Return the sources of the parts' answers with most attention."""
        shares = np.array([attended[:, start:stop].sum(axis=1).max() for start, stop, _ in self.shown])
        return _first_sources([self.shown[i][2] for i in np.argsort(-shares, kind="stable")], most)

    def passages_for(self, question: str, most: int) -> list[tuple[SourceText, Passage]]:
        """Return the sources of the first answers, or of a list's first items."""
        return _first_sources([finding for *_, finding in self.shown], most)

    @property
    def rows(self) -> list[tuple[SourceText, Passage]]:
        """Return the sentences that prove the items of a list, each with its item's place in the list as its mark."""
        return [
            (finding.document, replace(passage, marks=(place,)))
            for finding, place in self.items
            for passage in finding.passages[:1]
        ]

    def listed_parts(self) -> Iterator[Part]:
        """Yield a list in parts: an item ends with the number of its sentence in `rows`."""
        shown = 0
        for number, (_, passage) in enumerate(self.rows, 1):
            [(_, stop)] = passage.marks
            yield Part(self.listed[shown:stop], marks=(number,))
            shown = stop
        yield Part(self.listed[shown:])


def _first_sources(findings: Iterable[Finding], most: int) -> list[tuple[SourceText, Passage]]:
    return [(finding.document, passage) for finding in findings for passage in finding.passages[:1]][:most]


def shown_tokens(llama: Llama, finding: Finding) -> list[int]:
    """Return the tokens of an answer as the model reads it, below the name of its document."""
    return llama.prompt().document(f"[{finding.name}]\n{finding.answer}\n\n")


def whole_context(
    llama: Llama,
    shown: Sequence[Finding],
    findings: Iterable[Finding],
    share: float,
    n_batch: Callable[[], int],
    listed: str = "",
    items: Sequence[tuple[Finding, tuple[int, int]]] = (),
) -> Steps[WholeContext]:
    """Evaluate answers of parts as one text. The model holds it afterwards.

    Parameters
    ----------
    shown : sequence of Finding
        The answers to read.
    findings : iterable of Finding
        All answers, which those sum up.
    share : float
        Share of the parts that have answered.
    """
    findings = list(findings)
    head = llama.prompt().head()
    of_documents: dict[SourceText, list[int]] = {}
    tokens, spans, places = list(head), list[Span](), list[tuple[int, int, Finding]]()
    for finding in shown:
        own, before = shown_tokens(llama, finding), of_documents.setdefault(finding.document, [])
        spans.append(Span(finding.document, len(before), len(before) + len(own)))
        places.append((len(tokens), len(tokens) + len(own), finding))
        before += own
        tokens += own
    llama.reset()
    index = yield from evaluate_as_text(llama, np.array(tokens, np.int32), len(head), n_batch)
    documents = list(dict.fromkeys(finding.document for finding in findings))
    texts = {document: TokenText.of([llama.piece(token) for token in own]) for document, own in of_documents.items()}
    return WholeContext(
        index,
        spans,
        documents,
        ContextShare("findings", share=share),
        texts.__getitem__,
        tuple(tokens),
        [Candidate(document, 1 / len(documents), 0.0) for document in documents],
        findings=findings,
        shown=places,
        listed=listed,
        items=items,
    )


def listed_answer(context: WholeContext, n_prompt: int, n_written: int, began: float) -> Answer:
    """Return a list as an answer, which took no drawing.

    Parameters
    ----------
    n_prompt, n_written : int
        Tokens of the question and of the list.
    began : float
        When the question was asked, by `working_time`.
    """
    timing = Timing(n_prompt, n_written, working_time() - began, 0.0)
    notices = notices_of_changed(context.documents)
    return Answer(context.listed, "stop", timing, 0.0, 0.0, read=context.share, notices=notices)
