"""Answers as frames, also those to requests that could not be served (§1.7), and how logs name a request."""

import logging
import os
from typing import cast

from ...common.errors import DecodeError
from .codes import RequestCode, ResponseCode
from .command import RESPONSE, Command
from .frames import Buffer, Encoded, encode_command

NO_ANSWER = "not set any response code"
OVERLOAD = "[OVERLOAD]system busy, start flow control for a while"

_MOST_NAME_CHARACTERS = 127
# What Java's headers call them; a, b and e are those of SEND_MESSAGE_V2, group is that of CONSUMER_SEND_MSG_BACK.
_NAMING_FIELDS = {
    "producerGroup": "producerGroup",
    "a": "producerGroup",
    "consumerGroup": "consumerGroup",
    "group": "group",
    "topic": "topic",
    "b": "topic",
    "queueId": "queueId",
    "e": "queueId",
}

_log = logging.getLogger(__name__)


def describe_request(command: Command, peer: str = "") -> str:
    """Return how logs name a request: its code in words, its peer, and the group, topic and queue that it names.

    >>> describe_request(Command.request(11, {"consumerGroup": "g", "topic": "T", "queueId": "3"}), "10.0.0.9:4711")
    'PULL_MESSAGE (11) from 10.0.0.9:4711, consumerGroup g, topic T, queueId 3'
    """
    try:
        name = f"{RequestCode(command.code).name} ({command.code})"
    except ValueError:
        name = f"request of unknown code {command.code}"
    try:
        ext = command.ext
    except DecodeError:
        ext = {}
    named = [f"{label} {_printable(ext[key])}" for key, label in _NAMING_FIELDS.items() if key in ext]
    return ", ".join([f"{name} from {peer}" if peer else name, *named])


def _printable(text: str) -> str:
    text = text if len(text) <= _MOST_NAME_CHARACTERS else f"{text[:_MOST_NAME_CHARACTERS]}…"
    return text if text.isprintable() else repr(text)


def failure_reply(command: Command, error: BaseException, peer: str = "", *, is_logged: bool = True) -> Command:
    """Return the answer to a request whose handler raised, and log what happened if that is wanted.

    A request that cannot be read is its sender's mistake and is answered with the error's own text. A file that cannot
    be used is nobody's who is asking or answering: it is named, in one line. Anything else is ours: the traceback is
    logged, the answer has Java's form ``<class>: <message>, <where>``.
    """
    if isinstance(error, DecodeError):
        _log.log(
            logging.WARNING if is_logged else logging.DEBUG, "refusing %s: %s", describe_request(command, peer), error
        )
        return Command.response(ResponseCode.SYSTEM_ERROR, str(error))
    level = logging.ERROR if is_logged else logging.DEBUG
    if isinstance(error, OSError) and error.filename is not None:
        remark = f"{error.filename} cannot be used: {error.strerror}"
        _log.log(level, "%s failed: %s", describe_request(command, peer), remark)
        return Command.response(ResponseCode.SYSTEM_ERROR, remark)
    _log.log(level, "%s failed", describe_request(command, peer), exc_info=error)
    return Command.response(ResponseCode.SYSTEM_ERROR, describe_failure(error))


def unknown_code_reply(command: Command, peer: str = "", *, is_logged: bool = True) -> Command:
    """Return the answer to a request code that nobody handles."""
    level = logging.WARNING if is_logged else logging.DEBUG
    _log.log(level, "refusing %s: this server has no handler for it", describe_request(command, peer))
    return Command.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {command.code} not supported")


def describe_failure(error: BaseException) -> str:
    """Return an error as Java's ``UtilAll.exceptionSimpleDesc`` words it: class, message, innermost stack line."""
    kind = type(error)
    name = f"{kind.__module__}.{kind.__qualname__}"
    where = _innermost_line(error)
    return f"{name}: {error}, {where}" if where else f"{name}: {error}"


def _innermost_line(error: BaseException) -> str:
    traceback = error.__traceback__
    if traceback is None:
        return ""
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    code = traceback.tb_frame.f_code
    module = traceback.tb_frame.f_globals.get("__name__", "?")
    return f"{module}.{code.co_qualname}({os.path.basename(code.co_filename)}:{traceback.tb_lineno})"


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
