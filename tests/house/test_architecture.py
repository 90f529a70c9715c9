"""The documentation names real functions."""

import ast
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parent.parent.parent
PAGES = sorted((ROOT / "docs").rglob("*.md"))
REFERENCES = [
    (page.name, *match)
    for page in PAGES
    for match in re.findall(r"`((?:[a-z_]+/)+[a-z_0-9]+\.py)(?:: ([A-Za-z_.]+))?`", page.read_text())
]


def names_of(source: str) -> set[str]:
    """Return the functions, classes and methods of a module, methods with their class."""
    tree = ast.parse(source)
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    names = {node.name for node in tree.body if isinstance(node, kinds)}
    for owner in (node for node in tree.body if isinstance(node, ast.ClassDef)):
        names |= {f"{owner.name}.{node.name}" for node in owner.body if isinstance(node, kinds)}
    return names


@pytest.mark.parametrize(("page", "file", "name"), REFERENCES, ids=[" ".join(each).strip() for each in REFERENCES])
def test_reference_exists(page: str, file: str, name: str):
    """A file that a page names exists, and holds the function or class that it names."""
    assert (ROOT / file).exists(), page
    assert not name or name in names_of((ROOT / file).read_text()), page
