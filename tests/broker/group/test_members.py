"""Groups and who is connected for them."""

import pytest

from rocketlet.broker.group.members import BROADCASTING, CLUSTERING, Client, ConsumerSpec, Members
from rocketlet.common.subscriptions.subscription import parse_tag_expression

CLIENT = Client("10.0.0.1@1", "JAVA", 479)


def spec(
    *topics: str, version: int = 1, expression: str = "*", model: str = CLUSTERING, fingerprint: int = 0
) -> ConsumerSpec:
    """Return what a heartbeat says."""
    subscriptions = {topic: parse_tag_expression(topic, expression, version=version) for topic in topics}
    return ConsumerSpec("g", "CONSUME_PASSIVELY", model, "CONSUME_FROM_LAST_OFFSET", subscriptions, fingerprint)


@pytest.fixture
def members() -> Members[str]:
    """Return an empty table; links are texts here."""
    return Members(lambda: 0)


def test_joining_changes_the_group_once(members: Members[str]) -> None:
    """The first heartbeat of a connection changes the group, the same one again does not."""
    assert members.join_consumer(spec("T"), CLIENT, "link", 0)
    assert not members.join_consumer(spec("T"), CLIENT, "link", 1)


@pytest.mark.feature("C5")
def test_duplicate_client_ids_are_kept(members: Members[str]) -> None:
    """Two connections with one client id stand in the list twice."""
    members.join_consumer(spec("T"), CLIENT, "one", 0)
    assert members.join_consumer(spec("T"), CLIENT, "two", 0)
    assert members.client_ids("g") == [CLIENT.client_id] * 2


def test_topic_added_or_dropped_changes_the_group(members: Members[str]) -> None:
    """A topic that joins or leaves the subscriptions changes the group."""
    members.join_consumer(spec("T"), CLIENT, "link", 0)
    assert members.join_consumer(spec("T", "U"), CLIENT, "link", 0)
    assert members.join_consumer(spec("U"), CLIENT, "link", 0)
    group = members.consumer_group("g")
    assert group is not None
    assert set(group.subscriptions) == {"U"}


def test_newer_subscription_replaces_silently(members: Members[str]) -> None:
    """A higher version brings another expression without a change; a lower one is ignored."""
    members.join_consumer(spec("T", version=5, expression="A"), CLIENT, "link", 0)
    assert not members.join_consumer(spec("T", version=6, expression="B"), CLIENT, "link", 0)
    assert not members.join_consumer(spec("T", version=4, expression="C"), CLIENT, "link", 0)
    group = members.consumer_group("g")
    assert group is not None
    assert group.subscriptions["T"].expression == "B"


def test_last_heartbeat_sets_the_model(members: Members[str]) -> None:
    """Model and consume type belong to the group, the last member's word counts."""
    members.join_consumer(spec("T"), CLIENT, "one", 0)
    members.join_consumer(spec("T", model=BROADCASTING), CLIENT, "two", 0)
    group = members.consumer_group("g")
    assert group is not None
    assert group.is_broadcasting


def test_heartbeat_without_subscriptions_keeps_them(members: Members[str]) -> None:
    """A short heartbeat (withoutSub) refreshes the member and erases nothing."""
    members.join_consumer(spec("T"), CLIENT, "link", 0)
    assert not members.refresh_consumer(spec(), CLIENT, "link", 9)
    group = members.consumer_group("g")
    assert group is not None
    assert set(group.subscriptions) == {"T"}
    assert members.silent_links(10, 1) == []


@pytest.mark.parametrize(
    ("known", "told", "is_short", "wants"),
    [
        (None, 7, False, False),
        (None, 7, True, True),
        (7, 7, False, False),
        (7, 7, True, False),
        (7, 8, False, True),
        (7, 8, True, True),
        (0, 7, False, True),
    ],
)
def test_subscriptions_are_wanted_when_they_may_differ(
    known: int | None, told: int, is_short: bool, wants: bool, members: Members[str]
) -> None:
    """A group asks for subscriptions that it lacks, and when the fingerprint is not that of those it has."""
    if known is not None:
        members.join_consumer(spec("T", fingerprint=known), CLIENT, "link", 0)
    assert members.wants_subscriptions("g", told, is_short=is_short) is wants


def test_short_heartbeat_does_not_vouch_for_subscriptions(members: Members[str]) -> None:
    """The fingerprint of a group stays that of the subscriptions that it has, whatever a short heartbeat carries."""
    members.join_consumer(spec("T", fingerprint=7), CLIENT, "one", 0)
    members.refresh_consumer(spec(fingerprint=8), CLIENT, "two", 0)
    assert members.wants_subscriptions("g", 8, is_short=True)
    assert not members.wants_subscriptions("g", 7, is_short=True)


