"""Locate a model's indexes and its plan. The model is known by its hash, which is remembered."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from ...errors import OctavoError
from ...settings import state_folder
from ...system.files import PARTIAL, DamagedError, file_mark, make_private, read_json, sha256_of, write_json
from .manifest import MANIFEST, read_manifest
from .plan import Plan, read_plan

#: Ending of libraries' names, and the file of a plan in a library.
LIBRARY, PLAN = ".octavo", "plan.json"

#: File of the user's folder that lists a library's folder on each line.
_NOTE = "libraries"

#: Folder of files that other programs name by their hashes: octavo writes nothing beside them.
_BLOBS = "blobs"

#: Folders of installed packages: whoever removes an environment would lose the indexes of a model in it.
_PACKAGES = {"site-packages", "dist-packages"}


@dataclass(frozen=True)
class Library:
    """The folder of one model's indexes and plan.

    Parameters
    ----------
    folder : Path
        `<model>.octavo`: in the model's folder; in the user's data folder if the model came with a package; in the
        user's cache folder if its own is read-only; or in a folder that the user gave.
    """

    model_path: Path
    folder: Path

    @classmethod
    def of(cls, model_path: str | os.PathLike[str], index_dir: str | os.PathLike[str] | None = None) -> Library:
        """Return the library of a model.

        Parameters
        ----------
        index_dir : path, optional
            Folder of the library. The default is the model's folder, or the user's data or cache folder.
        """
        import platformdirs

        named, model = Path(model_path), Path(model_path).resolve()
        is_stored = model.parent.name == _BLOBS  # another program names it by hash; its link has the name
        model = named.absolute() if is_stored else model
        name = model.stem
        if index_dir is not None:
            return cls(model, Path(index_dir) / f"{name}{LIBRARY}")
        near = model.with_name(f"{name}{LIBRARY}")
        if not _PACKAGES.isdisjoint(model.parts) and not any(near.glob(f"*/{MANIFEST}")):  # older octavos left indexes
            return cls(model, _users_folder(platformdirs.user_data_dir("octavo"), model, name))
        writable = not is_stored and os.access(near if near.exists() else near.parent, os.W_OK)
        return cls(model, near if writable else _users_folder(platformdirs.user_cache_dir("octavo"), model, name))

    @cached_property
    def model_hash(self) -> str:
        """SHA-256 of the model file, of a split model the first one."""
        self.make_folder()
        return hash_of_file(self.model_path, self.folder / "model.json")

    def plan(self, path: str | os.PathLike[str] | None = None) -> Plan:
        """Read the model's plan.

        Parameters
        ----------
        path : path, optional
            The plan file, or a file of gates, of which only the shape can be checked. The default is the plan that
            `octavo profile` wrote for this model.

        Raises
        ------
        OctavoError
            The file does not exist, is not a plan, or was measured on another model.
        """
        path = Path(path) if path is not None else self.plan_path
        plan = read_plan(path)
        if plan.model is not None and plan.model != self.model_hash:
            raise OctavoError(f"The plan {path} was measured on another model: run `octavo profile` for this one.")
        return plan

    @property
    def plan_path(self) -> Path:
        """The path that `octavo profile` writes the model's plan to."""
        return self.folder / PLAN

    def make_folder(self) -> None:
        """Create the folder, and note its path, so that `libraries` finds it.

        Raises
        ------
        OctavoError
            The folder cannot be created.
        """
        make_private(self.folder)
        with suppress(OSError):  # without the note, `octavo list` misses this folder
            noted, folder = _noted(), str(self.folder.resolve())
            if folder not in noted:
                state_folder().mkdir(mode=0o700, parents=True, exist_ok=True)
                with (state_folder() / _NOTE).open("a", encoding="utf-8", errors="surrogateescape") as file:
                    file.write(folder + "\n")

    def index_path(self, name: str, sha256: str, settings: dict[str, Any]) -> Path:
        """Return the folder of a text's index: an existing one, under any name, or a new one.

        Parameters
        ----------
        name : str
            The document's name; a new folder's name begins with it.
        sha256 : str
            Hash of the document's text (`hash_text`).
        settings : dict
            Other settings that the index depends on. Each combination of text, model and settings has its own folder.
        """
        digest = self.digest(sha256, settings)
        existing = sorted(path.name.removesuffix(PARTIAL) for path in self.folder.glob(f"*-{digest}*"))
        return self.folder / (existing[0] if existing else f"{folder_name(name)}-{digest}")

    def digest(self, sha256: str, settings: dict[str, Any]) -> str:
        """Return the ending of the names of a text's indexes, which does not depend on the file (see `index_path`)."""
        identity = json.dumps([sha256, self.model_hash, settings], sort_keys=True)
        return hashlib.sha256(identity.encode()).hexdigest()[:12]

    def folder_names(self) -> set[str]:
        """Return the names of all entries except unfinished indexes."""
        with suppress(OSError):
            return {name for name in os.listdir(self.folder) if not name.endswith(PARTIAL)}
        return set()

    def indexes(self, names: Iterable[str] | None = None) -> list[tuple[Path, dict[str, Any]]]:
        """Return the folders and manifests of finished, readable indexes, newest first.

        Parameters
        ----------
        names : iterable of str, optional
            Names of folders in the library; by default all.
        """
        found = []
        for name in self.folder_names() if names is None else names:
            with suppress(OctavoError, OSError):  # skip a damaged index; `octavo list` shows it
                found.append((self.folder / name, known_manifest(self.folder / name)))
        return sorted(found, key=lambda index: str(index[1].get("created")), reverse=True)


