"""Servers and network break again and again under senders and readers of our client.

An ordinary run does five rounds, each with another fault. ``make chaos`` does a hundred, with seeds that chance chooses
and that the names of the tests tell, on plain asyncio and on uvloop in turn. ``ROCKETLET_CHAOS_SEED=123 pytest
tests/chaos`` does those of one seed again.
"""

import asyncio
import logging
import os
import pathlib
import random

import pytest
import uvloop
from chaos.servers import ChaosServers
from chaos.traffic import running_traffic

ROUNDS_OF_A_TEST = 5
ROUNDS = int(os.environ.get("ROCKETLET_CHAOS_ROUNDS", ROUNDS_OF_A_TEST))
USUAL_SEED = 1 if ROUNDS == ROUNDS_OF_A_TEST else random.randrange(1_000_000)
FIRST_SEED = int(os.environ.get("ROCKETLET_CHAOS_SEED", USUAL_SEED))
SEEDS = range(FIRST_SEED, FIRST_SEED + -(-ROUNDS // ROUNDS_OF_A_TEST))
log = logging.getLogger(__name__)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_acknowledged_is_lost_and_nothing_hangs(seed: int, tmp_path: pathlib.Path) -> None:
    """After each fault sends succeed again and all groups receive all that was acknowledged; no call hangs."""
    loop = asyncio.SelectorEventLoop if seed % 2 else uvloop.new_event_loop
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(_break_and_look(seed, tmp_path))


async def _break_and_look(seed: int, store: pathlib.Path) -> None:
    choose = random.Random(seed)
    async with ChaosServers(store, choose) as servers, running_traffic(servers.namesrv) as seen:
        for fault in choose.sample(list(servers.faults), ROUNDS_OF_A_TEST):
            log.warning("seed %d: %s, %r", seed, fault, seen)
            await seen.outlast(servers.faults[fault])
