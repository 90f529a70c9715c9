"""The producer: messages in, places in the brokers' logs out.

    call            waits for            failed attempts
    send            the broker's answer  up to ``retries`` more, on another broker each time, within one time limit
    send to a queue the broker's answer  none: the queue was chosen
    send_nowait     nothing              without an answer: up to ``retries_nowait`` more to the same queue
    send_oneway     the socket           none, and nobody hears of a failure
    send_batch      the broker's answer  as ``send``, the batch as a whole
    request         a consumer's reply   as ``send``

What follows a failed attempt is in ``delivery.py``. All attempts carry one unique key, so a message that was stored
twice can be recognised.

A delayed message can be taken back before it is due (Java's ``recallMessage``): the handle that the send returned names
the broker that keeps the message. Brokers serve this only when they are set to (``recallMessageEnable``), and only for
``delay_ms`` and ``deliver_at_ms``.
"""

import asyncio
import os
import socket
from asyncio import _get_running_loop as running_loop  # pyright: ignore[reportPrivateUsage] # None, not an error, where no loop runs
from collections.abc import Awaitable, Coroutine, Iterable, Mapping, Sequence
from typing import Self

from ...common.clock import Clock
from ...common.codes import ResponseCode
from ...common.errors import DecodeError, ResponseError
from ...common.ids import UniqueIds, parse_recall_handle
from ...common.message import Message, MessageQueue, ReceivedMessage
from ...common.names import DLQ_PREFIX, RETRY_PREFIX
from ...remoting.bodies.client import ConsumerData
from ...remoting.codec.command import Command, decode_header
from ...remoting.codec.request_codes import RequestCode
from ...remoting.headers.message import RecallHeader, RecallReply
from ...remoting.transport.connection import Handler
from ...remoting.transport.event_loop import TaskScope
from ..session.callbacks import settle_future
from ..session.lifecycle import Lifecycle
from ..session.results import SendResult
from ..session.session import Session, borrow_session
from ..session.settings import ProducerSettings, check_group, check_topic, choose_settings
from .accumulator import Accumulator
from .delivery import Delivery
from .outgoing_message import OutgoingMessage, check_message, prepare_batch, prepare_message
from .queue_selection import Choice, Selector, choose_queue
from .request_reply import RequestReplies


