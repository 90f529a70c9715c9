"""CPU time of a signed message in a broker that checks who may send it, beside one in a broker that asks nobody.

Both brokers are `rocketlet up`, in processes of their own; the official Java client is the load, with 64 sends in
flight, and signs everything for the one that checks: for a user who has a right on the topic, as users have. The factor
is what signatures, policies and the longer header cost together; at most 1.2 is claimed (docs/decisions/guard.md).

    python bench/signed.py
"""

import asyncio
import json
import statistics
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

from guarded import GUARDED, open_signed
from interop.driver import Driver
from interop.servers import RocketletServer
from javasides import start_client
from processes import running_us
from rounds import take_turns

MOST_FACTOR: Final = 1.2
_USER: Final = {"accessKey": "sender", "secretKey": "sender123"}
_TOPIC: Final = "Signed"


def _send(server: RocketletServer, client: Driver, user: dict[str, str], count: int, _round: int) -> float:
    """Return the CPU time of a message, in microseconds."""
    load: dict[str, Any] = {"topic": _TOPIC, "bodyBytes": 128, "inFlight": 64, "settings": {"sendMsgTimeout": 30_000}}
    before = running_us(server.pid)
    answer = client.call("load.send", namesrv=server.namesrv, count=count, **load, **user) or {}
    if answer.get("failed"):
        raise SystemExit(f"not all were sent: {json.dumps(answer)}")
    return (running_us(server.pid) - before) / count


async def _let_send(address: str) -> None:
    """Make a user who may send to the topic."""
    async with open_signed(address) as admin:
        await admin.make_user(_USER["accessKey"], _USER["secretKey"], f"Topic:{_TOPIC} Pub")


@click.command()
@click.option("--rounds", default=7, show_default=True, help="Counted rounds.")
@click.option("--count", default=100_000, show_default=True, help="Messages of a round.")
def main(rounds: int, count: int) -> None:
    """Print both costs and their factor."""
    with tempfile.TemporaryDirectory() as directory, start_client() as client:
        place = Path(directory)
        with RocketletServer(place / "open", {}) as unguarded, RocketletServer(place / "guarded", GUARDED) as guarded:
            asyncio.run(_let_send(guarded.broker))
            users: list[tuple[RocketletServer, dict[str, str]]] = [(unguarded, {}), (guarded, _USER)]
            sides = [partial(_send, server, client, user, count) for server, user in users]
            plain, signed = take_turns(rounds, sides)
    factors = [costly / cheap for cheap, costly in zip(plain, signed, strict=True)]
    factor = statistics.median(factors)
    print(f"unsigned {statistics.median(plain):.2f} us, signed {statistics.median(signed):.2f} us of CPU a message")
    print(f"factor {factor:.3f} (from {min(factors):.3f} to {max(factors):.3f}), at most {MOST_FACTOR} is claimed")


if __name__ == "__main__":
    main()
