"""A cut wire between a server and one client: nothing passes in either direction, and the sockets stay open.

    from the client   reading is paused: what it sends waits in the system, as it would behind a network that is gone
    from the server   what is written waits here
    an end            a connection that the server closes meanwhile is gone for it; the client does not hear of that

When the wire is whole again, what was written goes out first, then what had been read is served, then reading goes on.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ...common.outcome import Outcome
from ...remoting.codec.command import Command
from ...remoting.transport.connection import Connection
from ..views.client_requests import ClientLink, name_parties, read_fields

Data = bytes | bytearray | memoryview


class HeldTransport(asyncio.Transport):
    """Stands between a connection and its socket and lets nothing through."""

    def __init__(self, socket: asyncio.Transport, end: Callable[[Exception | None], object]) -> None:
        super().__init__()
        self.socket = socket
        self._end = end
        self._written: list[bytes] = []
        self._is_reading = socket.is_reading()
        self._finish: Callable[[], object] | None = None
        socket.pause_reading()

    def __repr__(self) -> str:
        return f"<HeldTransport {len(self._written)} writes held>"

    def release(self) -> None:
        """Send what was written, and close if that was wanted; reading stays paused."""
        for data in () if self.socket.is_closing() else self._written:
            self.socket.write(data)
        self._written.clear()
        if self._finish is not None:
            self._finish()

    def read_on(self) -> None:
        """Read what has come."""
        if self._is_reading and not self.socket.is_closing():
            self.socket.resume_reading()

    def write(self, data: Data) -> None:
        """Keep what is written."""
        self._written.append(bytes(data))

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        """Keep what is written."""
        self._written += map(bytes, list_of_data)

    def get_write_buffer_size(self) -> int:
        """Return how much waits."""
        return sum(map(len, self._written)) + self.socket.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the limits of the socket."""
        self.socket.set_write_buffer_limits(high, low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what the socket knows."""
        return self.socket.get_extra_info(name, default)

    def is_reading(self) -> bool:
        """Tell whether the server wants to read."""
        return self._is_reading

    def pause_reading(self) -> None:
        """Do not read on when the wire is whole."""
        self._is_reading = False

    def resume_reading(self) -> None:
        """Read on when the wire is whole."""
        self._is_reading = True

    def is_closing(self) -> bool:
        """Tell whether the server has closed the connection."""
        return self._finish is not None or self.socket.is_closing()

    def close(self) -> None:
        """Be gone for the server; the client hears of it when the wire is whole."""
        self._leave(self.socket.close)

    def abort(self) -> None:
        """Be gone for the server, with what it has written."""
        self._written.clear()
        self._leave(self.socket.abort)

    def _leave(self, finish: Callable[[], object]) -> None:
        if self._finish is None:
            self._finish = finish
            self.socket.set_protocol(asyncio.Protocol())  # the connection ends here and now, and once
            asyncio.get_running_loop().call_soon(self._end, None)


class ParkedRequest(NamedTuple):
    """A request that had been read before the wire was cut, or told whose connection it came on."""

    command: Command
    connection: Connection
    outcome: Outcome[Any]


class Partition:
    """What is held back between a server and a client.

    A new connection is known to be the client's when a request on it names the client's id, or a group that no other
    client has named on an open connection (``groups``); until then it cannot be told from those of others.
    """

    def __init__(self, client_id: str, groups: frozenset[str]) -> None:
        self.client_id = client_id
        self.groups = groups
        self.parked: list[ParkedRequest] = []
        self._held: dict[Connection, HeldTransport] = {}

    def __repr__(self) -> str:
        return f"<Partition from {self.client_id}, {len(self._held)} connections>"

    def hold(self, connection: Connection) -> None:
        """Let nothing pass on a connection any more."""

        def between(socket: asyncio.Transport) -> asyncio.Transport:
            self._held[connection] = held = HeldTransport(socket, connection.connection_lost)
            return held

        connection.interpose(between)

    def is_of(self, connection: Connection, link: ClientLink, command: Command) -> bool:
        """Tell whether a request comes from the client; its connection is held from then on."""
        if connection in self._held:
            return True
        named = name_parties(command, read_fields(command))
        client = named.client or link.client
        if client == self.client_id or (client is None and not self.groups.isdisjoint(named.groups)):
            self.hold(connection)
            return True
        return False

    def park(self, command: Command, connection: Connection) -> Outcome[Any]:
        """Keep a request; return what will come of it."""
        outcome: Outcome[Any] = Outcome()
        self.parked.append(ParkedRequest(command, connection, outcome))
        return outcome

    def let_answers_out(self) -> None:
        """Send what was written meanwhile."""
        for connection, held in self._held.items():
            if not connection.is_closed:
                connection.interpose(lambda _, held=held: held.socket)
            held.release()

    def let_requests_in(self) -> None:
        """Read what has come meanwhile."""
        for held in self._held.values():
            held.read_on()
