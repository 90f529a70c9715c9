"""A connection, the same class for both ends.

Rule 1: Everything that a read brought is parsed and served in one go, and all its replies are written at once.
Rule 2: No task, future or closure per request served; what a handler owes is a ``Later``.
Rule 3: Every request is answered exactly once, one-way requests never.
Rule 4: What a handler raises ends its request; what the connection's own steps raise ends the connection.
Rule 5: A peer that does not read its replies is not read from; one that lets them pile up is cut off (``Limits``).
Rule 6: A frame that cannot be read ends the connection, after the replies to what came before it.

Upstream: ``NettyRemotingAbstract``, ``spec/remoting.md`` §1.4, §1.7, §1.8.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol, cast

from ..common.clock import Clock
from ..common.errors import ConnectionClosedError, FrameError, RequestTimeoutError, StoreError
from .calls import Calls
from .codes import ResponseCode
from .command import ONEWAY, RESPONSE, Command
from .deadlines import Deadlines
from .failures import NO_ANSWER, OVERLOAD, failure_reply
from .frames import FrameParser, encode_command
from .later import Buffer, Encoded, Later
from .service import Limits, Service

Address = tuple[str, int]

_JOIN_BYTES = 1 << 16  # up to here one copy is cheaper than many buffers
_log = logging.getLogger(__name__)


class ConnectionHome(Protocol):
    """Who keeps a connection while it is open."""

    def add(self, connection: "Connection") -> None:
        """Take a connection that has just opened."""
        ...

    def discard(self, connection: "Connection") -> None:
        """Forget a connection that has ended."""
        ...


class Connection(asyncio.Protocol):
    """One connection; hashable by identity, so parts keep their own attributes in dicts."""

    def __init__(self, service: Service, clock: Clock, limits: Limits, home: ConnectionHome) -> None:
        self.remote_address: Address = ("", 0)
        self.local_address: Address = ("", 0)
        self.is_closed = False
        self.was_active = True  # read and cleared by its home, which closes idle connections
        self._service = service
        self._handlers = service.handlers
        self._fallback = service.fallback
        self._committing = service.committing
        self._limits = limits
        self._home = home
        self._parser = FrameParser(limits.max_frame_bytes)
        self._calls = Calls(limits.max_calls)
        self._deadlines = Deadlines(clock)
        self._transport: asyncio.Transport | None = None
        self._owed: set[Later] = set()
        self._on_close: list[Callable[[Connection], object]] = []
        self._out: list[Encoded] = []
        self._out_bytes = 0
        self._uncommitted: list[tuple[Command, int | Later]] = []
        self._backlog: list[Command] = []
        self._is_serving = False
        self._is_write_paused = False
        self._closes_after_turn = False

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else "paused" if self._is_write_paused else "open"
        host, port = self.remote_address
        return f"<Connection {state} to {host}:{port}, owes {len(self._owed)}, waits for {len(self._calls)}>"

    # for the parts that use the connection

    def send_oneway(self, command: Command) -> None:
        """Send a request that is not answered; on a closed connection nothing happens."""
        command.opaque = self._calls.next_opaque()
        command.flag |= ONEWAY
        self._push(encode_command(command))

    async def call(self, command: Command) -> Command:
        """Send a request and wait for its answer, however long that takes.

        Raises:
            ConnectionClosedError: the connection has ended.
        """
        if self.is_closed:
            raise ConnectionClosedError(f"the connection to {self._peer} is closed")
        opaque = command.opaque = self._calls.next_opaque()
        answer = self._calls.start(opaque)
        try:
            self._push(encode_command(command))
            return await answer
        finally:
            self._calls.forget(opaque)

    async def request(self, command: Command, timeout_ms: int) -> Command:
        """Send a request and wait for its answer.

        Raises:
            ConnectionClosedError: the connection has ended.
            RequestTimeoutError: the answer did not come in time; if it still comes, it is ignored.
        """
        if self.is_closed:
            raise ConnectionClosedError(f"the connection to {self._peer} is closed")
        opaque = command.opaque = self._calls.next_opaque()
        answer = self._calls.start(opaque)
        until_ms = self._deadlines.add(answer, timeout_ms)
        try:
            self._push(encode_command(command))
            return await answer
        except TimeoutError:
            raise RequestTimeoutError(f"{self._peer} did not answer {command.code} in {timeout_ms} ms") from None
        finally:
            self._calls.forget(opaque)
            self._deadlines.discard(answer, until_ms)

    def close(self) -> None:
        """Close after what was written has been sent."""
        self._closes_after_turn = True
        if not self._is_serving and self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once; what was not sent is lost."""
        if self._transport is not None:
            self._transport.abort()

    def on_close(self, callback: Callable[["Connection"], object]) -> None:
        """Have ``callback(connection)`` called once when the connection has ended, at once if it has."""
        if self.is_closed:
            callback(self)
        else:
            self._on_close.append(callback)

    @property
    def unsent_bytes(self) -> int:
        """How much waits for the peer to read."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    @property
    def _peer(self) -> str:
        return f"{self.remote_address[0]}:{self.remote_address[1]}"

    # for the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the socket."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(self._limits.high_water_bytes, self._limits.low_water_bytes)
        self.remote_address = _address(transport.get_extra_info("peername"))
        self.local_address = _address(transport.get_extra_info("sockname"))
        self._home.add(self)

    def data_received(self, data: bytes) -> None:
        """Serve what a read brought."""
        self.was_active = True
        self._guard(self._receive, data)

    def pause_writing(self) -> None:
        """Stop reading: the peer does not take its replies."""
        self._is_write_paused = True
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Serve what was left, then read on."""
        self._is_write_paused = False
        asyncio.get_running_loop().call_soon(self._guard, self._serve_backlog)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell everybody who has to do with the connection that it has ended."""
        self.is_closed = True
        _log.debug("connection to %s ended: %s", self._peer, exc)
        self._home.discard(self)
        self._calls.fail_all(f"the connection to {self._peer} ended before the answer")
        self._backlog, self._out = [], []
        owed, self._owed = self._owed, set()
        for later in owed:
            self._guard(later.drop)
        callbacks, self._on_close = self._on_close, []
        for callback in callbacks:
            self._guard(callback, self)

    def settle_later(self, later: Later, reply: Command | Encoded) -> None:
        """Send an answer that was owed; ``Later`` calls this."""
        self._owed.discard(later)
        try:
            self._push(_encode_reply(later.command, reply))
        except FrameError as error:  # too large to be sent: say so
            self._push(_encode_reply(later.command, failure_reply(later.command, error)))

    # one read

    def _guard(self, step: Callable[..., object], *args: object) -> None:
        try:
            step(*args)
        except Exception:  # the fault boundary of a connection
            _log.exception("the connection to %s is dropped", self._peer)
            self.abort()

    def _receive(self, data: bytes) -> None:
        try:
            commands = self._parser.feed(data)
        except FrameError as error:
            self._refuse(error)
            return
        if self._backlog:
            self._backlog += commands
        elif commands:
            self._serve(commands)
        if self._parser.failure is not None:
            self._refuse(self._parser.failure)

    def _refuse(self, error: FrameError) -> None:
        _log.warning("closing the connection to %s: %s", self._peer, error)
        self.close()

    def _serve(self, commands: list[Command]) -> None:
        self._is_serving = True
        for index, command in enumerate(commands):
            if command.flag & RESPONSE:
                self._calls.settle(command)
                continue
            self._serve_one(command)
            if self._out_bytes > self._limits.high_water_bytes:
                self._end_turn()
                if self._is_write_paused:
                    self._backlog = commands[index + 1 :]
                    break
        self._end_turn()
        self._is_serving = False
        if self._closes_after_turn:
            self.close()

    def _serve_backlog(self) -> None:
        if self._is_write_paused or self._transport is None or self._transport.is_closing():
            return
        commands, self._backlog = self._backlog, []
        if commands:
            self._serve(commands)
        if not self._is_write_paused and not self._transport.is_closing():
            self._transport.resume_reading()

    def _serve_one(self, command: Command) -> None:
        try:
            reply = self._handlers.get(command.code, self._fallback)(command, self)
            if isinstance(reply, Later):
                reply = self._take_debt(reply)
                if reply is None:
                    return
            if command.flag & ONEWAY:
                return
            encoded = reply if isinstance(reply, bytes) else _encode_reply(command, reply)
        except Exception as error:  # the fault boundary of a request
            if (encoded := _encode_failure(command, error)) is None:
                return
        if command.code in self._committing:
            self._uncommitted.append((command, len(self._out)))
        self._out.append(encoded)
        self._out_bytes += len(encoded) if isinstance(encoded, bytes) else _size(encoded)

    def _take_debt(self, later: Later) -> Command | Encoded | None:
        """Remember an owed answer; return the one to send now, if there is one."""
        if later.command.flag & ONEWAY:
            later.write_off()
            return None
        if (early_reply := later.hand_over(self)) is not None:
            return early_reply
        if len(self._owed) >= self._limits.max_owed_answers:
            later.drop()
            return Command.response(ResponseCode.SYSTEM_BUSY, OVERLOAD)
        self._owed.add(later)
        if later.command.code in self._committing:
            self._uncommitted.append((later.command, later))
        return None

    def _end_turn(self) -> None:
        try:
            self._service.end_of_read()
        except StoreError as error:
            self._take_back(error)
        self._uncommitted.clear()
        out, size = self._out, self._out_bytes
        if out:
            self._out, self._out_bytes = [], 0
            self._write(out, size)

    def _take_back(self, error: StoreError) -> None:
        """Replace the replies to what was not stored after all."""
        for command, place in self._uncommitted:
            reply = self._service.on_commit_failed(command, error)
            if isinstance(place, Later):
                place.answer(reply)
            else:
                self._out[place] = _encode_reply(command, reply)

    def _push(self, encoded: Encoded) -> None:
        """Send a frame: with the others of this read, or now."""
        size = len(encoded) if isinstance(encoded, bytes) else _size(encoded)
        if self._is_serving:
            self._out.append(encoded)
            self._out_bytes += size
        else:
            self._write([encoded], size)

    def _write(self, frames: list[Encoded], size: int) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self.was_active = True
        if len(frames) == 1 and isinstance(frames[0], bytes):
            transport.write(frames[0])
        elif size <= _JOIN_BYTES:
            transport.write(b"".join(_buffers(frames)))
        else:
            transport.writelines(_buffers(frames))
        if self._is_write_paused and self.unsent_bytes > self._limits.max_unsent_bytes:
            unsent, limit = self.unsent_bytes, self._limits.max_unsent_bytes
            _log.warning("cutting off %s: %d bytes are unread, limit is %d", self._peer, unsent, limit)
            transport.abort()


def _encode_reply(command: Command, reply: Command | Encoded | None) -> Encoded:
    if isinstance(reply, (bytes, list)):
        return reply
    if reply is None:
        reply = Command.response(ResponseCode.SYSTEM_ERROR, NO_ANSWER)
    reply.opaque = command.opaque
    reply.flag = RESPONSE
    reply.serialize = command.serialize
    return encode_command(reply)


def _encode_failure(command: Command, error: Exception) -> Encoded | None:
    reply = failure_reply(command, error)
    return None if command.flag & ONEWAY else _encode_reply(command, reply)


def _buffers(frames: list[Encoded]) -> list[Buffer]:
    buffers: list[Buffer] = []
    for frame in frames:
        if isinstance(frame, bytes):
            buffers.append(frame)
        else:
            buffers += frame
    return buffers


def _size(frame: Encoded) -> int:
    return len(frame) if isinstance(frame, bytes) else sum(map(len, frame))


def _address(name: object) -> Address:
    if isinstance(name, tuple) and len(cast("tuple[object, ...]", name)) >= 2:
        host, port = cast("tuple[str, int]", name)[:2]
        return host, port
    return "", 0