class Producer:
    """Sends messages; use it with ``async with``, from one event loop.

        async with Producer("orders", nameserver="127.0.0.1:9876") as producer:
            result = await producer.send(Message("orders", b"42", tags="paid"))

    Without ``nameserver`` the environment variable NAMESRV_ADDR names it; with an open ``session`` it is shared.
    """

    def __init__(
        self,
        group: str,
        nameserver: str | None = None,
        *,
        settings: ProducerSettings | None = None,
        session: Session | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.group = check_group(group)
        self.settings = choose_settings(settings, ProducerSettings)
        self._session, self._entered = borrow_session(session, nameserver, self.settings, clock)
        self._delivery = Delivery(group, self._session, self.settings)
        self._deliver = self._delivery.deliver
        self._ids = UniqueIds(_packed_address(self._session.host), os.getpid(), self._session.clock.now_ms)
        self._unfinished: set[asyncio.Task[None]] = set()
        self._requests = RequestReplies(self._session, self.fetch_queues)
        self._tasks = TaskScope()
        self._lifecycle = Lifecycle(f"producer {group}")
        self._accumulator: Accumulator | None = None
        if self.settings.auto_batch:
            clock = self._session.clock
            self._accumulator = Accumulator(self.settings, clock, self._ids.next_id, self._deliver, self._start)

    def __repr__(self) -> str:
        return f"<Producer {self.group} {self._lifecycle.stage.name.lower()}, {len(self._delivery.topics)} topics>"

    async def __aenter__(self) -> Self:
        """Start; connections are made with the first send."""
        async with self._lifecycle.starting() as stack:
            await stack.enter_async_context(self._entered)
            await stack.enter_async_context(self._tasks)
            if self._delivery.observer is not None:
                await stack.enter_async_context(self._delivery.observer.attached(self.settings.hooks))
            self._session.join(self)
            stack.push_async_callback(self._stop)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Wait for the sends that are under way, which end within their time limits, and close."""
        await self._lifecycle.close()

    async def _stop(self) -> None:
        self._lifecycle.end()
        self._requests.close()
        if self._accumulator is not None:
            self._accumulator.send_all()
        try:
            if self._unfinished:
                await asyncio.wait(self._unfinished)
        finally:
            await self._session.leave(self)

    # sending

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        arg: object = None,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Send a message: to the next queue of the round, to ``queue``, or to the one that ``selector`` returns.

        Raises:
            TypeError, ValueError: the message cannot be sent by anyone.
            ResponseError: a broker refused it.
            RouteNotFoundError: no broker takes its topic.
            RemotingError: no broker answered in time.
            ClientStateError: the producer is not open.
        """
        if self._lifecycle.open_on is not running_loop():
            self._lifecycle.check()
        if self._accumulator is not None and timeout_ms is None and self._accumulator.takes(message):
            return await self._accumulate(self._accumulator, message, choose_queue(message, queue, selector, arg))
        outgoing = prepare_message(message, self._ids.next_id(), self.settings)
        choice = choose_queue(message, queue, selector, arg) if queue is not None or selector is not None else None
        return await self._deliver(outgoing, choice, timeout_ms)

    def send_nowait(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        arg: object = None,
        timeout_ms: int | None = None,
    ) -> asyncio.Future[SendResult]:
        """Begin to send a message and return the future that will have what ``send`` returns or raises.

        Another attempt follows only where no answer came, and goes to the same queue (Java's rules of asynchronous
        sends), so that an error of the broker is known at once. Closing the producer waits for the future.

        Raises:
            TypeError, ValueError: the message cannot be sent by anyone.
            ClientStateError: the producer is not open.
        """
        self._lifecycle.check()
        choice = choose_queue(message, queue, selector, arg)
        if self._accumulator is not None and timeout_ms is None and self._accumulator.takes(message):
            if selector is None:
                return self._accumulator.add(message, queue)
            delivery = self._accumulate(self._accumulator, message, choice)
        else:
            delivery = self._delivery.deliver_nowait(self._prepare(message), choice, timeout_ms)
        outcome: asyncio.Future[SendResult] = asyncio.get_running_loop().create_future()
        self._start(settle_future(outcome, delivery))
        return outcome

    async def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        arg: object = None,
    ) -> None:
        """Send a message once and do not ask what became of it.

        Raises:
            TypeError, ValueError: the message cannot be sent by anyone.
            RouteNotFoundError: no broker takes its topic.
            RemotingError: no name server or no connection was there in time.
            ClientStateError: the producer is not open.
        """
        self._lifecycle.check()
        choice = choose_queue(message, queue, selector, arg)
        await self._delivery.deliver_oneway(self._prepare(message), choice)

    async def send_batch(
        self, messages: Iterable[Message], *, queue: MessageQueue | None = None, timeout_ms: int | None = None
    ) -> SendResult:
        """Send messages of one topic as one request; all are stored or none. ``split_batch`` cuts larger lists.

        Raises:
            TypeError, ValueError: a message, or the batch as a whole, cannot be sent by anyone.
            ResponseError, RouteNotFoundError, RemotingError, ClientStateError: as ``send``.
        """
        self._lifecycle.check()
        if not isinstance(messages, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance] # callers without a checker
            one = "one Message; use send" if isinstance(messages, Message) else type(messages).__name__
            raise TypeError(f"send_batch takes several messages, not {one}")
        batch = list(messages)
        outgoing = prepare_batch(batch, self._ids.next_ids(len(batch) + 1), self.settings)
        return await self._deliver(outgoing, None if queue is None else lambda _: queue, timeout_ms)

    async def request(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        arg: object = None,
        timeout_ms: int | None = None,
    ) -> ReceivedMessage:
        """Send a message and return the reply of the consumer that got it (``reply_to``).

        Raises:
            ReplyTimeoutError: the message was sent, and nobody replied in time; it may still be consumed.
            TypeError, ValueError, ResponseError, RouteNotFoundError, RemotingError: as ``send``.
            ClientStateError: the producer is not open, or was closed before the reply came.
        """
        self._lifecycle.check()
        check_message(message, self.settings.max_message_bytes)
        choice = choose_queue(message, queue, selector, arg)

        def send(marked: Message, left_ms: int) -> Awaitable[SendResult]:
            return self._deliver(self._prepare(marked), choice, left_ms)

        deadline_ms = self._delivery.deadline_ms(timeout_ms)
        return await self._requests.ask(message, send, timeout_ms or self.settings.send_timeout_ms, deadline_ms)

    async def recall(self, topic: str, handle: str, *, timeout_ms: int | None = None) -> str:
        """Take a message with ``delay_ms`` or ``deliver_at_ms`` back before it is due; return its unique key.

        ``handle`` is the ``recall_handle`` of the send's result. Brokers serve this only where ``recallMessageEnable``
        is set.

        Raises:
            TypeError, ValueError: topic or handle is none.
            ResponseError: the broker refused it, for example since the message is due too soon.
            RouteNotFoundError, RemotingError, ClientStateError: as ``send``.
        """
        self._lifecycle.check()
        broker_name, deadline_ms = broker_of_handle(topic, handle), self._delivery.deadline_ms(timeout_ms)
        await self._delivery.round_robin_of(topic, deadline_ms)
        address = self._session.master_of(broker_name)
        command = recall_command(self.group, topic, handle)
        return read_recall_answer(await self._session.call(address, command, self._delivery.left_ms(deadline_ms)))

    async def fetch_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues that messages of a topic go to.

        Raises:
            RouteNotFoundError, RemotingError, ClientStateError: as ``send``.
        """
        self._lifecycle.check()
        return tuple((await self._delivery.round_robin_of(topic, self._delivery.deadline_ms(None))).queues)

    # what the session asks (``SessionMember``)

    @property
    def handlers(self) -> Mapping[int, Handler]:
        """What brokers may ask a producer."""
        return {}

    def topics(self) -> Sequence[str]:
        """Return the topics that were sent to."""
        return self._delivery.topics

    def consumer_data(self) -> ConsumerData | None:
        """Return None: heartbeats name a producer by its group alone."""
        return None

    def route_changed(self, topic: str) -> None:
        """Go on with the new publish list."""
        self._delivery.route_changed(topic)

    def members_changed(self) -> None:
        """Do nothing: producers share no queues."""

    # parts of a send

    def _prepare(self, message: Message) -> OutgoingMessage:
        return prepare_message(message, self._ids.next_id(), self.settings)

    async def _accumulate(self, accumulator: Accumulator, message: Message, choice: Choice | None) -> SendResult:
        queue = None
        if choice is not None:
            queue = choice(
                (await self._delivery.round_robin_of(message.topic, self._delivery.deadline_ms(None))).queues
            )
        if not self._lifecycle.is_open:  # closing waits for what has begun, but no more for batches
            return await self._deliver(self._prepare(message), choice, None)
        return await accumulator.add(message, queue)

    def _start(self, work: Coroutine[object, object, None]) -> None:
        """Start a piece of work that closing waits for."""
        task = self._tasks.start(work, name="send")
        self._unfinished.add(task)
        task.add_done_callback(self._unfinished.discard)


def _packed_address(host: str) -> bytes:
    """Return the address in a unique id; for a host with a name any will do, since the rest of the id is enough."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            return socket.inet_pton(family, host)
        except OSError:
            pass
    return socket.inet_aton("127.0.0.1")


