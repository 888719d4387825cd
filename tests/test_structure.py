"""The house stands as docs/architecture.md draws it: which folders are packages, and which may import which."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from helpers.product import MODULES, ROOT, name

#: Each of these imports only itself and what stands to its right. `__init__` is the root package itself.
ORDER = (
    "__main__",
    "cli",
    "serve",
    "evaluation",
    "__init__",
    "api",
    "ask",
    "library",
    "convert",
    "workers",
    "documents",
    "runtime",
    "prompts",
    "metal",
    "cpu_kernels",
    "system",
    "progress",
    "settings",
    "errors",
    "version",
)
#: The same inside rooms: each of these folders or modules imports only itself and what stands to its right.
INNER_ORDER = {
    "serve": (
        "run",
        "app",
        "request_target",
        "apis",
        "raw_prompt",
        "chat_turn",
        "listed_answer",
        "server_pool",
        "services",
        "kept_responses",
        "kept_objects",
        "library",
        "engine",
        "mcp",
        "http",
        "request_error",
    ),
    "ask": (
        "session",
        "one_thread",
        "context",
        "chats",
        "search",
        "sources",
        "answer",
    ),
    "documents": (
        "extract",
        "mail",
        "office",
        "text",
        "html",
        "pdf",
        "ocr",
        "kinds",
        "encodings",
        "archive",
        "xml_text",
        "scripts",
        "markdown",
        "markdown_table",
        "left_out",
        "document",
        "opening_problem",
        "table_heads",
    ),
    "runtime": (
        "compile_kernels",
        "selftest",
        "load_model",
        "embedder",
        "sequence_pool",
        "drafting",
        "llama",
        "llama_cpp_compat",
        "context",
        "sequences",
        "query_recorder",
        "devices",
        "cache",
        "methods",
        "models",
        "store",
        "graph",
        "document",
        "process",
    ),
    "cpu_kernels": ("layer", "methods", "select", "prefill", "attend", "layout", "rows", "products", "numba_support"),
}
MAX_LINES, MIN_LINES = 600, 40
#: Modules that may be shorter: each with the reason. The root package's own modules and `__init__` files may be, too.
SHORT = {
    "cpu_kernels/methods/dense.py": "one method, one file",
    "runtime/methods/dense.py": "one method, one file",
    "cpu_kernels/methods/topk.py": "one method, one file",
    "runtime/methods/topk.py": "one method, one file",
    "cli/option_names.py": "a table",
    "runtime/compile_kernels.py": "a command of its own",
    "runtime/selftest.py": "a command of its own",
    "documents/left_out.py": "one count that all readers share",
    "documents/xml_text.py": "four functions that all families of documents share",
    "evaluation/folders/folder_needle.py": "one task, one file",
}

#: Modules in a `methods` folder that belong to no single method.
SHARED_METHOD_MODULES = {
    "__init__",
    "auto",
    "budgets",
    "method",
    "attention",
    "assignment",
    "parameters",
    "layer_budgets",
    "scorer",
    "evicting",
    "select_top",
}
#: Generic modules that may name a method: DuoAttention finds retrieval heads by what streaming attention loses.
NAMED_METHODS = {("convert/plan/heads.py", "streaming")}

#: Rooms whose files share names with others: a method's slice has one name, and a command is named after what it calls.
SHARED_NAMES = {"cpu_kernels/methods", "runtime/methods", "cli"}

Module = tuple[str, ...]


@cache
def tree(path: Path) -> ast.Module:
    """Parse a module."""
    return ast.parse(path.read_text("utf-8"), str(path))


def imported_modules(path: Path) -> Iterator[Module]:
    """Yield each module of octavo that a file imports, at its top or in a function, as the parts of its path."""
    package = path.relative_to(ROOT).parent.parts
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (tuple(alias.name.split(".")[1:]) for alias in node.names if of_octavo(alias.name))
        elif isinstance(node, ast.ImportFrom) and (node.level or of_octavo(node.module)):
            parts = tuple(node.module.split(".")) if node.module else ()
            source = (*package[: len(package) + 1 - node.level], *parts) if node.level else parts[1:]
            for alias in node.names:
                if (*source, alias.name) != ("__version__",):  # which any file may write down
                    yield (*source, alias.name) if is_module((*source, alias.name)) else source


def of_octavo(module: str | None) -> bool:
    """Tell whether a dotted name is octavo or a module of it."""
    return module is not None and module.split(".")[0] == "octavo"


def is_module(module: Module) -> bool:
    """Tell whether the parts name a package or a file."""
    path = ROOT.joinpath(*module)
    return path.is_dir() or path.with_suffix(".py").is_file()


def room(module: Module) -> str:
    """Return the top-level folder or file that a module stands in."""
    return module[0] if module else "__init__"


def test_every_folder_of_modules_is_a_package():
    folders = {path.parent for path in MODULES}
    assert [name(folder) for folder in folders if not (folder / "__init__.py").is_file()] == []


def test_imports_between_packages_are_relative():
    absolute = {
        (name(path), imported)
        for path in MODULES
        for node in ast.walk(tree(path))
        for imported in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module]
            if isinstance(node, ast.ImportFrom) and not node.level
            else []
        )
        if of_octavo(imported)
    }
    assert absolute <= {("cli/main.py", "octavo")}


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_arrows_point_one_way(path):
    own = room(path.relative_to(ROOT).with_suffix("").parts)
    allowed = ORDER[ORDER.index(own) :]
    assert [".".join(module) for module in imported_modules(path) if room(module) not in allowed] == []


@pytest.mark.parametrize("top", INNER_ORDER)
def test_arrows_inside_a_room_point_one_way(top):
    order = INNER_ORDER[top]
    found = set()
    for path in (path for path in MODULES if room(path.relative_to(ROOT).with_suffix("").parts) == top):
        module = path.relative_to(ROOT).with_suffix("").parts
        if module[1:] != ("__init__",):
            above = order[: order.index(module[1])]
            imported = [other for other in imported_modules(path) if other[0] == top and other[1] in above]
            found |= {f"{'.'.join(module)} -> {'.'.join(other)}" for other in imported}
    assert found == set()


def test_no_modules_import_each_other_in_a_circle():
    imports = {
        path: {ROOT.joinpath(*module).with_suffix(".py") for module in imported_modules(path)} - {path}
        for path in MODULES
        if path.name != "__init__.py"
    }
    while loose := [
        path
        for path, others in imports.items()
        if not others & imports.keys() or not any(path in each for each in imports.values())
    ]:
        for path in loose:
            del imports[path]
    assert sorted(name(path) for path in imports) == []


def test_no_module_is_too_long():
    lengths = {name(path): len(path.read_text("utf-8").splitlines()) for path in MODULES}
    assert {path: length for path, length in lengths.items() if length > MAX_LINES} == {}


def test_no_module_is_too_short():
    """A fragment costs a newcomer a file to open: what it holds belongs beside what uses it."""
    lengths = {name(path): len(path.read_text("utf-8").splitlines()) for path in MODULES if path.parent != ROOT}
    short = {path for path, n in lengths.items() if n < MIN_LINES and not path.endswith("__init__.py")}
    assert sorted(short - set(SHORT)) == []
    assert sorted(set(SHORT) - short) == []


def test_a_file_name_stands_in_one_room():
    rooms: dict[str, list[str]] = {}
    for path in MODULES:
        if not path.stem.startswith("__") and name(path.parent) not in SHARED_NAMES:
            rooms.setdefault(path.name, []).append(name(path.parent))
    assert {file: folders for file, folders in rooms.items() if len(folders) > 1} == {}


def test_generic_code_names_no_method():
    """A module outside `methods` imports no single method, and no module tells methods apart by their class."""
    methods = [path for path in MODULES if path.parent.name == "methods" and path.stem not in SHARED_METHOD_MODULES]
    classes = {node.name: path.stem for path in methods for node in tree(path).body if isinstance(node, ast.ClassDef)}
    named = {
        (name(path), module[-1])
        for path in MODULES
        if path.parent.name != "methods"
        for module in imported_modules(path)
        if ROOT.joinpath(*module).with_suffix(".py") in methods
    } | {
        (name(path), classes[found])
        for path in MODULES
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance"
        for part in ast.walk(node.args[1])
        if (found := getattr(part, "id", getattr(part, "attr", None))) in classes
    }
    assert methods
    assert classes
    assert sorted(named - NAMED_METHODS) == []
    assert sorted(NAMED_METHODS - named) == [], "these modules no longer name the method: take them off the list"


@pytest.mark.parametrize("arguments", [["--help"], ["ask", "--help"]], ids=" ".join)
def test_help_needs_no_heavy_library(arguments):
    code = (
        "import sys; from octavo.cli.main import cli; cli(sys.argv[1:], standalone_mode=False);"
        "print('imported', *({'llama_cpp', 'numba', 'numpy'} & sys.modules.keys()))"
    )
    run = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    assert run.stdout.startswith("Usage:"), run.stderr
    assert run.stdout.splitlines()[-1] == "imported"


def test_no_test_changes_the_clock_of_other_threads():
    """Event loops of servers that other tests share would wait for hours."""
    clock = '"(?:monotonic|sleep)"'
    changes = re.compile(rf'setattr\((?:\w+\.time|time), {clock}|setattr\("time\.')
    tests = sorted((ROOT / "tests").rglob("test_*.py"))
    assert [name(path) for path in tests if path.name != "test_structure.py" and changes.search(path.read_text())] == []
