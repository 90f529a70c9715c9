"""Check points and acknowledgements, against what Java's broker wrote into its revive topic."""

import json
from typing import Any

import pytest
from javastores import VECTORS, java_cases

from rocketlet.broker.pop.check_points import (
    Acknowledgement,
    CheckPoint,
    LeaseKey,
    ReviveTopic,
    ack_record,
    batch_ack_record,
    check_point_record,
    parse_revive_record,
)
from rocketlet.common.errors import DecodeError
from rocketlet.common.ids import encode_host
from rocketlet.common.properties import encode_properties
from rocketlet.common.record import NewRecord, Record

HOST = encode_host("127.0.0.1", 10911)
PLACE = ReviveTopic("rmq_sys_REVIVE_LOG_DefaultCluster", HOST)
CASES = {case["op"]: case for case in java_cases("codec/pop.json")}
OF_TIMERS = frozenset({"TIMER_OUT_MS", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "REAL_TOPIC", "REAL_QID"})


def load_recording(name: str) -> list[dict[str, Any]]:
    """Return the exchanges of a recording."""
    return json.loads((VECTORS / f"pop/{name}.json").read_text("utf-8"))["exchanges"]


def recorded() -> list[dict[str, Any]]:
    """Return each record of the revive topic that was recorded."""
    files = ("pop-basic", "pop-batch-ack", "pop-foreign-ck")
    exchanges = [exchange for name in files for exchange in load_recording(name)]
    records: list[dict[str, Any]] = []
    for exchange in exchanges:
        records += exchange.get("answer", {}).get("records", ())
    return [record for record in records if record["topic"] == PLACE.name]


def stored(new: NewRecord, queue_offset: int = 5) -> Record:
    """Return a record as it is read from the log."""
    return Record(
        total_size=0, magic=0, body_crc=0, queue_id=new.queue_id, flag=new.flag, queue_offset=queue_offset,
        log_offset=0, sys_flag=new.sys_flag, born_at_ms=new.born_at_ms, born_host=new.born_host, stored_at_ms=0,
        store_host=HOST, reconsume_times=0, prepared_transaction_offset=0, body=memoryview(new.body), topic=new.topic,
        property_text=new.property_text,
    )  # fmt: skip


def record_of(tag: str, body: bytes) -> Record:
    """Return a record that somebody else wrote."""
    properties = {"TAGS": tag}
    return stored(NewRecord(PLACE.name, 0, body, encode_properties(properties), properties, 0, 0, 0, HOST))


@pytest.mark.feature("O11")
def test_java_s_records_come_out_again() -> None:
    """All that were recorded: the body, the tag, the key and the time."""
    kinds = set[str]()
    for found in recorded():
        properties = {name: value for name, value in found["properties"].items() if name not in OF_TIMERS}
        tag, body = properties["TAGS"], json.loads(found["body"])
        read = parse_revive_record(record_of(tag, found["body"].encode()), "somewhere")
        assert read is not None
        due_at_ms = int(properties["TIMER_DELIVER_MS"])
        if isinstance(read, CheckPoint):
            kinds.add(tag)
            written = check_point_record(read, PLACE, found["queueId"], 0)
        elif tag == "ack":
            kinds.add(tag)
            written = ack_record(read.key, read.queue_offsets[0], due_at_ms, PLACE, found["queueId"], 0)
        else:  # of one that was asked for Java writes the key of another kind, which nobody reads
            kinds.add(f"{tag}, ao {body['ao']}")
            assert read.queue_offsets == tuple(body["aol"])
            continue
        assert (written.topic, written.queue_id, written.properties) == (PLACE.name, found["queueId"], properties)
        assert written.body.decode() == found["body"]
    assert kinds == {"ck", "ack", "bAck, ao -1"}


