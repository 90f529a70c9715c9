"""The text of trace records."""

import logging

import pytest

from rocketlet.client import (
    EndTransactionRecord,
    PubRecord,
    RecallRecord,
    SubAfterRecord,
    SubBeforeRecord,
    TracedKind,
    TraceRecord,
    parse_records,
)
from rocketlet.client.tracing.message_trace import encode_record, keys_of

PUB = PubRecord(
    time_ms=1,
    region="R",
    group="g",
    topic="T",
    message_id="ID",
    tags=None,
    keys="k1 k2",
    store_host="1.2.3.4:5",
    body_bytes=3,
    took_ms=4,
    kind=TracedKind.DELAY,
    offset_message_id="OFF",
    has_succeeded=True,
)
BEFORE = SubBeforeRecord(time_ms=1, region="R", group="g", request_id="REQ", message_id="ID", retries=2, keys=None)
AFTER = SubAfterRecord(
    request_id="REQ", message_id="ID", took_ms=3, has_succeeded=False, keys="k", end=4, time_ms=9, group="g"
)
END = EndTransactionRecord(
    time_ms=1,
    region="R",
    group="g",
    topic="T",
    message_id="ID",
    tags="a",
    keys=None,
    store_host="h:1",
    kind=TracedKind.TRANSACTION_END,
    transaction_id="TX",
    state="COMMIT_MESSAGE",
    is_from_check=True,
)
RECALL = RecallRecord(time_ms=1, region="R", group="g", topic="T", message_id="ID", has_succeeded=True)
TEXTS: list[tuple[TraceRecord, str]] = [
    (PUB, "Pub|1|R|g|T|ID|null|k1 k2|1.2.3.4:5|3|4|3|OFF|true"),
    (BEFORE, "SubBefore|1|R|g|REQ|ID|2|null"),
    (AFTER, "SubAfter|REQ|ID|3|false|k|4|9|g"),
    (END, "EndTransaction|1|R|g|T|ID|a|null|h:1|2|TX|COMMIT_MESSAGE|true"),
    (RECALL, "Recall|1|R|g|T|ID|true"),
]


@pytest.mark.feature("K19")
@pytest.mark.parametrize(("record", "text"), TEXTS, ids=[type(record).__name__ for record, _ in TEXTS])
def test_record_has_the_fields_of_java_in_their_order(record: TraceRecord, text: str) -> None:
    """Written and read; nothing is lost on the way."""
    wire = text.replace("|", "\x01") + "\x02"
    assert encode_record(record) == wire
    assert list(parse_records(wire)) == [record]


def test_records_follow_one_another() -> None:
    """A message holds several."""
    records = [PUB, BEFORE, AFTER]
    assert list(parse_records("".join(map(encode_record, records)))) == records


def test_older_records_are_read() -> None:
    """Those of 4.x have no offset id, and end before the time."""
    text = "Pub|1|R|g|T|ID|a|k|h:1|3|4|0|true~SubAfter|REQ|ID|3|true|k~".replace("|", "\x01").replace("~", "\x02")
    pub, after = parse_records(text)
    assert isinstance(pub, PubRecord)
    assert (pub.offset_message_id, pub.has_succeeded) == (None, True)
    assert after == SubAfterRecord(request_id="REQ", message_id="ID", took_ms=3, has_succeeded=True, keys="k")


def test_record_that_cannot_be_read_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """The others of its message are not lost with it; an unknown name is not even logged."""
    with caplog.at_level(logging.WARNING):
        found = list(parse_records("Pub\x01now\x02Future\x011\x02" + encode_record(RECALL)))
    assert found == [RECALL]
    assert caplog.text.count("cannot be read") == 1


def test_keys_are_the_ids_and_the_keys_of_the_message() -> None:
    """A batch is found by the id of each of its messages."""
    assert keys_of(PUB) == ["ID", "k1", "k2"]
    assert keys_of(RECALL) == ["ID"]
    batch = PubRecord(1, "R", "g", "T", "A,B", None, None, None, 3, 4, TracedKind.NORMAL)
    assert keys_of(batch) == ["A", "B"]
