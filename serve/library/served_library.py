"""The library that the server answers from: documents that are read, those that are being read, and uploads."""

from __future__ import annotations

import asyncio
import hashlib
import re
import shutil
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from fnmatch import fnmatch
from glob import has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...convert.clusters import settings_for
from ...convert.index_builder import identity
from ...convert.pipeline import covers_by
from ...errors import OctavoError
from ...library import catalogue
from ...library.batch.job import Job
from ...runtime.llama import Llama
from ...runtime.store.files import PARTIAL, make_private
from ...runtime.store.index_files import open_index
from ...runtime.store.model_library import Library, folder_name
from ...settings import PREFILLS
from ..engine.prompt_cache import n_common
from ..http.api_error import RequestError
from .open_document import OpenDocument
from .upload import Reading

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Longest name of an upload's file.
_LONGEST_NAME = 120

#: File beside an upload until it is read: its reading goes on when the server is started again.
_UNREAD = ".unread"


#: The id, the folder and the manifest of an index.
_Finished = tuple[str, Path, dict[str, Any]]


class Documents:
    """The documents of one model's library. Methods that are coroutines belong to the server's loop.

    Parameters
    ----------
    llama : Llama
        The model: its tokenizer and settings.
    library : Library
        The model's library.
    job : Job
        How documents are read.
    """

    def __init__(self, llama: Llama, library: Library, job: Job) -> None:
        self._llama, self._library, self._job = llama, library, job
        self._n_head = len(llama.prompt().head())
        settings = settings_for(llama.context.kv_type, llama.attention.clustering)
        covers = {0.0, *(covers_by(prefill, llama) for prefill in PREFILLS)}
        self._identities = [identity(llama, settings, each) for each in sorted(covers)]
        self._readings: dict[str, Reading] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._one_at_a_time, self._closing = asyncio.Semaphore(1), False
        self._lock = threading.Lock()
        self._opened: dict[Path, OpenDocument] = {}
        self._tokens: dict[Path, np.ndarray] = {}
        self.when_removed: Callable[[str], None] = lambda document_id: None

    @property
    def _uploads(self) -> Path:
        return self._library.folder / "uploads"

    def _finished(self) -> Iterator[_Finished]:
        """Yield the id, the folder and the manifest of each index that the model can attend as it is set now."""
        for path, manifest in self._library.indexes():
            known = manifest["document"]
            places = (self._library.index_path(known["name"], known["sha256"], each) for each in self._identities)
            if any(place == path for place in places):
                yield self._id_of(known), path, manifest

    def _id_of(self, described: dict[str, Any]) -> str:
        """Name a document by its content: that of an upload's file, else its text."""
        path = Path(described.get("path", ""))
        if path.parent.parent == self._uploads.resolve():
            return path.parent.name
        return f"file-{described['sha256'][:24]}"

    async def open(self, reference: str) -> OpenDocument:
        """Open a document that was read.

        Parameters
        ----------
        reference : str
            Its id, or its name in the library.

        Raises
        ------
        RequestError
            There is none, it is still being read, it could not be read, or its index is damaged.
        """
        document_id, path, _ = self._named(reference, list(self._finished()))[0]
        return await self.open_at(path, document_id)

    def find(self, references: Sequence[str]) -> dict[Path, str]:
        """Find documents by what a request calls them.

        Parameters
        ----------
        references : sequence of str
            Ids and names as in `open`, and patterns of names, such as "*.pdf".

        Returns
        -------
        dict
            The folder of each document's index, and its id.

        Raises
        ------
        RequestError
            There is none of a name, or none that fits a pattern; one is still being read, or could not be read.
        """
        finished = list(self._finished())
        return {path: known for name in references for known, path, _ in self._named(name, finished)}

    async def open_at(self, path: Path, document_id: str) -> OpenDocument:
        """Open a document whose index was found.

        Raises
        ------
        OctavoError
            Its index is damaged.
        """
        return await asyncio.to_thread(self._open, document_id, path)

    def _named(self, reference: str, finished: list[_Finished]) -> list[_Finished]:
        """Return the documents that have an id, else those that have a name, else those whose names fit a pattern."""
        own = [each for each in finished if each[0] == reference][:1]
        own = own or [each for each in finished if each[2]["document"]["name"] == reference][:1]
        if not own and has_magic(reference):
            own = [each for each in finished if fnmatch(each[2]["document"]["name"], reference)]
        if not own and (reading := self._readings.get(reference)) is not None:
            if reading.problem:
                raise RequestError(f"{reading.file.name} could not be read: {reading.problem}")
            raise RequestError(f"{reading.file.name} is still being read: ask again later.", 409)
        if not own:
            raise RequestError(f"There is no document {reference}: upload it to /v1/files first.", 404, "not_found")
        return own

    def _open(self, document_id: str, path: Path) -> OpenDocument:
        with self._lock:
            known = self._opened.get(path)
            if known is not None:
                with suppress(OctavoError):
                    known.index.check()
                    return known
            index, manifest = open_index(path, self._library.model_hash)
            catalogue.note_use(path)
            opened = OpenDocument(document_id, path, index, manifest["document"], self._n_head)
            self._opened[path], self._tokens[path] = opened, index.tokens
            return opened

    def open_all(self) -> None:
        """Open all documents, so that prompts that begin with one find it. What cannot be opened is left out."""
        for document_id, path, _ in self._finished():
            with suppress(OctavoError):
                self._open(document_id, path)

    def begun_by(self, tokens: np.ndarray) -> OpenDocument | None:
        """Find the longest open document that a prompt begins with."""
        n, found = self.shares_most(tokens, whole=True)
        return found if n else None

    def shares_most(self, tokens: np.ndarray, whole: bool = False) -> tuple[int, OpenDocument | None]:
        """Find the open document that shares most of its first tokens with a prompt.

        Parameters
        ----------
        tokens : int32 array, shape (n_tokens,)
            The prompt.
        whole : bool
            Leave out those of which the prompt has only a part.

        Returns
        -------
        n_common : int
            How many tokens they share.
        document : OpenDocument or None
            The document.
        """
        best, found = 0, None
        with self._lock:
            opened = list(self._opened.values())
        for document in opened:
            n = n_common(document.index.tokens, tokens)
            if n > best and (not whole or n == document.n_tokens):
                best, found = n, document
        return best, found

    async def add_bytes(self, name: str, data: bytes) -> str:
        """Take an upload, and read it in the background.

        Parameters
        ----------
        name : str
            What the client calls the file. No folder of it counts.
        data : bytes
            What is in it.

        Returns
        -------
        str
            Its id. The same bytes always have the same.

        Raises
        ------
        OctavoError
            It cannot be stored.
        """
        document_id = f"file-{hashlib.sha256(data).hexdigest()[:24]}"
        if any(document_id == known for known, _, _ in self._finished()):
            return document_id
        reading = self._readings.get(document_id)
        if reading is not None and not reading.finished.is_set():
            return document_id
        file = self._uploads / document_id / _file_name(name)
        await asyncio.to_thread(_store, file, data)
        self._begin(document_id, file)
        return document_id

    async def resume(self) -> None:
        """Go on with the uploads that were being read when the server was stopped."""
        for mark in sorted(self._uploads.glob(f"*/{_UNREAD}")):
            files = [file for file in mark.parent.iterdir() if not file.name.startswith(".")]
            if len(files) == 1 and not any(known == mark.parent.name for known, _, _ in self._finished()):
                self._begin(mark.parent.name, files[0])

    def _begin(self, document_id: str, file: Path) -> None:
        """Read an upload in the background."""
        self._readings[document_id] = reading = Reading(file.resolve(), self._job)
        task = asyncio.create_task(self._read(document_id, reading))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _read(self, document_id: str, reading: Reading) -> None:
        async with self._one_at_a_time:
            await reading.run()
        if self._readings.get(document_id) is not reading:
            return
        made = [path for known, path, _ in self._finished() if known == document_id]
        if made:
            reading.file.with_name(_UNREAD).unlink(missing_ok=True)
        if self._closing:
            return
        if reading.problem:
            shutil.rmtree(reading.file.parent, ignore_errors=True)
            return
        del self._readings[document_id]
        for path in made:
            with suppress(OctavoError):
                await asyncio.to_thread(self._open, document_id, path)

    async def wait(self, document_id: str) -> None:
        """Wait until a document is read.

        Raises
        ------
        RequestError
            It could not be read.
        """
        reading = self._readings.get(document_id)
        if reading is not None:
            await reading.finished.wait()
            if reading.problem:
                raise RequestError(f"{reading.file.name} could not be read: {reading.problem}")

    def list(self) -> list[dict[str, Any]]:
        """Return what clients are told of all documents, the newest first."""
        finished = [self._as_json(*each) for each in self._finished()]
        known = {each["id"] for each in finished}
        begun = [self._reading_as_json(name, each) for name, each in self._readings.items() if name not in known]
        return sorted([*begun, *finished], key=lambda each: -each["created_at"])

    def describe(self, document_id: str) -> dict[str, Any]:
        """Return what clients are told of a document.

        Raises
        ------
        RequestError
            There is none.
        """
        for each in self.list():
            if each["id"] == document_id:
                return each
        raise RequestError(f"There is no file {document_id}.", 404, "not_found")

    async def remove(self, document_id: str) -> None:
        """Remove a document's index, and its file if it was uploaded; end its reading if it is being read.

        Raises
        ------
        RequestError
            There is none.
        """
        reading = self._readings.pop(document_id, None)
        if reading is not None:
            await reading.cancel()
            for partial in self._library.folder.glob(f"{folder_name(reading.file.name)}-*{PARTIAL}"):
                with suppress(OctavoError):
                    catalogue.remove(partial)
        own = [each for each in self._finished() if each[0] == document_id]
        if not own and reading is None:
            raise RequestError(f"There is no file {document_id}.", 404, "not_found")
        for _, path, _ in own:
            await asyncio.to_thread(catalogue.remove, path)
            with self._lock:
                self._opened.pop(path, None)
                self._tokens.pop(path, None)
        shutil.rmtree(self._uploads / document_id, ignore_errors=True)
        self.when_removed(document_id)

    async def close(self) -> None:
        """End all readings. They go on where they stopped when the server is started again."""
        self._closing = True
        for reading in list(self._readings.values()):
            await reading.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _as_json(self, document_id: str, path: Path, manifest: dict[str, Any]) -> dict[str, Any]:
        known = manifest["document"]
        created = int(datetime.fromisoformat(manifest["created"]).timestamp())
        n_bytes, n_tokens = catalogue.folder_bytes(path), known["tokens"]
        file = _file(document_id, known["name"], known.get("bytes", 0), created, "processed")
        return {**file, "tokens": n_tokens, "index_bytes": n_bytes}

    def _reading_as_json(self, document_id: str, reading: Reading) -> dict[str, Any]:
        status = "error" if reading.problem else "processing"
        n_bytes = reading.file.stat().st_size if reading.file.exists() else 0
        file = _file(document_id, reading.file.name, n_bytes, int(reading.created), status)
        progress = reading.progress
        n_tokens = progress.total if progress and progress.unit == "tokens" else None
        shown = progress.as_json() if progress and not reading.problem else None
        return {**file, "status_details": reading.problem or None, "tokens": n_tokens, "progress": shown}