def test_texts_are_those_of_java_s_classes() -> None:
    """The three classes and their keys; a lease ends when Java says that it does."""
    key = LeaseKey("T", "g", 2, 100, 1_700_000_000_000, "broker-a")
    point = CheckPoint(key=key, invisible_ms=60_000, queue_offsets=(100, 101, 104))
    one = check_point_record(point, PLACE, 3, 17)
    assert (one.body.decode(), one.properties["UNIQ_KEY"]) == _case("PopCheckPoint")
    assert int(one.properties["TIMER_DELIVER_MS"]) == CASES["PopCheckPoint"]["reviveTime"] - 1_000
    assert (one.queue_id, one.born_at_ms, one.born_host) == (3, 17, HOST)
    ack = ack_record(key, 104, point.ends_at_ms, PLACE, 3, 17)
    assert (ack.body.decode(), ack.properties["UNIQ_KEY"]) == _case("AckMsg")
    both = batch_ack_record(key, [100, 101], point.ends_at_ms, PLACE, 3, 17)
    assert (both.body.decode(), both.properties["UNIQ_KEY"]) == _case("BatchAckMsg")
    assert ack.properties["TIMER_DELIVER_MS"] == both.properties["TIMER_DELIVER_MS"] == str(point.ends_at_ms)


def _case(name: str) -> tuple[str, str]:
    return CASES[name]["json"], CASES[name]["uniqueId"]


def test_what_is_written_is_read() -> None:
    """One that was stored again, too."""
    key = LeaseKey("T", "g", 2, 100, 1_700_000_000_000, "broker-a")
    point = CheckPoint(key=key, invisible_ms=60_000, queue_offsets=(100, 104), put_again=3)
    assert parse_revive_record(stored(check_point_record(point, PLACE, 3, 17)), "x") == point
    ack = batch_ack_record(key, [100, 104], point.ends_at_ms, PLACE, 3, 17)
    assert parse_revive_record(stored(ack), "x") == Acknowledgement(key=key, queue_offsets=(100, 104))


def test_old_and_long_forms_are_read() -> None:
    """A check point without distances, acknowledgements with long names, and no broker."""
    old = parse_revive_record(record_of("ck", b'{"c":"g","it":5,"n":3,"pt":7,"q":1,"so":10,"t":"T"}'), "mine")
    key = LeaseKey("T", "g", 1, 10, 7, "mine")
    assert old == CheckPoint(key=key, invisible_ms=5, queue_offsets=(10, 11, 12))
    long = b'{"ackOffset":12,"startOffset":10,"consumerGroup":"g","topic":"T","queueId":1,"popTime":7}'
    assert parse_revive_record(record_of("ack", long), "mine") == Acknowledgement(key=key, queue_offsets=(12,))
    lists = long.replace(b'"ackOffset":12', b'"ackOffsetList":[11,12]')
    assert parse_revive_record(record_of("bAck", lists), "mine") == Acknowledgement(key=key, queue_offsets=(11, 12))


@pytest.mark.parametrize(
    ("tag", "body", "reason"),
    [
        ("ck", b"", "the ck at queue offset 5"),
        ("ck", b"[]", "the ck at queue offset 5"),
        ("ck", b'{"c":"g","n":1}', "names no topic, or no group"),
        ("ck", b'{"c":"g","t":"T","n":33}', "covers 33 messages, the most are 32"),
        ("ck", b'{"c":"g","t":"T","n":-1}', "covers -1 messages"),
        ("ack", b'{"ao":1,"t":"T"}', "names no topic, or no group"),
        ("ack", b'{"ao":"x","t":"T","c":"g"}', "the ack at"),
        ("bAck", b"nothing", "the bAck at"),
        ("ck", b"\xff\xfe", "the ck at"),
    ],
)
def test_what_says_nothing_is_an_error(tag: str, body: bytes, reason: str) -> None:
    """It names the record."""
    with pytest.raises(DecodeError, match=reason):
        parse_revive_record(record_of(tag, body), "mine")


def test_other_records_are_nothing_of_pop() -> None:
    """Whatever somebody has sent there."""
    assert parse_revive_record(record_of("blue", b"{}"), "mine") is None
