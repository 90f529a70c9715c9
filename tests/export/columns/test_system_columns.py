"""What waits in topics of the broker's own says what it waits for."""

import datetime
from collections import Counter
from collections.abc import Mapping

import pytest
from javastores import JavaStores, Read, Row
from logbuilder import FIRST_MS, LogBuilder

from rocketlet.export.columns.schema import FULL_SCHEMA, SYSTEM_FIELDS, pick_columns
from rocketlet.export.plan.selection import Selection
from rocketlet.export.write.log_reader import ReadOptions

EVERYTHING = ReadOptions(Selection(includes_system=True), FULL_SCHEMA)
ASKED = ReadOptions(Selection(includes_system=True), pick_columns(SYSTEM_FIELDS))


@pytest.fixture(scope="module")
def rows(java_stores: JavaStores, read: Read) -> list[Row]:
    """Return the rows of a store that a Java broker wrote, with everything that waited there."""
    return read(java_stores["delay-retry"], options=EVERYTHING)[0]


def of_state(rows: list[Row], state: str | None) -> list[Row]:
    """Return the rows of a state."""
    return [row for row in rows if row["state"] == state]


def at(milliseconds: int) -> datetime.datetime:
    """Return an instant."""
    return datetime.datetime.fromtimestamp(0, datetime.UTC) + datetime.timedelta(milliseconds=milliseconds)


def test_states_of_a_java_store(rows: list[Row]) -> None:
    """Each topic of the broker's own has its state, and messages of applications have none of the columns."""
    found = Counter((row["topic"][:23], row["state"]) for row in rows if row["state"])
    assert found == {
        ("SCHEDULE_TOPIC_XXXX", "delayed"): 9,
        ("rmq_sys_wheel_timer", "timer"): 13,
        ("rmq_sys_wheel_timer", "timer-delete"): 1,
        ("rmq_sys_REVIVE_LOG_Gold", "check-point"): 1,
        ("rmq_sys_REVIVE_LOG_Gold", "ack"): 1,
        ("RMQ_SYS_TRANS_HALF_TOPI", "half"): 14,
        ("RMQ_SYS_TRANS_OP_HALF_T", "op"): 1,
        ("TRANS_CHECK_MAX_TIME_TO", "discarded"): 4,
        ("%RETRY%CID_retry", "retry"): 2,
        ("%RETRY%PopGroupWithALon", "retry"): 1,
        ("%DLQ%CID_retry", "dead-letter"): 1,
    }
    ordinary = of_state(rows, None)
    assert len(ordinary) == len(rows) - found.total()
    assert {row[name] for row in ordinary for name in SYSTEM_FIELDS} == {None}


def test_real_topics_of_a_java_store(rows: list[Row]) -> None:
    """The topic that a message was sent to is found, for retries of push and of pop consumers as well."""
    pop_topic = "PopTopicWithALongName_" + 40 * "x"
    assert {row["realTopic"] for row in of_state(rows, "delayed")} == {"DelayTopic", "RetryTopic"}
    assert {row["realTopic"] for row in of_state(rows, "half")} == {"TxTopic"}
    assert {row["realTopic"] for row in of_state(rows, "discarded")} == {"TxTopic"}
    [lease], [ack] = of_state(rows, "check-point"), of_state(rows, "ack")
    assert (lease["realTopic"], lease["realQueueId"]) == (ack["realTopic"], ack["realQueueId"]) == (pop_topic, 0)
    assert ack["dueTimestamp"] - lease["dueTimestamp"] == datetime.timedelta(seconds=1)
    assert {row["realTopic"] for row in of_state(rows, "retry")} == {"RetryTopic", pop_topic}
    assert [row["realTopic"] for row in of_state(rows, "dead-letter")] == ["RetryTopic"]
    assert {row["realTopic"] for row in of_state(rows, "op")} == {None}


def test_delivered_messages_came_when_they_were_due(rows: list[Row]) -> None:
    """Each delayed or timed message stands in its own topic and queue afterwards, stored no earlier than it was due."""
    places = {(row["msgId"], row["topic"], row["queueId"]): row for row in of_state(rows, None)}
    waited = [row for row in rows if row["dueTimestamp"] and row["realTopic"] in ("DelayTopic", "TimerTopic")]
    delivered = 0
    for row in waited:
        arrived = places.get((row["msgId"], row["realTopic"], row["realQueueId"]))
        if arrived is not None:
            assert arrived["storeTimestamp"] >= row["dueTimestamp"]
            delivered += 1
    assert delivered >= 6


