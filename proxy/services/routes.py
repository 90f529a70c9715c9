"""QUERY_ROUTE and QUERY_ASSIGNMENT: which queues there are, and where clients reach them.

Rules

    1. Clients are told the endpoints that they have asked at: an address that works for them, with TLS or without,
       behind NAT and out of a container. Where they name several, as those of several brokers, or none, they are told
       where this broker is: ``--advertise`` or its own address, with the port of gRPC.
    2. A route has the queues of this broker only; each broker serves its own port.
    3. Where sends may create topics, a route is where clients of 5.x have theirs created: they never send to a topic
       that has no route. Such a topic has the queues of one that a send creates, and takes messages of every kind
       (``message.type`` MIXED). Topics that are made otherwise and say nothing take what upstream takes: NORMAL.
    4. Queues are numbered with those first that can be read only, then those that can be written only, then the rest.
       Nobody is told an empty list; upstream's clients stumble over it.
    5. Each member of a group gets the whole topic, by one queue without a number; of a group that consumes in order,
       each queue. The same answer each time: clients compare.
"""

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from ...broker.operations import BrokerOperations
from ...broker.topic.topics import MESSAGE_TYPE
from ...common.ids import Address
from ...common.metadata import TopicConfig
from ...common.names import AUTO_CREATE_TOPIC, DLQ_PREFIX, PERM_READ, PERM_WRITE, RETRY_PREFIX
from ..messages import v2
from ..messages.enums import Code, MessageType, Permission
from ..messages.names import endpoints_of, group_fault, topic_fault
from ..messages.statuses import status
from ..rpc.call import Call
from .calling import Caller, answer

AUTO_CREATED_TYPE: Final = "MIXED"
_UNSPECIFIED: Final = "UNSPECIFIED"
_MIXED: Final = (MessageType.NORMAL, MessageType.FIFO, MessageType.DELAY, MessageType.TRANSACTION)
_NO_ROUTE: Final = (
    "CODE: 17  DESC: No topic route info in name server for the topic: {}\n"
    "For more information, please visit the url, https://rocketmq.apache.org/docs/bestPractice/06FAQ"
)


class RouteService:
    """Answers where to send and to receive."""

    def __init__(self, operations: BrokerOperations, own_address: Address) -> None:
        self._operations = operations
        self._own_endpoints = endpoints_of(*own_address)

    def query_route(self, request: v2.QueryRouteRequest, _caller: Caller, call: Call) -> v2.QueryRouteResponse | None:
        """Tell the queues of a topic, which is created if need be."""
        fault = topic_fault(request.topic)
        if fault is not None:
            return v2.QueryRouteResponse(status=fault)
        topic, is_new = self._find(request.topic.name)
        if topic is None:
            return v2.QueryRouteResponse(status=_no_route(request.topic))
        queues = self._queues(topic, request)
        if not queues:
            return v2.QueryRouteResponse(status=status(Code.FORBIDDEN, "no readable or writable queue"))
        made = v2.QueryRouteResponse(status=status(Code.OK), message_queues=queues)
        if not is_new:
            return made
        self._operations.make_known([topic.topic_name], lambda: answer(call, made))
        return None

    def query_assignment(
        self, request: v2.QueryAssignmentRequest, _caller: Caller, _call: Call
    ) -> v2.QueryAssignmentResponse:
        """Tell what of a topic a member of a group shall receive."""
        fault = topic_fault(request.topic) or group_fault(request.group)
        if fault is not None:
            return v2.QueryAssignmentResponse(status=fault)
        topic = self._operations.topics.get(request.topic.name)
        if topic is None:
            return v2.QueryAssignmentResponse(status=_no_route(request.topic))
        if not topic.perm & PERM_READ or topic.read_queue_nums <= 0:
            return v2.QueryAssignmentResponse(status=status(Code.FORBIDDEN, "no readable queue"))
        group = self._operations.groups.known(request.group.name)
        is_ordered = group is not None and group.consume_message_orderly
        permission = Permission.READ_WRITE if topic.perm & PERM_WRITE else Permission.READ
        broker = self._broker(request.endpoints)
        assignments = [
            v2.Assignment(
                message_queue=v2.MessageQueue(topic=request.topic, id=queue_id, permission=permission, broker=broker)
            )
            for queue_id in (range(topic.read_queue_nums) if is_ordered else (-1,))
        ]
        return v2.QueryAssignmentResponse(status=status(Code.OK), assignments=assignments)

    def _find(self, name: str) -> tuple[TopicConfig | None, bool]:
        topics, config = self._operations.topics, self._operations.settings.config
        topic = topics.get(name)
        if topic is not None:
            return topic, name in topics.unsaved
        if not config.auto_create_topics or name.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            return None, False
        template = topics.get(AUTO_CREATE_TOPIC)
        queues = template.write_queue_nums if template is not None else 0
        created = topics.create_from(AUTO_CREATE_TOPIC, name, queues)
        if created is None:
            return None, False
        return topics.put(replace(created, attributes={MESSAGE_TYPE: AUTO_CREATED_TYPE})), True

    def _queues(self, topic: TopicConfig, request: v2.QueryRouteRequest) -> list[v2.MessageQueue]:
        broker, kinds = self._broker(request.endpoints), accepted_types(topic)
        return [
            v2.MessageQueue(
                topic=request.topic, id=queue_id, permission=permission, broker=broker, accept_message_types=kinds
            )
            for queue_id, permission in enumerate(_permissions(topic))
        ]

    def _broker(self, asked_at: v2.Endpoints) -> v2.Broker:
        endpoints = asked_at if len(asked_at.addresses) == 1 else self._own_endpoints
        return v2.Broker(name=self._operations.settings.config.broker_name, id=0, endpoints=endpoints)


def topic_type(topic: TopicConfig | None) -> str:
    """Return what a topic takes by its attribute; one that does not exist takes nothing in particular."""
    return _UNSPECIFIED if topic is None else topic.attributes.get(MESSAGE_TYPE, MessageType.NORMAL.name)


def accepted_types(topic: TopicConfig) -> Iterable[MessageType]:
    """Return the kinds of messages that a topic takes."""
    kind = topic_type(topic)
    if kind == AUTO_CREATED_TYPE:
        return _MIXED
    return (MessageType.MESSAGE_TYPE_UNSPECIFIED,) if kind == _UNSPECIFIED else (MessageType[kind],)


def _permissions(topic: TopicConfig) -> list[Permission]:
    read, write = topic.read_queue_nums, topic.write_queue_nums
    can_read, can_write = topic.perm & PERM_READ, topic.perm & PERM_WRITE
    if can_read and can_write:
        both = min(read, write)
        return [Permission.READ] * (read - both) + [Permission.WRITE] * (write - both) + [Permission.READ_WRITE] * both
    if can_read:
        return [Permission.READ] * read
    return [Permission.WRITE] * write if can_write else [Permission.NONE] * max(1, min(read, write))


def _no_route(topic: v2.Resource) -> v2.Status:
    return status(Code.TOPIC_NOT_FOUND, _NO_ROUTE.format(topic.name))
