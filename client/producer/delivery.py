"""How a prepared message gets to a broker: which queue, how often, how long.

    call              queue                                  attempts
    deliver           the next of the round, or as chosen    ``retries`` more on other brokers; one when it was chosen
    deliver_nowait    the same                               ``retries_nowait`` more where no answer came, same queue
    deliver_oneway    the same                               one, without an answer

All attempts share one time limit; ``attempt_timeout_ms`` limits each of those that may be followed by another.

What follows an attempt (Java's ``DefaultMQProducerImpl.sendDefaultImpl``):

    SEND_OK                                       result
    another status                                result, or the next attempt when the settings say so
    no connection, no answer, no known address    next attempt
    an error code of ``RETRIED_CODES``            next attempt
    any other error code                          the error, or the status of an earlier attempt

When attempts or time run out: the last status that was not SEND_OK, else the last error, with a note that lists all
attempts. The order of the queues is in ``queue_selection.py``. Hooks go around each attempt; a producer without hooks
does nothing of it.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager

import msgspec

from ...common.errors import ClientError, RemotingError, RequestTimeoutError, ResponseError, RouteNotFoundError
from ...common.message import MessageQueue
from ...common.properties import encode_properties, parse_properties
from ...common.record import BatchPart, decode_batch, encode_batch
from ...remoting.codec.codes import ResponseCode
from ...remoting.codec.command import Command
from ...remoting.headers.send import SendFields, SendFrames
from ...remoting.transport.connection import Connection
from ...remoting.transport.pending_requests import Answer
from ..session.hooks import (
    EndTransactionContext,
    EndTransactionHook,
    ForbiddenHook,
    HookOwner,
    HookSource,
    Role,
    SendContext,
    SendHook,
    SentMessage,
    attach_hooks,
    hooks_of,
    tell_hooks,
)
from ..session.results import SendResult, SendStatus, read_send_answer
from ..session.routes import TopicRoute, limit_queues, publish_queues
from ..session.session import Session
from ..session.settings import ProducerSettings
from .outgoing_message import OutgoingMessage
from .queue_selection import Choice, LatencyAwareRoundRobin, QueueRoundRobin, SlowBrokers

Attempt = Callable[[OutgoingMessage, MessageQueue, int], Awaitable[SendResult]]


def sees_sends(hooks: Iterable[object]) -> bool:
    """Tell whether one of the hooks of a producer has to do with its sends, or may turn out to."""
    return any(isinstance(hook, SendHook | ForbiddenHook | EndTransactionHook | HookSource) for hook in hooks)


class SendObserver:
    """The hooks of one producer, around its attempts."""

    def __init__(self, session: Session, group: str, attempt: Attempt) -> None:
        self._session = session
        self._group = group
        self._attempt = attempt
        self._use(())

    def __repr__(self) -> str:
        return f"<SendObserver of {self._group}, {len(self._sends)} hooks>"

    @asynccontextmanager
    async def attached(self, hooks: Iterable[object]) -> AsyncGenerator[None]:
        """Use hooks while the producer is open."""
        async with attach_hooks(HookOwner(self._session, self._group, Role.PRODUCER), hooks) as attached:
            self._use(attached)
            yield

    def _use(self, hooks: tuple[object, ...]) -> None:
        self._sends = hooks_of(SendHook, hooks)
        self._checks = hooks_of(ForbiddenHook, hooks)
        self._ends = hooks_of(EndTransactionHook, hooks)

    async def attempt(self, outgoing: OutgoingMessage, queue: MessageQueue, timeout_ms: int) -> SendResult:
        """Make an attempt.

        Raises:
            BaseException: what the attempt raises, or a hook that forbids it.
        """
        context = self._context(outgoing, queue, is_oneway=False)
        changed = self._begin(context, outgoing)
        try:
            context.result = await self._attempt(changed, queue, timeout_ms)
        except BaseException as error:
            context.error = error
            raise
        finally:
            self._finish(context)
        return context.result

    async def send_oneway(
        self, outgoing: OutgoingMessage, queue: MessageQueue, send: Callable[[OutgoingMessage], Awaitable[None]]
    ) -> None:
        """Make an attempt that is not answered.

        Raises:
            BaseException: as ``attempt``.
        """
        context = self._context(outgoing, queue, is_oneway=True)
        changed = self._begin(context, outgoing)
        try:
            await send(changed)
        except BaseException as error:
            context.error = error
            raise
        finally:
            self._finish(context)

    def end_transaction(self, context: EndTransactionContext) -> None:
        """Tell that a transaction ends."""
        tell_hooks([hook.end_transaction for hook in self._ends], context)

    def _context(self, outgoing: OutgoingMessage, queue: MessageQueue, *, is_oneway: bool) -> SendContext:
        return SendContext(
            group=self._group,
            messages=_messages_of(outgoing),
            message_id=outgoing.message_id,
            queue=queue,
            address=self._session.master_of(queue.broker_name),
            started_at_ms=self._session.clock.now_ms(),
            is_oneway=is_oneway,
        )

    def _finish(self, context: SendContext) -> None:
        context.ended_at_ms = self._session.clock.now_ms()
        tell_hooks([hook.after_send for hook in self._sends], context)

    def _begin(self, context: SendContext, outgoing: OutgoingMessage) -> OutgoingMessage:
        for check in self._checks:
            check.check_send(context)
        tell_hooks([hook.before_send for hook in self._sends], context)
        return _with_properties(outgoing, context.properties) if context.properties else outgoing


def _messages_of(outgoing: OutgoingMessage) -> list[SentMessage]:
    if not outgoing.is_batch:
        return [SentMessage(outgoing.topic, outgoing.body, parse_properties(outgoing.property_text))]
    parts = decode_batch(outgoing.body)
    return [SentMessage(outgoing.topic, part.body, parse_properties(part.property_text)) for part in parts]


def _with_properties(outgoing: OutgoingMessage, added: dict[str, str]) -> OutgoingMessage:
    text = encode_properties(added | parse_properties(outgoing.property_text)).decode()
    if not outgoing.is_batch:
        return msgspec.structs.replace(outgoing, property_text=text)
    parts = [
        BatchPart(part.flag, part.body, encode_properties(added | parse_properties(part.property_text)))
        for part in decode_batch(outgoing.body)
    ]
    return msgspec.structs.replace(outgoing, property_text=text, body=encode_batch(parts))


RETRIED_CODES = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.GO_AWAY,
    }
)


class SendAttempts:
    """The attempts of one send so far."""

    __slots__ = ("_error", "_log", "_result", "_retries_bad_status", "failed_broker")

    def __init__(self, *, retries_bad_status: bool) -> None:
        self.failed_broker: str | None = None
        self._retries_bad_status = retries_bad_status
        self._result: SendResult | None = None
        self._error: RemotingError | ClientError | None = None
        self._log: list[str] = []

    def __repr__(self) -> str:
        return f"<SendAttempts {self._log}>"

    def __len__(self) -> int:
        """Return how many have failed, in one way or the other."""
        return len(self._log)

    def is_last(self, queue: MessageQueue, outcome: SendResult | RemotingError | ClientError) -> bool:
        """Note what has come of an attempt; tell whether no other may follow it."""
        if isinstance(outcome, SendResult):
            self._result = outcome
            if outcome.status is _SEND_OK or not self._retries_bad_status:
                return True
            queue, what = outcome.queue, outcome.status.value
        else:
            self._error, what = outcome, str(outcome)
        self.failed_broker = queue.broker_name
        self._log.append(f"{queue.broker_name}: {what}")
        return isinstance(outcome, ResponseError) and outcome.code not in RETRIED_CODES

    def outcome(self) -> SendResult:
        """Return the result when there is no further attempt.

        Raises:
            RemotingError, ClientError: nothing was stored as far as is known.
        """
        if self._result is not None:
            return self._result
        error = self._error or RequestTimeoutError("the time was over before the first attempt to send")
        if len(self._log) > 1:
            error.add_note(f"{len(self._log)} attempts: {'; '.join(self._log)}")
        raise error


NO_LIMIT_MS = 1 << 62

_SEND_OK = SendStatus.SEND_OK  # to look up a member of an enum takes as long as four calls
_GO_AWAY = ResponseCode.GO_AWAY


class Delivery:
    """The rounds and attempts of one producer."""

    def __init__(self, group: str, session: Session, settings: ProducerSettings) -> None:
        self._session = session
        self._now_ms = session.clock.now_ms
        self._monotonic_ms = session.clock.monotonic_ms
        self._settings = settings
        self._send_timeout_ms = settings.send_timeout_ms
        unit_mode = session.settings.is_unit_mode
        self._fields = SendFields(group, settings.template_topic, settings.new_topic_queues, unit_mode=unit_mode)
        self._frames = SendFrames(self._fields)
        self._round_robins: dict[str, QueueRoundRobin] = {}
        self._attempt_limit_ms = settings.attempt_timeout_ms or NO_LIMIT_MS
        self._slow_brokers = SlowBrokers(session.clock.monotonic_ms) if settings.avoids_slow_brokers else None
        self._attempt: Attempt = self._attempt_once if self._slow_brokers is None else self._attempt_watched
        self._is_plain = self._slow_brokers is None and not sees_sends(settings.hooks)
        self.observer: SendObserver | None = None
        if sees_sends(settings.hooks):
            self.observer = SendObserver(session, group, self._attempt)
            self._attempt = self.observer.attempt

    def __repr__(self) -> str:
        return f"<Delivery to {sorted(self._round_robins)}>"

    @property
    def topics(self) -> Sequence[str]:
        """The topics that were sent to."""
        return tuple(self._round_robins)

    def route_changed(self, topic: str) -> None:
        """Go on with the new publish list; an empty one is looked up again by the next send."""
        route, round_robin = self._session.routes.get(topic), self._round_robins.get(topic)
        if route is None or round_robin is None:
            return
        queues = publish_queues(topic, route)
        if queues:
            round_robin.queues = queues
        else:
            del self._round_robins[topic]

    async def deliver(self, outgoing: OutgoingMessage, choice: Choice | None, timeout_ms: int | None) -> SendResult:
        """Send to the next queue of the round, after a failure to one of another broker; or once to the chosen queue.

        Raises:
            ResponseError, RouteNotFoundError, RemotingError: no broker stored it, as far as is known.
        """
        now_ms = self._monotonic_ms()
        deadline_ms = now_ms + (self._send_timeout_ms if timeout_ms is None else _checked_ms(timeout_ms))
        round_robin = self._round_robins.get(outgoing.topic)
        if round_robin is None or choice is not None:
            return await self._deliver_with_care(outgoing, choice, deadline_ms)
        queue = round_robin.next_queue()
        left_ms = deadline_ms - now_ms
        if left_ms > self._attempt_limit_ms:
            left_ms = self._attempt_limit_ms
        connection = self._session.open_connection_to(queue.broker_name) if self._is_plain else None
        outcome: SendResult | RemotingError | ClientError
        try:
            if connection is None:
                outcome = await self._attempt(outgoing, queue, left_ms)
            else:  # what ``_attempt_once`` does, without a coroutine of its own
                answer = await self._ask(connection, outgoing, queue, left_ms)
                if answer.code == _GO_AWAY:
                    connection.close()
                outcome = read_send_answer(answer, outgoing.message_id, queue)
            if outcome.status is _SEND_OK:
                return outcome
        except RequestTimeoutError as error:
            outcome = error
            if connection is not None:
                self._session.heartbeat_soon()
        except (RemotingError, RouteNotFoundError, ResponseError) as error:
            outcome = error
        attempts = self._begin_attempts()
        if attempts.is_last(queue, outcome):
            return attempts.outcome()
        return await self._send_around(outgoing, round_robin, deadline_ms, attempts)

    async def _deliver_with_care(
        self, outgoing: OutgoingMessage, choice: Choice | None, deadline_ms: int
    ) -> SendResult:
        round_robin = await self.round_robin_of(outgoing.topic, deadline_ms)
        if choice is None:
            return await self._send_around(outgoing, round_robin, deadline_ms, self._begin_attempts())
        return await self._attempt(outgoing, choice(round_robin.queues), self.left_ms(deadline_ms))

    async def deliver_nowait(
        self, outgoing: OutgoingMessage, choice: Choice | None, timeout_ms: int | None
    ) -> SendResult:
        """Send to one queue, again while no answer comes and there is time.

        Raises:
            ResponseError, RouteNotFoundError, RemotingError: the broker did not store it, as far as is known.
        """
        deadline_ms = self.deadline_ms(timeout_ms)
        round_robin = self._round_robins.get(outgoing.topic) or await self.round_robin_of(outgoing.topic, deadline_ms)
        queue = round_robin.next_queue() if choice is None else choice(round_robin.queues)
        attempts, limit_ms = SendAttempts(retries_bad_status=False), self._attempt_limit_ms
        for _ in range(1 + self._settings.retries_nowait):
            left_ms = deadline_ms - self._monotonic_ms()
            if left_ms > limit_ms:
                left_ms = limit_ms
            elif left_ms <= 0:
                break
            try:
                return await self._attempt(outgoing, queue, left_ms)
            except RemotingError as error:
                attempts.is_last(queue, error)
        return attempts.outcome()

    async def deliver_oneway(self, outgoing: OutgoingMessage, choice: Choice | None) -> None:
        """Send once and do not ask what became of it.

        Raises:
            RouteNotFoundError, RemotingError: there is nowhere to send to.
        """
        deadline_ms = self.deadline_ms(None)
        round_robin = await self.round_robin_of(outgoing.topic, deadline_ms)
        queue = round_robin.next_queue() if choice is None else choice(round_robin.queues)

        async def send(changed: OutgoingMessage) -> None:
            address = self._session.master_of(queue.broker_name)
            await self._session.call_oneway(address, self._command(changed, queue), self.left_ms(deadline_ms))

        await (send(outgoing) if self.observer is None else self.observer.send_oneway(outgoing, queue, send))

    async def round_robin_of(self, topic: str, deadline_ms: int) -> QueueRoundRobin:
        """Return the round of a topic, asking for its route when it is not known.

        Raises:
            RouteNotFoundError, RemotingError: there is none.
        """
        round_robin = self._round_robins.get(topic)
        if round_robin is not None:
            return round_robin
        route = await self._session.route(topic, self.left_ms(deadline_ms), self._route_after_template)
        queues = publish_queues(topic, route)
        if not queues:
            await self._session.refresh(topic, self.left_ms(deadline_ms))
            queues = publish_queues(topic, self._session.routes.get(topic) or route)
        if not queues:
            raise RouteNotFoundError(f"no broker takes messages of the topic {topic} now")
        slow = self._slow_brokers
        return self._round_robins.setdefault(
            topic, QueueRoundRobin(queues) if slow is None else LatencyAwareRoundRobin(queues, slow)
        )

    async def _route_after_template(self, topic: str, timeout_ms: int) -> TopicRoute:
        """Return the route that a topic will have once a broker has created it after the template topic."""
        template = self._settings.template_topic
        route = await self._session.fetch_route(template, timeout_ms)
        if route is None:
            raise RouteNotFoundError(
                f"no broker has the topic {topic}, and none creates topics ({template} is not there either)"
            )
        return limit_queues(route, self._settings.new_topic_queues)

    def deadline_ms(self, timeout_ms: int | None) -> int:
        """Return when a call with this time limit, or that of the settings, has to end.

        Raises:
            TypeError, ValueError: it is no time limit.
        """
        return self._monotonic_ms() + (self._send_timeout_ms if timeout_ms is None else _checked_ms(timeout_ms))

    def left_ms(self, deadline_ms: int) -> int:
        """Return what is left of a call's time, at least 1 ms."""
        return max(1, deadline_ms - self._monotonic_ms())

    def _begin_attempts(self) -> SendAttempts:
        return SendAttempts(retries_bad_status=self._settings.tries_another_broker_when_not_stored_ok)

    async def _send_around(
        self, outgoing: OutgoingMessage, round_robin: QueueRoundRobin, deadline_ms: int, attempts: SendAttempts
    ) -> SendResult:
        limit_ms = self._attempt_limit_ms
        outcome: SendResult | RemotingError | ClientError
        for _ in range(1 + self._settings.retries - len(attempts)):
            left_ms = deadline_ms - self._monotonic_ms()
            if left_ms > limit_ms:
                left_ms = limit_ms
            elif left_ms <= 0:
                break
            queue = round_robin.next_queue(attempts.failed_broker)
            try:
                outcome = await self._attempt(outgoing, queue, left_ms)
            except (RemotingError, RouteNotFoundError, ResponseError) as error:
                outcome = error
            if attempts.is_last(queue, outcome):
                break
        return attempts.outcome()

    async def _attempt_watched(self, outgoing: OutgoingMessage, queue: MessageQueue, timeout_ms: int) -> SendResult:
        assert self._slow_brokers is not None, "chosen when there is something to note it in"
        attempt = self._attempt_once(outgoing, queue, timeout_ms)
        return await self._slow_brokers.watch(queue.broker_name, attempt)

    async def _attempt_once(self, outgoing: OutgoingMessage, queue: MessageQueue, timeout_ms: int) -> SendResult:
        connection = self._session.open_connection_to(queue.broker_name)
        if connection is None:
            return await self._attempt_by_call(outgoing, queue, timeout_ms)
        try:
            answer = await self._ask(connection, outgoing, queue, timeout_ms)
        except RequestTimeoutError:
            self._session.heartbeat_soon()
            raise
        if answer.code == _GO_AWAY:
            connection.close()  # the broker lets its connections end; the next call makes a new one
        return read_send_answer(answer, outgoing.message_id, queue)

    def _ask(self, connection: Connection, outgoing: OutgoingMessage, queue: MessageQueue, timeout_ms: int) -> Answer:
        opaque = connection.next_opaque()
        frame = self._frames.encode(outgoing, queue, self._now_ms(), opaque)
        return connection.ask_frame(frame, opaque, outgoing.code, timeout_ms)

    async def _attempt_by_call(self, outgoing: OutgoingMessage, queue: MessageQueue, timeout_ms: int) -> SendResult:
        address = self._session.master_of(queue.broker_name)
        answer = await self._session.call(address, self._command(outgoing, queue), timeout_ms)
        return read_send_answer(answer, outgoing.message_id, queue)

    def _command(self, outgoing: OutgoingMessage, queue: MessageQueue) -> Command:
        fields = self._fields.encode(outgoing, queue, self._now_ms())
        return Command.request(outgoing.code, fields, outgoing.body)


def _checked_ms(timeout_ms: int) -> int:
    """Return a caller's time limit (raises ``TypeError`` or ``ValueError`` if it is none)."""
    if not isinstance(timeout_ms, int):  # pyright: ignore[reportUnnecessaryIsInstance] # callers without a checker
        raise TypeError(f"timeout_ms is {type(timeout_ms).__name__}, it must be a whole number")
    if timeout_ms <= 0:
        raise ValueError(f"timeout_ms is {timeout_ms}, it must be above 0")
    return timeout_ms
