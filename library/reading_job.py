"""How documents are read, as a value that other processes understand."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..runtime.load_model import Notice, locate_model
from ..runtime.methods.attention import Attention
from ..runtime.store.model_library import Library
from ..settings import ModelSettings, ReadSettings


@dataclass(frozen=True)
class ReadingJob:
    """How to read documents.

    Parameters
    ----------
    settings : ModelSettings
        The model, and how it runs.
    attention : Attention
        The attention of later questions.
    reading : ReadSettings
        How texts are taken from files, and how the model reads them.
    library : str, optional
        Folder of the library, in place of the settings' own.
    known : tuple of str
        Names of indexes that exist elsewhere, and are not made.
    nice : int
        Niceness of the reading process.
    """

    settings: ModelSettings
    attention: Attention
    reading: ReadSettings = field(default_factory=ReadSettings)
    library: str | None = None
    known: tuple[str, ...] = ()
    nice: int = 0

    def as_json(self) -> dict[str, Any]:
        """Return the fields in JSON's types, those of `reading` that a process needs among them."""
        return {
            "settings": self.settings.as_json(),
            "attention": self.attention.as_json(),
            "prefill": self.reading.prefill,
            "state_every": self.reading.state_every,
            "library": self.library,
            "known": self.known,
            "nice": self.nice,
            "extraction": vars(self.reading.extraction),
        }

    @classmethod
    def of_json(cls, fields: dict[str, Any]) -> ReadingJob:
        """Return the job with these fields."""
        settings, attention = ModelSettings(**fields["settings"]), Attention.parse(**fields["attention"])
        extraction = fields.get("extraction", {})
        reading = ReadSettings(prefill=fields["prefill"], state_every=fields["state_every"], **extraction)
        return cls(settings, attention, reading, fields["library"], tuple(fields["known"]), fields["nice"])

    def anywhere(self, library: Library) -> ReadingJob:
        """Return the job for a library with absolute paths, for processes in other folders."""
        plan, model = self.attention.plan_file, str(library.model_path.resolve())
        settings = replace(self.settings, model=model, index_dir=None)
        attention = replace(self.attention, plan_file=plan and os.path.abspath(plan))
        return replace(self, settings=settings, attention=attention, library=str(library.folder.resolve()))

    def open_library(self, notice: Notice) -> Library:
        """Return the library for the indexes."""
        _, library = locate_model(self.settings, notice)
        return replace(library, folder=Path(self.library)) if self.library else library
