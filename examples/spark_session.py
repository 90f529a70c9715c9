"""A small Spark on this machine, which is gone when its block ends."""

import os
import pathlib
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

from rocketlet.spark import register

QUIET_LOG = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %p %c{1}: %m%n%ex
"""


@contextmanager
def spark_session() -> Generator[SparkSession]:
    """Run Spark in this process's Java child, with its files in a temporary directory."""
    os.environ.update(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
    with tempfile.TemporaryDirectory(prefix="rocketlet-spark-") as folder:
        log_file = pathlib.Path(folder) / "log4j2.properties"
        log_file.write_text(QUIET_LOG)
        settings: dict[str, Any] = {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": str(sys.stdout.isatty()).lower(),
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.local.dir": folder,
            "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{log_file} -XX:TieredStopAtLevel=1",
            "spark.sql.warehouse.dir": f"{folder}/warehouse",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "2",
        }
        spark = SparkSession.builder.master("local[*]").appName("rocketlet demo").config(map=settings).getOrCreate()
        register(spark)
        try:
            yield spark
        finally:
            _stop(spark)


def _stop(spark: SparkSession) -> None:
    gateway: Any = getattr(SparkContext, "_gateway")  # noqa: B009 # pyspark has no public way to end its Java process
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()
