"""A turn of a conversation, for all APIs: messages in; text, calls and sources out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from ..ask.answer.notices import notices_of_damaged, notices_of_unfounded, notices_of_whole, unfounded
from ..ask.context.answer_context import Context
from ..ask.context.whole.finding import PartsAnswered
from ..ask.context.whole.whole_context import WholeContext
from ..library.catalogue import DAMAGED
from ..library.question_words import needs_whole
from ..prompts.call_grammar import calls_grammar, schema_grammar
from ..prompts.message_forms import Message
from ..prompts.thought_form import Stage, Thinking
from ..prompts.thought_splitter import Part
from ..prompts.tools import AnswerReader, ToolCall
from ..settings import BY_QUESTION, WHOLE_BY_QUESTION, WHOLE_OFF
from .engine.grammar import Grammar
from .engine.request import AnswerPart, End, Generation, PromptProgress, Request, TokenLogprob
from .engine.tasks import Report
from .library.served_document import with_id
from .listed_answer import list_of, stream_list
from .request_error import RequestError
from .services import Server


@dataclass(frozen=True)
class ChatTurn:
    """A conversation up to a question, and settings of the answer.

    Parameters
    ----------
    messages : sequence of messages
        The conversation, in OpenAI's form, with contents as text.
    generation : Generation
        Settings of the answer.
    documents : sequence of str
        Ids, names or patterns of the conversation's documents.
    reads : str
        What to read of several documents, one of READS (settings.py): passages while one of them is not indexed yet.
    whole : str
        Whether all parts or documents are asked, one of WHOLES (settings.py).
    tools : sequence of dict
        Tools in OpenAI's form.
    choice : str
        "none", "auto", "required", or the name of the function to call.
    parallel : bool
        Whether an answer may have several calls.
    schema : dict or bool, optional
        JSON schema of the answer.
    grammar : str, optional
        GBNF grammar of the answer, as of llama.cpp's server.
    options : mapping
        Further variables of the chat template.
    notices : sequence of str
        Sentences about the documents, which the answer comes with.
    """

    messages: Sequence[Message]
    generation: Generation
    documents: Sequence[str] = ()
    reads: str = BY_QUESTION
    whole: str = WHOLE_BY_QUESTION
    tools: Sequence[dict[str, Any]] = ()
    choice: str = "auto"
    parallel: bool = True
    schema: dict[str, Any] | bool | None = None
    grammar: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    notices: Sequence[str] = ()


@dataclass(frozen=True)
class Finished:
    """The end of an answer: `reason` is "stop", "length" or "tool_calls"."""

    reason: str
    end: End


Event = AnswerPart | ToolCall | Finished


#: A step before an answer: how far passages are read or parts are asked, and the request that is ready.
Step = PromptProgress | PartsAnswered | Request


class AnswerStart(NamedTuple):
    """An answer that has begun: its first step, and the others if that is not its request."""

    step: Step
    steps: AsyncGenerator[Step, None] | None = None

    @property
    def ignored(self) -> Sequence[str]:
        """Return what the request ignores; of a later request that is nothing."""
        return self.step.ignored if isinstance(self.step, Request) else ()


@dataclass(frozen=True)
class Whole:
    """An answer as a whole."""

    text: str
    thought: str
    calls: Sequence[ToolCall]
    logprobs: Sequence[TokenLogprob]
    finished: Finished


async def prepared(server: Server, turn: ChatTurn, checked: bool = True, report: Report | None = None) -> Request:
    """Return a turn's request to the engine.

    Parameters
    ----------
    checked : bool
        Whether to check that the engine accepts the request now.
    report : callable, optional
        Receives how far passages of documents are read, and how many parts have answered, in another thread.

    Raises
    ------
    RequestError
        The document is unknown, excerpts cannot be laid out, the template refuses the messages, a form of the answer
        cannot be used, or the engine would refuse the request.
    """
    if not turn.messages:
        raise RequestError("There are no messages.", param="messages")
    tools = turn.tools if turn.choice != "none" else ()
    grammar = await grammar_of(server, turn)
    generation = turn.generation.settled(bool(turn.documents))
    thinking = Thinking(server.thoughts, generation.sampling.think, generation.sampling.think_budget)
    options = {**thinking.options, **turn.options}
    n_characters = sum(len(str(message["content"])) for message in turn.messages) + len(json.dumps(tools))
    server.engine.limits.check_length(n_characters)
    prompt = server.engine.llama.prompt(bool(turn.documents), options=options)
    tokens = await server.tokenized(partial(prompt.tokens, turn.messages, tools), n_characters)
    context, notices = None, [*turn.notices]
    if turn.documents:
        server.engine.limits.check(max(len(tokens), 1))  # before documents are searched for it
        context = await server.finder.open(
            turn.documents,
            turn.reads,
            *questions_of(turn.messages),
            whole=turn.whole if checked else WHOLE_OFF,  # tokens are counted at once
            report=report,
            notice=notices.append,
        )
        if isinstance(context, WholeContext) and turn.generation.sampling.temperature is None:
            generation = replace(generation, sampling=replace(generation.sampling, temperature=0.0))  # as the parts
    stage, begun = Stage.ANSWER, turn.messages[-1]
    if server.thoughts is not None and not (begun["role"] == "assistant" and begun["content"]):
        llama, n_context = server.engine.llama, 0 if context is None else len(context.index.tokens)
        room = min(llama.longest - n_context - len(tokens), llama.n_ctx())
        budget = thinking.budget(room, generation.sampling.max_tokens)
        tokens, stage = server.thoughts.begin(llama, tokens, budget)
    request = Request(
        tokens=tokens,
        generation=replace(generation, stop=[*generation.stop, *prompt.stops]),
        context=context,
        grammar=grammar,
        thinking=thinking,
        stage=stage,
        call_texts=server.call_texts if tools else {},
        asked=questions_of(turn.messages)[0] if grammar is None else None,
        notices=notices,
    )
    if checked:
        server.engine.check(request)
    return request


async def start_answer(server: Server, turn: ChatTurn) -> AnswerStart:
    """Return what a stream begins with; an error comes before the response does, with its status.

    A response that does not report how passages are read begins later. While parts are asked, which takes minutes, it
    has begun: clients give up one that has not.
    """
    if not turn.documents or turn.tools or turn.schema is not None or turn.grammar is not None:
        return AnswerStart(await prepared(server, turn))
    steps = preparing(server, turn)
    while isinstance(step := await anext(steps), PromptProgress) and not turn.generation.reports_progress:
        pass
    return AnswerStart(step, steps)


async def start_with(request: Awaitable[Request]) -> AnswerStart:
    """Return an answer that begins with its request."""
    return AnswerStart(await request)


async def steps_and_answer(server: Server, turn: ChatTurn, first: AnswerStart) -> AsyncGenerator[Step | Event, None]:
    """Yield the steps before an answer, progress only if it is asked for, and then the parts of the answer."""
    step: Step | None = None
    async with aclosing(steps_of(turn, first)) as steps:
        async for step in steps:
            yield step
    assert isinstance(step, Request)
    async with aclosing(answer(server, turn, step)) as events:
        async for event in events:
            yield event


async def steps_of(turn: ChatTurn, first: AnswerStart) -> AsyncGenerator[Step, None]:
    """Yield the steps before an answer, progress only if it is asked for; the last one is its request."""
    step, steps = first
    if steps is not None:
        async with aclosing(steps):
            while not isinstance(step, Request):
                if turn.generation.reports_progress:
                    yield step
                step = await anext(steps)
    yield step


async def preparing(server: Server, turn: ChatTurn) -> AsyncGenerator[Step, None]:
    """Yield how far passages are read or parts are asked for a turn's request, and the request. See `prepared`."""
    reports, loop = asyncio.Queue[PromptProgress | PartsAnswered | None](), asyncio.get_running_loop()

    def report(progress: PromptProgress | PartsAnswered) -> None:
        loop.call_soon_threadsafe(reports.put_nowait, progress)

    work = asyncio.create_task(prepared(server, turn, report=report))
    work.add_done_callback(lambda task: reports.put_nowait(None))
    try:
        while (progress := await reports.get()) is not None:
            yield progress
        yield await work
    finally:
        work.cancel()


