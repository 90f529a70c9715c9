"""The guide to Spark does what it says: each block is run, on a broker and its files, in one session."""

import contextlib
import datetime
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from spark_guide import (
    OLD_ORDERS,
    ORDERS,
    PAGE,
    Shop,
    SparkHome,
    blocks_of,
    is_broken,
    order,
    read_sections,
    zip_package,
)
from threaded_cluster import ThreadedCluster

from rocketlet.spark.options.filter_pushdown import PUSH_KEY

SECTIONS = read_sections()
DAILY, SUBMIT = "Daily Parquet, proved", "On a cluster of Spark"
IN_SESSION = [title for title, text in SECTIONS.items() if blocks_of(text, "python") and title != DAILY]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """Run a broker with orders, payments and dead letters, and keep a copy of its store from before the last orders."""
    with ThreadedCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield Shop(cluster, tmp_path_factory.mktemp("shop"))


class Shown:
    """What a section has left: the names that it made, and what it printed."""

    def __init__(self, title: str, shop: Shop, spark: SparkSession) -> None:
        self.spark = spark
        self.shop = shop
        self.names: dict[str, Any] = {"spark": spark}
        self.blocks = blocks_of(SECTIONS[title], "python")
        self.printed = self.run()

    def run(self) -> str:
        """Run the blocks in their order, and return what they print."""
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            for block in self.blocks:
                exec(compile(self.shop.localize(block), PAGE, "exec"), self.names)  # noqa: S102 # our own page
        return printed.getvalue()

    def frame(self, name: str) -> DataFrame:
        """Return a table that the section has made."""
        return self.names[name]


def check_session(shown: Shown) -> None:
    """The session is there, with the setting that it had."""
    assert shown.names["spark"] is shown.spark
    assert shown.spark.conf.get(PUSH_KEY) == "false"


