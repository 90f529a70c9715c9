"""Outcomes of transactions: what the application says, and what becomes of it.

state       Java's                on the wire
COMMIT      COMMIT_MESSAGE        8     the message is delivered
ROLLBACK    ROLLBACK_MESSAGE      12    it is dropped
UNKNOWN     UNKNOW                0     the broker will ask
"""

import asyncio
import enum
import logging
from collections.abc import Awaitable
from typing import NamedTuple, Self

import msgspec

from ...common.message import TRANSACTION_COMMIT, TRANSACTION_NONE, TRANSACTION_ROLLBACK
from ..session.results import SendResult

log = logging.getLogger(__name__)


class TransactionState(enum.Enum):
    """What has become of a local transaction (Java's ``LocalTransactionState``, whose names are the values)."""

    COMMIT = "COMMIT_MESSAGE"
    ROLLBACK = "ROLLBACK_MESSAGE"
    UNKNOWN = "UNKNOW"

    @property
    def code(self) -> int:
        """The number in END_TRANSACTION (37)."""
        return _CODES[self]


_CODES = {
    TransactionState.COMMIT: TRANSACTION_COMMIT,
    TransactionState.ROLLBACK: TRANSACTION_ROLLBACK,
    TransactionState.UNKNOWN: TRANSACTION_NONE,
}


class Outcome(NamedTuple):
    """What a listener has said, or raised."""

    state: TransactionState
    error: Exception | None = None


class TransactionResult(SendResult, frozen=True, kw_only=True):
    """Where the half message was stored, what the listener said, and the error if it raised one."""

    state: TransactionState
    error: Exception | None = None

    @classmethod
    def of(cls, sent: SendResult, outcome: Outcome) -> Self:
        """Join the two."""
        return cls(**msgspec.structs.asdict(sent), state=outcome.state, error=outcome.error)


async def outcome_of(answering: Awaitable[TransactionState | None], message_id: str | None) -> Outcome:
    """Return what a call of a listener comes to; cancelled from within it is UNKNOWN as well."""
    try:
        answer = await answering
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        log.warning("a transaction listener was cancelled from within; message %s stays open", message_id)
        return Outcome(TransactionState.UNKNOWN)
    except Exception as error:  # fault boundary of the user's code: the message stays open
        log.exception("a transaction listener failed; message %s stays open", message_id)
        return Outcome(TransactionState.UNKNOWN, error)
    if answer is not None and not isinstance(answer, TransactionState):  # pyright: ignore[reportUnnecessaryIsInstance] # user code
        log.error("a transaction listener returned %r; message %s stays open", answer, message_id)
        return Outcome(TransactionState.UNKNOWN)
    return Outcome(TransactionState.UNKNOWN if answer is None else answer)
