"""Where indexes live, and how one is found again."""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ...errors import OctavoError
from .files import MANIFEST, read_json, read_manifest, sha256_of, write_json
from .plan import Plan, read_plan


@dataclass(frozen=True)
class Library:
    """The folder of a model's indexes.

    model_path : the GGUF file
    folder : beside the model; where that cannot be written, in the user's cache folder; or what the user gave
    """

    model_path: Path
    folder: Path

    @classmethod
    def of(cls, model_path: str | os.PathLike[str], index_dir: str | os.PathLike[str] | None = None) -> Library:
        """The library of a model, in `index_dir` or in the default place."""
        model = Path(model_path).resolve()
        if index_dir is not None:
            return cls(model, Path(index_dir) / f"{model.stem}.octavo")
        beside = model.with_name(f"{model.stem}.octavo")
        writable = os.access(beside if beside.exists() else beside.parent, os.W_OK)
        return cls(model, beside if writable else _cache_folder(model))

    @cached_property
    def model_hash(self) -> str:
        """SHA-256 of the model file, remembered for as long as its size and time stay."""
        status = self.model_path.stat()
        key = {"path": str(self.model_path), "size": status.st_size, "mtime_ns": status.st_mtime_ns}
        memory = self.folder / "model.json"
        if memory.exists():
            known = read_json(memory)
            if all(known.get(name) == value for name, value in key.items()) and "sha256" in known:
                return str(known["sha256"])
        digest = sha256_of(self.model_path)
        self.make_folder()
        write_json(memory, {**key, "sha256": digest})
        return digest

    def plan(self, path: str | os.PathLike[str] | None = None) -> Plan:
        """The model's plan, in `path` or where `octavo profile` writes it. Raises OctavoError for another model's."""
        path = Path(path) if path is not None else self.plan_path
        plan = read_plan(path)
        if plan.model != self.model_hash:
            raise OctavoError(f"The plan {path} was measured on another model: run `octavo profile` for this one.")
        return plan

    @property
    def plan_path(self) -> Path:
        """Where the model's plan lies."""
        return self.folder / "plan.json"

    def make_folder(self) -> None:
        """Create the folder. Raises OctavoError where that cannot be done."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise OctavoError(
                f"{self.folder} cannot be created: {problem.strerror}. Give another folder with --index-dir."
            ) from problem

    def index_path(self, document_path: str | os.PathLike[str], text: str, settings: dict[str, Any]) -> Path:
        """Where the index of a text lies: its name tells apart documents, models and settings."""
        identity = json.dumps([hash_text(text), self.model_hash, settings], sort_keys=True)
        name = re.sub(r"[^\w.-]+", "-", Path(document_path).stem)[:40]
        return self.folder / f"{name}-{hashlib.sha256(identity.encode()).hexdigest()[:12]}"

    def indexes(self) -> list[tuple[Path, dict[str, Any]]]:
        """All finished indexes and their manifests, the newest first."""
        found = [(path.parent, read_manifest(path.parent)) for path in self.folder.glob(f"*/{MANIFEST}")]
        finished = [(path, manifest) for path, manifest in found if not path.name.endswith(".partial")]
        return sorted(finished, key=lambda index: str(index[1].get("created")), reverse=True)


def _cache_folder(model: Path) -> Path:
    import platformdirs

    place = hashlib.sha256(str(model).encode()).hexdigest()[:8]
    return Path(platformdirs.user_cache_dir("octavo")) / "indexes" / f"{model.stem}-{place}.octavo"


def hash_text(text: str) -> str:
    """SHA-256 of a document's text."""
    return hashlib.sha256(text.encode()).hexdigest()
