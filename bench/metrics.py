"""Measure what a scrape each second costs a broker (`python bench/metrics.py`).

The same sends, 64 in flight, with a scrape each second and without, in turn; the broker's CPU time is divided by the
messages. A rate is given, so that both take the same time and see the same number of scrapes; between two bursts of a
tenth of a second the load sleeps. Claim: the scrapes add 2 % at most at 10,000 messages a second.

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
from pathlib import Path

import click
import uvloop

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

from clientframes import sends
from clientload import cpu_us
from interop.servers import RocketletServer, free_port
from window import Run, drive

_BODY = bytes(128)
_QUEUES = 4
_BURSTS_PER_SECOND = 10
_SCRAPES = 300
_SCRAPER = """
import sys, time, urllib.request
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
due = time.monotonic()
while True:
    opener.open(sys.argv[1]).read()
    print(flush=True)
    due += 1
    time.sleep(max(0, due - time.monotonic()))
"""


@click.command()
@click.option("--rounds", default=6, show_default=True, help="Pairs of rounds, one with scrapes and one without.")
@click.option("--seconds", default=10, show_default=True, help="Length of a round.")
@click.option("--rate", default=10_000, show_default=True, help="Messages in a second.")
@click.option("--topics", default=20, show_default=True, help="Topics that there are, with messages in each.")
def main(rounds: int, seconds: int, rate: int, topics: int) -> None:
    """Print the broker's CPU time of a message with scrapes and without."""
    port = free_port(1)
    settings = {"metricsExporterType": "PROM", "metricsPromExporterPort": str(port)}
    url = f"http://127.0.0.1:{port}/metrics"
    with tempfile.TemporaryDirectory() as directory, RocketletServer(Path(directory) / "store", settings) as server:
        for number in range(topics):
            uvloop.run(_send(server.broker, f"Bench{number}", rate // topics))
        uvloop.run(_send(server.broker, "Bench0", 2 * rate))
        pairs: list[tuple[float, float]] = []
        scrape_ms = _measure_scrapes(server, url)
        for _ in range(rounds):
            without = _measure(server, seconds, rate)
            pairs.append((without, _measure_scraped(server, seconds, rate, url)))
    without, scraped = (statistics.median(column) for column in zip(*pairs, strict=True))
    ratios = sorted(after / before - 1 for before, after in pairs)
    print(f"CPU time of a scrape: {scrape_ms:.1f} ms, {scrape_ms * 1000 / (rate * without):.1%} of what the sends take")
    print(f"CPU time of a message: {without:.2f} us without scrapes, {scraped:.2f} us with one each second")
    print(f"scrapes add {statistics.median(ratios):+.1%} (from {ratios[0]:+.1%} to {ratios[-1]:+.1%}); at most 2 %")


def _measure_scrapes(server: RocketletServer, url: str) -> float:
    """Return the broker's CPU time of a scrape, in milliseconds; nothing else is asked of it."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    before = cpu_us(server.pid)
    for _ in range(_SCRAPES):
        with opener.open(url) as answer:
            assert answer.read(), "the metrics are told"
    return (cpu_us(server.pid) - before) / _SCRAPES / 1000


def _measure_scraped(server: RocketletServer, seconds: int, rate: int, url: str) -> float:
    with subprocess.Popen([sys.executable, "-c", _SCRAPER, url], stdout=subprocess.PIPE) as scraper:
        assert scraper.stdout is not None, "it is a pipe"
        scraper.stdout.readline()  # of the first scrape; the start of the process is not measured
        try:
            return _measure(server, seconds, rate)
        finally:
            scraper.terminate()


def _measure(server: RocketletServer, seconds: int, rate: int) -> float:
    before = cpu_us(server.pid)
    uvloop.run(_send_evenly(server.broker, seconds, rate))
    return (cpu_us(server.pid) - before) / (seconds * rate)


async def _send_evenly(broker: str, seconds: int, rate: int) -> None:
    due = time.monotonic()
    for _ in range(seconds * _BURSTS_PER_SECOND):
        await _send(broker, "Bench0", rate // _BURSTS_PER_SECOND)
        due += 1 / _BURSTS_PER_SECOND
        await asyncio.sleep(max(0, due - time.monotonic()))


async def _send(broker: str, topic: str, count: int) -> None:
    host, port = broker.rsplit(":", 1)
    frames = sends(topic, _QUEUES, _BODY)
    await drive(host, int(port), Run(frames, count, 64))


if __name__ == "__main__":
    main()
