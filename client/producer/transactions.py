"""The producer of messages that are delivered if a local transaction succeeds (Java's ``TransactionMQProducer``).

    1. The message is sent as a half message, which no consumer sees.
    2. ``listener.execute(message, arg)`` does the local part, such as a change in a database, and says how it ended.
    3. The broker is told, without an answer: it delivers the message, drops it, or leaves it open.
    4. About a message that stays open the broker asks the producers of the group, again and again (every 30 s and 15
       times, unless set otherwise): ``listener.check(message)`` says what has become of it.

    execute or check ...                          the outcome is
    COMMIT, ROLLBACK, UNKNOWN                     that
    None, anything else, an exception (logged)    UNKNOWN
    not called: the half message was stored,
    but not SEND_OK                               ROLLBACK

Whatever fails in step 3 is repaired by step 4. Step 4 asks any member of the group, also one that has not sent the
message: a producer is known to all brokers with the template topic or one of its ``topics`` from its start on.

    state       Java's                on the wire
    COMMIT      COMMIT_MESSAGE        8     the message is delivered
    ROLLBACK    ROLLBACK_MESSAGE      12    it is dropped
    UNKNOWN     UNKNOW                0     the broker will ask

Checks wait for their turn (``checkRequestQueue`` of Java's producer). One that finds too many before it is dropped: the
broker asks again. So is one that still waits when the producer closes.
"""

import asyncio
import enum
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, Self

import msgspec

from ...common.clock import Clock
from ...common.codes import ResponseCode
from ...common.errors import RocketletError
from ...common.ids import format_address, parse_offset_id
from ...common.message import TRANSACTION_COMMIT, TRANSACTION_NONE, TRANSACTION_ROLLBACK, Message, ReceivedMessage
from ...common.message import TRANSACTION_PREPARED as PREPARED_BIT
from ...common.properties import PRODUCER_GROUP, TRANSACTION_PREPARED, UNIQ_KEY
from ...common.record import decode_record
from ...common.record_messages import decode_message
from ...remoting.codec.command import Command, decode_header
from ...remoting.codec.request_codes import RequestCode
from ...remoting.headers.message import CheckTransactionHeader, EndTransactionHeader
from ...remoting.transport.connection import Connection, Handler
from ...remoting.transport.event_loop import TaskScope
from ..session.callbacks import CallbackRunner
from ..session.hooks import EndTransactionContext
from ..session.lifecycle import InFlightCount
from ..session.results import SendResult, SendStatus
from ..session.session import Session
from ..session.settings import TransactionProducerSettings, choose_settings
from .outgoing_message import check_message
from .producer import Producer

_log = logging.getLogger(__name__)

INTRODUCTION_MS = 3_000


class TransactionState(enum.Enum):
    """What has become of a local transaction (Java's ``LocalTransactionState``, whose names are the values)."""

    COMMIT = "COMMIT_MESSAGE"
    ROLLBACK = "ROLLBACK_MESSAGE"
    UNKNOWN = "UNKNOW"

    @property
    def code(self) -> int:
        """The number in END_TRANSACTION (37)."""
        return _CODES[self]


_CODES = {
    TransactionState.COMMIT: TRANSACTION_COMMIT,
    TransactionState.ROLLBACK: TRANSACTION_ROLLBACK,
    TransactionState.UNKNOWN: TRANSACTION_NONE,
}


class TransactionOutcome(NamedTuple):
    """What a listener has said, or raised."""

    state: TransactionState
    error: Exception | None = None


class TransactionResult(SendResult, frozen=True, kw_only=True):
    """Where the half message was stored, what the listener said, and the error if it raised one."""

    state: TransactionState
    error: Exception | None = None

    @classmethod
    def of(cls, sent: SendResult, outcome: TransactionOutcome) -> Self:
        """Join the two."""
        return cls(**msgspec.structs.asdict(sent), state=outcome.state, error=outcome.error)


async def outcome_of(answering: Awaitable[TransactionState | None], message_id: str | None) -> TransactionOutcome:
    """Return what a call of a listener comes to; cancelled from within it is UNKNOWN as well."""
    try:
        answer = await answering
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        _log.warning("a transaction listener was cancelled from within; message %s stays open", message_id)
        return TransactionOutcome(TransactionState.UNKNOWN)
    except Exception as error:  # fault boundary of the user's code: the message stays open
        _log.exception("a transaction listener failed; message %s stays open", message_id)
        return TransactionOutcome(TransactionState.UNKNOWN, error)
    if answer is not None and not isinstance(answer, TransactionState):  # pyright: ignore[reportUnnecessaryIsInstance] # user code
        _log.error("a transaction listener returned %r; message %s stays open", answer, message_id)
        return TransactionOutcome(TransactionState.UNKNOWN)
    return TransactionOutcome(TransactionState.UNKNOWN if answer is None else answer)


