import logging

import pytest

from rocketlet.common.allocation import AllocateMessageQueueAveragely, AllocateMessageQueueStrategy
from rocketlet.common.message import MessageQueue
from rocketlet.common.metaq import (
    MetaqConsisHashStrategy,
    MetaqDefaultLoadBalanceStrategy,
    ketama_hash,
    partition_text,
)

QUEUES = [MessageQueue("T", broker, number) for broker in ("broker-a", "broker-b") for number in range(32)]


def shares_of(
    strategy: AllocateMessageQueueStrategy, queues: list[MessageQueue], ids: list[str]
) -> list[list[MessageQueue]]:
    """Return the queues of each member."""
    return [strategy.allocate("CG", client_id, queues, ids) for client_id in ids]


@pytest.mark.feature("B9")
def test_default_cuts_the_blocks_of_averagely() -> None:
    """For all numbers of queues and members up to 39, the first, a middle and the last block are those of AVG."""
    for count in range(1, 40):
        by_text = sorted((MessageQueue("T", "b", number) for number in range(count)), key=partition_text)
        for members in range(1, 40):
            ids = [f"c{number:02}" for number in range(members)]
            for client_id in (ids[0], ids[members // 2], ids[-1]):
                found = MetaqDefaultLoadBalanceStrategy().allocate("CG", client_id, by_text, ids)
                assert found == AllocateMessageQueueAveragely().allocate("CG", client_id, by_text, ids)


@pytest.mark.feature("B9")
def test_default_sorts_texts() -> None:
    """Queue 10 comes before queue 2, so blocks differ from AVG's as soon as a broker has eleven queues."""
    queues = [MessageQueue("T", "0", number) for number in range(12)]
    first, second = shares_of(MetaqDefaultLoadBalanceStrategy(), queues, ["a", "b"])
    assert [queue.queue_id for queue in first] == [0, 1, 10, 11, 2, 3]
    assert [queue.queue_id for queue in second] == [4, 5, 6, 7, 8, 9]


@pytest.mark.feature("B10")
def test_ring_is_that_of_ketama() -> None:
    """The hash reads the lowest byte first; MD5 of the empty text begins d4 1d 8c d9."""
    assert ketama_hash("") == 0xD98C1DD4


@pytest.mark.feature("B10")
@pytest.mark.parametrize("members", [2, 3, 5, 8])
def test_consistent_hash_moves_only_the_queues_of_who_left(members: int) -> None:
    """Every queue has one owner, before and after; only queues of the member that left have a new one."""
    ids = [f"192.168.0.{number}@1595{number}#7" for number in range(members)]
    before = shares_of(MetaqConsisHashStrategy(), QUEUES, ids)
    after = shares_of(MetaqConsisHashStrategy(), QUEUES, ids[1:])
    assert sorted(queue for share in before for queue in share) == QUEUES
    assert sorted(queue for share in after for queue in share) == QUEUES
    assert all(set(old) <= set(new) for old, new in zip(before[1:], after, strict=True))
    assert max(map(len, before)) < len(QUEUES)


@pytest.mark.parametrize(
    "strategy", [MetaqDefaultLoadBalanceStrategy(), MetaqConsisHashStrategy()], ids=lambda strategy: strategy.name
)
def test_who_is_no_member_gets_nothing(
    strategy: AllocateMessageQueueStrategy, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is raised, unlike with RocketMQ's strategies; the log says it."""
    with caplog.at_level(logging.WARNING):
        assert strategy.allocate("CG", "x", QUEUES, ["a"]) == []
        assert strategy.allocate("CG", "x", QUEUES, []) == []
    assert "no partitions for the consumer x" in caplog.text


@pytest.mark.feature("B12")
def test_surplus_members_are_idle(caplog: pytest.LogCaptureFixture) -> None:
    """Three queues for five members: the last two have none, and are told."""
    with caplog.at_level(logging.WARNING):
        found = shares_of(MetaqDefaultLoadBalanceStrategy(), QUEUES[:3], list("abcde"))
    assert [len(share) for share in found] == [1, 1, 1, 0, 0]
    assert "no partitions for the consumer e" in caplog.text
