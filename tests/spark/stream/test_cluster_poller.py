"""What a poller asks of a cluster, how often, and what it does about servers that do not answer."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from rocketlet.common.codes import ResponseCode
from rocketlet.common.errors import ConfigError, RemotingError, RequestTimeoutError, ResponseError
from rocketlet.common.message import MessageQueue
from rocketlet.spark.cluster.cluster import Addresses, Cluster
from rocketlet.spark.cluster.cluster_options import QueueChoice
from rocketlet.spark.cluster.queue_ranges import QueueExtent
from rocketlet.spark.options.cluster_access import Access
from rocketlet.spark.stream.cluster_poller import ClusterPoller, ClusterSnapshot, snapshot_now

A0, A1, B0 = MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-a", 1), MessageQueue("T", "broker-b", 0)
CHOICE = QueueChoice("subscribe", frozenset({"T"}))


@dataclass
class World:
    """A cluster in memory: what its queues hold, who does not answer, and what was asked, with the retries allowed."""

    held: dict[MessageQueue, QueueExtent]
    silent: set[str] = field(default_factory=set[str])
    asked: list[tuple[str, int, int]] = field(default_factory=list[tuple[str, int, int]])
    now_ms: float = 0.0
    discovery_takes_ms: float = 0.0
    poll_takes_ms: float = 0.0
    instants: dict[MessageQueue, int] = field(default_factory=dict[MessageQueue, int])

    def note(self, what: str, cluster: Cluster, names: Iterable[str], takes_ms: float) -> None:
        """Note a question, let its time pass, and raise if somebody of whom it is asked is silent."""
        asked = list(names)
        self.asked.append((what, len(asked), cluster.access.retries))
        self.now_ms += takes_ms
        for name in asked:
            if name in self.silent:
                raise RequestTimeoutError(f"{name} is silent")

    def told(self) -> list[tuple[str, int, int]]:
        """Return what was asked since the last call."""
        asked, self.asked = self.asked, []
        return asked


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """Return a cluster of two brokers, with clocks that stand still."""
    here = World({A0: QueueExtent(0, 5), A1: QueueExtent(2, 7), B0: QueueExtent(0, 1)})

    def queues(self: Cluster, topics: Iterable[str], *, skips_missing: bool = False) -> dict[MessageQueue, str]:
        here.note("queues", self, ["nameserver"], here.discovery_takes_ms)
        if not here.held and not skips_missing:
            raise ConfigError("there is no topic T")
        return {queue: f"{queue.broker_name}:1" for queue in here.held if queue.topic in set(topics)}

    def extents(self: Cluster, asked: Addresses) -> dict[MessageQueue, QueueExtent]:
        here.note("extents", self, [queue.broker_name for queue in asked], here.poll_takes_ms)
        return {queue: here.held[queue] for queue in asked}

    def ends(self: Cluster, asked: Addresses) -> dict[MessageQueue, int]:
        here.note("ends", self, [queue.broker_name for queue in asked], here.poll_takes_ms)
        return {queue: here.held[queue].end for queue in asked}

    def offsets_at(self: Cluster, asked: Addresses, instants: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        here.note("instants", self, [queue.broker_name for queue in asked], 0)
        here.instants |= instants
        return {queue: min(instants[queue], here.held[queue].end) for queue in asked}

    for each in (queues, extents, ends, offsets_at):
        monkeypatch.setattr(Cluster, each.__name__, each)
    clock = SimpleNamespace(monotonic=lambda: here.now_ms / 1000, time_ns=time.time_ns)
    monkeypatch.setattr("rocketlet.spark.stream.cluster_poller.time", clock)
    return here


def poller_of(discovery_ms: int = 0, choice: QueueChoice = CHOICE) -> ClusterPoller:
    """Return a poller whose cluster is asked three times."""
    return ClusterPoller(Cluster(Access("192.0.2.1:9876", retries=3)), choice, discovery_ms)


def ends_of(snapshot: ClusterSnapshot) -> dict[MessageQueue, int]:
    """Return where the queues end that a snapshot knows."""
    return {queue: extent.end for queue, extent in snapshot.extents.items()}


def test_snapshot_is_of_this_instant() -> None:
    """In epoch milliseconds."""
    before = time.time_ns() // 1_000_000
    snapshot = snapshot_now({A0: "x"}, {A0: QueueExtent(1, 2)})
    assert before <= snapshot.at_ms <= time.time_ns() // 1_000_000
    assert snapshot[:2] == ({A0: "x"}, {A0: QueueExtent(1, 2)})


def test_strict_poll_asks_about_everything(world: World) -> None:
    """With all retries; what it found is kept, and later polls do not change it."""
    poller = poller_of()
    first = poller.snapshot_strictly()
    assert first.extents == world.held
    assert first.addresses == {A0: "broker-a:1", A1: "broker-a:1", B0: "broker-b:1"}
    assert world.told() == [("queues", 1, 3), ("extents", 3, 3)]
    world.held[A0] = QueueExtent(0, 9)
    assert poller.snapshot().extents == world.held
    assert world.told() == [("queues", 1, 0), ("ends", 3, 0)]
    assert first.extents[A0] == QueueExtent(0, 5)


def test_strict_poll_fails_with_what_it_asks(world: World) -> None:
    """A topic that is not there, a broker, a name server; a pattern that matches nothing is no error."""
    for silent in ("broker-b", "nameserver"):
        world.silent = {silent}
        with pytest.raises(RemotingError, match=f"{silent} is silent"):
            poller_of().snapshot_strictly()
    world.silent, world.held = set(), {}
    with pytest.raises(ConfigError, match="there is no topic T"):
        poller_of().snapshot_strictly()


def test_pattern_may_match_nothing_yet(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream waits for its topics."""

    def topics(_: Cluster, *, includes_system: bool = True) -> list[str]:
        return ["T"] if includes_system else []

    monkeypatch.setattr(Cluster, "topics", topics)
    poller = poller_of(choice=QueueChoice("subscribePattern", pattern="T"))
    assert poller.snapshot_strictly()[:2] == ({}, {})
    assert poller.snapshot()[:2] == ({}, {})
    assert world.told()[-1][:1] != ("ends",)


