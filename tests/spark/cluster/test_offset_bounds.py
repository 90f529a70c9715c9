"""Where a reading begins and ends in each queue, as its options say."""

from collections.abc import Mapping
from typing import Any, cast

import pytest

from rocketlet.common.errors import ConfigError, DataLossError
from rocketlet.common.message import MessageQueue
from rocketlet.spark.cluster.cluster import Cluster
from rocketlet.spark.cluster.offset_bounds import (
    EARLIEST,
    LATEST,
    DataLoss,
    OffsetBound,
    QueuePlace,
    make_ranges,
    parse_places,
    resolve_offsets,
)
from rocketlet.spark.cluster.queue_ranges import QueueExtent, QueueRange

A0, A1 = MessageQueue("A", "broker-a", 0), MessageQueue("A", "broker-a", 1)
B0, B1 = MessageQueue("B", "broker-a", 0), MessageQueue("B", "broker-b", 0)
ADDRESSES = {A0: "192.0.2.1:1", A1: "192.0.2.1:1", B0: "192.0.2.1:1", B1: "192.0.2.2:1"}
EXTENTS = {A0: QueueExtent(5, 20), A1: QueueExtent(0, 0), B0: QueueExtent(0, 10), B1: QueueExtent(3, 4)}
FAILS = DataLoss()


