"""Notice questions about the whole of a text, which passages of it cannot answer."""

from __future__ import annotations

import re

#: Words of such questions, in English, German, French, Spanish, Italian and Portuguese.
_WHOLE = re.compile(
    r"\b(summar(y|ies|i[sz])|tl;?dr\b|overview\b|outline\b|(main|key|central) (point|idea|theme|argument|finding)"
    r"|(list|name|find|give me|enumerate|what are) (all|every|each)\b"
    r"|(entire|whole) (text|book|document|novel|report|story)|what is (it|this|the \w+) about\b"
    r"|zusammenfass|überblick|(nenne|liste) alle\b|worum geht"
    r"|résum|(tous|toutes) les\b|de quoi (parle|traite)"
    r"|resum|todos los\b|todas las\b|de qué trata|tutt[ie] (i|gli|le)\b|riassum|riassunt|todos os\b|todas as\b)",
    re.IGNORECASE,
)

#: Words of such questions that another word follows in the same line.
_FOLLOWED = (
    (
        r"\bhow (many|often)\b",
        r"\b(mention|named?\b|listed|described|occur|appear|(text|book|document|novel|report)\b)",
    ),
    (r"\bfasse?\b", r"\bzusammen\b"),
)

#: Words of questions for a number, which may stand in one place, or have to be counted.
_NUMBER = re.compile(
    r"\b(how (many|often)\b|number of\b|count (the|all|how)\b|in (total|all)\b|wie (viele?|oft)\b|combien\b|cuánt"
    r"|quant[io]\b|quant[ao]s\b)",
    re.IGNORECASE,
)


def asks_about_whole(question: str) -> bool:
    """Return whether a question may be about the whole of a text, such as "How many ships are there?"."""
    return needs_whole(question) or _NUMBER.search(question) is not None


def needs_whole(question: str) -> bool:
    """Return whether a question is about the whole of a text, such as a summary, rather than a place in it."""
    return _WHOLE.search(question) is not None or any(
        re.search(later, line[first.end() :], re.IGNORECASE)
        for line in question.split("\n")
        for word, later in _FOLLOWED
        if (first := re.search(word, line, re.IGNORECASE)) is not None
    )
