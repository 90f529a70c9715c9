"""A name server and a broker behind proxies, and what can befall them.

    drop                 every connection is reset, some times
    silence              every connection is half open from now on
    pause                the broker's process is stopped (SIGSTOP): the system accepts connections, nobody answers
    restart_broker       killed or stopped, started again on its port and store after a while
    restart_nameserver   killed, started again on its port, without what it knew

``Network`` knows the first two, and serves any servers; ``ChaosServers`` has processes of ours.
"""

import asyncio
import pathlib
import random
import signal
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Self

from chaos.proxy import Proxy, Replaced
from interop.parts import Part
from interop.servers import free_port

from rocketlet.remoting.transport.event_loop import LoopClock

SHORT_MS, LONG_MS = 100, 1_500
_clock = LoopClock()


class Lasting:
    """How long faults last, as chance wants."""

    def __init__(self, choose: random.Random) -> None:
        self.choose = choose

    async def last(self) -> None:
        """Wait for the time that a fault lasts."""
        await _clock.sleep(self.choose.randint(SHORT_MS, LONG_MS))

    async def pause(self, send_signal: Callable[[signal.Signals], None]) -> None:
        """Stop a process for a while."""
        send_signal(signal.SIGSTOP)
        try:
            await self.last()
        finally:
            send_signal(signal.SIGCONT)


class Network:
    """The proxies before a name server and a broker; ``async with`` opens and closes them."""

    def __init__(self, namesrv: str, broker: str, lasting: Lasting) -> None:
        self._namesrv = namesrv
        self._broker = broker
        self._lasting = lasting
        self._stack = AsyncExitStack()

    @property
    def namesrv(self) -> str:
        """The address that clients are given."""
        return self._at_nameserver.address

    async def __aenter__(self) -> Self:
        """Open the proxies."""
        self._at_broker = await self._stack.enter_async_context(Proxy(self._broker))
        replaced = Replaced(self._broker, self._at_broker.address)
        self._at_nameserver = await self._stack.enter_async_context(Proxy(self._namesrv, replaced))
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close them."""
        await self._stack.aclose()

    async def drop(self) -> None:
        """Reset all connections, some times."""
        for _ in range(self._lasting.choose.randint(1, 4)):
            for proxy in (self._at_broker, self._at_nameserver):
                proxy.drop()
            await self._lasting.last()

    async def silence(self) -> None:
        """Let all open connections become half open."""
        for proxy in (self._at_broker, self._at_nameserver):
            proxy.silence()


class ChaosServers:
    """Our name server and broker in processes of their own; ``async with`` starts and ends them."""

    def __init__(self, store: pathlib.Path, choose: random.Random) -> None:
        self._store = store
        self._lasting = Lasting(choose)
        self._nameserver_port, self._broker_port = str(free_port(1)), str(free_port(3))
        self._parts: dict[str, Part] = {}
        self._stack = AsyncExitStack()

    @property
    def namesrv(self) -> str:
        """The address that clients are given."""
        return self._network.namesrv

    @property
    def faults(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """What can befall them, by name; each is over when its call returns."""
        return {
            "restart broker": self.restart_broker,
            "restart name server": self.restart_nameserver,
            "drop connections": self._network.drop,
            "half-open connections": self._network.silence,
            "pause broker": lambda: self._lasting.pause(self._parts["broker"].send_signal),
        }

    async def __aenter__(self) -> Self:
        """Start the processes and open the proxies."""
        async with AsyncExitStack() as stack:
            stack.callback(self._end)
            await asyncio.to_thread(self._start_nameserver)
            await asyncio.to_thread(self._start_broker)
            nameserver, broker = self._parts["name server"].address, self._parts["broker"].address
            self._network = await stack.enter_async_context(Network(nameserver, broker, self._lasting))
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        """End them."""
        await self._stack.aclose()

    async def restart_broker(self) -> None:
        """Kill the broker or stop it cleanly, and start it again."""
        broker = self._parts["broker"]
        await asyncio.to_thread(self._lasting.choose.choice([broker.kill, broker.stop]))
        await self._lasting.last()
        await asyncio.to_thread(self._start_broker)

    async def restart_nameserver(self) -> None:
        """Kill the name server and start it again."""
        await asyncio.to_thread(self._parts["name server"].kill)
        await self._lasting.last()
        await asyncio.to_thread(self._start_nameserver)

    def _start_nameserver(self) -> None:
        table = f"kvConfigPath={self._store / 'kvConfig.json'}"
        self._parts["name server"] = Part("namesrv", "--namesrv-port", self._nameserver_port, "--set", table)

    def _start_broker(self) -> None:
        about = ["--broker-port", self._broker_port, "--namesrv", self._parts["name server"].address]
        about += ["--store", str(self._store / "broker"), "--set", "brokerName=broker-a"]
        self._parts["broker"] = Part("broker", *about)

    def _end(self) -> None:
        for part in self._parts.values():
            part.kill()
