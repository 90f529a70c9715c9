"""Measure the gRPC port beside the official proxy, with the official Java client for RocketMQ 5 as load.

The official proxy 5.4.0 in local mode, with the broker in it, and `rocketlet up`, both with their default settings, in
turn, A B A B …; the same client program loads both and shares their cores. The first round of a row warms up and is not
counted, and one send at a time comes last: the virtual machine compiles what it runs for some ten thousands of calls. A
row is the median of its rounds, its ratio the median of the ratios of neighbouring rounds, with the least and the
greatest beside it; the last columns are the CPU time of a message in the server.

    python bench/grpc_clients.py                  sends with 64 and 1 in flight, receive and acknowledge
    python bench/grpc_clients.py --tls            the same by TLS, as this client speaks by itself
    python bench/grpc_clients.py --rounds 9 --scale 2
"""

import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

from interop.clients import Admin
from interop.driver import Driver
from interop.grpc_servers import GrpcServer, ProxyServer, RocketletGrpcServer
from interop.toolchain import grpc_java_command, java_command
from javasides import BROKER_OPTIONS, COMPILED
from processes import cpu_us, memory_mb
from rounds import take_turns
from tables import Comparison, Table

GRPC: Final = Table(
    "grpc",
    ("", "Java proxy", "rocketlet", "ratio", "least to greatest", "server CPU, Java", "rocketlet"),
    (28, 14, 14, 8, 20, 18, 12),
)
_QUEUES: Final = 8
_WARM_UP: Final = 500


class GrpcSample(NamedTuple):
    """What one round has told: messages in a second, and the CPU time of one in the server."""

    rate: float
    cpu_us: float


class Place(NamedTuple):
    """A server, and the client that loads it."""

    server: GrpcServer
    client: Driver
    tls: bool

    def ask(self, command: str, messages: int, **arguments: Any) -> GrpcSample:
        """Have the client do something with so many messages, which must succeed."""
        before = cpu_us(self.server.pid)
        answer = self.client.call(command, endpoints=self.server.grpc, tls=self.tls, count=messages, **arguments)
        if answer.get("failed", 0) or not answer.get("complete", True):
            raise SystemExit(f"{command}: {answer}")
        spent = cpu_us(self.server.pid) - before
        return GrpcSample(float(answer["perSecond"]), spent / (messages + arguments.get("warmup", 0)))


def send(place: Place, number: int, *, count: int, in_flight: int) -> GrpcSample:
    """Measure sends with so many in flight."""
    return place.ask("load.send", count, topic=f"Send{number + 1}", inFlight=in_flight, warmup=_WARM_UP)


def receive(place: Place, number: int, *, count: int) -> GrpcSample:
    """Measure a simple consumer that receives batches of 32 and acknowledges each message."""
    topic = f"Backlog{number + 1}"
    place.ask("load.send", count, topic=topic, inFlight=64)
    return place.ask("load.receive", count, topic=topic, group=f"bench-{number + 1}")


def compare(name: str, places: Sequence[Place], rounds: int, measure: Any) -> Comparison:
    """Measure both in turn."""
    java, own = take_turns(rounds, [partial(measure, place) for place in places])
    costs = {"server, Java": [one.cpu_us for one in java], "server, rocketlet": [one.cpu_us for one in own]}
    return Comparison(name, "/s", [one.rate for one in java], [one.rate for one in own], costs)


def make_topics(server: GrpcServer, rounds: int) -> None:
    """Create the topics of all rounds."""
    with Driver("java", java_command) as driver, Admin(driver, namesrv=server.namesrv) as admin:
        for number in range(rounds + 1):
            for kind in ("Send", "Backlog"):
                admin.create_topic(server.broker, f"{kind}{number}", _QUEUES)


@click.command()
@click.option("--rounds", default=5, show_default=True, help="Counted rounds of each row.")
@click.option("--scale", default=1.0, show_default=True, help="How much is sent, as a factor.")
@click.option("--tls", is_flag=True, help="Speak TLS.")
def main(*, rounds: int, scale: float, tls: bool) -> None:
    """Print a line for each row."""
    rows: Mapping[str, Any] = {
        "send, 64 in flight": partial(send, count=int(20_000 * scale), in_flight=64),
        "receive and acknowledge": partial(receive, count=int(10_000 * scale)),
        "send, 1 in flight": partial(send, count=int(3_000 * scale), in_flight=1),
    }
    with ExitStack() as running:
        directory = Path(running.enter_context(tempfile.TemporaryDirectory()))
        servers: list[GrpcServer] = [
            running.enter_context(ProxyServer(directory / "java", {}, options=BROKER_OPTIONS)),
            running.enter_context(RocketletGrpcServer(directory / "own", {})),
        ]
        client = running.enter_context(Driver("java-load", partial(grpc_java_command, options=COMPILED)))
        for server in servers:
            make_topics(server, rounds)
        at_rest = [memory_mb(server.pid) for server in servers]
        GRPC.print_title()
        for name, measure in rows.items():
            GRPC.print_line(compare(name, [Place(server, client, tls) for server in servers], rounds, measure))
        loaded = [memory_mb(server.pid) for server in servers]
        print(f"memory, Java proxy: {at_rest[0]:.0f} MB before, {loaded[0]:.0f} MB after; ", end="")
        print(f"rocketlet: {at_rest[1]:.0f} MB before, {loaded[1]:.0f} MB after")


if __name__ == "__main__":
    main()
