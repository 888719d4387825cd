"""Answer questions from documents, with a model that is loaded for the first question."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import OctavoError
from ...settings import ModelSettings, ReadSettings, Sampling
from .call_progress import CallProgress
from .tool_results import AnswerBasis, AnswerSource, GivenAnswer

if TYPE_CHECKING:
    from ...ask.session import Session
    from ...ask.sources.find_sources import Passage
    from ...runtime.llama import Llama
    from ...runtime.methods.attention import Attention
    from ...runtime.store.model_library import Library


class DocumentAnswers:
    """Answers questions, one after another, each in a conversation of its own. One thread calls it.

    Parameters
    ----------
    settings : ModelSettings
        The model; its path is that of a file.
    library : Library
        The model's indexes.
    """

    def __init__(
        self,
        settings: ModelSettings,
        library: Library,
        attention: Attention,
        sampling: Sampling,
        reading: ReadSettings,
    ) -> None:
        self._settings, self._library, self._attention = settings, library, attention
        self._sampling, self._reading = sampling, reading
        self._llama: Llama | None = None

    def ask(self, question: str, documents: dict[str, Path], progress: CallProgress) -> GivenAnswer:
        """Answer a question from documents, which are read first where that can be done in time.

        Parameters
        ----------
        documents : dict
            Paths of the documents, by name.

        Raises
        ------
        OctavoError
            The model or the documents cannot be used, or the question is empty.
        """
        from ...ask.answer.notices import notices_of_settings, notices_of_whole
        from ...library.question_words import needs_whole

        if not question.strip():
            raise OctavoError("The question is empty.")
        if not documents:
            raise OctavoError("There are no documents to answer from.")
        session = self._open(list(documents.values()), progress)
        progress.start("Answering", self._sampling.max_tokens or session.n_ctx, "tokens")
        with closing(session.stream_parts(question)) as parts:
            for _ in parts:
                progress.advance(1)
        answer, origins = session.answer, self._origins(documents)
        assert answer is not None
        basis = answer.read
        assert basis is not None
        of_whole = notices_of_whole(needs_whole(question), basis.share)
        context, draft = session.llama.context, self._sampling.draft
        of_settings = notices_of_settings(self._attention, draft, context.cache, context.no_drafts)
        notices = {**answer.notices, **of_whole, **of_settings}
        return GivenAnswer(
            answer=answer.text,
            finish_reason=answer.finish_reason,
            sources=[_source(passage, origins) for passage in _sources(session, progress)],
            basis=AnswerBasis(
                **basis.as_json(),
                rest=session.rest,
                documents=list(dict.fromkeys(_origin(path, origins)[0] for path in session.read_from)),
            ),
            notices=[*progress.notices, *notices.values()],
        )

    def close(self) -> None:
        """Free the model."""
        if self._llama is not None:
            self._llama.close()

    def _origins(self, documents: dict[str, Path]) -> dict[str, tuple[str, int]]:
        """Return the name of each document, by its path, and the character at which it begins: 0.

        A part of a document that is longer than the context has no path, but a name. It stands for the document from
        the character on at which the part begins.
        """
        from ...library.document_parts import with_file_name
        from ...library.expand_paths import distinct_names
        from ...library.source_text import SourceFile
        from ...runtime.store.library_snapshot import LibrarySnapshot

        snapshot, names = LibrarySnapshot(self._library), distinct_names(documents.values())
        origins = {str(path): (name, 0) for name, path in documents.items()}
        for name, path in documents.items():
            version = SourceFile(path, self._reading.extraction).version
            for entry in snapshot.texts_at(version) if version is not None else ():
                if part := entry.get("part"):
                    origins[with_file_name(entry["name"], names[str(path)])] = name, part[0]
        return origins

    def _open(self, paths: Sequence[Path], progress: CallProgress) -> Session:
        """Open documents with the empty model."""
        from ...api import Asking, Opening
        from ...library.background.computing import computing
        from ...runtime.store.library_snapshot import LibrarySnapshot

        with computing():
            opening = Opening(paths, Asking(self._sampling, self._reading, "", sources=True), progress)
            texts = opening.extracted(snapshot := LibrarySnapshot(self._library))
            return opening.session(self._loaded(progress), snapshot, texts)

    def _loaded(self, progress: CallProgress) -> Llama:
        """Return the model, which holds nothing."""
        if self._llama is None:
            from ...ask.context.whole.drawn_together import TOGETHER
            from ...runtime.load_model import load

            progress.start(f"Loading {self._library.model_path.stem}", 1, "models")
            self._llama = load(self._settings, self._library, self._attention, progress.notice, TOGETHER)
        self._llama.context.record(None)
        self._llama.reset()
        return self._llama


def _sources(session: Session, progress: CallProgress) -> list[Passage]:
    """Return the sources of an answer; none, with a notice, if they cannot be found with this model."""
    try:
        return session.sources()
    except OctavoError as problem:
        progress.notice(str(problem))
        return []


def _source(passage: Passage, origins: dict[str, tuple[str, int]]) -> AnswerSource:
    """Return a source as JSON, with its characters in the whole document."""
    name, begin = _origin(passage.document, origins)
    told = {"document": name, "start": begin + passage.start, "stop": begin + passage.stop}
    return AnswerSource(**{**passage.as_json(), **told})


def _origin(path: Path | str | None, origins: dict[str, tuple[str, int]]) -> tuple[str, int]:
    """Return the name of a document, or of that which it is a part of, and the character at which it begins there."""
    return origins.get(str(path), (str(path), 0))
