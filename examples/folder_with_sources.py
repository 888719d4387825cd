"""Ask a folder of documents questions, and print for each the document and the passages that the answer comes from.

python folder_with_sources.py papers/ [model.gguf] < questions.txt

Each line of standard input is a question. octavo finds the document that it is about.
"""

import sys

import octavo


def ask_each(questions: list[str], folder: str, model: str | None = None) -> None:
    """Print an answer to each question, with its document and its sources."""
    with octavo.open_documents([folder], model, sources=True) as collection:
        for question in questions:
            collection.clear()  # a question does not refer to the one before
            answer = collection.ask(question)
            print(f"\n{question}\n{answer.text}\nfrom {collection.path.name}")
            for passage in collection.sources():
                print(f"- line {passage.line}, {passage.heading}: {passage.quote}")


if __name__ == "__main__":
    ask_each(sys.stdin.read().splitlines(), *sys.argv[1:])
