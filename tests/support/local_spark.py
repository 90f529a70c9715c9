"""One Spark session for all tests that need one."""

import os
import pathlib
import select
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """Start Spark with two local threads; afterwards its Java process is gone."""
    folder = tmp_path_factory.mktemp("spark")
    if not shutil.which("java") and "JAVA_HOME" not in os.environ:
        pytest.skip("Spark needs Java 17")
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from rocketlet.spark import register

    settings: dict[str, bool | float | int | str | None] = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.extraJavaOptions": "-XX:-UsePerfData -XX:TieredStopAtLevel=1",
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        session = SparkSession.builder.master("local[2]").appName("rocketlet tests").config(map=settings).getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        register(session)
        yield session
        context = cast("Any", SparkContext)  # how to end Java is not in the public interface
        workers = watch_children(context._gateway.proc.pid)
        session.stop()
        context._gateway.shutdown()
        context._gateway.proc.stdin.close()
        context._gateway.proc.wait(30)
        context._gateway = context._jvm = None
        for worker in workers:
            select.select([worker], [], [], 30)
            os.close(worker)


def watch_children(parent: int) -> list[int]:
    """Return a descriptor for each process that a process has started; it becomes readable when that ends."""
    watched: list[int] = []
    for path in pathlib.Path("/proc").glob("[0-9]*/stat") if hasattr(os, "pidfd_open") else ():
        with suppress(FileNotFoundError, ProcessLookupError):  # it ended while we looked
            if int(path.read_text().rpartition(")")[2].split()[1]) == parent:
                watched.append(os.pidfd_open(int(path.parent.name)))
    return watched
