"""A connection, the same for both ends: what comes in is served, what goes out is written, what was asked is awaited.

``Connection`` serves:

Rule 1: Everything that a read brought is parsed and served in one go, and all its replies are written at once.
Rule 2: No task, future or closure per request served; what a handler cannot answer yet is an ``Outcome``, which is
        looked at again when the batch of a read is over, and owed from then on.
Rule 3: Every request is answered exactly once, one-way requests never.
Rule 4: What a handler raises ends its request; what the connection's own steps raise ends the connection.
Rule 5: A peer that does not read its replies is not read from; one that lets them pile up is cut off (``Limits``).
Rule 6: A frame that cannot be read ends the connection, after the replies to what came before it.
Rule 7: A peer that ends its direction has ended the connection, as in Java: what is answered goes out, debts do not.

``FrameWriter`` writes: frames of one read, or of one turn of the loop, go out in one write.

``PendingRequests`` are our own requests that wait for their answers, each with a time limit:

Rule 8: Each direction of a connection counts its requests for itself, from 1; an answer is matched against ours only.
Rule 9: An answer that nobody waits for any more is ignored. A wait that was cancelled is forgotten with its answer, its
        time limit or its connection.
Rule 10: One timer serves all limits, armed for the earliest of them when it is set. It is not moved when that wait is
        over, which is what nearly always happens: it finds nothing to do then, and is armed for what is the earliest by
        then. (``asyncio.timeout`` around each wait took a third of the time of a request.) It looks at every wait, so
        with n thousand of them it looks each n ms, and waits end that much later.

Upstream: ``NettyRemotingAbstract``, ``spec/remoting.md`` §1.4, §1.7, §1.8.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, cast

from msgspec import Struct, field

from ...common.clock import Clock
from ...common.codes import ResponseCode
from ...common.errors import ConnectionClosedError, FrameError, StoreError
from ...common.ids import Address
from ...common.outcome import Outcome
from ..codec.command import ONEWAY, RESPONSE, Command
from ..codec.error_replies import OVERLOAD, failure_reply, log_rejected, unknown_code_reply
from ..codec.frames import Buffer, Encoded, FrameParser, encode_command, encode_oneway, encode_reply
from .addresses import address_of, format_address
from .limits import COUNTED_BYTES, ConnectionRegistry, Limits
from .pending_requests import Answer, PendingRequests

_JOIN_BYTES = 1 << 16  # up to here one copy is cheaper than many buffers
_JOIN_BUFFERS = 16  # at most, so that the other end begins with them while the next are made
_LARGE_BYTES = 1 << 12  # a frame of so many goes out at once, for the same reason: batches are sent 1.5 times as fast
_OWED_BYTES = 2200  # of a held pull without its texts: command, waiter, filter, timer
_log = logging.getLogger(__name__)

Reply = Command | Encoded | Outcome[Any] | None
Handler = Callable[[Command, "Connection"], Reply]
"""A plain function on the event loop. ``None`` is for one-way requests; for others it is answered SYSTEM_ERROR."""


def refuse_unknown(command: Command, connection: Connection) -> Command:
    """Answer a request code that nobody handles."""
    return unknown_code_reply(command, format_address(*connection.remote_address), is_logged=connection.may_complain())


class RequestHandlers(Struct, frozen=True):
    """What an end answers: a broker clients, a client the requests of brokers (``spec/remoting.md`` §4.12).

    ``after_batch`` is called once when all frames of a read have gone through their handlers, before their answers are
    written; more often only when the answers of one read exceed the high-water mark. What it settles of the batch's
    outcomes goes out with them.

    ``after_read`` is called when those answers are written, with the connection and how many frames the read brought.
    """

    by_code: Mapping[int, Handler] = field(default_factory=dict[int, Handler])
    fallback: Handler = refuse_unknown
    after_batch: Callable[[], None] | None = None
    after_read: Callable[[object, int], None] | None = None


Around = Callable[[RequestHandlers], RequestHandlers]
"""Returns handlers to serve with instead of the server's own, to which they pass on: what sees or changes requests."""


