"""Which worker of pytest-xdist runs which tests, with ``--dist=loadscope``.

One worker runs all of ``tests/interop`` and one all of ``tests/spark``, so a run has one process with the Java client,
one with the Go client and one Spark; and one runs our client's tests over the official broker, which starts once for
them. The other tests go by files to whoever is free.
"""

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

SHARED = ("tests/interop/", "tests/spark/")
OVER_JAVA = ("tests/client/", "-java]")


def unit_of(nodeid: str) -> str:
    """Return what has to run on the same worker as a test: a folder, or its file.

    >>> unit_of("tests/spark/sink/test_sink_writer.py::test_rows[1]"), unit_of("tests/store/test_rot.py::test_rot[2]")
    ('tests/spark/', 'tests/store/test_rot.py')
    >>> unit_of("tests/client/test_retries.py::test_chosen_level_is_the_delay[asyncio-java]")
    'tests/client/-java]'
    """
    if nodeid.startswith(OVER_JAVA[0]) and nodeid.endswith(OVER_JAVA[1]):
        return "".join(OVER_JAVA)
    return next((folder for folder in SHARED if nodeid.startswith(folder)), nodeid.partition("::")[0])


class SharedProcesses(LoadScopeScheduling):
    """Hands out the units."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> SharedProcesses | None:
    """Take the place of the scheduler by modules."""
    return SharedProcesses(config, log) if config.getoption("dist") == "loadscope" else None
