"""NOTIFY_CONSUMER_IDS_CHANGED(40): tells the members of a group that it has changed, so that they share queues anew."""

from ..remoting.codes import RequestCode
from ..remoting.command import Command
from ..remoting.connection import Connection
from ..remoting.headers_client import ConsumerGroupHeader
from .groups import GroupTable
from .members import ConsumerGroup


class MemberNews:
    """Sends the notice, unless broker or group do not want it or the group is broadcasting (behaviour.md B.10)."""

    def __init__(self, groups: GroupTable, *, is_on: bool = True) -> None:
        self._groups = groups
        self._is_on = is_on

    def tell(self, group: ConsumerGroup[Connection]) -> None:
        """Tell every member, one-way."""
        settings = self._groups.get(group.name)
        is_wanted = settings is None or settings.notify_consumer_ids_changed_enable
        if self._is_on and is_wanted and not group.is_broadcasting:
            header = ConsumerGroupHeader(consumer_group=group.name)
            for connection in group.members:
                connection.send_oneway(Command.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header))
