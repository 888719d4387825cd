"""`octavo list`, `stop`, `remove`, `prune` and `verify`: list, remove and check indexes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import shown, spoken
from ..progress import clock
from . import options
from .fitting import plain
from .option_types import Age, Size
from .render import notice, print_json, size
from .table import table

if TYPE_CHECKING:
    from ..library.background.reading_queue import QueuedDocument
    from ..library.catalogue import Entry

_JSON = "json"


def of_a_model(command: Any) -> Any:
    """Add -m and --index-dir: by default the indexes are those of all models."""
    model = options.option(
        "-m",
        "--model",
        env="MODEL",
        type=click.Path(path_type=Path),
        help="Only the indexes of this GGUF model.  [default: of all models]",
    )
    return model(options.index_dir(command))


def _found(model: Path | None, index_dir: Path | None) -> list[Entry]:
    from ..library.catalogue import entries

    return entries(options.library_folders(model, index_dir))


@click.command(name="list")
@options.output_option("text", _JSON)
@of_a_model
def list_indexes(output: str, model: Path | None, index_dir: Path | None) -> None:
    """List the documents that are indexed, and those that are being read.

    On a narrow terminal names are shortened and columns left out: `octavo list | cat` has all.

    State says what may go: `changed` and `gone` of what became of the document's file, `unfinished` of a build that was
    interrupted, `damaged` of what cannot be read. `octavo prune` removes such indexes. It keeps an index that is
    `away`: the document's folder is missing, perhaps because its drive is not connected. `(profile)` has the
    measurements of an unfinished `octavo profile`. Documents that are read in the background come last, with how far
    that is.
    """
    from ..library.catalogue import older_versions

    found, queued = _found(model, index_dir), _queued(options.library_folders(model, index_dir))
    if output == _JSON:
        print_json([*map(_described, found), *map(_described_queued, queued)])
        return
    if found:
        older = older_versions(found)
        _show([entry for entry in found if entry not in older])
        if older:
            one = len(older) == 1
            of_them = "1 index of an older version is" if one else f"{len(older):,} indexes of older versions are"
            notice(f"{of_them} not shown: `octavo prune` removes {'it' if one else 'them'}.")
        n_bytes = sum(entry.n_bytes for entry in found)
        notice(f"{len(found):,} {'index' if len(found) == 1 else 'indexes'}, {size(n_bytes)} in all.")
    if queued:
        rows = [[each.name, each.model, _progress(each)] for each in queued]
        names = "in the background", "model", "state"
        table(names, rows, optional=["model"], short=names[:2], folded=names[2:])
        notice("`octavo stop` ends this." if _reads() else "Nothing reads now: the next question about one continues.")
    if not found and not queued:
        notice("Nothing is indexed yet.")


def _queued(libraries: list[Path]) -> list[QueuedDocument]:
    """Return the documents that are to be read in the background into some libraries."""
    from ..library.background.reading_queue import ReadingQueue

    names = {str(folder.resolve()) for folder in libraries}
    return [document for document in ReadingQueue().documents() if document.library in names]


def _reads() -> bool:
    from ..library.background.reading_queue import ReadingQueue

    return ReadingQueue().has_reader


def _progress(queued: QueuedDocument) -> str:
    if queued.problem:
        return f"failed: {spoken(queued.problem)}"
    if not queued.total:
        return "waiting"
    left = "" if queued.seconds_left is None else f", {clock(queued.seconds_left)} left"
    how = f"; waits for {queued.waits_for}" if queued.waits_for else left
    return f"{queued.task}: {queued.done:,} of {queued.total:,} {queued.unit}{how}"


def _described_queued(queued: QueuedDocument) -> dict[str, Any]:
    progress = {"task": queued.task, "unit": queued.unit, "done": queued.done, "total": queued.total}
    state = "failed" if queued.problem else "reading" if queued.task else "waiting"
    unknown = dict.fromkeys(("tokens", "cache_type", "bytes", "created", "used"))
    about = {"document": queued.name, "model": queued.model, **unknown, "state": state, "path": None}
    return {**about, "problem": spoken(queued.problem) or None, "progress": progress if queued.total else None}


@click.command(name="stop")
@click.argument("names", metavar="[DOCUMENT]...", nargs=-1)
def stop_indexes(names: tuple[str, ...]) -> None:
    """Stop reading documents in the background.

    Stops all, or DOCUMENT: a document's name or path. What is read of them is kept, and `octavo index` or a later
    question reads on from there; of an upload to a server, the same upload.
    """
    from ..library.background.reading_queue import STOPPED, ReadingQueue

    queue = ReadingQueue()
    queued = [document for document in queue.documents() if document.problem != STOPPED]
    names_of = {document: (document.name, document.path) for document in queued}
    if unknown := [name for name in names if not _called(name, chain.from_iterable(names_of.values()))]:
        raise click.UsageError(f"{', '.join(unknown)} is not read in the background: `octavo list` shows what is.")
    chosen = [document for document in queued if not names or any(_called(name, names_of[document]) for name in names)]
    queue.stop(chosen)
    for document in chosen:
        notice(f"Stopped {document.name} ({_progress(document)}).")
    if not chosen:
        notice("Nothing is read in the background.")


def _called(name: str, known: Iterable[str]) -> bool:
    """Return whether a name, or the path that it stands for, is among known ones."""
    return not {shown(name), str(Path(name).resolve())}.isdisjoint(known)


def _described(entry: Entry) -> dict[str, Any]:
    return {
        "document": entry.document,
        "model": entry.model,
        "tokens": entry.tokens,
        "cache_type": entry.kv_type,
        "bytes": entry.n_bytes,
        "created": entry.created.isoformat(timespec="seconds"),
        "used": entry.used.isoformat(timespec="seconds"),
        "state": entry.state,
        "path": str(entry.folder),
    }


def _show(found: list[Entry]) -> None:
    rows = []
    for entry in found:
        tokens, used = f"{entry.tokens:,}" if entry.tokens else "", f"{entry.used.astimezone():%Y-%m-%d %H:%M}"
        about = [entry.document, entry.model, tokens, entry.kv_type, size(entry.n_bytes), used, entry.state]
        rows.append([*about, entry.folder.name])
    columns = ["document", "model", "tokens", "type", "size", "last used", "state", "index"]
    optional = ["index", *(["model"] if len({entry.model for entry in found}) == 1 else []), "type", "last used"]
    if not any(entry.state for entry in found):
        optional.insert(0, "state")
    table(columns, rows, {"tokens", "size"}, optional, {"document", "model", "index"})


@click.command(name="remove")
@click.argument("names", metavar="DOCUMENT...", nargs=-1, required=True)
@of_a_model
@click.option("--yes", is_flag=True, help="Do not ask.")
def remove_indexes(names: tuple[str, ...], model: Path | None, index_dir: Path | None, yes: bool) -> None:
    """Remove the indexes of documents; the documents stay.

    DOCUMENT is a document's name or path, or an index's name or folder, as `octavo list` shows them. Texts that are
    kept of these documents are forgotten, too.
    """
    from ..ask.chats.saved_chats import saved_chats
    from ..library.file_texts import forget_texts, kept_texts

    libraries, paths = options.library_folders(model, index_dir), {os.path.realpath(name) for name in names}
    has_text = kept_texts(libraries) & paths
    unnamed = [name for name in names if os.path.realpath(name) not in has_text]
    chosen = _named(unnamed, found := _found(model, index_dir))
    chosen += [entry for entry in found if entry.path in has_text and entry not in chosen]
    if chosen:
        _remove(chosen, yes)
    paths |= {entry.path for entry in chosen}
    if n_forgotten := forget_texts(libraries, paths.__contains__):
        notice(f"Forgot {'a text' if n_forgotten == 1 else f'{n_forgotten:,} texts'}.")
    about = [set(map(os.path.realpath, chat.origin.documents or ())) for chat in saved_chats(libraries)]
    if n_chats := sum(not paths.isdisjoint(documents) for documents in about):
        stay = "A conversation about it stays" if n_chats == 1 else f"{n_chats:,} conversations about it stay"
        notice(f"{stay}: `octavo chats` lists what is kept.")


def _named(names: Iterable[str], found: list[Entry]) -> list[Entry]:
    chosen: list[Entry] = []
    for name in names:
        called = {name, shown(name)}
        named = [e for e in found if called & {e.document, e.file, e.folder.name, str(e.folder)}]
        named = named or [entry for entry in found if shown(Path(name).name) in (entry.document, entry.file)]
        if not named:
            raise click.UsageError(f"There is no index of {name}: `octavo list` shows what there is.")
        chosen += [entry for entry in named if entry not in chosen]
    return chosen


@click.command(name="prune")
@of_a_model
@click.option("--stale", is_flag=True, help="Indexes whose document has changed, or is gone.")
@click.option(
    "--unfinished", is_flag=True, help="Indexes and profiles that were interrupted, and indexes that cannot be read."
)
@click.option("--older-than", type=Age(), help="Indexes that were not used for so long, such as 30d, 12h or 8w.")
@click.option("--larger-than", type=Size(), help="Indexes of more bytes, such as 500M or 2G.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def prune_indexes(
    model: Path | None,
    index_dir: Path | None,
    stale: bool,
    unfinished: bool,
    older_than: timedelta | None,
    larger_than: int | None,
    yes: bool,
) -> None:
    """Remove indexes that are out of date.

    Without options these are the stale and the unfinished ones, but no measurements of interrupted profiles. With
    several options, each of them chooses more. Indexes and profiles that a process is making stay. With the stale ones,
    the kept texts of files that are gone are forgotten. A file whose folder is missing is not gone: its drive may not
    be connected.
    """
    from ..library.catalogue import DAMAGED, UNFINISHED
    from ..library.file_texts import forget_texts
    from ..library.source_text import CHANGED, GONE
    from ..library.text_store import is_gone

    of_profiles = unfinished
    if not (stale or unfinished or older_than or larger_than):
        stale = unfinished = True
    states = {*((CHANGED, GONE) if stale else ()), *((UNFINISHED, DAMAGED) if unfinished else ())}
    now = datetime.now(UTC)
    chosen = [
        entry
        for entry in _found(model, index_dir)
        if not entry.is_being_made
        and (
            (entry.state in states and (of_profiles or not entry.is_profile))
            or (older_than is not None and now - entry.used > older_than)
            or (larger_than is not None and entry.n_bytes > larger_than)
        )
    ]
    n_forgotten = forget_texts(options.library_folders(model, index_dir), is_gone) if stale else 0
    if n_forgotten:
        notice(f"Forgot the texts of files that are gone: {n_forgotten:,}.")
    if chosen:
        _remove(chosen, yes)
    elif not n_forgotten:
        notice("There is nothing to remove.")


@click.command(name="verify")
@click.argument("names", metavar="[DOCUMENT]...", nargs=-1)
@options.output_option("text", _JSON)
@of_a_model
def verify_indexes(names: tuple[str, ...], output: str, model: Path | None, index_dir: Path | None) -> None:
    """Compare indexes with their checksums.

    Compares all indexes, or those of DOCUMENT: a document's name or path, or an index's name or folder. An index that
    is damaged is made again when it is needed; what is whole of it is kept.
    """
    from ..library.catalogue import UNFINISHED, damage_of

    found = _found(model, index_dir)
    chosen = [entry for entry in (_named(names, found) if names else found) if entry.state != UNFINISHED]
    chosen = [entry for entry in chosen if not entry.is_being_made]
    start, rows = time.perf_counter(), []
    for entry in chosen:
        rows.append({"document": entry.document, "path": str(entry.folder), "damage": damage_of(entry.folder) or None})
    seconds, n_bytes = time.perf_counter() - start, sum(entry.n_bytes for entry in chosen)
    damaged = [row for row in rows if row["damage"]]
    if output == _JSON:
        print_json(rows)
    else:
        for row in damaged:
            click.echo(plain(str(row["damage"])))
        count = f"{len(chosen):,} {'index' if len(chosen) == 1 else 'indexes'}"
        notice(f"Compared {count}, {size(n_bytes)}, in {seconds:.1f} s: {len(damaged) or 'none'} damaged.")
        if damaged:
            notice("Index these documents again: what is whole of their indexes is kept.")
    if damaged:
        raise click.exceptions.Exit(1)


def _remove(chosen: list[Entry], yes: bool) -> None:
    """Show indexes, ask, and remove them."""
    from ..library.catalogue import remove

    if not yes:
        _show(chosen)
        n_bytes = sum(entry.n_bytes for entry in chosen)
        click.confirm(f"Remove {len(chosen):,} of the indexes, {size(n_bytes)}?", abort=True, err=True)
    for entry in chosen:
        remove(entry.folder)
        notice(f"Removed {entry.folder} ({size(entry.n_bytes)}).")
