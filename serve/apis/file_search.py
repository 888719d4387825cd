"""The tool `file_search` of responses: answer from the documents of vector stores, and list passages."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from pydantic import Field
from starlette.requests import Request as HttpRequest

from ..engine.request import Request
from ..http.requests import checked
from ..library.served_document import with_id
from ..request_error import RequestError
from ..server_pool import pool_of
from ..services import Server
from .api_body import ApiObject
from .store_files import KnownFiles, StoreFile, fits

#: The tool's type.
FILE_SEARCH = "file_search"

#: The value of `include` that asks for the passages that were found.
_WITH_RESULTS = "file_search_call.results"


class RankingOptions(ApiObject):
    """Which passages a search leaves out."""

    score_threshold: float = 0.0


class SearchSettings(ApiObject):
    """Which files are searched, and how many passages of them are listed."""

    filters: dict[str, Any] | None = None
    max_num_results: int = Field(10, ge=1, le=50)
    ranking_options: RankingOptions = Field(default_factory=RankingOptions)

    def chosen(self, files: Sequence[StoreFile]) -> tuple[list[StoreFile], list[str]]:
        """Return the files that are searched, and sentences about those that fit the filters and cannot be read.

        Raise RequestError if the filters have no known form.
        """
        fitting = [file for file in files if fits(file.entry["attributes"], self.filters)]
        problems = [f"{each.document['filename']} is not searched: {each.problem}" for each in fitting if each.problem]
        return [file for file in fitting if not file.problem], problems


class FileSearchTool(SearchSettings):
    """The tool of a request."""

    type: Literal["file_search"]
    vector_store_ids: list[str] = Field(min_length=1)


class FileSearch(NamedTuple):
    """What a response searches.

    Parameters
    ----------
    files : sequence of StoreFile
        The files that the answer is given from, each once.
    settings : SearchSettings
        Which passages are listed.
    lists : bool
        Whether the request asks for the passages.
    notices : sequence of str
        Sentences about files that cannot be searched.
    """

    files: Sequence[StoreFile]
    settings: SearchSettings
    lists: bool
    notices: Sequence[str]

    async def call(self, server: Server, request: Request, question: str) -> dict[str, Any]:
        """Return the item of a response about the search: passages of the documents that the model has read."""
        results = None
        if self.lists:
            read = {with_id(document).id for document in request.context.documents} if request.context else set()
            files = [file for file in self.files if file.document["id"] in read]
            found = await searched(server, files, question, self.settings)
            results = [search_as_json(*each) for each in found]
        item = {"id": f"fs_{uuid.uuid4().hex}", "type": "file_search_call", "status": "completed"}
        return {**item, "queries": [question], "results": results}


async def file_search_of(
    http_request: HttpRequest, tools: Sequence[Mapping[str, Any]], include: Sequence[str]
) -> FileSearch | None:
    """Return what the tools of a request search; None if they do not search files.

    Raises
    ------
    RequestError
        A vector store is unknown, a tool has no known form, or there is no file to search: the model would answer from
        memory.
    """
    searches = [checked(FileSearchTool, tool, "tools") for tool in tools if tool.get("type") == FILE_SEARCH]
    if not searches:
        return None
    stores, files, notices = pool_of(http_request).vector_stores, dict[str, StoreFile](), dict[str, None]()
    known = await KnownFiles.of(http_request)
    for tool in searches:
        for store_id in tool.vector_store_ids:
            store = await asyncio.to_thread(stores.get, store_id)
            chosen, problems = tool.chosen(known.in_store(store))
            files |= {file.document["id"]: file for file in chosen}
            notices |= dict.fromkeys(problems)
    if not files:
        why = " ".join(notices) or "The vector stores have no file, or none that fits the filters."
        raise RequestError(f"There is nothing to search. {why}", param="tools")
    return FileSearch(list(files.values()), searches[0], _WITH_RESULTS in include, list(notices))


async def searched(
    server: Server, files: Sequence[StoreFile], question: str, settings: SearchSettings
) -> list[tuple[StoreFile, str, float]]:
    """Return the passages of files that share words with a question, the best first, with scores between 0 and 1.

    Scores are in the order of BM25's, which has no upper bound: OpenAI's API bounds them.
    """
    by_id = {file.document["id"]: file for file in files}
    if not by_id:
        return []
    passages = await server.finder.search(list(by_id), question, settings.max_num_results)
    found = [
        (by_id[document.id], text, score / (1 + score)) for document, text, score in passages if document.id in by_id
    ]
    return [each for each in found if each[2] >= settings.ranking_options.score_threshold]


def search_as_json(file: StoreFile, passage: str, score: float, in_parts: bool = False) -> dict[str, Any]:
    """Return a passage that was found, in OpenAI's form.

    Parameters
    ----------
    in_parts : bool
        Whether the text is a list of parts, as in a search of its own.
    """
    text = {"content": [{"type": "text", "text": passage}]} if in_parts else {"text": passage}
    named = {"file_id": file.entry["id"], "filename": file.document["filename"]}
    named["status_details"] = file.document["status_details"]
    return {**named, "score": round(score, 4), "attributes": file.entry["attributes"], **text}
