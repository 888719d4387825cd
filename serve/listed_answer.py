"""An answer that is a list which code has written (ask/context/whole/items.py): it takes no turn of the engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from ..ask.answer.answer_stream import AnswerStream
from ..ask.answer.notices import notices_of_changed
from ..ask.context.whole.whole_context import WholeContext
from .engine.request import AnswerPart, End, Request, Usage
from .services import Server


def list_of(request: Request) -> WholeContext | None:
    """Return the context with the list that answers a request; None if the model answers, as where a form is set."""
    context = request.context
    is_list = isinstance(context, WholeContext) and context.listed != ""
    is_answer = is_list and request.grammar is None and request.generation.answers
    return context if is_answer and isinstance(context, WholeContext) else None


async def stream_list(
    server: Server, request: Request, context: WholeContext
) -> AsyncGenerator[AnswerPart | End, None]:
    """Answer with a list. The request's limit of tokens and its stop texts hold, as for the model.

    Yields
    ------
    AnswerPart or End
        The items, each with the sentence that proves it if sources are asked for, and the end.
    """
    stream, has_sources = await asyncio.to_thread(_written, server, request, context), request.generation.sources
    rows, n_left = context.rows, len(stream.text)
    for part in context.listed_parts():
        text, n_left = part.text[:n_left], max(n_left - len(part.text), 0)
        is_whole = len(text) == len(part.text)
        sources = [rows[number - 1] for number in part.marks or ()] if has_sources and is_whole else []
        yield AnswerPart(text, sources=sources or None)
    shown = [row for row in rows if row[1].marks[0][1] <= len(stream.text)] if has_sources else []
    usage = Usage(
        prompt_tokens=request.n_prompt,
        cached_tokens=request.n_prompt,
        answer_tokens=stream.n_tokens,
        thought_tokens=0,
        prompt_s=0.0,
        answer_s=0.0,
        waited_s=0.0,
        attention=str(server.attention),
        kv_share=0.0,
    )
    notices = notices_of_changed(context.documents)
    yield End(stream.reason, usage, shown, stopped_by=stream.stopped_by, notices=notices)


def _written(server: Server, request: Request, context: WholeContext) -> AnswerStream:
    """Return a list as far as the request's limit and its stop texts let it come."""
    llama, generation = server.engine.llama, request.generation
    tokens = llama.prompt(True).document(context.listed)
    most = generation.sampling.max_tokens if generation.limits_thoughts else None  # the server's is for the model
    stream = AnswerStream(len(tokens) + 1, most, generation.stop)
    for token in tokens:
        if not stream.ended:
            stream.feed(token, llama.piece(token))
    if not stream.ended:
        stream.feed(0, b"", True)
    return stream
