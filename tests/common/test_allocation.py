import logging
from typing import Any

import pytest
from javastores import java_cases

from rocketlet.common.allocation import (
    AllocateMachineRoomNearby,
    AllocateMessageQueueAveragely,
    AllocateMessageQueueAveragelyByCircle,
    AllocateMessageQueueByConfig,
    AllocateMessageQueueByMachineRoom,
    AllocateMessageQueueConsistentHash,
    AllocateMessageQueuePinnedToIp,
    AllocateMessageQueueStrategy,
    MetaqConsisHashStrategy,
    MetaqDefaultLoadBalanceStrategy,
    ketama_hash,
    md5_hash,
    partition_text,
)
from rocketlet.common.message import MessageQueue

CASES = java_cases("allocate/allocate.json")
CONFIGURED = (MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-a", 1))


def _queue(text: str) -> MessageQueue:
    topic, _, rest = text.partition("@")
    broker_name, _, queue_id = rest.rpartition("@")
    return MessageQueue(topic, broker_name, int(queue_id))


def _strategy(case: dict[str, Any]) -> AllocateMessageQueueStrategy:
    simple: dict[str, AllocateMessageQueueStrategy] = {
        "AVG": AllocateMessageQueueAveragely(),
        "AVG_BY_CIRCLE": AllocateMessageQueueAveragelyByCircle(),
        "CONFIG": AllocateMessageQueueByConfig(CONFIGURED),
        "MACHINE_ROOM": AllocateMessageQueueByMachineRoom(frozenset(case.get("consumerIdcs", ()))),
        "CONSISTENT_HASH": AllocateMessageQueueConsistentHash(case.get("virtualNodes", 10)),
    }
    if "inner" not in case:
        return simple[case["strategy"]]
    return AllocateMachineRoomNearby(
        simple[case["inner"]],
        room_of_queue=lambda queue: queue.broker_name.partition("-")[0],
        room_of_client=lambda client_id: client_id.partition("-")[0],
    )


@pytest.mark.feature("B2", "B3", "B4", "B5", "B6", "B7", "B11", "B12")
@pytest.mark.parametrize(
    "case", CASES, ids=lambda case: f"{case['strategy']}-{len(case['queues'])}-{len(case['consumers'])}"
)
def test_queues_are_shared_as_java_does(case: dict[str, Any]) -> None:
    """Each recorded allocation comes out the same for every member and for one that is not a member."""
    strategy = _strategy(case)
    queues = [_queue(text) for text in case["queues"]]
    assert strategy.name == case["strategy"]
    for client_id, expected in case["result"].items():
        if isinstance(expected, str):
            with pytest.raises(ValueError, match="there are no"):
                strategy.allocate("CG", client_id, queues, case["consumers"])
        else:
            found = strategy.allocate("CG", client_id, queues, case["consumers"])
            assert found == [_queue(text) for text in expected]


@pytest.mark.feature("B2")
@pytest.mark.parametrize(
    ("queues", "members", "shares"),
    [
        (9, 4, ["012", "34", "56", "78"]),
        (8, 2, ["0123", "4567"]),
        (7, 2, ["0123", "456"]),
        (12, 5, ["012", "345", "67", "89", "ab"]),
        (13, 5, ["012", "345", "678", "9a", "bc"]),
        (3, 5, ["0", "1", "2", "", ""]),
    ],
)
def test_averagely_hands_out_blocks(queues: int, members: int, shares: list[str]) -> None:
    """Everybody gets one contiguous block, the first ones a queue more, the surplus members none."""
    all_queues = [MessageQueue("T", "b", number) for number in range(queues)]
    ids = [f"c{number}" for number in range(members)]
    found = [AllocateMessageQueueAveragely().allocate("CG", client_id, all_queues, ids) for client_id in ids]
    assert ["".join(f"{queue.queue_id:x}" for queue in share) for share in found] == shares


def test_averagely_with_one_id_twice_leaves_queues_out() -> None:
    """Two members with one id both take the first block, and the block between is nobody's."""
    queues = [MessageQueue("T", "b", number) for number in range(12)]
    found = AllocateMessageQueueAveragely().allocate("CG", "x", queues, ["x", "x"])
    assert [queue.queue_id for queue in found] == [0, 1, 2, 3, 4, 5]


@pytest.mark.feature("B7")
def test_consistent_hash_moves_only_the_queues_of_who_left() -> None:
    """The ring of the documentation's example: when a member leaves, its queue moves and no other."""
    queues = [MessageQueue("TopicTest", "broker-a", number) for number in range(8)]
    ids = [f"192.168.0.{number}@1595{number}" for number in (6, 7, 8, 9)]
    strategy = AllocateMessageQueueConsistentHash()
    before = {client_id: strategy.allocate("CG", client_id, queues, ids) for client_id in ids}
    after = {client_id: strategy.allocate("CG", client_id, queues, ids[:3]) for client_id in ids[:3]}
    assert [[queue.queue_id for queue in share] for share in before.values()] == [[4], [2, 6], [0, 1, 5, 7], [3]]
    assert [[queue.queue_id for queue in share] for share in after.values()] == [[3, 4], [2, 6], [0, 1, 5, 7]]
    assert md5_hash("192.168.0.6@15956-0") == 1411474541
    assert md5_hash("MessageQueue [topic=TopicTest, brokerName=broker-a, queueId=0]") == 1987926524


def test_consistent_hash_with_few_nodes_and_own_hash() -> None:
    """Negative node numbers are refused, none leaves everybody empty, and another hash may be given."""
    queues = [MessageQueue("T", "b", 0)]
    with pytest.raises(ValueError, match="virtual_nodes is -1"):
        AllocateMessageQueueConsistentHash(-1)
    assert AllocateMessageQueueConsistentHash(0).allocate("CG", "a", queues, ["a"]) == []
    constant = AllocateMessageQueueConsistentHash(2, hash_key=lambda _: 7)
    assert constant.allocate("CG", "b", queues, ["a", "b"]) == queues


@pytest.mark.feature("B11")
@pytest.mark.parametrize(
    "strategy",
    [
        AllocateMessageQueueAveragely(),
        AllocateMessageQueueAveragelyByCircle(),
        AllocateMessageQueueByMachineRoom(),
        AllocateMessageQueueConsistentHash(),
        AllocateMessageQueuePinnedToIp("10.0.0.1"),
    ],
    ids=lambda strategy: strategy.name,
)
def test_arguments_are_checked(strategy: AllocateMessageQueueStrategy, caplog: pytest.LogCaptureFixture) -> None:
    """Empty arguments raise; a client that is not a member gets nothing and a line in the log."""
    queues = [MessageQueue("T", "b", 0)]
    for client_id, some_queues, ids in ((" ", queues, ["a"]), ("a", [], ["a"]), ("a", queues, [])):
        with pytest.raises(ValueError, match=r"empty|there are no"):
            strategy.allocate("CG", client_id, some_queues, ids)
    with caplog.at_level(logging.WARNING):
        assert strategy.allocate("CG", "b", queues, ["a"]) == []
    assert "[BUG] ConsumerGroup: CG The consumerId: b not in cidAll: ['a']" in caplog.text


@pytest.mark.feature("B8")
def test_pinned_queues_go_to_one_address_only() -> None:
    """Members at the pinned address share all queues; the others have none, even when nobody is there."""
    queues = [MessageQueue("T", "b", number) for number in range(9)]
    ids = ["192.168.0.60@1", "192.168.0.6@15956", "192.168.0.6@15957#8", "192.168.0.7@1"]
    strategy = AllocateMessageQueuePinnedToIp("192.168.0.6")
    assert [len(strategy.allocate("CG", each, queues, ids)) for each in ids] == [0, 5, 4, 0]
    assert strategy.allocate("CG", ids[1], queues, ids) == queues[:5]
    assert strategy.allocate("CG", ids[1], queues, ids[:2]) == queues
    elsewhere = AllocateMessageQueuePinnedToIp("10.0.0.1")
    assert [elsewhere.allocate("CG", each, queues, ids) for each in ids] == [[], [], [], []]
    with pytest.raises(ValueError, match="is empty"):
        AllocateMessageQueuePinnedToIp(" ")


def test_all_recorded_allocations_are_tried() -> None:
    """None of the recorded cases is lost."""
    assert len(CASES) == 485


@pytest.mark.feature("B6")
def test_machine_room_without_a_name_is_an_error() -> None:
    """A queue or a client that the resolver cannot place is refused."""
    queues = [MessageQueue("T", "b", 0)]
    strategy = AllocateMachineRoomNearby(
        AllocateMessageQueueAveragely(), room_of_queue=lambda _: "", room_of_client=lambda _: "r"
    )
    with pytest.raises(ValueError, match="machine room"):
        strategy.allocate("CG", "a", queues, ["a"])


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
def test_consistent_hash_moves_only_the_queues_of_who_left_of_metaq(members: int) -> None:
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
