"""What an answer over several documents is given from."""

from __future__ import annotations

from ..errors import OctavoError

#: The document that the question is about, whole; excerpts of all documents; or all that it may be about, at once.
WHOLE, EXCERPTS, TOGETHER = READS = ("document", "excerpts", "together")


def check_reads(reads: str) -> None:
    """Check that answers can be given from this.

    Raises
    ------
    OctavoError
        They cannot.
    """
    if reads not in READS:
        raise OctavoError(f"Answers are given from {', '.join(READS[:-1])} or {READS[-1]}: '{reads}' is none of them.")
