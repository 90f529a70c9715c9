"""Received messages for the tests of the client, without a broker."""

from rocketlet.common.message import MessageQueue, ReceivedMessage


def received(queue_offset: int, body: bytes = b"x", *, topic: str = "T", queue_id: int = 0) -> ReceivedMessage:
    """Return a message as it would come from a queue of broker-a."""
    return ReceivedMessage(
        topic=topic,
        body=body,
        tags=None,
        keys=(),
        properties={},
        flag=0,
        sys_flag=0,
        queue=MessageQueue(topic, "broker-a", queue_id),
        queue_offset=queue_offset,
        log_offset=1000 * queue_offset,
        message_id=f"id-{queue_offset}",
        offset_message_id="",
        born_at_ms=0,
        stored_at_ms=0,
        born_host=("127.0.0.1", 1),
        store_host=("127.0.0.1", 2),
        reconsume_times=0,
        prepared_transaction_offset=0,
        body_crc=0,
        store_size=100,
    )
