"""Consumer groups as the broker knows them (``SubscriptionGroupManager``; spec behaviour.md B.2, store.md §9.3).

``config/subscriptionGroup.json`` holds them as Java does; it is laid over the built-in groups.
"""

from collections.abc import Callable

from ...common.names import RESERVED_GROUPS, broker_group_remark, is_system_group
from ...remoting.bodies.group import SubscriptionGroupConfig, SubscriptionGroupTable
from ...remoting.bodies.route import DataVersion
from ..topic.config_table import next_version

_READ_BIT = 1 << 2  # PermName.INDEX_PERM_READ in a forbidden mask


class GroupTable:
    """All consumer groups by name."""

    file_name = "subscriptionGroup.json"
    content_type = SubscriptionGroupTable

    def __init__(self, now_ms: Callable[[], int], *, creates_unknown: bool = True) -> None:
        self.change_count = 0
        self._version = DataVersion(timestamp=now_ms())
        self._now_ms = now_ms
        self._creates_unknown = creates_unknown
        self._groups = {name: SubscriptionGroupConfig(group_name=name) for name in sorted(RESERVED_GROUPS)}
        self.get = self._groups.get
        """Return a group that exists, None when there is none; the pull path looks groups up here."""
        self.forbidden: dict[str, dict[str, int]] = {}
        """By group and topic: what an administrator has forbidden."""

    def __repr__(self) -> str:
        return f"<GroupTable of {len(self._groups)} groups, change {self._version.counter}>"

    def find(self, name: str) -> SubscriptionGroupConfig | None:
        """Return a group, created with the defaults when it is unknown and may be."""
        group = self._groups.get(name)
        if group is not None:
            return group
        if not (self._creates_unknown or is_system_group(name)) or broker_group_remark(name) is not None:
            return None
        return self.put(SubscriptionGroupConfig(group_name=name))

    def put(self, group: SubscriptionGroupConfig) -> SubscriptionGroupConfig:
        """Create or replace a group."""
        self._groups[group.group_name] = group
        self.change_count += 1
        self._version = next_version(self._version, self._now_ms())
        return group

    def is_reading_forbidden(self, group: str, topic: str) -> bool:
        """Tell whether an administrator has forbidden the group to read the topic."""
        return bool(self.forbidden.get(group, {}).get(topic, 0) & _READ_BIT)

    def content(self) -> SubscriptionGroupTable:
        """Return what ``subscriptionGroup.json`` shall hold."""
        return SubscriptionGroupTable(
            data_version=self._version, forbidden_table=self.forbidden, subscription_group_table=self._groups
        )

    def load(self, content: SubscriptionGroupTable) -> None:
        """Lay what ``subscriptionGroup.json`` held over the built-in groups."""
        self._groups.update(content.subscription_group_table)
        self.forbidden = content.forbidden_table
        self._version = content.data_version
