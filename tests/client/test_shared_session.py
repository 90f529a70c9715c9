"""Several producers and consumers of one session: one client id, one connection for each address."""

import pytest
from scripted_cluster import ScriptedCluster

from rocketlet.client import Message, Producer, PullConsumer, Session
from rocketlet.common.errors import ConfigError
from rocketlet.remoting.bodies.body import decode_body
from rocketlet.remoting.bodies.client import HeartbeatData
from rocketlet.remoting.codec.request_codes import RequestCode

pytestmark = pytest.mark.asyncio


async def test_participants_share_client_id_and_connections(address: str) -> None:
    """A producer and a consumer of one session have its client id, and the session outlives them."""
    async with Session(address) as session:
        async with Producer("makers", session=session) as producer:
            sent = await producer.send(Message("orders", b"1"))
        async with PullConsumer("takers", session=session) as consumer:
            assert consumer.client_id == session.client_id
            await consumer.assign([sent.queue])
            await consumer.seek(sent.queue, sent.queue_offset)
            assert [message.body for message in await consumer.poll()] == [b"1"]
        async with Producer("makers", session=session) as producer:
            assert (await producer.send(Message("orders", b"2"))).message_id != sent.message_id


@pytest.mark.feature("K17")
async def test_second_producer_of_a_group_is_refused(address: str) -> None:
    """Two producers of one group in one session: the second is refused, the first goes on."""
    async with Session(address) as session, Producer("makers", session=session) as first:
        with pytest.raises(ConfigError, match="producer group makers has been created before"):
            await Producer("makers", session=session).__aenter__()
        await first.send(Message("orders", b"1"))
        async with Producer("others", session=session) as second:
            await second.send(Message("orders", b"2"))


async def test_newcomer_is_told_to_known_brokers(cluster: ScriptedCluster) -> None:
    """A producer that joins a session with connections is named in a heartbeat at once."""
    broker = await cluster.add_broker("broker-a")
    cluster.routes["orders"] = {"broker-a": 1}
    async with Session(cluster.nameserver.address) as session, Producer("makers", session=session) as producer:
        await producer.send(Message("orders", b"1"))
        async with Producer("others", session=session):
            heartbeats = await broker.wait_asked(RequestCode.HEART_BEAT, 2)
    groups = {each.group_name for each in decode_body(HeartbeatData, heartbeats[1].body).producer_data_set}
    assert groups == {"makers", "others"}


async def test_nameserver_beside_a_session_is_refused() -> None:
    """A session has its name servers; others beside it are a mistake."""
    with pytest.raises(ConfigError, match="give nameserver or session, not both"):
        Producer("makers", "127.0.0.1:9876", session=Session("127.0.0.1:9876"))
