"""What each request needs: the table of spec security.md §7, and what is asked for beyond it."""

import json
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from replica_pair import replica_pair
from served import answered, observe

import rocketlet.broker.server as broker_server
from rocketlet.broker.security.needs import STRICT_NEEDS, UPSTREAM_NEEDS, Asked, Row
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.common.errors import DecodeError
from rocketlet.common.signing import scan_signed, scan_signed_slowly
from rocketlet.namesrv.server import NameServer
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode as Code
from rocketlet.remoting.headers.send import decode_send_header
from rocketlet.testing.manual_clock import ManualClock

ANYBODY = ""
SAME = None
TOPIC, GROUP = {"topic": "T"}, {"consumerGroup": "g"}
BOTH = {**TOPIC, **GROUP}
RETRY = {**GROUP, "topic": "%RETRY%other"}
STORED = {1: "Stored", 2: "%RETRY%other"}
MESSAGE_ID = "7F00000100002A9F0000000000000001"
SEND_BACK = {"offset": "1", "group": "g", "delayLevel": "0", "originTopic": "T"}
END = {
    "producerGroup": "p",
    "tranStateTableOffset": "0",
    "commitLogOffset": "1",
    "commitOrRollback": "8",
    "msgId": "m",
}
SUBSCRIPTIONS = [{"topic": name, "subString": "*"} for name in ("T", "%RETRY%g", "U")]
HEARTBEAT = {
    "clientID": "c",
    "consumerDataSet": [{"groupName": "g", "subscriptionDataSet": SUBSCRIPTIONS}, {"groupName": "h"}],
    "producerDataSet": [{"groupName": "p"}],
}
QUEUES = [{"brokerName": "b", "queueId": number, "topic": name} for name in ("T", "%RETRY%g") for number in range(2)]
LOCK = {"clientId": "c", "consumerGroup": "g", "mqSet": QUEUES}
ASSIGNMENT = {"topic": "T", "consumerGroup": "g", "messageModel": "CLUSTERING"}
LEASE = {"c": "g", "r": "0", "so": 0, "q": 0, "rq": 0, "pt": 1, "it": 1, "b": "AQ=="}
LEASES = {"acks": [{**LEASE, "t": "T"}, {**LEASE, "t": "T"}, {**LEASE, "t": "%RETRY%g+T"}]}
CONSUMED = "Topic:T Sub, Group:g Sub"
READS, CHANGES = "Cluster:own Get", "Cluster:own Update"

