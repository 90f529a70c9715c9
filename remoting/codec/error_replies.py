"""Answers to requests that could not be served (``spec/remoting.md`` §1.7), and how logs name these requests."""

import logging
import os
from collections.abc import Sequence
from typing import Any

from ...common.codes import ResponseCode
from ...common.errors import DecodeError
from ...common.outcome import Outcome
from .command import Command
from .request_codes import NOT_BUILT, RequestCode

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
    return Command.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, name_request(command.code))


def name_request(code: int) -> str:
    """Return Java's remark about a request that is not supported, with its name if official brokers support it."""
    name = f" ({RequestCode(code).name})" if code in NOT_BUILT else ""
    return f" request type {code} not supported{name}"


def log_rejected(rejected: Sequence[Outcome[Any]], peer: str) -> None:
    """Log the first request of a read whose answer was ready when its commit failed, and count the others."""
    others = f" and {len(rejected) - 1} more of the same read" if len(rejected) > 1 else ""
    first = describe_request(rejected[0].request, peer)
    _log.warning("rejecting %s%s, not stored: %s", first, others, rejected[0].failure)


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
