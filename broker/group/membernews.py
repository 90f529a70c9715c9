"""Who hears of a group: its members, and the table of filters (``DefaultConsumerIdsChangeListener``).

Members are told that their group has changed (NOTIFY_CONSUMER_IDS_CHANGED(40)), so that they share queues anew. The
table is told what a heartbeat subscribes to, and that a group has no members left.
"""

from collections.abc import Mapping

from ...common.subscription import Subscription
from ...remoting.codec.codes import RequestCode
from ...remoting.codec.command import Command
from ...remoting.headers.client import ConsumerGroupHeader
from ...remoting.transport.connection import Connection, encode_oneway
from .filtertable import FilterTable
from .groups import GroupTable
from .members import ConsumerGroup


class MemberNews:
    """Spreads the news; members hear none if broker or group want that, or in a broadcasting group (B.10)."""

    def __init__(self, groups: GroupTable, filters: FilterTable, *, is_on: bool = True) -> None:
        self._groups = groups
        self._filters = filters
        self._is_on = is_on

    def tell(self, group: ConsumerGroup[Connection]) -> None:
        """Tell that a group has changed: every member, one-way, and when none is left the table of filters."""
        if not group.members:
            self._filters.unregister(group.name)
        settings = self._groups.get(group.name)
        is_wanted = settings is None or settings.notify_consumer_ids_changed_enable
        if self._is_on and is_wanted and not group.is_broadcasting:
            header = ConsumerGroupHeader(consumer_group=group.name)
            notice = encode_oneway(Command.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header))
            for connection in group.members:
                connection.push(notice)

    def subscribed(self, group: str, subscriptions: Mapping[str, Subscription]) -> None:
        """Tell what a heartbeat subscribes its group to."""
        self._filters.register(group, subscriptions.values())
