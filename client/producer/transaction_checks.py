"""Questions of brokers about open transactions, waiting for their turn (``checkRequestQueue`` of Java's producer).

A question that finds too many before it is dropped: the broker asks again. So is one that still waits when the
producer closes.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from ...common.message import ReceivedMessage
from ...remoting.headers.message import CheckTransactionHeader
from ...remoting.transport.connection import Connection
from ...remoting.transport.event_loop import TaskScope
from ..session.settings import TransactionProducerSettings

log = logging.getLogger(__name__)


class Question(NamedTuple):
    """What has become of this message? The answer goes back on the connection."""

    header: CheckTransactionHeader
    message: ReceivedMessage
    connection: Connection


class TransactionChecks:
    """Answers questions, a few at a time."""

    def __init__(self, settings: TransactionProducerSettings, answer: Callable[[Question], Awaitable[None]]) -> None:
        self._workers = settings.checks_at_once
        self._answer = answer
        self._waiting: asyncio.Queue[Question] = asyncio.Queue(settings.max_waiting_checks)
        self._is_closing = False

    def __repr__(self) -> str:
        return f"<TransactionChecks {self._waiting.qsize()} waiting>"

    def start(self, scope: TaskScope) -> None:
        """Start to answer."""
        for number in range(self._workers):
            scope.start(self._work(), name=f"check-{number}")

    def submit(self, question: Question) -> None:
        """Let a question wait for its turn."""
        if self._is_closing:
            return
        try:
            self._waiting.put_nowait(question)
        except asyncio.QueueFull:
            log.warning("transaction check of message %s dropped, queue is full: %r", question.message.message_id, self)

    def stop(self) -> None:
        """Begin no more answers."""
        self._is_closing = True

    async def _work(self) -> None:
        while True:
            question = await self._waiting.get()
            if not self._is_closing:
                await self._answer(question)
