"""The tools: what a program may call, with progress, and an end when it gives a call up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from inspect import cleandoc
from pathlib import Path
from typing import Annotated, Any, TypeVar

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations
from pydantic import Field

from ...errors import OctavoError
from ...version import __version__
from .call_progress import CallProgress
from .document_answers import DocumentAnswers
from .named_documents import NamedDocuments
from .tool_results import DocumentList, FoundPassages, GivenAnswer
from .tool_texts import ToolTexts

_Result = TypeVar("_Result")

_INSTRUCTIONS = """\
octavo answers questions about the user's documents with a model on this machine. `ask` gives an answer with quotes and
pages; `find_passages` and `read_range` give the text itself, at once. A document is read once; `ask` reports progress
meanwhile, and `basis` tells how much of it the answer is based on."""

#: What no tool does: change a document, or ask another machine.
_READS_ONLY = ToolAnnotations(read_only_hint=True, open_world_hint=False)

_Documents = Annotated[list[str] | None, Field(description="Names of documents or of folders in them; all by default.")]


class Calls:
    """Does the work of calls. Texts have a thread, and so has the model: neither waits for the other.

    Parameters
    ----------
    named : NamedDocuments
        The documents that calls may name.
    """

    def __init__(self, named: NamedDocuments, texts: ToolTexts, answers: DocumentAnswers) -> None:
        self.named, self._texts, self._answers = named, texts, answers
        self._reader, self._computer = ThreadPoolExecutor(1, "texts"), ThreadPoolExecutor(1, "answers")

    async def with_texts(self, context: Context, work: Callable[[ToolTexts, CallProgress], _Result]) -> _Result:
        """Do work that needs no model."""
        return await _call(self._reader, context, lambda progress: work(self._texts, progress))

    async def with_model(self, context: Context, work: Callable[[DocumentAnswers, CallProgress], _Result]) -> _Result:
        """Do work that needs the model."""
        return await _call(self._computer, context, lambda progress: work(self._answers, progress))

    def chosen(self, names: list[str] | None, progress: CallProgress) -> dict[str, Path]:
        """Return the documents of some names; without names, all."""
        return self.named.all(progress.notice) if names is None else self.named.named(names)

    def close(self) -> None:
        """Free the model. All calls have ended or were given up."""
        self._reader.shutdown(cancel_futures=True)
        self._computer.submit(self._answers.close)
        self._computer.shutdown()


def tool_server(calls: Calls) -> MCPServer:
    server = MCPServer("octavo", version=__version__, instructions=_INSTRUCTIONS, log_level="WARNING")

    def tool(function: Callable[..., Any]) -> None:
        is_structured = function.__annotations__["return"] != "str"
        server.add_tool(
            function,
            description=cleandoc(function.__doc__ or ""),
            annotations=_READS_ONLY,
            structured_output=is_structured,
        )

    @tool
    async def list_documents(
        context: Context,
        documents: _Documents = None,
        start: Annotated[int, Field(description="The first to list, from 0: 200 are listed at once.")] = 0,
    ) -> DocumentList:
        """List the documents: their names, their lengths and pages where known, and whether they are read."""
        return await calls.with_texts(
            context, lambda texts, progress: texts.describe(calls.chosen(documents, progress), start, progress)
        )

    @tool
    async def ask(
        context: Context,
        question: Annotated[str, Field(description="A whole question; earlier ones are not known.")],
        documents: _Documents = None,
    ) -> GivenAnswer:
        """Answer a question from documents, with the quotes and pages that the answer comes from.

        A small model on this machine answers: check what matters with its sources.
        """
        return await calls.with_model(
            context, lambda answers, progress: answers.ask(question, calls.chosen(documents, progress), progress)
        )

    @tool
    async def find_passages(
        context: Context,
        question: Annotated[str, Field(description="Words, or a question that has them.")],
        documents: _Documents = None,
        most: Annotated[int, Field(description="Most passages to return: 1 to 25.")] = 5,
    ) -> FoundPassages:
        """Find the passages of documents that share most words with a question, without a model."""
        return await calls.with_texts(
            context, lambda texts, progress: texts.find(question, calls.chosen(documents, progress), most, progress)
        )

    @tool
    async def read_range(
        context: Context,
        document: str,
        pages: Annotated[str | None, Field(description='A page or several: "7", "iv", "3-5".')] = None,
        start: Annotated[int | None, Field(description="First character, from 0.")] = None,
        stop: Annotated[int | None, Field(description="Character after the last.")] = None,
    ) -> str:
        """Read the text of a document: some pages, or some characters, or its beginning.

        Lines that begin with --- say the page and the headings of what follows; the last one says what was read, and
        how to continue.
        """
        return await calls.with_texts(
            context,
            lambda texts, progress: texts.read(*calls.named.one(document), pages, start, stop, progress),
        )

    return server


async def _call(executor: ThreadPoolExecutor, context: Context, work: Callable[[CallProgress], _Result]) -> _Result:
    """Do the work of a call in a thread, and end it when the client gives the call up."""
    loop = asyncio.get_running_loop()

    def report(reached: float, total: float, text: str) -> None:
        asyncio.run_coroutine_threadsafe(context.report_progress(reached, total, text), loop)

    progress = CallProgress(report)
    try:
        return await loop.run_in_executor(executor, work, progress)
    except OctavoError as problem:
        raise ToolError(str(problem)) from problem
    finally:
        progress.end()