ROWS: list[tuple[Code, Mapping[str, str], Any, str, str | None]] = [
    (Code.SEND_MESSAGE, TOPIC, None, "Topic:T Pub", SAME),
    (Code.SEND_MESSAGE, {"b": "T"}, None, "Topic:T Pub", SAME),
    (Code.SEND_MESSAGE, {"topic": "T", "b": "Other"}, None, "Topic:T Pub", SAME),
    (Code.SEND_MESSAGE, {"topic": "%RETRY%g"}, None, "Group:g Sub", SAME),
    (Code.SEND_MESSAGE, {}, None, "Topic:null Pub", SAME),
    (Code.SEND_MESSAGE_V2, {"b": "T"}, None, "Topic:T Pub", SAME),
    (Code.SEND_MESSAGE_V2, {"b": "T", "topic": "Other"}, None, "Topic:T Pub", SAME),
    (Code.SEND_MESSAGE_V2, TOPIC, None, "Topic:T Pub", SAME),
    (Code.SEND_MESSAGE_V2, {"a": "own", "b": "%RETRY%g"}, None, "Group:g Sub", SAME),
    (Code.SEND_MESSAGE_V2, {"b": "%DLQ%g"}, None, "Topic:%DLQ%g Pub", SAME),
    (Code.SEND_BATCH_MESSAGE, {"b": "T"}, None, "Topic:T Pub", SAME),
    (Code.SEND_REPLY_MESSAGE, {"topic": "c_REPLY_TOPIC"}, None, ANYBODY, "Topic:c_REPLY_TOPIC Pub"),
    (Code.SEND_REPLY_MESSAGE_V2, {"b": "c_REPLY_TOPIC"}, None, ANYBODY, "Topic:c_REPLY_TOPIC Pub"),
    (Code.RECALL_MESSAGE, TOPIC, None, "Topic:T Pub", SAME),
    (Code.END_TRANSACTION, {**END, **TOPIC}, None, "Topic:T Pub", "Topic:T Pub, Topic:Stored Pub"),
    (Code.END_TRANSACTION, END, None, ANYBODY, "Topic:Stored Pub"),
    (Code.END_TRANSACTION, {**END, "topic": " ", "commitLogOffset": "7"}, None, ANYBODY, ANYBODY),
    (Code.CONSUMER_SEND_MSG_BACK, SEND_BACK, None, "Group:g Sub", "Group:g Sub, Topic:Stored Sub"),
    (Code.CONSUMER_SEND_MSG_BACK, {**SEND_BACK, "offset": "2"}, None, "Group:g Sub", "Group:g Sub, Group:other Sub"),
    (Code.CONSUMER_SEND_MSG_BACK, {**SEND_BACK, "offset": "+1"}, None, "Group:g Sub", "Group:g Sub, Topic:Stored Sub"),
    (Code.CONSUMER_SEND_MSG_BACK, {**SEND_BACK, "offset": "x"}, None, "Group:g Sub", SAME),
    (Code.PULL_MESSAGE, BOTH, None, CONSUMED, SAME),
    (Code.PULL_MESSAGE, RETRY, None, "Group:g Sub", "Group:other Sub, Group:g Sub"),
    (Code.LITE_PULL_MESSAGE, BOTH, None, ANYBODY, CONSUMED),
    (Code.POP_MESSAGE, BOTH, None, "Group:g Sub, Topic:T Sub", SAME),
    (Code.POP_MESSAGE, RETRY, None, "Group:g Sub, Group:other Sub", SAME),
    (Code.NOTIFICATION, BOTH, None, "Group:g Sub, Topic:T Sub", SAME),
    (Code.PEEK_MESSAGE, BOTH, None, CONSUMED, SAME),
    (Code.POLLING_INFO, BOTH, None, "Group:g Get, Topic:T Get", SAME),
    (Code.ACK_MESSAGE, BOTH, None, "Group:g Sub, Topic:T Sub", SAME),
    (Code.ACK_MESSAGE, {**GROUP, "topic": "%RETRY%g_T"}, None, "Group:g Sub", SAME),
    (Code.ACK_MESSAGE, RETRY, None, "Group:g Sub, Group:other Sub", SAME),
    (Code.CHANGE_MESSAGE_INVISIBLETIME, {**GROUP, "topic": "%RETRY%g+T"}, None, "Group:g Sub", SAME),
    (Code.BATCH_ACK_MESSAGE, {}, LEASES, ANYBODY, "Group:g Sub, Topic:T Sub, Group:g Sub"),
    (Code.BATCH_ACK_MESSAGE, {}, None, ANYBODY, ANYBODY),
    (Code.QUERY_MESSAGE, TOPIC, None, "Topic:T Sub|Get", SAME),
    (Code.QUERY_MESSAGE, {"topic": "%RETRY%g"}, None, "Group:g Sub|Get", SAME),
    (Code.VIEW_MESSAGE_BY_ID, {"offset": "1"}, None, ANYBODY, "Topic:Stored Get"),
    (Code.VIEW_MESSAGE_BY_ID, {"offset": "1", **TOPIC}, None, "Topic:T Get", "Topic:T Get, Topic:Stored Get"),
    (
        Code.CONSUME_MESSAGE_DIRECTLY,
        {**GROUP, "msgId": MESSAGE_ID},
        None,
        "Group:g Sub",
        "Group:g Sub, Topic:Stored Sub",
    ),
    (Code.CONSUME_MESSAGE_DIRECTLY, {**BOTH, "msgId": "none"}, None, "Group:g Sub, Topic:T Sub", SAME),
    (Code.RESUME_CHECK_HALF_MESSAGE, TOPIC, None, "Topic:T Update", SAME),
    (Code.RESUME_CHECK_HALF_MESSAGE, {"msgId": MESSAGE_ID}, None, ANYBODY, "Topic:Stored Update"),
    (Code.HEART_BEAT, {}, HEARTBEAT, "Group:g Sub, Topic:T Sub, Topic:U Sub, Group:h Sub", SAME),
    (Code.UNREGISTER_CLIENT, GROUP, None, "Group:g Sub", SAME),
    (Code.UNREGISTER_CLIENT, {"producerGroup": "p"}, None, ANYBODY, SAME),
    (Code.GET_CONSUMER_LIST_BY_GROUP, GROUP, None, "Group:g Sub|Get", SAME),
    (Code.CHECK_CLIENT_CONFIG, {}, {"group": "g"}, ANYBODY, SAME),
    (Code.LOCK_BATCH_MQ, {}, LOCK, "Group:g Sub, Topic:T Sub", SAME),
    (Code.UNLOCK_BATCH_MQ, {}, LOCK, "Group:g Sub, Topic:T Sub", SAME),
    (Code.QUERY_CONSUMER_OFFSET, BOTH, None, "Topic:T Sub|Get, Group:g Sub|Get", SAME),
    (Code.QUERY_CONSUMER_OFFSET, RETRY, None, "Group:g Sub|Get", SAME),
    (Code.UPDATE_CONSUMER_OFFSET, BOTH, None, "Topic:T Sub|Update, Group:g Sub|Update", SAME),
    (Code.QUERY_ASSIGNMENT, {}, ASSIGNMENT, ANYBODY, "Topic:T Sub|Get, Group:g Sub|Get"),
    (Code.SET_MESSAGE_REQUEST_MODE, {}, ASSIGNMENT, ANYBODY, "Topic:T Update"),
    *(
        (code, TOPIC, None, "Topic:T Get", SAME)
        for code in (
            *(
                Code.SEARCH_OFFSET_BY_TIMESTAMP,
                Code.GET_MAX_OFFSET,
                Code.GET_MIN_OFFSET,
                Code.GET_EARLIEST_MSG_STORETIME,
            ),
            *(Code.GET_TOPIC_STATS_INFO, Code.QUERY_TOPIC_CONSUME_BY_WHO, Code.GET_TOPIC_CONFIG),
            Code.CHECK_ROCKSDB_CQ_WRITE_PROGRESS,
        )
    ),
    (Code.GET_CONSUME_STATS, GROUP, None, "Group:g Get", SAME),
    (
        Code.GET_CONSUME_STATS,
        {**BOTH, "topicList": "A;;B"},
        None,
        "Group:g Get, Topic:T Get, Topic:A Get, Topic:B Get",
        SAME,
    ),
    (Code.GET_CONSUMER_CONNECTION_LIST, GROUP, None, "Group:g Get", SAME),
    (Code.GET_CONSUMER_RUNNING_INFO, GROUP, None, "Group:g Get", SAME),
    (Code.QUERY_TOPICS_BY_CONSUMER, {"group": "g"}, None, "Group:g Get", SAME),
    (Code.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "g"}, None, "Group:g Get", SAME),
    (Code.QUERY_SUBSCRIPTION_BY_CONSUMER, {"group": "g", **TOPIC}, None, "Group:g Get, Topic:T Get", SAME),
    (Code.QUERY_CONSUME_TIME_SPAN, {"group": "g", **TOPIC}, None, "Topic:T Get, Group:g Get", SAME),
    (Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, {"group": "g", **TOPIC}, None, "Topic:T Get, Group:g Get", SAME),
    (
        Code.QUERY_CORRECTION_OFFSET,
        {"filterGroups": "a,b", "compareGroup": "g", **TOPIC},
        None,
        "Group:a Get, Group:b Get, Group:g Get, Topic:T Get",
        SAME,
    ),
    (Code.QUERY_CONSUME_QUEUE, BOTH, None, "Topic:T Get, Group:g Get", SAME),
    (Code.INVOKE_BROKER_TO_RESET_OFFSET, {"group": "g", **TOPIC}, None, "Group:g Update, Topic:T Update", SAME),
    (
        Code.CLONE_GROUP_OFFSET,
        {"srcGroup": "s", "destGroup": "g", **TOPIC},
        None,
        "Group:g Update, Topic:T Update",
        "Group:g Update, Group:s Get, Topic:T Update",
    ),
    (Code.UPDATE_AND_GET_GROUP_FORBIDDEN, {"group": "g", **TOPIC}, None, "Group:g Update, Topic:T Update", SAME),
    (Code.UPDATE_AND_CREATE_TOPIC, TOPIC, None, "Topic:T Create", SAME),
    (
        Code.UPDATE_AND_CREATE_TOPIC_LIST,
        {},
        {"topicConfigList": [{"topicName": "A"}, {"topicName": "B"}]},
        ANYBODY,
        "Topic:A Create, Topic:B Create",
    ),
    (Code.DELETE_TOPIC_IN_BROKER, TOPIC, None, "Topic:T Delete", SAME),
    (Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, {"groupName": "g"}, ANYBODY, "Group:g Create|Update"),
    (Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, None, ANYBODY, ANYBODY),
    (
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        {},
        {"groupConfigList": [{"groupName": "g"}, {"groupName": "h"}]},
        ANYBODY,
        "Group:g Create|Update, Group:h Create|Update",
    ),
    (Code.DELETE_SUBSCRIPTIONGROUP, {"groupName": "g"}, None, "Group:g Delete", SAME),
    (Code.GET_ALL_TOPIC_CONFIG, {}, None, ANYBODY, SAME),
    (Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {}, None, ANYBODY, SAME),
    *(
        (code, {}, None, READS, SAME)
        for code in (
            *(Code.GET_PRODUCER_CONNECTION_LIST, Code.VIEW_BROKER_STATS_DATA, Code.GET_BROKER_CONSUME_STATS),
            *(Code.GET_ALL_PRODUCER_INFO, Code.EXPORT_ROCKSDB_CONFIG_TO_JSON),
            *(Code.AUTH_GET_USER, Code.AUTH_LIST_USER, Code.AUTH_GET_ACL, Code.AUTH_LIST_ACL),
        )
    ),
    *(
        (code, {}, None, CHANGES, SAME)
        for code in (
            *(Code.NOTIFY_MIN_BROKER_ID_CHANGE, Code.EXCHANGE_BROKER_HA_INFO, Code.RESET_MASTER_FLUSH_OFFSET),
            *(Code.AUTH_CREATE_USER, Code.AUTH_UPDATE_USER, Code.AUTH_DELETE_USER, Code.NOTIFY_BROKER_ROLE_CHANGED),
            *(Code.AUTH_CREATE_ACL, Code.AUTH_UPDATE_ACL, Code.AUTH_DELETE_ACL),
        )
    ),
    *((code, {}, None, ANYBODY, READS) for code in (26, 28, 43, 45, 60, 61, 402, 907, 1007)),
    *((code, {}, None, ANYBODY, CHANGES) for code in (25, 305, 306, 316, 329, 2001, 2002, 2003, 2004, 5001)),
]


