import pathlib

import pytest
from logbuilder import LogBuilder

from rocketlet.common.errors import ConfigError, StoreDamagedError
from rocketlet.common.ids import encode_host
from rocketlet.common.message import MessageQueue
from rocketlet.export.plan.read_plan import MissingBytes, Plan, PlanOptions, plan_prefixes
from rocketlet.export.write.log_reader import LogReader
from rocketlet.spark.cluster.queue_ranges import QueueExtent
from rocketlet.spark.hybrid.handoff import (
    Handoff,
    StoreEnd,
    cut_at,
    ends_of,
    join_stores,
    log_ends,
    match_stores,
)

A = MessageQueue("T", "broker-a", 0)
NEW = MessageQueue("U", "broker-a", 0)
B = MessageQueue("T", "broker-b", 0)
WHOLE = frozenset({"broker-a"})
BROKERS = {"broker-a": ["10.0.0.1:10911"], "broker-b": ["10.0.0.2:10911"]}


def store(*hosts: str, ends: dict[tuple[str, int], int] | None = None, is_whole: bool = True) -> StoreEnd:
    """Return what a store tells of itself."""
    return StoreEnd(frozenset(hosts), ends or {}, is_whole)


def test_store_belongs_to_the_broker_that_wrote_it() -> None:
    """The host in the newest records is the address of a broker; a store without messages needs none."""
    stores = {"/a": store("10.0.0.1:10911"), "/b": store("10.0.0.2:10911"), "/empty": store()}
    assert match_stores(stores, BROKERS, {}) == {"/a": "broker-a", "/b": "broker-b"}


def test_given_broker_wins() -> None:
    """A store whose broker has moved is named its broker, and one whose broker runs no more is named none."""
    stores = {"/a": store("192.0.2.9:10911"), "/b": store("192.0.2.9:10911")}
    assert match_stores(stores, BROKERS, {"/a": "broker-b", "/b": None}) == {"/a": "broker-b", "/b": None}


@pytest.mark.parametrize(
    ("hosts", "given", "sentence"),
    [
        (
            ["192.0.2.9:1"],
            {},
            "store /a was written by 192.0.2.9:1, no broker of the cluster .broker-a at 10.0.0.1:10911",
        ),
        (["10.0.0.1:10911", "10.0.0.2:10911"], {}, "several brokers of the cluster"),
        (["10.0.0.1:10911"], {"/b": "broker-a"}, "storeBrokers names /b, which is none of the stores"),
        (["10.0.0.1:10911"], {"/a": "broker-c"}, "the cluster has no broker broker-c; did you mean broker-"),
    ],
)
def test_store_of_no_known_broker_is_refused(hosts: list[str], given: dict[str, str | None], sentence: str) -> None:
    """A wrong seam would lose or double messages, so nothing is guessed."""
    with pytest.raises(ConfigError, match=sentence):
        match_stores({"/a": store(*hosts)}, BROKERS, given)


def test_several_stores_of_a_broker_end_where_the_last_does() -> None:
    """An archive of old files and the store of today are one history."""
    stores = {"/old": store("h", ends={("T", 0): 40, ("U", 0): 3}), "/new": store("h", ends={("T", 0): 90})}
    handoff = join_stores(stores, {"/old": "broker-a", "/new": "broker-a"})
    assert handoff == Handoff({A: 90, NEW: 3}, whole=WHOLE)


def test_cluster_is_read_from_the_seam() -> None:
    """With history from its end, a new queue from 0, a broker without a store from its first message."""
    handoff = Handoff({A: 41}, whole=WHOLE)
    assert handoff.start(A, QueueExtent(30, 58)) == 41
    assert handoff.start(NEW, QueueExtent(0, 5)) == 0
    assert handoff.start(B, QueueExtent(7, 9)) == 7
    assert not handoff.data_loss({A: QueueExtent(41, 41), NEW: QueueExtent(0, 5), B: QueueExtent(7, 9)})


