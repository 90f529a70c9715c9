"""A store with messages in flight goes to the broker of the other kind, which hands out what was not acknowledged."""

import asyncio
import pathlib
from collections.abc import Callable

import pytest
from interop.clients import Admin, Outgoing, Producer, PushConsumer
from interop.driver import Driver
from interop.servers import Server
from pops import acknowledge, pop
from raw_calls import open_caller

StartServer = Callable[..., Server]
LEASE_MS = 30_000


async def pop_and_acknowledge(address: str, topic: str, group: str) -> int:
    """Have the group handed the first four messages and be done with two of them; return when their lease ends."""
    async with open_caller(address) as caller:
        messages = await pop(caller, topic, consumerGroup=group, maxMsgNums=4, invisibleTime=LEASE_MS)
        assert [message.body for message in messages] == [b"0", b"1", b"2", b"3"]
        await acknowledge(caller, messages[0], messages[2], topic=topic, group=group)
        return messages[0].handle.ends_at_ms


@pytest.mark.feature("O11")
@pytest.mark.parametrize("first", ["ours", "official"])
@pytest.mark.timeout(300, func_only=True)
def test_leases_go_to_the_other_broker(
    first: str,
    java: Driver,
    rocketlet_up: StartServer,
    java_broker: StartServer,
    new_name: Callable[[], str],
    tmp_path: pathlib.Path,
) -> None:
    """Just what was not acknowledged comes: what was handed out when its lease ends, the rest at once."""
    topic, group, store = new_name(), new_name(), tmp_path / "store"
    kinds = (rocketlet_up, java_broker) if first == "ours" else (java_broker, rocketlet_up)
    before = kinds[0](store)
    with (
        Admin(java, namesrv=before.namesrv) as admin,
        Producer(java, namesrv=before.namesrv) as producer,
    ):
        admin.create_topic(before.broker, topic, queues=1)
        admin.call("setMessageRequestMode", before.broker, topic, group, "POP", 0, 5_000)
        producer.send_all(topic, *[Outgoing(b"%d" % number) for number in range(6)])
        ends_at_ms = asyncio.run(pop_and_acknowledge(before.broker, topic, group))
    before.stop()
    after = kinds[1](store)
    settings = {"clientRebalance": False}
    with PushConsumer(
        java, namesrv=after.namesrv, group=group, subscriptions={topic: "*"}, settings=settings
    ) as consumer:
        found = consumer.received(4, LEASE_MS + 30_000)
    came = sorted((message.body, message.reconsume_times, message.received_at >= ends_at_ms) for message in found)
    assert came == [(b"1", 1, True), (b"3", 1, True), (b"4", 0, False), (b"5", 0, False)]
