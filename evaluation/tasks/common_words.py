"""Common words: which words of a numbered list occur more often than the others (RULER, section 3.3).

One short example with its answer comes first (appendix D).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...runtime.methods.parameters import parameter
from ..samples import Text
from .ruler import Page, Ruler

_INSTRUCTION = (
    "Below is a numbered list of words. In these words, some appear more often than others. Memorize the ones that "
    "appear most often."
)
_QUESTION = "Question: What are the {n} most common words in the above list?"
_PREFIX = "Answer: The top {n} words that appear most often in the list are:"

#: Occurrences of common and uncommon words in the example, and uncommon words for each common one.
_EXAMPLE_COMMON, _EXAMPLE_UNCOMMON, _EXAMPLE_OTHERS = 3, 1, 1


@dataclass(frozen=True)
class CommonWords(Ruler):
    """Name the common words.

    Parameters
    ----------
    common : int
        Number of common words.
    often : int
        How often a common word occurs.
    seldom : int
        How often each of the others occurs. There are as many others as fit.
    """

    common: int = parameter(10, least=1)
    often: int = parameter(30, least=2)
    seldom: int = parameter(3, least=1)

    name = "common-words"

    def text(self, page: Page, depth: int, most: int, rng: np.random.Generator) -> Text:
        """List words in random order (see `Ruler.text`)."""
        words = [page.words[i] for i in rng.permutation(len(page.words))]
        sampled, words = words[: self.common * (1 + _EXAMPLE_OTHERS)], words[self.common * (1 + _EXAMPLE_OTHERS) :]
        names, others = words[: self.common], words[self.common :]
        question, prefix = (text.format(n=self.common) for text in (_QUESTION, _PREFIX))
        example = numbered(repeated(sampled, self.common, _EXAMPLE_COMMON, _EXAMPLE_UNCOMMON), rng)
        answered = f"{question} {prefix} {' '.join(sampled[: self.common])}"
        begin = page.begin(f"{_INSTRUCTION}\n{example}\n{answered}\n\n{_INSTRUCTION}")

        def listed(n: int) -> list[int]:
            """Return the tokens of a list with n other words; always in the same order for the same n."""
            all_words = repeated(names + others[:n], self.common, self.often, self.seldom)
            return page.prose.pieces(numbered(all_words, np.random.default_rng(order)))

        order = int(rng.integers(2**32))
        n = bisect_right(range(1, len(others) + 1), depth - len(begin), key=lambda n: len(listed(n)))
        if n == len(others):
            raise page.too_few_words(f"a list of {depth:,} tokens")
        if n == 0:
            raise self.too_small(depth)
        return Text(begin + listed(n), [page.ask(question, prefix, names)])


def repeated(words: Sequence[str], n_common: int, often: int, seldom: int) -> list[str]:
    """Repeat words: first `n_common` common words, `often` times each, then the others, `seldom` times each."""
    return [word for i, word in enumerate(words) for _ in range(often if i < n_common else seldom)]


def numbered(words: Sequence[str], rng: np.random.Generator) -> str:
    """Number words, which may repeat, in random order."""
    return " ".join(f"{number}. {words[i]}" for number, i in enumerate(rng.permutation(len(words)), 1))
