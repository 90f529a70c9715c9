"""The producer: messages in, places in the brokers' logs out.

    call            waits for            failed attempts
    send            the broker's answer  up to ``retries`` more, on another broker each time, within one time limit
    send to a queue the broker's answer  none: the queue was chosen
    send_nowait     nothing              as ``send``; its future has the result
    send_oneway     the socket           none, and nobody hears of a failure
    send_batch      the broker's answer  as ``send``, the batch as a whole

What follows a failed attempt is in ``attempts.py``. All attempts carry one unique key, so a message that was stored
twice can be recognised.
"""

import asyncio
import os
import socket
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from ..common.clock import Clock
from ..common.errors import RemotingError, ResponseError, RouteNotFoundError
from ..common.ids import UniqueIds
from ..common.message import Message, MessageQueue
from ..remoting.bodies_client import ConsumerData
from ..remoting.codes import RequestCode
from ..remoting.command import Command, decode_header
from ..remoting.headers_send import SendReply
from ..remoting.send_fields import SendFields
from ..remoting.service import Handler
from ..remoting.tasks import TaskScope
from .attempts import Attempts
from .life import Life
from .outgoing import Outgoing, prepare_batch, prepare_message
from .results import STATUS_OF_CODE, SendResult
from .routes import publish_queues
from .selection import QueueRound, Selector
from .session import Session, TemplateTopic, borrow_session
from .settings import ProducerSettings, check_group

