"""Errors inside a broker, collected to be raised in the test that caused them.

A fault boundary logs what it stops, with the traceback when it is nobody else's doing: a peer, a file or a setting is
told in a line. So what the loggers of rocketlet (and asyncio's, for tasks) tell with a traceback, in the thread of the
broker, is an error of the broker, unless a fault that the test has injected stands behind it. Logs of failed requests
are limited in their number: who stands before the handlers tells each (``note``).
"""

import logging
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Self

from ...common.errors import RocketletError
from .disk_faults import InjectedDiskError

_LOGGERS = (__name__.partition(".")[0], "asyncio")


class BrokerErrors(logging.Handler):
    """Collects the errors of the thread that enters it; a context manager."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._thread = 0
        self._found: list[Exception] = []
        self._is_muted = False

    def __repr__(self) -> str:
        return f"<BrokerErrors {len(self._found)}>"

    def __enter__(self) -> Self:
        """Listen."""
        self._thread = threading.get_ident()
        for name in _LOGGERS:
            logging.getLogger(name).addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        """Listen no more."""
        for name in _LOGGERS:
            logging.getLogger(name).removeHandler(self)

    @contextmanager
    def muted(self) -> Generator[None]:
        """Collect nothing in the block: a broker that is being killed may fail as it likes."""
        self._is_muted = True
        try:
            yield
        finally:
            self._is_muted = False

    def emit(self, record: logging.LogRecord) -> None:
        """Keep an error."""
        if self._is_alone(record.name) and logging.lastResort is not None:
            logging.lastResort.handle(record)  # to whom it would have gone without anybody who listens
        error = record.exc_info[1] if record.exc_info else None
        if record.thread == self._thread and isinstance(error, Exception):
            self.note(error, f"logged by {record.name}: {record.getMessage()}")

    def note(self, error: Exception, where: str) -> None:
        """Keep an error, once, unless it comes from outside or from an injected fault."""
        if self._is_muted or error in self._found or isinstance(error, RocketletError | OSError):
            return
        if not any(map(_is_injected, _causes(error))):
            error.add_note(where)
            self._found.append(error)

    def _is_alone(self, name: str) -> bool:
        logger: logging.Logger | None = logging.getLogger(name)
        handlers: list[logging.Handler] = []
        while logger is not None:
            handlers += logger.handlers
            logger = logger.parent if logger.propagate else None
        return handlers[0] is self and all(isinstance(handler, BrokerErrors) for handler in handlers)

    def take(self) -> list[Exception]:
        """Return what was collected, and begin anew."""
        found, self._found = self._found, []
        return found


def _is_injected(error: BaseException) -> bool:
    return isinstance(error, InjectedDiskError)


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    seen: set[int] = set()
    while cause is not None and id(cause) not in seen:
        yield cause
        seen.add(id(cause))
        cause = cause.__cause__ or cause.__context__
