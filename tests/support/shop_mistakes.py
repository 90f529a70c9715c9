"""Mistakes that tests make in copies of the example shops, to see whether the shops' own tests notice them."""

import pathlib
import shutil
from collections.abc import Iterable
from typing import NamedTuple


class Mistake(NamedTuple):
    """A text of a file that stands there once, what is written instead, and the tests that notice it."""

    file: str
    right: str
    wrong: str
    noticed_by: tuple[str, ...]


def copy_shop(shop: pathlib.Path, target: pathlib.Path, mistakes: Iterable[Mistake] = ()) -> pathlib.Path:
    """Copy a shop, with mistakes."""
    copy = shutil.copytree(shop, target, ignore=shutil.ignore_patterns("__pycache__", "target"))
    for mistake in mistakes:
        source = copy / mistake.file
        text = source.read_text()
        assert text.count(mistake.right) == 1, mistake
        source.write_text(text.replace(mistake.right, mistake.wrong))
    return copy


def noticed(mistakes: Iterable[Mistake]) -> set[str]:
    """Return the names of the tests that must fail."""
    return {name for mistake in mistakes for name in mistake.noticed_by}
