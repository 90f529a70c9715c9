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
attempts.

The round goes over the queues of the publish list, from a random start; after a failure comes that of another broker.
Example (Java's ``MQFaultStrategy`` without latency faults): three brokers with two queues each, the send
to A0 failed: A1 is passed over and the retry goes to B0.

Brokers that were slow or failed are passed over for a while (Java's ``MQFaultStrategy``, off by default):

    an attempt took, or failed     its broker is passed over for
    less than 550 ms               no time
    from 550 ms on                 2 s
    from 1.8 s on                  5 s
    from 3 s on                    6 s
    from 5 s on, or failed         10 s
    from 15 s on                   30 s

A later instant wins over an earlier one, and a quick answer does not shorten the time. A broker that answered with an
error is unreachable besides, until it takes a message; the choice then prefers others that are passed over. The round
takes the first queue that will do, all but the last choice on another broker than the one that just failed:

    1. of a broker that is not passed over    2. of one that is reachable    3. the next one

Example: A and B take messages in 5 ms until A takes 2 s for one. The next 5 s all messages go to B.
"""

import random
import sys
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from ...common.codes import ResponseCode
from ...common.errors import ClientError, RemotingError, RequestTimeoutError, ResponseError, RouteNotFoundError
from ...common.message import MessageQueue
from ...remoting.codec.command import Command, header_reader
from ...remoting.headers.send import SendFields, SendFrames, SendReply
from ...remoting.transport.connection import Answer, Connection
from ..session.results import STATUS_OF_CODE, SendResult, SendStatus
from ..session.routes import TopicRoute, limit_queues, publish_queues
from ..session.session import Session
from ..session.settings import ProducerSettings
from .outgoing_message import OutgoingMessage
from .queue_selection import Choice
from .send_observer import Attempt, SendObserver, sees_sends

LATENCY_MS = (550, 1_800, 3_000, 5_000, 15_000)  # latencyMax, without the steps that lead to no time
PASSED_OVER_MS = (0, 2_000, 5_000, 6_000, 10_000, 30_000)  # notAvailableDuration: below the first step, from each on
FAILED_AS_IF_MS = 10_000  # how long a failed attempt counts as having taken


class BrokerFault(NamedTuple):
    """What the attempts so far say about a broker."""

    until_ms: int
    is_reachable: bool


class SlowBrokers:
    """The brokers that are passed over, and until when."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        self._faults: dict[str, BrokerFault] = {}

    def __repr__(self) -> str:
        return f"<SlowBrokers {sorted(name for name in self._faults if not self.is_available(name))}>"

    def is_available(self, broker_name: str) -> bool:
        """Tell whether a broker is not passed over now."""
        fault = self._faults.get(broker_name)
        return fault is None or fault.until_ms <= self._monotonic_ms()

    def is_reachable(self, broker_name: str) -> bool:
        """Tell whether the last word on a broker is not that it answered with an error."""
        fault = self._faults.get(broker_name)
        return fault is None or fault.is_reachable

    async def watch(self, broker_name: str, attempt: Awaitable[SendResult]) -> SendResult:
        """Wait for an attempt to send and note how long its broker took."""
        begun_at_ms = self._monotonic_ms()
        try:
            result = await attempt
        except (RemotingError, ResponseError) as error:
            self.note(broker_name, FAILED_AS_IF_MS, is_reachable=isinstance(error, RemotingError))
            raise
        self.note(broker_name, self._monotonic_ms() - begun_at_ms)
        return result

    def note(self, broker_name: str, took_ms: int, *, is_reachable: bool = True) -> None:
        """Note how long an attempt took."""
        until_ms = self._monotonic_ms() + PASSED_OVER_MS[bisect_right(LATENCY_MS, took_ms)]
        before = self._faults.get(broker_name)
        if before is not None:
            until_ms = max(until_ms, before.until_ms)
        self._faults[broker_name] = BrokerFault(until_ms, is_reachable)


class QueueRoundRobin:
    """The round robin of one topic; one that knows of slow brokers passes over them."""

    __slots__ = ("_next", "_slow", "queues")

    def __init__(
        self, queues: Sequence[MessageQueue], slow: SlowBrokers | None = None, start: int | None = None
    ) -> None:
        self.queues = queues
        self._slow = slow
        self._next = random.randrange(1 << 31) if start is None else start

    def __repr__(self) -> str:
        return f"<QueueRoundRobin {len(self.queues)} queues, next {self._next % max(1, len(self.queues))}>"

    def next_queue(self, failed_broker: str | None = None) -> MessageQueue:
        """Return the next queue that will do, of another broker than the failed one if there is another."""
        queues, slow = self.queues, self._slow
        if failed_broker is not None or slow is not None:
            for will_do in (None,) if slow is None else (slow.is_available, slow.is_reachable):
                for _ in queues:
                    queue = queues[self._advance()]
                    if queue.broker_name != failed_broker and (will_do is None or will_do(queue.broker_name)):
                        return queue
        position = self._next
        self._next = position + 1
        return queues[position % len(queues)]

    def _advance(self) -> int:
        position = self._next
        self._next = position + 1
        return position % len(self.queues)


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
            self._error, what = outcome, outcome.answer if isinstance(outcome, ResponseError) else str(outcome)
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


_SEND_OK = SendStatus.SEND_OK  # to look up a member of an enum takes as long as four calls
_GO_AWAY = ResponseCode.GO_AWAY
_read_reply = header_reader(SendReply)


class Delivery:
    """The rounds and attempts of one producer."""

    def __init__(self, group: str, session: Session, settings: ProducerSettings) -> None:
        self._session = session
        self._routes = session.routes
        self._connections = session.connections
        self._now_ms = session.clock.now_ms
        self._monotonic_ms = session.clock.monotonic_ms
        self._settings = settings
        self._send_timeout_ms = settings.send_timeout_ms
        unit_mode = session.settings.is_unit_mode
        self._fields = SendFields(group, settings.template_topic, settings.new_topic_queues, unit_mode=unit_mode)
        self._frames = SendFrames(self._fields)
        self._round_robins: dict[str, QueueRoundRobin] = {}
        self._attempt_limit_ms = settings.attempt_timeout_ms or sys.maxsize
        self._slow_brokers = SlowBrokers(session.clock.monotonic_ms) if settings.avoids_slow_brokers else None
        self._attempt: Attempt = self._attempt_once if self._slow_brokers is None else self._attempt_watched
        self.observer = SendObserver(session, group, self._attempt) if sees_sends(settings.hooks) else None
        if self.observer is not None:
            self._attempt = self.observer.attempt
        self._sends_frames = not session.changes_requests
        self._is_plain = self._sends_frames and self._attempt == self._attempt_once

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
        connection = self._connections.get(self._routes.masters.get(queue.broker_name, "")) if self._is_plain else None
        outcome: SendResult | RemotingError | ClientError
        try:
            if connection is None:
                outcome = await self._attempt(outgoing, queue, left_ms)
            else:  # what ``_attempt_once`` does, without a coroutine of its own
                answer = await self._ask(connection, outgoing, queue, left_ms, now_ms)
                if answer.code == _GO_AWAY:
                    self._part_from(connection)
                outcome = _read_answer(answer, outgoing.message_id, queue)
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
            left_ms = min(deadline_ms - self._monotonic_ms(), limit_ms)
            if left_ms <= 0:
                return attempts.outcome()
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
        return self._round_robins.setdefault(topic, QueueRoundRobin(queues, self._slow_brokers))

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
            left_ms = min(deadline_ms - self._monotonic_ms(), limit_ms)
            if left_ms <= 0:
                return attempts.outcome()
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
        connection = self._connections.get(self._routes.masters.get(queue.broker_name, ""))
        if connection is None or not self._sends_frames:
            address = self._session.master_of(queue.broker_name)
            answer = await self._session.call(address, self._command(outgoing, queue), timeout_ms)
            return _read_answer(answer, outgoing.message_id, queue)
        try:
            answer = await self._ask(connection, outgoing, queue, timeout_ms, self._monotonic_ms())
        except RequestTimeoutError:
            self._session.heartbeat_soon()
            raise
        if answer.code == _GO_AWAY:
            self._part_from(connection)
        return _read_answer(answer, outgoing.message_id, queue)

    def _ask(
        self, connection: Connection, outgoing: OutgoingMessage, queue: MessageQueue, timeout_ms: int, now_ms: int
    ) -> Answer:
        opaque = connection.next_opaque()
        frame = self._frames.encode(outgoing, queue, self._now_ms(), opaque)
        return connection.ask_frame(frame, opaque, outgoing.code, timeout_ms, now_ms)

    def _part_from(self, connection: Connection) -> None:
        """Let a connection go that its broker wants to end, so that no further attempt is made on it."""
        for address in [address for address, each in self._connections.items() if each is connection]:
            self._session.part_from(address)

    def _command(self, outgoing: OutgoingMessage, queue: MessageQueue) -> Command:
        fields = self._fields.encode(outgoing, queue, self._now_ms())
        return Command.request(outgoing.code, fields, outgoing.body)


def _read_answer(answer: Command, message_id: str, queue: MessageQueue) -> SendResult:
    """Return what a broker says of a message (raises ``ResponseError`` when it did not store it)."""
    status = STATUS_OF_CODE.get(answer.code)
    if status is None:
        raise ResponseError(answer.code, answer.remark, queue.broker_name)
    reply = _read_reply(answer)
    return SendResult(  # by position: names cost time
        status,
        message_id,
        reply.msg_id,
        queue if queue.queue_id == reply.queue_id else queue._replace(queue_id=reply.queue_id),
        reply.queue_offset,
        reply.transaction_id,
        reply.region,
        reply.trace_on != "false",
        reply.recall_handle,
    )


def _checked_ms(timeout_ms: int) -> int:
    """Return a caller's time limit (raises ``TypeError`` or ``ValueError`` if it is none)."""
    if not isinstance(timeout_ms, int):  # pyright: ignore[reportUnnecessaryIsInstance] # callers without a checker
        raise TypeError(f"timeout_ms is {type(timeout_ms).__name__}, it must be a whole number")
    if timeout_ms <= 0:
        raise ValueError(f"timeout_ms is {timeout_ms}, it must be above 0")
    return timeout_ms
