"""Leases in memory: which the log must know, how far groups have come, what is handed out again."""

from collections.abc import Sequence

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rocketlet.broker.pop.check_points import LeaseKey
from rocketlet.broker.pop.leases import HURRY_MS, STAY_MS, Lease, LeaseQueue, LeaseRules, Leases

QUEUE = LeaseQueue("g", "T", 0)
NOW_MS = 1_000_000
RULES = LeaseRules()
MINUTE_MS = 60_000


class Offsets:
    """Committed offsets, as the broker has them."""

    def __init__(self) -> None:
        self.found: dict[LeaseQueue, int] = {}

    def commit(self, group: str, topic: str, queue_id: int, queue_offset: int) -> None:
        """Take an offset."""
        self.found[LeaseQueue(group, topic, queue_id)] = queue_offset


def make_lease(start: int, count: int, at_ms: int = NOW_MS, invisible_ms: int = MINUTE_MS) -> Lease:
    """Return a lease of messages that follow each other."""
    key = LeaseKey("T", "g", 0, start, at_ms, "broker-a")
    offsets = tuple(range(start, start + count))
    return Lease(key=key, invisible_ms=invisible_ms, queue_offsets=offsets, end_offset=start + count, revive_queue_id=1)


def make_leases(rules: LeaseRules = RULES) -> tuple[Leases, Offsets]:
    """Return no leases, and the offsets that they move."""
    offsets = Offsets()
    return Leases(lambda: rules, offsets.commit), offsets


def add(leases: Leases, lease: Lease, now_ms: int = NOW_MS, *, stores: bool = False) -> Lease:
    """Hand a lease out, and have the log know it if so wanted."""
    leases.add(lease, now_ms)
    if stores:
        leases.stored([lease])
    return lease


def test_what_is_acknowledged_in_time_costs_nothing() -> None:
    """The second lease first, as it was recorded: the offset waits for the first, then moves behind both."""
    leases, offsets = make_leases()
    first, second = make_lease(0, 3), make_lease(3, 3, NOW_MS + 57)
    for lease in (first, second):
        assert not leases.add(lease, NOW_MS)
    assert leases.next_offset(QUEUE, 0) == 6
    assert not leases.acknowledge(first.key, [0, 1])
    assert not leases.acknowledge(second.key, [3, 4, 5])
    assert offsets.found == {}
    assert leases.in_flight(QUEUE) == [2]
    assert not leases.acknowledge(first.key, [2])
    assert offsets.found == {QUEUE: 6}
    assert (len(leases), leases.kept, leases.due_at_ms) == (0, 0, None)
    assert leases.next_offset(QUEUE, 6) == 6


def test_lease_that_stays_goes_to_the_log() -> None:
    """When it is ten seconds old; the offset moves then, and what is left is handed out when it ends."""
    leases, offsets = make_leases()
    lease = make_lease(0, 2)
    add(leases, lease)
    leases.acknowledge(lease.key, [1])
    assert leases.due_at_ms == NOW_MS + STAY_MS
    assert leases.take_due(NOW_MS + STAY_MS - 1, 9) == ([], [])
    assert leases.take_due(NOW_MS + STAY_MS, 9) == ([lease], [])
    assert (offsets.found, lease.acked_offsets) == ({}, [1])
    leases.stored([lease])
    assert (offsets.found, leases.kept) == ({QUEUE: 2}, 0)
    assert leases.due_at_ms == lease.ends_at_ms
    assert leases.take_due(lease.ends_at_ms, 9) == ([], [lease])
    assert lease.open_offsets == [0]
    leases.end(lease)
    assert leases.pass_over(lease.key)
    assert not leases.pass_over(lease.key)
    assert not leases.find(lease.key)


def test_check_point_may_come_before_its_lease_ends() -> None:
    """It is due a second earlier: nothing is handed out twice, and nothing is remembered."""
    leases, _ = make_leases()
    lease = add(leases, make_lease(0, 1), stores=True)
    assert leases.pass_over(lease.key)
    assert leases.take_due(lease.ends_at_ms, 9) == ([], [lease])
    leases.end(lease)
    assert leases.find(lease.key) is None


def test_acknowledgements_of_what_the_log_has_go_to_the_log() -> None:
    """And those of strangers; when all are there, the lease is forgotten: the log has both halves."""
    leases, _ = make_leases()
    lease = add(leases, make_lease(0, 2), stores=True)
    assert leases.acknowledge(lease.key, [0])
    assert leases.acknowledge(lease.key, [7])
    assert lease.open_offsets == [1]
    assert leases.acknowledge(lease.key, [1])
    assert leases.find(lease.key) is None
    assert leases.acknowledge(lease.key, [1])


