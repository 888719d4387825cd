"""Evaluate ways to answer from many documents: one model, one folder, every way on the same questions."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ... import __version__
from ...convert.documents import Source
from ...convert.progress import Progress, of_many
from ...convert.retrieval_heads import source_heads
from ...convert.shelf import open_shelf
from ...cpu_kernels.machine import cpu_name
from ...runtime.llama import Llama
from ...runtime.store.files import disk_errors
from ...runtime.store.library import Library, hash_text
from ..results import Results
from .task import Asked, Folder, FolderTask
from .ways import WAYS, Reading

#: Most tokens of an answer.
_ANSWER = 48


@dataclass(frozen=True)
class FolderSettings:
    """What to evaluate.

    Parameters
    ----------
    depths : list of int
        Tokens of a document.
    n_samples : int
        Questions at each depth.
    seed : int
        Seed of documents and questions.
    data : Path
        File that documents are made of.
    """

    depths: list[int]
    n_samples: int
    seed: int
    data: Path


class FolderEvaluation:
    """One evaluation. It measures what its results file does not hold yet.

    Documents and their indexes lie in a folder of their own, which is removed when all is measured.

    Parameters
    ----------
    llama : Llama
        The model.
    library : Library
        Where the results are kept.
    task : FolderTask
        What is measured.
    settings : FolderSettings
        Documents and questions.
    progress : Progress
        Receives the progress.
    notice : callable
        Receives sentences for the user.
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
        depends_on = {
            "octavo": __version__,
            "task": {"name": task.name, **vars(task)},
            "model": {"name": library.model_path.name, "sha256": library.model_hash},
            "cache_type": llama.context.kv_type,
            "attention": llama.attention,
            "data": {"name": settings.data.name, "sha256": hash_text(task.content(settings.data))},
            "samples": settings.n_samples,
            "seed": settings.seed,
        }
        identity = hashlib.sha256(json.dumps(depends_on, sort_keys=True).encode()).hexdigest()[:12]
        self._place = library.folder / "eval" / f"{task.name}-{identity}"
        machine = {"cpu": cpu_name(), "threads": llama.context_params.n_threads, "device": llama.context.device.name}
        self.results = Results(self._place.with_suffix(".jsonl"), {**depends_on, "machine": machine})

    def run(self) -> dict[str, Any]:
        """Measure what is missing.

        Returns
        -------
        dict
            What `octavo eval -o json` prints.

        Raises
        ------
        OctavoError
            The documents cannot be made or read.
        """
        settings, rows = self.settings, list[dict[str, Any]]()
        for depth in sorted(set(settings.depths)):
            folder = self.task.folder(self.llama, settings.data, depth, settings.n_samples, settings.seed)
            self._measure(folder, depth)
            rows += [self._row(way, depth) for way in WAYS if (way, 1.0, depth, 0, 0) in self.results.samples]
        shutil.rmtree(self._place, ignore_errors=True)
        return {
            "task": self.task.name,
            "parameters": self.task.changed,
            "metric": self.task.metric,
            "higher_is_better": True,
            **{name: self.results.header[name] for name in ("model", "octavo", "data", "seed", "machine")},
            "results": rows,
        }

    def _measure(self, folder: Folder, depth: int) -> None:
        """Answer the questions in each way, unless the answers are there."""
        missing = [
            (way, number)
            for way in WAYS
            for number in range(len(folder.asked))
            if (way, 1.0, depth, 0, number) not in self.results.samples
        ]
        if not missing:
            return
        reading = self._open(folder, depth)
        fits = reading.n_all + depth < self.llama.n_ctx()
        missing = [each for each in missing if fits or WAYS[each[0]] is not Reading.all]
        for way in dict(missing):
            numbers = [number for own, number in missing if own == way]
            self.progress.start(f"{way} at {depth:,}", len(numbers), "questions")
            for number in numbers:
                self.results.add_sample(self._answered(reading, way, folder.asked[number], depth, number))
                self.progress.advance(1)

    def _open(self, folder: Folder, depth: int) -> Reading:
        """Write the documents, and index them."""
        place = self._place / str(depth)
        with disk_errors(place):
            place.mkdir(parents=True, exist_ok=True)
            for name, text in folder.documents.items():
                (place / name).write_text(text, "utf-8")
        library = Library.of(self.library.model_path, place)
        heads = source_heads(self.llama, self.library, self.notice)
        sources = [Source(place / name) for name in folder.documents]
        n_threads = self.llama.context_params.n_threads
        progress = of_many(self.progress, 1)
        shelf = open_shelf(self.llama, library, sources, heads, progress, n_threads, lambda said: None, "sparse")
        return Reading(self.llama, shelf)

    def _answered(self, reading: Reading, way: str, asked: Asked, depth: int, number: int) -> dict[str, Any]:
        """Answer a question; returns the record of it."""
        start = time.perf_counter()
        found = WAYS[way](reading, asked)
        n_held, first = self.llama.n_tokens, 0.0
        text = ""
        for piece in reading.answer(asked.question, _ANSWER):
            first = first or time.perf_counter()
            text += piece
        return {
            "attention": way,
            "budget": 1.0,
            "depth": depth,
            "text": 0,
            "sample": number,
            "score": self.task.score(text, asked),
            "found": float(found),
            "held": n_held,
            "written": text,
            "first_token_s": round((first or time.perf_counter()) - start, 4),
        }

    def _row(self, way: str, depth: int) -> dict[str, Any]:
        """Return the means over the questions of a way."""
        own = [record for (name, _, at, _, _), record in self.results.samples.items() if (name, at) == (way, depth)]
        scores = np.array([record["score"] for record in own])
        return {
            "way": way,
            "documents": self.task.documents,
            "depth": depth,
            "samples": len(own),
            "score": round(float(scores.mean()), 5),
            "standard_error": round(float(scores.std(ddof=1) / np.sqrt(len(own))), 5) if len(own) > 1 else None,
            "found": round(float(np.mean([record["found"] for record in own])), 5),
            "held": round(float(np.mean([record["held"] for record in own]))),
            "first_token_s": round(float(np.median([record["first_token_s"] for record in own])), 4),
        }
