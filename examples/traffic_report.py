"""Draws how many messages a minute came into topics, and how far consumer groups are behind, as a PNG.

    python examples/traffic_report.py --nameserver 127.0.0.1:9876 --topic orders --group billing --to traffic.png

1. count   messages by topic and minute, with Spark; two columns are read, bodies are not looked at
2. ask     the brokers how far each group is in each topic
3. draw    both below each other, with matplotlib (`pip install 'rocketlet[spark,plot]'`)
"""

import asyncio
import datetime
import pathlib
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import NamedTuple, cast

import click
from matplotlib.dates import ConciseDateFormatter
from matplotlib.figure import Figure
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from spark_session import spark_session

from rocketlet.client import Admin, GroupProgress

MINUTE = datetime.timedelta(minutes=1)


class Rate(NamedTuple):
    """How many messages were stored in each minute, gaps as zeros."""

    minutes: list[datetime.datetime]
    counts: list[int]


class Lag(NamedTuple):
    """How many messages of a topic a group has to do, by broker and queue."""

    group: str
    topic: str
    queues: dict[str, int]


@click.command
@click.option("--nameserver", envvar="NAMESRV_ADDR", required=True, help="Name servers, HOST:PORT;HOST:PORT.")
@click.option("--topic", "topics", multiple=True, required=True, help="Topic to look at; repeatable.")
@click.option("--group", "groups", multiple=True, help="Consumer group to look at; repeatable.")
@click.option("--to", "target", type=click.Path(path_type=pathlib.Path), default="traffic.png", show_default=True)
def report(nameserver: str, topics: tuple[str, ...], groups: tuple[str, ...], target: pathlib.Path) -> None:
    """Count messages per minute and the lag of groups, print both, and draw them."""
    with spark_session() as spark:
        rates = count_by_minute(spark, nameserver, topics)
    lags = asyncio.run(ask_for_lags(nameserver, groups, topics))
    for topic, rate in rates.items():
        print(f"{topic}: {sum(rate.counts)} messages, {max(rate.counts)} in the busiest of {len(rate.counts)} minutes")
    for lag in lags:
        print(f"{lag.group} has {sum(lag.queues.values())} messages of {lag.topic} to do")
    draw(rates, lags).savefig(target)  # pyright: ignore[reportUnknownMemberType] # matplotlib's types are partial
    print(f"{target} shows it")


def count_by_minute(spark: SparkSession, nameserver: str, topics: Iterable[str]) -> dict[str, Rate]:
    """Return the rate of each topic that has messages."""
    options = {"nameserver": nameserver, "subscribe": ",".join(topics), "columns": "topic,storeTimestamp"}
    messages = spark.read.format("rocketmq").options(**options).load()
    minute = sf.unix_timestamp(sf.date_trunc("minute", "storeTimestamp")).alias("minute")
    rows = cast("list[tuple[str, int, int]]", messages.groupBy("topic", minute).count().collect())
    counts: dict[str, dict[datetime.datetime, int]] = {}
    for topic, epoch, count in rows:
        counts.setdefault(topic, {})[datetime.datetime.fromtimestamp(epoch, datetime.UTC)] = count
    return {topic: fill_gaps(counts[topic]) for topic in sorted(counts)}


def fill_gaps(counts: Mapping[datetime.datetime, int]) -> Rate:
    """Return a rate in which every minute from the first to the last has its count."""
    first, last = min(counts), max(counts)
    minutes = [first + number * MINUTE for number in range((last - first) // MINUTE + 1)]
    return Rate(minutes, [counts.get(minute, 0) for minute in minutes])


async def ask_for_lags(nameserver: str, groups: Iterable[str], topics: Iterable[str]) -> list[Lag]:
    """Return the lag of each group in each topic."""
    pairs = [(group, topic) for group in groups for topic in topics]
    async with Admin(nameserver) as admin:
        return [Lag(group, topic, lags_by_queue(await admin.progress(group, topic))) for group, topic in pairs]


def lags_by_queue(progress: GroupProgress) -> dict[str, int]:
    """Return the lag of each queue, under the name of its broker and its number."""
    return {f"{each.queue.broker_name} {each.queue.queue_id}": each.lag for each in progress.queues}


def draw(rates: Mapping[str, Rate], lags: Iterable[Lag]) -> Figure:
    """Return the picture: rates over time, and below them a bar for each group and topic, a piece of it for a queue."""
    figure = Figure(figsize=(10, 6), layout="constrained")
    above, below = figure.subplots(2, height_ratios=(2, 1))
    for topic, rate in rates.items():
        above.plot(rate.minutes, rate.counts, marker=".", label=topic)
    if rates:
        above.xaxis.set_major_formatter(ConciseDateFormatter(above.xaxis.get_major_locator()))
        above.legend()
    above.set(title="messages per minute (UTC)", ylim=(0, None))
    for lag in lags:
        ends = list(accumulate(lag.queues.values()))
        below.barh(f"{lag.group}: {lag.topic}", list(lag.queues.values()), left=[0, *ends[:-1]], edgecolor="white")
    below.set(title="messages to do", xlim=(0, None))
    return figure


if __name__ == "__main__":
    report()
