"""Measure what a scrape each second costs a broker (`python bench/metrics.py`).

The same sends, 64 in flight, with a scrape each second and without, in turn; the broker's CPU time is divided by the
messages. A rate is given, so that both take the same time and see the same number of scrapes; between two bursts of a
tenth of a second the load sleeps. Claim: with 20 topics the scrapes add 2 % at most at 10,000 messages a second.

With `--topics 1000 --groups 200` there are 1,000 topics of 8 queues, and groups that are behind in ten of them each;
such a scrape tells 27,000 values, and takes less than half of the CPU time that it takes where nothing is kept from the
scrape before. Claim: a broker at full speed, which has one core, spends 2 % of it at most on such scrapes. It is done a
little at a time, so that messages do not wait for it: how long single sends take while scrapes follow each other, and
without, is printed as well.

The scraper is a process of its own. Broker and load share the cores, so look at the spread as well: it is that of the
ratios of neighbouring rounds. The CPU time of a scrape alone, measured before, is the steadier figure.
"""

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path

import click
import uvloop

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

from clientframes import sends
from interop.servers import RocketletServer, free_port
from manytopics import QUEUES, fill
from processes import cpu_us
from window import Run, drive

_BODY = bytes(128)
_TOPIC = "Topic0"
_BURSTS_PER_SECOND = 10
_SINGLE_SENDS = 2_000
_SCRAPER = """
import sys, time, urllib.request
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
due = time.monotonic()
while True:
    opener.open(sys.argv[1]).read()
    print(flush=True)
    due += float(sys.argv[2])
    time.sleep(max(0, due - time.monotonic()))
"""


@click.command()
@click.option("--rounds", default=6, show_default=True, help="Pairs of rounds, one with scrapes and one without.")
@click.option("--seconds", default=10, show_default=True, help="Length of a round.")
@click.option("--rate", default=10_000, show_default=True, help="Messages in a second.")
@click.option("--topics", default=20, show_default=True, help="Topics of 8 queues, with messages in each.")
@click.option("--groups", default=0, show_default=True, help="Groups that are behind in ten topics each.")
@click.option("--scrapes", default=100, show_default=True, help="Scrapes to measure one by.")
def main(rounds: int, seconds: int, rate: int, topics: int, groups: int, scrapes: int) -> None:  # options
    """Print the broker's CPU time of a message with scrapes and without."""
    port = free_port(1)
    settings = {"metricsExporterType": "PROM", "metricsPromExporterPort": str(port)}
    url = f"http://127.0.0.1:{port}/metrics"
    with ExitStack() as stack:
        store = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "store"
        fill(store, topics, groups)
        server = stack.enter_context(RocketletServer(store, settings))
        for number in range(topics):
            uvloop.run(_send(server.broker, f"Topic{number}", max(2 * QUEUES, rate // topics)))
        uvloop.run(_send(server.broker, _TOPIC, 2 * rate))
        pairs: list[tuple[float, float]] = []
        scrape_ms = _measure_scrapes(server, url, scrapes)
        alone_ms, beside_ms = _measure_waits(server), _measure_waits_beside(server, url)
        for _ in range(rounds):
            without = _measure(server, seconds, rate)
            pairs.append((without, _measure_scraped(server, seconds, rate, url)))
    without, scraped = (statistics.median(column) for column in zip(*pairs, strict=True))
    ratios = sorted(after / before - 1 for before, after in pairs)
    print(f"CPU time of a scrape: {scrape_ms:.1f} ms, {scrape_ms * 1000 / (rate * without):.1%} of what the sends take")
    print(f"at full speed, when the broker takes all of its core: {scrape_ms / 1000:.1%}; at most 2 %")
    print(f"CPU time of a message: {without:.2f} us without scrapes, {scraped:.2f} us with one each second")
    print(f"longest 1 % of single sends: {alone_ms:.1f} ms, {beside_ms:.1f} ms while scrapes follow each other")
    print(f"scrapes add {statistics.median(ratios):+.1%} (from {ratios[0]:+.1%} to {ratios[-1]:+.1%}); at most 2 %")


def _measure_scrapes(server: RocketletServer, url: str, scrapes: int) -> float:
    """Return the broker's CPU time of a scrape, in milliseconds; nothing else is asked of it."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    before = cpu_us(server.pid)
    for _ in range(scrapes):
        with opener.open(url) as answer:
            assert answer.read(), "the metrics are told"
    return (cpu_us(server.pid) - before) / scrapes / 1000


def _measure_scraped(server: RocketletServer, seconds: int, rate: int, url: str) -> float:
    with _scraping(url, "1"):
        return _measure(server, seconds, rate)


def _measure_waits_beside(server: RocketletServer, url: str) -> float:
    with _scraping(url, "0"):
        return _measure_waits(server)


@contextmanager
def _scraping(url: str, pause_s: str) -> Generator[None]:
    """Have another process scrape; the start of it is over."""
    with subprocess.Popen([sys.executable, "-c", _SCRAPER, url, pause_s], stdout=subprocess.PIPE) as scraper:
        assert scraper.stdout is not None, "it is a pipe"
        scraper.stdout.readline()
        try:
            yield
        finally:
            scraper.terminate()


def _measure_waits(server: RocketletServer) -> float:
    """Return how long the slowest hundredth of sends takes at least that follow each other, in milliseconds."""
    return uvloop.run(_send_singly(server.broker))


async def _send_singly(broker: str) -> float:
    host, port = broker.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    waits: list[float] = []
    for frame in islice(sends(_TOPIC, QUEUES, _BODY), _SINGLE_SENDS):
        begun = time.perf_counter()
        writer.write(frame)
        await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
        waits.append(time.perf_counter() - begun)
    writer.close()
    return 1000 * statistics.quantiles(waits, n=100)[-1]


def _measure(server: RocketletServer, seconds: int, rate: int) -> float:
    before = cpu_us(server.pid)
    uvloop.run(_send_evenly(server.broker, seconds, rate))
    return (cpu_us(server.pid) - before) / (seconds * rate)


async def _send_evenly(broker: str, seconds: int, rate: int) -> None:
    due = time.monotonic()
    for _ in range(seconds * _BURSTS_PER_SECOND):
        await _send(broker, _TOPIC, rate // _BURSTS_PER_SECOND)
        due += 1 / _BURSTS_PER_SECOND
        await asyncio.sleep(max(0, due - time.monotonic()))


async def _send(broker: str, topic: str, count: int) -> None:
    host, port = broker.rsplit(":", 1)
    frames = sends(topic, QUEUES, _BODY)
    await drive(host, int(port), Run(frames, count, 64))


if __name__ == "__main__":
    main()
