"""Count what one question runs: functions and files, modules that `octavo ask` reaches, and types of documents.

    python tools/count_path.py [--list] [TREE]

TREE is a checkout of octavo, by default the one that holds this script. A document is indexed with the default model;
then, in a process of its own, it is opened, asked one question with sources, and every function of octavo that runs is
counted. Modules are those that cli/ask.py reaches by imports, at their top or within functions. Types are the classes
of ask/, library/, documents/ and serve/library/ whose names say that they are a document, or some of its text.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

#: How many tokens the answer has at most.
TOKENS = 12
QUESTION = "Which encyclopedia was published in parts?"

#: Rooms whose classes may be documents, and the names of such classes.
ROOMS = ("ask/", "library/", "documents/document.py", "serve/library/")
NAMES = re.compile(
    r"^[A-Z]\w*(Document|File|Text|Passages?|Piece|Part|Upload|Span|Source|Context|Index|Candidate|Choice|Excerpts?)$"
    r"|^(Document|Text|Passages?|Piece|Upload|Span|Source|Context|Indexed|LaidOut|Candidate|Choice|Excerpts?)$"
)
#: Classes with such names that are something else: an answer's text, a part of a build, an error, work on a file.
OTHERS = {"Text", "AnswerText", "KeepText", "OneFile", "OtherText", "BuildPart", "ExtractText", "GuardedFile"}


def main() -> None:
    """Print the counts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tree", nargs="?", type=Path, default=Path(__file__).parents[1], metavar="TREE")
    parser.add_argument("--list", action="store_true", help="print the names, too")
    parser.add_argument("--run", metavar="FOLDER", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    tree = arguments.tree.resolve()
    if arguments.run is not None:
        print(json.dumps(count(tree, Path(arguments.run))))
        return
    ran = in_another_process(tree)
    files = sorted({function.partition(":")[0] for function in ran})
    reaches = reached(tree, Path("cli/ask.py"))
    modules = sorted(name for name in reaches if not name.endswith("__init__.py"))
    types = sorted(types_of_documents(tree))
    counted = {
        "functions that a question runs": ran,
        "files that they are in": files,
        "modules that octavo ask reaches": modules,
        "types of a document or its text": types,
    }
    for what, names in counted.items():
        print(f"{len(names):>5}  {what}")
        if arguments.list:
            print(*(f"       {name}" for name in names), sep="\n")


def in_another_process(tree: Path) -> list[str]:
    """Count the functions of a checkout in a process that imports no other one."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPATH": str(package_of(tree).parent), "XDG_STATE_HOME": folder}
        command = [sys.executable, __file__, str(tree), "--run", folder]
        ran = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
    return sorted(json.loads(ran.splitlines()[-1]))


def package_of(tree: Path) -> Path:
    """Return a path of a checkout that ends in `octavo`, always the same one: compiled kernels know their paths."""
    if tree.name == "octavo":
        return tree
    link = Path(tempfile.gettempdir(), f"octavo-{zlib.crc32(str(tree).encode()):08x}", "octavo")
    link.parent.mkdir(exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(tree)
    return link


def count(tree: Path, folder: Path) -> list[str]:
    """Ask twice; returns the functions of octavo that run the second time, as `file:name`.

    The first time indexes the document, imports modules and compiles kernels.
    """
    import octavo

    root = Path(octavo.__file__).parent
    within, found = f"{root}{os.sep}", set[str]()

    def note(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        is_octavo = code.co_filename.startswith(within) and code.co_filename != __file__
        if event == "call" and is_octavo and "<" not in code.co_name:
            found.add(f"{os.path.relpath(code.co_filename, root)}:{code.co_qualname}")

    def ask() -> None:
        model = octavo.ModelSettings(index_dir=folder / "indexes", n_threads=1)
        sampling = octavo.Sampling(max_tokens=TOKENS, temperature=0)
        path = tree / "examples/encyclopedia.md"
        with octavo.open_document(path, model, sampling=sampling, sources=True) as document:
            document.ask(QUESTION)
            document.sources()

    ask()
    threading.setprofile(note)
    sys.setprofile(note)
    ask()
    sys.setprofile(None)
    threading.setprofile(None)
    return sorted(found)


def reached(tree: Path, start: Path) -> set[str]:
    """Return the modules that a module reaches by imports, itself included."""
    found, waiting = set[str](), [tree / start]
    while waiting:
        path = waiting.pop()
        if (name := path.relative_to(tree).as_posix()) not in found:
            found.add(name)
            waiting += imported(tree, path)
    return found


def imported(tree: Path, path: Path) -> Iterator[Path]:
    """Yield the files of octavo that a file imports, also for its annotations alone."""
    package = path.relative_to(tree).parent.parts
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            source = (*package[: len(package) + 1 - node.level], *(node.module or "").split("."))
            for alias in node.names:
                yield from file_of(tree, [part for part in (*source, alias.name) if part])


def file_of(tree: Path, parts: list[str]) -> Iterator[Path]:
    """Yield the file that holds an imported name: its module, or that of its package."""
    for place in filter(None, (parts, parts[:-1])):
        module = tree.joinpath(*place)
        if found := [file for file in (module.with_suffix(".py"), module / "__init__.py") if file.is_file()]:
            yield found[0]
            return


def types_of_documents(tree: Path) -> Iterator[str]:
    """Yield the classes that are a document or some of its text."""
    for path in sorted(tree.rglob("*.py")):
        name = path.relative_to(tree).as_posix()
        if name.startswith(ROOMS):
            for node in ast.parse(path.read_text("utf-8")).body:
                if isinstance(node, ast.ClassDef) and NAMES.match(node.name) and node.name not in OTHERS:
                    yield f"{name}:{node.name}"


if __name__ == "__main__":
    main()