class FrameWriter:
    """The frames that go out on a connection; ``peer_is_slow`` is called after a write that the peer may not take."""

    __slots__ = (
        "_is_joining",
        "_peer_is_slow",
        "_transport",
        "_written_bytes",
        "frames",
        "is_collecting",
        "is_paused",
        "size",
    )

    def __init__(self, peer_is_slow: Callable[[], object]) -> None:
        self.frames: list[Buffer] = []
        self.size = 0
        """The bytes of ``frames`` and of the answers that are still to join them."""
        self.is_collecting = False
        """Whether a read is being served: its frames go out together, by ``flush``."""
        self.is_paused = False
        """Whether the peer leaves so much unread that nothing more is to be written, if that can be helped."""
        self._peer_is_slow: Callable[[], object] | None = peer_is_slow
        self._transport: asyncio.Transport | None = None
        self._written_bytes: int = 0
        self._is_joining = False  # frames of one turn of the loop

    def __repr__(self) -> str:
        return f"<FrameWriter {'paused' if self.is_paused else 'open'}, {self.unsent_bytes} bytes unsent>"

    def open(self, transport: asyncio.Transport) -> None:
        """Write there from now on."""
        self._transport = transport

    def close(self) -> None:
        """Drop what is not written: the connection has ended."""
        self.frames = []
        self._peer_is_slow = None  # it holds what holds this: without it nobody waits for the collector

    def push(self, frame: Encoded, *, at_once: bool = False) -> None:
        """Send a frame, with the others of this read or of this turn of the loop; nothing happens if it is closed.

        With ``at_once`` it does not wait for the end of the turn.
        """
        if isinstance(frame, list):
            self.frames += frame
            size = sum(map(len, frame))
        else:
            self.frames.append(frame)
            size = len(frame)
        self.size += size
        if self.is_collecting:
            return
        if at_once or size >= _LARGE_BYTES or len(self.frames) >= _JOIN_BUFFERS:
            self.flush()
        elif not self._is_joining:
            self._is_joining = True
            asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        """Write what waits to be sent."""
        self._is_joining = False
        frames, transport = self.frames, self._transport
        if not frames:
            return
        size = sum(map(len, frames))
        self.frames, self.size = [], 0
        if transport is None or transport.is_closing():
            return
        self._written_bytes += size
        if len(frames) == 1:
            transport.write(frames[0])
        elif size <= _JOIN_BYTES:
            transport.write(b"".join(frames))
        else:
            transport.writelines(frames)
        if self.is_paused and self._peer_is_slow is not None:
            self._peer_is_slow()

    @property
    def unsent_bytes(self) -> int:
        """How much waits to be sent, or for the peer to read."""
        return self.size + self._untaken_bytes

    @property
    def taken_bytes(self) -> int:
        """How much the peer, or the system on the way to it, has taken so far."""
        return self._written_bytes - self._untaken_bytes

    @property
    def _untaken_bytes(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()


class Connection(asyncio.Protocol):
    """One connection, hashable by identity. With less than 30 attributes Python keeps their names once for all."""

    def __init__(self, handlers: RequestHandlers, clock: Clock, limits: Limits, home: ConnectionRegistry) -> None:
        self.remote_address: Address = ("", 0)
        self.local_address: Address = ("", 0)
        self.is_closed = False
        self.descriptor = -1
        self._handlers = handlers.by_code
        self._fallback = handlers.fallback
        self._after_batch = handlers.after_batch
        self._after_read = handlers.after_read
        self._limits = limits
        self._home = home
        self._parser = FrameParser(limits.max_frame_bytes)
        self.writer = FrameWriter(self._check_unsent)
        self.push = self.writer.push  # bound, as the next, and not a call more for each frame
        self._requests = PendingRequests(clock, limits.max_calls)
        self.next_opaque = self._requests.next_opaque  # for ``ask_frame``
        self._transport: asyncio.Transport | None = None
        self._owed: dict[Outcome[Any], int] = {}  # with what each keeps of its request, in bytes
        self._owed_bytes = 0
        self._on_close: list[Callable[[Connection], object]] = []
        self._served: list[
            Encoded | Outcome[Any]
        ] = []  # of this batch, in order: frames, and outcomes that were not settled at once
        self.reads = 0  # how often the peer has sent something
        self._seen = -1, 0  # the reads, and the bytes that the peer had taken, when last looked
        self._backlog: list[Command] = []
        self._is_counted = False  # among those that hold much
        self._closes_after_turn = False
        self._closes_after_backlog = False

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else "paused" if self.writer.is_paused else "open"
        host, port = self.remote_address
        return f"<Connection {state} to {host}:{port}, owes {len(self._owed)}, waits for {len(self._requests)}>"

    # for the parts that use the connection

    def send_oneway(self, command: Command) -> None:
        """Send a request that is not answered; on a closed connection nothing happens."""
        command.opaque = self.next_opaque()
        self.push(encode_oneway(command))

    async def request(self, command: Command, timeout_ms: int) -> Command:
        """Send a request and wait for its answer.

        Raises:
            ConnectionClosedError: the connection has ended.
            RequestTimeoutError: the answer did not come in time; if it still comes, it is ignored.
        """
        answer = self.ask(command, timeout_ms)
        try:
            return await answer
        finally:
            if answer.cancelled():
                self.forget(command)

    def ask(self, command: Command, timeout_ms: int) -> Answer:
        """Send a request at once, so that the peer works on it while this turn of the loop goes on.

        Returned is what will hold its answer, or the errors of ``request``; who is cancelled calls ``forget``.

        Raises:
            ConnectionClosedError: the connection has ended.
        """
        if self.is_closed:
            raise ConnectionClosedError(f"the connection to {self.peer} is closed")
        command.opaque = opaque = self.next_opaque()
        frame = encode_command(command)
        answer = self._requests.start(opaque, timeout_ms, command.code)
        self.writer.push(frame, at_once=True)
        return answer

    def forget(self, command: Command) -> None:
        """Wait no longer for the answer to a request."""
        self._requests.forget(command.opaque)

    def ask_frame(self, frame: bytes, opaque: int, code: int, timeout_ms: int, now_ms: int | None = None) -> Answer:
        """Send a request that is encoded already; return what will hold its answer, or the errors of ``request``.

        The time limit counts from ``now_ms`` of the monotonic clock on, if the caller knows it.

        Raises:
            ConnectionClosedError: the connection has ended.
        """
        if self.is_closed:
            raise ConnectionClosedError(f"the connection to {self.peer} is closed")
        answer = self._requests.start(opaque, timeout_ms, code, now_ms)
        self.push(frame)
        return answer

    def close(self) -> None:
        """Close after what was written has been sent."""
        self._closes_after_turn = True
        if not self.writer.is_collecting and self._transport is not None:
            self.writer.flush()
            self._transport.close()

    def abort(self) -> None:
        """Close at once; what was not sent is lost."""
        if self._transport is not None:
            self._transport.abort()

    def interpose(self, between: Callable[[asyncio.Transport], asyncio.Transport]) -> None:
        """Put another transport in the place of the one in use: what cuts the wire for a while."""
        assert self._transport is not None, "what has brought a request is open, or was"
        self._transport = between(self._transport)
        self.writer.open(self._transport)

    def on_close(self, callback: Callable[[Connection], object]) -> None:
        """Have ``callback(connection)`` called once when the connection has ended, at once if it has."""
        if self.is_closed:
            callback(self)
        else:
            self._on_close.append(callback)

    @property
    def unsent_bytes(self) -> int:
        """How much waits to be sent, or for the peer to read."""
        return self.writer.unsent_bytes

    @property
    def held_bytes(self) -> int:
        """How much is kept for the peer: unsent, of a frame not finished, of requests not answered."""
        return self.unsent_bytes + self._parser.pending_bytes + self._owed_bytes

    def has_moved(self) -> bool:
        """Tell whether the peer has sent or taken anything since the last time this was asked."""
        before, self._seen = self._seen, (self.reads, self.writer.taken_bytes)
        return before != self._seen

    def may_complain(self) -> bool:
        """Count a mistake of the peer, and tell whether to log it."""
        return self._home.complaints.may_log()

    def cut_off(self, reason: str) -> None:
        """Close at once, and say why."""
        if self.may_complain():
            _log.warning("closing the connection to %s: %s", self.peer, reason)
        self.abort()

    @property
    def peer(self) -> str:
        """The ``host:port`` of the other end."""
        return f"{self.remote_address[0]}:{self.remote_address[1]}"

    # for the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the socket."""
        self._transport = cast("asyncio.Transport", transport)
        self.writer.open(self._transport)
        self._transport.set_write_buffer_limits(self._limits.high_water_bytes, self._limits.low_water_bytes)
        self.remote_address = address_of(transport.get_extra_info("peername"))
        self.local_address = address_of(transport.get_extra_info("sockname"))
        self._requests.peer = self.peer
        own = transport.get_extra_info("socket")
        self.descriptor = -1 if own is None else own.fileno()
        self._home.add(self)

    def data_received(self, data: bytes) -> None:
        """Serve what a read brought."""
        self.reads += 1
        parser = self._parser
        try:
            try:
                commands = parser.feed(data)
            except FrameError:  # the parser keeps it
                commands = []
            if self._backlog:
                self._backlog += commands
            elif commands:
                self._serve(commands)
            if parser.failure is not None:
                self._refuse(parser.failure)
            elif self._is_counted or parser.expected_bytes > COUNTED_BYTES or self._owed_bytes > COUNTED_BYTES:
                self._count()
        except Exception:  # the fault boundary of a connection
            self._fail()

    def pause_writing(self) -> None:
        """Stop reading, unless it is ours to ask: the peer does not take its replies."""
        self.writer.is_paused = True
        self._count()
        if not self._limits.reads_on and self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Serve what was left, then read on."""
        self.writer.is_paused = False
        self._count()
        asyncio.get_running_loop().call_soon(self._guard, self._serve_backlog)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell everybody who has to do with the connection that it has ended."""
        self.is_closed = True
        _log.debug("connection to %s ended: %s", self.peer, exc)
        self._home.discard(self, has_failed=exc is not None)
        self._requests.fail_all(f"the connection to {self.peer} ended before the answer")
        self._backlog, self._served = [], []
        self.writer.close()
        owed, self._owed = self._owed, {}
        for outcome in owed:
            self._guard(outcome.drop)
        callbacks, self._on_close = self._on_close, []
        for callback in callbacks:
            self._guard(callback, self)

    def _pay(self, outcome: Outcome[Any]) -> None:
        """Send an answer that was owed. What fails ends this connection, not who pays."""
        self._owed_bytes -= self._owed.pop(outcome, 0)
        try:
            self.writer.push(self._encode(outcome), at_once=outcome.goes_at_once)
        except Exception:  # the fault boundary of a connection
            self._fail()

    def _guard(self, step: Callable[..., object], *args: object) -> None:
        try:
            step(*args)
        except Exception:  # the fault boundary of a connection
            self._fail()

    def _fail(self) -> None:
        """End the connection for what is being handled."""
        _log.exception("closing the connection to %s: a handler or callback failed", self.peer)
        self.abort()

    # one read

    def _refuse(self, error: FrameError) -> None:
        if self.may_complain():
            _log.warning("closing the connection to %s: %s", self.peer, error)
        self._closes_after_backlog = True
        if not self._backlog:
            self.close()

    def _count(self) -> None:
        """Have what is held counted while it is much."""
        self._is_counted = self.writer.is_paused or self.held_bytes > COUNTED_BYTES
        if self._is_counted:
            self._home.held.note(self)
        else:
            self._home.held.forget(self)

    def _serve(self, commands: list[Command]) -> None:
        writer, high_water_bytes = self.writer, self._limits.high_water_bytes
        writer.is_collecting = True
        for index, command in enumerate(commands):
            if command.flag & RESPONSE:
                self._requests.settle(command)
                continue
            self._serve_one(command)
            if writer.size > high_water_bytes:
                self._end_turn()
                if writer.is_paused:
                    self._backlog = commands[index + 1 :]
                    break
        self._end_turn()
        writer.is_collecting = False
        if self._after_read is not None:
            self._after_read(self, len(commands))
        if self._closes_after_turn or (self._closes_after_backlog and not self._backlog):
            self.close()

    def _serve_backlog(self) -> None:
        if self.writer.is_paused or self._transport is None or self._transport.is_closing():
            return
        commands, self._backlog = self._backlog, []
        if commands:
            self._serve(commands)
        if not self.writer.is_paused and not self._transport.is_closing():
            self._transport.resume_reading()

    def _serve_one(self, command: Command) -> None:
        try:
            reply = self._handlers.get(command.code, self._fallback)(command, self)
            if type(reply) is Outcome:
                if reply.is_dropped:
                    return
                reply.request = command
            if command.flag & ONEWAY:
                return
            if type(reply) is not Outcome:
                encoded = reply if type(reply) is bytes else encode_reply(command, reply)
            elif reply.is_settled:
                encoded = self._encode(reply)  # it is counted before the next request is served
            else:
                self._served.append(reply)
                return
        except Exception as error:  # the fault boundary of a request
            failure = failure_reply(command, error, self.peer, is_logged=self.may_complain())
            if command.flag & ONEWAY:
                return
            encoded = encode_reply(command, failure)
        self._served.append(encoded)
        self.writer.size += sum(map(len, encoded)) if isinstance(encoded, list) else len(encoded)

    def _end_turn(self) -> None:
        """Write the answers of the batch, and owe what is not settled; nothing of it is held afterwards."""
        if self._after_batch is not None:
            self._after_batch()
        served, self._served, out = self._served, [], self.writer.frames
        rejected: list[Outcome[Any]] = []
        for reply in served:
            if type(reply) is not Outcome:
                encoded = reply
            elif reply.is_dropped or not reply.is_settled:
                self._owe(reply)
                continue
            else:
                try:
                    given: Command | Encoded | None = (
                        self._encode(reply) if reply.encode is None else reply.encode(reply.request, reply)
                    )
                    encoded = given if type(given) is bytes else encode_reply(reply.request, given)
                except Exception as error:  # the fault boundary of a request, or its answer is too large to be sent
                    encoded = self._encode_failure(reply.request, error)
                if isinstance(reply.failure, StoreError) and reply.answer is not None:
                    rejected.append(reply)
            if isinstance(encoded, list):
                out += encoded
            else:
                out.append(encoded)
        if rejected and self.may_complain():
            log_rejected(rejected, self.peer)
        if out:
            self.writer.flush()

    def _encode(self, outcome: Outcome[Any]) -> Encoded:
        command: Command = outcome.request
        reply: Command | Encoded | None
        try:
            if outcome.encode is not None:
                reply = outcome.encode(command, outcome)
            elif outcome.failure is None:
                reply = outcome.answer
            else:
                return self._encode_failure(command, outcome.failure)
            return reply if isinstance(reply, (bytes, list)) else encode_reply(command, reply)
        except Exception as error:  # the fault boundary of a request, or its answer is too large to be sent
            return self._encode_failure(command, error)

    def _encode_failure(self, command: Command, error: Exception) -> Encoded:
        return encode_reply(command, failure_reply(command, error, self.peer, is_logged=self.may_complain()))

    def _owe(self, outcome: Outcome[Any]) -> None:
        """Keep an answer that cannot be given yet, if it is still wanted."""
        if outcome.is_dropped:
            return
        command: Command = outcome.request
        if len(self._owed) >= self._limits.max_owed_answers:
            outcome.drop()
            self.push(encode_reply(command, Command.response(ResponseCode.SYSTEM_BUSY, OVERLOAD)))
            return
        texts = command.ext_table
        if texts is None:
            command.ext_text = command.ext_text.copy()  # the text of the whole header would stay with it
            fields = len(command.ext_text)
        else:
            fields = sum(len(name) + len(text) for name, text in texts.items())
        texts_bytes = 2 * fields + len(command.remark or "")  # twice: as they came, and in the header read from them
        size = self._owed[outcome] = _OWED_BYTES + texts_bytes + len(command.body) + outcome.extra_bytes
        self._owed_bytes += size
        outcome.on_settled = self._pay

    def _check_unsent(self) -> None:
        unsent, limit = self.writer.unsent_bytes, self._limits.max_unsent_bytes
        if unsent > limit:
            self.cut_off(f"{unsent} bytes are unread, limit is {limit}")
        else:
            self._count()
