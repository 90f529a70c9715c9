"""Answers to requests that could not be served (``spec/remoting.md`` §1.7)."""

import logging
import os

from ..common.errors import DecodeError, StoreError
from .codes import ResponseCode
from .command import Command

NO_ANSWER = "not set any response code"
OVERLOAD = "[OVERLOAD]system busy, start flow control for a while"

_log = logging.getLogger(__name__)


def failure_reply(command: Command, error: BaseException, *, is_logged: bool = True) -> Command:
    """Return the answer to a request whose handler raised, and log what happened if that is wanted.

    A request that cannot be read is its sender's mistake and is answered with the error's own text. A file that cannot
    be used is nobody's who is asking or answering: it is named, in one line. Anything else is ours: the traceback is
    logged, the answer has Java's form ``<class>: <message>, <where>``.
    """
    if isinstance(error, DecodeError):
        _log.log(logging.WARNING if is_logged else logging.DEBUG, "%r is refused: %s", command, error)
        return Command.response(ResponseCode.SYSTEM_ERROR, str(error))
    level = logging.ERROR if is_logged else logging.DEBUG
    if isinstance(error, OSError) and error.filename is not None:
        remark = f"{error.filename} cannot be used: {error.strerror}"
        _log.log(level, "%r failed: %s", command, remark)
        return Command.response(ResponseCode.SYSTEM_ERROR, remark)
    _log.log(level, "%r failed", command, exc_info=error)
    return Command.response(ResponseCode.SYSTEM_ERROR, describe_failure(error))


def commit_failure_reply(command: Command, error: StoreError) -> Command:
    """Return the answer to a request whose records could not be written."""
    _log.warning("%r was not stored: %s", command, error)
    return Command.response(ResponseCode.SERVICE_NOT_AVAILABLE, str(error))


def unknown_code_reply(command: Command, *, is_logged: bool = True) -> Command:
    """Return the answer to a request code that nobody handles."""
    _log.log(logging.WARNING if is_logged else logging.DEBUG, "%r is not supported", command)
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