class Instants:
    """Answers as brokers do which message was the first at an instant; notes what they were asked."""

    def __init__(self, found: Mapping[MessageQueue, int]) -> None:
        self.found = found
        self.asked: dict[MessageQueue, int] = {}

    def offsets_at(self, queues: object, instants: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """Return the offsets."""
        self.asked = dict(instants)
        return {queue: self.found[queue] for queue in instants}


def resolve(
    bound: OffsetBound, *queues: MessageQueue, losses: DataLoss = FAILS, instants: Instants | None = None
) -> dict[MessageQueue, int]:
    """Return the offsets of a bound in some queues, or in all."""
    addresses = {queue: ADDRESSES[queue] for queue in queues or ADDRESSES}
    return resolve_offsets(cast("Cluster", instants), addresses, EXTENTS, bound, losses)


@pytest.mark.parametrize(
    ("queue_offset", "offsets"), [(EARLIEST, (5, 0, 0, 3)), (LATEST, (20, 0, 10, 4))], ids=["earliest", "latest"]
)
def test_words_stand_for_the_ends_of_queues(queue_offset: int, offsets: tuple[int, ...]) -> None:
    """Of each queue its own."""
    assert resolve(OffsetBound("o", queue_offset)) == dict(zip(ADDRESSES, offsets, strict=True))


def test_bound_is_the_beginning_where_nothing_is_named() -> None:
    """As for a batch."""
    assert resolve(OffsetBound("o"), A0) == {A0: 5}


@pytest.mark.parametrize(
    ("places", "offset"),
    [
        ({("A", "broker-a", 0): 7}, 7),
        ({("A", "broker-a", None): 8}, 8),
        ({("A", None, 0): 9}, 9),
        ({("A", None, None): 10}, 10),
        ({("A", None, None): 10, ("A", None, 0): 9, ("A", "broker-a", None): 8, ("A", "broker-a", 0): 7}, 7),
        ({("A", None, None): 10, ("A", None, 0): 9, ("A", "broker-a", None): 8}, 8),
        ({("A", None, None): 10, ("A", None, 0): 9}, 9),
        ({("A", "broker-a", 0): LATEST}, 20),
        ({("A", "broker-a", 0): EARLIEST}, 5),
        ({("A", "broker-a", 0): 5}, 5),
        ({("A", "broker-a", 0): 20}, 20),
    ],
)
def test_offset_of_a_queue_is_the_most_exact(places: Mapping[QueuePlace, int], offset: int) -> None:
    """Of its broker and number, of its broker, of its number, of its topic."""
    assert resolve(OffsetBound("o", offsets=places), A0) == {A0: offset}


@pytest.mark.parametrize(
    ("offset", "nearest", "text"),
    [
        (4, 5, "queue 0 of A on broker-a begins at offset 5: those from 4 on were deleted"),
        (21, 20, "queue 0 of A on broker-a ends at offset 20, before 21: it was made anew, or never held more"),
        (0, 5, "those from 0 on were deleted"),
    ],
)
def test_offset_that_is_not_there_is_data_loss(
    offset: int, nearest: int, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An error, or a warning, and the nearest one."""
    bound = OffsetBound("o", offsets={("A", None, 0): offset})
    with pytest.raises(DataLossError, match=text):
        resolve(bound, A0)
    assert resolve(bound, A0, losses=DataLoss(fails=False)) == {A0: nearest}
    assert [text in record.message for record in caplog.records] == [True]


@pytest.mark.parametrize(
    ("places", "reason"),
    [
        ({("A", None, 0): 7}, r"o does not name queue 1 of A on broker-a; -1 stands for latest, -2 for earliest"),
        ({("A", None, None): 7, ("C", None, None): 0}, "o names topic C, which is not read"),
        ({("A", None, None): 7, ("A", None, 2): 0}, "o names queue 2 of A, but there are 0, 1"),
        ({("A", None, None): 7, ("A", "broker-a", 3): 0}, "o names queue 3 of A, but there are 0, 1"),
    ],
)
def test_offsets_name_each_queue_and_no_other(places: Mapping[QueuePlace, int], reason: str) -> None:
    """The error names the option."""
    with pytest.raises(ConfigError, match=reason) as caught:
        resolve(OffsetBound("o", offsets=places), A0, A1, losses=DataLoss(fails=False))
    assert caught.value.key == "o"


def test_broker_that_is_gone_is_data_loss() -> None:
    """Its queues may have been read before; of instants it is a mistake."""
    places: dict[QueuePlace, int] = {("A", None, None): 5, ("A", "broker-x", 0): 7}
    text = "o names broker broker-x of A, which is not there; did you mean broker-a"
    with pytest.raises(DataLossError, match=text):
        resolve(OffsetBound("o", offsets=places), A0)
    assert resolve(OffsetBound("o", offsets=places), A0, losses=DataLoss(fails=False)) == {A0: 5}
    with pytest.raises(ConfigError, match=text) as caught:
        resolve(OffsetBound("o", instants=places), A0, instants=Instants({A0: 7}))
    assert caught.value.key == "o"


def test_queue_of_several_brokers_needs_one_beside_it() -> None:
    """A value for the whole topic, or a whole broker, does not."""
    with pytest.raises(ConfigError, match="B is on brokers broker-a, broker-b; name one beside each queue") as caught:
        resolve(OffsetBound("o", offsets={("B", None, 0): 4}), B0, B1)
    assert caught.value.key == "B"
    assert resolve(OffsetBound("o", offsets={("B", None, None): 4}), B0, B1) == {B0: 4, B1: 4}
    brokers: dict[QueuePlace, int] = {("B", "broker-a", None): 4, ("B", "broker-b", None): 3}
    assert resolve(OffsetBound("o", offsets=brokers), B0, B1) == {B0: 4, B1: 3}
    assert resolve(OffsetBound("o", offsets={("B", None, 0): 4}), B0) == {B0: 4}


def test_brokers_are_asked_for_instants() -> None:
    """One for all queues, which may be the first there is, or one for each."""
    instants = Instants({A0: 7, A1: 0, B0: 9, B1: 3})
    assert resolve(OffsetBound("o", at_ms=0, is_end=True), instants=instants) == {A0: 7, A1: 0, B0: 9, B1: 3}
    assert instants.asked == dict.fromkeys(ADDRESSES, 0)
    places: dict[QueuePlace, int] = {("A", None, 0): 70, ("A", None, 1): 80}
    assert resolve(OffsetBound("o", instants=places, is_end=True), A0, A1, instants=instants) == {A0: 7, A1: 0}
    assert instants.asked == {A0: 70, A1: 80}


@pytest.mark.parametrize(("found", "offset"), [(4, 5), (5, 5), (19, 19), (20, 20), (21, 20)])
def test_offset_of_an_instant_is_within_the_queue(found: int, offset: int) -> None:
    """Whatever the broker answers."""
    assert resolve(OffsetBound("o", at_ms=7), A0, instants=Instants({A0: found})) == {A0: offset}


def test_beginning_without_a_message_is_an_error_unless_told() -> None:
    """An end without one is the end of the queue."""
    for found, fails in ((19, False), (20, True), (21, True)):
        strict = OffsetBound("o", at_ms=7, takes_latest=False)
        if fails:
            reason = "o: no message of queue 0 of A on broker-a was stored at 7 or later; starting.*Strategy latest"
            with pytest.raises(ConfigError, match=reason) as caught:
                resolve(strict, A0, instants=Instants({A0: found}))
            assert caught.value.key == "o"
        else:
            assert resolve(strict, A0, instants=Instants({A0: found})) == {A0: 19}
        for bound in (OffsetBound("o", at_ms=7), OffsetBound("o", at_ms=7, takes_latest=False, is_end=True)):
            assert resolve(bound, A0, instants=Instants({A0: found})) == {A0: min(found, 20)}


def test_ranges_are_of_queues_with_both_bounds() -> None:
    """With the addresses of their brokers."""
    assert list(make_ranges(ADDRESSES, {A0: 5, A1: 0, B1: 3}, {A0: 7, B0: 9, B1: 4})) == [
        QueueRange("broker-a", "192.0.2.1:1", "A", 0, 5, 7),
        QueueRange("broker-b", "192.0.2.2:1", "B", 0, 3, 4),
    ]


def number(value: Any, option: str) -> int:
    """Return the value, if it is a number."""
    if type(value) is not int:
        raise ConfigError(f"{option} holds {value!r}", key=option)
    return value


def test_places_have_longer_and_shorter_forms() -> None:
    """A number beside a value is a queue, another name is a broker."""
    table = {"A": {"broker-a": {"0": 3, "12": 4}, "7": 5, "broker-b": 6}, "B": 8}
    assert parse_places("o", table, number) == {
        ("A", "broker-a", 0): 3,
        ("A", "broker-a", 12): 4,
        ("A", None, 7): 5,
        ("A", "broker-b", None): 6,
        ("B", None, None): 8,
    }


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ([], "o is not of the form"),
        ({}, "o is not of the form"),
        ({"A": {}}, "o is not of the form"),
        ({"A": {"broker-a": {}}}, "o is not of the form"),
        ({"A": {"broker-a": {"x": 1}}}, "o names queue 'x', which is not a number"),
        ({"A": {"broker-a": {"-1": 1}}}, "o names queue '-1', which is not a number"),
        ({"A": "x"}, "o holds 'x'"),
        ({"A": {"0": "x"}}, "o holds 'x'"),
    ],
)
def test_places_of_another_form_are_refused(table: object, reason: str) -> None:
    """With the option."""
    with pytest.raises(ConfigError, match=reason) as caught:
        parse_places("o", table, number)
    assert caught.value.key == "o"
