"""One Spark session for all tests that need one."""

import os
import shutil
import sys
from collections.abc import Iterator
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
        session.stop()
        context._gateway.shutdown()
        context._gateway.proc.stdin.close()
        context._gateway.proc.wait(30)
        context._gateway = context._jvm = None