@pytest.mark.feature("C28")
def test_leaving_empties_the_group(members: Members[str]) -> None:
    """The list shrinks with each member; a group without members is gone."""
    members.join_consumer(spec("T"), CLIENT, "one", 0)
    members.join_consumer(spec("T"), Client("other", "GO", 317), "two", 0)
    left = members.leave_consumer("g", "one")
    assert left is not None
    assert list(left.members) == ["two"]
    assert members.client_ids("g") == ["other"]
    assert members.leave_consumer("g", "one") is None
    members.leave_consumer("g", "two")
    assert members.consumer_group("g") is None


def test_lost_link_leaves_every_group(members: Members[str]) -> None:
    """The end of a connection removes it as consumer and as producer; the consumer groups are returned."""
    members.join_consumer(spec("T"), CLIENT, "one", 0)
    members.join_consumer(spec("T"), CLIENT, "two", 0)
    members.join_producer("p", CLIENT, "one", 0)
    assert [group.name for group in members.leave_all("one")] == ["g"]
    assert members.leave_all("one") == []
    assert dict(members.producer_group("p")) == {}
    assert members.client_ids("g") == [CLIENT.client_id]


@pytest.mark.feature("C3")
def test_silent_link_is_found(members: Members[str]) -> None:
    """A link is silent when no group of it has heard of it for longer than the limit."""
    members.join_consumer(spec("T"), CLIENT, "one", 0)
    members.join_producer("p", CLIENT, "one", 50)
    members.join_producer("p", CLIENT, "two", 0)
    assert [members.silent_links(now_ms, 100) for now_ms in (100, 101, 150)] == [[], ["two"], ["two"]]
    assert sorted(members.silent_links(151, 100)) == ["one", "two"]


ONE, OTHER = Client("10.0.0.1@1", "JAVA", 479), Client("10.0.0.2@1", "JAVA", 479)


def test_producer_is_found_by_its_client_id(members: Members[str]) -> None:
    """Each client id leads to its own connection; an id that nobody has leads nowhere."""
    members.join_producer("g", ONE, "one", 0)
    members.join_producer("g", OTHER, "other", 0)
    assert [members.producer_link(each) for each in (ONE.client_id, OTHER.client_id, "nobody")] == [
        "one",
        "other",
        None,
    ]


def test_last_connection_of_a_client_counts(members: Members[str]) -> None:
    """With one id on two connections the later is found, also after the earlier was heard again, and then the other."""
    members.join_producer("g", ONE, "old", 0)
    members.join_producer("g", ONE, "new", 1)
    members.join_producer("g", ONE, "old", 2)
    assert members.producer_link(ONE.client_id) == "new"
    members.leave_all("new")
    assert members.producer_link(ONE.client_id) == "old"
    members.leave_all("old")
    assert members.producer_link(ONE.client_id) is None


def test_end_of_an_old_connection_changes_nothing(members: Members[str]) -> None:
    """A client that has connected anew is found when its old connection ends at last."""
    members.join_producer("g", ONE, "old", 0)
    members.join_producer("g", ONE, "new", 1)
    members.leave_all("old")
    assert members.producer_link(ONE.client_id) == "new"


def test_client_is_found_while_it_is_in_a_group(members: Members[str]) -> None:
    """Leaving one of two groups changes nothing; leaving the last, or one that it is not in, does what it says."""
    members.join_producer("g", ONE, "one", 0)
    members.join_producer("h", ONE, "one", 0)
    members.leave_producer("g", "one")
    members.leave_producer("g", "one")
    assert members.producer_link(ONE.client_id) == "one"
    members.leave_producer("h", "one")
    assert members.producer_link(ONE.client_id) is None


def test_connection_that_another_client_takes_over(members: Members[str]) -> None:
    """A connection that comes with another client id leads to that one, and no longer to the first."""
    members.join_producer("g", ONE, "link", 0)
    members.join_producer("g", OTHER, "link", 1)
    assert (members.producer_link(ONE.client_id), members.producer_link(OTHER.client_id)) == (None, "link")
    assert [member.client for member in members.producer_group("g").values()] == [OTHER]


def test_consumers_are_no_requesters(members: Members[str]) -> None:
    """A connection that is in no group of producers is not found, as in Java."""
    assert members.leave_all("link") == []
    assert members.producer_link(ONE.client_id) is None