def _file(document_id: str, name: str, n_bytes: int, created: int, status: str) -> dict[str, Any]:
    """A file as OpenAI's API has it, with what octavo adds."""
    known = {"id": document_id, "object": "file", "filename": name, "bytes": n_bytes, "created_at": created}
    known |= {"purpose": "user_data", "status": status, "status_details": None}
    return {**known, "tokens": None, "index_bytes": None, "progress": None}


def _file_name(name: str) -> str:
    """A name for an upload's file that leads to no folder."""
    base = re.split(r"[/\\]", name)[-1]
    cleaned = re.sub(r"[^\w.,()+ -]", "_", base).strip(" .")
    if len(cleaned) > _LONGEST_NAME:
        cleaned = cleaned[: _LONGEST_NAME - 20] + cleaned[-20:]
    return cleaned or "document.txt"


def _store(file: Path, data: bytes) -> None:
    """Write an upload, whole or not at all."""
    make_private(file.parent.parent)
    make_private(file.parent)
    for other in file.parent.iterdir():
        other.unlink()
    unfinished = file.with_name(".upload")
    try:
        file.with_name(_UNREAD).touch(0o600)
        unfinished.write_bytes(data)
        unfinished.chmod(0o600)
        unfinished.replace(file)
    except OSError as problem:
        raise OctavoError(f"The upload cannot be stored: {problem.strerror}.") from problem
