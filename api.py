"""The Python API: open a document, ask about it.

>>> import octavo
>>> with octavo.open_document("report.txt", model="model.gguf") as document:
...     print(document.ask("What did the auditors object to?").text)

Settings are values: see `ModelSettings`, `ReadSettings` and `Sampling` (settings.py). The command line calls these
functions.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .ask.context.context_chooser import open_chooser
from .ask.context.whole.drawn_together import TOGETHER
from .ask.session import Session
from .ask.sources.retrieval_heads import source_heads
from .library.background.computing import computing
from .library.expand_paths import absolute, check_existence, distinct_names, documents_of, listed, names_many
from .library.file_texts import FileTexts
from .library.open_index import Indexer
from .library.source_text import SourceFile
from .progress import BeforeMany, Progress, ProgressOfMany, Silent, of_many
from .runtime.llama import Llama
from .runtime.load_model import Notice, load, locate_model
from .runtime.methods import DEFAULT_ATTENTION
from .runtime.methods.attention import Attention
from .runtime.store.library_snapshot import LibrarySnapshot
from .runtime.store.model_library import Library
from .settings import AnyPath, ModelSettings, ReadSettings, Sampling

#: Names of a `Session` over documents, for a release.
Document = Collection = Session


@dataclass(frozen=True)
class Asking:
    """How documents are opened, and questions about them answered: all but the model and its attention.

    Parameters
    ----------
    system_prompt : str
        Instructions that the model reads after the document, before the first question.
    sources : bool
        Whether `Session.sources` can find where answers come from.
    """

    sampling: Sampling
    reading: ReadSettings
    system_prompt: str
    sources: bool


class Opening:
    """Documents that are to be opened.

    Parameters
    ----------
    paths : sequence of path
        Documents, folders and patterns.
    is_one : bool
        Whether the path names a single document, even if it looks like a pattern or is missing.

    Raises
    ------
    OctavoError
        There is no such file.
    """

    def __init__(
        self,
        paths: Sequence[AnyPath],
        asking: Asking,
        progress: Progress | ProgressOfMany,
        is_one: bool = False,
    ) -> None:
        self._paths, self._asking, self._progress = paths, asking, of_many(progress, 1)
        self._before = BeforeMany(progress) if isinstance(progress, ProgressOfMany) else progress
        if not is_one:
            check_existence(paths)
        named = paths if is_one else documents_of(paths, progress.notice)
        labels = distinct_names(named)
        self._files = [SourceFile(path, asking.reading.extraction, labels[os.fspath(path)]) for path in named]

    def extracted(self, snapshot: LibrarySnapshot) -> FileTexts:
        """Return the texts of the files. A single one is extracted now, and refused before a model is loaded."""
        texts = FileTexts(snapshot.library, self._before, self._asking.reading.n_jobs)
        if len(self._files) == 1:
            texts.check(self._files[0], snapshot)
        return texts

    def session(self, llama: Llama, snapshot: LibrarySnapshot, texts: FileTexts) -> Session:
        """Open the documents with an empty model.

        Raises
        ------
        OctavoError
            No document can be used, or disk or memory do not suffice.
        """
        asking, notice = self._asking, self._progress.notice
        indexer, library = Indexer(llama, snapshot, asking.reading, notice), snapshot.library
        heads = source_heads(llama, library, notice) if asking.sources else None
        chooser = open_chooser(indexer, self._files, texts, asking.reading, self._progress)
        session = Session(llama, asking.sampling, asking.system_prompt, chooser, heads, library, notice)
        session.about = absolute(self._paths)
        return session


@computing()
def load_and_open(opening: Opening, settings: ModelSettings, attention: Attention, notice: Notice) -> Session:
    """Load a model, and open documents with it. Raise OctavoError as `open_document` does."""
    settings, library = locate_model(settings, notice)
    texts = opening.extracted(snapshot := LibrarySnapshot(library))
    llama = load(settings, library, attention, notice, TOGETHER, parallel_states=False)
    try:
        return opening.session(llama, snapshot, texts)
    except BaseException:
        llama.close()
        raise


def open_document(
    path: AnyPath,
    model: AnyPath | ModelSettings | None = None,
    *,
    attention: str | Attention = DEFAULT_ATTENTION,
    sampling: Sampling = Sampling(),
    reading: ReadSettings = ReadSettings(),
    system_prompt: str = "",
    sources: bool = False,
    progress: Progress | ProgressOfMany | None = None,
) -> Session:
    """Open a document for questions.

    The first time, the model reads the document and octavo writes an index of it. From then on it opens at once. An
    interrupted build resumes where it stopped. With `reading=ReadSettings(first_answer=60)` answers wait no longer than
    60 seconds for that: they come from passages until a process in the background has read the document. `Answer.read`
    says what an answer came from.

    Parameters
    ----------
    path : path
        A text, a PDF, a file of Office, or any other that octavo reads (docs/documents.md); "-" is standard input.
    model : path or ModelSettings, optional
        A GGUF file, a name such as "hf:owner/repo:Q4_K_M", or settings that include how the model runs. By default
        SmolLM2-135M-Instruct.
    attention : str or Attention
        How tokens attend to earlier ones: words of `--attention`, such as "auto", the default, "dense", or "duo+quest"
        (docs/methods.md); or `Attention.parse("auto", quality=0.9)` for words with a budget, a quality, a
        plan or a share of retrieval heads.
    sampling : Sampling
        How to draw answers.
    reading : ReadSettings
        How to read the document the first time.
    system_prompt : str
        Instructions that the model reads after the document, before the first question.
    sources : bool
        Whether `Session.sources` can find where answers come from. The first time, this takes a second, to find the
        model's retrieval heads.
    progress : Progress or ProgressOfMany, optional
        Receives the progress of reading and clustering, and notices.

    Returns
    -------
    Session
        The document, in parts if it is longer than the context. Use it as a context manager, or close it.

    Raises
    ------
    OctavoError
        Document, model or plan cannot be used, a setting is out of range, or disk or memory do not suffice.
    """
    progress, asking = progress or Silent(), Asking(sampling, reading, system_prompt, sources)
    opening = Opening([path], asking, progress, is_one=True)
    return load_and_open(opening, ModelSettings.of(model), Attention.of(attention), progress.notice)


def open_documents(
    paths: AnyPath | Iterable[AnyPath],
    model: AnyPath | ModelSettings | None = None,
    *,
    attention: str | Attention = DEFAULT_ATTENTION,
    sampling: Sampling = Sampling(),
    reading: ReadSettings = ReadSettings(),
    system_prompt: str = "",
    sources: bool = False,
    progress: Progress | ProgressOfMany | None = None,
) -> Session:
    """Open many documents for questions. Each is answered from excerpts of all, or from a whole one.

    Documents without an index are indexed first, unless `reading` asks for excerpts alone: then words find passages of
    the texts, and the model reads these for each question. A document that cannot be used is left out, and `progress`
    receives the reason; one that is named and missing is an error. For all other arguments see `open_document`.

    Parameters
    ----------
    paths : path or iterable of path
        Documents; folders, which stand for the documents in them; and patterns, such as "reports/**/*.pdf"
        (docs/library.md). One of these, or several.

    Returns
    -------
    Session
        The documents. `path` is the file of the last answer. Use it as a context manager.

    Raises
    ------
    OctavoError
        No document can be used, or for the reasons of `open_document`.
    """
    progress, asking = progress or Silent(), Asking(sampling, reading, system_prompt, sources)
    opening = Opening(listed(paths), asking, progress)
    return load_and_open(opening, ModelSettings.of(model), Attention.of(attention), progress.notice)


@computing()
def open_next(
    session: Session,
    *paths: AnyPath,
    reading: ReadSettings = ReadSettings(),
    sources: bool = False,
    progress: Progress | ProgressOfMany | None = None,
) -> Session:
    """Open documents with the model of a conversation, which ends. If that fails, the conversation continues.

    Parameters
    ----------
    session : Session
        The conversation, from `open_document`, `open_documents` or `open_session`.
    *paths : path
        At least one: a document; or several, folders and patterns, as `open_documents` takes them.

    Returns
    -------
    Session
        The document or the documents. It closes the model; do not use the old conversation any more.

    Raises
    ------
    OctavoError
        The document cannot be used, or disk or memory do not suffice.
    """
    snapshot = LibrarySnapshot(session.library or Library.of(session.llama.model_path))
    asking = Asking(session.sampling, reading, session.system, sources)
    is_one = len(paths) == 1 and not names_many(paths[0])
    opening = Opening(paths, asking, progress or Silent(), is_one)
    texts = opening.extracted(snapshot)
    with session.suspended():
        return opening.session(session.llama, snapshot, texts)


@computing()
def open_session(
    model: AnyPath | ModelSettings | None = None,
    *,
    attention: str | Attention = DEFAULT_ATTENTION,
    sampling: Sampling = Sampling(),
    system_prompt: str = "",
    progress: Progress | None = None,
) -> Session:
    """Open a conversation without a document.

    Parameters
    ----------
    system_prompt : str
        The system message.
    progress : Progress, optional
        Receives notices.

    Returns
    -------
    Session
        The conversation. Use it as a context manager, or close it.

    Raises
    ------
    OctavoError
        Model or plan cannot be used, or a setting is out of range.
    """
    notice = (progress or Silent()).notice
    settings, library = locate_model(ModelSettings.of(model), notice)
    llama = load(settings, library, Attention.of(attention), notice, TOGETHER, parallel_states=False)
    return Session(llama, sampling, system_prompt, library=library, notice=notice)
