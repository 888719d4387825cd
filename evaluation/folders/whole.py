"""Questions about a whole: to list facts of one kind from a long novel, and the reports that mention something.

The novel is longer than the context, so it is read in parts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...errors import OctavoError
from ...runtime.llama import Llama
from ...runtime.methods.parameters import parameter
from ..prose import BORDER, even_positions, insert, passage, prose_of
from ..tasks.task import NOVEL
from .folder_task import Asked, Folder, FolderTask, document_name, documents_with

#: Names that facts are made of, and kinds of facts: the sentence, and the question for all.
_PLACES = [
    "Skerrow",
    "Pendarrow",
    "Black Holm",
    "Fennick Point",
    "Marrowby",
    "Saint Osric",
    "Gull Ness",
    "Tarrant Rock",
    "Ebbing Head",
    "Drummoch",
    "Culver Bank",
    "Whinstone",
    "Hallow Skerry",
    "Oxwich",
    "Penmark",
    "Tolland Spit",
]
_PEOPLE = [
    "Jacob Penhale",
    "Ruth Ollery",
    "Silas Carrow",
    "Hannah Dymond",
    "Amos Treleven",
    "Edith Garrick",
    "Isaac Bellwood",
    "Martha Lindqvist",
    "Noah Sandiford",
    "Clara Winstanley",
    "Eli Rosewarne",
    "Judith Maddern",
    "Caleb Thorne",
    "Agnes Pellow",
    "Reuben Hosking",
    "Ada Nance",
]
KINDS = {
    "lighthouse": ("The keeper of the {place} lighthouse was {person}.", "List every lighthouse and its keeper."),
    "ferry": ("{person} was master of the ferry to {place}.", "List every ferry and its master."),
    "mill": ("At {place} the mill belonged to {person}.", "List all mills and whom they belonged to."),
    "inn": ("The landlord of the inn at {place} was {person}.", "Name every inn and its landlord."),
}


@dataclass(frozen=True)
class Whole(FolderTask):
    """List facts of one kind, which are spread over a novel.

    Parameters
    ----------
    facts : int
        Facts of a kind.
    """

    documents: int = parameter(1, least=1)
    facts: int = parameter(12, least=1)

    name = "whole"
    metric = "share of the facts"
    samples = len(KINDS)
    data = NOVEL
    is_whole = True

    def folder(self, llama: Llama, data: Path, depth: int, n_samples: int, seed: int) -> Folder:
        """Hide facts of several kinds in a novel (see `FolderTask.folder`). An answer is two names, joined by a bar."""
        if n_samples > len(KINDS) or self.facts > len(_PLACES):
            raise OctavoError(f"{self.name} has {len(KINDS)} kinds of {len(_PLACES)} facts: give fewer.")
        rng, prose = np.random.default_rng([seed, depth]), prose_of(llama, data)
        hidden: list[tuple[float, str]] = []
        questions = []
        for sentence, question in list(KINDS.values())[:n_samples]:
            places = rng.permutation(_PLACES)[: self.facts].tolist()
            pairs = list(zip(places, rng.permutation(_PEOPLE).tolist(), strict=False))
            facts = [sentence.format(place=place, person=person) for place, person in pairs]
            moved = np.array(even_positions(self.facts)) + rng.uniform(-0.04, 0.04, self.facts)
            hidden += zip(np.clip(moved, 0, 1).tolist(), facts, strict=True)
            questions.append(Asked(question, tuple(map("|".join, pairs)), document_name(0), facts[0]))
        needles = [(position, prose.pieces(text + BORDER)) for position, text in sorted(hidden)]
        tokens = insert(passage(prose, depth, rng), needles)
        text = b"".join(map(llama.piece, tokens)).decode(errors="replace")
        return Folder({document_name(0): text}, questions)

    def score(self, text: str, question: Asked) -> float:
        """Return the share of the facts whose names are in one line of the text."""
        lines = text.split("\n")
        found = [any(all(name in line for name in fact.split("|")) for line in lines) for fact in question.answers]
        return float(np.mean(found))


@dataclass(frozen=True)
class WholeMention(FolderTask):
    """Find the reports of a folder that mention something.

    Parameters
    ----------
    mentions : int
        Documents that mention a thing. As many others mention one of the same kind.
    """

    documents: int = parameter(40, least=4)
    mentions: int = parameter(8, least=1)

    name = "whole-mention"
    metric = "F1 of the documents"
    samples = len(KINDS)
    data = NOVEL
    is_whole = True

    def folder(self, llama: Llama, data: Path, depth: int, n_samples: int, seed: int) -> Folder:
        """Hide sentences about things of several kinds in documents (see `FolderTask.folder`)."""
        if n_samples > len(KINDS) or 2 * self.mentions > self.documents:
            raise OctavoError(f"{self.name} has {len(KINDS)} kinds, each in half of the documents: give fewer.")
        rng = np.random.default_rng([seed, depth])
        hidden: list[list[str]] = [[] for _ in range(self.documents)]
        questions = []
        for kind, (sentence, _) in list(KINDS.items())[:n_samples]:
            places, people = rng.permutation(_PLACES).tolist(), rng.permutation(_PEOPLE).tolist()
            with_it, others = np.split(rng.permutation(self.documents)[: 2 * self.mentions], 2)
            for number, at in enumerate(with_it.tolist()):
                hidden[at].append(sentence.format(place=places[0], person=people[number % len(people)]))
            for number, at in enumerate(others.tolist(), 1):
                hidden[at].append(sentence.format(place=places[number % 15 + 1], person=people[number % len(people)]))
            names = tuple(document_name(at) for at in sorted(with_it.tolist()))
            question = f"Which documents mention the {kind} of {places[0]}?"
            first = sentence.format(place=places[0], person=people[0])
            questions.append(Asked(question, names, document_name(int(with_it[0])), first))
        return Folder(documents_with(prose_of(llama, data), hidden, depth, rng), questions)

    def score(self, text: str, question: Asked) -> float:
        """Return the F1 of the names of documents in the text."""
        named, right = set(re.findall(r"document-\d+\.txt", text)), set(question.answers)
        return 2 * len(named & right) / (len(named) + len(right))
