"""RULER's needles with several keys (section 3.1, MK-NIAH), spread over the documents of a folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...errors import OctavoError
from ...runtime.llama import Llama
from ...runtime.methods.parameters import parameter
from ..prose import prose_of
from ..tasks.niah import NEEDLE, ONE, SHORTEST
from ..tasks.ruler import NUMBER, WORD, Page
from ..tasks.task import NOVEL
from .folder_task import Asked, Folder, FolderTask, document_name, documents_with


@dataclass(frozen=True)
class FolderMultikey(FolderTask):
    """Recall the value of one of many keys.

    Parameters
    ----------
    keys : int
        Keys in each document.
    """

    keys: int = parameter(4, least=1)

    name = "folder-multikey"
    data = NOVEL

    def folder(self, llama: Llama, data: Path, depth: int, n_samples: int, seed: int) -> Folder:
        """Hide keys with their values in all documents (see `FolderTask.folder`)."""
        rng, n_keys = np.random.default_rng([seed, depth]), self.keys * self.documents
        if n_samples > n_keys:
            raise OctavoError(f"The documents have {n_keys} keys: give fewer --samples, or more keys.")
        if self.keys * SHORTEST > depth:
            raise OctavoError(f"{depth:,} tokens have no room for {self.keys:,} paragraphs: give larger --depths.")
        page = Page(llama, prose_of(llama, data))
        keys, values = page.draw(WORD, n_keys, rng), page.draw(NUMBER, n_keys, rng)
        needles = [NEEDLE.format(kind=NUMBER, key=key, value=value) for key, value in zip(keys, values, strict=True)]
        hidden = [needles[first : first + self.keys] for first in range(0, n_keys, self.keys)]
        asked = [
            Asked(
                ONE.format(kind=NUMBER, keys=keys[i]),
                (values[i],),
                document_name(int(i) // self.keys),
                needles[i],
            )
            for i in rng.permutation(n_keys)[:n_samples]
        ]
        return Folder(documents_with(page.prose, hidden, depth, rng), asked)