@pytest.mark.parametrize(
    ("discovery_ms", "takes_ms", "due_ms"),
    [(1_000, 0, 1_000), (1_000, 100, 1_000), (1_000, 200, 2_000), (0, 200, 0), (0, 0, 0)],
)
def test_queues_are_looked_for_now_and_then(world: World, discovery_ms: int, takes_ms: float, due_ms: float) -> None:
    """In the wished interval, or in one that is ten times as long as it takes; at each poll if that is wished."""
    world.discovery_takes_ms = takes_ms
    poller = poller_of(discovery_ms)
    poller.snapshot()
    poller.snapshot()
    world.told()
    began_ms = world.now_ms
    for since_ms, is_due in ((due_ms - 1, False), (due_ms, True)):
        if since_ms >= 0:
            world.now_ms = began_ms + since_ms
            poller.snapshot()
            assert ("queues" in [what for what, _, _ in world.told()]) == is_due


def test_first_offsets_are_asked_for_once(world: World) -> None:
    """And again of a queue that has become shorter, or is new; of no queue, nothing is asked."""
    poller = poller_of()
    poller.snapshot()
    assert world.told() == [("queues", 1, 3), ("extents", 3, 0)]
    poller.snapshot()
    assert world.told() == [("queues", 1, 0), ("ends", 3, 0)]
    world.held |= {A0: QueueExtent(1, 4), A1: QueueExtent(3, 8)}
    assert poller.snapshot().extents == {A0: QueueExtent(1, 4), A1: QueueExtent(2, 8), B0: QueueExtent(0, 1)}
    assert world.told() == [("queues", 1, 0), ("ends", 3, 0), ("extents", 1, 0)]
    new = MessageQueue("T", "broker-b", 1)
    world.held[new] = QueueExtent(0, 3)
    assert poller.snapshot().extents[new] == QueueExtent(0, 3)
    assert world.told() == [("queues", 1, 0), ("ends", 3, 0), ("extents", 1, 0)]
    world.held = {}
    assert poller.snapshot()[:2] == ({}, {})
    assert world.told() == [("queues", 1, 0)]