async def answer(server: Server, turn: ChatTurn, request: Request) -> AsyncGenerator[Event, None]:
    """Generate an answer. Closing the generator stops the work.

    Yields
    ------
    AnswerPart, ToolCall or Finished
        The parts of the answer in order, and its end.

    Raises
    ------
    OctavoError
        The engine refuses the request, or fails.
    """
    reader, listed = None, list_of(request)
    if turn.tools and turn.choice != "none" and listed is None:
        reader = AnswerReader(turn.tools, server.call_forms, _forces(turn), server.call_texts.values())
    called, written = False, ""
    coming = server.engine.stream(request) if listed is None else stream_list(server, request, listed)
    async with aclosing(coming) as events:
        async for event in events:
            if not isinstance(event, End):
                written += "" if event.is_thought else event.text
                if reader is None or event.progress is not None:
                    yield event
                    continue
                added = partial(reader.add, event.text, event.is_thought)
                found = await server.tokenized(added, reader.n_held)
                if event.logprobs:
                    yield AnswerPart("", event.logprobs)
            else:
                found = await server.tokenized(reader.end, reader.n_held) if reader else []
            for part in found:
                if isinstance(part, Part):
                    yield AnswerPart(part.text, is_thought=part.is_thought)
                elif turn.parallel or not called:
                    called = True
                    yield part
            if isinstance(event, End):
                reason = "tool_calls" if called else "stop" if event.reason == "stop" else "length"
                if request.context is not None and not called:
                    by_model = written if listed is None else ""
                    work = partial(_notices_of_text, server, turn, request, request.context, by_model)
                    event = replace(event, notices={**event.notices, **await asyncio.to_thread(work)})
                yield Finished(reason, event)