@pytest.mark.parametrize(
    ("topic", "properties", "expected"),
    [
        (
            "SCHEDULE_TOPIC_XXXX",
            {"DELAY": "2", "REAL_TOPIC": "T", "REAL_QID": "7"},
            ("T", 7, at(FIRST_MS + 5000), "delayed"),
        ),
        (
            "SCHEDULE_TOPIC_XXXX",
            {"DELAY": "99", "REAL_TOPIC": "T", "REAL_QID": "-1"},
            ("T", None, at(FIRST_MS + 7_200_000), "delayed"),
        ),
        (
            "SCHEDULE_TOPIC_XXXX",
            {"DELAY": "x", "REAL_TOPIC": "%RETRY%g", "REAL_QID": "0", "RETRY_TOPIC": "T"},
            ("T", None, None, "delayed"),
        ),
        (
            "rmq_sys_wheel_timer",
            {"TIMER_OUT_MS": "1000", "REAL_TOPIC": "T", "TIMER_DEL_UNIQKEY": "u"},
            ("T", None, at(1000), "timer-delete"),
        ),
        ("rmq_sys_wheel_timer", {"TIMER_OUT_MS": "9" * 18, "REAL_QID": "3"}, (None, None, None, "timer")),
        (
            "%DLQ%g",
            {"DLQ_ORIGIN_TOPIC": "O", "RETRY_TOPIC": "T", "REAL_TOPIC": "%RETRY%g"},
            ("O", None, None, "dead-letter"),
        ),
        ("%RETRY%g_T", {"ORIGIN_GROUP": "g"}, ("T", None, None, "retry")),
        ("%RETRY%g+T", {"ORIGIN_GROUP": "g"}, ("T", None, None, "retry")),
        ("%RETRY%g_", {"ORIGIN_GROUP": "g"}, (None, None, None, "retry")),
        ("%RETRY%g-T", {"ORIGIN_GROUP": "g"}, (None, None, None, "retry")),
        ("%RETRY%g", {"ORIGIN_GROUP": "g"}, (None, None, None, "retry")),
        ("%RETRY%g", {}, (None, None, None, "retry")),
        ("Topic", {"DELAY": "2", "REAL_TOPIC": "T", "REAL_QID": "7", "TIMER_OUT_MS": "1"}, (None, None, None, None)),
    ],
)
def test_columns_of_single_messages(
    log: LogBuilder, read: Read, topic: str, properties: Mapping[str, str], expected: tuple[object, ...]
) -> None:
    """Properties that are absent, out of range or no numbers are null; the topic decides which of them count."""
    log.add(topic=topic, properties=properties)
    log.save()
    (row,), _ = read(log.root, options=ASKED)
    assert tuple(row.values()) == expected


@pytest.mark.parametrize(
    ("tag", "state"), [("ck", "check-point"), ("ack", "ack"), ("bAck", "ack"), ("other", "system"), (None, "system")]
)
def test_states_in_a_revive_topic(log: LogBuilder, read: Read, tag: str | None, state: str) -> None:
    """The tag says what a record is; topic and queue are those of its unique key."""
    properties = {"UNIQ_KEY": "T@3@5@g@1700000000000@b@ck", **({} if tag is None else {"TAGS": tag})}
    log.add(topic="rmq_sys_REVIVE_LOG_c", properties=properties)
    log.save()
    (row,), _ = read(log.root, options=ASKED)
    assert tuple(row.values()) == ("T", 3, None, state)


def test_delay_levels_are_those_of_the_broker(log: LogBuilder, read: Read) -> None:
    """A broker with other levels has other due times."""
    log.add(topic="SCHEDULE_TOPIC_XXXX", properties={"DELAY": "2"})
    log.save()
    (row,), _ = read(log.root, options=ReadOptions(ASKED.selection, ASKED.schema, delays_ms=(1, 60_000)))
    assert row["dueTimestamp"] == at(FIRST_MS + 60_000)
