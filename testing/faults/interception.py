"""Stands before the handlers of a server: notes what is asked, does to it what a test wants, holds back who is cut off.

A handler that runs here and now, in the read that brought its request, answers as ever: the connection calls
``after_batch`` when the batch is over, which commits what was appended, and ``after_read`` when its answers are
written, which makes it readable. What is served later, after a delay or a partition, is served here: both are called
behind it, and the answer that the connection owes follows what comes of it.
"""

import os
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from ...common.clock import Clock, TimerHandle
from ...common.codes import ResponseCode
from ...common.outcome import NO_ANSWER_WANTED, Outcome
from ...remoting.codec.command import Command
from ...remoting.codec.error_replies import describe_failure, describe_request, failure_reply
from ...remoting.codec.frames import NO_ANSWER, Encoded
from ...remoting.codec.request_codes import RequestCode
from ...remoting.transport.connection import Connection, Reply, RequestHandlers
from ..views.client_requests import ANSWER_LOST, CLOSED, DROPPED, ClientLink, RecordedRequest, RequestLog, read_fields
from ..views.unknown_names import UnknownNameError
from .broker_errors import BrokerErrors
from .partition import Partition
from .request_faults import Fault, FaultBook, InjectedFault

OWN_MARK: Final = "asked by the test fixture"
"""The remark of requests that are no client's: they are neither noted nor met by faults."""
Encode = Callable[[Command, Outcome[Any]], Command | Encoded | None]
_AT_ONCE: Final = struct.pack("ii", 1, 0)  # linger for no time: the other end gets a reset


class BrokerIdentity(NamedTuple):
    """The name of a broker, and its number among those of this name: 0 for a master."""

    name: str
    broker_id: str

    def __str__(self) -> str:
        """Return what people call it."""
        return self.name if self.broker_id == "0" else f"{self.name}-{self.broker_id}"


