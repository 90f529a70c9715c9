"""Answers on their way out: as frames, and frames as buffers to write."""

from typing import cast

from .codes import ResponseCode
from .command import RESPONSE, Command
from .failures import NO_ANSWER
from .frames import Buffer, Encoded, encode_command

_DEBT_BYTES = 1500  # of a held pull without its texts: command, waiter, filter, timer


def encode_reply(command: Command, reply: Command | Encoded | None) -> Encoded:
    """Return the frame that answers a command, in the command's own form.

    Raises:
        FrameError: the answer is too large.
    """
    if isinstance(reply, (bytes, list)):
        return reply
    if reply is None:
        reply = Command.response(ResponseCode.SYSTEM_ERROR, NO_ANSWER)
    reply.opaque = command.opaque
    reply.flag = RESPONSE
    reply.serialize = command.serialize
    return encode_command(reply)


def buffers_of(frames: list[Encoded]) -> list[Buffer]:
    """Return the buffers of frames, in order."""
    if list not in map(type, frames):
        return cast("list[Buffer]", frames)
    buffers: list[Buffer] = []
    for frame in frames:
        if isinstance(frame, bytes):
            buffers.append(frame)
        else:
            buffers += frame
    return buffers


def size_of(frame: Encoded) -> int:
    """Return how many bytes a frame has."""
    return len(frame) if isinstance(frame, bytes) else sum(map(len, frame))


def keep(command: Command) -> int:
    """Let a request that waits for its answer go on without its frame; return about how much it keeps in memory.

    Texts may be there twice: as they came, and in the header that was read from them.
    """
    texts = command.ext_table
    if texts is None:
        command.ext_text = command.ext_text.copy()  # the text of the whole header would stay with it
        fields = len(command.ext_text)
    else:
        fields = sum(len(name) + len(text) for name, text in texts.items())
    return _DEBT_BYTES + 2 * fields + len(command.remark or "") + len(command.body)
