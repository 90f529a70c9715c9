"""Which letters travel together."""

import pytest

from rocketlet.client.producer.bulk_sender import Letter, Packer
from rocketlet.common.message import Message, MessageQueue

QUEUES = [MessageQueue("T", "broker-a", number) for number in range(4)]


def pack(letters: list[Letter]) -> list[list[int]]:
    """Return the numbers in each parcel of at most 3 letters and 1000 bytes; 500 bytes are large."""
    return [
        [letter.number for letter in parcel.letters] for parcel in Packer(3, 1000, 500).pack(letters, {"T": QUEUES})
    ]


@pytest.mark.parametrize(
    ("messages", "parcels"),
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
def test_letters_travel_together_as_far_as_they_may(messages: list[Message], parcels: list[list[int]]) -> None:
    """Number and bytes are limited; large and late letters and those of retry topics travel alone."""
    assert pack([Letter(message, number) for number, message in enumerate(messages)]) == parcels


def test_letters_of_a_sharding_key_have_one_queue_and_keep_their_order() -> None:
    """The queue is that of the key's hash, and a large letter does not overtake those before it."""
    bodies = [b"x", b"x", bytes(500), b"x"]
    letters = [Letter(Message("T", body), number, "one key") for number, body in enumerate(bodies)]
    parcels = list(Packer(3, 1000, 500).pack(letters, {"T": QUEUES}))
    assert [[letter.number for letter in parcel.letters] for parcel in parcels] == [[0, 1], [2], [3]]
    assert len({parcel.queue for parcel in parcels}) == 1
