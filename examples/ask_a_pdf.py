"""Ask a PDF a question, and print the passages that the answer comes from, with their pages.

python ask_a_pdf.py encyclopedia.pdf "What is the name of the latest epoch?" [model.gguf]

The first time, the model reads the PDF and octavo keeps an index beside the model. Later questions start at once.
"""

import sys

import octavo


def ask(path: str, question: str, model: str | None = None) -> None:
    """Print the answer as it comes, then its sources."""
    with octavo.open_document(path, model, sources=True) as document:
        for piece in document.stream(question):
            print(piece, end="", flush=True)
        print()
        for passage in document.sources():
            print(f"page {passage.page}: {passage.quote}")


if __name__ == "__main__":
    ask(*sys.argv[1:])
