"""What goes with a stored message that is sent again."""

from rocketlet.common import properties as names
from rocketlet.common.replay import carried, replayed

KNOWN = {
    value: "v" for name, value in vars(names).items() if name.isupper() and isinstance(value, str) and value > "\x02"
}


def test_application_keeps_what_is_its_own() -> None:
    """Its properties, the unique key, the sharding key and where a message came from go along."""
    assert carried(KNOWN | {"mine": "m"}).keys() == {
        "mine",
        names.UNIQ_KEY,
        names.SHARDING_KEY,
        names.ORIGIN_MESSAGE_ID,
        names.DLQ_ORIGIN_TOPIC,
        names.DLQ_ORIGIN_MESSAGE_ID,
    }


def test_message_can_be_sent_whatever_the_broker_wrote() -> None:
    """No property is left that a sender may not set; tags, keys and flag are those of the stored message."""
    message = replayed("T", b"x", KNOWN | {"TAGS": "t", "KEYS": " a  b"}, flag=-1)
    assert (message.tags, message.keys, message.flag) == ("t", ("a", "b"), -1)
    assert message.to_properties()["KEYS"] == "a b"
