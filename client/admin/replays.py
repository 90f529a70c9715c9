"""Stored messages, sent once more as new ones: dead letters above all.

    for everybody    to the topic that it came from
    for one group    to that group's retry topic, from which its members alone are handed it, as one of its origin
    elsewhere        to another topic

A new message has body, tag, keys, flag and the application's properties of the old one, all its attempts before it, and
an id of its own. The old one stays where it is.
"""

import asyncio
from typing import Self

from ...common import properties as names
from ...common.message import Message, ReceivedMessage
from ...common.names import retry_topic
from ..producer.producer import Producer
from ..session.results import SendResult
from ..session.session import Session

RESEND_GROUP = "ReSendMsgById"  # that of mqadmin
_OWN_PROPERTIES = frozenset(
    value for name, value in vars(names).items() if name.isupper() and isinstance(value, str)
) - {names.SHARDING_KEY}
"""What brokers and clients have written into a message; a new one begins without it."""


def origin_topic(message: ReceivedMessage) -> str:
    """Return the topic that a message was first sent to: that of a dead letter is no other's."""
    found = message.properties.get(names.DLQ_ORIGIN_TOPIC) or message.properties.get(names.RETRY_TOPIC)
    return found or message.topic


class Replays:
    """Sends messages again, by a producer that the first of them starts."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._producer: Producer | None = None
        self._starting = asyncio.Lock()

    async def __aenter__(self) -> Self:
        """Start nothing yet."""
        return self

    async def __aexit__(self, *exception: object) -> None:
        """End the producer, if there is one."""
        if self._producer is not None:
            await self._producer.__aexit__(*exception)

    async def send(self, message: ReceivedMessage, group: str | None, topic: str | None) -> SendResult:
        """Send a message to a group, to a topic, or to the topic that it came from.

        Raises:
            ValueError: both are given.
            SendFailedError: no broker took it.
        """
        if group is not None and topic is not None:
            raise ValueError(f"a message is sent to a group or to a topic, not to both: {group}, {topic}")
        origin = origin_topic(message)
        properties = {name: value for name, value in message.properties.items() if name not in _OWN_PROPERTIES}
        again = Message(
            retry_topic(group) if group is not None else topic or origin,
            message.body,
            tags=message.tags,
            keys=message.keys,
            properties=properties,
            flag=message.flag,
        )
        if group is not None:
            again.properties[names.RETRY_TOPIC] = origin  # what members are told it is of
        return await (await self._started()).send(again)

    async def _started(self) -> Producer:
        async with self._starting:
            if self._producer is None:
                producer = Producer(RESEND_GROUP, session=self._session)
                await producer.__aenter__()
                self._producer = producer
            return self._producer
