"""Define tasks over many documents: a folder of texts, and questions that one of the texts answers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from ...convert.plan.recall_texts import Haystack
from ...errors import OctavoError
from ...runtime.llama import Llama
from ...runtime.methods.parameters import parameter
from ..prose import BORDER
from ..tasks.task import AnyTask
from ..tasks.text_scores import contains_words


@dataclass(frozen=True)
class Asked:
    """A question that one document of a folder answers.

    Parameters
    ----------
    document : str
        Name of the document's file.
    passage : str
        The passage of the document that has the answer.
    place : float, optional
        Where the passage is in the document, from 0 to 1, if scores are reported by half of the document.
    """

    question: str
    answers: tuple[str, ...]
    document: str
    passage: str
    place: float | None = None


@dataclass(frozen=True)
class Folder:
    """Documents, and questions about them.

    Parameters
    ----------
    documents : mapping of str to str
        The text of each file, by its name.
    """

    documents: Mapping[str, str]
    asked: Sequence[Asked]


@dataclass(frozen=True)
class FolderTask(AnyTask):
    """Make a folder of documents, and ask questions about it.

    Parameters
    ----------
    documents : int
        How many documents there are.

    Attributes
    ----------
    is_alone : bool
        Whether a question is asked about its document alone, which may not be read yet (first_ways.py), and not about
        all documents (ways.py).
    is_whole : bool
        Whether a question is about all documents, or all parts of one (whole_ways.py).
    """

    documents: int = parameter(20, least=2)

    metric = "has the answer"
    samples = 60
    is_timed = True
    is_alone: ClassVar[bool] = False
    is_whole: ClassVar[bool] = False

    @abstractmethod
    def folder(self, llama: Llama, data: Path, depth: int, n_samples: int, seed: int) -> Folder:
        """Make a folder; the same arguments make the same one.

        Parameters
        ----------
        depth : int
            Approximate tokens of a document.
        n_samples : int
            Number of questions.

        Raises
        ------
        OctavoError
            The data cannot be read, or are too few.
        """

    def score(self, text: str, asked: Asked) -> float:
        """Return 1 if the written text has an accepted answer, else 0."""
        return contains_words(text, asked.answers)


def document_name(number: int) -> str:
    """Return the file name of a document, by its number from 0."""
    return f"document-{number + 1:03d}.txt"


def documents_with(
    haystack: Haystack, hidden: Sequence[Sequence[str]], depth: int, rng: np.random.Generator
) -> dict[str, str]:
    """Hide paragraphs in documents of prose, each at a random place between two of its paragraphs.

    Each document's prose begins at another random paragraph, so that no two documents are equal. After the end of the
    prose it continues from the beginning. Return the text of each document by its file's name.

    Parameters
    ----------
    hidden : sequence of sequence of str
        For each document, its paragraphs, or none.
    depth : int
        Tokens of a document.

    Raises
    ------
    OctavoError
        The paragraphs of a document leave no room for prose, or the prose has fewer paragraphs than there are
        documents.
    """
    prose, lengths = haystack.text.split(BORDER), [len(tokens) for tokens in haystack.paragraphs]
    if len(prose) < len(hidden):
        raise OctavoError(f"{len(prose)} paragraphs make no {len(hidden)} different documents: give a longer text.")
    documents = {}
    starts = rng.permutation(len(prose))[: len(hidden)].tolist()
    for number, (at, own) in enumerate(zip(starts, hidden, strict=True)):
        room = depth - sum(len(haystack.pieces(paragraph + BORDER)) for paragraph in own)
        if room <= 0:
            raise OctavoError(f"{depth:,} tokens have no room for {len(own)} paragraphs: give larger --depths.")
        parts: list[str] = []
        while room > 0:
            parts.append(prose[at % len(prose)])
            room -= lengths[at % len(prose)]
            at += 1
        for paragraph in own:
            parts.insert(int(rng.integers(len(parts) + 1)), paragraph)
        documents[document_name(number)] = BORDER.join(parts)
    return documents
