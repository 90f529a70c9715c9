"""Tells the brokers of a group that another one of them is the first by now (905; ``notifyMinBrokerIdChanged``).

It is not answered. Brokers ask who is there each second anyway, so one that cannot be reached is not told again.
"""

import logging

from ..common.errors import RemotingError
from ..remoting.codec.command import Command
from ..remoting.codec.request_codes import RequestCode
from ..remoting.headers.namesrv import FirstBrokerHeader
from ..remoting.transport.client import ConnectionPool
from ..remoting.transport.event_loop import TaskScope
from .routes import FirstChange

_log = logging.getLogger(__name__)


class FirstNotices:
    """Sends the notices."""

    def __init__(self, pool: ConnectionPool, tasks: TaskScope) -> None:
        self._pool = pool
        self._tasks = tasks

    def tell(self, change: FirstChange) -> None:
        """Tell all whom it concerns; it goes on behind the caller."""
        for address in change.told:
            self._tasks.start(self._send(address, change), f"tell {address} which broker is the first")

    async def _send(self, address: str, change: FirstChange) -> None:
        header = FirstBrokerHeader(
            first_id=change.first_id,
            first_address=change.first_address,
            offline_address=change.offline_address,
            ha_address=change.ha_address,
        )
        try:
            await self._pool.oneway(address, Command.request(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, header))
        except RemotingError as error:
            _log.info("broker %s is not told which one of its group is the first: %s", address, error)
