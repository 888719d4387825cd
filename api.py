"""The Python API: open a document, ask about it.

>>> import octavo
>>> with octavo.open_document("report.txt", model="model.gguf") as document:
...     print(document.ask("What did the auditors object to?").text)

Settings are values: see `ModelSettings`, `ReadSettings` and `Sampling` (settings.py). The command line calls these
functions.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from .ask.collection import Collection
from .ask.document_session import Document
from .ask.opening import OneFile, open_files
from .ask.session import Session
from .library.background.computing import computing
from .library.batch.index_documents import index_collection
from .library.batch.index_result import folders_of
from .library.batch.job import ReadingJob
from .library.expand_paths import absolute, check_existence, documents_of, names_many
from .library.source_text import SourceFile
from .progress import Progress, ProgressOfMany, Silent
from .runtime.load_model import load, locate_model
from .runtime.methods import DEFAULT_ATTENTION
from .runtime.methods.attention import Attention
from .runtime.store.library_snapshot import LibrarySnapshot
from .runtime.store.model_library import Library
from .settings import AnyPath, ModelSettings, ReadSettings, Sampling


@computing()
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
) -> Document | Collection:
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
        Whether `Document.sources` can find where answers come from. The first time, this takes a second, to find the
        model's retrieval heads.
    progress : Progress or ProgressOfMany, optional
        Receives the progress of reading and clustering, and notices.

    Returns
    -------
    Document or Collection
        The document; a collection if it is longer than the context, or answered from passages. Use it as a context
        manager, or close it.

    Raises
    ------
    OctavoError
        Document, model or plan cannot be used, a setting is out of range, or disk or memory do not suffice.
    """
    progress = progress or Silent()
    notice = progress.notice
    settings, library = locate_model(ModelSettings.of(model), notice)
    snapshot = LibrarySnapshot(library)
    attention = Attention.of(attention)
    file = OneFile(library, snapshot, SourceFile(path, reading.extraction), reading, progress)
    llama = load(settings, library, attention, notice)
    try:
        session = file.open(llama, sampling, system_prompt, sources)
        session.about = absolute([path])
        if attention != Attention.parse(DEFAULT_ATTENTION) and (
            budget_warning := llama.context.cache.budget_warning(llama.n_tokens)
        ):
            notice(f"Note: {budget_warning}")
    except BaseException:
        llama.close()
        raise
    return session


@computing()
def open_documents(
    paths: Iterable[AnyPath],
    model: AnyPath | ModelSettings | None = None,
    *,
    attention: str | Attention = DEFAULT_ATTENTION,
    sampling: Sampling = Sampling(),
    reading: ReadSettings = ReadSettings(),
    system_prompt: str = "",
    sources: bool = False,
    progress: Progress | ProgressOfMany | None = None,
) -> Collection:
    """Open many documents for questions. Each is answered from excerpts of all, or from a whole one.

    Documents without an index are indexed first, unless `reading` asks for excerpts alone: then words find passages of
    the texts, and the model reads these for each question. A document that cannot be used is left out, and `progress`
    receives the reason; one that is named and missing is an error. For all other arguments see `open_document`.

    Parameters
    ----------
    paths : iterable of path
        Documents; folders, which stand for the documents in them; and patterns, such as "reports/**/*.pdf"
        (docs/library.md).

    Returns
    -------
    Collection
        The documents. `path` is the file of the last answer. Use it as a context manager.

    Raises
    ------
    OctavoError
        No document can be used, or for the reasons of `open_document`.
    """
    progress = progress or Silent()
    notice = progress.notice
    check_existence(paths := list(paths))
    files = [SourceFile(path, reading.extraction) for path in documents_of(paths, notice)]
    settings, library = locate_model(ModelSettings.of(model), notice)
    llama = load(settings, library, Attention.of(attention), notice)
    try:
        snapshot = LibrarySnapshot(library)
        opened = open_files(llama, snapshot, files, reading, progress, sampling, system_prompt, sources)
        opened.about = absolute(paths)
        return opened
    except BaseException:
        llama.close()
        raise


@computing()
def open_next(
    session: Session,
    *paths: AnyPath,
    reading: ReadSettings = ReadSettings(),
    sources: bool = False,
    progress: Progress | ProgressOfMany | None = None,
) -> Document | Collection:
    """Open documents with the model of a conversation, which ends. If that fails, the conversation continues.

    Parameters
    ----------
    session : Session
        The conversation, from `open_document`, `open_documents` or `open_session`.
    *paths : path
        At least one: a document; or several, folders and patterns, as `open_documents` takes them.

    Returns
    -------
    Document or Collection
        The document; its parts if it is longer than the context; or the documents. It closes the model; do not use the
        old conversation any more.

    Raises
    ------
    OctavoError
        The document cannot be used, or disk or memory do not suffice.
    """
    progress, llama = progress or Silent(), session.llama
    library = session.library or Library.of(llama.model_path)
    snapshot = LibrarySnapshot(library)
    if len(paths) > 1 or any(map(names_many, paths)):
        check_existence(paths)
        files = [SourceFile(path, reading.extraction) for path in documents_of(paths, progress.notice)]
        with session.suspended():
            several = open_files(llama, snapshot, files, reading, progress, session.sampling, session.system, sources)
            several.about = absolute(paths)
            return several
    file = OneFile(library, snapshot, SourceFile(paths[0], reading.extraction), reading, progress)
    with session.suspended():
        opened = file.open(llama, session.sampling, session.system, sources)
        opened.about = absolute(paths)
        return opened


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
    llama = load(settings, library, Attention.of(attention), notice)
    return Session(llama, sampling, system_prompt, library=library)


def index_documents(
    paths: Iterable[AnyPath],
    model: AnyPath | ModelSettings | None = None,
    *,
    attention: str | Attention = DEFAULT_ATTENTION,
    reading: ReadSettings = ReadSettings(),
    n_jobs: int = 1,
    scheduler: str | None = None,
    progress: Progress | ProgressOfMany | None = None,
) -> list[Path]:
    """Index documents, so that they open at once later. Documents with an index keep it.

    A document that cannot be indexed does not stop the others.

    Parameters
    ----------
    paths : iterable of path
        Documents, folders and patterns, as `open_documents` takes them.
    attention : str or Attention
        The attention of later questions. Most attentions share an index; some parameters, such as the number of
        centroids, make another.
    n_jobs : int
        Number of documents to read at the same time, each in a process of its own. They share the threads.
    scheduler : str, optional
        Address of a Dask cluster's scheduler, such as "tcp://10.0.0.5:8786": its workers read the documents
        (docs/library.md).
    progress : Progress or ProgressOfMany, optional
        Receives progress and notices. A `Progress` receives one document after another, or the number of finished ones
        if several are read at the same time; a `ProgressOfMany` receives both.

    Returns
    -------
    list of Path
        The folder of each index, in the order of the documents: of one longer than the context, those of its parts.

    Raises
    ------
    NotIndexed
        Some documents cannot be indexed; the others are. Its `outcomes` have the reason or the folders of each.
    OctavoError
        The model cannot be used, a setting is out of range, or a folder has no documents.
    """
    progress = progress or Silent()
    outcomes = index_collection(
        paths,
        ReadingJob(ModelSettings.of(model), Attention.of(attention), reading),
        progress,
        progress.notice,
        n_jobs=n_jobs,
        scheduler=scheduler,
    )
    return folders_of(outcomes)
