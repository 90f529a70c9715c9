"""How often the broker's timed jobs run."""

import asyncio
import pathlib
from concurrent.futures import ThreadPoolExecutor

import pytest
from raw_calls import open_caller, until
from stores import StoreDirectory

from rocketlet.broker.jobs import FlushJob
from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.testing.manual_clock import ManualClock


@pytest.mark.parametrize(
    ("log_ms", "queue_ms", "pause_ms"), [(500, 1_000, 500), (1_000, 700, 700), (5_000, 9_000, 1_000), (0, 1_000, 1)]
)
async def test_flush_is_as_often_as_the_settings_say(
    log_ms: int, queue_ms: int, pause_ms: int, tmp_path: pathlib.Path
) -> None:
    """The shorter of both intervals counts, a second at most, for the checkpoint, and a millisecond at least."""
    directory = StoreDirectory(tmp_path / "store", flush_log_interval_ms=log_ms, flush_queue_interval_ms=queue_ms)
    store = await asyncio.to_thread(directory.open)
    with ThreadPoolExecutor(1) as worker:
        job = FlushJob(store, worker, None)
        assert (job.period_ms, await job.run()) == (pause_ms, pause_ms)
    await asyncio.to_thread(directory.close_all)


async def test_silent_clients_are_looked_for_every_ten_seconds(settings: dict[str, str], clock: ManualClock) -> None:
    """One that has said nothing for its time is closed with the next look, and not before it."""
    settings |= {"channelExpiredTimeout": "1000", "serverChannelMaxIdleTimeSeconds": "1000"}
    async with Broker(BrokerConfig.from_java(settings), clock) as broker, open_caller(broker.address) as caller:
        await caller.heartbeat("one", "g", {"T": "*"})
        await clock.elapse(9_999)
        assert len(broker.clients) == 1
        await clock.elapse(1)
        await until(lambda: not broker.clients)
