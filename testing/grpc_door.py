"""The gRPC port of a broker for tests: bound while it runs, at the same port after a restart, kept while it is down.

What serves it is imported when the first client knocks. Calls have the machine's time: their deadlines are those of
clients, whatever time the test has made it for the broker. Faults have the broker's.
"""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from ..broker.ports import admit_grpc
from ..broker.server import Broker
from ..broker.settings.grpc import NO_PORT, PORT_KEY
from ..common.ids import format_address
from ..remoting.transport.event_loop import LoopClock, TaskScope
from ..remoting.transport.server import OnDemandPort, open_listener
from .server_run import ServerRun, keep_ports

if TYPE_CHECKING:
    from ..proxy.rpc.call import Methods
    from ..remoting.transport.acceptor import Admission
    from ..remoting.transport.server import MakeServer

    AroundMethods = Callable[[Broker, Methods], Methods]


class GrpcDoor:
    """Where clients of RocketMQ 5 come in."""

    def __init__(self, tasks: TaskScope, around: "AroundMethods") -> None:
        self._tasks = tasks
        self._around = around
        self._run: ServerRun | None = None
        self._kept = ExitStack()
        self._bound = "", 0
        self.address = ""
        """Where clients find it; empty without a port."""

    def __repr__(self) -> str:
        return f"<GrpcDoor {self.address}>"

    async def open(self, broker: Broker) -> None:
        """Bind the port of a broker that has started, if it shall have one.

        Raises:
            ConfigError: it cannot be bound, or its TLS cannot be served.
        """
        config = broker.config
        if config.grpc.port == NO_PORT:
            return
        clock = LoopClock()
        admission = await admit_grpc(config, clock)
        self._kept.close()
        listener = open_listener(config.host, self._bound[1] or config.grpc.port, key=PORT_KEY)
        port, self._run = OnDemandPort(listener, partial(self._load, broker, clock, admission)), ServerRun(self._tasks)
        await self._run.start(port)
        self._bound = port.address
        self.address = format_address(broker.advertised.told[0], self._bound[1])

    async def close(self) -> None:
        """Serve nobody any more, and keep the port from others."""
        run, self._run = self._run, None
        if run is not None:
            await run.stop()
            self._kept = keep_ports(self._bound, (0,))

    def release(self) -> None:
        """Let others have the port."""
        self._kept.close()

    def _load(self, broker: Broker, clock: LoopClock, admission: "Admission") -> "MakeServer":
        from ..proxy.server import serving

        return serving(broker, clock, admission, partial(self._around, broker))
