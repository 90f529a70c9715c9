"""Our client between the broken network and the official broker; only ``make chaos`` runs it."""

import asyncio
import logging
import pathlib
import random

import pytest
from chaos.servers import Lasting, Network
from chaos.traffic import running_traffic
from interop.servers import JavaServer
from interop.versions import skipped_without

ROUNDS = 5
log = logging.getLogger(__name__)


@pytest.mark.timeout(600)
def test_nothing_acknowledged_is_lost_and_nothing_hangs(tmp_path: pathlib.Path) -> None:
    """Connections break and the process is stopped for a while; then all is as on our own broker."""
    seed = random.randrange(1_000_000)
    log.warning("seed %d", seed)
    with skipped_without("the official broker"):
        server = JavaServer(tmp_path / "store", {})
    with server:
        asyncio.run(_break_network(server, Lasting(random.Random(seed))))


async def _break_network(server: JavaServer, lasting: Lasting) -> None:
    async with Network(server.namesrv, server.broker, lasting) as network, running_traffic(network.namesrv) as seen:
        for _ in range(ROUNDS):
            for fault in (network.drop, network.silence, lambda: lasting.pause(server.driver.send_signal)):
                log.warning("%r", seen)
                await seen.outlast(fault)
