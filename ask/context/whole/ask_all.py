"""Ask all parts of a document, or all documents, and make the context of one answer from their answers.

- For a list (items.py) the question goes to the likeliest excerpts of each part, and code merges what they have.
- About each chapter it goes to the chapters of each part (chapters.py), and code writes their answers below headings.
- Otherwise it goes to each part whole. Answers that are too long for one context are first summed up in groups, level
  by level.

Answers are kept beside each index (finding.py), a batch at a time. So nothing is lost by a crash, or by Ctrl-C,
after which the answers that are there serve.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path

from ....documents.document import sentences
from ....library.document_parts import n_parts_of
from ....library.question_words import asks_for_chapters, asks_for_list, asks_which_texts, of_one_chapter, roots
from ....library.source_text import SourceText
from ....runtime.llama import Llama
from ....runtime.query_recorder import QueryHead
from ....system.working_time import working_time
from ...search.ranking import Span
from ..answer_context import Context, Steps
from ..document_set import DocumentSet
from ..excerpts import CannotLayOut, lay_out
from ..passages import PASSAGE_TOKENS
from .chapters import chapters_of, written_chapters
from .drawn_together import Drawn, drawn_together
from .finding import Finding, KeptAnswer, KeptFindings, PartsAnswered, key_of
from .items import items_of, rows_of, written
from .whole_context import WholeContext, shown_tokens, whole_context

#: What follows the question for a part, and most tokens of its answer.
_LIST = "\nAnswer in one line for each, from this text only.", 40
_PART = "\nAnswer in two or three sentences, from this text only.", 96

#: Most excerpts of a part, and share of the context that the answers of parts take.
_WINDOWS, _OF_CONTEXT = 8, 0.5

#: Version of the questions: part of the keys of answers.
_VERSION = 1


class TakesTooLong(Exception):
    """The answers of all parts would take longer than was allowed."""


@dataclass(frozen=True)
class TextToAsk:
    """A text that answers by itself.

    Parameters
    ----------
    document : SourceText
        The document, or the part of one, that it is.
    open : callable
        Makes its context in steps.
    folder : Path, optional
        The folder of its index; None if it is not read, and answers from passages.
    place : sequence of int
        The tokens of an excerpt; empty for the whole text.
    heading : str
        The heading of the chapter that the excerpt is.
    """

    document: SourceText
    open: Callable[[], Steps[Context]]
    folder: Path | None = None
    place: tuple[int, ...] = ()
    heading: str = ""


class AskAll:
    """Asks all parts or documents.

    Parameters
    ----------
    llama : Llama
        The model.
    heads : sequence of QueryHead
        Retrieval heads, which find where answers come from.
    notice : callable
        Receives sentences about the answer.
    report : callable
        Receives how many have answered, and what.
    n_batch : callable
        Returns the number of tokens of the next batch.
    most_seconds : float, optional
        Longest time; without it there is no limit.
    """

    def __init__(
        self,
        llama: Llama,
        heads: Sequence[QueryHead],
        notice: Callable[[str], None],
        report: Callable[[PartsAnswered], None],
        n_batch: Callable[[], int],
        most_seconds: float | None = None,
    ) -> None:
        self._llama, self._heads, self._notice, self._report = llama, heads, notice, report
        self._n_batch, self._most_seconds = n_batch, most_seconds

    def context(
        self, question: str, indexes: Sequence[DocumentSet], unread: Sequence[TextToAsk]
    ) -> Steps[WholeContext | None]:
        """Ask all documents; return what they answer. None if nothing was found.

        Parameters
        ----------
        indexes : sequence of DocumentSet
            The documents that are read, or parts of them.
        unread : sequence of TextToAsk
            The others.

        Raises
        ------
        TakesTooLong
            It would take longer than `most_seconds`.
        OctavoError
            An index can neither be opened nor made again.
        """
        documents = [document for each in indexes for document in each.documents]
        documents += [text.document for text in unread]
        self._say_unread([text.document for text in unread])
        lists, texts = asks_for_list(question), list[TextToAsk]()
        for each in indexes:
            if lists:
                texts += yield from self._excerpts(each, question)
            elif asks_for_chapters(question):
                texts += yield from self._chapters(each)
            else:
                texts += self._wholes(each)
        texts += unread
        of_each = of_one_chapter(question) if any(text.heading for text in texts) else question
        findings, is_stopped = yield from self._ask(
            texts, of_each, *(_LIST if lists else _PART), named=_named(texts), shows=True
        )
        n_answered = len({finding.document for finding in findings}) if is_stopped else len(documents)
        share = n_answered / len(documents)
        if lists:
            return (yield from self._listed(question, documents, findings, share))
        findings = [finding for finding in findings if finding.answer]
        if not findings:
            return None
        if any(finding.heading for finding in findings):
            text, places = written_chapters(findings)
            items, fitting = list(zip(findings, places, strict=True)), self._fitting(findings)
            return (yield from whole_context(self._llama, fitting, findings, share, self._n_batch, text, items))
        shown = findings if is_stopped else (yield from self._summed_up(findings, question))
        fitting = self._fitting(shown)
        if len(fitting) < len(shown):
            self._notice(
                f"One context holds {len(fitting):,} of these {len(shown):,} answers: the others are left out."
            )
        return (yield from whole_context(self._llama, fitting, findings, share, self._n_batch))

    def _say_unread(self, unread: Sequence[SourceText]) -> None:
        if unread:
            names = ", ".join(dict.fromkeys(document.name for document in unread))
            self._notice(f"Not read yet, so answered from passages: {names}.")

    def _wholes(self, indexes: DocumentSet) -> list[TextToAsk]:
        return [
            TextToAsk(document, partial(_at_once, indexes.whole, document), indexes.folders[document])
            for document in indexes.documents
        ]

    def _chapters(self, indexes: DocumentSet) -> Steps[list[TextToAsk]]:
        """Return the chapters of documents; the documents whole if their keys cannot be laid out."""
        chapters = yield from chapters_of(indexes)
        try:
            self._llama.reset()
            yield from lay_out(self._llama, indexes, [chapters[0].span], self._n_batch)
        except (CannotLayOut, IndexError):  # or there is no text
            return self._wholes(indexes)
        return [
            TextToAsk(
                span.document,
                partial(self._laid_out, indexes, span),
                indexes.folders[span.document],
                span[1:],
                heading,
            )
            for heading, span in chapters
        ]

    def _excerpts(self, indexes: DocumentSet, question: str) -> Steps[list[TextToAsk]]:
        """Return the likeliest excerpts for a question, in the documents' order."""
        ranking = yield from indexes.rank_in_steps(question, "", self._n_batch, len(indexes.documents))
        windows = dict(zip(ranking.documents, ranking.windows(_WINDOWS), strict=True))
        return [
            TextToAsk(span.document, partial(self._laid_out, indexes, span), indexes.folders[document], span[1:])
            for document in indexes.documents
            for span in sorted(windows[document], key=lambda span: span.start)
        ]

    def _laid_out(self, indexes: DocumentSet, span: Span) -> Steps[Context]:
        """Lay an excerpt out; return the whole document if that cannot be."""
        with suppress(CannotLayOut):
            self._llama.reset()
            return (yield from lay_out(self._llama, indexes, [span], self._n_batch))
        return replace(indexes.whole(span.document), spans=[span])

    def _ask(
        self, texts: Sequence[TextToAsk], question: str, form: str, most_tokens: int, named: str, shows: bool
    ) -> Steps[tuple[list[Finding], bool]]:
        """Ask texts that have not answered before; return all answers, and whether Ctrl-C ended the work.

        A list's answer has its items, one a line, and a passage for each.

        Parameters
        ----------
        named : str
            How many texts there are, in words.
        shows : bool
            Whether to report their answers.
        """
        llama, lists = self._llama, form == _LIST[0]
        of_model = str(llama.attention), llama.n_ctx(), form, most_tokens, _VERSION, question
        known = {text.folder: KeptFindings(text.folder) for text in texts if text.folder}
        found: dict[TextToAsk, KeptAnswer] = {}
        for text in texts:
            kept = known[text.folder].get(key_of(text.place, *of_model)) if text.folder else None
            if kept:
                found[text] = kept
        missing = [text for text in texts if text not in found]
        if found and shows:
            known_before = f"{len(found):,} of {len(texts):,} answers are known from before."
            kept_ones = [_finding(text, found) for text in found if found[text].answer]
            self._report(PartsAnswered(len(found), len(texts), [known_before] if missing else [], kept_ones))
        together, is_stopped = max(llama.context.most_together, 1), False
        groups = [missing[start : start + together] for start in range(0, len(missing), together)]
        try:
            for number, group in enumerate(groups):
                contexts = []
                for text in group:
                    contexts.append((yield from text.open()))
                steps = drawn_together(llama, contexts, question + form, self._heads, most_tokens)
                if number == 0:
                    steps = self._timed(steps, groups, len(found), named, most_tokens)
                drawn = yield from steps
                answers = [
                    self._kept(each, context, question, lists) for each, context in zip(drawn, contexts, strict=True)
                ]
                new: dict[Path, dict[str, KeptAnswer]] = {}
                for text, answer in zip(group, answers, strict=True):
                    found[text] = answer
                    if text.folder:
                        new.setdefault(text.folder, {})[key_of(text.place, *of_model)] = answer
                for folder, of_folder in new.items():
                    known[folder].add(question, of_folder)
                shown = [_finding(text, found) for text in group if shows and found[text].answer]
                sentences = [f"{each.name}: {each.answer}" for each in shown]
                self._report(PartsAnswered(len(found), len(texts), sentences, shown))
        except KeyboardInterrupt:
            if not found:
                raise
            is_stopped = True
            self._notice(f"Stopped: the answer comes from {len(found):,} of {len(texts):,} answers.")
        return [_finding(text, found) for text in texts if text in found], is_stopped

    def _kept(self, drawn: Drawn, context: Context, question: str, lists: bool) -> KeptAnswer:
        """Return an answer with its passages."""
        if lists:
            items = items_of(context, drawn.attended, drawn.text, question)
            return KeptAnswer("\n".join(text for text, _ in items), tuple(passage for _, passage in items))
        if roots(drawn.text) <= roots(question):  # it repeats the question
            return KeptAnswer("", ())
        passages = () if drawn.attended is None else context.sources(drawn.attended, drawn.text, question, 2)
        return KeptAnswer(_distinct(drawn.text), tuple(passage for _, passage in passages))

    def _timed(
        self,
        steps: Steps[list[Drawn]],
        groups: Sequence[Sequence[TextToAsk]],
        n_known: int,
        named: str,
        most_tokens: int,
    ) -> Steps[list[Drawn]]:
        """Draw the first group of answers; after its first step, report how long all take. Raise TakesTooLong."""
        n_read, number, began, read = len(groups[0]), 0, working_time(), 0.0
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            number += 1
            if number == n_read:
                read = working_time() - began
            elif number == n_read + 1:
                step = working_time() - began - read
                seconds = len(groups) * (read + most_tokens * step)
                if self._most_seconds is not None and seconds > self._most_seconds:
                    steps.close()
                    raise TakesTooLong(_time(seconds))
                sentence = f"{named}: up to {_time(seconds)}; Ctrl-C answers from those that are done."
                self._report(PartsAnswered(n_known, sum(map(len, groups)) + n_known, [sentence], seconds=seconds))
            yield None

    def _listed(
        self, question: str, documents: Sequence[SourceText], findings: list[Finding], share: float
    ) -> Steps[WholeContext | None]:
        """Write the list; the model reads its sentences, for questions that follow."""
        findings = [finding for finding in findings if finding.passages]
        rows = rows_of(findings, question)
        if not rows:
            return None
        shown = [Finding(document, passage.quote, (passage,)) for row in rows for document, passage in row.sources[:1]]
        n_texts = len({document.of_file for document in documents}) if asks_which_texts(question) else 0
        text, places = written(rows, n_texts)
        items, fitting = list(zip(shown, places, strict=True)), self._fitting(shown)
        return (yield from whole_context(self._llama, fitting, findings, share, self._n_batch, text, items))

    def _summed_up(self, findings: list[Finding], question: str) -> Steps[list[Finding]]:
        """Return answers that fit one context: groups of them are summed up, in levels."""
        while len(groups := list(self._groups(findings))) > 1 and len(groups) < len(findings):
            texts = [
                TextToAsk(group[0].document, partial(whole_context, self._llama, group, group, 1.0, self._n_batch))
                for group in groups
            ]
            named = f"{len(texts):,} groups of these answers"
            answered, _ = yield from self._ask(texts, question, *_PART, named=named, shows=False)
            findings = [
                replace(one, passages=tuple(passage for each in group for passage in each.passages[:1]))
                for one, group in zip(answered, groups, strict=False)
            ]
        return findings

    def _groups(self, findings: Iterable[Finding]) -> Iterator[list[Finding]]:
        """Yield neighbouring answers that fit one context together."""
        group, n_left = list[Finding](), self._room
        for finding in findings:
            n_tokens = len(shown_tokens(self._llama, finding))
            if group and n_tokens > n_left:
                yield group
                group, n_left = [], self._room
            group.append(finding)
            n_left -= n_tokens
        if group:
            yield group

    def _fitting(self, findings: Iterable[Finding]) -> list[Finding]:
        """Return the first answers that fit one context."""
        return next(self._groups(findings))

    @property
    def _room(self) -> int:
        return min(PASSAGE_TOKENS, int(self._llama.n_ctx() * _OF_CONTEXT))


