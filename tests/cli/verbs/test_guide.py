"""The walk-through of the command line works as it is written."""

import pathlib
import re
import shlex
from collections.abc import Callable

GUIDE = pathlib.Path(__file__).parents[3] / "docs" / "guide" / "command-line.md"


def test_commands_of_the_guide_work(done: Callable[..., str]) -> None:
    """One after the other, with exit code 0 and without a word on stderr."""
    lines = re.findall(r"^\$ rocketlet (.*)$", GUIDE.read_text(), re.MULTILINE)
    printed = {line: done(*shlex.split(line)) for line in lines}
    assert len(printed) > 15
    assert '0 parcel-7 {"city": "Ghent"}\n' in printed.values()
