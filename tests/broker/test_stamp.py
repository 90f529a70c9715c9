"""Properties as they are stored, and messages that are refused for theirs."""

import pytest

from rocketlet.broker.stamp import PropertyStamp
from rocketlet.broker.unbuilt import unbuilt_batch_remark, unbuilt_remark
from rocketlet.common.properties import parse_properties
from rocketlet.common.sysflag import TRANSACTION_PREPARED

STAMP = PropertyStamp("here", "false", "cluster", lambda: "made")
OWN = {"MSG_REGION": "here", "TRACE_ON": "false", "CLUSTER": "cluster"}


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


@pytest.mark.parametrize("name", ["TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"])
def test_timer_messages_are_refused(name: str) -> None:
    """Any timer property is named in the refusal."""
    assert name in (unbuilt_remark({name: "1"}) or "")


def test_transactional_messages_are_refused() -> None:
    """By their property or by their flag."""
    assert unbuilt_remark({"TRAN_MSG": "True"}) is not None
    assert unbuilt_remark({}, TRANSACTION_PREPARED) is not None


@pytest.mark.parametrize("level", ["1", "18", "soon"])
def test_delayed_messages_of_a_batch_are_refused(level: str) -> None:
    """A batch with a level above 0, or with one that is no number, is refused; a level of 0 is not."""
    assert unbuilt_batch_remark([{}, {"DELAY": level}], 0) is not None
    assert unbuilt_batch_remark([{"DELAY": "0"}], 0) is None


def test_delay_beats_a_timer_and_a_retry_its_transaction() -> None:
    """With a delay level a timer is of no account; a delayed retry of a transactional message is an ordinary one."""
    assert unbuilt_remark({"TIMER_DELAY_SEC": "1"}, is_delayed=True) is None
    assert unbuilt_remark({"TRAN_MSG": "true"}, is_delayed=True, is_retry=True) is None
    assert unbuilt_remark({"TRAN_MSG": "true"}, is_delayed=True) is not None
    assert unbuilt_remark({"TRAN_MSG": "true"}, is_retry=True) is not None


@pytest.mark.parametrize("properties", [{}, {"DELAY": "0"}, {"DELAY": "4"}, {"TRAN_MSG": "false"}, {"KEYS": "DELAY"}])
def test_ordinary_messages_are_taken(properties: dict[str, str]) -> None:
    """What is visible at once or delayed is not refused."""
    assert unbuilt_remark(properties) is None
