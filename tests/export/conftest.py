"""Stores and logs that the tests of exporting read."""

import pathlib

import pytest
from javastores import STORES, JavaStores, Read, Row, unpack_store
from logbuilder import LogBuilder

from rocketlet.export.plan.read_plan import plan_stores
from rocketlet.export.plan.selection import Selection
from rocketlet.export.report.report import Report
from rocketlet.export.write.log_reader import LogReader, ReadOptions


@pytest.fixture(scope="session")
def java_stores(vectors: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> JavaStores:
    """Return the store directories that a Java broker wrote, by name."""
    folder = tmp_path_factory.mktemp("java-stores")
    return {name: unpack_store(vectors, name, folder) for name in STORES}


@pytest.fixture(scope="session")
def read() -> Read:
    """Return the function that reads stores."""

    def read_stores(*stores: pathlib.Path | str, options: ReadOptions | None = None) -> tuple[list[Row], Report]:
        reading = LogReader(plan_stores(map(str, stores)), options or ReadOptions(Selection(includes_system=True)))
        rows: list[Row] = []
        for batch in reading:
            batch.validate(full=True)
            rows += batch.to_pylist()
        return rows, reading.report

    return read_stores


@pytest.fixture
def filled(log: LogBuilder) -> LogBuilder:
    """Return a log of several files."""
    for number in range(90):
        log.add(b"body %d" % number * (number % 5 + 1), properties={"KEYS": f"k{number}"}, queue_id=number % 3)
    log.save()
    return log
