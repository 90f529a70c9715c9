"""One Spark session for all tests that need one."""

import os
import pathlib
import select
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def start_spark(folder: pathlib.Path, cores: int, settings: Mapping[str, str]) -> "SparkSession":
    """Start Spark in this process on the loopback address alone, with our data source; ``folder`` is its scratch."""
    from pyspark.sql import SparkSession

    from rocketlet.spark import register

    all_settings: dict[str, bool | float | int | str | None] = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        **settings,
    }
    builder = SparkSession.builder.master(f"local[{cores}]").appName("rocketlet")
    session = builder.config(map=all_settings).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    register(session)
    return session


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """Start Spark with two local threads; afterwards its Java process is gone."""
    folder = tmp_path_factory.mktemp("spark")
    if not shutil.which("java") and "JAVA_HOME" not in os.environ:
        pytest.skip("Spark needs Java 17")
    from pyspark import SparkContext

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        settings = {
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.extraJavaOptions": "-XX:-UsePerfData -XX:TieredStopAtLevel=1",
        }
        session = start_spark(folder, 2, settings)
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


def cpu_ticks_of_family(parent: int) -> dict[int, tuple[int, ...]]:
    """Return what a process and its descendants have used: user, system, and both of children that they saw end."""
    parents: dict[int, int] = {}
    ticks: dict[int, tuple[int, ...]] = {}
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it ended while we looked
            fields = path.read_text().rpartition(")")[2].split()
            parents[int(path.parent.name)] = int(fields[1])
            ticks[int(path.parent.name)] = tuple(map(int, fields[11:15]))
    family = {parent}
    while more := {pid for pid, above in parents.items() if above in family} - family:
        family |= more
    return {pid: ticks[pid] for pid in family}
