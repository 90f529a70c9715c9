"""Queue locks of ordered consumers: LOCK_BATCH_MQ(41), UNLOCK_BATCH_MQ(42) (``AdminBrokerProcessor``; B.8)."""

from collections.abc import Callable

from ...remoting.bodies.body import encode_body
from ...remoting.bodies.client import LockedQueues, decode_lock_body
from ...remoting.codec.codes import ResponseCode
from ...remoting.codec.command import Command
from ...remoting.transport.connection import Connection
from .locks import QueueLocks


class LockHandlers:
    """Answers from the lock table."""

    def __init__(self, locks: QueueLocks, monotonic_ms: Callable[[], int]) -> None:
        self._locks = locks
        self._monotonic_ms = monotonic_ms

    def lock(self, command: Command, _connection: Connection) -> Command:
        """Give a client what is free of the queues that it wants; tell what it holds now."""
        wish = decode_lock_body(command.body)
        held = self._locks.take(wish.consumer_group, wish.client_id, wish.mq_set, self._monotonic_ms())
        return Command.response(ResponseCode.SUCCESS, None, None, encode_body(LockedQueues(queues=held)))

    def unlock(self, command: Command, _connection: Connection) -> Command:
        """Take back what a client gives up."""
        wish = decode_lock_body(command.body)
        self._locks.give_back(wish.consumer_group, wish.client_id, wish.mq_set)
        return Command.response(ResponseCode.SUCCESS)
