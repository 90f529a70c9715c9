"""Long JSON of peers: what the fast reader takes may fill a frame, what only the slow one takes may not."""

import json

import pytest
from raw_calls import decode_json_header

from rocketlet.common.errors import FrameError, HeaderError, JsonError
from rocketlet.common.java_json import read_json, read_json_as
from rocketlet.common.message import MessageQueue
from rocketlet.remoting.bodies.body import decode_answer, decode_body
from rocketlet.remoting.bodies.client import HeartbeatData, LockBatchBody, LockedQueues, decode_lock_body
from rocketlet.remoting.codec.command import SLOW_BYTES, Command, parse_texts
from rocketlet.remoting.codec.frames import (
    MAX_FIELDS,
    decode_binary_header,
    encode_binary_header,
)

TOO_LONG = "above 32768 it must be strict and fit what is asked for"
SLOPPY = b"'" + b"x" * SLOW_BYTES + b"'"
QUEUES = [MessageQueue("T", "b", number) for number in range(10_000)]


def _lock(queues: list[MessageQueue], **changes: object) -> bytes:
    names = [{"topic": queue.topic, "brokerName": queue.broker_name, "queueId": queue.queue_id} for queue in queues]
    return json.dumps({"clientId": "c", "consumerGroup": "g", "mqSet": names, **changes}).encode()


@pytest.mark.parametrize("text", [SLOPPY, b'{"a":null,"b":"%b"}' % SLOPPY], ids=["sloppy", "with nulls"])
def test_slow_text_has_a_limit_where_one_is_given(text: bytes):
    """What only the slow reader understands is refused above the limit, and read without one, as from files."""
    assert read_json(text)
    assert read_json(text, slow_bytes=len(text))
    with pytest.raises(JsonError, match=rf"^JSON is {len(text)} bytes; above 9 it"):
        read_json(text, slow_bytes=9)
    with pytest.raises(JsonError, match=rf"^JSON is {len(text)} bytes; above 9 it"):
        read_json_as(text, list[int], slow_bytes=9)


def test_long_sloppy_header_is_refused():
    """A header in single quotes is read up to 32 KiB; above, it ends the connection like other garbage."""
    assert decode_json_header(b"{'code':11,'remark':'%b'}" % SLOPPY[1000:-1]).code == 11
    with pytest.raises(FrameError, match=TOO_LONG):
        decode_json_header(b"{'code':11,'remark':%b}" % SLOPPY)
    assert decode_json_header(b'{"code":11,"remark":"%b"}' % (b"x" * 4 * SLOW_BYTES)).code == 11


def test_long_fields_of_other_types_are_refused():
    """Fields that are no texts are turned into texts up to 32 KiB; a text alone may be as long as a frame."""
    assert parse_texts(b'{"a":[1]}') == {"a": "[1]"}
    assert len(parse_texts(b'{"a":"%b"}' % (b"x" * 4 * SLOW_BYTES))["a"]) == 4 * SLOW_BYTES
    with pytest.raises(HeaderError, match=TOO_LONG):
        parse_texts(b'{"a":[%b1]}' % (b"1," * SLOW_BYTES))


def test_long_body_of_another_shape_is_refused():
    """A body that does not fit is taken apart to name its fault only up to 32 KiB."""
    with pytest.raises(JsonError, match="missing required field `groupName`"):
        decode_body(HeartbeatData, b'{"clientID":"c","consumerDataSet":[{}]}')
    with pytest.raises(JsonError, match=TOO_LONG):
        decode_body(HeartbeatData, b'{"clientID":"c","consumerDataSet":[%b{}]}' % (b"{}," * SLOW_BYTES))


def test_lock_of_many_queues_is_read():
    """A client may lock ten thousand queues at once, in a body above the limit of the slow reader."""
    body = _lock(QUEUES, onlyThisBroker=True)
    assert len(body) > SLOW_BYTES
    assert decode_lock_body(body) == LockBatchBody(
        client_id="c", consumer_group="g", mq_set=QUEUES, only_this_broker=True
    )


@pytest.mark.parametrize(
    "body",
    [
        b"{'clientId':'c','consumerGroup':'g','mqSet':[{'topic':'T','brokerName':'b','queueId':'1'}]}",
        b'{"clientId":"c","consumerGroup":"g","mqSet":[{"topic":"T","brokerName":"b","queueId":1},{"$ref":"$.mqSet[0]"}]}',
    ],
)
def test_lock_is_read_as_other_bodies(body: bytes):
    """A lock that the quick reader does not take is read as leniently as every body."""
    assert decode_lock_body(body) == decode_body(LockBatchBody, body)
    assert decode_lock_body(body).mq_set[0] == MessageQueue("T", "b", 1)


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", _lock([])[:-1], b'{"clientId":"c"}'])
def test_broken_lock_is_an_error(body: bytes):
    """A lock that is no JSON, or does not say whose it is, is a JsonError."""
    with pytest.raises(JsonError):
        decode_lock_body(body)


@pytest.mark.parametrize("depth", [101, 900, 5_000])
def test_nested_fields_are_refused_in_one_sentence(depth: int):
    """However deep: no stack is exhausted, and no list of calls is logged, since the sender is to blame."""
    nested = b"[" * depth + b"]" * depth
    with pytest.raises(HeaderError, match=r"^the header fields are no JSON: .*nesting is deeper than 100"):
        parse_texts(b'{"a":%b}' % nested)
    with pytest.raises(JsonError, match="nesting is deeper than 100"):
        read_json(nested)
    assert read_json(b"[" * 100 + b"]" * 100)


def test_fields_of_a_binary_header_are_bounded():
    """They are read one by one."""
    command = Command.request(11, {str(number): "v" for number in range(MAX_FIELDS)})
    assert len(decode_binary_header(encode_binary_header(command)).ext) == MAX_FIELDS
    assert command.ext_table is not None
    command.ext_table["one"] = "more"
    with pytest.raises(FrameError, match=r"^the binary header has more than 1024 fields$"):
        decode_binary_header(encode_binary_header(command))


def test_client_reads_the_locks_of_a_thousand_queues():
    """Java's answer names each queue as an object, which takes the slow reader."""
    names = [{"topic": queue.topic, "brokerName": queue.broker_name, "queueId": queue.queue_id} for queue in QUEUES]
    body = json.dumps({"lockOKMQSet": names[:1_000]}).encode()
    assert len(body) > SLOW_BYTES
    assert decode_answer(LockedQueues, body).queues == QUEUES[:1_000]
    with pytest.raises(JsonError, match=TOO_LONG):
        decode_body(LockedQueues, body)


def test_client_trusts_its_server_with_longer_sloppy_json():
    """An answer that only the slow reader understands is read up to 256 KiB, a request's body up to 32 KiB."""
    for decode, most in ((decode_answer, 262_144), (decode_body, 32_768)):
        text = b"['%b']" % (b"x" * (most - 4))
        assert len(decode(list[str], text)[0]) == most - 4
        with pytest.raises(JsonError, match=f"^JSON is {most + 1} bytes; above {most} it must be strict"):
            decode(list[str], text + b" ")
