"""docs/numba.md lists each private name of Numba that octavo uses, and no other."""

import ast
import importlib
import inspect
import re
from collections import defaultdict

from helpers.product import MODULES, ROOT, name

PAGE = ROOT / "docs" / "numba.md"
TREES = {name(path): ast.parse(path.read_text("utf-8")) for path in MODULES}


def rows(heading):
    """Return the first two columns of the table below a heading: names in backticks."""
    section = PAGE.read_text("utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    for line in section.splitlines():
        if line.startswith("| `"):
            first, names = line.split("|")[1:3]
            yield first.strip(" `"), re.findall(r"`([^`]+)`", names)


def is_module(path):
    try:
        return inspect.ismodule(importlib.import_module(path))
    except ModuleNotFoundError:
        return False


def attributes(tree, names):
    """Yield the attributes that a module takes from some of its names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in names:
            yield names[node.value.id], node.attr


def test_page_lists_the_private_names_of_modules():
    used = defaultdict(set)
    for tree in TREES.values():
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and not node.level]
        private = [node for node in imports if re.match(r"numba\.(?!extending$)", node.module)]
        modules = {}
        for node in private:
            for alias in node.names:
                if is_module(f"{node.module}.{alias.name}"):
                    modules[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                else:
                    used[node.module].add(alias.name)
        for module, attribute in attributes(tree, modules):
            used[module].add(attribute)
    assert {module: set(names) for module, names in rows("Modules")} == used


def test_no_file_imports_private_modules_of_numba_by_their_path():
    """The other test finds names by `from ... import`."""
    imported = [
        each.name
        for tree in TREES.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for each in node.names
    ]
    assert [module for module in imported if module.startswith("numba.")] == []


def test_page_lists_the_members_of_numbas_classes():
    """A file takes them from others, or it replaces a member of a base class."""
    listed = defaultdict(set)
    for file, names in rows("Members"):
        listed[file] |= set(names)
    for file, tree in TREES.items():
        if not any(
            isinstance(node, ast.ImportFrom) and (node.module or "").startswith("numba") for node in ast.walk(tree)
        ):
            continue
        own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        own |= {
            node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        }
        own |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        taken = {
            node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and re.match(r"_[^_]", node.attr)
        }
        missing = taken - own - listed[file] - set(tuple.__dict__) - {"_replace", "_asdict"}
        assert (file, sorted(missing)) == (file, [])
        assert (file, sorted(listed[file] - taken - own)) == (file, [])