def libraries() -> list[Path]:
    """Return the existing folders of all models' indexes that octavo has made for this user."""
    with suppress(OSError):
        return [path for path in map(Path, _noted()) if path.is_dir()]
    return []


def folder_name(name: str) -> str:
    """Return the start of the name of a document's index folder."""
    return re.sub(r"[^\w.-]+", "-", Path(name).stem)[:40]


def known_manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest of an index, unless it was read before and is unchanged; callers must not change it.

    Raise OctavoError as `read_manifest` does.
    """
    try:
        status = (folder / MANIFEST).stat()
    except OSError as problem:
        raise DamagedError(f"{folder} is not an octavo index: it has no {MANIFEST}.") from problem
    return _manifest(folder, (status.st_mtime_ns, status.st_size, status.st_ino))


@lru_cache(maxsize=4096)
def _manifest(folder: Path, as_of: tuple[int, ...]) -> dict[str, Any]:
    """Read the manifest of an index, cached for a state of its file."""
    return read_manifest(folder)


def _noted() -> list[str]:
    """Read the folders that were noted."""
    path = state_folder() / _NOTE
    return path.read_text("utf-8", "surrogateescape").splitlines() if path.exists() else []


def _users_folder(folder: str, model: Path, name: str) -> Path:
    """Return the path of a model's library in a folder of the user."""
    place = hashlib.sha256(str(model).encode()).hexdigest()[:8]
    return Path(folder) / "indexes" / f"{name}-{place}{LIBRARY}"


def hash_of_file(path: Path, remembered: Path | None = None) -> str:
    """Return the SHA-256 of a large file, such as a model; it is remembered until the file is written or replaced.

    Parameters
    ----------
    remembered : Path, optional
        The JSON file that remembers the hash; by default one in the user's folder. An entry of an older octavo has no
        mark, so the file is hashed once more.

    Raises
    ------
    OctavoError
        Another program writes the file.
    """
    if remembered is None:
        place = hashlib.sha256(str(path.resolve()).encode("utf-8", "surrogatepass")).hexdigest()[:16]
        remembered = state_folder() / "hashes" / f"{place}.json"
    key = _key(path)
    with suppress(OctavoError):  # it is missing or damaged, and written anew below
        entries = read_json(remembered)
        known = str(entries.pop("sha256", ""))
        if key.items() <= entries.items() and re.fullmatch("[0-9a-f]{64}", known):
            return known
    digest = sha256_of(path)
    if _key(path) != key:
        raise OctavoError(f"{path} is being written by another program: wait until it is complete.")
    with suppress(OctavoError):  # in a read-only folder, files are hashed each time
        make_private(remembered.parent)
        write_json(remembered, {**key, "sha256": digest})
    return digest


def _key(path: Path) -> dict[str, Any]:
    status = path.stat()
    return {"path": str(path), "size": status.st_size, "mtime_ns": status.st_mtime_ns, "mark": file_mark(status)}
