import logging
import os
import pathlib
import shutil
import subprocess
import sys
from typing import Any

import pytest
from javastores import JavaStores

from rocketlet.spark.source import choose_python

PROGRAM = """
import sys
from pyspark.sql import SparkSession
from rocketlet.spark import register

spark = SparkSession.builder.master("local[1]").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
register(spark)
print(spark.read.format("rocketmq").options(columns="topic", topics="PlainTopic").load(sys.argv[1]).count())
"""


class Context:
    """What is asked of a Spark context."""

    def __init__(self, python: str, master: str, **settings: str) -> None:
        self.pythonExec = python
        self.master = master
        self._settings = settings
        self._python_includes: list[str] = []

    def getConf(self) -> dict[str, str]:  # noqa: N802 # Spark's name
        """Return the settings."""
        return self._settings


class Session:
    """A session with a context."""

    def __init__(self, context: Context) -> None:
        self._sc = context


def choose(context: Context) -> Context:
    """Choose for a session with this context."""
    session: Any = Session(context)
    choose_python(session)
    return context


@pytest.fixture
def bare(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Put a ``python3`` without the package on the path."""
    for name in ("PYSPARK_PYTHON", "PYTHONPATH"):  # by which it would find the package
        monkeypatch.delenv(name, raising=False)
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return str(python)


def test_local_workers_run_this_python(bare: str, caplog: pytest.LogCaptureFixture) -> None:
    """Where nobody has chosen another; one that is this very environment is left alone."""
    assert choose(Context("python3", "local[2]")).pythonExec == sys.executable
    assert choose(Context(sys.executable, "yarn")).pythonExec == sys.executable
    assert not caplog.messages


@pytest.mark.parametrize("is_chosen", [True, False])
def test_workers_that_will_fail_are_told(bare: str, caplog: pytest.LogCaptureFixture, *, is_chosen: bool) -> None:
    """Of nodes, and of a Python that was chosen, one sentence says what is missing and how to mend it."""
    settings = {"spark.pyspark.python": "python3"} if is_chosen else {}
    with caplog.at_level(logging.WARNING):
        context = choose(Context("python3", "local" if is_chosen else "spark://node:7077", **settings))
    assert context.pythonExec == "python3"
    (sentence,) = caplog.messages
    assert sentence.startswith(f"Spark's workers run {bare}, which has no rocketlet: set PYSPARK_PYTHON to the Python")


@pytest.mark.skipif(not shutil.which("java") and "JAVA_HOME" not in os.environ, reason="Spark needs Java 17")
def test_session_outside_of_its_environment_reads(bare: str, java_stores: JavaStores) -> None:
    """A program that the Python of an environment runs, without the environment's variables, reads a store."""
    assert bare
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(java_stores["plain"])],
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split()[-1] == "91"
