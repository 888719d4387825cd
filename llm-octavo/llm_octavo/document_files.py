"""The files of documents that prompts bring, and which documents an earlier message brought.

llm keeps of a message only its whole text, fragments included. So a note beside the kept texts says, for each such
text, which documents and which question it consists of.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import click
import llm

#: Paths of the documents whose texts were loaded in this process, by the hash of the text.
_loaded: dict[str, Path] = {}


class Turn(NamedTuple):
    """What a user wrote: the question, and the documents that came with it."""

    question: str
    documents: tuple[Path, ...]


def load(name: str) -> llm.Fragment:
    """Return the text of a document. Raise OctavoError if it cannot be read."""
    from octavo.documents.extract import extract_document

    path = Path(name).expanduser().absolute()
    document = extract_document(path)
    for sentence in document.notices:
        click.echo(sentence, err=True)
    fragment = llm.Fragment(document.text, f"octavo:{path}")
    _loaded[_hash(document.text)] = path
    return fragment


def turn_of(prompt: llm.Prompt) -> Turn:
    """Return what a prompt brings, and keep a note of it for the turns after it."""
    fragments = list(map(str, prompt.fragments))
    question = prompt.prompt.removeprefix("\n".join(fragments)).removeprefix("\n") if fragments else prompt.prompt
    documents = [_file_of_text(fragment) for fragment in fragments]
    documents += [_file_of_attachment(attachment) for attachment in prompt.attachments]
    turn = Turn(question, tuple(documents))
    if documents:
        kept = [_kept_text(fragment) for fragment in fragments] + documents[len(fragments) :]
        note = {"question": question, "documents": list(map(str, kept))}
        _note(prompt.prompt, prompt.attachments).write_text(json.dumps(note), "utf-8")
    return turn


def earlier_turn(text: str, attachments: Sequence[llm.Attachment]) -> Turn:
    """Return what an earlier message brought."""
    note = _note(text, attachments)
    if not note.exists():
        return Turn(text, ())
    known = json.loads(note.read_text("utf-8"))
    return Turn(known["question"], tuple(map(Path, known["documents"])))


def _file_of_text(text: str) -> Path:
    """Return the file of a fragment: the document itself if it was just loaded, as it has pages, or a copy."""
    return _loaded.get(_hash(text)) or _kept_text(text)


def _kept_text(text: str) -> Path:
    """Return a copy of a text, named by its first words. octavo finds its index by the text itself."""
    words = "-".join(re.findall(r"\w+", text[:200])[:4])[:40]
    return _kept(f"{words or 'text'}-{_hash(text)[:12]}.md", text.encode("utf-8", "surrogatepass"))


def _file_of_attachment(attachment: llm.Attachment) -> Path:
    """Return the file of an attachment: its own, or a copy."""
    if attachment.path:
        return Path(attachment.path).absolute()
    content = attachment.content_bytes()
    return _kept(f"attachment-{hashlib.sha256(content).hexdigest()[:12]}", content)


def _kept(name: str, content: bytes) -> Path:
    """Keep a file."""
    path = _folder() / name
    if not path.exists():
        path.write_bytes(content)
    return path


def _note(text: str, attachments: Iterable[llm.Attachment]) -> Path:
    """Return the file of the note about a message."""
    whole = "\0".join([text, *(attachment.id() for attachment in attachments)])
    return _folder() / f"{_hash(whole)}.json"


def _folder() -> Path:
    """Return the folder of kept files, which only the user may read."""
    folder: Path = llm.user_dir() / "octavo"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
