"""Which messages travel together."""

import pytest

from rocketlet.client.producer.bulk_sender import Batcher, OutboundMessage
from rocketlet.common.message import Message, MessageQueue

QUEUES = [MessageQueue("T", "broker-a", number) for number in range(4)]


def pack(outbound: list[OutboundMessage]) -> list[list[int]]:
    """Return the numbers in each batch of at most 3 messages and 1000 bytes; 500 bytes are large."""
    return [[one.number for one in batch.outbound] for batch in Batcher(3, 1000, 500).pack(outbound, {"T": QUEUES})]


@pytest.mark.parametrize(
    ("messages", "batches"),
    [
        ([Message("T", b"x")] * 7, [[0, 1, 2], [3, 4, 5], [6]]),
        ([Message("T", bytes(400))] * 3, [[0, 1], [2]]),
        ([Message("T", b"x"), Message("U", b"x"), Message("T", b"x")], [[1], [0, 2]]),
        ([Message("T", b"x"), Message("T", bytes(500)), Message("T", b"x")], [[0], [1], [2]]),
        ([Message("T", b"x"), Message("T", b"x", delay_level=1)], [[0], [1]]),
        ([Message("T", b"x"), Message("T", b"x", properties={"p": "v" * 9000})], [[0], [1]]),
        ([Message("%RETRY%g", b"x")] * 2, [[0], [1]]),
        ([], []),
    ],
    ids=["number", "bytes", "topics", "large", "late", "properties", "retry", "none"],
)
def test_letters_travel_together_as_far_as_they_may(messages: list[Message], batches: list[list[int]]) -> None:
    """Number and bytes are limited; large and late messages and those of retry topics travel alone."""
    assert pack([OutboundMessage(message, number) for number, message in enumerate(messages)]) == batches


def test_letters_of_a_sharding_key_have_one_queue_and_keep_their_order() -> None:
    """The queue is that of the key's hash, and a large one does not overtake those before it."""
    bodies = [b"x", b"x", bytes(500), b"x"]
    outbound = [OutboundMessage(Message("T", body), number, "one key") for number, body in enumerate(bodies)]
    batches = list(Batcher(3, 1000, 500).pack(outbound, {"T": QUEUES}))
    assert [[one.number for one in batch.outbound] for batch in batches] == [[0, 1], [2], [3]]
    assert len({batch.queue for batch in batches}) == 1
