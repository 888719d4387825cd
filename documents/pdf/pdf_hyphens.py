"""Join the lines of a PDF, and tell which of the hyphens at their ends belong to words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain

#: English parts of words that keep their hyphen.
_KEEPS = re.compile(r"(well|self)-\w+|\w+-(based|driven|oriented|specific|related|term|known)")

#: Participles and the like, which compounds end in ("story-telling"); the fewest letters of them, and of the part
#: before; most letters of a word that ends so and has no hyphen; and what joins them without one ("overturned").
_ENDING, _LEAST_END, _LEAST_BEGIN, _LONGEST = ("ing", "ed", "ent"), 6, 4, 15
_JOINED = {"over", "under", "with", "inter", "trans"}

#: Hyphens at the ends of lines, as some programs write them.
_HYPHEN = "[-\u2010\u00ad]"

#: The parts of an address before and after a hyphen, which is its own.
_IN_ADDRESS, _OF_ADDRESS = re.compile(rf"\w[.@/]\w[^\s@]*{_HYPHEN}$"), re.compile(r"[\w-]*(\.\w|@)")

#: The beginning of a code, a range or a name with a hyphen, which a digit or a capital continues.
_CODE = re.compile(rf"\w{_HYPHEN}$")

#: The end of a line within an address, or between two words without a blank.
_PATH = re.compile(r"\w/$")

#: Most characters of a part of a word, as to search all of a long text for each line takes too long.
_LONGEST_PART = 64

#: Characters of scripts without blanks between words: Chinese and Japanese.
_SPACELESS = re.compile("[\u3001-\u30ff\u3400-\u9fff\uf900-\ufaff\uff01-\uff60]")


def count_words(pages: Iterable[str]) -> Counter[str]:
    """Count the words of pages in lower case, but for those that line ends part.

    Words with hyphens count as a whole, and their last part counts with its hyphen: "-based".
    """
    words, last = Counter[str](), ""
    for page in chain(pages, [""]):
        lines, _, last = f"{last}\n{page}".rpartition("\n")  # its last word may continue on the next page
        whole = re.sub(rf"[^\W\d_]+{_HYPHEN}\n[^\W\d_]+", "", lines.lower()).replace("\u2010", "-")
        words.update(re.findall(r"[^\W\d_]+(?:-[^\W\d_]+)*", whole))
    words.update(["-" + word.rpartition("-")[2] for word in words.elements() if "-" in word])
    return words


def joined(lines: Sequence[str], words: Counter[str]) -> str:
    """Join lines, without hyphens at their ends that only part a word.

    Parameters
    ----------
    words : Counter of str
        What the document has, from `count_words`.
    """
    text = lines[0]
    for line in lines[1:]:
        end = text[-_LONGEST_PART:]
        if (_CODE.search(end) and (line[0].isdigit() or line[0].isupper())) or (
            _PATH.search(end) and line[0].isalnum()
        ):
            text += line
            continue
        parted = re.search(rf"([^\W\d_]+){_HYPHEN}$", end)
        following = re.match(r"[^\W\d_]+", line)
        if parted and following and line[0].islower():
            is_whole = _IN_ADDRESS.search(end) or _OF_ADDRESS.match(line)
            are_two = is_whole or _are_two(parted[1].lower(), following[0].lower(), words)
            text = (text if are_two else text[:-1]) + line
        else:
            text += line if _SPACELESS.match(text[-1:]) and _SPACELESS.match(line) else " " + line
    return text


def _are_two(first: str, second: str, words: Counter[str]) -> bool:
    """Return whether a word that was parted at a hyphen has one: as elsewhere in the document, or by its parts."""
    whole, apart = words[first + second], words[f"{first}-{second}"]
    if whole or apart:
        return apart > whole
    if _KEEPS.fullmatch(f"{first}-{second}") or (words[first] and words[f"-{second}"]):
        return True
    is_compound = second.endswith(_ENDING) and len(second) >= _LEAST_END and len(first) >= _LEAST_BEGIN
    return is_compound and first not in _JOINED and (words[first] > 0 or len(first + second) > _LONGEST)
