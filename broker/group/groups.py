"""What a broker keeps of consumer groups over restarts: settings, progress in each queue, how they get messages.

The tables stand in files of ``config/`` as Java writes them (``SubscriptionGroupManager``, ``ConsumerOffsetManager``,
``MessageRequestModeManager``; spec behaviour.md B.2 and B.7, store.md §9.3, §9.4 and §9.6).

subscriptionGroup.json   the settings, laid over the built-in groups at a start
consumerOffset.json      ``offsetTable`` maps ``topic@group`` to queue id to the next offset to consume;
                         ``groupTopicMap`` is derived and ignored on load; the data version moves every 500 commits
messageRequestMode.json  whether the members of a group pull or pop, by topic and group
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import msgspec
from msgspec import field

from ...common.java_json import Int32
from ...common.metadata import DataVersion, SubscriptionGroupConfig, SubscriptionGroupTable
from ...common.names import RESERVED_GROUPS, broker_group_remark, is_system_group
from ..topic.config_table import next_version

_READ_BIT = 1 << 2  # PermName.INDEX_PERM_READ in a forbidden mask


class GroupTable:
    """All consumer groups by name."""

    file_name = "subscriptionGroup.json"
    content_type = SubscriptionGroupTable

    def __init__(self, now_ms: Callable[[], int], creates_unknown: Callable[[], bool] = lambda: True) -> None:
        self.change_count = 0
        self._version: DataVersion = DataVersion(timestamp=now_ms())
        self._now_ms = now_ms
        self._creates_unknown = creates_unknown
        self._groups = {name: SubscriptionGroupConfig(group_name=name) for name in sorted(RESERVED_GROUPS)}
        self.get = self._groups.get
        """Return a group that exists, None when there is none; the pull path looks groups up here."""
        self.forbidden: dict[str, dict[str, int]] = {}
        """By group and topic: what an administrator has forbidden."""

    def __repr__(self) -> str:
        return f"<GroupTable of {len(self._groups)} groups, change {self._version.counter}>"

    def names(self) -> list[str]:
        """Return the names of all groups."""
        return list(self._groups)

    def known(self, name: str) -> SubscriptionGroupConfig | None:
        """Return a group that is there."""
        return self._groups.get(name)

    def find(self, name: str) -> SubscriptionGroupConfig | None:
        """Return a group, created with the defaults when it is unknown and may be."""
        group = self._groups.get(name)
        if group is not None:
            return group
        if not (self._creates_unknown() or is_system_group(name)) or broker_group_remark(name) is not None:
            return None
        return self.put(SubscriptionGroupConfig(group_name=name))

    def put(self, group: SubscriptionGroupConfig) -> SubscriptionGroupConfig:
        """Create or replace a group."""
        self._groups[group.group_name] = group
        self._changed()
        return group

    def delete(self, name: str) -> None:
        """Remove a group, if there is one, and what was forbidden to it."""
        if self._groups.pop(name, None) is not None or name in self.forbidden:
            self.forbidden.pop(name, None)
            self._changed()

    def forbid_reading(self, group: str, topic: str, *, is_forbidden: bool) -> bool:
        """Forbid a group to read a topic, or allow it again; False if there is no room for one more.

        Java allows all topics of the group again when one is allowed (``updateForbiddenValue``).
        """
        topics = self.forbidden.get(group, {})
        before = topics.get(topic, 0)
        mask = before | _READ_BIT if is_forbidden else before & ~_READ_BIT
        if mask == before:
            return True
        if not before and sum(map(len, self.forbidden.values())) >= MAX_FORBIDDEN:
            return False
        others = {name: other for name, other in topics.items() if name != topic}
        self.forbidden[group] = others | {topic: mask} if mask else others
        if not self.forbidden[group]:
            del self.forbidden[group]
        self._changed()
        return True

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

    def take_copy(self, content: SubscriptionGroupTable) -> frozenset[str]:
        """Become the table of a master in one step, with its version; return the groups that are gone."""
        if content == self.content():
            return frozenset()
        gone = frozenset(self._groups.keys() - content.subscription_group_table.keys())
        self._groups.clear()
        self._groups.update(content.subscription_group_table)
        self.forbidden = content.forbidden_table
        self._version = content.data_version
        self.change_count += 1
        return gone

    def _changed(self) -> None:
        self.change_count += 1
        self._version = next_version(self._version, self._now_ms())


MAX_FORBIDDEN: Final = 65_536
"""Pairs of group and topic: they need not be there."""

MAX_QUEUES: Final = 65_536
"""Of one topic that one group has offsets for: clients name queues by any number."""


_Queues = defaultdict[str, defaultdict[str, dict[int, int]]]
"""Offsets by group, topic and queue; a group is there as long as it has a topic."""


_NONE: Final[Mapping[int, int]] = {}


class OffsetFile(msgspec.Struct, rename="camel", kw_only=True):
    """The content of ``consumerOffset.json``."""

    data_version: DataVersion = DataVersion()
    group_topic_map: dict[str, list[str]] | None = None
    offset_table: dict[str, dict[int, int]] = field(default_factory=dict[str, dict[int, int]])


class OffsetTable:
    """Committed offsets by group, topic and queue.

    Where an administrator has set a group back or forth (``reset``), its members know nothing of it yet: what they
    commit is passed over until the next one that pulls has been told where to go on (``take_reset``).
    """

    file_name = "consumerOffset.json"
    content_type = OffsetFile

    def __init__(self, now_ms: Callable[[], int], *, version_step: int) -> None:
        self.change_count = 0
        self._now_ms = now_ms
        self._version_step = version_step
        self._version = DataVersion()
        self._offsets: _Queues = defaultdict(lambda: defaultdict(dict))
        self._copied: frozenset[tuple[str, str]] = frozenset()  # groups and topics of the master at the last copy
        self._handed_out: _Queues = defaultdict(lambda: defaultdict(dict))
        self.resets: dict[tuple[str, str, int], int] = {}
        """By group, topic and queue: where members shall go on that do not know it yet. Each pull looks for any."""

    def __repr__(self) -> str:
        return f"<OffsetTable of {sum(map(len, self._offsets.values()))} pairs of group and topic>"

    def takes(self, group: str, topic: str, queue_id: int) -> bool:
        """Tell whether there is room for the offset of a queue: no topic has more than ``MAX_QUEUES`` of them."""
        queues = self.of_topic(group, topic)
        return len(queues) < MAX_QUEUES or queue_id in queues

    def commit(self, group: str, topic: str, queue_id: int, queue_offset: int) -> None:
        """Store an offset, a smaller one too: that is how a group is set back by hand."""
        if self.resets and (group, topic, queue_id) in self.resets:
            return
        self._offsets[group][topic][queue_id] = queue_offset
        self._changed()

    def _changed(self) -> None:
        self.change_count += 1
        if self.change_count % self._version_step == 0:
            self._version = next_version(self._version, self._now_ms())

    def committed(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the stored offset."""
        return self.of_topic(group, topic).get(queue_id)

    def of_topic(self, group: str, topic: str) -> Mapping[int, int]:
        """Return the stored offsets of a group in a topic, by queue."""
        return _topics_of(self._offsets, group).get(topic, _NONE)

    def clone(self, source: str, target: str, topic: str) -> None:
        """Have a group go on in a topic where another one is (``cloneOffset``)."""
        for queue_id, queue_offset in list(self.of_topic(source, topic).items()):
            self.resets.pop((target, topic, queue_id), None)
            self.commit(target, topic, queue_id, queue_offset)

    def reset(self, group: str, topic: str, queue_id: int, queue_offset: int) -> None:
        """Have a group go on at an offset, whatever its members commit before they know (``assignResetOffset``)."""
        self.resets.pop((group, topic, queue_id), None)
        self.commit(group, topic, queue_id, queue_offset)
        self.resets[group, topic, queue_id] = queue_offset

    def is_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Tell whether the members of a group do not know yet that they shall go on elsewhere."""
        return (group, topic, queue_id) in self.resets

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return where a member that pulls shall go on, and count it as told; None when it may go on as it likes."""
        return self.resets.pop((group, topic, queue_id), None)

    def drop_topic(self, topic: str) -> None:
        """Forget the offsets of all groups in a topic (``cleanOffsetByTopic``)."""
        self._drop({*self._offsets, *self._handed_out}, topic)
        self._forget_resets(lambda _, name: name == topic)

    def drop_group(self, group: str) -> None:
        """Forget the offsets of a group (``removeOffset``)."""
        for topic in {*_topics_of(self._offsets, group), *_topics_of(self._handed_out, group)}:
            self._drop({group}, topic)
        self._forget_resets(lambda name, _: name == group)

    def _drop(self, groups: Iterable[str], topic: str) -> None:
        for table in (self._offsets, self._handed_out):
            for group in groups:
                if topic in _topics_of(table, group):
                    del table[group][topic]
                    if not table[group]:
                        del table[group]
                    if table is self._offsets:
                        self._changed()

    def _forget_resets(self, is_gone: Callable[[str, str], bool]) -> None:
        for queue in [queue for queue in self.resets if is_gone(*queue[:2])]:
            del self.resets[queue]

    def note_handed_out(self, group: str, topic: str, queue_id: int, next_offset: int) -> None:
        """Note up to where a group was given messages of a queue; kept while the broker runs (``pullOffsetTable``)."""
        self._handed_out[group][topic][queue_id] = next_offset

    def handed_out(self, group: str, topic: str, queue_id: int) -> int:
        """Return up to where a group was given messages of a queue, 0 when it was not."""
        return self.progress(group, topic)[1].get(queue_id, 0)

    def progress(self, group: str, topic: str) -> tuple[Mapping[int, int], Mapping[int, int]]:
        """Return what a group has committed and up to where it was given messages of a topic, by queue."""
        committed = self._offsets[group].get(topic, _NONE) if group in self._offsets else _NONE
        handed_out = self._handed_out[group].get(topic, _NONE) if group in self._handed_out else _NONE
        return committed, handed_out

    def topics_of(self, group: str) -> list[str]:
        """Return the topics that a group has offsets of."""
        return sorted(_topics_of(self._offsets, group))

    def groups_of(self, topic: str) -> list[str]:
        """Return the groups that have offsets of a topic."""
        return [group for group, topics in self._offsets.items() if topic in topics]

    def content(self) -> OffsetFile:
        """Return what ``consumerOffset.json`` shall hold."""
        return OffsetFile(
            data_version=self._version,
            group_topic_map={group: list(topics) for group, topics in self._offsets.items()},
            offset_table={f"{topic}@{group}": queues for group, topic, queues in self._pairs()},
        )

    def load(self, content: OffsetFile) -> None:
        """Take over what ``consumerOffset.json`` held."""
        self._version = content.data_version
        for name, queues in content.offset_table.items():
            if pair := _pair_of(name):
                group, topic = pair
                self._offsets[group][topic] = queues

    def take_copy(self, content: OffsetFile) -> None:
        """Take over what a master holds of each group and topic, and drop what it held at the last copy and no more.

        What this broker's own clients have committed elsewhere stays: the master may not know it yet.
        """
        wanted = {pair: queues for name, queues in content.offset_table.items() if (pair := _pair_of(name))}
        is_changed = content.data_version != self._version
        for group, topic in self._copied - wanted.keys():
            is_changed |= self._offsets[group].pop(topic, None) is not None
        for (group, topic), queues in wanted.items():
            is_changed |= self.of_topic(group, topic) != queues
            self._offsets[group][topic] = queues
        for group in [group for group, topics in self._offsets.items() if not topics]:
            del self._offsets[group]
        self._copied = frozenset(wanted)
        self._version = content.data_version
        self.change_count += is_changed

    def take_back(self, content: OffsetFile, is_known: Callable[[str], bool]) -> int:
        """Go on where groups have come further at a slave; return for how many queues that is so.

        Topics that are not known are left, and so are groups of the broker itself; and all of it if it is older.
        """
        if content.data_version.is_older(self._version):
            return 0
        count = 0
        for name, queues in content.offset_table.items():
            pair = _pair_of(name)
            if pair is None or not is_known(pair[1]) or is_system_group(pair[0]):
                continue
            for queue_id, queue_offset in queues.items():
                if queue_offset > self.of_topic(*pair).get(queue_id, -1) and self.takes(*pair, queue_id):
                    self.commit(*pair, queue_id, queue_offset)
                    count += 1
        self._version = content.data_version
        return count

    def pull_back(self, max_offset: Callable[[str, int], int]) -> None:
        """Set offsets that lie behind the end of their queue to it: after a power failure a queue may be shorter.

        Messages that take those offsets later would be passed over else (store.md §15.1).
        """
        for group, topic, queues in self._pairs():
            for queue_id, queue_offset in queues.items():
                end = max_offset(topic, queue_id)
                if queue_offset > end:
                    self.commit(group, topic, queue_id, end)

    def _pairs(self) -> Iterator[tuple[str, str, dict[int, int]]]:
        return ((group, topic, queues) for group, topics in self._offsets.items() for topic, queues in topics.items())


