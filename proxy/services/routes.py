"""QUERY_ROUTE and QUERY_ASSIGNMENT: which queues there are, and where clients reach them.

Rules

    1. Clients are told the endpoints that they have asked at: an address that works for them, with TLS or without,
       behind NAT and out of a container. Where they name several, as those of several brokers, or none, they are told
       where this broker is: ``--advertise`` or its own address, with the port of gRPC.
    2. A route has the queues of all brokers that the name servers know to serve gRPC, each with its own port. One at
       the host of this broker is told at the host by which the client has come.
    3. Where sends may create topics, a route is where clients of 5.x have theirs created: they never send to a topic
       that has no route. Such a topic has the queues of one that a send creates, and takes messages of every kind
       (``message.type`` MIXED). Topics that are made otherwise and say nothing take what upstream takes: NORMAL.
    4. Queues are numbered with those first that can be read only, then those that can be written only, then the rest.
       Nobody is told an empty list; upstream's clients stumble over it.
    5. Each member of a group gets the whole topic, by one queue without a number; of a group that consumes in order,
       each queue. The same answer each time: clients compare.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from ...broker.operations import BrokerOperations, OtherBroker
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
_NORMAL: Final = MessageType.NORMAL.name
_UNSPECIFIED: Final = "UNSPECIFIED"
_ALL: Final = (MessageType.NORMAL, MessageType.FIFO, MessageType.DELAY, MessageType.TRANSACTION, MessageType.PRIORITY)
"""What clients may try with a topic of another broker, which knows better."""
_MIXED: Final = (MessageType.NORMAL, MessageType.FIFO, MessageType.DELAY, MessageType.TRANSACTION)
_NO_ROUTE: Final = (
    "CODE: 17  DESC: No topic route info in name server for the topic: {}\n"
    "For more information, please visit the url, https://rocketmq.apache.org/docs/bestPractice/06FAQ"
)


class RouteService:
    """Answers where to send and to receive."""

    def __init__(self, operations: BrokerOperations, own_address: Address) -> None:
        self._operations = operations
        self._own_address = own_address

    def query_route(self, request: v2.QueryRouteRequest, _caller: Caller, call: Call) -> v2.QueryRouteResponse | None:
        """Tell the queues of a topic, which is created if nobody has it."""
        fault = topic_fault(request.topic)
        if fault is not None:
            return v2.QueryRouteResponse(status=fault)

        def tell(others: Sequence[OtherBroker]) -> None:
            own, is_new = self._find(request.topic.name, is_elsewhere=bool(others))
            made = self._route(request, own, others)
            if is_new:
                self._operations.make_known([request.topic.name], lambda: answer(call, made))
            else:
                answer(call, made)

        self._operations.find_other_brokers(request.topic.name, tell)
        return None

    def query_assignment(
        self, request: v2.QueryAssignmentRequest, _caller: Caller, call: Call
    ) -> v2.QueryAssignmentResponse | None:
        """Tell what of a topic a member of a group shall receive."""
        fault = topic_fault(request.topic) or group_fault(request.group)
        if fault is not None:
            return v2.QueryAssignmentResponse(status=fault)
        self._operations.find_other_brokers(
            request.topic.name, lambda others: answer(call, self._assignments(request, others))
        )
        return None

    def _route(
        self, request: v2.QueryRouteRequest, own: TopicConfig | None, others: Sequence[OtherBroker]
    ) -> v2.QueryRouteResponse:
        if own is None and not others:
            return v2.QueryRouteResponse(status=_no_route(request.topic))
        kinds = _ALL if own is None else accepted_types(own)
        queues = [
            v2.MessageQueue(
                topic=request.topic, id=queue_id, permission=permission, broker=broker, accept_message_types=kinds
            )
            for broker, permissions in self._places(request.endpoints, own, others)
            for queue_id, permission in enumerate(permissions)
        ]
        if not queues:
            return v2.QueryRouteResponse(status=status(Code.FORBIDDEN, "no readable or writable queue"))
        return v2.QueryRouteResponse(status=status(Code.OK), message_queues=queues)

    def _assignments(
        self, request: v2.QueryAssignmentRequest, others: Sequence[OtherBroker]
    ) -> v2.QueryAssignmentResponse:
        own = self._operations.topics.get(request.topic.name)
        if own is None and not others:
            return v2.QueryAssignmentResponse(status=_no_route(request.topic))
        group = self._operations.groups.known(request.group.name)
        is_ordered = group is not None and group.consume_message_orderly
        assignments: list[v2.Assignment] = []
        for broker, permissions in self._places(request.endpoints, own, others):
            readable = [each for each in permissions if each in (Permission.READ, Permission.READ_WRITE)]
            if not readable:
                continue
            for queue_id in range(len(readable)) if is_ordered else (-1,):
                permission = Permission.READ_WRITE if Permission.READ_WRITE in readable else Permission.READ
                queue = v2.MessageQueue(topic=request.topic, id=queue_id, permission=permission, broker=broker)
                assignments.append(v2.Assignment(message_queue=queue))
        if not assignments:
            return v2.QueryAssignmentResponse(status=status(Code.FORBIDDEN, "no readable queue"))
        return v2.QueryAssignmentResponse(status=status(Code.OK), assignments=assignments)

    def _find(self, name: str, *, is_elsewhere: bool) -> tuple[TopicConfig | None, bool]:
        """Return a topic, and whether it has to be made known; create it if need be and nobody else has it."""
        topics, config = self._operations.topics, self._operations.settings.config
        topic = topics.get(name)
        if topic is not None:
            return topic, name in topics.unsaved
        if is_elsewhere or not config.auto_create_topics or name.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            return None, False
        template = topics.get(AUTO_CREATE_TOPIC)
        queues = template.write_queue_nums if template is not None else 0
        created = topics.create_from(AUTO_CREATE_TOPIC, name, queues)
        if created is None:
            return None, False
        return topics.put(replace(created, attributes={MESSAGE_TYPE: AUTO_CREATED_TYPE})), True

    def _places(
        self, asked_at: v2.Endpoints, own: TopicConfig | None, others: Sequence[OtherBroker]
    ) -> Iterator[tuple[v2.Broker, list[Permission]]]:
        """Yield each broker with what may be done with its queues."""
        config = self._operations.settings.config
        if own is not None:
            permissions = queue_permissions(own.read_queue_nums, own.write_queue_nums, own.perm)
            yield v2.Broker(name=config.broker_name, id=0, endpoints=self._own_endpoints(asked_at)), permissions
        for other in others:
            permissions = queue_permissions(other.read_queues, other.write_queues, other.perm)
            yield v2.Broker(name=other.name, id=0, endpoints=self._endpoints_of(other, asked_at)), permissions

    def _own_endpoints(self, asked_at: v2.Endpoints) -> v2.Endpoints:
        if len(asked_at.addresses) == 1:
            return asked_at
        port = self._own_address[1]
        known = [address for address in asked_at.addresses if address.port == port]
        return (
            v2.Endpoints(scheme=asked_at.scheme, addresses=known)
            if len(known) == 1
            else endpoints_of(*self._own_address)
        )

    def _endpoints_of(self, other: OtherBroker, asked_at: v2.Endpoints) -> v2.Endpoints:
        """Return where another broker is: one at our host is at that by which the client has reached us."""
        host, _, port = other.address.rpartition(":")
        if host.strip("[]") == self._own_address[0] and asked_at.addresses:
            return endpoints_of(asked_at.addresses[0].host, int(port))
        return endpoints_of(host.strip("[]"), int(port))


def topic_type(topic: TopicConfig | None) -> str:
    """Return what a topic takes by its attribute; one that does not exist takes nothing in particular."""
    return _UNSPECIFIED if topic is None else topic.attributes.get(MESSAGE_TYPE, _NORMAL)


def accepted_types(topic: TopicConfig) -> Iterable[MessageType]:
    """Return the kinds of messages that a topic takes."""
    kind = topic_type(topic)
    if kind == AUTO_CREATED_TYPE:
        return _MIXED
    return (MessageType.MESSAGE_TYPE_UNSPECIFIED,) if kind == _UNSPECIFIED else (MessageType[kind],)


def queue_permissions(read: int, write: int, perm: int) -> list[Permission]:
    """Return what may be done with the queues of a topic, in the order of their numbers."""
    can_read, can_write = perm & PERM_READ, perm & PERM_WRITE
    if can_read and can_write:
        both = min(read, write)
        return [Permission.READ] * (read - both) + [Permission.WRITE] * (write - both) + [Permission.READ_WRITE] * both
    if can_read:
        return [Permission.READ] * read
    return [Permission.WRITE] * write if can_write else [Permission.NONE] * max(1, min(read, write))


def _no_route(topic: v2.Resource) -> v2.Status:
    return status(Code.TOPIC_NOT_FOUND, _NO_ROUTE.format(topic.name))
