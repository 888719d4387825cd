"""Find the index of a document, or of its parts, or make it first."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from ..convert.clusters import ClusterSettings
from ..convert.identity import find_index, identity, new_settings, usable_settings
from ..convert.index_builder import IndexBuilder
from ..convert.pipeline import PrefillSettings, TooLongError, document_tokens, prefill_attention_share
from ..cpu_kernels.numba_support import background_compile
from ..documents.document import Document, document_name
from ..errors import OctavoError
from ..progress import AsOne, Progress
from ..runtime.document.index import Index
from ..runtime.llama import Llama
from ..runtime.methods.auto import SHORT
from ..runtime.store.index_files import folder_bytes, note_use, open_index
from ..runtime.store.library_snapshot import LibrarySnapshot
from ..runtime.store.manifest import file_entries, file_versions_of, read_manifest, save_manifest
from ..settings import ReadSettings
from ..system.files import PARTIAL, DamagedError, FileVersion
from ..system.locks import Busy, do_not_wait, locked
from .background.reading_queue import ReadingQueue
from .document_parts import n_parts_of, parts_of, with_file_name, without_part
from .reading_speed import ReadingSpeed
from .source_text import SAME, SourceFile, SourceText, state_of_file

#: Bytes of an index for each byte of keys and values, clusters and measurements included.
_MORE_THAN_ROWS = 1.1

#: Seconds of opening an index before a notice: the first time compares its checksums.
_SHOWN_SECONDS = 0.5

#: Tokens of the context that parts of a long document leave for questions and answers, and largest number of parts.
_ROOM, _MOST_PARTS = 1536, 100

#: Relative time of tokens whose rows are known: they are only clustered.
_CLUSTERING = 0.3


class _Kind(NamedTuple):
    """What an index depends on besides the model and the text: `identity` has all of it."""

    settings: ClusterSettings
    attention_share: float
    identity: dict[str, Any]


class Indexer:
    """Find the indexes of documents, and make missing ones, for one model with its attention.

    Parameters
    ----------
    llama : Llama
        The model that reads documents.
    reading : ReadSettings
        How the model reads them. An index of a dense prefill serves any.
    known : collection of str
        Names of indexes in another library, which are not made.
    """

    def __init__(
        self,
        llama: Llama,
        snapshot: LibrarySnapshot,
        reading: ReadSettings,
        notice: Callable[[str], None],
        known: Collection[str] = (),
    ) -> None:
        self.llama, self.snapshot, self.library, self.notice = llama, snapshot, snapshot.library, notice
        self._reading, self._state_every = reading, reading.state_every
        self._follow_device()
        self._known = {name.rpartition("-")[2]: name for name in known}

    def _follow_device(self) -> None:
        """Note how documents are read where the model is now."""
        self._attention_share = prefill_attention_share(self._reading.prefill, self.llama)
        self.__dict__.pop("_usable", None)

    @cached_property
    def _usable(self) -> list[_Kind]:
        """Return the kinds of indexes that serve the model's attention."""
        kinds = [
            (settings, share) for settings in usable_settings(self.llama) for share in (0.0, self._attention_share)
        ]
        return [_Kind(settings, share, identity(self.llama, settings, share)) for settings, share in kinds]

    def find(self, document: SourceText) -> Path | None:
        """Return the folder of a document's index; None without one."""
        return found[0] if (found := self._find(document)) else None

    def has(self, file: SourceFile) -> bool:
        """Return whether a file, unchanged, has an index, or indexes of all its parts."""
        if (version := file.version) is None:
            return False
        whole = self.snapshot.text_of(version)
        if whole is not None and self._has_index(whole):
            return True
        if not (parts := self.parts(version)):
            return False
        most = self._most
        same_split = [part for part in parts if part.get("split", most) == most]  # older octavos did not note it
        n_found = Counter(map(n_parts_of, {part["name"] for part in same_split if self._has_index(part)}))
        return any(count == n_parts for n_parts, count in n_found.items())

    def _has_index(self, described: dict[str, Any]) -> bool:
        """Return whether the text of an entry of a manifest has an index that serves this model."""
        return self.find(SourceText(described["sha256"], described["name"], Path(described["name"]))) is not None

    @property
    def _most(self) -> int:
        """Return the largest number of tokens of a part of a document that exceeds the context."""
        n_ctx = int(self.llama.n_ctx())
        return n_ctx - min(_ROOM, n_ctx // 4) - len(self.llama.prompt().head())

    def is_read(self, text: SourceText) -> bool:
        """Return whether a document, or another copy of its text, has an index."""
        is_known = text.sha256 in self.snapshot.by_text and self.find(text) is not None
        return is_known or (text.file is not None and self.has(text.file))

    def parts(self, version: FileVersion | None) -> list[dict[str, Any]]:
        """Return the manifests' entries of the parts of a file, unchanged, that have indexes."""
        return [] if version is None else [text for text in self.snapshot.texts_at(version) if "part" in text]

    def begun(self, document: SourceText) -> Path | None:
        """Return the folder of a document's unfinished index; None without one."""
        paths = (self.library.index_path(document.name, document.sha256, kind.identity) for kind in self._usable)
        return next((partial for path in paths if (partial := path.with_name(path.name + PARTIAL)).exists()), None)

    def _find(self, document: SourceText) -> tuple[Path, _Kind] | None:
        """Return the folder of a document's index, and its kind. One that has clusters if they are wanted is better.

        An index that was made with a longer context, and exceeds this one, does not count.
        """
        usable = self._usable
        known = (find_index(self.llama, self.snapshot, document.sha256, kind.identity) for kind in usable)
        found = [(path, kind) for path, kind in zip(known, usable, strict=True) if path is not None and path.exists()]
        if not found:  # the index may be damaged, or new
            paths = (self.library.index_path(document.name, document.sha256, kind.identity) for kind in usable)
            found = [(path, kind) for path, kind in zip(paths, usable, strict=True) if path.exists()]
        described, n_ctx = self.snapshot.described.get, self.llama.n_ctx()
        found = [(path, kind) for path, kind in found if (text := described(path)) is None or text["tokens"] < n_ctx]
        tokens = self.snapshot.tokens_of(found[0][0]) if len(found) > 1 else None
        if tokens is not None:
            best = new_settings(self.llama, len(tokens))
            found.sort(key=lambda index: index[1].settings != best)
        return found[0] if found else None

    def _new(self, document: SourceText, n_tokens: int) -> tuple[Path, _Kind]:
        """Return the folder for the index of a document that has none, and its kind."""
        settings = new_settings(self.llama, n_tokens)
        kind = _Kind(settings, self._attention_share, identity(self.llama, settings, self._attention_share))
        return self.library.index_path(document.name, document.sha256, kind.identity), kind

    def fit(self, document: SourceText) -> list[SourceText]:
        """Split a document that exceeds the context, and print a notice.

        Raises
        ------
        TooLongError
            There would be too many parts.
        OctavoError
            The document cannot be read.
        """
        if self.find(document) is not None:
            return [document]
        (document, text), llama, prompt, most = document.extracted(), self.llama, self.llama.prompt(), self._most
        try:
            document_tokens(llama, text.name, text.text)
            return [document]
        except TooLongError as problem:
            if not self.can_read(problem.n_tokens):
                raise
            parts = parts_of(text, most, lambda part: len(prompt.document(part)))
            cost = self.cost([problem.n_tokens / len(parts)] * len(parts))
            self.notice(
                f"{document.name} has about {problem.n_tokens:,} tokens, more than the context of {llama.n_ctx():,}. "
                f"So it is read in {len(parts):,} parts, {cost}. Each question is answered from excerpts of the parts: "
                "a long-context model (`model`) reads it whole."
            )
            names = [with_file_name(part.name, document.name) for part in parts]
            texts = map(SourceText.of, parts)
            return [replace(part, name=name, path=Path(name)) for part, name in zip(texts, names, strict=True)]

    def can_read(self, n_tokens: float) -> bool:
        """Return whether a document of so many tokens does not make too many parts."""
        return n_tokens <= _MOST_PARTS * max(self._most, 0)

    def with_progress(self, parts: Sequence[SourceText], progress: Progress) -> Iterator[tuple[SourceText, Progress]]:
        """Yield the parts of a document, each with a receiver of its progress. All report as one task."""
        if len(parts) == 1:
            yield parts[0], progress
            return
        texts = [part.extracted()[1] for part in parts]
        lengths = [len(document_tokens(self.llama, text.name, text.text)) for text in texts]
        whole = AsOne(progress, without_part(parts[0].name), lengths)
        for number, part in enumerate(parts):
            yield part, whole.part(number)

    def cost(self, lengths: Sequence[float]) -> str:
        """Describe how much it is to read documents of so many tokens: parts, bytes, and the time if it is certain."""
        n_tokens, n_parts = sum(lengths), sum(math.ceil(length / max(self._most, 1)) for length in lengths)
        n_bytes = _MORE_THAN_ROWS * n_tokens * self.llama.context.cache.row_bytes
        speed = ReadingSpeed(self.llama, self.library).certain
        parts = [f"{n_parts:,} parts"] if n_parts > len(lengths) else []
        times = [f"about {_time(n_tokens / speed)}"] if speed else []
        return ", ".join([*parts, f"{n_tokens:,.0f} tokens", f"{_size(n_bytes)} of disk", *times])

    def index(self, document: SourceText, progress: Progress) -> Path:
        """Make the index of a document, with everything that the model's attention needs, unless it exists.

        The model is empty afterwards, and attends as before. Raise OctavoError if the document cannot be read or is too
        long, or disk or memory do not suffice.
        """
        for kind in self._usable:
            digest = self.library.digest(document.sha256, kind.identity)
            if name := self._known.get(digest):  # has the name of another copy of the document
                return self.library.index_path(document.name, document.sha256, kind.identity).with_name(name)
        path = self.find(document)
        if path is not None and (opened := self._opened(path, document.name)) is not None:
            self.notice(f"{document.name} is indexed already: {path}")
            self.note_file(path, document)
        else:
            path, opened = self._build(document, progress)
        index, _ = opened
        for assignment in self.llama.context.cache.table.assignments:
            assignment.method.measure(index)
        return path

    def note_file(self, path: Path, document: SourceText) -> None:
        """Note the version of a file in the index of its text.

        The file was touched or restored, or is a copy of another that has this text; or of one that had it, whose place
        it takes.
        """
        with suppress(OctavoError, OSError, Busy):
            versions, version = file_versions_of(self.snapshot.described.get(path, {})), document.version
            if version is None or not versions or version in versions:
                return
            with locked(path, waiting=do_not_wait):
                manifest = read_manifest(path)  # others add files to it
                described = manifest["document"]
                first, *others = file_versions_of(described)
                copies = [each for each in others if each.path != version.path]
                if first.path != version.path and state_of_file(described) == SAME:
                    copies.append(version)
                else:
                    name = with_file_name(document.name, document_name(version.path))
                    described = {**described, "name": name, **file_entries(version)}
                described = {**described, "copies": list(map(file_entries, copies))}
                save_manifest(path, {**manifest, "document": described})

    def attach(self, document: SourceText, progress: Progress) -> dict[str, Any]:
        """Attach a document's index to the model; make the index first if it is missing. Return its description.

        Raise OctavoError if the index cannot be made or opened.
        """
        path = self.find(document)
        if path is None or (opened := self._opened(path, document.name)) is None:
            path, opened = self._build(document, progress)
        index, manifest = opened
        note_use(path)
        self.llama.attach(index)
        described: dict[str, Any] = manifest["document"]
        return described

    def _opened(self, path: Path, name: str) -> tuple[Index, dict[str, Any]] | None:
        """Open an index. Return None, with a notice, if it is damaged."""
        start = time.perf_counter()
        try:
            opened = open_index(path, self.library.model_hash)
        except DamagedError as problem:
            self.notice(f"The index of {name} is damaged, so it is made again; what is whole is kept. {problem}")
            return None
        if (seconds := time.perf_counter() - start) >= _SHOWN_SECONDS:
            self.notice(f"Checked the index of {name}, {_size(folder_bytes(path))}, in {seconds:.1f} s.")
        return opened

    def _build(self, document: SourceText, progress: Progress) -> tuple[Path, tuple[Index, dict[str, Any]]]:
        """Make an index, and open it. Meanwhile all heads attend densely, except those that stream by `duo`."""
        (document, text), llama, notice = document.extracted(), self.llama, self.notice
        self.snapshot.refresh()  # other processes may have indexed versions of the text
        tokens = document_tokens(llama, text.name, text.text)
        if llama.make_room_on_device(len(tokens), len(tokens) * llama.context.cache.row_bytes):
            self._follow_device()
        path, kind = self._find(document) or self._new(document, len(tokens))
        name, attention, n_threads = text.name, llama.attention, llama.context_params.n_threads
        reading = PrefillSettings(kind.attention_share, self._state_every)
        builder = IndexBuilder(llama, self.snapshot, path, text, tokens, kind.settings, progress, n_threads, reading)
        changed = self._has_changed(document.sha256, text)
        again = f"{name} has changed since it was indexed, so it is indexed again"
        what = again if changed else f"Indexing {name}, once"
        began: list[float] = []

        def begins() -> None:
            notice(f"{what}: {_expected(builder)}.")
            began.append(time.perf_counter())
            llama.compile_ahead(attention, len(builder.tokens))

        with llama.attending(attention.for_indexing):
            builder.build(begins, lambda: self._wait_for(text))
            background_compile.wait()
        if len(builder.tokens) > 2 * SHORT:  # in a shorter one nothing is selected soon
            llama.measure_steps()
        if began:
            seconds = time.perf_counter() - began[0]
            states = sum(file.stat().st_size for file in path.glob("state-*"))
            of_states = f", {_size(states)} of it recurrent states" if states else ""
            size = _size(folder_bytes(path))
            notice(f"Indexed {len(builder.tokens):,} tokens in {_time(seconds)}: {size}{of_states}.")
        self.snapshot.refresh()
        return path, open_index(path, self.library.model_hash)

    def _wait_for(self, text: Document) -> None:
        """Print that another process indexes a document; have it hand over if it does so in the background."""
        if ReadingQueue().hand_over(text.path, self.library.folder):
            self.notice(f"{text.name} was being read in the background: this command reads on.")
        else:
            self.notice(f"Another octavo is indexing {text.name}: waiting for it.")

    def _has_changed(self, sha256: str, text: Document) -> bool:
        """Return whether an index has another text of the same file, or of the same part of it."""
        if text.path is None:
            return False
        part = text.name if text.part else None
        indexed = {
            described["sha256"]
            for described in self.snapshot.by_path.get(text.path, ())
            if (described["name"] if "part" in described else None) == part
        }
        return bool(indexed) and sha256 not in indexed


def _expected(builder: IndexBuilder) -> str:
    """Describe the expected bytes and seconds of an index, from the library's index of nearest length.

    Seconds are known only if the library has an index.
    """
    n_tokens, row_bytes = len(builder.tokens), builder.llama.context.cache.row_bytes
    n_known = builder.known.n_tokens if builder.known else 0
    alike = [
        (path, manifest)
        for path, manifest in builder.snapshot.indexes
        if manifest["dtype"] == builder.llama.context.kv_type
    ]
    n_bytes, seconds = _MORE_THAN_ROWS * n_tokens * row_bytes + builder.n_state_bytes, 0.0
    if alike:
        path, manifest = min(alike, key=lambda index: abs(index[1]["document"]["tokens"] - n_tokens))
        n_made, n_new = manifest["document"]["tokens"], n_tokens - (1 - _CLUSTERING) * n_known
        n_bytes, seconds = folder_bytes(path) / n_made * n_tokens, manifest.get("seconds", 0) / n_made * n_new
    known = f", {n_known:,} of them known" if n_known else ""
    states = f", {_size(builder.n_state_bytes)} of it recurrent states" if builder.n_state_bytes else ""
    return f"{n_tokens:,} tokens{known}, about {_size(n_bytes)}{states}" + (f" and {_time(seconds)}" if seconds else "")


def _size(n_bytes: float) -> str:
    return f"{n_bytes / 2**30:,.1f} GiB" if n_bytes >= 2**30 else f"{max(n_bytes / 2**20, 1):,.0f} MiB"


def _time(seconds: float) -> str:
    return f"{max(seconds, 1):,.0f} s" if seconds < 100 else f"{seconds / 60:,.0f} min"
