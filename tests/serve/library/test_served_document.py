"""Parts of a document, which clients see as one file."""

from pathlib import Path

from octavo.serve.library.served_document import ServedDocument


def document(name, part=None, document_id="file-1"):
    described = {
        "sha256": name,
        "name": name,
        "path": f"/uploads/{document_id}/long.txt",
        **({"part": part} if part else {}),
    }
    return ServedDocument.indexed(document_id, Path(name), {"document": described})


def test_parts_are_those_of_one_reading_in_order():
    """The file was read with another context before, and another file of the same name has parts, too."""
    parts = [document(f"long.txt, part {number} of 3", [10 * number, 10 * number + 10]) for number in (3, 1, 2)]
    before = [document(f"long.txt, part {number} of 2", [15 * number, 15 * number + 15]) for number in (1, 2)]
    other = document("long.txt, part 1 of 3", [0, 10], document_id="file-2")
    whole = document("long.txt")
    documents = [*parts, *before, other, whole]
    assert parts[0].parts(documents) == [parts[1], parts[2], parts[0]]
    assert before[1].parts(documents) == before
    assert whole.parts(documents) == [whole]
    assert {part.file_name for part in [*documents]} == {"long.txt"}
