"""`octavo chats`: list the conversations that are kept, show them, and remove them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import options
from .fitting import columns_of, plain
from .library import of_a_model
from .open_conversation import chats_of, listed_chats, named_chat
from .render import notice, print_json, size
from .table import table

if TYPE_CHECKING:
    from ..ask.chats.saved_chats import SavedChat


@click.command()
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--remove", is_flag=True, help="Remove the conversations of these names.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@options.output_option("text", "json")
@of_a_model
def chats(
    names: tuple[str, ...], remove: bool, yes: bool, output: str, model: Path | None, index_dir: Path | None
) -> None:
    """List, show or remove conversations that are kept.

    NAME is a conversation's name, or its number in the list: its questions and answers are shown. `octavo chat --resume
    NAME` continues it. octavo keeps each chat on a terminal. The last question that was asked about a document is kept,
    too, for `octavo ask --continue`, and not listed.
    """
    found = chats_of(model, index_dir)
    chosen = [named_chat(name, found) for name in names]
    if remove:
        if not chosen:
            raise click.UsageError("Name the conversations to remove: `octavo chats` lists them.")
        _remove(list({chat.path: chat for chat in chosen}.values()), yes)
    elif output == "json":
        print_json([_described(chat) for chat in chosen or found])
    elif chosen:
        text = "\n\n".join(map(_as_text, chosen))
        click.echo(text if columns_of(sys.stdout) is None else plain(text))
    elif listed := listed_chats(found):
        _show(listed)
    else:
        notice("There are no conversations yet: `octavo chat` begins one.")


def _show(found: list[SavedChat]) -> None:
    """Print conversations as a table, with their numbers."""
    rows = [
        [
            str(number),
            chat.name,
            _documents(chat),
            str(len(chat.questions)),
            "damaged" if chat.problem else " ".join((chat.questions or [""])[0].split()),
            f"{chat.saved.astimezone():%Y-%m-%d %H:%M}",
            Path(chat.origin.model_path).name,
            size(chat.n_bytes),
        ]
        for number, chat in enumerate(found, 1)
    ]
    columns = ["", "name", "about", "questions", "first question", "saved", "model", "size"]
    optional = ["size", "model", "about", "questions", "saved"]
    table(columns, rows, {"", "questions", "size"}, optional, {"about", "first question", "model"})


def _documents(chat: SavedChat) -> str:
    documents = chat.origin.documents
    return "" if documents is None else ", ".join(Path(name).name for name in documents) or "-"


def _described(chat: SavedChat) -> dict[str, Any]:
    return {
        "name": chat.name,
        "documents": None if chat.origin.documents is None else list(chat.origin.documents),
        "model": chat.origin.model_path or None,
        "saved": chat.saved.isoformat(timespec="seconds"),
        "bytes": chat.n_bytes,
        "messages": chat.messages,
        "problem": chat.problem or None,
        "path": str(chat.path),
    }


def _as_text(chat: SavedChat) -> str:
    """Return the questions, each after a >, and the answers."""
    texts = (message["content"].strip() for message in chat.messages)
    roles = (message["role"] for message in chat.messages)
    return "\n\n".join(
        "\n".join(f"> {line}" for line in text.splitlines()) if role == "user" else text
        for role, text in zip(roles, texts, strict=True)
    )


def _remove(chosen: list[SavedChat], yes: bool) -> None:
    from ..system.files import disk_errors

    if not yes:
        for chat in chosen:
            notice(f"{chat.name}: {' '.join((chat.questions or [''])[0].split())}")
        click.confirm(f"Remove {len(chosen):,} of the conversations?", abort=True, err=True)
    for chat in chosen:
        with disk_errors(chat.path):
            chat.path.unlink(missing_ok=True)
        notice(f"Removed {chat.name}.")
