"""Properties as they are stored."""

import pytest

from rocketlet.broker.send.send import PropertyStamp
from rocketlet.common.properties import parse_properties

OWN = {"MSG_REGION": "here", "TRACE_ON": "false", "CLUSTER": "cluster"}
STAMP = PropertyStamp(OWN, lambda: "made")


@pytest.mark.parametrize(
    ("text", "own"),
    [
        ("", {"UNIQ_KEY": "made"}),
        ("UNIQ_KEY\x01k\x02a\x01b\x02", {"UNIQ_KEY": "k", "a": "b"}),
        ("UNIQ_KEY\x01k\x02a\x01b", {"UNIQ_KEY": "k", "a": "b"}),
        ("UNIQ_KEY\x01k\x02CLUSTER\x01other\x02", {"UNIQ_KEY": "k"}),
        ("POP_CK\x01x\x02", {"UNIQ_KEY": "made"}),
    ],
)
def test_both_forms_hold_the_same(text: str, own: dict[str, str]) -> None:
    """Text and table agree: the sender's properties, a unique key, and the broker's own."""
    stamped = STAMP.stamp(text)
    assert stamped.properties == {**own, **OWN}
    assert parse_properties(stamped.text) == stamped.properties


def test_text_without_properties_is_not_kept() -> None:
    """A text that holds no property takes no room in the record, however long it is."""
    assert STAMP.stamp("x" * 40_000).text == STAMP.stamp("").text


@pytest.mark.parametrize(
    ("properties", "is_plain"),
    [
        ("KEYS\x01DELAY\x02", True),
        ("DELAY\x014\x02", False),
        ("TIMER_DELAY_SEC\x011\x02", False),
        ("TIMER_DELAY_MS\x011\x02", False),
        ("TIMER_DELIVER_MS\x011\x02", False),
        ("TRAN_MSG\x01true\x02", False),
        ("INNER_NUM\x012\x02", False),
    ],
)
def test_what_needs_care_is_not_plain(properties: str, is_plain: bool) -> None:
    """Properties that decide where a message is stored are seen by their names."""
    assert STAMP.stamp(properties).is_plain is is_plain
