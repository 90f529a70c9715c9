"""Levels, and messages on their way into the delay queues and out of them."""

import pathlib

import pytest
from javastores import load_truth
from stores import HOST, new_record

from rocketlet.broker.delay.delayed_messages import Delays, deliverable
from rocketlet.common.errors import DecodeError, MessageIllegalError
from rocketlet.common.message import COMPRESSED
from rocketlet.common.properties import parse_properties
from rocketlet.common.record import Record, decode_record, encode_record

DELAYS = Delays((1000, 5000, 10_000))


def stored(**properties: str) -> Record:
    """Return a record of the schedule topic as it is read back."""
    new = new_record("SCHEDULE_TOPIC_XXXX", 2, b"body", **properties)
    new.reconsume_times, new.flag, new.sys_flag, new.born_at_ms = 3, 7, COMPRESSED, 11
    return decode_record(encode_record(new, 4, 100, 12, HOST))


@pytest.mark.feature("L2")
@pytest.mark.parametrize(
    ("text", "level"),
    [(None, 0), ("0", 0), ("-1", 0), ("1", 1), ("3", 3), ("4", 3), ("2147483647", 3), ("+2", 2), ("02", 2)],
)
def test_level_is_clamped(text: str | None, level: int) -> None:
    """A level above the highest is the highest; 0, below and none at all mean no delay."""
    assert DELAYS.level_of({} if text is None else {"DELAY": text}) == level


@pytest.mark.parametrize("text", ["soon", "", " 1", "1.0", "1_0", "2147483648", "9" * 5000])
def test_level_that_is_no_number(text: str) -> None:
    """What Java's ``Integer.parseInt`` refuses is refused, and named."""
    with pytest.raises(DecodeError, match="DELAY"):
        DELAYS.level_of({"DELAY": text})


@pytest.mark.feature("L4")
def test_parked_message_says_where_it_belongs() -> None:
    """It lies in queue level - 1 of the schedule topic, with DELAY, REAL_TOPIC and REAL_QID; timers are dropped."""
    new = new_record("T", 5, b"body", DELAY="9", TAGS="a", REAL_TOPIC="old", TIMER_DELAY_MS="5", TIMER_DELIVER_MS="6")
    new.reconsume_times, new.flag = 2, 7
    parked = DELAYS.park(new, 9)
    assert (parked.topic, parked.queue_id) == ("SCHEDULE_TOPIC_XXXX", 2)
    assert parked.properties == {"DELAY": "3", "TAGS": "a", "REAL_TOPIC": "T", "REAL_QID": "5"}
    assert parse_properties(parked.property_text) == parked.properties
    kept = parked.body, parked.reconsume_times, parked.flag, parked.born_at_ms, parked.born_host
    assert kept == (b"body", 2, 7, new.born_at_ms, new.born_host)


@pytest.mark.feature("L4")
def test_delivered_message_keeps_everything_but_its_place() -> None:
    """Body, text of the properties, flags, born time and host and attempts are those of the parked message."""
    parked = stored(REAL_TOPIC="T", REAL_QID="5", DELAY="3", TAGS="a")
    new = deliverable(parked)
    assert (new.topic, new.queue_id, new.body) == ("T", 5, b"body")
    assert (new.flag, new.sys_flag, new.born_at_ms, new.born_host) == (7, COMPRESSED, 11, parked.born_host)
    assert (new.property_text, new.reconsume_times) == (parked.property_text, 3)
    assert new.properties == parse_properties(parked.property_text)


@pytest.mark.parametrize(
    "properties",
    [
        {"REAL_QID": "0"},
        {"REAL_TOPIC": "T"},
        {"REAL_TOPIC": "T", "REAL_QID": "-1"},
        {"REAL_TOPIC": "T", "REAL_QID": "x"},
        {"REAL_TOPIC": "RMQ_SYS_TRANS_HALF_TOPIC", "REAL_QID": "0"},
    ],
)
def test_message_without_a_place_is_not_delivered(properties: dict[str, str]) -> None:
    """A half message, and one that does not say where it belongs, never comes out."""
    with pytest.raises(MessageIllegalError):
        deliverable(stored(**properties))


@pytest.mark.feature("L4")
def test_java_parks_and_delivers_in_the_same_way(vectors: pathlib.Path) -> None:
    """Each message that Java parked is what comes of parking it here, and what Java delivered is what comes out."""
    truth = load_truth(vectors, "delay-retry")
    queues = {topic["topic"]: topic["queues"] for topic in truth["topics"]}
    parked = [message for queue in queues["SCHEDULE_TOPIC_XXXX"] for message in queue["messages"]]
    delivered = {
        (message["msgId"], message["topic"]): message
        for topic, found in queues.items()
        if topic == "DelayTopic" or topic.startswith("%RETRY%CID")
        for queue in found
        for message in queue["messages"]
    }
    assert len(parked) == 9
    for message in parked:
        properties = message["properties"]
        new = new_record(properties["REAL_TOPIC"], int(properties["REAL_QID"]), **properties)
        again = Delays((1000,) * 18).park(new, int(properties["DELAY"]))
        assert (again.topic, again.queue_id, again.properties) == (message["topic"], message["queueId"], properties)
        came_out = delivered.get((message["msgId"], properties["REAL_TOPIC"]))
        if came_out is not None:
            assert came_out["properties"] == properties
            assert came_out["queueId"] == int(properties["REAL_QID"])
            assert came_out["reconsumeTimes"] == message["reconsumeTimes"]