Choice = Callable[[Sequence[MessageQueue]], MessageQueue]


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
        self.settings = settings or ProducerSettings()
        self._session, self._entered = borrow_session(session, nameserver, self.settings, clock)
        self._template = TemplateTopic(self.settings.template_topic, self.settings.new_topic_queues)
        self._fields = SendFields(group, self._template.name, self._template.max_queues)
        self._ids = UniqueIds(socket.inet_aton(self._session.host), os.getpid(), self._session.clock.now_ms)
        self._rounds: dict[str, QueueRound] = {}
        self._unfinished: set[asyncio.Task[None]] = set()
        self._tasks = TaskScope()
        self._stack = AsyncExitStack()
        self._life = Life(f"producer {group}")

    def __repr__(self) -> str:
        return f"<Producer {self.group} {self._life.stage.name.lower()}, {len(self._rounds)} topics>"

    async def __aenter__(self) -> Self:
        """Start; connections are made with the first send."""
        self._life.begin()
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._entered)
            await stack.enter_async_context(self._tasks)
            self._session.join(self)
            stack.push_async_callback(self._stop)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for the sends that are under way, which end within their time limits, and close."""
        await self._stack.aclose()

    async def _stop(self) -> None:
        self._life.end()
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
        self._life.check()
        return await self._deliver(self._prepare(message), _choice(message, queue, selector, arg), timeout_ms)

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

        Closing the producer waits for it.

        Raises:
            TypeError, ValueError: the message cannot be sent by anyone.
            ClientStateError: the producer is not open.
        """
        self._life.check()
        delivery = self._deliver(self._prepare(message), _choice(message, queue, selector, arg), timeout_ms)
        outcome: asyncio.Future[SendResult] = asyncio.get_running_loop().create_future()
        task = self._tasks.start(_settle(outcome, delivery), name="send")
        self._unfinished.add(task)
        task.add_done_callback(self._unfinished.discard)
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
        self._life.check()
        outgoing = self._prepare(message)
        deadline_ms = self._deadline_ms(None)
        queue_round = await self._round_of(outgoing.topic, deadline_ms)
        target = _choice(message, queue, selector, arg)
        chosen = queue_round.next_queue() if target is None else target(queue_round.queues)
        address = self._session.master_of(chosen.broker_name)
        await self._session.call_oneway(address, self._command(outgoing, chosen), self._left_ms(deadline_ms))

    async def send_batch(
        self, messages: Iterable[Message], *, queue: MessageQueue | None = None, timeout_ms: int | None = None
    ) -> SendResult:
        """Send messages of one topic as one request; all are stored or none. ``split_batch`` cuts larger lists.

        Raises:
            TypeError, ValueError: a message, or the batch as a whole, cannot be sent by anyone.
            ResponseError, RouteNotFoundError, RemotingError, ClientStateError: as ``send``.
        """
        self._life.check()
        batch = list(messages)
        outgoing = prepare_batch(batch, [self._ids.next_id() for _ in range(len(batch) + 1)], self.settings)
        return await self._deliver(outgoing, None if queue is None else lambda _: queue, timeout_ms)

    async def fetch_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues that messages of a topic go to.

        Raises:
            RouteNotFoundError, RemotingError, ClientStateError: as ``send``.
        """
        self._life.check()
        return tuple((await self._round_of(topic, self._deadline_ms(None))).queues)

    # what the session asks (``Participant``)

    @property
    def handlers(self) -> Mapping[int, Handler]:
        """What brokers may ask a producer."""
        return {}

    def topics(self) -> Sequence[str]:
        """Return the topics that were sent to."""
        return tuple(self._rounds)

    def consumer_data(self) -> ConsumerData | None:
        """Return None: heartbeats name a producer by its group alone."""
        return None

    def route_changed(self, topic: str) -> None:
        """Go on with the new publish list; an empty one is looked up again by the next send."""
        route, queue_round = self._session.routes.get(topic), self._rounds.get(topic)
        if route is None or queue_round is None:
            return
        queues = publish_queues(topic, route)
        if queues:
            queue_round.queues = queues
        else:
            del self._rounds[topic]

    def members_changed(self) -> None:
        """Do nothing: producers share no queues."""

    # one delivery

    def _prepare(self, message: Message) -> Outgoing:
        return prepare_message(message, self._ids.next_id(), self.settings)

    async def _deliver(self, outgoing: Outgoing, choice: Choice | None, timeout_ms: int | None) -> SendResult:
        deadline_ms = self._deadline_ms(timeout_ms)
        queue_round = self._rounds.get(outgoing.topic) or await self._round_of(outgoing.topic, deadline_ms)
        if choice is None:
            return await self._send_around(outgoing, queue_round, deadline_ms)
        return await self._attempt(outgoing, choice(queue_round.queues), self._left_ms(deadline_ms))

    async def _send_around(self, outgoing: Outgoing, queue_round: QueueRound, deadline_ms: int) -> SendResult:
        attempts = Attempts(retries_bad_status=self.settings.tries_another_broker_when_not_stored_ok)
        for _ in range(1 + self.settings.retries):
            left_ms = deadline_ms - self._session.clock.now_ms()
            if left_ms <= 0:
                break
            queue = queue_round.next_queue(attempts.failed_broker)
            try:
                result = await self._attempt(outgoing, queue, left_ms)
            except (RemotingError, RouteNotFoundError, ResponseError) as error:
                if not attempts.may_follow(queue, error):
                    break
            else:
                if attempts.ends_with(result):
                    return result
        return attempts.outcome()

    async def _attempt(self, outgoing: Outgoing, queue: MessageQueue, timeout_ms: int) -> SendResult:
        address = self._session.master_of(queue.broker_name)
        answer = await self._session.call(address, self._command(outgoing, queue), timeout_ms)
        return _read_answer(answer, outgoing, queue)

    def _command(self, outgoing: Outgoing, queue: MessageQueue) -> Command:
        fields = self._fields.encode(outgoing, queue, self._session.clock.now_ms())
        code = RequestCode.SEND_BATCH_MESSAGE if outgoing.is_batch else RequestCode.SEND_MESSAGE_V2
        return Command.request(code, fields, outgoing.body)

    async def _round_of(self, topic: str, deadline_ms: int) -> QueueRound:
        queue_round = self._rounds.get(topic)
        if queue_round is not None:
            return queue_round
        route = await self._session.route(topic, self._left_ms(deadline_ms), self._template)
        queues = publish_queues(topic, route)
        if not queues:
            await self._session.refresh(topic, self._left_ms(deadline_ms))
            queues = publish_queues(topic, self._session.routes.get(topic) or route)
        if not queues:
            raise RouteNotFoundError(f"no broker takes messages of the topic {topic} now")
        return self._rounds.setdefault(topic, QueueRound(queues))

    def _deadline_ms(self, timeout_ms: int | None) -> int:
        return self._session.clock.now_ms() + (self.settings.send_timeout_ms if timeout_ms is None else timeout_ms)

    def _left_ms(self, deadline_ms: int) -> int:
        return max(1, deadline_ms - self._session.clock.now_ms())


def _choice(message: Message, queue: MessageQueue | None, selector: Selector | None, arg: object) -> Choice | None:
    """Return how the caller chose the queue, or None for the round."""
    if queue is None:
        return None if selector is None else lambda queues: selector(queues, message, arg)
    if selector is not None:
        raise ValueError("give queue or selector, not both")
    if queue.topic != message.topic:
        raise ValueError(f"the message is of topic {message.topic}, the queue of {queue.topic}")
    return lambda _queues: queue


def _read_answer(answer: Command, outgoing: Outgoing, queue: MessageQueue) -> SendResult:
    status = STATUS_OF_CODE.get(answer.code)
    if status is None:
        raise ResponseError(answer.code, answer.remark)
    reply = decode_header(SendReply, answer)
    return SendResult(
        status=status,
        message_id=outgoing.message_id,
        offset_message_id=reply.msg_id,
        queue=queue if queue.queue_id == reply.queue_id else queue._replace(queue_id=reply.queue_id),
        queue_offset=reply.queue_offset,
        transaction_id=reply.transaction_id,
        region_id=reply.region,
        is_traced=reply.trace_on != "false",
        recall_handle=reply.recall_handle,
    )


async def _settle(outcome: asyncio.Future[SendResult], delivery: Coroutine[object, object, SendResult]) -> None:
    """Put what a delivery returns or raises into a future."""
    try:
        result = await delivery
    except asyncio.CancelledError:
        outcome.cancel()
        raise
    except Exception as error:  # the fault boundary of one send: whatever it raises is for its caller
        if not outcome.done():
            outcome.set_exception(error)
    else:
        if not outcome.done():
            outcome.set_result(result)
