"""The words of a question: whether they say something about its subject, how much they count, and if they ask for all.

In a few short documents "what" may be rarer than any noun: then a novel, which has dialogues, matches all questions. So
words that say nothing do not count. The others count by BM25 (Robertson and Zaragoza 2009, "The Probabilistic Relevance
Framework: BM25 and Beyond", section 3.5), with the usual values of its two parameters.
"""

from __future__ import annotations

import re

import numpy as np

#: BM25's k1 and b: saturation of repeated words, and weight of a piece's length.
_K1, _B = 1.5, 0.75

#: Most that a word counts, times its rarity.
MOST = _K1 + 1

#: Weight of the words of the question before: a question without words of its own, such as "Why?", is about them.
BEFORE = 0.3

#: Words of questions that say nothing about their subject, in the languages of _WHOLE.
_TEXT = """
a about all am an and any are as at be been being but by can could did do does doing done each every for from had has
have he her here him his how i if in into is it its many may me might much must my no not of on or our over shall she
should so some such than that the their them then there these they this those to under us was we were what when where
which who whom whose why will with would you your

als am an auf aus bei bin bis bist da das dass dein dem den der des die dir du durch ein eine einem einen einer eines er
es für haben hat hatte hatten ich ihm ihn ihr im ins ist kann kein können mein mir mit muss müssen nach nicht noch oder
ob sein seine sich sie sind soll um und uns unser vom von vor wann war waren warum was welche welchem welchen welcher
welches wem wen wer werden wessen wie wird wo wurde wurden zu zum zur über

au aux avec ce ces cet cette combien comment dans de des du elle elles en est et ils je la le les leur lequel lors mais
ne nous ont où par pas pour pourquoi qu quand que quel quelle quelles quels qui quoi sa se ses son sont sur un une vous
était étaient été

al como con cual cuando cuál cuáles cuándo cuánta cuántas cuánto cuántos cómo del donde dónde el ella ellos era eran es
esta este esto fue fueron ha han hay las lo los más muy o para pero por porque qué quien quién quiénes según si sobre su
sus también una unas unos y

alla alle chi che ci come cosa cui dal dalla dei della delle dello di dove e ed erano fu furono gli hanno i il io lei
loro lui ma nel nella non perché più quale quali quanta quante quanti quanto sono sua sue sui sul sulla suo tra uno è

ao aos com da das dos ela elas ele eles em entre essa esse foi foram isso isto mas na nas nos não onde os ou pela pelo
qual quais quantas quantos quem são sem seu seus suas uma umas à é
"""
_FUNCTION_WORDS = frozenset(_TEXT.split())

_WORD = re.compile(r"\w+")

#: What a question calls all of a text.
_TEXTS = (
    "(text|book|document|novel|report|story|paper|article|essay|file|pdf|play|poem|speech|manual|contract|letter)s?"
)

#: Words of questions about the whole of a text, which passages cannot answer: in English, German, French, Spanish,
#: Italian and Portuguese.
_WHOLE = re.compile(
    r"\b(summari[sz](e|ing)\b|sum (it |this )?up\b|gist\b|tl;?dr\b"
    r"|(?<!the )(summar(y|ies)|overview|outline)\b"
    r"|(main|key|central|most important) (point|idea|theme|argument|finding|message|topic|character)"
    r"|(list|name|find|give me|enumerate|what are) (all|every|each)\b"
    rf"|(entire|whole) {_TEXTS}\b|what(.?s| is| are) (it|this|that|(this|the|these|that) \w+) (all )?about\b"
    rf"|(tell me about|explain|describe|review|translate|simplify|shorten|condense) (this|the|my|these) {_TEXTS}\b"
    rf"|what happens in (this|the) {_TEXTS}\b|(plot|moral) of (it|(this|the) {_TEXTS})\b"
    r"|(describe|what.{1,3}) the plot\b"
    rf"|what do(es)? (this|the|these) {_TEXTS} (say|tell|cover|discuss|contain|argue)( overall| in short)?\W*$"
    r"|(what|which) (topics|themes)\b"
    r"|zusammenfass|überblick|(nenne|liste) alle\b|worum geht|wovon handel|was steht in d"
    r"|(wichtigsten|zentralen|wesentlichen) (punkt|aussag|ergebnis|them|gedank)|haupt(punkt|aussag|them|gedank)"
    r"|résum|(tous|toutes) les\b|de quoi (parle|traite)|(points|idées) (principa|clés|essentiel)"
    r"|resum|todos los\b|todas las\b|de qué trata|(puntos|ideas) (principales|clave)"
    r"|tutt[ie] (i|gli|le)\b|riassum|riassunt|di (che )?cosa (parla|tratta)|(punti|idee) principali"
    r"|todos os\b|todas as\b|do que (trata|fala)|(pontos|ideias) principais)",
    re.IGNORECASE,
)

#: Words of such questions that another word follows in the same line.
_FOLLOWED = (
    (
        r"\bhow (many|often)\b",
        r"\b(mention|named?\b|listed|described|occur|appear|(text|book|document|novel|report)\b)",
    ),
    (r"\b(who|what|which)\b", rf"\b(mention|appear|occur)\w* in (this|the) {_TEXTS}\b"),
    (r"\bfasse?\b", r"\bzusammen\b"),
)

