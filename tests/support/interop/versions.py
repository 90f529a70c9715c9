"""Which official clients a test runs with; both decorators need the fixture ``java`` among the test's.

    @every_java      ``java`` is the Java client 5.4.0, then 4.9.8
    @every_client    ``client`` is "java" with each of these two, then "go"; the fixture ``driver`` is its driver

Runs with 4.9.8 carry the marker ``old_java``: ``pytest -m old_java``. Where the environment names one version, that one
stands for both.
"""

import os
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from interop.driver import Driver
from interop.toolchain import JAVA_VERSION, OLD_JAVA_VERSION, MissingToolError, java_command

_CHOSEN = os.environ.get("ROCKETLET_INTEROP_JAVA")
DEFAULT_JAVA = _CHOSEN or JAVA_VERSION
JAVA_VERSIONS = [_CHOSEN] if _CHOSEN else [JAVA_VERSION, OLD_JAVA_VERSION]


class JavaDriver(Driver):
    """A process with a version of the Java client, whose consumers may be made to rebalance only when they are told."""

    def __init__(self, version: str = DEFAULT_JAVA, *, rebalances_when_told: bool = False) -> None:
        self.version = version
        make_command = partial(java_command, version=version, rebalances_when_told=rebalances_when_told)
        super().__init__("java", make_command)


@contextmanager
def skipped_without(what: str) -> Generator[None]:
    """Skip the test where a program is not installed that something official needs."""
    try:
        yield
    except MissingToolError as missing:
        pytest.skip(f"{what} cannot run: {missing}")


def java_run(version: str, *more: str) -> Any:
    """Return the parameters of a run: others, and the version of the Java client."""
    marks = [pytest.mark.old_java] if version == OLD_JAVA_VERSION else []
    return pytest.param(*more, version, marks=marks, id="-".join([*more, version]))


# The scope is that of the test: runs of one test follow each other, and both drivers live until the end.
every_java = pytest.mark.parametrize("java", [*map(java_run, JAVA_VERSIONS)], indirect=True, scope="function")
every_client = pytest.mark.parametrize(
    ("client", "java"),
    [*(java_run(version, "java") for version in JAVA_VERSIONS), pytest.param("go", DEFAULT_JAVA, id="go")],
    indirect=["java"],
    scope="function",
)
