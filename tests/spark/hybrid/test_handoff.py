import pytest

from rocketlet.common.errors import ConfigError
from rocketlet.common.message import MessageQueue
from rocketlet.spark.cluster.queue_ranges import QueueExtent
from rocketlet.spark.hybrid.handoff import Handoff, StoreEnd, join_stores, match_stores

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