class Interception:
    """What stands before one server; lives on its loop. ``around`` is for ``Broker`` and ``NameServer``."""

    def __init__(self, server: str, faults: FaultBook, log: RequestLog, errors: BrokerErrors, clock: Clock) -> None:
        self._server = server
        self._faults = faults
        self._log = log
        self._errors = errors
        self._clock = clock
        self._handlers = RequestHandlers()
        self._links: dict[Connection, ClientLink] = {}
        self._partitions: list[Partition] = []
        self._late: set[TimerHandle] = set()
        self._is_over = False
        self._killed: set[BrokerIdentity] = set()

    def __repr__(self) -> str:
        return f"<Interception of {self._server}, {len(self._links)} connections, {len(self._partitions)} partitions>"

    def around(self, handlers: RequestHandlers) -> RequestHandlers:
        """Return handlers that pass through here, for a server that starts."""
        self._handlers, self._is_over = handlers, False
        return replace(handlers, by_code={}, fallback=self.serve)

    def heal_all(self) -> None:
        """Let everything pass that was held back."""
        for partition in list(self._partitions):
            self.heal(partition)

    def end(self, *, resets: bool = False) -> None:
        """Serve nothing any more, neither what is late; with ``resets`` reset the connections as a kill does."""
        self._is_over = True
        for timer in self._late:
            timer.cancel()
        self._late.clear()
        for connection in list(self._links) if resets else ():
            _reset(connection)
        self.heal_all()

    def answer_for(self, broker: BrokerIdentity) -> None:
        """Leave a broker that has been killed in the routes, whatever its remains say, until it starts again."""
        self._killed.add(broker)

    def hear_again(self, broker: BrokerIdentity) -> None:
        """Take a broker at its word again."""
        self._killed.discard(broker)

    def cut_off(self, client_id: str) -> Partition:
        """Let nothing pass between the server and a client until ``heal``.

        Raises:
            UnknownNameError: no client of this id has said anything here.
        """
        mine = {connection: link for connection, link in self._links.items() if link.client == client_id}
        if not mine:
            known = sorted({link.client for link in self._links.values() if link.client})
            raise UnknownNameError(f"no client {client_id!r} is connected, these are: {', '.join(known) or 'none'}")
        others = [link.groups for link in self._links.values() if link.client != client_id]
        groups = set[str]().union(*(link.groups for link in mine.values())).difference(*others)
        partition = Partition(client_id, frozenset(groups))
        for connection in mine:
            partition.hold(connection)
        self._partitions.append(partition)
        return partition

    def heal(self, partition: Partition) -> None:
        """Let everything pass that was held back, and what comes."""
        if partition not in self._partitions:
            return
        self._partitions.remove(partition)
        partition.let_answers_out()
        for held in () if self._is_over else partition.parked:
            self._serve_late(held.command, held.connection, held.outcome)
        partition.let_requests_in()

    # one request

    def serve(self, command: Command, connection: Connection) -> Reply:
        """Note a request and serve it, unless a fault or a partition has it otherwise."""
        if self._is_over:
            connection.abort()
            return NO_ANSWER_WANTED
        if command.remark == OWN_MARK:
            return self._handlers.by_code.get(command.code, self._handlers.fallback)(command, connection)
        if self._killed and _is_goodbye_of(command, self._killed):
            return Command.response(ResponseCode.SUCCESS)
        link = self._links.get(connection) or self._add(connection)
        if link.is_closing:
            return NO_ANSWER_WANTED
        for partition in self._partitions:
            if partition.is_of(connection, link, command):
                return partition.park(command, connection)
        return self._meet(command, connection)

    def _add(self, connection: Connection) -> ClientLink:
        link = self._links[connection] = ClientLink(connection.peer)
        connection.on_close(self._forget)
        return link

    def _forget(self, connection: Connection) -> None:
        self._links.pop(connection).end()

    def _meet(self, command: Command, connection: Connection) -> Reply:
        link = self._links.get(connection) or ClientLink(connection.peer)  # one whose connection has ended meanwhile
        request = RecordedRequest.of(command, self._server, link, self._clock.now_ms())
        self._log.add(request)
        fault = self._faults.meet(request)
        if fault is None:
            return self._pass_on(request, command, connection)
        if not fault.rule.delay_ms:
            return self._do(fault, request, command, connection)
        outcome: Outcome[Any] = Outcome()
        work = partial(self._do, fault, request, command, connection)
        self._call_later(fault.rule.delay_ms, partial(self._settle, outcome, command, connection, work))
        return outcome

    def _do(self, fault: InjectedFault, request: RecordedRequest, command: Command, connection: Connection) -> Reply:
        answer = fault.rule.answer
        if answer is Fault.DROP:
            request.give_up(DROPPED)
            return NO_ANSWER_WANTED
        if answer is Fault.CLOSE:
            request.give_up(CLOSED)
            request.link.is_closing = True
            connection.close()
            return NO_ANSWER_WANTED
        if answer is Fault.LOSE_ANSWER:
            request.give_up(ANSWER_LOST)
            return self._lose_answer(request, command, connection)
        if answer is None:
            return self._pass_on(request, command, connection)
        request.take_code(answer, fault.rule.remark)
        return Command.response(answer, fault.rule.remark)

    def _lose_answer(self, request: RecordedRequest, command: Command, connection: Connection) -> Reply:
        try:
            reply = self._pass_on(request, command, connection)
        except Exception as error:  # the fault boundary of a request: what it failed with is not answered either
            failure_reply(command, error, connection.peer)
            return NO_ANSWER_WANTED
        if type(reply) is Outcome and not reply.is_dropped:
            reply.request = command
            if reply.is_settled:
                _encode_lost(reply)
            else:
                reply.on_settled = _encode_lost
        return NO_ANSWER_WANTED

    def _pass_on(self, request: RecordedRequest, command: Command, connection: Connection) -> Reply:
        handler = self._handlers.by_code.get(command.code, self._handlers.fallback)
        try:
            reply = handler(command, connection)
        except Exception as error:  # it is the connection's to answer
            self._note_failure(request, command, error)
            raise
        if type(reply) is not Outcome:
            request.take_answer(reply)
        elif not reply.is_dropped:
            reply.encode = partial(self._note_answer, request, reply.encode)
        return reply

    def _note_answer(
        self, request: RecordedRequest, encode: Encode | None, command: Command, outcome: Outcome[Any]
    ) -> Command | Encoded | None:
        """Write the answer of an outcome as the connection does, and note it."""
        try:
            if encode is not None:
                answer = encode(command, outcome)
            elif outcome.failure is not None:
                raise outcome.failure
            else:
                answer = outcome.answer
        except Exception as error:  # it is the connection's to answer
            self._note_failure(request, command, error)
            raise
        request.take_answer(answer)
        return answer

    def _note_failure(self, request: RecordedRequest, command: Command, error: Exception) -> None:
        request.take_code(ResponseCode.SYSTEM_ERROR, describe_failure(error))
        self._errors.note(error, f"{self._server} failed to serve {describe_request(command, request.link.peer)}")

    # what is served later

    def _call_later(self, delay_ms: int, work: "partial[None]") -> None:
        def run() -> None:
            self._late.discard(timer)
            work()

        timer = self._clock.call_at(self._clock.monotonic_ms() + delay_ms, run)
        self._late.add(timer)

    def _serve_late(self, command: Command, connection: Connection, outcome: Outcome[Any]) -> None:
        self._settle(outcome, command, connection, partial(self._meet, command, connection))

    def _settle(self, outcome: Outcome[Any], command: Command, connection: Connection, work: "partial[Reply]") -> None:
        """Serve outside of a read, as if one had brought the request: committed first, read after the answer."""
        try:
            reply = work()
        except Exception as error:  # the fault boundary of a request: the connection answers and logs it
            if command.is_oneway:
                failure_reply(command, error)  # nobody is answered, but it is logged
            outcome.fail(error)
            return
        if self._handlers.after_batch is not None:
            self._handlers.after_batch()
        _follow(outcome, command, reply)
        if self._handlers.after_read is not None:
            self._handlers.after_read(connection, 1)