def test_lease_that_ended_takes_no_acknowledgement() -> None:
    """Its messages are on their way already."""
    leases, _ = make_leases()
    lease = add(leases, make_lease(0, 1), stores=True)
    leases.end(lease)
    assert not leases.acknowledge(lease.key, [0])
    assert lease.open_offsets == [0]


def test_what_the_log_must_know_at_once() -> None:
    """Nothing is to be kept, it ends soon, there are too many, or it looks like another one."""
    short = HURRY_MS + 1_500
    assert make_leases(LeaseRules(keeps=False))[0].add(make_lease(0, 1), NOW_MS)
    leases, _ = make_leases(LeaseRules(most=3, most_in_queue=2))
    assert leases.add(make_lease(0, 1, invisible_ms=short), NOW_MS)
    assert not leases.add(make_lease(1, 1, invisible_ms=short + 1), NOW_MS)
    assert leases.add(make_lease(2, 1), NOW_MS), "two stand in line"
    leases, _ = make_leases(LeaseRules(most=1))
    assert not leases.add(make_lease(0, 1), NOW_MS)
    assert leases.add(make_lease(1, 1), NOW_MS), "one is kept"
    leases, _ = make_leases()
    assert not leases.add(make_lease(0, 1), NOW_MS)
    assert leases.add(make_lease(0, 2), NOW_MS), "the same start at the same time"


def test_log_that_takes_nothing_is_tried_again() -> None:
    """After a second; the offset stays, and at its end the lease comes up whatever the log has."""
    leases, offsets = make_leases()
    lease = make_lease(0, 1, invisible_ms=3_500)
    assert leases.add(lease, NOW_MS)
    assert leases.take_due(NOW_MS + 1_000, 9) == ([lease], [])
    leases.plan_again([lease], NOW_MS + 2_000)
    leases.plan_again([lease], NOW_MS + 2_000)
    assert leases.due_at_ms == NOW_MS + 2_000
    assert leases.take_due(NOW_MS + 4_000, 9) == ([], [lease])
    assert (offsets.found, leases.kept) == ({}, 1)
    leases.end(lease)
    assert (offsets.found, leases.kept) == ({QUEUE: 1}, 0)


def test_reads_without_a_find_move_on_behind_the_others() -> None:
    """At once if nothing is in front of them."""
    leases, offsets = make_leases()
    leases.skip(QUEUE, NOW_MS, 4)
    assert offsets.found == {QUEUE: 4}
    lease = make_lease(4, 1)
    add(leases, lease)
    leases.skip(QUEUE, NOW_MS, 9)
    assert (offsets.found, leases.next_offset(QUEUE, 4)) == ({QUEUE: 4}, 9)
    leases.acknowledge(lease.key, [4])
    assert offsets.found == {QUEUE: 9}


def test_queue_that_is_set_elsewhere_forgets_its_leases() -> None:
    """The caller hears of those that the log speaks of; other queues stay."""
    leases, offsets = make_leases()
    kept, stored = make_lease(0, 1), make_lease(1, 1)
    other = make_lease(0, 1)
    other.key = other.key._replace(queue_id=1)
    for lease in (kept, stored, other):
        add(leases, lease, stores=lease is stored)
    assert leases.drop_queue(QUEUE) == [stored]
    assert (leases.kept, len(leases), offsets.found) == (1, 1, {})
    assert leases.next_offset(QUEUE, 0) == 0
    assert leases.due_at_ms == other.key.popped_at_ms + STAY_MS
    assert [leases.drop_queue(queue) for queue in leases.queues()] == [[]]
    assert (leases.kept, len(leases), leases.due_at_ms) == (0, 0, None)


def test_lease_of_an_earlier_life_is_taken_up() -> None:
    """Its acknowledgements come out of the timer as well; what is left is handed out when that was asked for."""
    leases, offsets = make_leases()
    lease = make_lease(0, 3)
    assert not leases.pass_over(lease.key)
    leases.add_stored(lease, lease.ends_at_ms + 2_000)
    assert leases.acknowledge(lease.key, [0, 2])
    assert leases.due_at_ms == lease.ends_at_ms + 2_000
    assert leases.take_due(lease.ends_at_ms + 2_000, 9) == ([], [lease])
    assert (lease.open_offsets, offsets.found) == ([1], {})
    leases.plan_again([lease], lease.ends_at_ms + 3_000)
    assert leases.due_at_ms == lease.ends_at_ms + 3_000
    leases.end(lease)
    assert (leases.find(lease.key), leases.due_at_ms) == (None, None)


