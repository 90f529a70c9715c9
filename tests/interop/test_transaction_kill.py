"""A broker that is killed while transactions run loses none, and delivers none twice."""

import asyncio
import pathlib
import random

import pytest
from durability_page import Trials
from interop.servers import RocketletServer
from interop.traffic import SMALL_FILES
from killing.deciders import SETTINGS, Book, decide_the_rest, decide_until_killed

SEED = "plover"
MOST_ANSWERS = 400


@pytest.mark.durability
@pytest.mark.feature("T10", "H6")
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@pytest.mark.timeout(1800, func_only=True)
def test_transactions_survive_every_kill(flush: str, trials: Trials, tmp_path: pathlib.Path) -> None:
    """Each that was to be committed is delivered once, whether its commit was answered or not; no other is."""
    cycles, book, chance = trials.rounds(3, 40), Book(), random.Random(f"{SEED} {flush}")
    settings = {**SMALL_FILES, **SETTINGS, "flushDiskType": flush}
    server: RocketletServer | None = None
    for _ in range(cycles):
        server = RocketletServer(tmp_path / "store", settings, server)
        count = chance.randrange(1, MOST_ANSWERS)
        asyncio.run(decide_until_killed(server.broker, book, chance, count, server.kill))
    with RocketletServer(tmp_path / "store", settings, server) as server:
        delivered = asyncio.run(decide_the_rest(server.broker, book))
    faults = book.faults(delivered)
    trials.add_kills(f"{flush}, transactions", cycles, len(book.opened), len(book.lost(delivered)), faults, SEED)
    assert faults == []
    assert len(book.opened) > 20 * cycles
    assert book.asked > cycles