def test_broker_that_is_silent_is_left_out(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """With one warning until it answers again; the others are asked apart from it meanwhile."""
    poller = poller_of()
    poller.snapshot()
    for _ in range(2):
        world.silent = {"broker-b"}
        for _ in range(3):
            assert ends_of(poller.snapshot()) == {A0: 5, A1: 7}
        assert len([text for text in caplog.messages if "broker broker-b does not answer" in text]) == 1
        world.told()
        poller.snapshot()
        assert sorted(world.told()) == [("ends", 1, 0), ("ends", 2, 0), ("queues", 1, 0)]
        world.silent = set()
        assert ends_of(poller.snapshot()) == {A0: 5, A1: 7, B0: 1}
        world.told()
        poller.snapshot()
        assert world.told() == [("queues", 1, 0), ("ends", 3, 0)]
        caplog.clear()


def test_answer_with_an_error_is_as_good_as_none(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The queues of that broker are left out."""
    poller = poller_of()
    poller.snapshot()
    ends: Callable[..., Any] = Cluster.ends

    def fail(self: Cluster, asked: Addresses) -> dict[MessageQueue, int]:
        if B0 in asked:
            raise ResponseError(ResponseCode.SYSTEM_ERROR, "no")
        return ends(self, asked)

    monkeypatch.setattr(Cluster, "ends", fail)
    assert ends_of(poller.snapshot()) == {A0: 5, A1: 7}
    assert world.told()


def test_known_queues_are_read_on_without_name_servers(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """With one warning until one answers again; who is silent is asked again in the usual interval."""
    poller = poller_of(1_000)
    poller.snapshot()
    for _ in range(2):
        world.silent = {"nameserver"}
        for _ in range(3):
            world.now_ms += 1_000
            assert ends_of(poller.snapshot()) == {A0: 5, A1: 7, B0: 1}
            assert "queues" in [what for what, _, _ in world.told()]
            poller.snapshot()
            assert world.told() == [("ends", 3, 0)]
        warnings = [text for text in caplog.messages if "no name server answers, going on with the 3 known" in text]
        assert len(warnings) == 1
        caplog.clear()
        world.silent = set()
        world.now_ms += 1_000
        poller.snapshot()
        world.told()
    assert not caplog.messages


def test_queues_that_were_never_known_are_an_error(world: World) -> None:
    """Without a name server there is nothing to go on with."""
    world.silent = {"nameserver"}
    poller = poller_of()
    with pytest.raises(RemotingError, match="nameserver is silent"):
        poller.snapshot()
    with pytest.raises(RemotingError, match="nameserver is silent"):
        poller.find([A0])


def test_addresses_are_found_for_queues_that_are_there(world: World) -> None:
    """A name server is asked only for queues that are not known."""
    poller = poller_of(60_000)
    assert poller.discover() == {A0: "broker-a:1", A1: "broker-a:1", B0: "broker-b:1"}
    world.told()
    assert poller.find([A0, B0, A0]) == {A0: "broker-a:1", B0: "broker-b:1"}
    assert poller.find([A0, A1, B0]) == poller.find([B0, A1, A0])
    assert world.told() == []
    assert poller.find([A0, MessageQueue("T", "broker-a", 9)]) == {A0: "broker-a:1"}
    assert world.told() == [("queues", 1, 3)]
    poller.snapshot()
    assert "queues" not in [what for what, _, _ in world.told()]


@pytest.mark.parametrize(
    ("poll_ms", "since_ms", "left_ms"),
    [
        (0, 0, 100),
        (0, 40, 60),
        (0, 101, None),
        (0, 300, None),
        (5_000, 5_000, 5_000),
        (31.25, 31.25, 281),
        (31.25, 311.5234375, 1),
        (31.25, 312.5, None),
    ],
)
def test_pause_is_what_is_left_between_polls(
    world: World, monkeypatch: pytest.MonkeyPatch, poll_ms: float, since_ms: float, left_ms: int | None
) -> None:
    """Counted from the beginning of the last poll."""
    slept: list[int] = []

    class Clock:
        async def sleep(self, milliseconds: int) -> None:
            slept.append(milliseconds)

    monkeypatch.setattr("rocketlet.spark.stream.cluster_poller.LoopClock", Clock)
    world.now_ms = 50_000
    poller = poller_of()
    poller.discover()
    world.poll_takes_ms, world.discovery_takes_ms = poll_ms, 500
    poller.snapshot()
    world.now_ms += since_ms - poll_ms
    poller.pause()
    assert slept == ([] if left_ms is None else [left_ms])


def test_queues_that_were_cut_hold_messages_of_before(world: World) -> None:
    """Shorter than they were read, with messages older than that; others were made anew."""
    poller = poller_of()
    snapshot = poller.snapshot()
    world.told()
    read = {A0: 6, A1: 7, B0: 2, MessageQueue("T", "gone", 0): 4}
    assert poller.find_cut(snapshot, read, None) == set()
    assert poller.find_cut(snapshot, {A0: 5, A1: 7}, 1) == set()
    assert world.told() == []
    assert poller.find_cut(snapshot, read, 1) == {A0, B0}
    assert world.told() == [("instants", 2, 3)]
    assert world.instants == {A0: 1, B0: 1}
    assert poller.find_cut(snapshot, read, 0) == set()
    world.silent = {"broker-b"}
    with pytest.raises(RemotingError, match="broker-b is silent"):
        poller.find_cut(snapshot, read, 1)
