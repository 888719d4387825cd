"""Answer what is not a command: words of other programs, mistyped ones, documents and questions."""

from __future__ import annotations

import os
from collections.abc import Iterable
from shlex import quote

from .option_types import guessed

_RUN = "`octavo chat -m MODEL` talks with a model, and `octavo chat DOCUMENT` about a document."
_FETCH = "`octavo chat -hf OWNER/REPO` fetches a model of the Hugging Face hub, once. `octavo models` lists those here."
_MAKE = "octavo takes GGUF files as they are: give one with -m, and a system prompt with -sys."
_DELETE = (
    "octavo removes no models: they are files, whose paths `octavo models -o json` has. "
    "`octavo remove DOCUMENT` removes the index of a document."
)
_STATE = "`octavo list` lists indexes, and documents that are being read; `octavo doctor` checks octavo itself."
_LIST = "`octavo list` lists documents, `octavo models` models, and `octavo chats` conversations."
_SHOW = "`octavo inspect MODEL` describes a model, and `octavo inspect DOCUMENT` the index of a document."
_ASK = '`octavo ask DOCUMENT "QUESTION"` answers a question.'
_ADD = "`octavo index DOCUMENT` reads a document, so that later questions start at once."
_SERVE = "`octavo serve` starts the server and its page; Ctrl-C ends it."
_SETTINGS = "Settings are options, or variables such as OCTAVO_MODEL: `octavo ask --help-all` lists them."

#: What does here what other programs do under these names.
_HERE = {
    **dict.fromkeys(("run", "launch", "talk", "repl", "llm"), _RUN),
    **dict.fromkeys(("pull", "download", "fetch", "get", "install"), _FETCH),
    **dict.fromkeys(("create", "cp", "copy", "push"), _MAKE),
    **dict.fromkeys(("rm", "delete", "del", "uninstall", "clear", "clean"), _DELETE),
    **dict.fromkeys(("ps", "status", "jobs", "queue"), _STATE),
    **dict.fromkeys(("ls", "dir", "documents", "docs"), _LIST),
    **dict.fromkeys(("show", "info", "describe", "stat"), _SHOW),
    **dict.fromkeys(("query", "prompt", "question", "search", "generate", "summarize", "summarise"), _ASK),
    **dict.fromkeys(("add", "import", "ingest", "upload", "embed", "load"), _ADD),
    **dict.fromkeys(("start", "server", "web", "ui", "gui", "api"), _SERVE),
    **dict.fromkeys(("config", "configure", "settings", "set", "options"), _SETTINGS),
    **dict.fromkeys(("logs", "history", "conversations"), "`octavo chats` lists the conversations that are kept."),
    **dict.fromkeys(("kill", "cancel", "pause"), "`octavo stop` stops reading in the background."),
    **dict.fromkeys(("benchmark", "perf"), "`octavo bench` measures how fast octavo is."),
    **dict.fromkeys(("check", "test", "diagnose"), "`octavo doctor` checks octavo, `octavo verify` indexes."),
    **dict.fromkeys(("version", "about"), "`octavo --version` names the version."),
    **dict.fromkeys(("update", "upgrade"), "pip, or what installed octavo, updates it."),
    **dict.fromkeys(("cat", "text", "extract", "convert"), "`octavo read DOCUMENT` prints the text of a document."),
}

#: Commands and options that delete: no guess by spelling proposes them.
_DELETING = {"remove", "prune", "--remove", "--yes", "--stale", "--unfinished", "--older-than", "--larger-than"}


def advice(word: str, commands: Iterable[str]) -> str:
    """Return what takes a file or a question, or does what a word means elsewhere, or a guess at a command; or ""."""
    if os.path.lexists(word):
        name = quote(word)
        if word.lower().endswith(".gguf"):
            return f" `octavo chat -m {name}` talks with this model."
        return f' `octavo chat {name}` talks about it, and `octavo ask {name} "QUESTION"` answers a question.'
    known = _HERE.get(word.lower(), _ASK if " " in word else "")
    guess = f" {known}" if known else guessed(word, commands)
    return "" if any(f"`{name}`" in guess for name in _DELETING) else guess


def harmless(options: Iterable[str]) -> list[str]:
    """Return the options that delete nothing."""
    return [name for name in options if name not in _DELETING]