def test_kept_leases_are_what_a_stop_has_to_store() -> None:
    """Not those that the log has, and not those that are over."""
    leases, offsets = make_leases()
    kept, stored, done = make_lease(0, 1), make_lease(1, 1), make_lease(2, 1)
    for lease in (kept, stored, done):
        add(leases, lease, stores=lease is stored)
    leases.acknowledge(done.key, [2])
    assert leases.take_kept() == [kept]
    leases.stored([kept])
    assert (offsets.found, leases.take_kept()) == ({QUEUE: 3}, [])


class LeaseMachine(RuleBasedStateMachine):
    """A group that pops, acknowledges and lets leases end in any order, with a broker that may be killed."""

    def __init__(self) -> None:
        super().__init__()
        self.leases, self.offsets = make_leases(LeaseRules(most=5, most_in_queue=4))
        self.now_ms = NOW_MS
        self.log: dict[LeaseKey, set[int]] = {}
        """What a kill would leave: check points, with what is not acknowledged there."""
        self.wanted: set[int] = set()
        """What nobody has acknowledged."""
        self.again: set[int] = set()
        """What the retry topic has."""
        self.read_until = 0
        self.running: list[Lease] = []

    @property
    def committed(self) -> int:
        """How far the group has come for the broker's disk."""
        return self.offsets.found.get(QUEUE, 0)

    @rule(count=st.integers(1, 4), invisible_ms=st.sampled_from([2_000, 8_000, MINUTE_MS]))
    def pop(self, count: int, invisible_ms: int) -> None:
        """Hand out what comes next."""
        start = self.leases.next_offset(QUEUE, self.committed)
        assert start == self.read_until
        self.now_ms += 1
        lease = make_lease(start, count, self.now_ms, invisible_ms)
        if self.leases.add(lease, self.now_ms):
            self._write(lease)
            self.leases.stored([lease])
        self.running.append(lease)
        self.wanted |= set(lease.queue_offsets)
        self.read_until += count

    @rule(count=st.integers(1, 4))
    def pass_unwanted(self, count: int) -> None:
        """Read what the filter leaves out."""
        self.now_ms += 1
        self.read_until += count
        self.leases.skip(QUEUE, self.now_ms, self.read_until)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        """Be done with some messages of a lease."""
        lease = data.draw(st.sampled_from(self.running))
        offsets = data.draw(st.sets(st.sampled_from(lease.queue_offsets), min_size=1))
        has_ended = lease.is_over and not lease.is_acked
        if self.leases.acknowledge(lease.key, offsets) and lease.key in self.log:
            self.log[lease.key] -= offsets
        if not has_ended:
            self.wanted -= offsets

    @rule(step_ms=st.integers(0, 20_000))
    def pass_time(self, step_ms: int) -> None:
        """Do what is due, as the broker does."""
        self.now_ms += step_ms
        while (due_at_ms := self.leases.due_at_ms) is not None and due_at_ms <= self.now_ms:
            to_store, ended = self.leases.take_due(self.now_ms, 2)
            for lease in to_store:
                self._write(lease)
            self.leases.stored(to_store)
            for lease in ended:
                self.again |= set(lease.open_offsets)
                self.log.pop(lease.key, None)
                self.leases.end(lease)
        for lease in self.running:
            if lease.ends_at_ms <= self.now_ms:
                assert lease.is_over

    def _write(self, lease: Lease) -> None:
        self.log[lease.key] = set(lease.open_offsets)

    @invariant()
    def nothing_is_lost(self) -> None:
        """What is not acknowledged is behind the offset, in a check point of the log, or in the retry topic."""
        in_log = set[int]().union(*self.log.values())
        assert {offset for offset in self.wanted if offset < self.committed} <= in_log | self.again

    @invariant()
    def nothing_is_kept_in_vain(self) -> None:
        """What is over is forgotten, unless its check point is still to come."""
        alive: Sequence[Lease] = [lease for lease in self.running if not lease.is_over]
        assert len(self.leases) == len(alive)
        assert self.leases.kept == sum(not lease.is_stored for lease in alive)
        assert self.leases.in_flight(QUEUE) == sorted(offset for lease in alive for offset in lease.open_offsets)

    def teardown(self) -> None:
        """At the end everything was acknowledged or is handed out again, and the group has come to the end."""
        self.pass_time(2 * MINUTE_MS)
        assert self.wanted <= self.again
        assert self.committed == self.read_until
        assert (len(self.leases), self.leases.kept, self.leases.due_at_ms) == (0, 0, None)


TestLeases = LeaseMachine.TestCase
TestLeases.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
