"""Show the progress of many documents: a bar for all and one for each that is being read, or a line now and then.

Of several documents, a notice that a file, or a part of one, is left out comes again only after a change.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from ..progress import LeftOut, TimeLeft, clock, compiled_for
from .fitting import shortened
from .render import (
    NAMES_SHARE,
    SECONDS_BETWEEN_LINES,
    WITH_SPEED,
    TaskProgress,
    draw,
    notice,
    shows_bars,
    stop_drawing,
)

#: Unit of the work on a document's tokens; the work on clusters comes after it.
_TOKENS = "tokens"

#: Columns from which on a line has the number of all tokens.
_WITH_TOKENS = 100


#: Opened documents and folders to remember.
_KEPT = 200


class ShownNotices:
    """Notices that were shown when some documents were opened before.

    Only hashes are on disk. If the user's state folder is not writable, everything is new each time.

    Parameters
    ----------
    documents : sequence of str
        The documents, folders and patterns that are opened.
    """

    def __init__(self, documents: Sequence[str]) -> None:
        from ..library.expand_paths import absolute
        from ..settings import state_folder

        self._path: Path = state_folder() / "left_out.json"
        self._key = _hash("\n".join(absolute(documents)))
        self._known: dict[str, list[str]] = {}
        with suppress(OSError, ValueError):
            self._known = dict(json.loads(self._path.read_bytes()))
        self._before, self._now = set(self._known.get(self._key, ())), set[str]()

    def is_new(self, sentence: str) -> bool:
        """Return whether a sentence was not shown before."""
        self._now.add(_hash(sentence))
        return _hash(sentence) not in self._before

    def keep(self) -> None:
        """Keep the notices of now, in place of those before."""
        from ..errors import OctavoError
        from ..system.files import make_private, write_json

        if self._now == self._before:
            return
        self._known.pop(self._key, None)
        if self._now:
            self._known[self._key] = sorted(self._now)
        with suppress(OctavoError, OSError):
            make_private(self._path.parent)
            write_json(self._path, dict(list(self._known.items())[-_KEPT:]))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


class ManyProgress(AbstractContextManager["ManyProgress"]):
    """Show a `ProgressOfMany` (progress.py) on stderr; a single document as any task.

    Parameters
    ----------
    shown : ShownNotices, optional
        Notices about files that are left out, which are shown only once.
    """

    def __init__(self, shown: ShownNotices | None = None) -> None:
        self._shown_before = shown
        self._n_documents = self._n_done = self._n_tokens = 0
        self._open: list[_Document] = []
        self._single = TaskProgress()
        self._bars: Any = None
        self.width = _WITH_TOKENS

    def notice(self, sentence: str) -> None:
        before = self._shown_before
        if before is None or not isinstance(sentence, LeftOut) or before.is_new(sentence):
            notice(sentence)

    def begin(self, n_documents: int) -> None:
        self._n_documents, self._n_done, self._n_tokens, self._open = n_documents, 0, 0, []
        self._close()
        self._started = self._told = time.perf_counter()
        self._compiled = compiled_for()
        self._left = TimeLeft(0, self._started - self._compiled)
        if n_documents > 1 and shows_bars():
            self._draw()

    def document(self, name: str) -> _Document:
        document = _Document(self, name)
        self._open.append(document)
        return document

    def _draw(self) -> None:
        from .bars import bars

        self._bars = bars(("about",))
        self.width = self._bars.console.width
        self._all = self._bars.add_task("Indexing", total=self._n_documents, about=self._about())
        draw(self._bars)

    def _about(self) -> str:
        seconds = time.perf_counter() - self._started
        worked = max(seconds - (compiled_for() - self._compiled), 1e-9)
        done = self._n_done + sum(document.share for document in self._open)
        seconds_left = self._left.of(self._n_documents - done)
        about = [f"{self._n_done:,}/{self._n_documents:,} documents"]
        if self._n_tokens:
            amount = f"{self._n_tokens:,} tokens " if self.width >= _WITH_TOKENS else ""
            speed = f"{self._n_tokens / worked:,.0f} tokens/s"
            about.append(f"{amount}{speed}" if self.width >= WITH_SPEED else "")
        if self._n_done == self._n_documents:
            about.append(f"in {clock(seconds)}")
        elif self._n_done and seconds_left is not None:
            about.append(f"{clock(seconds_left)} left")
        return " ".join(filter(None, about))

    def moved(self, document: _Document, n_tokens: int = 0) -> None:
        """Show that work on a document advanced."""
        if self._n_documents == 1:
            return
        self._n_tokens += n_tokens
        done = self._n_done + sum(shown.share for shown in self._open)
        self._left.note(done, time.perf_counter() - compiled_for())
        if self._bars is not None:
            document.show(self._bars)
            self._bars.update(self._all, completed=done, about=self._about())
        elif time.perf_counter() > self._told + SECONDS_BETWEEN_LINES:
            self._tell()

    def closed(self, document: _Document) -> None:
        """Note that a document is done, or failed."""
        self._open.remove(document)
        self._n_done += 1
        if self._bars is not None:
            document.hide(self._bars)
        self.moved(document)
        if self._n_done == self._n_documents > 1 and self._bars is None:
            self._tell()

    def _tell(self) -> None:
        """Write a line: the progress of all documents, and of those that are being read."""
        self._told = time.perf_counter()
        notice("; ".join([f"Indexing: {self._about()}", *(document.line for document in self._open if document.line)]))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._close()
        self._single.__exit__(kind, error, at)

    def _close(self) -> None:
        if self._bars is not None:
            stop_drawing(self._bars)
            self._bars = None

    @property
    def single(self) -> TaskProgress | None:
        """Return the progress of the only document; None if there are several."""
        return self._single if self._n_documents == 1 else None


class _Document:
    """Show one document among many."""

    def __init__(self, progress: ManyProgress, name: str) -> None:
        self._progress, self._name = progress, name
        self._task, self._unit, self._total, self._done = "", "", 0, 0
        self._id: Any = None

    def start(self, task: str, total: int, unit: str, done: int = 0) -> None:
        if self._progress.single is not None:
            self._progress.single.start(task, total, unit, done)
        self._task, self._unit, self._total, self._done = task, unit, total, done
        self._progress.moved(self)

    def advance(self, amount: int) -> None:
        if self._progress.single is not None:
            self._progress.single.advance(amount)
        self._done += amount
        self._progress.moved(self, amount if self._unit == _TOKENS else 0)

    def notice(self, sentence: str) -> None:
        notice(sentence)

    def end(self) -> None:
        if self._progress.single is not None:
            self._progress.single.end()
        self._progress.closed(self)

    @property
    def share(self) -> float:
        """Return the done share of the document; almost 1 while its keys are clustered."""
        if not self._total:
            return 0.0
        return 0.9 * self._done / self._total if self._unit == _TOKENS else 0.9 + 0.1 * self._done / self._total

    @property
    def line(self) -> str:
        if not self._total:
            return ""
        task = self._task if self._name in self._task else f"{self._task} of {self._name}"
        return f"{task} {self._done:,}/{self._total:,} {self._unit}"

    def show(self, bars: Any) -> None:
        if not self._total:
            return
        about = f"{self._done:,}/{self._total:,} {self._unit}"
        task = self._task if self._name in self._task else f"{self._task} of {self._name}"
        shown = {"total": self._total, "completed": self._done, "about": about}
        shown["description"] = shortened(task, self._progress.width // NAMES_SHARE)
        if self._id is None:
            self._id = bars.add_task(**shown)
        bars.update(self._id, **shown)

    def hide(self, bars: Any) -> None:
        if self._id is not None:
            bars.remove_task(self._id)
        self._total = 0
