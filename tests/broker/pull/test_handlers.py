"""Messages by key and by id, by raw requests."""

import pytest
from raw_calls import Caller

from rocketlet.common.codes import ResponseCode
from rocketlet.common.record import decode_record, iter_records
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.testing.manual_clock import ManualClock


async def query(caller: Caller, key: str, **more: str) -> Command:
    """Ask for the messages of a key at any time."""
    header = {"topic": "T", "key": key, "maxNum": "10", "beginTimestamp": "0", "endTimestamp": str(2**62), **more}
    return await caller.ask(RequestCode.QUERY_MESSAGE, header)


@pytest.mark.feature("Q4")
async def test_messages_of_a_key(caller: Caller) -> None:
    """Each word of KEYS finds the message; the answer tells how far the index has come."""
    await caller.send(body=b"one", properties="KEYS\x01k1 k2\x02")
    await caller.send(body=b"two", properties="KEYS\x01k2\x02")
    answer = await query(caller, "k2")
    assert [bytes(record.body) for record in iter_records(answer.body)] == [b"one", b"two"]
    assert int(answer.ext["indexLastUpdatePhyoffset"]) > 0
    assert [bytes(record.body) for record in iter_records((await query(caller, "k1")).body)] == [b"one"]


@pytest.mark.feature("Q5")
async def test_message_of_a_unique_key(caller: Caller) -> None:
    """The producer's unique key finds exactly its message."""
    await caller.send(body=b"one", properties="UNIQ_KEY\x01u1\x02")
    await caller.send(body=b"two", properties="UNIQ_KEY\x01u2\x02")
    answer = await query(caller, "u2", _UNIQUE_KEY_QUERY="true")
    assert [bytes(record.body) for record in iter_records(answer.body)] == [b"two"]


@pytest.mark.feature("Q7")
async def test_query_keeps_to_count_and_time(caller: Caller, clock: ManualClock) -> None:
    """No more messages than asked for, none stored outside the time range."""
    for number in range(5):
        await caller.send(body=b"%d" % number, properties="KEYS\x01k\x02")
        clock.advance(10_000)
    assert len(list(iter_records((await query(caller, "k", maxNum="2")).body))) == 2
    begin_ms = clock.now_ms() - 25_000
    late = await query(caller, "k", beginTimestamp=str(begin_ms))
    assert [bytes(record.body) for record in iter_records(late.body)] == [b"3", b"4"]


async def test_unknown_key_is_answered_22(caller: Caller) -> None:
    """Nothing found is no error of the server."""
    answer = await query(caller, "nothing")
    assert (answer.code, answer.remark) == (
        ResponseCode.QUERY_NOT_FOUND,
        "can not find message, maybe time range not correct",
    )


@pytest.mark.feature("Q6")
async def test_message_at_a_position(caller: Caller) -> None:
    """33 answers the one record that begins at a position, and 1 where none begins."""
    await caller.send(body=b"one")
    found = await caller.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "0"})
    assert bytes(decode_record(found.body).body) == b"one"
    for position in ("7", "-1", "999999"):
        answer = await caller.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": position})
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == f"can not find message by the offset, {position}"
