"""Evaluate ways to answer from many documents: one model, one folder, every way on the same questions."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...ask.context.document_set import open_document_set
from ...ask.context.passages import PassageFinder
from ...ask.sources.retrieval_heads import source_heads
from ...library.file_texts import FileTexts
from ...library.open_index import Indexer
from ...library.source_text import SourceFile
from ...progress import Progress, Silent, of_many
from ...prompts.direct_prompt import say_that_it_does_not_think
from ...runtime.llama import Llama
from ...runtime.store.library_snapshot import LibrarySnapshot
from ...runtime.store.model_library import Library
from ...settings import ReadSettings
from ...system.files import disk_errors
from ...system.working_time import working_time
from ..header import head_of, machine_of, results_of
from .first_ways import FirstReading
from .folder_task import Asked, Folder, FolderTask
from .ways import FolderReading, Reading
from .whole_ways import WholeReading


@dataclass(frozen=True)
class FolderSettings:
    """Documents and questions of an evaluation.

    Parameters
    ----------
    depths : list of int
        Tokens of a document.
    n_samples : int
        Questions at each depth.
    """

    depths: list[int]
    n_samples: int
    seed: int
    data: Path


class FolderEvaluation:
    """Measure the ways of a folder task that a results file lacks.

    Documents and their indexes lie in a folder that `run` removes at its end.
    """

    def __init__(
        self,
        llama: Llama,
        library: Library,
        task: FolderTask,
        settings: FolderSettings,
        progress: Progress,
        notice: Callable[[str], None],
    ) -> None:
        self.llama, self.library, self.task, self.settings = llama, library, task, settings
        self.progress, self.notice = progress, notice
        self.results = results_of(llama, library, task, settings, machine_of(llama), attention=str(llama.attention))
        of_all = WholeReading if task.is_whole else FolderReading
        self._reading, self._ways = of_all, (FirstReading if task.is_alone else of_all).ways
        self._place = self.results.path.with_suffix("")

    def run(self) -> dict[str, Any]:
        """Measure the missing answers; return the content of `octavo eval -o json`.

        Raise OctavoError if the documents cannot be made or read.
        """
        say_that_it_does_not_think(self.llama, self.notice)
        settings, rows = self.settings, list[dict[str, Any]]()
        for depth in sorted(set(settings.depths)):
            folder = self.task.folder(self.llama, settings.data, depth, settings.n_samples, settings.seed)
            self._measure(folder, depth)
            rows += [self._row(way, depth) for way in self._ways if (way, 1.0, depth, 0, 0) in self.results.samples]
        shutil.rmtree(self._place, ignore_errors=True)
        return {**head_of(self.task, self.results), "results": rows}

    def _measure(self, folder: Folder, depth: int) -> None:
        """Answer the questions in each way, unless the results hold the answers."""
        missing = [
            (way, number)
            for way in self._ways
            for number in range(len(folder.asked))
            if (way, 1.0, depth, 0, number) not in self.results.samples
        ]
        if not missing:
            return
        self.llama.compile_first(self.llama.attention, depth)
        reading = self._open(folder, depth)
        missing = [(way, number) for way, number in missing if reading.can(way)]
        for way in dict(missing):
            numbers = [number for name, number in missing if name == way]
            self.progress.start(f"{way} at {depth:,}", len(numbers), "questions")
            for number in numbers:
                self.results.add_sample(self._answered(reading, way, folder.asked[number], depth, number))
                self.progress.advance(1)

    def _open(self, folder: Folder, depth: int) -> Reading:
        """Write the documents, and index them as far as the ways need it."""
        place = self._place / str(depth)
        with disk_errors(place):
            place.mkdir(parents=True, exist_ok=True)
            for name, text in folder.documents.items():
                (place / name).write_text(text, "utf-8")
        library = Library.of(self.library.model_path, place)
        indexer = Indexer(self.llama, LibrarySnapshot(library), ReadSettings(), lambda sentence: None)
        files = [SourceFile(place / name) for name in folder.documents]
        if self.task.is_alone:
            return FirstReading(indexer, files, self.progress)
        heads, progress = source_heads(self.llama, self.library, self.notice), of_many(self.progress, 1)
        texts = FileTexts(library, Silent())
        document_set = open_document_set(indexer, files, texts, progress, heads)
        return self._reading(
            self.llama, document_set, PassageFinder(self.llama, texts.store, texts.keep(texts.of(files)))
        )

    def _answered(self, reading: Reading, way: str, asked: Asked, depth: int, number: int) -> dict[str, Any]:
        start = working_time()
        found = reading.ways[way](reading, asked)
        n_held, first = self.llama.n_tokens, 0.0
        text = ""
        for piece in reading.answer(asked.question, reading.answer_tokens):
            first = first or working_time()
            text += piece
        return {
            "attention": way,
            "budget": 1.0,
            "depth": depth,
            "text": 0,
            "sample": number,
            "score": self.task.score(text, asked),
            "found": float(found),
            "place": asked.place,
            "held": n_held,
            "written": text,
            "first_token_s": round((first or working_time()) - start, 4),
        }

    def _row(self, way: str, depth: int) -> dict[str, Any]:
        records = [record for (name, _, at, _, _), record in self.results.samples.items() if (name, at) == (way, depth)]
        scores = np.array([record["score"] for record in records])
        row = {
            "way": way,
            "documents": self.task.documents,
            "depth": depth,
            "samples": len(records),
            "score": round(float(scores.mean()), 5),
            "standard_error": round(float(scores.std(ddof=1) / np.sqrt(len(records))), 5) if len(records) > 1 else None,
            "found": round(float(np.mean([record["found"] for record in records])), 5),
            "held": round(float(np.mean([record["held"] for record in records]))),
            "first_token_s": round(float(np.median([record["first_token_s"] for record in records])), 4),
        }
        return {**row, **_by_half(records)} if self.task.is_alone else row


def _by_half(records: Sequence[dict[str, Any]]) -> dict[str, float | None]:
    """Return the mean scores of questions whose passage is in the first half of its document, and of the others."""
    halves: tuple[list[float], list[float]] = [], []
    for record in records:
        halves[record["place"] >= 0.5].append(record["score"])
    return {
        name: round(float(np.mean(scores)), 5) if scores else None
        for name, scores in zip(("first_half", "second_half"), halves, strict=True)
    }
