"""What an answer over several documents is given from."""

from __future__ import annotations

from ..errors import OctavoError

#: The document that the question is about, whole; or excerpts of all documents.
WHOLE, EXCERPTS = READS = ("document", "excerpts")


def check_reads(reads: str) -> None:
    """Check that answers can be given from this.

    Raises
    ------
    OctavoError
        They cannot.
    """
    if reads not in READS:
        raise OctavoError(f"Answers are given from {' or '.join(READS)}: '{reads}' is neither.")