def _finding(text: TextToAsk, found: Mapping[TextToAsk, KeptAnswer]) -> Finding:
    return Finding(text.document, *found[text], text.folder is not None, text.heading)


def _at_once(whole: Callable[[SourceText], Context], document: SourceText) -> Steps[Context]:
    """Open a document in one step."""
    yield from ()
    return whole(document)


def _distinct(answer: str) -> str:
    """Return the different whole sentences of an answer: small models repeat themselves up to the limit."""
    borders = sentences(answer)
    each = [answer[start:stop].strip() for start, stop in pairwise(borders)]
    whole = [sentence for sentence in dict.fromkeys(each) if sentence.endswith((".", "!", "?", "”", '"'))]
    return " ".join(whole or each[:1])


def _named(texts: Sequence[TextToAsk]) -> str:
    """Return how many documents, parts and excerpts there are."""
    n_documents = len({text.document for text in texts})
    is_parts = all(n_parts_of(text.document.name) > 1 for text in texts)
    named = f"{n_documents:,} {'parts' if is_parts else 'documents'}"
    what = "chapters" if any(text.heading for text in texts) else "excerpts"
    return f"{len(texts):,} {what} of {named}" if len(texts) > n_documents or what == "chapters" else named


def _time(seconds: float) -> str:
    return f"{max(seconds, 1):,.0f} s" if seconds < 100 else f"{seconds / 60:,.0f} min"
