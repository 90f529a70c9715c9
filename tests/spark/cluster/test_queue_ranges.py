"""How ranges of queue offsets are divided among tasks."""

from hypothesis import given
from hypothesis import strategies as st

from rocketlet.spark.cluster.queue_ranges import USUAL_TASKS, QueueRange, RangePack, pack_ranges, plan_ranges, ranges_of


def make_range(start: int, stop: int, queue_id: int = 0) -> QueueRange:
    """Return a range of a queue."""
    return QueueRange("broker-a", "192.0.2.1:10911", "T", queue_id, start, stop)


def test_each_queue_is_one_range_without_other_wishes() -> None:
    """In the order of the queues; what holds nothing is left out."""
    ranges = [make_range(5, 9, 1), make_range(0, 3), make_range(4, 4, 2), make_range(6, 4, 3)]
    assert plan_ranges(ranges) == [make_range(0, 3), make_range(5, 9, 1)]


def test_no_range_is_longer_than_is_wished() -> None:
    """A range is cut in equal parts."""
    parts = plan_ranges([make_range(10, 21)], max_records=4)
    assert [(each.start, each.stop) for each in parts] == [(10, 13), (13, 17), (17, 21)]


def test_largest_ranges_are_cut_until_there_are_enough() -> None:
    """A queue with nine times as many messages gets most of the tasks."""
    parts = plan_ranges([make_range(0, 90), make_range(0, 10, 1)], min_partitions=5)
    assert [each.queue_id for each in parts] == [0, 0, 0, 0, 1]


def test_ranges_are_not_cut_below_one_message() -> None:
    """Three messages are three tasks, however many are wished for."""
    assert len(plan_ranges([make_range(0, 2), make_range(7, 8, 1)], min_partitions=100)) == 3


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=6),
    st.none() | st.integers(1, 40),
    st.none() | st.integers(1, 20),
)
def test_parts_are_the_whole(
    bounds: list[tuple[int, int]], min_partitions: int | None, max_records: int | None
) -> None:
    """Each offset is in exactly one part, no part is empty or too long, and there are enough where that is possible."""
    ranges = [make_range(start, start + size, number) for number, (start, size) in enumerate(bounds)]
    parts = plan_ranges(ranges, min_partitions, max_records)
    offsets = [(part.queue_id, queue_offset) for part in parts for queue_offset in range(part.start, part.stop)]
    assert offsets == [
        (each.queue_id, queue_offset) for each in ranges for queue_offset in range(each.start, each.stop)
    ]
    assert all(0 < len(part) <= (max_records or 1_000) for part in parts)
    assert len(parts) >= min(min_partitions or 0, len(offsets))


@given(
    st.lists(st.tuples(st.integers(1, 50), st.sampled_from("ab")), max_size=300),
    st.none() | st.integers(1, 100),
    st.none() | st.integers(50, 200),
    st.floats(1, 1e9),
)
def test_packs_hold_each_range_once(
    sizes: list[tuple[int, str]], min_partitions: int | None, max_records: int | None, each_bytes: float
) -> None:
    """A pack is of one broker and not too long; there are as many tasks as are wished for, or as there are ranges."""
    ranges = [
        QueueRange(f"broker-{name}", "192.0.2.1:10911", "T", number, 0, size)
        for number, (size, name) in enumerate(sizes)
    ]
    packs = pack_ranges(ranges, min_partitions, max_records, {"T": each_bytes})
    assert sorted((each for pack in packs for each in ranges_of(pack)), key=lambda each: each.queue_id) == ranges
    assert all(len({each.broker for each in ranges_of(pack)}) == 1 for pack in packs)
    assert len(packs) >= min(min_partitions or USUAL_TASKS, len(ranges))
    assert all(len(pack) <= (max_records or 15_000) for pack in packs)


def test_large_queues_among_small_ones_do_not_make_tasks_fewer() -> None:
    """They have tasks of their own, and the small ones as many as are left."""
    ranges = [make_range(0, 1 if number % 100 else 50, number) for number in range(1_000)]
    assert 64 <= len(pack_ranges(ranges)) <= 80
    assert 100 <= len(pack_ranges(ranges, 100)) <= 130