class TransactionCheck(NamedTuple):
    """What has become of this message? The answer goes back on the connection."""

    header: CheckTransactionHeader
    message: ReceivedMessage
    connection: Connection


class TransactionCheckQueue:
    """Answers questions, a few at a time."""

    def __init__(
        self, settings: TransactionProducerSettings, answer: Callable[[TransactionCheck], Awaitable[None]]
    ) -> None:
        self._workers = settings.checks_at_once
        self._answer = answer
        self._waiting: asyncio.Queue[TransactionCheck] = asyncio.Queue(settings.max_waiting_checks)
        self._is_closing = False

    def __repr__(self) -> str:
        return f"<TransactionCheckQueue {self._waiting.qsize()} waiting>"

    def start(self, scope: TaskScope) -> None:
        """Start to answer."""
        for number in range(self._workers):
            scope.start(self._work(), name=f"check-{number}")

    def submit(self, question: TransactionCheck) -> None:
        """Let a question wait for its turn."""
        if self._is_closing:
            return
        try:
            self._waiting.put_nowait(question)
        except asyncio.QueueFull:
            _log.warning(
                "transaction check of message %s dropped, queue is full: %r", question.message.message_id, self
            )

    def stop(self) -> None:
        """Begin no more answers."""
        self._is_closing = True

    async def _work(self) -> None:
        while True:
            question = await self._waiting.get()
            if not self._is_closing:
                await self._answer(question)


Answer = TransactionState | None
Execute = Callable[[Message, Any], Awaitable[Answer] | Answer]
Check = Callable[[ReceivedMessage], Awaitable[Answer] | Answer]


class TransactionListener(Protocol):
    """What the application does for a transaction (Java's class of this name); both may be plain or async."""

    def execute(self, message: Message, arg: Any, /) -> Awaitable[Answer] | Answer:  # the caller's own
        """Do the local transaction; ``message.message_id`` is what ``check`` will see again."""
        ...

    def check(self, message: ReceivedMessage, /) -> Awaitable[Answer] | Answer:
        """Say what has become of a local transaction, which may still be running."""
        ...


@dataclass(frozen=True, slots=True)
class TransactionFunctions:
    """A ``TransactionListener`` of two functions."""

    execute: Execute
    check: Check


