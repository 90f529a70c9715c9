"""The short way to the field table of a send."""

from typing import NamedTuple

import pytest

from rocketlet.common.message import MessageQueue
from rocketlet.remoting.codec.command import encode_fields
from rocketlet.remoting.headers.send import LetterSendHeader, SendFields


class Sent(NamedTuple):
    """A message as the table needs it."""

    sys_flag: int
    flag: int
    property_text: str
    is_batch: bool


@pytest.mark.parametrize("sent", [Sent(0, 7, "TAGS\x01A\x02", is_batch=False), Sent(0x301, -1, "", is_batch=True)])
def test_table_is_that_of_the_header(sent: Sent) -> None:
    """Both ways give the same fields, so a change of the header is noticed here."""
    header = LetterSendHeader(
        producer_group="pg",
        topic="T",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=3,
        sys_flag=sent.sys_flag,
        born_at_ms=1_700_000_000_000,
        flag=sent.flag,
        properties=sent.property_text,
        reconsume_times=0,
        unit_mode=False,
        batch=sent.is_batch,
        broker_name="broker-a",
    )
    queue = MessageQueue("T", "broker-a", 3)

    assert SendFields("pg", "TBW102", 4).encode(sent, queue, 1_700_000_000_000) == encode_fields(header)
