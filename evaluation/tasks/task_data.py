"""Read the data of tasks: shipped files, and JSON of users."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ...documents.text.plain_text import EXAMPLES, SHIPPED_NOVEL, read_utf8
from ...errors import OctavoError

NOVEL = SHIPPED_NOVEL
ARTICLES = EXAMPLES / "xquad.json"
QUESTIONS = EXAMPLES / "encyclopedia.json"


def read_json(path: Path) -> Any:
    """Read a JSON file in UTF-8. Raise OctavoError, which names the place, if it cannot be read or is not JSON."""
    try:
        return json.loads(read_utf8(path))
    except ValueError as problem:
        raise OctavoError(f"{path} is not JSON: {problem}.") from problem


def answers_of(answers: Any) -> tuple[str, ...]:
    """Return the answers of a question in JSON: its value "answers". Raise TypeError unless it is a list of texts."""
    if not isinstance(answers, list) or not all(isinstance(answer, str) for answer in answers):
        raise TypeError(answers)
    return tuple(answers)