def needs(row: Row, code: int, fields: Mapping[str, str], body: Any) -> str:
    """Return what a request needs, in short."""
    text = b"" if body is None else json.dumps(body).encode()
    command = Command.request(code, fields, text)
    found = row.needs(Asked(command, command.ext, "own", STORED.get))
    return ", ".join(f"{need.resource} {'|'.join(need.actions)}" for need in found)


@pytest.mark.feature("A12", "A13")
@pytest.mark.parametrize(("code", "fields", "body", "upstream", "strict"), ROWS)
def test_needs_of_a_request(code: int, fields: Mapping[str, str], body: Any, upstream: str, strict: str | None) -> None:
    """As an official broker asks, and as is asked unless it shall be the same."""
    assert needs(UPSTREAM_NEEDS[code], code, fields, body) == upstream
    assert needs(STRICT_NEEDS[code], code, fields, body) == (upstream if strict is SAME else strict)


def test_every_row_is_shown() -> None:
    """Of each code there is a line above, and nothing is asked for in the one table only."""
    assert {int(row[0]) for row in ROWS} == set(STRICT_NEEDS) == set(UPSTREAM_NEEDS)


@pytest.mark.parametrize("code", [34, 41, 42, 18, 200, 225, 400, 401, 200151])
def test_unreadable_body_is_an_error(code: int) -> None:
    """What a request needs cannot be found out then, so that it is refused."""
    command = Command.request(code, {}, b'{"consumerDataSet":7,"mqSet":7,"acks":7,"topicConfigList":7')
    with pytest.raises(DecodeError):
        STRICT_NEEDS[code].needs(Asked(command, {}, "own", STORED.get))


