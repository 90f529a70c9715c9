"""The tables of consumer groups: settings and committed offsets."""

import msgspec
import pytest

from rocketlet.broker.group import groups as groups_module
from rocketlet.broker.group.groups import GroupTable, OffsetFile, OffsetTable
from rocketlet.common.errors import JsonError
from rocketlet.common.java_json import read_json_as
from rocketlet.common.metadata import DataVersion, SubscriptionGroupConfig, SubscriptionGroupTable


def group_table(*, creates_unknown: bool = True) -> GroupTable:
    """Return the groups of a fresh broker."""
    return GroupTable(lambda: 7, lambda: creates_unknown)


def test_built_in_groups_are_there() -> None:
    """Java's own groups exist from the start."""
    assert group_table(creates_unknown=False).find("CID_ONSAPI_PULL") is not None


def test_unknown_group_is_created_once() -> None:
    """A lookup creates a group with the defaults and counts as one change; a look without creating does not."""
    groups = group_table()
    assert groups.get("g") is None
    created = groups.find("g")
    assert created == SubscriptionGroupConfig(group_name="g")
    assert groups.find("g") is created
    assert groups.change_count == 1


def test_unknown_group_that_may_not_be() -> None:
    """Without creation only system groups are made; a bad name never is."""
    groups = group_table(creates_unknown=False)
    assert groups.find("g") is None
    assert groups.find("CID_RMQ_SYS_x") is not None
    assert group_table().find("bad group") is None


def test_file_is_laid_over_the_built_in_groups() -> None:
    """What was saved comes back; groups of 4.9 get the defaults of newer fields."""
    text = (
        '{"dataVersion":{"counter":2,"timestamp":1},"forbiddenTable":{"g":{"T":4,"U":2}},"subscriptionGroupTable":'
        '{"g":{"groupName":"g","consumeEnable":false,"retryMaxTimes":3,"unknown":1}}}'
    )
    groups = group_table()
    groups.load(read_json_as(text, SubscriptionGroupTable))
    assert groups.get("g") == SubscriptionGroupConfig(group_name="g", consume_enable=False, retry_max_times=3)
    assert (groups.is_reading_forbidden("g", "T"), groups.is_reading_forbidden("g", "U")) == (True, False)
    other = group_table()
    other.load(read_json_as(msgspec.json.encode(groups.content()), SubscriptionGroupTable))
    assert other.content() == groups.content()


def offset_table() -> OffsetTable:
    """Return an empty table whose clock stands at 7."""
    return OffsetTable(lambda: 7, version_step=500)


@pytest.mark.feature("C6")
def test_smaller_offset_is_accepted() -> None:
    """An offset may go back; another group, topic or queue has its own."""
    offsets = offset_table()
    offsets.commit("g", "T", 0, 10)
    offsets.commit("g", "T", 0, 3)
    assert offsets.committed("g", "T", 0) == 3
    assert offsets.committed("g", "T", 1) is None
    assert offsets.committed("h", "T", 0) is None


def test_progress_is_forgotten_with_its_group_or_topic() -> None:
    """What was committed and what was handed out, which nothing was committed of perhaps; each pair by itself."""
    offsets = offset_table()
    for group in ("g", "h"):
        for topic in ("T", "U"):
            offsets.commit(group, topic, 0, 10)
            offsets.note_handed_out(group, topic, 1, 12)
    offsets.note_handed_out("g", "only read", 0, 5)
    assert offsets.progress("g", "only read") == ({}, {0: 5})
    offsets.drop_group("g")
    assert [offsets.progress("g", topic) for topic in ("T", "U", "only read", "none")] == [({}, {})] * 4
    assert (offsets.topics_of("g"), offsets.topics_of("h")) == ([], ["T", "U"])
    count = offsets.change_count
    offsets.drop_topic("T")
    assert offsets.change_count == count + 1
    assert (offsets.progress("h", "T"), offsets.progress("h", "U")) == (({}, {}), ({0: 10}, {1: 12}))
    assert (offsets.groups_of("T"), offsets.groups_of("U"), offsets.handed_out("h", "U", 1)) == ([], ["h"], 12)
    assert offsets.progress("nobody", "T") == ({}, {})
    assert offsets.content().group_topic_map == {"h": ["U"]}


