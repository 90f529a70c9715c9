"""What tests send and receive by themselves, without an event loop of their own: on the broker's loop, over the wire.

A file of messages has one JSON object a line; empty lines are passed over:

    topic        where it goes to
    body         its text; or json, any value, which becomes the text; or base64, for bytes
    tags         optional, as the others
    keys         a list
    properties   an object of texts
    queue        the number of the queue; in turn unless given
"""

import asyncio
import base64
import json as json_text
import pathlib
import ssl
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypedDict, cast

from ..common.message import Message, MessageQueue, ReceivedMessage
from ..remoting.transport.event_loop import LoopClock

if TYPE_CHECKING:
    from ..client import SendResult

OWN_GROUP: Final = "rocketlet-test"
_MOST_AT_ONCE: Final = 256
_FIELDS: Final = frozenset(["topic", "body", "json", "base64", "tags", "keys", "properties", "queue"])
_BODIES: Final = ("body", "json", "base64")


class MessageParts(TypedDict, total=False):
    """What a message has beside topic and body; ``delay_ms`` and ``delay_level`` are times of the broker's clock."""

    tags: str | None
    keys: Sequence[str]
    properties: dict[str, str]
    delay_level: int
    delay_ms: int | None


def make_message(topic: str, body: bytes | str | None, json: Any, parts: MessageParts) -> Message:
    """Return a message whose body is bytes, text in UTF-8, or a value in JSON.

    Raises:
        TypeError: it is to have two bodies, or none.
    """
    if (body is None) == (json is None):
        raise TypeError("a message has a body or json, one of them")
    text = json_text.dumps(json) if body is None else body
    return Message(topic, text.encode() if isinstance(text, str) else text, **parts)


Addressed = tuple[Message, int | None]
"""A message, and the number of the queue that it is to go to."""


async def send_all(
    nameserver: str, messages: Sequence[Addressed], broker_name: str, tls: ssl.SSLContext | None
) -> "list[SendResult]":
    """Send in order, each to a queue of its own number or in turn; many are on their way at a time."""
    from ..client import Producer, ProducerSettings  # the client, and what it needs, not before a test sends

    async with Producer(OWN_GROUP, nameserver, settings=ProducerSettings(tls=tls)) as producer:

        def send(message: Message, queue_id: int | None) -> "Coroutine[Any, Any, SendResult]":
            queue = None if queue_id is None else MessageQueue(message.topic, broker_name, queue_id)
            return producer.send(message, queue=queue)

        results: list[SendResult] = []
        for first in range(0, len(messages), _MOST_AT_ONCE):
            if not first:
                results.append(await send(*messages[0]))  # it learns the route, and the others keep their order
            async with asyncio.TaskGroup() as tasks:
                sending = [tasks.create_task(send(*each)) for each in messages[max(first, 1) : first + _MOST_AT_ONCE]]
            results += [task.result() for task in sending]
        return results


class ReceiveOrder(NamedTuple):
    """What is to be received, and as whose member."""

    topic: str
    tags: str
    wanted: int
    group: str


async def receive(
    nameserver: str, order: ReceiveOrder, limit_ms: int, tls: ssl.SSLContext | None
) -> list[ReceivedMessage]:
    """Consume and acknowledge so many messages.

    Raises:
        TimeoutError: there are fewer after so long; those that came are acknowledged nevertheless.
    """
    from ..client import ConsumeFrom, PullConsumer, PullConsumerSettings  # as before

    found: list[ReceivedMessage] = []
    settings = PullConsumerSettings(consume_from=ConsumeFrom.FIRST, tls=tls)
    consumer = PullConsumer(order.group, nameserver, settings=settings)
    consumer.subscribe(order.topic, order.tags)
    try:
        async with consumer, LoopClock().timeout(limit_ms):
            async for message in consumer:
                found.append(message)
                if len(found) == order.wanted:
                    break
            await consumer.commit()
    except TimeoutError:
        raise TimeoutError(
            f"{len(found)} of {order.wanted} messages of {order.topic!r} came in {limit_ms} ms"
        ) from None
    return found


def read_lines(path: pathlib.Path) -> Iterator[Addressed]:
    """Yield the messages of a file, each with the number of its queue if it has one.

    Raises:
        ValueError: a line is no message; the text names it.
    """
    with path.open() as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                try:
                    yield _read_line(json_text.loads(line))
                except (TypeError, ValueError) as error:
                    raise ValueError(f"{path}, line {number}: {error}") from error


def _read_line(said: Any) -> Addressed:
    if not isinstance(said, Mapping):
        raise TypeError("expected an object")
    fields = dict(cast("Mapping[str, Any]", said))
    if unknown := fields.keys() - _FIELDS:
        raise ValueError(f"unknown fields {sorted(unknown)}, known are {sorted(_FIELDS)}")
    bodies = [name for name in _BODIES if name in fields]
    if "topic" not in fields or len(bodies) != 1:
        raise ValueError("a message has a topic and one of body, json and base64")
    [kind], value = bodies, fields.pop(bodies[0])
    body = json_text.dumps(value).encode() if kind == "json" else base64.b64decode(value) if kind == "base64" else value
    topic, queue_id = fields.pop("topic"), fields.pop("queue", None)
    return make_message(topic, body, None, MessageParts(**fields)), queue_id