def _is_goodbye_of(command: Command, brokers: set[BrokerIdentity]) -> bool:
    if command.code != RequestCode.UNREGISTER_BROKER:
        return False
    fields = read_fields(command)
    return BrokerIdentity(fields.get("brokerName", ""), fields.get("brokerId", "")) in brokers


def _reset(connection: Connection) -> None:
    """Close a connection as the system does for a process that was killed while something was on its way to it."""
    if connection.descriptor >= 0 and not connection.is_closed:
        with socket.socket(fileno=os.dup(connection.descriptor)) as same:
            same.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
    connection.abort()


def _follow(outcome: Outcome[Any], command: Command, reply: Reply) -> None:
    if type(reply) is not Outcome:
        outcome.answer_with(reply if reply is not None else Command.response(ResponseCode.SYSTEM_ERROR, NO_ANSWER))
    elif outcome.is_dropped:
        reply.drop()  # nobody is left
    elif reply.is_dropped:
        outcome.drop()
    else:
        reply.request, outcome.encode = command, partial(_encode_as, reply)
        outcome.follow(reply)


def _encode_as(other: Outcome[Any], command: Command, outcome: Outcome[Any]) -> Command | Encoded | None:
    """Write an answer as that of the outcome that it follows, which may not know how before it is settled."""
    if other.encode is not None:
        return other.encode(command, outcome)
    if outcome.failure is not None:
        raise outcome.failure
    return outcome.answer


def _encode_lost(outcome: Outcome[Any]) -> None:
    """Find out what an answer is that nobody gets."""
    assert outcome.encode is not None, "it is what notes the answer"
    with suppress(Exception):  # noted as well
        outcome.encode(outcome.request, outcome)
