"""A link between a SYNC_MASTER and its slave goes bad under load, and the master is lost then.

    paused      the slave's process is stopped for a while (SIGSTOP)
    slow        few bytes pass at a time, and late
    half open   nothing more arrives over the connection, and neither end is told
    flapping    each connection is cut after some bytes, wherever that is

    a round     load -> the link goes bad, each send is answered -> it heals, both logs become equal, byte for byte
                -> load -> the link goes bad -> the master is lost as in ``lost_masters``, and the slave is looked at

The slave is told the address of a proxy for that of the master's HA port. Silence is noticed soon by the settings.
"""

import asyncio
import pathlib
import random
import signal
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import NamedTuple

from chaos.proxy import Pace, Proxy
from interop.replica_group import ReplicaGroup, choose_port
from killing.ledger import Ledger
from killing.lost_masters import SYNC_MASTER, Losses, LostMasters
from killing.senders import Moment, OurLoad

KINDS = ("paused", "slow", "half open", "flapping")
MOST_GOOD_ANSWERS = 300
LEAST_BAD_ANSWERS, MOST_BAD_ANSWERS = 100, 400
MOST_BYTES_OF_A_CONNECTION = 20_000
SETTINGS = {
    **SYNC_MASTER,
    "slaveTimeout": "300",
    "haSendHeartbeatInterval": "200",
    "haHousekeepingInterval": "1000",
}


class Trouble(NamedTuple):
    """What befalls a link; ``begin`` is called on the loop of the proxy, as ``end`` is, whether it has begun or not."""

    begin: Callable[[], None]
    end: Callable[[], None]


def troubles(proxy: Proxy, group: ReplicaGroup, choose: random.Random) -> dict[str, Trouble]:
    """Return what can befall the link between a master and its slave, by name."""

    def signal_slave(number: signal.Signals) -> None:
        group.slave.send_signal(number)

    def slow() -> None:
        proxy.slow(Pace(choose.randint(200, 800), choose.randint(40, 100)))

    def flap() -> None:
        proxy.flap(lambda: choose.randint(1, MOST_BYTES_OF_A_CONNECTION))

    found = (
        Trouble(partial(signal_slave, signal.SIGSTOP), partial(signal_slave, signal.SIGCONT)),
        Trouble(slow, proxy.heal),
        Trouble(proxy.silence, proxy.heal),
        Trouble(flap, proxy.heal),
    )
    return dict(zip(KINDS, found, strict=True))


class _Interrupted:
    """Our load, with trouble that begins when some sends were answered, and goes on under those that follow."""

    def __init__(self, choose: random.Random, begin: Callable[[], object]) -> None:
        self._load = OurLoad(choose)
        self._choose = choose
        self._begin = begin

    def run(self, namesrv: str, ledger: Ledger, count: int, kill: Callable[[], None]) -> None:
        """Send without a pause; kill when ``count`` answers have come since the trouble."""
        before = self._choose.randrange(MOST_GOOD_ANSWERS)
        self._load.run_past(namesrv, ledger, [Moment(before, self._begin), Moment(before + count, kill)])

    def send(self, namesrv: str, ledger: Ledger) -> None:
        """Send for a while, and have everything answered."""
        before = self._choose.randrange(MOST_GOOD_ANSWERS)
        after = self._choose.randint(LEAST_BAD_ANSWERS, MOST_BAD_ANSWERS)
        self._load.send_past(namesrv, ledger, [Moment(before, self._begin), Moment(before + after, lambda: None)])


def lose_behind_bad_links(folder: pathlib.Path, rounds: int, seed: str, kind: str) -> Losses:
    """Lose so many masters of one group whose link to their slave goes bad in this way."""
    losses = Losses()
    asyncio.run(_lose(folder, rounds, random.Random(f"{seed} {kind}"), kind, losses))
    return losses


async def _lose(folder: pathlib.Path, rounds: int, choose: random.Random, kind: str, losses: Losses) -> None:
    port = choose_port()
    async with Proxy(f"127.0.0.1:{int(port) + 1}") as proxy:
        with ExitStack() as started:
            settings = {**SETTINGS, "haMasterAddress": proxy.address}
            group = await asyncio.to_thread(ReplicaGroup, started, folder, port, **settings)
            masters = LostMasters(group, choose, losses)
            await asyncio.to_thread(masters.begin)
            for number in range(rounds):
                if number:
                    await asyncio.to_thread(masters.go_on)
                await _lose_one(masters, troubles(proxy, group, choose)[kind], choose)
                await asyncio.to_thread(masters.look, f"{kind} link")
            masters.end()


async def _lose_one(masters: LostMasters, trouble: Trouble, choose: random.Random) -> None:
    begin = partial(asyncio.get_running_loop().call_soon_threadsafe, trouble.begin)
    load = _Interrupted(choose, begin)
    try:
        await asyncio.to_thread(load.send, masters.group.namesrv, masters.ledger)
    finally:
        trouble.end()
    await asyncio.to_thread(masters.group.wait_level)
    try:
        await asyncio.to_thread(masters.kill, load)
    finally:
        trouble.end()
