"""What a message costs in the broker without sockets, with its compiled codecs and without (`python bench/reads.py`).

    send alone             CPU time of a message that comes in a read of its own, answer and queue entry included
    send, 32 in a read     of one of so many
    batches of 256         of one of a batch

A process of its own measures either, in turn; the least of the runs in it counts, and the median of the processes.
"""

import asyncio
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

from clientframes import batch_body, batches, sends
from memory_connection import connect_in_memory

import rocketlet.broker.server as broker_server
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.remoting.transport.connection import Connection, RequestHandlers
from rocketlet.remoting.transport.event_loop import LoopClock
from rocketlet.remoting.transport.server import RemotingServer

_TOPIC: Final = "Reads"
_QUEUES: Final = 4
_BODY: Final = bytes(128)
_MESSAGES: Final = 3_200
_RUNS: Final = 25


def _rows() -> dict[str, tuple[Sequence[bytes], int]]:
    """Return the reads of a run by the name of their row, and how many messages they hold."""
    single, whole = sends(_TOPIC, _QUEUES, _BODY), batches(_TOPIC, _QUEUES, batch_body(256, _BODY))
    rows: dict[str, tuple[Sequence[bytes], int]] = {
        f"send, {count} in a read" if count > 1 else "send alone": (
            [b"".join([next(single) for _ in range(count)]) for _ in range(_MESSAGES // count)],
            _MESSAGES,
        )
        for count in (1, 8, 32)
    }
    return rows | {"batches of 256": ([next(whole) for _ in range(64)], 64 * 256)}


async def _measure() -> dict[str, float]:
    """Return microseconds of a message by row."""
    handlers: list[RequestHandlers] = []

    class ObservedServer(RemotingServer):
        def __init__(self, host: str, port: int, served: RequestHandlers, *rest: Any, **named: Any) -> None:
            super().__init__(host, port, served, *rest, **named)
            handlers.append(served)

    broker_server.RemotingServer = ObservedServer
    with tempfile.TemporaryDirectory() as store:
        config = BrokerConfig.from_java({"storePathRootDir": store, "listenPort": "0", "brokerName": "broker-a"})
        async with broker_server.Broker(config, LoopClock()) as broker:
            broker.operations.topics.ensure(_TOPIC, _QUEUES)
            connection, transport = connect_in_memory(handlers[0], LoopClock())
            connection.data_received(next(sends(_TOPIC, _QUEUES, _BODY)))
            await transport.has_written.wait()  # the topic is on disk and known
            return await _take_least(connection)


async def _take_least(connection: Connection) -> dict[str, float]:
    rows = _rows()
    least = dict.fromkeys(rows, float("inf"))
    gc.collect()
    gc.freeze()
    for _ in range(_RUNS):
        for name, (reads, messages) in rows.items():
            began = time.thread_time()
            for read in reads:
                connection.data_received(read)
            least[name] = min(least[name], (time.thread_time() - began) / messages * 1e6)
            await asyncio.sleep(0)
    return least


@click.command(help=__doc__)
@click.option("--rounds", default=5, help="Processes of either kind.")
@click.option("--child", is_flag=True, hidden=True, help="Measure in this process.")
def main(*, rounds: int, child: bool) -> None:
    """Print a line for each row."""
    if child:
        print(json.dumps(asyncio.run(_measure())))
        return
    found: dict[bool, list[dict[str, float]]] = {False: [], True: []}
    for _ in range(rounds):
        for is_compiled, results in found.items():
            environment = {**os.environ, "ROCKETLET_PURE_PYTHON": "" if is_compiled else "1"}
            command = [sys.executable, __file__, "--child"]
            results.append(json.loads(subprocess.check_output(command, env=environment)))
    print(f"{'microseconds of a message':<28}{'Python':>10}{'compiled':>10}{'ratio':>8}")
    for name in found[True][0]:
        python, compiled = (statistics.median(result[name] for result in found[kind]) for kind in (False, True))
        print(f"{name:<28}{python:>10.2f}{compiled:>10.2f}{python / compiled:>8.2f}")


if __name__ == "__main__":
    main()