@pytest.mark.parametrize("table", [UPSTREAM_NEEDS, STRICT_NEEDS])
def test_fields_that_decide_are_named(table: Mapping[int, Row]) -> None:
    """A grant is remembered by them: what is asked for must not hang on anything else."""
    for code, fields, body, *_ in ROWS:
        row = table[code]
        if row.depends_on is not None:
            deciding = {name: fields[name] for name in row.depends_on if name in fields}
            assert needs(row, code, deciding, None) == needs(row, code, fields, body)


async def test_every_handler_has_a_row(
    settings: dict[str, str], clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A code that is answered without one is served to nobody where rights count; and no row is for nothing."""
    observed = observe(monkeypatch, broker_server)
    async with broker_server.Broker(BrokerConfig.from_java(settings), clock):
        assert set(answered(observed[0].handlers)) == set(STRICT_NEEDS)


async def test_every_handler_of_a_slave_has_a_row(
    nameserver: NameServer, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slaves answer some codes otherwise, and no others."""
    observed = observe(monkeypatch, broker_server)
    async with replica_pair(nameserver, tmp_path) as pair:
        await pair.start_slave()
        codes = [set(answered(one.handlers)) for one in observed]
    assert len(codes) >= 2
    assert all(found == set(STRICT_NEEDS) for found in codes)


LETTERED = {"e": "0", "f": "0", "g": "1", "h": "0", "queueId": "0", "sysFlag": "0", "bornTimestamp": "1", "flag": "0"}
NAMES = st.sampled_from(["b", "topic", "\\u0062", "a", "B"])
JSON_VALUES = st.sampled_from(['"T"', '"U"', '""', '"%RETRY%g"', '"\\u0054"', '"\\u00e9"', "null", "7", "true", "[]"])


@given(st.sampled_from([Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2]), st.lists(st.tuples(NAMES, JSON_VALUES), max_size=5))
@pytest.mark.parametrize("scan", [scan_signed, scan_signed_slowly])
def test_topic_that_is_checked_is_the_topic_of_the_handler(
    scan: Callable[..., Any], code: Code, named: list[tuple[str, str]]
) -> None:
    """However a field is spelled, and how often: by the short way, where it is taken, and by the long one."""
    fields = [*(f'"{name}":"{value}"' for name, value in {**LETTERED, "AccessKey": "u", "Signature": "s"}.items())]
    text = "{" + ",".join([*fields, *(f'"{name}":{value}' for name, value in named)]) + "}"
    row = STRICT_NEEDS[code]
    short = Command(code=code, ext_text=msgspec.Raw(text.encode()))
    found = scan(short.ext_text, b"", 493, row.depends_on)
    if found is not None:
        values = dict(zip(row.depends_on or (), found[3], strict=True))
        check_topic(row, short, {name: value for name, value in values.items() if value is not None})
    long = Command(code=code, ext_text=msgspec.Raw(text.encode()))
    check_topic(row, long, long.ext)


def check_topic(row: Row, command: Command, fields: Mapping[str, str]) -> None:
    """Compare the topic that is asked for with the one that the handler reads, unless it reads none."""
    [need] = row.needs(Asked(command, fields, "own", STORED.get))
    try:
        topic = decode_send_header(command).topic
    except DecodeError:
        return
    assert str(need.resource) == (f"Group:{topic[7:]}" if topic.startswith("%RETRY%") else f"Topic:{topic}")
