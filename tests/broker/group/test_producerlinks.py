"""Client ids of producers and the connections that lead to them."""

import pytest

from rocketlet.broker.group.members import Client, Members

ONE, OTHER = Client("10.0.0.1@1", "JAVA", 479), Client("10.0.0.2@1", "JAVA", 479)


@pytest.fixture
def members() -> Members[str]:
    """Return an empty table; links are texts here."""
    return Members(lambda: 0)


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
