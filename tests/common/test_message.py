import re
from typing import Any

import pytest

from rocketlet.common import properties as names
from rocketlet.common.message import Message, MessageQueue, carried, replayed, split_keys
from rocketlet.common.properties import encode_properties, parse_properties


def test_properties_of_a_message_hold_tags_keys_and_wait() -> None:
    """Tags, keys (joined by one blank) and the wait flag travel as properties beside the application's own."""
    message = Message("T", b"", tags="标签", keys=["k1", "🔑"], properties={"größe": "ü 1"})
    expected = {"größe": "ü 1", "TAGS": "标签", "KEYS": "k1 🔑", "WAIT": "true"}
    assert message.to_properties() == expected
    assert parse_properties(encode_properties(message.to_properties())) == expected
    assert message.properties == {"größe": "ü 1"}


@pytest.mark.parametrize("body", [{"order": 1}, "text", None, 7, ["x"]], ids=repr)
def test_body_that_is_not_bytes_is_refused_at_once(body: Any) -> None:
    """Where the message is made, so that the traceback shows the line of the mistake."""
    with pytest.raises(TypeError, match=f"^body is {type(body).__name__}, it must be bytes; encode it first"):
        Message("T", body)


def test_properties_of_a_plain_message() -> None:
    """Without tags and keys only the wait flag travels; an empty tag counts as none, as in Java's constructor."""
    assert Message("T", b"", tags="", waits_for_store=False).to_properties() == {"WAIT": "false"}


def test_one_text_as_keys_is_one_key() -> None:
    """A text given as keys is not taken apart into its characters."""
    assert Message("T", b"", keys="order-1").to_properties()["KEYS"] == "order-1"


@pytest.mark.parametrize(
    "message",
    [
        Message("T", b"", tags="a\x01b"),
        Message("T", b"", tags="a\x02"),
        Message("T", b"", keys=["a\x02"]),
        Message("T", b"", keys=["a b"]),
        Message("T", b"", keys=["a", ""]),
        Message("T", b"", properties={"a\x01": "b"}),
        Message("T", b"", properties={"a": "b\x02c\x01d"}),
        Message("T", b"", properties={"a": ""}),
        Message("T", b"", properties={"a": " "}),
        Message("T", b"", properties={"": "b"}),
        Message("T", b"", properties={"TAGS": "b"}),
        Message("T", b"", properties={"KEYS": "b"}),
        Message("T", b"", properties={"WAIT": "true"}),
    ],
    ids=repr,
)
def test_properties_that_would_be_misread_are_refused(message: Message) -> None:
    """Separators, blank names or values, keys with blanks and the names of fields are a value error."""
    with pytest.raises(ValueError, match=r"separate|blank|is set through"):
        message.to_properties()


@pytest.mark.parametrize(
    ("message", "property_"),
    [
        (Message("T", b"", delay_level=3), {"DELAY": "3"}),
        (Message("T", b"", delay_ms=1500), {"TIMER_DELAY_MS": "1500"}),
        (Message("T", b"", delay_ms=0), {"TIMER_DELAY_MS": "0"}),
        (Message("T", b"", deliver_at_ms=1_700_000_000_000), {"TIMER_DELIVER_MS": "1700000000000"}),
    ],
    ids=repr,
)
def test_delay_of_a_message_travels_as_javas_property(message: Message, property_: dict[str, str]) -> None:
    """A level, a time to wait or an instant: each has Java's property, and the message knows that it is late."""
    assert message.to_properties() == {"WAIT": "true", **property_}
    assert message.is_late


def test_message_without_a_delay_is_not_late() -> None:
    """Level 0 is none, as in Java."""
    message = Message("T", b"", delay_level=0)
    assert message.to_properties() == {"WAIT": "true"}
    assert not message.is_late


@pytest.mark.parametrize(
    ("fields", "error", "text"),
    [
        ({"delay_level": 3, "delay_ms": 5}, ValueError, "one delay, not delay_level and delay_ms"),
        ({"delay_ms": 0, "deliver_at_ms": 5}, ValueError, "one delay, not delay_ms and deliver_at_ms"),
        ({"delay_level": -1}, ValueError, "delay_level is -1, it must not be below 0"),
        ({"delay_ms": 1.5}, TypeError, "delay_ms is float, it must be a whole number"),
        ({"delay_level": "3"}, TypeError, "delay_level is str, it must be a whole number"),
        ({"properties": {"DELAY": "3"}}, ValueError, "property DELAY is set through delay_level"),
        ({"properties": {"TIMER_DELAY_SEC": "3"}}, ValueError, "property TIMER_DELAY_SEC is set through delay_ms"),
        ({"properties": {"a": 5}}, TypeError, "property 'a' is int, it must be text"),
        ({"properties": {5: "a"}}, TypeError, "property 5 is int, it must be text"),
        ({"properties": ["a"]}, TypeError, "properties are list, they must be a mapping of texts"),
        ({"tags": b"a"}, TypeError, "property 'TAGS' is bytes, it must be text"),
        ({"keys": 5}, TypeError, "keys are int, they must be texts"),
        ({"keys": [5]}, TypeError, "key 5 is int, it must be text"),
    ],
)
def test_field_that_cannot_travel_is_refused_by_name(fields: dict[str, Any], error: type[Exception], text: str) -> None:
    """One sentence says which field is wrong and why; what has several delays is refused whichever they are."""
    with pytest.raises(error, match=f"^{re.escape(text)}$|^a message has {text}"):
        Message("T", b"", **fields).to_properties()


def test_queues_sort_as_in_java() -> None:
    """Queues sort by topic, then broker name, then queue id as a number."""
    queues = [
        MessageQueue("T", "b", 10),
        MessageQueue("T", "b", 2),
        MessageQueue("T", "a", 11),
        MessageQueue("S", "z", 0),
    ]
    assert [queue.queue_id for queue in sorted(queues)] == [0, 11, 2, 10]


def test_keys_are_split_at_blanks() -> None:
    """Empty words of a keys text are dropped."""
    assert split_keys(" a  b ") == ("a", "b")
    assert split_keys("") == split_keys(None) == ()


KNOWN = {
    value: "v" for name, value in vars(names).items() if name.isupper() and isinstance(value, str) and value > "\x02"
}


def test_application_keeps_what_is_its_own() -> None:
    """Its properties, the unique key, the sharding key and where a message came from go along."""
    assert carried(KNOWN | {"mine": "m"}).keys() == {
        "mine",
        names.UNIQ_KEY,
        names.SHARDING_KEY,
        names.PRIORITY,
        names.TRACE_CONTEXT,
        names.ORIGIN_MESSAGE_ID,
        names.DLQ_ORIGIN_TOPIC,
        names.DLQ_ORIGIN_MESSAGE_ID,
    }


def test_message_can_be_sent_whatever_the_broker_wrote() -> None:
    """No property is left that a sender may not set; tags, keys and flag are those of the stored message."""
    message = replayed("T", b"x", KNOWN | {"TAGS": "t", "KEYS": " a  b"}, flag=-1)
    assert (message.tags, message.keys, message.flag) == ("t", ("a", "b"), -1)
    assert message.to_properties()["KEYS"] == "a b"
