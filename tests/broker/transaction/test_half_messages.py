"""Op messages as bytes, and where half messages belong."""

import msgspec
import pytest
from stores import HOST, new_record

from rocketlet.broker.transaction.half_messages import op_messages, real_place, settled_offsets
from rocketlet.common.errors import MessageIllegalError
from rocketlet.common.names import HALF_TOPIC
from rocketlet.common.record import Record, decode_record, encode_record


def stored(offsets: list[int], most_bytes: int = 4096) -> list[Record]:
    """Return the op messages for these half messages as they are in the log."""
    return [decode_record(encode_record(new, 0, 0, 1, HOST)) for new in op_messages(offsets, most_bytes, 7, HOST)]


def test_form_is_javas() -> None:
    """Topic, queue, tag and properties are those of a record that the Java broker wrote; a comma ends each number."""
    (op,) = stored([0, 1, 2, 8])
    assert (op.topic, op.queue_id, bytes(op.body)) == ("RMQ_SYS_TRANS_OP_HALF_TOPIC", 0, b"0,1,2,8,")
    assert (op.property_text, op.born_at_ms, op.born_host) == (b"WAIT\x01true\x02TAGS\x01d\x02", 7, HOST)


def test_long_ones_are_split() -> None:
    """A message ends with the number that brings it above the limit; together they name all."""
    bodies = [bytes(op.body) for op in stored([10, 11, 12, 13, 14], 5)]
    assert bodies == [b"10,11,", b"12,13,", b"14,"]
    assert stored([]) == []


@pytest.mark.parametrize(
    ("body", "offsets"),
    [(b"12,13,20,", [12, 13, 20]), (b"7", [7]), (b"", []), (b"x,,-4,5,", [5]), ("٣,4".encode(), [4])],
    ids=["5.x", "4.x", "empty", "no numbers", "other digits"],
)
def test_what_is_read(body: bytes, offsets: list[int]) -> None:
    """The forms of all Java versions are read, what is no number is passed over."""
    (op,) = stored([1])
    assert list(settled_offsets(msgspec.structs.replace(op, body=body))) == offsets


def test_other_tags_say_nothing() -> None:
    """A record of the topic with another tag settles nothing."""
    (op,) = stored([1])
    assert list(settled_offsets(msgspec.structs.replace(op, property_text=b"TAGS\x01e\x02"))) == []


@pytest.mark.parametrize("properties", [{}, {"REAL_TOPIC": "T"}, {"REAL_QID": "3"}])
def test_half_message_that_belongs_nowhere(properties: dict[str, str]) -> None:
    """One that does not name its topic, or its queue, says so in the error."""
    half = decode_record(encode_record(new_record(HALF_TOPIC, 0, b"", **properties), 0, 0, 1, HOST))
    belongs = f"topic {properties.get('REAL_TOPIC')}, queue {properties.get('REAL_QID')}"
    with pytest.raises(MessageIllegalError, match=belongs):
        real_place(half)
