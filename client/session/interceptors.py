"""What is done to each request before it leaves, and to each answer that arrives: namespace, hooks, signature.

They come in this order, since the signature is of everything else; answers pass hooks and namespace the other way.

Names in a namespace (Java's ``NamespaceUtil``):

    ours              on the wire           stays as it is
    topic             ns%topic              system topics and groups, the topics of replies
    group             ns%group              a name that has the namespace already
    %RETRY%group      %RETRY%ns%group
    %DLQ%group        %DLQ%ns%group

Inside the client names do not have the namespace: what listeners, results and hooks show is what the application said.
Only allocation strategies see it, since some hash names and all members of a group must agree.

    request            what is changed
    every              the fields ``topic``, ``originTopic``, ``group``, ``consumerGroup``, ``producerGroup``
    310, 320, 325      the fields ``a`` and ``b``, and the properties PGROUP and RETRY_TOPIC
    34, 41, 42, 46     the body; of 41 that of the answer as well

Messages that arrive lose it by ``strip_message``, also in these two properties. Client ids, keys and other properties
are not touched.

Requests of a user with credentials are signed (Java's ``AclClientRPCHook``; ``common/signing.py``).
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import MappingProxyType

from ...common.allocation import AllocateMessageQueueStrategy
from ...common.codes import ResponseCode
from ...common.message import MessageQueue, ReceivedMessage
from ...common.names import (
    DLQ_PREFIX,
    REPLY_TOPIC_SUFFIX,
    RETRY_PREFIX,
    is_system_group,
    is_system_topic,
)
from ...common.properties import PRODUCER_GROUP, RETRY_TOPIC
from ...common.signing import sign
from ...remoting.bodies.body import decode_answer, encode_body
from ...remoting.bodies.client import CheckClientBody, HeartbeatData, LockBatchBody, LockedQueues, SubscriptionData
from ...remoting.codec.command import Command
from ...remoting.codec.request_codes import RequestCode
from .hooks import RpcHook, hooks_of
from .settings import ClientSettings, Credentials

SEPARATOR = "%"
_FIELDS = ("topic", "originTopic", "group", "consumerGroup", "producerGroup")
_LETTERS = ("a", "b")
_PROPERTY_TEXT = "i"
_LETTER_CODES = frozenset(
    {RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2}
)
_NAME_PROPERTIES = (PRODUCER_GROUP, RETRY_TOPIC)
_NAMES_IN_PROPERTIES = re.compile(rf"(?:^|(?<=\x02))({'|'.join(_NAME_PROPERTIES)})\x01([^\x02]+)")


class Namespace:
    """The namespace of a client; one without a name leaves all names as they are."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._head = name + SEPARATOR
        self._outside: set[str] = set()

    def __repr__(self) -> str:
        return f"<Namespace {self.name}>"

    def leave_out(self, name: str) -> None:
        """Let a topic or group stay as it is."""
        self._outside.add(name)

    # names

    def wrap(self, name: str) -> str:
        """Return a topic or group as brokers know it."""
        prefix, rest = _split_prefix(name)
        if not self.name or not name or rest.startswith(self._head) or name in self._outside or _is_outside(name):
            return name
        return prefix + self._head + rest

    def strip(self, name: str) -> str:
        """Return a topic or group as the application knows it."""
        if not self.name:
            return name
        prefix, rest = _split_prefix(name)
        return prefix + rest.removeprefix(self._head)

    def holds(self, name: str) -> bool:
        """Tell whether a topic or group, as brokers know it, is in the namespace."""
        return not self.name or _split_prefix(name)[1].startswith(self._head)

    def wrap_queue(self, queue: MessageQueue) -> MessageQueue:
        """Return a queue as brokers know it."""
        return queue._replace(topic=self.wrap(queue.topic))

    def strip_queue(self, queue: MessageQueue) -> MessageQueue:
        """Return a queue as the application knows it."""
        return queue if not self.name else queue._replace(topic=self.strip(queue.topic))

    def strip_message(self, message: ReceivedMessage) -> ReceivedMessage:
        """Return a message as the application knows it."""
        if not self.name:
            return message
        properties = dict(message.properties)
        for name in _NAME_PROPERTIES:
            if name in properties:
                properties[name] = self.strip(properties[name])
        topic, queue = self.strip(message.topic), self.strip_queue(message.queue)
        return replace(message, topic=topic, queue=queue, properties=properties)

    # what travels

    def wrap_request(self, request: Command) -> None:
        """Put the names of a request into the namespace; doing it twice changes nothing."""
        if not self.name:
            return
        fields = request.ext
        for field in _LETTERS if request.code in _LETTER_CODES else _FIELDS:
            if field in fields:
                fields[field] = self.wrap(fields[field])
        if request.code in _LETTER_CODES and _PROPERTY_TEXT in fields:
            fields[_PROPERTY_TEXT] = _NAMES_IN_PROPERTIES.sub(self._wrap_property, fields[_PROPERTY_TEXT])
        change_body = _BODIES.get(request.code)
        if change_body is not None and request.body:
            request.body = change_body(self, request.body)

    def strip_answer(self, request: Command, answer: Command) -> None:
        """Take the names of an answer out of the namespace."""
        if not self.name:
            return
        if request.code == RequestCode.LOCK_BATCH_MQ and answer.code == ResponseCode.SUCCESS and answer.body:
            locked = decode_answer(LockedQueues, answer.body)
            answer.body = encode_body(LockedQueues(queues=[self.strip_queue(queue) for queue in locked.queues]))

    def strip_request(self, request: Command) -> None:
        """Take the names of a broker's request out of the namespace."""
        if not self.name:
            return
        fields = request.ext
        for field in _FIELDS:
            if field in fields:
                fields[field] = self.strip(fields[field])

    def _wrap_property(self, found: re.Match[str]) -> str:
        return f"{found[1]}\x01{self.wrap(found[2])}"


