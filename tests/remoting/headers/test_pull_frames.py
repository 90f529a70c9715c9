"""Frames of pulls and of their answers, the short way."""

import pytest

from rocketlet.common.codes import ResponseCode
from rocketlet.remoting.codec.command import Command, decode_header
from rocketlet.remoting.codec.frames import FrameParser, encode_command
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.headers.pull import PullFrames, PullHeader, PullReply, encode_pull_reply


def header_of(topic: str, queue_offset: int, max_messages: int) -> PullHeader:
    """Return the header of a pull."""
    return PullHeader(
        consumer_group="g",
        topic=topic,
        queue_id=3,
        queue_offset=queue_offset,
        max_messages=max_messages,
        sys_flag=4,
        subscription='a||"b"%d',
        expression_type="TAG",
        broker_name="broker-a",
    )


@pytest.mark.parametrize("topic", ["T", "%RETRY%g", 'quo"te', "ü"])
def test_frame_is_that_of_a_command(topic: str) -> None:
    """Whatever stands in names and expressions."""
    frames = PullFrames(header_of(topic, 0, 0))
    for queue_offset, max_messages, opaque in ((0, 1, 1), (1 << 60, 1024, 2**31 - 1)):
        command = Command.request(RequestCode.PULL_MESSAGE, header_of(topic, queue_offset, max_messages))
        command.opaque = opaque
        (expected,) = FrameParser().feed(encode_command(command))
        (found,) = FrameParser().feed(frames.encode(queue_offset, max_messages, opaque))
        names = ("code", "ext", "flag", "language", "opaque", "version", "body")
        assert [getattr(found, name) for name in names] == [getattr(expected, name) for name in names]


@pytest.mark.parametrize("serialize", [0, 1])
@pytest.mark.parametrize("records", [(), (b"one", memoryview(b"two"))], ids=["nothing", "records"])
def test_pull_answer_holds_offsets_and_records(records: tuple[bytes | memoryview, ...], serialize: int):
    """The answer to a pull has its four offsets, the store's word and the records in order."""
    request = Command.request(11, serialize=serialize)
    request.opaque = 2**31 - 1
    reply = PullReply(suggest_which_broker_id=1, next_begin_offset=7, min_offset=2, max_offset=9)
    code = ResponseCode.SUCCESS if records else ResponseCode.PULL_NOT_FOUND
    frame = encode_pull_reply(request, code, "FOUND", reply, records)
    [answer] = FrameParser().feed(frame if isinstance(frame, bytes) else b"".join(frame))
    assert (answer.code, answer.opaque, answer.serialize) == (code, request.opaque, serialize)
    assert (answer.remark, answer.body) == ("FOUND", b"".join(records))
    assert decode_header(PullReply, answer) == reply


def test_pull_answer_does_not_copy_records():
    """The records are handed on as they are."""
    record = memoryview(bytes(5000))
    frame = encode_pull_reply(
        Command.request(11), 0, "FOUND", PullReply(next_begin_offset=1, min_offset=0, max_offset=1), [record]
    )
    assert frame[1] is record
