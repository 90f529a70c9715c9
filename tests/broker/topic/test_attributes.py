"""Changes to the attributes of a topic."""

from collections.abc import Mapping

import pytest

from rocketlet.broker.topic.topics import change_attributes, is_batch_topic

KNOWN = {"queue.type": "SimpleCQ", "message.type": "NORMAL", "reserve.time": "5"}


@pytest.mark.parametrize(
    ("known", "changes", "after"),
    [
        (None, "", {}),
        (None, ",,", {}),
        (None, "+message.type=PRIORITY,", {"message.type": "PRIORITY"}),
        (None, "+queue.type=BatchCQ,+message.type=FIFO", {"queue.type": "BatchCQ", "message.type": "FIFO"}),
        ({}, "+reserve.time=-1", {"reserve.time": "-1"}),
        ({}, "+reserve.time=0", {"reserve.time": "0"}),
        ({}, "+reserve.time=9223372036854775807", {"reserve.time": "9223372036854775807"}),
        (KNOWN, "+message.type=DELAY", {**KNOWN, "message.type": "DELAY"}),
        (KNOWN, "-reserve.time", {"queue.type": "SimpleCQ", "message.type": "NORMAL"}),
    ],
)
def test_changes(known: Mapping[str, str] | None, changes: str, after: dict[str, str]) -> None:
    """``+name=value`` adds or replaces, ``-name`` deletes, the rest stays."""
    assert change_attributes(known, changes) == after


@pytest.mark.parametrize(
    ("known", "changes", "reason"),
    [
        (None, "queue.type=BatchCQ", "wrong"),
        (None, "+queue.type", "wrong"),
        (KNOWN, "-reserve.time=5", "wrong"),
        (None, "+other=x", "unsupported key: other"),
        (None, "+queue.type=Other", "not in set"),
        (None, "+reserve.time=-2", "not in range"),
        (None, "+reserve.time=9223372036854775808", "not in range"),
        (None, "+reserve.time=soon", "not in range"),
        (None, "-message.type", "only add attribute"),
        (None, "+message.type=FIFO,+message.type=DELAY", r"key duplication: \+message\.type"),
        (KNOWN, "+message.type=FIFO,-message.type", "alter duplication key. key: message.type"),
        (None, ",+message.type=FIFO", "delete attribute format is wrong: "),
        (None, "-message.type=FIFO", "add/alter attribute format is wrong: -message.type"),
        (None, "+=x", "kv string format wrong."),
        (None, "+a+b=x", "kv string format wrong."),
        (KNOWN, "-", "kv string format wrong."),
        (KNOWN, "-message.type,-message.type", "key duplication: -message.type"),
        (KNOWN, "-reserve.time,+reserve.time=1", "alter duplication key. key: reserve.time"),
        (KNOWN, "-cleanup.policy", "nonexistent"),
        (KNOWN, "+queue.type=BatchCQ", "unchangeable"),
        (KNOWN, "-queue.type", "unchangeable"),
        ({}, "+cleanup.policy=DELETE", "unchangeable"),
        (None, "+cleanup.policy=COMPACTION", "compaction is not built"),
    ],
)
def test_changes_that_cannot_be_made(known: Mapping[str, str] | None, changes: str, reason: str) -> None:
    """Wrong forms, unknown names and values, and what is fixed when a topic is made."""
    with pytest.raises(ValueError, match=reason):
        change_attributes(known, changes)


def test_kind_of_queues() -> None:
    """Queues count by messages with BatchCQ only."""
    assert is_batch_topic({"queue.type": "BatchCQ"})
    assert not is_batch_topic({"queue.type": "SimpleCQ"})
    assert not is_batch_topic({})