class RequestMode(msgspec.Struct, rename="camel", kw_only=True):
    """How the members of a group get the messages of a topic (``SetMessageRequestModeRequestBody``)."""

    consumer_group: str | None = None
    mode: str = "PULL"
    pop_share_queue_num: Int32 = 0
    topic: str | None = None


class RequestModes(msgspec.Struct, rename="camel", kw_only=True):
    """The same of all, by topic and group (``MessageRequestModeSerializeWrapper``)."""

    message_request_mode_map: dict[str, dict[str, RequestMode]] = field(
        default_factory=dict[str, dict[str, RequestMode]]
    )


class RequestModeTable:
    """How groups get messages, where an administrator has said so."""

    file_name = "messageRequestMode.json"
    content_type = RequestModes

    def __init__(self) -> None:
        self.change_count = 0
        self._modes = RequestModes()

    def __repr__(self) -> str:
        return f"<RequestModeTable of {len(self._modes.message_request_mode_map)} topics>"

    def find(self, topic: str, group: str) -> RequestMode | None:
        """Return what was said of a group."""
        return self._modes.message_request_mode_map.get(topic, {}).get(group)

    def put(self, topic: str, group: str, mode: RequestMode) -> None:
        """Have the members of a group get the messages of a topic so."""
        self._modes.message_request_mode_map.setdefault(topic, {})[group] = mode
        self.change_count += 1

    def content(self) -> RequestModes:
        """Return what the file shall hold."""
        return self._modes

    def load(self, content: RequestModes) -> None:
        """Take over what the file held."""
        self._modes = content

    def take_copy(self, content: RequestModes) -> None:
        """Take over what a master holds."""
        self.change_count += content != self._modes
        self._modes = content


def _pair_of(name: str) -> tuple[str, str] | None:
    """Return the group and the topic that ``topic@group`` names, None when it names no pair."""
    topic, at, group = name.partition("@")
    return (group, topic) if at and "@" not in group else None


def _topics_of(table: _Queues, group: str) -> Mapping[str, Mapping[int, int]]:
    return table.get(group, {})