def test_many_small_queues_are_few_tasks() -> None:
    """Five thousand queues with ten messages each are some dozens of tasks, and more where messages are large."""
    ranges = [make_range(0, 10, number) for number in range(5_000)]
    assert 64 <= len(pack_ranges(ranges)) <= 130
    assert 8 <= len(pack_ranges(ranges, 8)) <= 17
    assert len(pack_ranges(ranges, None, None, {"T": float(10 << 20)})) == 5_000
    assert pack_ranges(ranges[:64]) == ranges[:64]


def test_range_has_a_length_and_names_its_queue() -> None:
    """One that ends before it begins holds nothing."""
    assert [len(make_range(start, stop)) for start, stop in ((3, 7), (3, 3), (4, 3))] == [4, 0, 0]
    assert str(make_range(0, 1, 7)) == "queue 7 of T on broker-a"
    assert make_range(0, 1, 7).queue == ("T", "broker-a", 7)
    assert len(RangePack((make_range(0, 2), make_range(5, 9)))) == 6


def test_ranges_of_a_queue_stay_in_order() -> None:
    """Also where they are cut, and as many parts as are wished for are made, no more."""
    ranges = [make_range(10, 20), make_range(0, 10)]
    assert [(each.start, each.stop) for each in plan_ranges(ranges, 4)] == [(0, 5), (5, 10), (10, 15), (15, 20)]
    assert len(plan_ranges(ranges, 3)) == 3
    assert len(plan_ranges(ranges, 2)) == len(plan_ranges(ranges, 1)) == 2
    assert len(plan_ranges(ranges, 20)) == len(plan_ranges(ranges, 21)) == 20
    assert len(plan_ranges(ranges, 7, max_records=5)) == 7
    assert len(plan_ranges(ranges, None, max_records=3)) == 8


def test_larger_ranges_are_cut_first() -> None:
    """By what each of their parts holds then."""
    ranges = [make_range(0, 100), make_range(0, 40, 1), make_range(0, 30, 2)]

    def parts(count: int) -> list[int]:
        planned = [each.queue_id for each in plan_ranges(ranges, count)]
        return [planned.count(number) for number in range(3)]

    assert [parts(count) for count in range(3, 8)] == [[1, 1, 1], [2, 1, 1], [3, 1, 1], [3, 2, 1], [4, 2, 1]]


def test_packs_follow_brokers_and_queues() -> None:
    """A pack ends with its broker, and when it holds as much as a task should."""
    ranges = [
        QueueRange(broker, "192.0.2.1:10911", "T", number, 0, 10) for number in range(40) for broker in ("b", "a", "c")
    ]
    packs = pack_ranges(ranges, 6)
    assert [len(ranges_of(pack)) for pack in packs] == [20] * 6
    assert [ranges_of(pack)[0].broker for pack in packs] == ["a", "a", "b", "b", "c", "c"]
    assert [each.queue_id for each in ranges_of(packs[1])] == list(range(20, 40))
    assert [len(pack) for pack in pack_ranges(ranges, 6, max_records=150)] == [150, 150, 100] * 3
    assert [len(pack) for pack in pack_ranges(ranges, 6, max_records=149)] == [140, 140, 120] * 3


def test_bytes_of_messages_decide_on_tasks() -> None:
    """64 MiB for each, of messages of 1 KiB where nothing is known of them."""
    ranges = [make_range(0, 1 << 16, number) for number in range(4)]
    for size, tasks in ((1_024.0, 4), (512.0, 2), (256.0, 1)):
        assert len(pack_ranges(ranges, 1, None, {"T": size})) == tasks
    assert len(pack_ranges(ranges, 1, None, {"Other": 1.0})) == 4
    assert pack_ranges(ranges, 4) == ranges
    assert len(pack_ranges(ranges, 3, None, {"T": 1.0})) == 4
    assert len(pack_ranges(ranges, 2, None, {"T": 1.0})) == 2


def test_one_range_alone_is_no_pack() -> None:
    """Nor is one that is as large as a task."""
    ranges = [make_range(0, 1_000, 0), *(make_range(0, 1, number) for number in range(1, 9))]
    packs = pack_ranges(ranges, 2, None, {"T": 1.0})
    assert packs == [ranges[0], RangePack(tuple(ranges[1:]))]
