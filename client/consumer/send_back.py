"""Failed messages on their way back to the brokers (Java's ``sendMessageBack``).

    give back    CONSUMER_SEND_MSG_BACK to the message's broker; if it does not take it, a send to the retry topic
    send_to_retry_topic       a send to the group's retry topic, on any broker that takes it

Either way the message comes again later, or goes to the dead letters after ``max_retries``. What is sent to the retry
topic keeps body, flag, properties and unique key, and says where it came from, how often it was tried, and how often
it may be.
"""

import logging
import random

from ...common.compression import CompressionKind, deflate
from ...common.errors import ResponseError, RocketletError, RouteNotFoundError
from ...common.message import MessageQueue, ReceivedMessage, describe_messages
from ...common.names import AUTO_CREATE_TOPIC, CLIENT_INNER_PRODUCER_GROUP, retry_topic
from ...common.properties import (
    DELAY,
    MAX_RECONSUME_TIMES,
    ORIGIN_MESSAGE_ID,
    RECONSUME_TIME,
    RETRY_TOPIC,
    TRANSACTION_PREPARED,
    encode_properties,
)
from ...remoting.codec.command import Command
from ...remoting.codec.request_codes import RequestCode
from ...remoting.headers.send import LetterSendHeader
from ..group.broker_requests import BrokerRequests
from ..session.results import STATUS_OF_CODE
from ..session.routes import publish_queues
from ..session.session import CALL_TIMEOUT_MS, Session

_log = logging.getLogger(__name__)

SEND_ATTEMPTS = 3
FIRST_RETRY_LEVEL = 3
DEAD_LETTER_LEVEL = -1
COMPRESS_FROM_BYTES = 4096
NEW_TOPIC_QUEUES = 4


class MessageReturner:
    """The way back for the messages of one group."""

    def __init__(self, group: str, session: Session, max_retries: int) -> None:
        self.max_retries = max_retries
        self._group = group
        self._session = session
        self._brokers = BrokerRequests(session)

    def __repr__(self) -> str:
        return f"<Returns of {self._group}, {self.max_retries} retries>"

    async def send_back(self, message: ReceivedMessage, delay_level: int = 0) -> bool:
        """Hand a message back; tell whether a broker has it now. A level below 0 gives it up at once."""
        try:
            await self._brokers.send_back(self._group, message, self.max_retries, delay_level)
        except RocketletError as error:
            _log.warning(
                "group %s: sending back %s failed, trying the retry topic: %s",
                self._group,
                describe_messages([message]),
                error,
            )
            return await self.send_to_retry_topic(message)
        return True

    async def give_up(self, message: ReceivedMessage) -> bool:
        """Send a message to the dead letters at once; tell whether its broker has it there now."""
        try:
            await self._brokers.send_back(self._group, message, self.max_retries, DEAD_LETTER_LEVEL)
        except RocketletError as error:
            text = "group %s: giving up %s failed, it comes again: %s"
            _log.warning(text, self._group, describe_messages([message]), error)
            return False
        return True

    async def send_to_retry_topic(self, message: ReceivedMessage) -> bool:
        """Send a message to the retry topic; tell whether a broker has it now."""
        try:
            await self._send_to_retry_topic(message)
        except RocketletError as error:
            _log.warning(
                "group %s: sending %s to the retry topic failed: %s", self._group, describe_messages([message]), error
            )
            return False
        return True

    async def _send_to_retry_topic(self, message: ReceivedMessage) -> None:
        topic = retry_topic(self._group)
        queues = publish_queues(topic, await self._session.route(topic))
        if not queues:
            raise RouteNotFoundError(f"no broker takes messages of the topic {topic} now")
        *others, last = random.sample(queues, min(SEND_ATTEMPTS, len(queues)))
        for queue in others:
            try:
                return await self._send(message, queue)
            except RocketletError as error:
                _log.info("group %s: %s does not accept message %s: %s", self._group, queue, message.message_id, error)
        return await self._send(message, last)

    async def _send(self, message: ReceivedMessage, queue: MessageQueue) -> None:
        body, sys_flag = message.body, 0
        if len(body) >= COMPRESS_FROM_BYTES:
            body, sys_flag = deflate(body), CompressionKind.ZLIB.sys_flag
        header = LetterSendHeader(
            producer_group=CLIENT_INNER_PRODUCER_GROUP,
            topic=queue.topic,
            default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_nums=NEW_TOPIC_QUEUES,
            queue_id=queue.queue_id,
            sys_flag=sys_flag,
            born_at_ms=self._session.clock.now_ms(),
            flag=message.flag,
            properties=self._properties_of(message),
            reconsume_times=message.reconsume_times + 1,
            max_reconsume_times=self.max_retries,
            unit_mode=False,
            batch=False,
            broker_name=queue.broker_name,
        )
        command = Command.request(RequestCode.SEND_MESSAGE_V2, header, body)
        answer = await self._session.call(self._session.master_of(queue.broker_name), command, CALL_TIMEOUT_MS)
        if answer.code not in STATUS_OF_CODE:
            raise ResponseError(answer.code, answer.remark, queue.broker_name, RequestCode.SEND_MESSAGE_V2.name)

    def _properties_of(self, message: ReceivedMessage) -> str:
        properties = dict(message.properties)
        properties.pop(TRANSACTION_PREPARED, None)
        if not properties.get(ORIGIN_MESSAGE_ID, "").strip():
            properties[ORIGIN_MESSAGE_ID] = message.message_id
        properties[RETRY_TOPIC] = message.topic
        properties[RECONSUME_TIME] = str(message.reconsume_times + 1)
        properties[MAX_RECONSUME_TIMES] = str(self.max_retries)
        properties[DELAY] = str(FIRST_RETRY_LEVEL + message.reconsume_times)
        return encode_properties(properties).decode()
