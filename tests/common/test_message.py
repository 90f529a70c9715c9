import pytest

from rocketlet.common.message import Message, MessageQueue, split_keys
from rocketlet.common.properties import encode_properties, parse_properties


def test_properties_of_a_message_hold_tags_keys_and_wait() -> None:
    """Tags, keys (joined by one blank) and the wait flag travel as properties beside the application's own."""
    message = Message("T", b"", tags="标签", keys=["k1", "🔑"], properties={"größe": "ü 1"})
    expected = {"größe": "ü 1", "TAGS": "标签", "KEYS": "k1 🔑", "WAIT": "true"}
    assert message.to_properties() == expected
    assert parse_properties(encode_properties(message.to_properties())) == expected
    assert message.properties == {"größe": "ü 1"}


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
