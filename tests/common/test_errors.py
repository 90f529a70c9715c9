import pytest

from rocketlet.common.errors import nearest

OPTIONS = ("nameserver", "subscribe", "startingOffsets", "group", "onDamage", "retries")
COLUMNS = ("topic", "body", "keys", "properties", "queueId", "queueOffset", "storeTimestamp")


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("kafka.bootstrap.servers", OPTIONS, "nameserver"),
        ("Kafka.Group.Id", OPTIONS, "group"),
        ("fetchOffset.numRetries", OPTIONS, "retries"),
        ("value", COLUMNS, "body"),
        ("headers", COLUMNS, "properties"),
        ("key", COLUMNS, "keys"),
        ("partition", COLUMNS, "queueId"),
        ("partition", ("topic", "shardingKey"), "shardingKey"),
        ("startingoffset", OPTIONS, "startingOffsets"),
        ("Topik", COLUMNS, "topic"),
    ],
)
def test_name_that_is_meant_is_told(name: str, known: tuple[str, ...], meant: str) -> None:
    """One of Kafka's, or one that is spelt alike, whatever its case."""
    assert nearest(name, known) == f"; did you mean {meant}?"


@pytest.mark.parametrize(("name", "known"), [("owner", OPTIONS), ("zzz", COLUMNS), ("value", OPTIONS), ("x", ())])
def test_far_names_are_not_guessed(name: str, known: tuple[str, ...]) -> None:
    """Where nothing is like it, and where Kafka's meaning is not known."""
    assert nearest(name, known) == ""
