"""JSON that several APIs share: log probabilities, sources, token counts, timings and basis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ask.context.answer_context import Context
from ...ask.context.whole.finding import Finding, PartsAnswered
from ...ask.context.whole.whole_context import WholeContext
from ...ask.sources.find_sources import Passage
from ..engine.request import AnswerPart, End, PromptProgress, Request, TokenLogprob, Usage
from ..library.served_document import ServedDocument, placed, with_id


def logprob_as_json(token: TokenLogprob) -> dict[str, Any]:
    """Return a token's log probability in OpenAI's form."""

    def one(text: bytes, value: float | None) -> dict[str, Any]:
        return {"token": text.decode(errors="replace"), "logprob": value, "bytes": list(text)}

    return {**one(token.text, token.logprob), "top_logprobs": [one(text, value) for _, text, value in token.top]}


def annotations_of(end: End) -> list[dict[str, Any]]:
    """Return the sources of an answer as annotations: one for each sentence that comes from a source.

    A source that no sentence is marked with has one annotation, without a place in the answer.
    """
    return [
        _annotation(document, passage, mark)
        for document, passage in placed(end.sources)
        for mark in passage.marks or [None]
    ]


def new_annotations_of(part: AnswerPart) -> list[dict[str, Any]]:
    """Return the sources of the sentence that a part of an answer ends, as annotations."""
    return [_annotation(document, passage, passage.marks[-1]) for document, passage in placed(part.sources or ())]


def _annotation(document: ServedDocument, passage: Passage, mark: tuple[int, int] | None) -> dict[str, Any]:
    place = {} if mark is None else {"start_index": mark[0], "end_index": mark[1]}
    return {"type": "file_citation", "file_citation": {**_citation(document, passage), **place}}


def _citation(document: ServedDocument, passage: Passage) -> dict[str, Any]:
    known = passage.as_json()
    del known["marks"]
    return {"file_id": document.id, "filename": document.name, **known}


def document_as_json(context: Context) -> Any:
    """Return the document of an answer, or the documents of its excerpts, the likeliest first."""
    documents = [{"file_id": document.id, "filename": document.name} for document in map(with_id, context.documents)]
    return documents[0] if context.is_whole else documents


def usage_of(ends: Sequence[End]) -> dict[str, Any]:
    """Return the token counts of answers to the same prompt."""
    first, n_answer = ends[0].usage, sum(end.usage.answer_tokens for end in ends)
    return {
        "prompt_tokens": first.prompt_tokens,
        "completion_tokens": n_answer,
        "total_tokens": first.prompt_tokens + n_answer,
        "prompt_tokens_details": {"cached_tokens": first.cached_tokens, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": sum(end.usage.thought_tokens for end in ends),
            **drafts_of(ends),
        },
    }


def drafts_of(ends: Sequence[End]) -> dict[str, int]:
    """Return how many drafted tokens became part of answers, and how many did not."""
    n_accepted = sum(end.usage.accepted_tokens for end in ends)
    n_drafted = sum(end.usage.drafted_tokens for end in ends)
    return {"accepted_prediction_tokens": n_accepted, "rejected_prediction_tokens": n_drafted - n_accepted}


def step_as_json(step: PromptProgress | PartsAnswered) -> dict[str, Any]:
    """Return the field that reports a step before an answer."""
    if isinstance(step, PartsAnswered):
        return {"whole_progress": answered_as_json(step)}
    return {"prompt_progress": progress_as_json(step)}


def progress_as_json(progress: PromptProgress) -> dict[str, Any]:
    """Return the progress of prefill in the form of llama.cpp's server."""
    times = {"time_ms": round(1000 * progress.seconds)}
    return {"total": progress.total, "cache": progress.cached, "processed": progress.done, **times}


def answered_as_json(news: PartsAnswered) -> dict[str, Any]:
    """Return how many parts or documents have answered, and the new answers."""
    times = {} if news.seconds is None else {"most_seconds": round(news.seconds)}
    findings = list(map(finding_as_json, news.found))
    return {"total": news.total, "processed": news.done, **times, "findings": findings}


def finding_as_json(finding: Finding) -> dict[str, Any]:
    """Return what a part or a document answered, with its sources in the client's file."""
    document = with_id(finding.document)
    cited = [_citation(*each) for each in placed([(document, passage) for passage in finding.passages])]
    return {**finding.as_json(), "file_id": document.id, "sources": cited}


def effort_of(effort: str | None) -> tuple[bool | None, dict[str, Any]]:
    """Return whether a model should think, and variables of its chat template, by an effort such as "high".

    Without an effort, or with the least, the template decides whether to think.
    """
    if effort is None or effort == "none":
        return (None if effort is None else False), {}
    return (None if effort == "minimal" else True), {"reasoning_effort": effort}


def extensions_of(request: Request, *ends: End) -> dict[str, Any]:
    """Return octavo's own fields of answers: timings, the share of documents, what each part of them answered, notices,
    and a finer reason if any.

    Of several answers these are the notices of all, each once, and the last one's other fields.
    """
    end, basis = ends[-1], {"basis": request.context.share.as_json()} if request.context else {}
    whole = request.context if isinstance(request.context, WholeContext) else None
    found = {} if whole is None else {"findings": list(map(finding_as_json, whole.findings))}
    kinds = (notice for each in ends for notice in each.notices.items())
    said = [sentence for kind, sentence in kinds if kind != "length"]  # which every API has a reason for
    notices = {"notices": list(dict.fromkeys(said))} if said else {}
    reason = {"cut_by": end.reason} if end.reason in ("loop", "context") else {}
    return {"timings": _timings(end.usage), **basis, **found, **notices, **reason}


def _timings(usage: Usage) -> dict[str, Any]:
    """Return timings as llama.cpp's server reports them, with the share of the keys and values that was read."""
    n_read, n_steps = usage.prompt_tokens - usage.cached_tokens, max(usage.answer_tokens - 1, 0)
    drafted = {"draft_n": usage.drafted_tokens, "draft_n_accepted": usage.accepted_tokens}
    return {
        "prompt_n": n_read,
        "prompt_ms": round(1000 * usage.prompt_s, 2),
        "prompt_per_second": round(n_read / usage.prompt_s, 2) if usage.prompt_s else 0.0,
        "predicted_n": usage.answer_tokens,
        "predicted_ms": round(1000 * usage.answer_s, 2),
        "predicted_per_second": round(n_steps / usage.answer_s, 2) if usage.answer_s else 0.0,
        "cache_n": usage.cached_tokens,
        "waited_ms": round(1000 * usage.waited_s, 2),
        "attention": usage.attention,
        "kv_share": round(usage.kv_share, 4),
        **(drafted if usage.drafted_tokens else {}),
    }
