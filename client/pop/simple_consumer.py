"""The simple consumer: the application asks for messages, works, and acknowledges each one (RocketMQ 5's of this name).

    receive             messages that are this consumer's for a time
    ack                 done with; it does not come again
    change_invisible    a longer time, or a shorter one: 0 gives the message back at once
    neither             it comes again when the time is over, to whoever asks then, with one attempt more

No queues are owned, so any number of consumers share the messages of a topic. How many attempts are enough is the
application's to say: brokers count them (``reconsume_times``), and bring a message again for ever.
"""

from typing import Final, Self

from ...common.clock import Clock
from ...common.errors import ClientStateError
from ...common.message import ReceivedMessage
from ...common.subscriptions.subscription import ALL
from ...remoting.transport.event_loop import TaskScope
from ..group.subscriptions import Sql
from ..session.lifecycle import Lifecycle
from ..session.session import Session, borrow_session
from ..session.settings import SimpleConsumerSettings, check_group, choose_settings
from .pop_member import PopMember
from .pop_requests import PopPlan, PopRequests

MAX_MESSAGES: Final = 32
_SLICE_MS: Final = 1_000
"""How long one of several brokers is waited at before the next is asked."""


class SimpleConsumer:
    """Hands out messages for a time; use it with ``async with``, from one event loop.

        consumer = SimpleConsumer("billing", nameserver="127.0.0.1:9876")
        consumer.subscribe("orders", "paid || shipped")
        async with consumer:
            for message in await consumer.receive():
                ...
                await consumer.ack(message)

    Without ``nameserver`` the environment variable NAMESRV_ADDR names it; with an open ``session`` it is shared.
    """

    def __init__(
        self,
        group: str,
        nameserver: str | None = None,
        *,
        settings: SimpleConsumerSettings | None = None,
        session: Session | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.group = check_group(group)
        self.settings = choose_settings(settings, SimpleConsumerSettings)
        self._lifecycle = Lifecycle(f"simple consumer {group}")
        self._session, self._entered = borrow_session(session, nameserver, self.settings, clock)
        self._clock = self._session.clock
        self._member = PopMember(self._session, self.group, self.settings.consume_from)
        self._tasks = TaskScope()
        self._requests = PopRequests(self._session, self.group, self._tasks)

    def __repr__(self) -> str:
        return f"<SimpleConsumer {self.group} {self._lifecycle.stage.name.lower()}, {self._member.subscriptions!r}>"

    @property
    def client_id(self) -> str:
        """The id by which brokers know it."""
        return self._session.client_id

    def subscribe(self, topic: str, expression: str | Sql = ALL) -> None:
        """Receive messages of a topic: those whose tag is in ``TagA || TagB``, all with ``*``, or ``Sql``.

        May be called before and inside the block, again to change the expression.

        Raises:
            ValueError: the topic cannot exist, or the expression holds no tag.
            TypeError: the expression is neither a text nor ``Sql``.
            ClientStateError: the consumer is closed.
        """
        if self._lifecycle.is_closed:
            raise ClientStateError(f"simple consumer {self.group} is closed")
        self._member.subscriptions.put(topic, expression)
        if self._lifecycle.is_open:
            self._member.subscriptions_changed()

    def unsubscribe(self, topic: str) -> None:
        """End the subscription to a topic; messages in hand can still be acknowledged."""
        self._member.subscriptions.remove(topic)
        if self._lifecycle.is_open:
            self._member.subscriptions_changed()

    async def receive(
        self, max_messages: int | None = None, *, invisible_ms: int | None = None, wait_ms: int | None = None
    ) -> list[ReceivedMessage]:
        """Return messages that are ours for ``invisible_ms``, as soon as there are any; none after ``wait_ms``.

        What is not given is as the settings say. With several topics or brokers each has its turn.

        Raises:
            ValueError: a number is out of its range.
            ClientStateError: the consumer is not open.
            RemotingError, ResponseError: a broker did not answer, or with an error.
        """
        self._lifecycle.check()
        settings = self.settings
        plan = PopPlan(
            _checked("max_messages", settings.max_messages if max_messages is None else max_messages, 1, MAX_MESSAGES),
            _checked("invisible_ms", settings.invisible_ms if invisible_ms is None else invisible_ms, 1, None),
            _checked("wait_ms", settings.wait_ms if wait_ms is None else wait_ms, 0, None),
            settings.consume_from,
        )
        until_ms = self._clock.monotonic_ms() + plan.wait_ms
        messages = await self._ask_around(plan, 0)
        while not messages and (left_ms := until_ms - self._clock.monotonic_ms()) > 0:
            messages = await self._ask_around(plan, left_ms)
        return messages

    async def _ask_around(self, plan: PopPlan, left_ms: int) -> list[ReceivedMessage]:
        """Ask brokers in turn until one has messages: each at once, or wait at the first."""
        places = await self._member.places.find()
        if not places:
            await self._clock.sleep(min(left_ms, _SLICE_MS))
        wait_ms = left_ms if len(places) == 1 else min(left_ms, _SLICE_MS)
        for topic, broker_name in places[:1] if left_ms else places:
            subscription = self._member.subscriptions.by_topic.get(topic)
            if subscription is None:
                continue
            popped = await self._requests.pop(broker_name, subscription, plan._replace(wait_ms=wait_ms))
            if popped.messages:
                return popped.messages
            if popped.is_crowded:
                await self._clock.sleep(wait_ms)
        return []

    async def ack(self, *messages: ReceivedMessage) -> None:
        """Be done with messages. One whose time is over comes again all the same, or has.

        Raises:
            ValueError: a message was not handed out by POP.
            ClientStateError: the consumer is not open.
            RemotingError, ResponseError: a broker did not answer, or with an error; others may be acknowledged.
        """
        self._lifecycle.check()
        await self._requests.acknowledge(messages)

    async def change_invisible(self, message: ReceivedMessage, invisible_ms: int) -> None:
        """Have a message come again ``invisible_ms`` from now, unless it is acknowledged before.

        Raises:
            ValueError: it was not handed out by POP, or the time is negative.
            ClientStateError: the consumer is not open.
            RemotingError, ResponseError: the broker did not answer, or with an error.
        """
        self._lifecycle.check()
        await self._requests.change(message, _checked("invisible_ms", invisible_ms, 0, None))

    async def __aenter__(self) -> Self:
        """Start: brokers know the group, as far as they answer.

        Raises:
            ClientStateError: it has been started before.
            ConfigError: its group is in the session already.
        """
        async with self._lifecycle.starting() as stack:
            await stack.enter_async_context(self._entered)
            await stack.enter_async_context(self._tasks)
            await self._member.join()
            stack.push_async_callback(self._member.leave)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Leave the group; what is in hand comes again when its time is over."""
        await self._lifecycle.close()


def _checked(name: str, value: int, least: int, most: int | None) -> int:
    if value < least or (most is not None and value > most):
        limits = f"{least} to {most}" if most is not None else f"{least} or more"
        raise ValueError(f"{name} is {value}, allowed are {limits}")
    return value
