"""Words of questions that say nothing about their subject, in the languages of question_kinds.py.

In a few short documents "what" may be rarer than any noun: then a novel, which has dialogues, matches all questions.
"""

from __future__ import annotations

import re

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