class TransactionProducer(Producer):
    """A producer that also sends messages in transactions; use it with ``async with``, from one event loop.

        async with TransactionProducer("orders", "127.0.0.1:9876", listener=Orders()) as producer:
            result = await producer.send_in_transaction(Message("orders", b"42"), order)

    Plain functions of the listener run in threads. Closing waits for those that run, ``close_timeout_ms`` at most.
    """

    def __init__(
        self,
        group: str,
        nameserver: str | None = None,
        *,
        listener: TransactionListener,
        topics: Sequence[str] = (),
        settings: TransactionProducerSettings | None = None,
        session: Session | None = None,
        clock: Clock | None = None,
    ) -> None:
        for name in ("execute", "check"):
            if not callable(getattr(listener, name, None)):
                raise TypeError(f"the listener is {type(listener).__name__}, it must have the function {name}")
        self._plan = choose_settings(settings, TransactionProducerSettings)
        super().__init__(group, nameserver, settings=self._plan, session=session, clock=clock)
        self._listener = listener
        self._own_topics = (self._plan.template_topic, *topics)
        self._calls = CallbackRunner(self._plan.listener_threads, "rocketlet-transaction")
        self._in_flight = InFlightCount()
        self._checks = TransactionCheckQueue(self._plan, self._answer_check)

    async def __aenter__(self) -> Self:
        """Start, and be known to the brokers that may have questions, if they can be reached in 3 s."""
        await super().__aenter__()
        try:
            self._checks.start(self._tasks)
            await self._introduce()
        except BaseException:
            await self._lifecycle.close()
            raise
        return self

    async def _stop(self) -> None:
        self._lifecycle.end()
        self._checks.stop()
        try:
            async with self._session.clock.timeout(self._plan.close_timeout_ms):
                await self._in_flight.wait_idle()
        except TimeoutError:
            _log.warning(
                "%r closes while its listener still runs, brokers will check with another producer of the group", self
            )
        try:
            await super()._stop()
        finally:
            self._calls.close()

    # sending

    async def send_in_transaction(
        self, message: Message, arg: object = None, *, timeout_ms: int | None = None
    ) -> TransactionResult:
        """Send a message that is delivered if the listener's ``execute(message, arg)`` returns ``COMMIT``.

        A delay of the message is dropped, as in Java: it is delivered with its commit. When this is cancelled while
        the listener runs, the outcome is left to a check.

        Raises:
            TypeError, ValueError, ResponseError, RouteNotFoundError, RemotingError, ClientStateError: as ``send``; the
                listener was not called.
        """
        self._lifecycle.check()
        check_message(message, self.settings.max_message_bytes)
        with self._in_flight:
            half = self._mark(message)
            outgoing = self._prepare(half)
            prepared = msgspec.structs.replace(outgoing, sys_flag=outgoing.sys_flag | PREPARED_BIT)
            sent = await self._deliver(prepared, None, timeout_ms)
            if sent.status is SendStatus.SEND_OK:
                outcome = await outcome_of(self._calls.call(self._listener.execute, half, arg), half.message_id)
            else:
                _log.warning(
                    "message %s: rolling back the transaction, send status %s", sent.message_id, sent.status.value
                )
                outcome = TransactionOutcome(TransactionState.ROLLBACK)
            await self._end(half, sent, outcome)
        return TransactionResult.of(sent, outcome)

    def _mark(self, message: Message) -> Message:
        about = {TRANSACTION_PREPARED: "true", PRODUCER_GROUP: self.group}
        properties = {UNIQ_KEY: self._ids.next_id(), **message.properties, **about}
        return replace(message, properties=properties, delay_level=0, delay_ms=None, deliver_at_ms=None)

    async def _end(self, half: Message, sent: SendResult, outcome: TransactionOutcome) -> None:
        """Tell the broker the outcome; when that fails, it will ask."""
        try:
            header = EndTransactionHeader(
                topic=sent.queue.topic,
                producer_group=self.group,
                half_offset=sent.queue_offset,
                log_offset=parse_offset_id(sent.offset_message_id)[1],
                outcome=outcome.state.code,
                is_from_check=False,
                message_id=sent.message_id,
                transaction_id=sent.transaction_id,
                broker_name=sent.queue.broker_name,
            )
            address = self._session.master_of(sent.queue.broker_name)
            self._tell_hooks(half, header, outcome, address)
            await self._session.call_oneway(address, _end_command(header, outcome), self.settings.send_timeout_ms)
        except (RocketletError, OSError) as error:
            _log.warning(
                "message %s: ending the transaction failed, the broker will check it later: %s", sent.message_id, error
            )

    # checks

    @property
    def handlers(self) -> Mapping[int, Handler]:
        """What brokers may ask a producer of transactions."""
        return {**super().handlers, RequestCode.CHECK_TRANSACTION_STATE: self._serve_check}

    def topics(self) -> Sequence[str]:
        """Return the topics that were sent to, and those whose brokers may have questions."""
        return (*super().topics(), *self._own_topics)

    def _serve_check(self, command: Command, connection: Connection) -> Command | None:
        header = decode_header(CheckTransactionHeader, command)
        message = decode_message(decode_record(command.body), header.broker_name or "")
        message = self._session.namespace.strip_message(message)
        if message.properties.get(PRODUCER_GROUP) != self.group:
            return None
        self._checks.submit(TransactionCheck(header, message, connection))
        return Command.response(ResponseCode.SUCCESS)  # which is not sent: it asks one-way

    async def _answer_check(self, question: TransactionCheck) -> None:
        about, message = question.header, question.message
        with self._in_flight:
            outcome = await outcome_of(self._calls.call(self._listener.check, message), message.message_id)
        header = EndTransactionHeader(
            topic=about.topic,
            producer_group=self.group,
            half_offset=about.half_offset,
            log_offset=about.log_offset,
            outcome=outcome.state.code,
            is_from_check=True,
            message_id=message.message_id,
            transaction_id=about.transaction_id,
            broker_name=about.broker_name,
        )
        self._tell_hooks(message, header, outcome, format_address(*question.connection.remote_address))
        self._session.send_on(question.connection, _end_command(header, outcome))

    def _tell_hooks(
        self,
        message: Message | ReceivedMessage,
        header: EndTransactionHeader,
        outcome: TransactionOutcome,
        address: str,
    ) -> None:
        if self._delivery.observer is None:
            return
        context = EndTransactionContext(
            group=self.group,
            message=message,
            message_id=header.message_id,
            transaction_id=header.transaction_id,
            address=address,
            state=outcome.state.value,
            is_from_check=bool(header.is_from_check),
            ended_at_ms=self._session.clock.now_ms(),
        )
        self._delivery.observer.end_transaction(context)

    async def _introduce(self) -> None:
        try:
            async with self._session.clock.timeout(INTRODUCTION_MS):
                for topic in self._own_topics:
                    await self._find_brokers(topic)
                await self._session.heartbeat()
        except TimeoutError:
            _log.warning("%r: first heartbeat timed out after %d ms, brokers get it later", self, INTRODUCTION_MS)

    async def _find_brokers(self, topic: str) -> None:
        try:
            await self._session.route(topic, INTRODUCTION_MS)
        except RocketletError as error:
            _log.info("producer group %s: no heartbeat yet to the brokers of topic %s: %s", self.group, topic, error)


def _end_command(header: EndTransactionHeader, outcome: TransactionOutcome) -> Command:
    command = Command.request(RequestCode.END_TRANSACTION, header)
    if outcome.error is not None:
        command.remark = f"{type(outcome.error).__name__}: {outcome.error}"
    return command