#: Words that ask which of several texts say something, and words that follow them in the same line.
_OF_TEXTS = re.compile(rf"\b(which|what|how many) (of (the|these) )?{_TEXTS.removesuffix('?')}\b", re.IGNORECASE)
_SAY = r"\b(mention|named?|discuss|describe?|contain|cover|talk|report|speak|refer|deal|appear|occur)(s|e[ds])?\b"

#: Words that ask for all things of a kind: these are listed, where summaries are written.
_LISTED = re.compile(
    r"\b((list|name|find|give me|enumerate|what are) (all|every|each)|how (many|often)"
    r"|(nenne|liste) alle|(tous|toutes) les|todos los|todas las|tutt[ie] (i|gli|le)|todos os|todas as)\b",
    re.IGNORECASE,
)
_WHO = re.compile(r"\b(who|what|which)\b", re.IGNORECASE)
_SUMMED_UP = re.compile(
    r"summar|sum (it |this )?up|outline|overview|about\b|main |key |central |important|topics|themes|plot|moral"
    r"|zusammen|überblick|r[eé]sum|riassum",
    re.IGNORECASE,
)

#: Words that ask for each chapter, and that "this chapter" can replace; those and others that cannot be replaced.
_EACH = r"(each|every) chapter|(all|the) chapters"
_EACH_CHAPTER = re.compile(rf"\b({_EACH})\b", re.IGNORECASE)
_CHAPTERS = re.compile(
    rf"\b({_EACH}|chapter by chapter|jedes kapitel|(alle|der) kapitel|chaque chapitre|cada cap[íi]tulo"
    r"|ogni capitolo)\b",
    re.IGNORECASE,
)

#: Fewest letters of a word by whose beginning it is the same with another ending.
_ROOT = 5


def says_something(word: str) -> bool:
    """Return whether a word, or a part of one, says something about a subject: punctuation does not."""
    plain = word.strip().casefold()
    return plain not in _FUNCTION_WORDS and any(map(str.isalnum, plain))


def subject_words(question: str) -> str:
    """Return the words of a question that say something, or all of them if none does."""
    words = _WORD.findall(question)
    return " ".join([word for word in words if says_something(word)] or words)


def with_subject(question: str, before: str) -> tuple[str, str]:
    """Return a question and the one before it; both as one if only that has a subject, as before "Why?"."""
    if not before or any(map(says_something, _WORD.findall(question))):
        return question, before
    return f"{before}\n{question}", ""


def rarity(n_with: int, n: int) -> float:
    """Return the weight of a word that n_with of n pieces have."""
    return float(np.log(1 + (n - n_with + 0.5) / (n_with + 0.5)))


def relative_lengths(lengths: np.ndarray) -> np.ndarray:
    """Return by how much the lengths of pieces, at least one, weaken their words."""
    longer: np.ndarray = 1 - _B + _B * lengths / max(lengths.mean(), 1e-9)
    return longer


def saturated(counts: np.ndarray, longer: np.ndarray) -> np.ndarray:
    """Return what a word counts that pieces of some `relative_lengths` have so many times."""
    counted: np.ndarray = counts * MOST / (counts + _K1 * longer)
    return counted


def needs_whole(question: str) -> bool:
    """Return whether a question is about the whole of a text, such as a summary, rather than a place in it."""
    return (
        _WHOLE.search(question) is not None
        or asks_which_texts(question)
        or asks_for_chapters(question)
        or any(_is_followed(question, re.compile(word, re.IGNORECASE), later) for word, later in _FOLLOWED)
    )


def asks_for_list(question: str) -> bool:
    """Return whether a question about a whole asks for all things of a kind, or for their number."""
    return _SUMMED_UP.search(question) is None and (
        any(map(_LISTED.search, question.split("\n"))) or _is_followed(question, _WHO, _SAY)
    )


def asks_for_chapters(question: str) -> bool:
    """Return whether a question about a whole asks about each of its chapters, and not for a list."""
    return _CHAPTERS.search(question) is not None and not asks_for_list(question)


def of_one_chapter(question: str) -> str:
    """Return a question about each chapter as one about this chapter, in English."""
    return _EACH_CHAPTER.sub("this chapter", question)


def asks_which_texts(question: str) -> bool:
    """Return whether a question asks which of several texts mention something."""
    return _is_followed(question, _OF_TEXTS, _SAY)


def _is_followed(question: str, word: re.Pattern[str], later: str) -> bool:
    """Return whether a line of a question has a word, and another one after it; capitals count as small letters."""
    return any(
        re.search(later, line[first.end() :], re.IGNORECASE)
        for line in question.split("\n")
        if (first := word.search(line)) is not None
    )


def sought_words(question: str) -> str:
    """Return a question without its words that ask for a list, and for texts that mention something."""
    for pattern in (_OF_TEXTS, _LISTED, re.compile(_SAY, re.IGNORECASE)):
        question = pattern.sub(" ", question)
    return question


def roots(text: str) -> set[str]:
    """Return the words of a text that say something, without case and endings."""
    return {root(word.casefold()) for word in _WORD.findall(text) if says_something(word)} - {""}


def root(word: str) -> str:
    """Return a word without its ending; one with a digit, such as a number or a mark, stays whole."""
    if any(map(str.isdigit, word)):
        return word
    return word[:_ROOT] if len(word) > _ROOT else word.removesuffix("s")
