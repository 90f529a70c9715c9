"""What each request needs (``DefaultAuthorizationContextBuilder`` and the annotations of headers; security.md §7).

A row says which resources a request names and which action on each it needs; any one of several suffices. All of them
must be granted. A row without resources is for every user who is known. A code without a row is served to nobody.

    topic        the topic that a field names; a retry topic is the matter of its group: ``%RETRY%g`` is ``Group:g``
    group        the group that a field names
    own cluster  what concerns the broker as a whole
    stored       the topic of a message that is named by its place in the log

What is missing although the handler cannot do without it is called ``null``, as in Java, and granted to nobody by name.

Official brokers ask for nothing where they declare nothing: who is known may then change settings, list everything and
read any message by its place. The second rows say what is asked for instead (``authorizationStrict``), and where the
first are not the whole truth: who may send a message back or end a transaction names it by its place, whatever topic
they say.

One row is more lenient than upstream. A POP consumer acknowledges what it consumes again under the name of a retry
topic of its group, which upstream takes for the group's name, so that exact rights are not enough there.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, final

from ...common.access import Action, ResourceType
from ...common.errors import DecodeError
from ...common.ids import parse_offset_id
from ...common.metadata import SubscriptionGroupConfig, SubscriptionGroupList, TopicConfigList
from ...common.names import RETRY_PREFIX
from ...remoting.bodies.body import decode_body, decode_body_if_any
from ...remoting.bodies.client import HeartbeatData, decode_lock_body
from ...remoting.bodies.pop import AssignmentQuestion, BatchAckBody, RequestModeBody
from ...remoting.codec.command import NULL, Command, HeaderT, decode_header
from ...remoting.codec.request_codes import RequestCode as Code
from ...remoting.headers.client import AskedConsumptionHeader
from ...remoting.headers.message import EndTransactionHeader, ResumeCheckHeader, SendBackHeader
from ...remoting.headers.pull import ViewMessageHeader
from .decision import Need
from .policies import Resource

CREATE, DELETE, GET, PUB, SUB, UPDATE = (
    Action.CREATE,
    Action.DELETE,
    Action.GET,
    Action.PUB,
    Action.SUB,
    Action.UPDATE,
)
_TOPIC_SEPARATOR: Final = ";"
_GROUP_SEPARATOR: Final = ","


@final
class Asked(NamedTuple):
    """A request, whose fields are read, and the broker that is asked."""

    command: Command
    fields: Mapping[str, str]
    cluster: str
    stored_topic: Callable[[int], str | None]


@final
class Part(NamedTuple):
    """Some of what a request needs; which fields decide, ``None``: the body or the log decides as well."""

    find: Callable[[Asked], Iterable[Need]]
    depends_on: tuple[str, ...] | None = None


@final
class Listed(NamedTuple):
    """An answer with tables by name, of which a user sees what they may get: the tables, and what asks for a page."""

    find: Callable[..., Need]
    tables: tuple[str, ...]
    page_fields: tuple[str, ...]
    total_field: str


@final
class Row(NamedTuple):
    """What a request needs; of what is ``listed`` in its answer each entry needs to be granted."""

    parts: tuple[Part, ...] = ()
    listed: Listed | None = None

    @property
    def depends_on(self) -> tuple[str, ...] | None:
        """Which fields decide, ``None``: the body or the log decides as well."""
        names: list[str] = []
        for part in self.parts:
            if part.depends_on is None:
                return None
            names += part.depends_on
        return tuple(dict.fromkeys(names))

    def needs(self, asked: Asked) -> list[Need]:
        """Return what a request needs.

        Raises:
            DecodeError: it cannot be found out from the body.
        """
        return [need for part in self.parts for need in part.find(asked)]


def topic_need(name: str, *actions: Action) -> Need:
    """Return the need of a topic."""
    if name.startswith(RETRY_PREFIX):
        return group_need(name, *actions)
    return Need(Resource(ResourceType.TOPIC, name), actions)


def group_need(name: str, *actions: Action) -> Need:
    """Return the need of a group, which may be named by its retry topic."""
    return Need(Resource(ResourceType.GROUP, name.removeprefix(RETRY_PREFIX)), actions)


def cluster_need(name: str, *actions: Action) -> Need:
    """Return the need of a cluster."""
    return Need(Resource(ResourceType.CLUSTER, name), actions)


# what fields name


class _Naming(NamedTuple):
    """How a field names resources: it may be missing, it may hold several, retry topics may stand for nothing."""

    is_optional: bool = False
    skips_retries: bool = False
    separator: str = ""


_ONE: Final = _Naming()
_IF_GIVEN: Final = _Naming(is_optional=True)
_NOT_RETRIES: Final = _Naming(skips_retries=True)


def _named(find: Callable[..., Need], names: Sequence[str], actions: Sequence[Action], naming: _Naming) -> Part:
    def find_all(asked: Asked) -> Iterable[Need]:
        text = next((asked.fields[name] for name in names if name in asked.fields), None)
        if text is None or (naming.is_optional and not text.strip()):
            return () if naming.is_optional else (find(NULL, *actions),)
        if naming.skips_retries and text.startswith(RETRY_PREFIX):
            return ()
        separator = naming.separator
        return [find(name, *actions) for name in (filter(None, text.split(separator)) if separator else [text])]

    return Part(find_all, tuple(names))


def _topic(name: str, *actions: Action, naming: _Naming = _ONE) -> Part:
    return _named(topic_need, (name,), actions, naming)


def _group(name: str, *actions: Action, naming: _Naming = _ONE) -> Part:
    return _named(group_need, (name,), actions, naming)


def _cluster(*actions: Action) -> Part:
    def find(asked: Asked) -> Iterable[Need]:
        return (cluster_need(asked.cluster, *actions),)

    return Part(find, ())


def _sent_to(*names: str) -> Part:
    """Return the need of a send, whose topic stands in the first of these fields that there is.

    Consumers send to the retry topic of their group.
    """

    def find(topic: str) -> Need:
        return topic_need(topic, SUB if topic.startswith(RETRY_PREFIX) else PUB)

    return _named(find, names, (), _ONE)


def _acknowledged(asked: Asked) -> Iterable[Need]:
    return _acknowledgement(asked.fields.get("consumerGroup", NULL), asked.fields.get("topic", NULL))


def _acknowledgement(group: str, topic: str) -> Iterable[Need]:
    """Return the needs of an acknowledgement; in its retry topics for POP a group needs itself only."""
    yield group_need(group, SUB)
    if not topic.startswith((f"{RETRY_PREFIX}{group}+", f"{RETRY_PREFIX}{group}_")):
        yield topic_need(topic, SUB)


# what bodies name


def _heartbeat(asked: Asked) -> Iterable[Need]:
    for consumer in decode_body(HeartbeatData, asked.command.body).consumer_data_set:
        yield group_need(consumer.group_name, SUB)
        yield from _plain_topics((data.topic for data in consumer.subscription_data_set), SUB)


def _locked(asked: Asked) -> Iterable[Need]:
    lock = decode_lock_body(asked.command.body)
    yield group_need(lock.consumer_group, SUB)
    yield from _plain_topics((queue.topic for queue in lock.mq_set), SUB)


def _plain_topics(names: Iterable[str], *actions: Action) -> Iterable[Need]:
    return [topic_need(name, *actions) for name in dict.fromkeys(names) if not name.startswith(RETRY_PREFIX)]


def _new_topics(asked: Asked) -> Iterable[Need]:
    listed = decode_body(TopicConfigList, asked.command.body).topic_config_list
    return [topic_need(topic.topic_name, CREATE) for topic in listed]


def _new_group(asked: Asked) -> Iterable[Need]:
    group = decode_body_if_any(SubscriptionGroupConfig, asked.command.body)
    return () if group is None else (group_need(group.group_name, CREATE, UPDATE),)


def _new_groups(asked: Asked) -> Iterable[Need]:
    listed = decode_body(SubscriptionGroupList, asked.command.body).group_config_list
    return [group_need(group.group_name, CREATE, UPDATE) for group in listed]


def _assigned(asked: Asked) -> Iterable[Need]:
    question = decode_body(AssignmentQuestion, asked.command.body)
    yield from _plain_topics([question.topic], SUB, GET)
    yield group_need(question.consumer_group, SUB, GET)


def _request_mode(asked: Asked) -> Iterable[Need]:
    return (topic_need(decode_body(RequestModeBody, asked.command.body).topic, UPDATE),)


def _acknowledged_batches(asked: Asked) -> Iterable[Need]:
    body = decode_body_if_any(BatchAckBody, asked.command.body)
    for group, topic in dict.fromkeys((entry.c, entry.t) for entry in body.acks) if body else ():
        yield from _acknowledgement(group, topic)


# what the log says


def _stored(kind: type[HeaderT], find_place: Callable[[HeaderT], int], *actions: Action) -> Part:
    """Return the need of the topic of a stored message, whose place is read as the handler reads it.

    There may be none: so will the handler find.
    """

    def find(asked: Asked) -> Iterable[Need]:
        try:
            topic = asked.stored_topic(find_place(decode_header(kind, asked.command)))
        except DecodeError:
            return ()
        return () if topic is None else (topic_need(topic, *actions),)

    return Part(find)


def _of_message_id(header: AskedConsumptionHeader | ResumeCheckHeader) -> int:
    return parse_offset_id(header.message_id or "")[1]


# the table

_GROUP_OF_CONSUMER: Final = _group("consumerGroup", SUB)
_CONSUMED: Final = (_GROUP_OF_CONSUMER, _topic("topic", SUB))
_ACKNOWLEDGED: Final = Part(_acknowledged, ("consumerGroup", "topic"))
_LETTERS, _NAMES = _sent_to("b", "topic"), _sent_to("topic", "b")
_VIEWED: Final = _topic("topic", GET, naming=_IF_GIVEN)
_ENDED: Final = _topic("topic", PUB, naming=_IF_GIVEN)
_ASKED_TOPIC: Final = _topic("topic", GET, naming=_IF_GIVEN)
_CHANGED_TOPIC: Final = _topic("topic", UPDATE, naming=_IF_GIVEN)
_DIRECT: Final = (_GROUP_OF_CONSUMER, _topic("topic", SUB, naming=_IF_GIVEN))
_READS_OWN: Final = Row((_cluster(GET),))
_CHANGES_OWN: Final = Row((_cluster(UPDATE),))
_ANY_USER: Final = Row()
_TOPIC_LIST: Final = Listed(
    topic_need, ("topicConfigTable",), ("topicSeq", "dataVersion", "maxTopicNum"), "totalTopicNum"
)
_GROUP_LIST: Final = Listed(
    group_need,
    ("subscriptionGroupTable", "forbiddenTable"),
    ("groupSeq", "dataVersion", "maxGroupNum"),
    "totalGroupNum",
)


def _asked_group(name: str = "consumerGroup") -> Part:
    return _group(name, GET, naming=_IF_GIVEN)


def _rows(*rows: tuple[Sequence[Code], Row]) -> Mapping[int, Row]:
    return MappingProxyType({int(code): row for codes, row in rows for code in codes})


UPSTREAM_NEEDS: Final = _rows(
    # messages
    ([Code.SEND_MESSAGE], Row((_NAMES,))),
    ([Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE], Row((_LETTERS,))),
    ([Code.SEND_REPLY_MESSAGE, Code.SEND_REPLY_MESSAGE_V2], _ANY_USER),
    ([Code.RECALL_MESSAGE], Row((_topic("topic", PUB),))),
    ([Code.END_TRANSACTION], Row((_ENDED,))),
    ([Code.CONSUMER_SEND_MSG_BACK], Row((_group("group", SUB),))),
    ([Code.PULL_MESSAGE], Row((_topic("topic", SUB, naming=_NOT_RETRIES), _GROUP_OF_CONSUMER))),
    ([Code.LITE_PULL_MESSAGE], _ANY_USER),
    ([Code.POP_MESSAGE, Code.NOTIFICATION], Row(_CONSUMED)),
    ([Code.ACK_MESSAGE, Code.CHANGE_MESSAGE_INVISIBLETIME], Row((_ACKNOWLEDGED,))),
    ([Code.PEEK_MESSAGE], Row((_topic("topic", SUB), _GROUP_OF_CONSUMER))),
    ([Code.BATCH_ACK_MESSAGE], _ANY_USER),
    ([Code.POLLING_INFO], Row((_group("consumerGroup", GET), _topic("topic", GET)))),
    ([Code.QUERY_MESSAGE], Row((_topic("topic", SUB, GET),))),
    ([Code.VIEW_MESSAGE_BY_ID], Row((_VIEWED,))),
    ([Code.CONSUME_MESSAGE_DIRECTLY], Row(_DIRECT)),
    ([Code.RESUME_CHECK_HALF_MESSAGE], Row((_CHANGED_TOPIC,))),
    # groups, their members and how far they are
    ([Code.HEART_BEAT], Row((Part(_heartbeat),))),
    ([Code.UNREGISTER_CLIENT], Row((_group("consumerGroup", SUB, naming=_IF_GIVEN),))),
    ([Code.GET_CONSUMER_LIST_BY_GROUP], Row((_group("consumerGroup", SUB, GET),))),
    ([Code.CHECK_CLIENT_CONFIG], _ANY_USER),
    ([Code.LOCK_BATCH_MQ, Code.UNLOCK_BATCH_MQ], Row((Part(_locked),))),
    (
        [Code.QUERY_CONSUMER_OFFSET],
        Row((_topic("topic", SUB, GET, naming=_NOT_RETRIES), _group("consumerGroup", SUB, GET))),
    ),
    (
        [Code.UPDATE_CONSUMER_OFFSET],
        Row((_topic("topic", SUB, UPDATE, naming=_NOT_RETRIES), _group("consumerGroup", SUB, UPDATE))),
    ),
    ([Code.QUERY_ASSIGNMENT, Code.SET_MESSAGE_REQUEST_MODE], _ANY_USER),
    (
        [
            *(Code.SEARCH_OFFSET_BY_TIMESTAMP, Code.GET_MAX_OFFSET, Code.GET_MIN_OFFSET),
            *(Code.GET_EARLIEST_MSG_STORETIME, Code.GET_TOPIC_STATS_INFO, Code.QUERY_TOPIC_CONSUME_BY_WHO),
            *(Code.GET_TOPIC_CONFIG, Code.CHECK_ROCKSDB_CQ_WRITE_PROGRESS),
        ],
        Row((_topic("topic", GET),)),
    ),
    (
        [Code.GET_CONSUME_STATS],
        Row((_asked_group(), _ASKED_TOPIC, _topic("topicList", GET, naming=_Naming(True, False, _TOPIC_SEPARATOR)))),
    ),
    ([Code.GET_CONSUMER_CONNECTION_LIST, Code.GET_CONSUMER_RUNNING_INFO], Row((_group("consumerGroup", GET),))),
    ([Code.QUERY_TOPICS_BY_CONSUMER, Code.GET_SUBSCRIPTIONGROUP_CONFIG], Row((_group("group", GET),))),
    ([Code.QUERY_SUBSCRIPTION_BY_CONSUMER], Row((_asked_group("group"), _ASKED_TOPIC))),
    (
        [Code.QUERY_CONSUME_TIME_SPAN, Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS],
        Row((_ASKED_TOPIC, _asked_group("group"))),
    ),
    (
        [Code.QUERY_CORRECTION_OFFSET],
        Row(
            (
                _group("filterGroups", GET, naming=_Naming(True, False, _GROUP_SEPARATOR)),
                _asked_group("compareGroup"),
                _ASKED_TOPIC,
            )
        ),
    ),
    ([Code.QUERY_CONSUME_QUEUE], Row((_ASKED_TOPIC, _asked_group()))),
    ([Code.INVOKE_BROKER_TO_RESET_OFFSET], Row((_group("group", UPDATE), _CHANGED_TOPIC))),
    ([Code.CLONE_GROUP_OFFSET], Row((_group("destGroup", UPDATE), _CHANGED_TOPIC))),
    ([Code.UPDATE_AND_GET_GROUP_FORBIDDEN], Row((_group("group", UPDATE), _CHANGED_TOPIC))),
    # topics and groups themselves
    ([Code.UPDATE_AND_CREATE_TOPIC], Row((_topic("topic", CREATE),))),
    ([Code.UPDATE_AND_CREATE_TOPIC_LIST], _ANY_USER),
    ([Code.DELETE_TOPIC_IN_BROKER], Row((_topic("topic", DELETE),))),
    ([Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST], _ANY_USER),
    ([Code.DELETE_SUBSCRIPTIONGROUP], Row((_group("groupName", DELETE),))),
    ([Code.GET_ALL_TOPIC_CONFIG, Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG], _ANY_USER),
    # the broker
    (
        [
            *(Code.GET_PRODUCER_CONNECTION_LIST, Code.VIEW_BROKER_STATS_DATA, Code.GET_BROKER_CONSUME_STATS),
            *(Code.GET_ALL_PRODUCER_INFO, Code.EXPORT_ROCKSDB_CONFIG_TO_JSON),
            *(Code.AUTH_GET_USER, Code.AUTH_LIST_USER, Code.AUTH_GET_ACL, Code.AUTH_LIST_ACL),
        ],
        _READS_OWN,
    ),
    (
        [
            *(Code.NOTIFY_MIN_BROKER_ID_CHANGE, Code.EXCHANGE_BROKER_HA_INFO, Code.RESET_MASTER_FLUSH_OFFSET),
            *(Code.NOTIFY_BROKER_ROLE_CHANGED, Code.AUTH_CREATE_USER, Code.AUTH_UPDATE_USER, Code.AUTH_DELETE_USER),
            *(Code.AUTH_CREATE_ACL, Code.AUTH_UPDATE_ACL, Code.AUTH_DELETE_ACL),
        ],
        _CHANGES_OWN,
    ),
    (
        [
            *(Code.UPDATE_BROKER_CONFIG, Code.GET_BROKER_CONFIG, Code.GET_BROKER_RUNTIME_INFO),
            *(Code.GET_ALL_CONSUMER_OFFSET, Code.GET_ALL_DELAY_OFFSET, Code.GET_ALL_MESSAGE_REQUEST_MODE),
            *(Code.GET_TIMER_CHECK_POINT, Code.GET_TIMER_METRICS, Code.GET_BROKER_HA_STATUS),
            *(Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, Code.CLEAN_EXPIRED_CONSUMEQUEUE, Code.CLEAN_UNUSED_TOPIC),
            *(Code.DELETE_EXPIRED_COMMITLOG, Code.GET_BROKER_EPOCH_CACHE, Code.SWITCH_TIMER_ENGINE),
            *(Code.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, Code.REMOVE_COLD_DATA_FLOW_CTR_CONFIG),
            *(Code.GET_COLD_DATA_FLOW_CTR_INFO, Code.SET_COMMITLOG_READ_MODE),
        ],
        _ANY_USER,
    ),
)
"""As an official broker asks."""

_STRICTER: Final = _rows(
    ([Code.SEND_REPLY_MESSAGE], Row((_NAMES,))),
    ([Code.SEND_REPLY_MESSAGE_V2], Row((_LETTERS,))),
    ([Code.END_TRANSACTION], Row((_ENDED, _stored(EndTransactionHeader, lambda header: header.log_offset, PUB)))),
    (
        [Code.CONSUMER_SEND_MSG_BACK],
        Row((_group("group", SUB), _stored(SendBackHeader, lambda header: header.log_offset, SUB))),
    ),
    ([Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE], Row((_topic("topic", SUB), _GROUP_OF_CONSUMER))),
    ([Code.BATCH_ACK_MESSAGE], Row((Part(_acknowledged_batches),))),
    ([Code.VIEW_MESSAGE_BY_ID], Row((_VIEWED, _stored(ViewMessageHeader, lambda header: header.log_offset, GET)))),
    ([Code.CONSUME_MESSAGE_DIRECTLY], Row((*_DIRECT, _stored(AskedConsumptionHeader, _of_message_id, SUB)))),
    ([Code.RESUME_CHECK_HALF_MESSAGE], Row((_CHANGED_TOPIC, _stored(ResumeCheckHeader, _of_message_id, UPDATE)))),
    ([Code.QUERY_ASSIGNMENT], Row((Part(_assigned),))),
    ([Code.SET_MESSAGE_REQUEST_MODE], Row((Part(_request_mode),))),
    ([Code.CLONE_GROUP_OFFSET], Row((_group("destGroup", UPDATE), _group("srcGroup", GET), _CHANGED_TOPIC))),
    ([Code.UPDATE_AND_CREATE_TOPIC_LIST], Row((Part(_new_topics),))),
    ([Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP], Row((Part(_new_group),))),
    ([Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST], Row((Part(_new_groups),))),
    ([Code.GET_ALL_TOPIC_CONFIG], Row(listed=_TOPIC_LIST)),
    ([Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG], Row(listed=_GROUP_LIST)),
    (
        [
            *(Code.GET_BROKER_CONFIG, Code.GET_BROKER_RUNTIME_INFO, Code.GET_ALL_CONSUMER_OFFSET),
            *(Code.GET_ALL_DELAY_OFFSET, Code.GET_ALL_MESSAGE_REQUEST_MODE, Code.GET_TIMER_CHECK_POINT),
            *(Code.GET_TIMER_METRICS, Code.GET_BROKER_HA_STATUS, Code.GET_BROKER_EPOCH_CACHE),
        ],
        _READS_OWN,
    ),
    (
        [
            *(Code.UPDATE_BROKER_CONFIG, Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, Code.CLEAN_EXPIRED_CONSUMEQUEUE),
            *(Code.CLEAN_UNUSED_TOPIC, Code.DELETE_EXPIRED_COMMITLOG, Code.SWITCH_TIMER_ENGINE),
            *(Code.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, Code.REMOVE_COLD_DATA_FLOW_CTR_CONFIG),
            *(Code.GET_COLD_DATA_FLOW_CTR_INFO, Code.SET_COMMITLOG_READ_MODE),
        ],
        _CHANGES_OWN,
    ),
)
STRICT_NEEDS: Final = MappingProxyType({**UPSTREAM_NEEDS, **_STRICTER})
"""What is asked for instead, unless ``authorizationStrict`` is false."""
