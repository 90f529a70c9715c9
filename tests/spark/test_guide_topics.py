"""The recipes of the guide to Spark run on any topic: empty, with bodies and nothing else, or with other bodies."""

import asyncio
import contextlib
import datetime
import gzip
import io
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession
from spark_guide import PAGE, blocks_of, fail_to_bill, localize, read_sections, send
from threaded_cluster import ThreadedCluster

from rocketlet.client import Message
from rocketlet.spark.options.filter_pushdown import PUSH_KEY

Make = Callable[[str, int], Message]

MESSAGES = 12
SECTIONS = read_sections()
PROGRAMS = {title: programs for title, text in SECTIONS.items() if (programs := blocks_of(text, "python"))}
DAILY, WITHOUT = "Daily Parquet, proved", "Without Spark"
TABLES = ("order_log", "payments")


def bare(topic: str, number: int) -> Message:
    """Return a message with a body and nothing else."""
    return Message(topic, b"%d" % number)


def foreign(topic: str, number: int) -> Message:
    """Return a message whose body is no text but compressed by its application, and again by the client if large."""
    body = gzip.compress(b"%d" % number) + bytes([0xFF, 0xFE, number]) * (5_000 * (number % 2))
    return Message(topic, body, tags="card", keys=["k"], properties={"region": "south"})


MAKERS: dict[str, Make | None] = {"empty": None, "bare": bare, "foreign": foreign}


class QueuePlace:
    """A broker with the topics of the guide, and a copy of its store."""

    def __init__(self, cluster: ThreadedCluster, folder: pathlib.Path, make: Make | None) -> None:
        self.folder = folder
        self.messages = 0 if make is None else MESSAGES
        self.nameserver = cluster.nameserver
        cluster.start_broker()
        for topic in ("orders", "payments", "invoices", "%DLQ%billing", "other"):
            cluster.create_topic(topic, 2)
        cluster.send("other", ["not asked for"])
        if make is not None:
            for topic in ("orders", "payments"):
                asyncio.run(send(self.nameserver, [make(topic, number) for number in range(MESSAGES)]))
            asyncio.run(fail_to_bill(self.nameserver, MESSAGES, lambda _: True))
        cluster.stop_broker()
        shutil.copytree(cluster.store_of("broker-a"), folder / "stores" / "broker-a")
        cluster.start_broker()
        (folder / "lake" / "reports").mkdir(parents=True)

    def localize(self, text: str) -> str:
        """Return code of the page for this place."""
        return localize(text, self.folder, self.nameserver, self.today)

    @property
    def today(self) -> str:
        """The day of the messages."""
        return datetime.datetime.now(datetime.UTC).date().isoformat()


@pytest.fixture(params=MAKERS, scope="module")
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueuePlace]:
    """Run a broker with topics of each kind."""
    with ThreadedCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield QueuePlace(cluster, tmp_path_factory.mktemp("place"), MAKERS[request.param])


def run_program(place: QueuePlace, spark: SparkSession, title: str) -> dict[str, Any]:
    """Run the program of a section in the session, and return the names that it made."""
    names: dict[str, Any] = {"spark": spark}
    with contextlib.redirect_stdout(io.StringIO()):
        for block in PROGRAMS[title]:
            text = place.localize(block).replace("spark.stop()", "")
            exec(compile(text, PAGE, "exec"), names)  # noqa: S102 # our own page
    return names


@pytest.mark.parametrize("title", [title for title in PROGRAMS if title != DAILY])
def test_recipe_runs_on_any_topic(title: str, place: QueuePlace, spark: SparkSession) -> None:
    """No message makes it fail, and the stream writes each of them."""
    try:
        run_program(place, spark, title)
        if title == "Into a table, as a stream":
            assert spark.table("order_log").count() == place.messages
    finally:
        spark.conf.unset(PUSH_KEY)
        for table in TABLES:
            spark.sql(f"DROP TABLE IF EXISTS {table}")


def test_daily_recipe_is_proved_on_any_topic(
    place: QueuePlace, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also on a day without messages, of which no file is written; the command compares what there is."""
    monkeypatch.setattr(sys, "argv", ["daily.py", place.today])
    run_program(place, spark, DAILY)
    run_commands(place, DAILY)


def test_commands_run_on_any_topic(place: QueuePlace) -> None:
    """Export, proof, dump and load."""
    run_commands(place, WITHOUT)


def run_commands(place: QueuePlace, title: str) -> None:
    """Run the command lines of a section."""
    path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
    for line in "".join(blocks_of(SECTIONS[title], "console")).splitlines():
        command = place.localize(line.removeprefix("$ "))
        done = subprocess.run(
            ["bash", "-c", command], env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
