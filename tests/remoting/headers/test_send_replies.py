"""Answers to sends that are built from bytes hold what the long way would give."""

import pytest

from rocketlet.remoting.codec.command import Command, decode_header
from rocketlet.remoting.codec.frames import Encoded, FrameParser, encode_command
from rocketlet.remoting.headers.send import SendReplies, SendReply

MESSAGE_ID = "7F000002000055970000000000003AA6"


def _read(reply: Encoded | Command, request: Command) -> Command:
    if isinstance(reply, Command):
        reply.opaque, reply.serialize = request.opaque, request.serialize
        reply = encode_command(reply)
    data = reply if isinstance(reply, bytes) else b"".join(reply)
    [command] = FrameParser().feed(data)
    return command


@pytest.mark.parametrize("serialize", [0, 1])
@pytest.mark.parametrize("unique_key", ["0A00", 'with "quotes", \\ and ümläut \x01', None, "half \ud800"])
def test_stored_answer_holds_the_place(unique_key: str | None, serialize: int):
    """The answer to a stored message has all its fields, whatever the unique key holds."""
    request = Command.request(310, serialize=serialize)
    request.opaque = 77
    answer = _read(SendReplies("Region %d").stored(request, MESSAGE_ID, 3, 2**40, unique_key), request)
    assert (answer.code, answer.flag, answer.opaque, answer.language, answer.version) == (0, 1, 77, "PYTHON", 479)
    assert answer.serialize == serialize
    assert decode_header(SendReply, answer) == SendReply(
        msg_id=MESSAGE_ID,
        queue_id=3,
        queue_offset=2**40,
        transaction_id=None if unique_key is None else unique_key.replace("\ud800", "?"),
        region="Region %d",
        trace_on="true",
    )


def test_failed_send_tells_region_and_trace():
    """A failed send carries the two fields that Java's client reads unasked."""
    assert SendReplies(traces=False).fields() == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "false"}
