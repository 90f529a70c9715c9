"""A broker that is killed while delayed and timer messages wait loses none, and delivers none twice."""

import asyncio
import pathlib
import random

import pytest
from durability_page import Trials
from interop.servers import RocketletServer
from interop.traffic import SMALL_FILES
from killing.timed import SETTINGS, TimedBook, send_until_killed, wait_for_the_rest

SEED = "avocet"
MOST_ANSWERS = 500


@pytest.mark.durability
@pytest.mark.feature("L6", "L8", "H6")
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@pytest.mark.timeout(1800, func_only=True)
def test_timer_messages_survive_every_kill(flush: str, trials: Trials, tmp_path: pathlib.Path) -> None:
    """Each that was acknowledged is delivered once, whenever the broker was killed, and none that was recalled."""
    cycles, book, chance = trials.rounds(3, 40), TimedBook(), random.Random(f"{SEED} {flush}")
    settings = {**SMALL_FILES, **SETTINGS, "flushDiskType": flush}
    server: RocketletServer | None = None
    for _ in range(cycles):
        server = RocketletServer(tmp_path / "store", settings, server)
        asyncio.run(send_until_killed(server.broker, book, chance, chance.randrange(1, MOST_ANSWERS), server.kill))
    with RocketletServer(tmp_path / "store", settings, server) as server:
        delivered = asyncio.run(wait_for_the_rest(server.broker))
    faults = book.faults(delivered)
    trials.add_kills(f"{flush}, timer messages", cycles, len(book.sent), len(book.lost(delivered)), faults, SEED)
    assert faults == []
    assert len(book.sent) > 20 * cycles
    assert book.recalled
