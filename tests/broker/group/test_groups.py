"""The table of consumer groups."""

import msgspec

from rocketlet.broker.group.groups import GroupTable
from rocketlet.common.java_json import read_json_as
from rocketlet.remoting.bodies.group import SubscriptionGroupConfig, SubscriptionGroupTable


def table(*, creates_unknown: bool = True) -> GroupTable:
    """Return the groups of a fresh broker."""
    return GroupTable(lambda: 7, creates_unknown=creates_unknown)


def test_built_in_groups_are_there() -> None:
    """Java's own groups exist from the start."""
    assert table(creates_unknown=False).find("CID_ONSAPI_PULL") is not None


def test_unknown_group_is_created_once() -> None:
    """A lookup creates a group with the defaults and counts as one change; a look without creating does not."""
    groups = table()
    assert groups.get("g") is None
    created = groups.find("g")
    assert created == SubscriptionGroupConfig(group_name="g")
    assert groups.find("g") is created
    assert groups.change_count == 1


def test_unknown_group_that_may_not_be() -> None:
    """Without creation only system groups are made; a bad name never is."""
    groups = table(creates_unknown=False)
    assert groups.find("g") is None
    assert groups.find("CID_RMQ_SYS_x") is not None
    assert table().find("bad group") is None


def test_file_is_laid_over_the_built_in_groups() -> None:
    """What was saved comes back; groups of 4.9 get the defaults of newer fields."""
    text = (
        '{"dataVersion":{"counter":2,"timestamp":1},"forbiddenTable":{"g":{"T":4,"U":2}},"subscriptionGroupTable":'
        '{"g":{"groupName":"g","consumeEnable":false,"retryMaxTimes":3,"unknown":1}}}'
    )
    groups = table()
    groups.load(read_json_as(text, SubscriptionGroupTable))
    assert groups.get("g") == SubscriptionGroupConfig(group_name="g", consume_enable=False, retry_max_times=3)
    assert (groups.is_reading_forbidden("g", "T"), groups.is_reading_forbidden("g", "U")) == (True, False)
    other = table()
    other.load(read_json_as(msgspec.json.encode(groups.content()), SubscriptionGroupTable))
    assert other.content() == groups.content()
