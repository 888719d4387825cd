"""Questions about articles of Wikipedia, each of which is one document of a folder, among prose."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...errors import OctavoError
from ...runtime.llama import Llama
from ..prose import prose_of
from ..tasks.qa import Paragraph, read_articles
from ..tasks.task import ARTICLES, NOVEL
from .folder_task import Asked, Folder, FolderTask, document_name, documents_with


@dataclass(frozen=True)
class FolderQA(FolderTask):
    """Answer questions about paragraphs; the paragraphs of an article are in one document.

    Documents beyond the articles are prose alone. Data are articles, as those of `qa`.
    """

    name = "folder-qa"
    data = ARTICLES

    def folder(self, llama: Llama, data: Path, depth: int, n_samples: int, seed: int) -> Folder:
        """Hide the paragraphs of each article in a document of prose (see `FolderTask.folder`)."""
        rng = np.random.default_rng([seed, depth])
        articles: dict[str, list[Paragraph]] = {}
        for paragraph in read_articles(data):
            articles.setdefault(paragraph.title, []).append(paragraph)
        chosen = [own for _, own in zip(range(self.documents), articles.values(), strict=False)]
        hidden: list[list[str]] = [[] for _ in range(self.documents)]
        asked: list[Asked] = []
        for place, own in zip(rng.permutation(self.documents), chosen, strict=False):
            hidden[place] = [paragraph.context for paragraph in own]
            name = document_name(int(place))
            for paragraph in own:
                asked += [
                    Asked(question.text, question.answers, name, paragraph.context) for question in paragraph.questions
                ]
        if len(asked) < n_samples:
            raise OctavoError(f"{data} has {len(asked)} questions: give more articles with --data, or fewer --samples.")
        questions = [asked[i] for i in rng.permutation(len(asked))[:n_samples]]
        return Folder(documents_with(prose_of(llama, NOVEL), hidden, depth, rng), questions)