@pytest.mark.parametrize(
    ("queue", "extent", "sentence"),
    [
        (A, QueueExtent(42, 58), "queue 0 of T on broker-a begins at offset 42, but its store ends at 41"),
        (A, QueueExtent(0, 40), "queue 0 of T on broker-a ends at offset 40, but its store holds messages up to 41"),
        (NEW, QueueExtent(1, 2), "queue 0 of U on broker-a begins at offset 1, but its store ends at 0"),
    ],
)
def test_seam_that_does_not_fit_is_loss(queue: MessageQueue, extent: QueueExtent, sentence: str) -> None:
    """Messages that are neither in the store nor on the broker are named, and a broker that is another one too."""
    handoff = Handoff({A: 41}, whole=WHOLE)
    (loss,) = handoff.data_loss({queue: extent})
    assert sentence in loss


def test_unknown_queue_of_a_log_without_its_beginning_is_no_loss() -> None:
    """Its first messages may have been deleted before the copy was made: nobody can tell."""
    handoff = Handoff({A: 41})
    assert not handoff.data_loss({NEW: QueueExtent(9, 12)})
    assert handoff.start(NEW, QueueExtent(9, 12)) == 9


def test_broker_that_stores_just_now_is_behind() -> None:
    """A queue that ends below the seam may still get there."""
    handoff = Handoff({A: 41})
    assert handoff.is_behind({A: QueueExtent(0, 40)})
    assert not handoff.is_behind({A: QueueExtent(0, 41)})


def test_history_of_several_stores_ends_where_the_last_does_in_any_order() -> None:
    """A broker is whole if one of its stores is, and a store of no broker counts nothing."""
    stores = {
        "/new": store("h", ends={("T", 0): 90}, is_whole=False),
        "/old": store("h", ends={("T", 0): 40, ("U", 0): 3}),
        "/none": store("h", ends={("T", 0): 99}),
        "/b": store("h", ends={("T", 0): 5}, is_whole=False),
    }
    matched = {"/new": "broker-a", "/none": None, "/old": "broker-a", "/b": "broker-b"}
    assert join_stores(stores, matched) == Handoff({A: 90, NEW: 3, B: 5}, WHOLE)


def test_losses_are_told_by_queue() -> None:
    """In their order, and none of those that fit."""
    handoff = Handoff({A: 41, B: 9}, whole=WHOLE)
    extents = {B: QueueExtent(0, 8), NEW: QueueExtent(0, 0), A: QueueExtent(42, 58)}
    assert handoff.data_loss(extents) == [
        "queue 0 of T on broker-a begins at offset 42, but its store ends at 41: those from 41 on are deleted",
        "queue 0 of T on broker-b ends at offset 8, but its store holds messages up to 9: it was made anew",
    ]
    assert handoff.data_loss({A: QueueExtent(41, 41), B: QueueExtent(0, 9)}) == []
    assert not Handoff({A: 41}).is_behind({B: QueueExtent(0, 0)})


def test_address_of_a_moved_broker_is_told() -> None:
    """With all that is known."""
    with pytest.raises(ConfigError) as caught:
        match_stores({"/a": store("192.0.2.9:2", "192.0.2.9:1")}, BROKERS, {})
    assert str(caught.value) == (
        "store /a was written by 192.0.2.9:1 and 192.0.2.9:2, no broker of the cluster "
        "(broker-a at 10.0.0.1:10911, broker-b at 10.0.0.2:10911); name its broker with storeBrokers"
    )
    assert caught.value.key == "storeBrokers"


def test_given_store_without_messages_is_matched() -> None:
    """Its broker is known all the same."""
    assert match_stores({"/a": store(), "/b": store()}, BROKERS, {"/a": "broker-b"}) == {"/a": "broker-b"}


@pytest.fixture
def grown(log: LogBuilder) -> tuple[LogBuilder, Plan]:
    """Return a log of several files, and its plan in small splits."""
    for number in range(60):
        log.add(b"x" * 150, queue_id=number % 3)
    log.save()
    return log, plan_prefixes([str(log.root)], PlanOptions(split_bytes=1_000))