def check_files(shown: Shown) -> None:
    """The table has what the files have, without retries and dead letters."""
    counts = {row.topic: row["count"] for row in shown.frame("messages").groupBy("topic").count().collect()}
    assert counts == {"orders": OLD_ORDERS, "payments": OLD_ORDERS // 2}
    assert shown.frame("paid").count() == len(range(1, OLD_ORDERS, 3))
    assert re.search(r"\|\s*order-\d+\|\s*(north|south)\|", shown.printed)
    assert re.search(r"\|\s*card\|\s*50\|", shown.printed)
    shown.spark.sql("DROP TABLE payments")


def check_cluster(shown: Shown) -> None:
    """The table has what the broker has."""
    assert shown.frame("orders").count() == ORDERS
    assert shown.printed.count("broker-a") == 4


def check_stream(shown: Shown) -> None:
    """Started again, the stream goes on where it ended."""
    try:
        assert shown.spark.table("order_log").count() == ORDERS
        shown.run()
        rows = shown.spark.table("order_log").select("id").collect()
        assert sorted(row.id for row in rows) == sorted(f"order-{number}" for number in range(ORDERS))
    finally:
        shown.spark.sql("DROP TABLE order_log")


def check_hybrid(shown: Shown) -> None:
    """Old orders come from the files, new ones from the broker, each once."""
    rows = shown.frame("history").select("keys", "brokerName").collect()
    assert Counter(row["keys"][0] for row in rows) == Counter(f"order-{number}" for number in range(ORDERS))
    assert {row.brokerName for row in rows} == {"broker-a"}


def check_sink(shown: Shown) -> None:
    """The broker has the rows, with a key of their own each."""
    found = {message.body: message for message in shown.shop.messages("invoices")}
    assert sorted(found) == [b"7", b"8"]
    seven, eight = found[b"7"], found[b"8"]
    assert (seven.tags, seven.keys, seven.properties["region"]) == ("paid", ("order-7",), "south")
    assert seven.properties["IDEMPOTENCE_KEY"] != eight.properties["IDEMPOTENCE_KEY"]


def check_dead_letters(shown: Shown) -> None:
    """What failed and was paid by card is in its topic a second time, everything else once."""
    payments = shown.shop.messages("payments")
    wanted = {message.keys[0] for message in payments if is_broken(message) and message.tags == "card"}
    assert shown.frame("dead").count() == OLD_ORDERS // 10
    assert len(wanted) == OLD_ORDERS // 20
    counts = Counter(message.keys[0] for message in payments)
    assert {key for key, count in counts.items() if count == 2} == wanted
    assert sum(counts.values()) == OLD_ORDERS // 2 + len(wanted)
    assert {json.loads(message.body)["id"] for message in payments} == set(range(0, OLD_ORDERS, 2))


def check_join(shown: Shown) -> None:
    """Every second order is not paid, and every other has waited for its payment."""
    unpaid = {row.id for row in shown.frame("open_orders").select("id").collect()}
    assert unpaid == set(range(1, OLD_ORDERS, 2))
    waits = {row.id: row["wait"] for row in shown.frame("waits").collect()}
    assert waits.keys() == set(range(0, OLD_ORDERS, 2))
    longest = max(waits.values())
    assert longest > datetime.timedelta(0)
    assert f"{OLD_ORDERS // 2} orders are not paid; the longest wait was {longest}" in shown.printed


def check_push_down(shown: Shown) -> None:
    """The report names what was pushed down, and no other record was looked at than those of queue and tag."""
    shown.spark.conf.unset(PUSH_KEY)
    for text in ("topic = orders", "queueId = 1", "queueOffset >= 20", "tags = paid"):
        assert f"pushed down: {text}" in shown.printed
    (counters,) = shown.names["report"].stores
    assert counters.rows == counters.records == len(late_orders(shown.shop)) > 0
    assert shown.names["report"].faults() == []


def late_orders(shop: Shop) -> list[int]:
    """Return the paid orders of queue 1 from offset 20 on that the files hold."""
    messages = [message for message in shop.messages("orders") if message.queue.queue_id == 1]
    chosen = [message for message in messages if message.tags == "paid" and message.queue_offset >= 20]
    return [number for message in chosen if (number := json.loads(message.body)["id"]) < OLD_ORDERS]


CHECKS: dict[str, Callable[[Shown], None]] = {
    "Spark": check_session,
    "From files": check_files,
    "From a cluster": check_cluster,
    "Into a table, as a stream": check_stream,
    "History and present as one": check_hybrid,
    "Messages from a table": check_sink,
    "Dead letters, sent again": check_dead_letters,
    "Two topics, joined": check_join,
    "What is not read": check_push_down,
}


@pytest.mark.parametrize("title", IN_SESSION)
def test_section_does_what_it_says(title: str, shop: Shop, spark: SparkSession) -> None:
    """The code of a section of the guide runs as it stands, and what comes of it is what the text says."""
    CHECKS[title](Shown(title, shop, spark))


def test_daily_parquet_on_a_cluster_is_proved(shop: Shop, tmp_path: pathlib.Path) -> None:
    """Sent to nodes without rocketlet as a zip, the daily job writes each message once, and the command says so."""
    (program,) = blocks_of(SECTIONS[DAILY], "python")
    (tmp_path / "daily.py").write_text(shop.localize(program))
    zip_package(tmp_path / "rocketlet.zip")
    (submit,) = [line for line in commands(SUBMIT) if "local-cluster" in line]
    home = SparkHome(tmp_path / "spark")
    run(shop.localize(submit), tmp_path, home)

    (verify,) = commands(DAILY)
    printed = run(shop.localize(verify), tmp_path, home)
    expected = OLD_ORDERS + OLD_ORDERS // 2
    assert f"verified: {expected} rows of 8 queues in " in printed
    lake = shop.folder / "lake" / "messages"
    assert sum(pq.read_metadata(path).num_rows for path in lake.rglob("*.parquet")) == expected
    assert {path.name for path in lake.iterdir() if path.is_dir()} == {"topic=orders", "topic=payments"}

    once = next((lake / "topic=payments").rglob("*.parquet"))
    shutil.copy(once, once.with_name("twice.parquet"))
    assert "difference: payments queue " in run(shop.localize(verify), tmp_path, home, code=1)


def test_commands_work_without_spark(shop: Shop, tmp_path: pathlib.Path) -> None:
    """Messages are exported, proved, dumped, and loaded into another topic, each once."""
    (shop.folder / "lake" / "reports").mkdir(parents=True, exist_ok=True)
    printed = [run(shop.localize(line), tmp_path) for line in commands("Without Spark")]
    assert "proof holds" in printed[0]
    assert printed[1].startswith(f"verified: {OLD_ORDERS} rows of 4 queues in 1 files")
    assert f"{OLD_ORDERS} messages stored" in printed[3]
    loaded = Counter(message.body for message in shop.messages("orders-again"))
    assert loaded == Counter(message.body for message in map(order, range(OLD_ORDERS)))


def commands(title: str) -> list[str]:
    """Return the command lines of a section."""
    lines = "".join(blocks_of(SECTIONS[title], "console")).splitlines()
    return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]


def run(command: str, folder: pathlib.Path, home: SparkHome | None = None, code: int = 0) -> str:
    """Run a command line as a shell does, and return what it printed."""
    programs = {"PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"}
    environment = {**os.environ, **programs, **(home.variables() if home is not None else {})}
    ended = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == code, ended.stdout + ended.stderr
    return ended.stdout
