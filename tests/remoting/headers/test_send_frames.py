"""The short way to the frame of a send."""

from typing import Any, NamedTuple

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.common.message import MessageQueue
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.frames import FrameParser, encode_command
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.headers.send import SendFields, SendFrames

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


class Sent(NamedTuple):
    """A message of a test."""

    body: bytes
    code: RequestCode
    sys_flag: int
    flag: int
    property_text: str
    is_batch: bool


@given(
    st.builds(
        Sent,
        st.binary(max_size=60),
        st.sampled_from([RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE]),
        st.integers(0, 2**31 - 1),
        st.integers(-(2**31), 2**31 - 1),
        TEXTS,
        st.booleans(),
    ),
    st.builds(MessageQueue, TEXTS, TEXTS, st.integers(0, 2**31 - 1)),
    TEXTS,
)
def test_frame_is_that_of_the_command(message: Sent, queue: MessageQueue, group: str) -> None:
    """Read back, both frames are one and the same command, whatever quotes, percent signs and alphabets are in it."""
    fields = SendFields(group, "TBW102", 4)
    command = Command.request(message.code, fields.encode(message, queue, 1_700_000_000_000), message.body)
    command.opaque = 7
    short = SendFrames(fields).encode(message, queue, 1_700_000_000_000, 7)
    assert _read(short) == _read(encode_command(command))


def test_pattern_of_one_queue_is_not_that_of_another() -> None:
    """Two queues, and two kinds of send to one queue, have their own patterns."""
    frames = SendFrames(SendFields("g", "TBW102", 4))
    single = Sent(b"x", RequestCode.SEND_MESSAGE_V2, 0, 0, "", is_batch=False)
    batch = Sent(b"x", RequestCode.SEND_BATCH_MESSAGE, 0, 0, "", is_batch=True)
    queues = [MessageQueue("T", "b", number) for number in range(2)]
    sent = [(message, queue) for message in (single, batch, single) for queue in queues]
    read = [_read(frames.encode(message, queue, 1, 1)) for message, queue in sent]
    assert [command["code"] for command in read] == [310, 310, 320, 320, 310, 310]
    assert [command["ext"]["e"] for command in read] == ["0", "1"] * 3
    assert [command["ext"]["m"] for command in read] == ["false"] * 2 + ["true"] * 2 + ["false"] * 2


def _read(frame: bytes) -> dict[str, Any]:
    (command,) = FrameParser().feed(frame)
    return {**msgspec.structs.asdict(command), "ext_text": None, "ext": command.ext}
