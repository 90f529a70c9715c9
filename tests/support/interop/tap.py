"""A place on the wire between official clients and a server, where a test listens and interferes.

Clients are given ``tap.namesrv``. The routes that pass there name the tap instead of the broker, so everything that
clients ask the broker passes as well: it is kept, with the code of its answer, and what the test wants refused is
answered by the tap. A broker that is registered at ``tap.broker_door`` is the server by another address.
"""

import contextlib
import socket
import threading
from collections.abc import Callable, Generator, Iterator
from typing import NamedTuple, Self

from interop.servers import Server

from rocketlet.common.codes import ResponseCode
from rocketlet.remoting.codec.command import RESPONSE, Command
from rocketlet.remoting.codec.frames import FrameParser, encode_command
from rocketlet.remoting.codec.request_codes import RequestCode

WAIT_S = 60.0


class Passed(NamedTuple):
    """What a client asked the broker; then the same again, with the code of its answer."""

    request: Command
    answered: int | None = None


class Place(NamedTuple):
    """A name server and one of the brokers that register there."""

    namesrv: str
    broker: str


class Tap:
    """Two listeners, one before the name server and one before the broker; a context manager that closes them."""

    def __init__(self, server: Server | Place) -> None:
        self.refused: frozenset[int] = frozenset()
        """Requests that are answered 1 without having reached the broker, by their codes."""
        self._held: frozenset[int] = frozenset()
        self._broker = server.broker
        self._passed: list[Passed] = []
        self._routes: list[tuple[str, bytes]] = []
        self._changed = threading.Condition()
        self._sockets: list[socket.socket] = []
        self.broker_door = self._listen(server.broker, is_broker=True)
        self.namesrv = self._listen(server.namesrv, is_broker=False)

    def __enter__(self) -> Self:
        """Return the open tap."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close all connections; the threads end with them."""
        with self._changed:
            for opened in self._sockets:
                with contextlib.suppress(OSError):  # the peer may have closed it
                    opened.shutdown(socket.SHUT_RDWR)
                opened.close()
            self._sockets.clear()

    @contextlib.contextmanager
    def hold(self, code: int) -> Generator[None]:
        """Let the broker's answers to requests with a code wait for the end of the block; they have passed before."""
        self._held = frozenset([code])
        try:
            yield
        finally:
            with self._changed:
                self._held = frozenset()
                self._changed.notify_all()

    def asked(self, code: int) -> list[Command]:
        """Return what clients have asked the broker with a code."""
        with self._changed:
            return [one.request for one in self._passed if one.request.code == code and one.answered is None]

    def routes(self, topic: str) -> list[bytes]:
        """Return what the name server has answered to questions for the route of a topic, as it wrote it."""
        with self._changed:
            return [body for name, body in self._routes if name == topic]

    def wait(self, fits: Callable[[Passed], bool], after: int = 0) -> int:
        """Wait until something fits that is not among the first ``after`` to pass; return how many there were then."""
        with self._changed:
            seen = after

            def is_there() -> bool:
                nonlocal seen
                while seen < len(self._passed):
                    seen += 1
                    if fits(self._passed[seen - 1]):
                        return True
                return False

            assert self._changed.wait_for(is_there, WAIT_S), f"none of {len(self._passed)} that passed fits"
            return seen

    @property
    def count(self) -> int:
        """How much has passed."""
        with self._changed:
            return len(self._passed)

    def _listen(self, target: str, *, is_broker: bool) -> str:
        listening = self._keep(socket.create_server(("127.0.0.1", 0)))
        self._run(self._accept, listening, target, is_broker)
        return f"127.0.0.1:{listening.getsockname()[1]}"

    def _accept(self, listening: socket.socket, target: str, is_broker: bool) -> None:
        host, _, port = target.rpartition(":")
        while True:
            client = self._keep(listening.accept()[0])
            try:
                server = self._keep(socket.create_connection((host, int(port))))
            except ConnectionRefusedError:
                client.close()
                continue
            wire = _Wire(client, server)
            self._run(self._pass_all, self._pass_requests, wire, is_broker)
            self._run(self._pass_all, self._pass_answers, wire, is_broker)

    @staticmethod
    def _pass_all(passing: Callable[["_Wire", bool], None], wire: "_Wire", is_broker: bool) -> None:
        try:
            passing(wire, is_broker)
        finally:  # a killed peer resets its connection: the other end must not go on as if there were somebody
            _hang_up(wire)

    def _pass_requests(self, wire: "_Wire", is_broker: bool) -> None:
        for command in _commands(wire.client):
            is_request = not command.flag & RESPONSE
            if is_request:
                wire.asked[command.opaque] = command
            if is_request and is_broker:
                self._note(Passed(command))
            if is_broker and is_request and command.code in self.refused:
                refusal = Command.response(ResponseCode.SYSTEM_ERROR, "refused by the test")
                refusal.opaque = command.opaque
                self._answer(wire, refusal, is_broker)
            else:
                wire.server.sendall(encode_command(command))

    def _pass_answers(self, wire: "_Wire", is_broker: bool) -> None:
        for command in _commands(wire.server):
            self._answer(wire, command, is_broker)

    def _answer(self, wire: "_Wire", command: Command, is_broker: bool) -> None:
        request = wire.asked.pop(command.opaque, None) if command.flag & RESPONSE else None
        if request is not None and not is_broker and request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            with self._changed:
                self._routes.append((request.ext["topic"], command.body))
            command.body = command.body.replace(self._broker.encode(), self.broker_door.encode())
        is_held = request is not None and is_broker and request.code in self._held
        if request is not None and is_held:
            self._note(Passed(request, command.code))
            with self._changed:
                self._changed.wait_for(lambda: request.code not in self._held, WAIT_S)
        with wire.answering:
            wire.client.sendall(encode_command(command))
        if request is not None and is_broker and not is_held:
            self._note(Passed(request, command.code))

    def _note(self, passed: Passed) -> None:
        with self._changed:
            self._passed.append(passed)
            self._changed.notify_all()

    def _keep(self, opened: socket.socket) -> socket.socket:
        with self._changed:
            self._sockets.append(opened)
        return opened

    def _run(self, work: Callable[..., None], *arguments: object) -> None:
        def until_closed() -> None:
            with contextlib.suppress(OSError):  # a closed socket ends its threads
                work(*arguments)

        threading.Thread(target=until_closed, daemon=True).start()


class _Wire:
    """A client's connection and the one that continues it to the server."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server
        self.asked: dict[int, Command] = {}
        self.answering = threading.Lock()


def _commands(source: socket.socket) -> Iterator[Command]:
    parser = FrameParser()
    while data := source.recv(1 << 16):
        yield from parser.feed(data)


def _hang_up(wire: _Wire) -> None:
    for end in (wire.client, wire.server):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