def broker_of_handle(topic: str, handle: str) -> str:
    """Return the broker that keeps a delayed message.

    Raises:
        TypeError, ValueError: nothing can be recalled with topic and handle.
    """
    check_topic(topic)
    if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        raise ValueError(f"messages of {topic} cannot be recalled")
    if not isinstance(handle, str):  # pyright: ignore[reportUnnecessaryIsInstance] # callers without a checker
        raise TypeError(f"recall handle is {type(handle).__name__}, it must be the text that the send returned")
    try:
        return parse_recall_handle(handle).broker_name
    except DecodeError as error:
        raise ValueError(f"{handle!r} is not a recall handle that a send returned") from error


def recall_command(group: str, topic: str, handle: str) -> Command:
    """Return the request to take a message back."""
    header = RecallHeader(topic=topic, recall_handle=handle, producer_group=group)
    return Command.request(RequestCode.RECALL_MESSAGE, header)


def read_recall_answer(answer: Command) -> str:
    """Return the unique key of the message that was taken back.

    Raises:
        ResponseError: the broker did not take it back.
    """
    if answer.code != ResponseCode.SUCCESS:
        raise ResponseError(answer.code, answer.remark, request=RequestCode.RECALL_MESSAGE.name)
    return decode_header(RecallReply, answer).msg_id
