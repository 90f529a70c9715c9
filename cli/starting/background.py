"""``--background``: the servers go on in a process of their own when the command has ended.

The process forks before a loop or a thread is there. The child has a session of its own, so that neither ^C nor the end
of a terminal reaches it; its stdin is empty, its stderr a file, its stdout a pipe on which the parent waits for the
ready line. The parent repeats what the child has said, and ends with the ready line or as the child did.
"""

import contextlib
import os
import signal
import sys
from typing import Final, NoReturn

import click

from ...common.errors import ConfigError

_READ_BYTES: Final = 65_536
_SIGNAL_CODE: Final = 128
"""What a shell adds to the number of a signal that has ended a process."""


def go_to_background(log: str) -> None:
    """Return in a child that logs to a file; the parent exits when the child is ready or has ended.

    Raises:
        ConfigError: the file cannot be written.
    """
    try:
        os.makedirs(os.path.dirname(log), exist_ok=True)
        written = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        read = os.open(log, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise ConfigError(f"{log} cannot be written: {error.strerror}", key="--background") from error
    os.lseek(read, 0, os.SEEK_END)
    ready_end, child_end = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        os.close(child_end)
        _wait_ready(child, ready_end, read)
    os.setsid()
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(child_end, 1)
    os.dup2(written, 2)
    for descriptor in (ready_end, child_end, read, written):
        os.close(descriptor)


def _wait_ready(child: int, ready_end: int, log: int) -> NoReturn:
    line = b""
    try:
        while not line.endswith(b"\n") and (part := os.read(ready_end, _READ_BYTES)):
            line += part
    except KeyboardInterrupt:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGTERM)
        os.waitpid(child, 0)
        raise
    if line.endswith(b"\n"):
        _repeat(log)
        click.echo(line, nl=False)
        sys.exit(0)
    _, status = os.waitpid(child, 0)
    _repeat(log)
    code = os.waitstatus_to_exitcode(status)
    sys.exit(code if code >= 0 else _SIGNAL_CODE - code)


def _repeat(log: int) -> None:
    """Write to stderr what has been logged since the start."""
    while part := os.read(log, _READ_BYTES):
        click.echo(part, nl=False, err=True)