class NamespacedStrategy:
    """A strategy that sees names as the other members of the group see them."""

    def __init__(self, strategy: AllocateMessageQueueStrategy, namespace: Namespace) -> None:
        self.name = strategy.name
        self._strategy = strategy
        self._namespace = namespace

    def __repr__(self) -> str:
        return f"<NamespacedStrategy {self.name} in {self._namespace.name}>"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the queues of one client."""
        namespace = self._namespace
        wrapped = [namespace.wrap_queue(queue) for queue in queues]
        share = self._strategy.allocate(namespace.wrap(group), client_id, wrapped, client_ids)
        return [namespace.strip_queue(queue) for queue in share]


def _split_prefix(name: str) -> tuple[str, str]:
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if name.startswith(prefix):
            return prefix, name.removeprefix(prefix)
    return "", name


def _is_outside(name: str) -> bool:
    return is_system_topic(name) or is_system_group(name) or name.endswith(REPLY_TOPIC_SUFFIX)


def _wrap_subscription(namespace: Namespace, subscription: SubscriptionData) -> None:
    subscription.topic = namespace.wrap(subscription.topic)


def _wrap_heartbeat(namespace: Namespace, body: bytes) -> bytes:
    heartbeat = decode_answer(HeartbeatData, body)
    for producer in heartbeat.producer_data_set:
        producer.group_name = namespace.wrap(producer.group_name)
    for consumer in heartbeat.consumer_data_set:
        consumer.group_name = namespace.wrap(consumer.group_name)
        for subscription in consumer.subscription_data_set:
            _wrap_subscription(namespace, subscription)
    return encode_body(heartbeat)


def _wrap_lock(namespace: Namespace, body: bytes) -> bytes:
    lock = decode_answer(LockBatchBody, body)
    lock.consumer_group = namespace.wrap(lock.consumer_group)
    lock.mq_set = [namespace.wrap_queue(queue) for queue in lock.mq_set]
    return encode_body(lock)


def _wrap_check(namespace: Namespace, body: bytes) -> bytes:
    check = decode_answer(CheckClientBody, body)
    check.group = check.group and namespace.wrap(check.group)
    if check.subscription_data is not None:
        _wrap_subscription(namespace, check.subscription_data)
    return encode_body(check)


_BODIES: MappingProxyType[int, Callable[[Namespace, bytes], bytes]] = MappingProxyType(
    {
        RequestCode.HEART_BEAT: _wrap_heartbeat,
        RequestCode.LOCK_BATCH_MQ: _wrap_lock,
        RequestCode.UNLOCK_BATCH_MQ: _wrap_lock,
        RequestCode.CHECK_CLIENT_CONFIG: _wrap_check,
    }
)


class RequestPipeline:
    """The last and first to see what travels between one session and the servers."""

    def __init__(self, settings: ClientSettings, *, namespace: str) -> None:
        self.namespace = Namespace(namespace)
        self._hooks = hooks_of(RpcHook, settings.hooks)
        self._credentials = settings.credentials
        self.is_empty = not namespace and not self._hooks and self._credentials is None

    def __repr__(self) -> str:
        return f"<RequestPipeline {self.namespace!r}, {len(self._hooks)} hooks, {self._credentials!r}>"

    def before_request(self, address: str, request: Command) -> None:
        """Make a request ready to leave; again for each address that it goes to."""
        self.namespace.wrap_request(request)
        for hook in self._hooks:
            hook.before_request(address, request)
        if self._credentials is not None:
            sign_request(request, self._credentials)

    def after_response(self, address: str, request: Command, answer: Command) -> None:
        """Pass an answer to the hooks and take its names out of the namespace."""
        for hook in self._hooks:
            hook.after_response(address, request, answer)
        self.namespace.strip_answer(request, answer)


def sign_request(request: Command, credentials: Credentials) -> None:
    """Put the keys and the signature of all that it holds into a request."""
    sign(request.ext, request.body, credentials.access_key, credentials.secret_key, credentials.security_token)
