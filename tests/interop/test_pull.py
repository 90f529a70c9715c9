"""What rides on the pulls of the official push consumer."""

import time
from collections.abc import Callable

import pytest
from interop.clients import Outgoing, Producer, PullConsumer, PushConsumer, Queue
from interop.driver import Driver
from interop.servers import Server

LIMIT_S = 30.0


@pytest.mark.feature("P9")
def test_offset_rides_on_pulls(java: Driver, server: Server, new_topic: Callable[..., str]) -> None:
    """A consumer that reports its offset once an hour commits it with its next pull."""
    queue = Queue(new_topic(1), "broker-a", 0)
    group, seldom = f"{queue.topic}-group", {"persistConsumerOffsetInterval": 3_600_000}
    about = {"namesrv": server.namesrv, "group": group, "subscriptions": {queue.topic: "*"}, "settings": seldom}
    with (
        Producer(java, namesrv=server.namesrv) as producer,
        PullConsumer(java, namesrv=server.namesrv, group=group) as reader,
        PushConsumer(java, **about) as consumer,
    ):
        for count in (5, 6):  # the pull that waits was sent before the first five were consumed
            producer.send_all(
                queue.topic, *[Outgoing(b"%d" % number) for number in range(count - len(consumer.received()))]
            )
            assert len(consumer.received(count)) == count
        limit_s = time.monotonic() + LIMIT_S
        while reader.committed(queue) < 5:
            assert time.monotonic() < limit_s, "no pull has brought the offset"