def test_offsets_read_back_what_they_wrote() -> None:
    """The file's content fills another table the same way, and names each group's topics."""
    offsets = offset_table()
    offsets.commit("g", "T", 0, 10)
    offsets.commit("g", "%RETRY%g", 0, 2)
    text = msgspec.json.encode(offsets.content())
    stored = msgspec.json.decode(text)
    assert stored["offsetTable"] == {"T@g": {"0": 10}, "%RETRY%g@g": {"0": 2}}
    assert stored["groupTopicMap"] == {"g": ["T", "%RETRY%g"]}
    other = offset_table()
    other.load(read_json_as(text, OffsetFile))
    assert other.content() == offsets.content()


def test_names_with_another_at_sign_are_skipped() -> None:
    """Java takes keys of exactly two parts; the others are left out."""
    offsets = offset_table()
    offsets.load(OffsetFile(offset_table={"T@g": {0: 1}, "T@g@h": {0: 1}, "T": {0: 1}}))
    assert offsets.content().offset_table == {"T@g": {0: 1}}


def test_java_file_is_read() -> None:
    """Java writes queue ids as bare keys."""
    offsets = offset_table()
    offsets.load(read_json_as('{"dataVersion":{"counter":3},"offsetTable":{"T@g":{0:10,1:20}}}', OffsetFile))
    assert [offsets.committed("g", "T", queue_id) for queue_id in (0, 1)] == [10, 20]


@pytest.mark.parametrize("text", ['{"offsetTable":[]}', '{"offsetTable":{"T@g":{"x":1}}}', '{"offsetTable":{"T@g":1}}'])
def test_other_shape_is_refused(text: str) -> None:
    """A file of another shape stops the start instead of losing offsets."""
    with pytest.raises(JsonError):
        read_json_as(text, OffsetFile)


def test_progress_of_a_slave_is_taken_back() -> None:
    """Where it is further, in topics that are known; groups of the broker and what is older are left."""
    offsets = offset_table()
    offsets.load(OffsetFile(data_version=DataVersion(counter=2), offset_table={"T@g": {0: 5, 1: 5}}))
    told = {"T@g": {0: 7, 1: 3, 2: 1}, "T@new": {0: 0}, "gone@g": {0: 9}, "T@CID_RMQ_SYS_TRANS": {0: 9}, "T": {0: 9}}
    older = OffsetFile(data_version=DataVersion(counter=1), offset_table=told)
    assert offsets.take_back(older, "T".__eq__) == 0
    assert offsets.content().offset_table == {"T@g": {0: 5, 1: 5}}
    newer = OffsetFile(data_version=DataVersion(counter=3), offset_table=told)
    assert offsets.take_back(newer, "T".__eq__) == 3
    assert offsets.content().offset_table == {"T@g": {0: 7, 1: 5, 2: 1}, "T@new": {0: 0}}
    assert offsets.content().data_version == DataVersion(counter=3)


def test_version_moves_with_every_step() -> None:
    """The data version grows once per 500 commits."""
    offsets = offset_table()
    for number in range(1000):
        offsets.commit("g", "T", 0, number)
    assert offsets.content().data_version == DataVersion(counter=2, timestamp=7)


def test_offset_behind_the_end_of_its_queue_is_pulled_back() -> None:
    """A queue that lost its end ends at 7: offsets up to there stay, those behind are set to it."""
    offsets = offset_table()
    for group, queue_offset in (("before", 6), ("at", 7), ("behind", 8), ("far", 99)):
        offsets.commit(group, "T", 0, queue_offset)
    before = offsets.change_count
    offsets.pull_back(lambda topic, queue_id: 7 if (topic, queue_id) == ("T", 0) else 0)
    assert offsets.change_count == before + 2
    assert [offsets.committed(group, "T", 0) for group in ("before", "at", "behind", "far")] == [6, 7, 7, 7]


def test_queues_of_a_topic_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients name queues by any number: beyond the limit only those that are known are taken."""
    monkeypatch.setattr(groups_module, "MAX_QUEUES", 2)
    table = OffsetTable(lambda: 7, version_step=500)
    for queue_id in (5, -9):
        assert table.takes("g", "T", queue_id)
        table.commit("g", "T", queue_id, 1)
    assert [table.takes("g", "T", queue_id) for queue_id in (5, -9, 0)] == [True, True, False]
    assert table.takes("other", "T", 0)


def test_each_change_of_groups_is_counted() -> None:
    """By another number than before: the table is saved then."""
    table = GroupTable(lambda: 7)
    counts = [table.change_count]
    for name in ("a", "b", "a"):
        table.put(SubscriptionGroupConfig(group_name=name))
        counts.append(table.change_count)
    table.delete("a")
    assert len({*counts, table.change_count}) == 5
