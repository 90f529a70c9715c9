"""Measure the pages of the web console over many topics and groups (`python bench/console.py`).

Each page is loaded in turn with `mqadmin topicList`, which runs against the same broker in a Java process that is warm;
both list all topics. Medians are printed, and the ratio to mqadmin: below 1 the page is the faster one. Claim: no page
takes longer.

Many runs of mqadmin take three seconds more: when Java's client closes, a thread of it waits so long for the next event
(``NettyEventExecutor``), or not at all if it meets the last one. Those that wait do not count.
"""

import asyncio
import pathlib
import statistics
import sys
import tempfile
import time
from typing import Final

import click
import httpx

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "tests" / "support"))

from interop.parts import mqadmin
from interop.servers import RocketletServer
from interop.versions import JavaDriver
from manytopics import fill

from rocketlet.console.server import ConsoleConfig, ConsoleServer

WARM_UP: Final = 5
_CLOSING_S: Final = 3
_GROUP: Final = "Group0"
_TOPIC: Final = "Topic0"
_PAGES: Final = {
    "topics": "/topics",
    "last page of the topics": "/topics?page=999",
    "a topic": f"/topics/{_TOPIC}",
    "groups": "/groups",
    "a group": f"/groups/{_GROUP}",
    "brokers": "/brokers",
}


@click.command()
@click.option("--topics", default=1_000, show_default=True, help="Topics of 8 queues.")
@click.option("--groups", default=200, show_default=True, help="Groups, each with offsets of ten topics.")
@click.option("--rounds", default=15, show_default=True, help="Loads of each page; the median is printed.")
def main(topics: int, groups: int, rounds: int) -> None:
    """Print how long each page takes beside mqadmin topicList."""
    with tempfile.TemporaryDirectory() as directory:
        store = pathlib.Path(directory) / "store"
        fill(store, topics, groups)
        with RocketletServer(store, {}) as server, JavaDriver() as java:
            asyncio.run(measure(server.namesrv, java, rounds))


async def measure(nameserver: str, java: JavaDriver, rounds: int) -> None:
    """Load pages and run mqadmin in turn, and print a row for each page."""
    config = ConsoleConfig()
    print(f"{'':<26}{'page, ms':>12}{'mqadmin, ms':>14}{'ratio':>8}")
    async with ConsoleServer(nameserver, config) as console, httpx.AsyncClient(trust_env=False, timeout=60) as client:
        for name, path in _PAGES.items():
            pages: list[float] = []
            lists: list[float] = []
            for _ in range(WARM_UP + rounds):
                begun = time.perf_counter()
                answer = await client.get(console.url.rstrip("/") + path)
                pages.append(time.perf_counter() - begun)
                answer.raise_for_status()
                begun = time.perf_counter()
                listed = await asyncio.to_thread(mqadmin, java, "topicList", "-n", nameserver)
                lists.append(time.perf_counter() - begun)
                assert _TOPIC in listed
            lists = [each for each in lists[WARM_UP:] if each < _CLOSING_S]
            page, java_list = (1000 * statistics.median(each) for each in (pages[WARM_UP:], lists))
            print(f"{name:<26}{page:>12.1f}{java_list:>14.1f}{page / java_list:>8.2f}")


if __name__ == "__main__":
    main()