def _notices_of_text(
    server: Server, turn: ChatTurn, request: Request, context: Context, written: str
) -> dict[str, str]:
    """Return sentences about an answer beside the text that the model read for it.

    Of a prompt without messages, all is the question.

    Parameters
    ----------
    written : str
        What the model wrote.
    """
    piece = server.engine.llama.piece
    others = [str(message["content"]) for message in turn.messages if message["role"] != "assistant"]
    if not turn.messages:
        others = [b"".join(map(piece, request.tokens)).decode(errors="replace")]
    missing = unfounded(written, others, map(piece, context.index.tokens.tolist()))
    about_whole = needs_whole(others[-1] if others else "")
    damaged = [document.name for document in map(with_id, context.documents) if document.state == DAMAGED]
    of_whole = notices_of_whole(about_whole, context.share.share)
    of_choice = {"context": " ".join(dict.fromkeys(request.notices))} if request.notices else {}
    return {**of_choice, **notices_of_unfounded(missing), **notices_of_damaged(damaged), **of_whole}


async def gathered(events: AsyncGenerator[Event, None]) -> Whole:
    """Return an answer as a whole, and close its generator."""
    text, thought, calls, logprobs = "", "", list[ToolCall](), list[TokenLogprob]()
    finished: Finished | None = None
    async with aclosing(events):
        async for event in events:
            if isinstance(event, AnswerPart):
                thought += event.text if event.is_thought else ""
                text += "" if event.is_thought else event.text
                logprobs += event.logprobs
            elif isinstance(event, ToolCall):
                calls.append(event)
            else:
                finished = event
    assert finished is not None
    return Whole(text, thought, calls, logprobs, finished)


async def grammar_of(server: Server, turn: ChatTurn) -> Grammar | None:
    """Return the grammar of a call that the model must make, or the turn's own, or its schema's.

    Raise RequestError if it cannot be used.
    """
    if not _forces(turn) and turn.grammar is None and turn.schema is None:
        return None
    return await asyncio.to_thread(_grammar, server, turn)


def _grammar(server: Server, turn: ChatTurn) -> Grammar:
    if not _forces(turn):
        if turn.grammar is not None:
            return server.grammars.of_gbnf(turn.grammar)
        return server.grammars.made(schema_grammar(turn.schema, "response_format"), "response_format")
    name = None if turn.choice == "required" else turn.choice
    return server.grammars.made(calls_grammar(turn.tools, name, server.call_forms[0], server.grammars.pattern), "tools")


def questions_of(messages: Sequence[Message]) -> list[str]:
    """Return the last question, and the one before it, which it may refer to."""
    asked = [str(message["content"]) for message in messages if message["role"] == "user"] or [""]
    return asked[:-3:-1]


def _forces(turn: ChatTurn) -> bool:
    return bool(turn.tools) and turn.choice not in ("none", "auto")
