"""Notice questions about the whole of a text, which passages of it cannot answer."""

from __future__ import annotations

import re

#: Words of such questions, in English, German, French, Spanish, Italian and Portuguese.
_WHOLE = re.compile(
    r"\b(summar(y|ies|i[sz])|tl;?dr\b|overview\b|outline\b|(main|key|central) (point|idea|theme|argument|finding)"
    r"|how (many|often)\b|number of\b|count (the|all|how)\b"
    r"|(list|name|find|give me|enumerate|what are) (all|every|each)\b"
    r"|in (total|all)\b|(entire|whole) (text|book|document|novel|report|story)|what is (it|this|the \w+) about\b"
    r"|zusammenfass|fasse?\b.*\bzusammen\b|überblick|wie (viele?|oft)\b|(nenne|liste) alle\b|worum geht"
    r"|résum|combien\b|(tous|toutes) les\b|de quoi (parle|traite)"
    r"|resum|cuánt|todos los\b|todas las\b|de qué trata|quant[io]\b|tutt[ie] (i|gli|le)\b|riassum|riassunt"
    r"|quant[ao]s\b|todos os\b|todas as\b)",
    re.IGNORECASE,
)


def asks_about_whole(question: str) -> bool:
    """Return whether a question seems to be about the whole of a text, such as "How many ships are named?"."""
    return _WHOLE.search(question) is not None
