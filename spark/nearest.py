"""The hint of an error about a name that is not there."""

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean NAME?", or nothing when no name is known."""
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0)
    return f"; did you mean {found[0]}?" if found else ""
