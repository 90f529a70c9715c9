"""Frames of pulls, the short way."""

import pytest

from rocketlet.remoting.codec.codes import RequestCode
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.frames import FrameParser, encode_command
from rocketlet.remoting.headers.pull import PullFrames, PullHeader


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
