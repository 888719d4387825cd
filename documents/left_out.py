"""Count what a reader leaves out of a document, and say so in one sentence."""

from __future__ import annotations

from collections import Counter


class LeftOut(Counter[str]):
    """How many things of each kind a document has that are not in its text.

    A kind is a noun in the singular whose plural ends in s, such as "hidden row", "hidden sheet", "hidden passage" (of
    text), "covered passage", "deleted passage", "picture". Readers count; `notices` writes the sentence, which
    `octavo read`, `index`, `ask`, JSON and the page show as any other notice.
    """

    def notices(self, name: str) -> tuple[str, ...]:
        """Return a sentence about all that is left out of a document of a name; nothing if nothing is."""
        parts = [f"{number:,} {kind}{'s' * (number > 1)}" for kind, number in sorted(self.items()) if number > 0]
        if not parts:
            return ()
        listed = " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
        return (f"{name} has {listed}: octavo leaves {'it' if self.total() == 1 else 'them'} out.",)
