"""A fact in each of ten documents of a folder, and others that are prose alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...errors import OctavoError
from ...runtime.llama import Llama
from ..prose import prose_of
from ..tasks.needle import FACTS
from ..tasks.task import NOVEL
from .folder_task import Asked, Folder, FolderTask, document_name, documents_with


@dataclass(frozen=True)
class FolderNeedle(FolderTask):
    """Recall facts, each of which is in one document."""

    name = "folder-needle"
    samples = len(FACTS)
    data = NOVEL

    def folder(self, llama: Llama, data: Path, depth: int, n_samples: int, seed: int) -> Folder:
        """Hide facts in documents that are drawn (see `FolderTask.folder`)."""
        most = min(len(FACTS), self.documents)
        if n_samples > most:
            raise OctavoError(f"{self.name} has {most} facts: give fewer --samples, or another --seed for others.")
        rng = np.random.default_rng([seed, depth])
        hidden: list[list[str]] = [[] for _ in range(self.documents)]
        asked = []
        for place, i in zip(rng.permutation(self.documents), rng.permutation(len(FACTS))[:n_samples], strict=False):
            begin, question, words = FACTS[i]
            word = str(rng.choice(words))
            hidden[place].append(f"{begin} {word}.")
            asked.append(Asked(question, (word,), document_name(int(place)), f"{begin} {word}."))
        return Folder(documents_with(prose_of(llama, data), hidden, depth, rng), asked)