def offsets_of(plan: Plan) -> list[int]:
    """Return the log offsets of what a plan reads."""
    return [row["logOffset"] for batch in LogReader(plan.splits) for row in batch.to_pylist()]


@pytest.mark.parametrize("number", [1, 7, 20, 59])
def test_plan_is_cut_where_the_log_ended(grown: tuple[LogBuilder, Plan], number: int) -> None:
    """What was written since is left out; the report says so."""
    log, plan = grown
    store_path = str(log.root)
    cut = cut_at(plan, {store_path: log.offsets[number]})
    assert offsets_of(cut) == log.offsets[:number]
    assert log_ends(cut) == {store_path: log.offsets[number]}
    stop = cut.ends[store_path]
    assert (stop.reason, stop.unproved) == ("the log has grown since", "the log has grown since")
    assert (stop.path, stop.position) == (cut.splits[-1].path, cut.splits[-1].stop)
    assert sum(map(len, cut.splits)) == log.offsets[number]


def test_plan_of_a_log_that_did_not_grow_is_the_same(grown: tuple[LogBuilder, Plan]) -> None:
    """Up to its end, or behind it."""
    log, plan = grown
    for end in (log.end, log.end + 1):
        found = cut_at(plan, {str(log.root): end})
        assert (found.splits, found.ends) == (plan.splits, plan.ends)
    assert log_ends(plan) == {str(log.root): log.end}


def test_store_that_was_not_there_is_left_out(grown: tuple[LogBuilder, Plan]) -> None:
    """With all that is known of it."""
    log, plan = grown
    other = {"other": StoreDamagedError("x", path="y", position=0)}
    assert cut_at(plan, {}).splits == []
    assert cut_at(plan._replace(damages=other), {str(log.root): log.end}).damages == other


@pytest.mark.parametrize(("end", "is_told"), [(4_196, False), (4_197, True)])
def test_damage_behind_the_end_is_left_out(grown: tuple[LogBuilder, Plan], end: int, is_told: bool) -> None:
    """As are missing bytes there, and what was lost behind the end of a log that has grown."""
    log, plan = grown
    store_path, path = str(log.root), f"{log.root}/commitlog/{4096:020d}"
    missing = MissingBytes(store_path, path, 100, 7, "gone")
    damaged = plan._replace(
        damages={store_path: StoreDamagedError("x", path=path, position=100)},
        missing=[missing],
        lost={store_path: {("T", 0): (1, 2)}},
    )
    cut = cut_at(damaged, {store_path: end})
    assert (store_path in cut.damages, cut.missing, cut.lost) == (is_told, [missing] if is_told else [], {})
    whole = cut_at(damaged, {store_path: log.end})
    assert (whole.damages, whole.missing, whole.lost) == (damaged.damages, [missing], damaged.lost)


def test_stores_tell_their_hosts_and_ends(grown: tuple[LogBuilder, Plan], tmp_path: pathlib.Path) -> None:
    """Hosts of the newest records; a log that lost its first files is not whole."""
    log, plan = grown
    ((store_path, end),) = ends_of(plan).items()
    assert store_path == str(log.root)
    assert end == StoreEnd(
        frozenset({"192.0.2.1:10911"}), {("Topic", number): 20 for number in range(3)}, is_whole=True
    )
    later = LogBuilder(tmp_path / "later", first_file=1)
    later.add(store_host=encode_host("192.0.2.1", 1))
    later.roll()
    later.add(store_host=encode_host("192.0.2.2", 2))
    later.add(topic="TBW102", store_host=encode_host("192.0.2.3", 3))
    found = ends_of(plan_prefixes([str(later.save())]))[str(later.root)]
    assert (found.hosts, found.is_whole) == ({"192.0.2.2:2", "192.0.2.3:3"}, False)
    assert found.queue_ends["TBW102", 0] == 1
