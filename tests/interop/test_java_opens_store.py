"""The official broker 5.4.0 opens a store directory that `rocketlet up` wrote, and serves all of it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pytest
from interop.clients import Outgoing, Producer, PullConsumer, Received
from interop.driver import Driver
from interop.servers import Server
from interop.traffic import COUNTS, GROUP, SMALL_FILES, read_topic, write_traffic

StartServer = Callable[..., Server]
WRITTEN_SINCE = b"written by the official broker"


@dataclass
class Exchange:
    """A store that ours wrote, and the official server that now runs on it."""

    written: dict[str, Sequence[Received]]
    namesrv: str
    was_stopped: bool


@pytest.fixture(scope="module", params=["stop", "kill"])
def exchange(
    request: pytest.FixtureRequest,
    java: Driver,
    rocketlet_up: StartServer,
    java_broker: StartServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Exchange]:
    """Write a store with ours, end ours cleanly or by SIGKILL, and start the official broker on it."""
    store = tmp_path_factory.mktemp("exchange") / "store"
    ours = rocketlet_up(store, **SMALL_FILES)
    write_traffic(java, ours.namesrv)
    written = {topic: read_topic(java, ours.namesrv, topic) for topic in COUNTS}
    getattr(ours, request.param)()
    with java_broker(store, **SMALL_FILES) as official:
        yield Exchange(written, official.namesrv, request.param == "stop")


@pytest.mark.feature("S26", "H9")
@pytest.mark.parametrize("topic", COUNTS)
def test_every_message_is_served(exchange: Exchange, java: Driver, topic: str) -> None:
    """Bodies, properties, offsets, ids, times and hosts of all messages are those that our own broker served."""
    served = [message for message in read_topic(java, exchange.namesrv, topic) if message.body != WRITTEN_SINCE]
    assert len(served) == COUNTS[topic]
    for message in (*served, *exchange.written[topic]):
        message.properties.pop("MAX_OFFSET", None)  # of the pull: what was written since counts
    assert served == exchange.written[topic]


@pytest.mark.feature("H9", "Q4", "Q5")
def test_messages_are_found_by_key(exchange: Exchange, java: Driver) -> None:
    """The index answers queries by key and by unique key, for messages of the first and of the last file."""
    written = {message.keys: message for message in exchange.written["orders"]}
    assert len(written) == 300
    with PullConsumer(java, namesrv=exchange.namesrv) as reader:
        for number in (20, 150, 299):
            order = written[f"key-{number} every"]
            (found,) = reader.query("orders", f"key-{number}")
            assert (found.msg_id, found.body, found.queue_offset) == (order.msg_id, order.body, order.queue_offset)
            assert reader.view("orders", order.msg_id).body == order.body


@pytest.mark.feature("C8")
def test_topics_and_groups_are_where_they_were(exchange: Exchange, java: Driver) -> None:
    """Topics keep their queues and next offsets; after a clean stop the group has its offsets."""
    with PullConsumer(java, namesrv=exchange.namesrv, group=GROUP) as reader:
        queues = reader.queues("orders")
        committed = [reader.committed(queue) for queue in queues]
    assert [queue.queue_id for queue in queues] == [0, 1, 2, 3]
    assert sum(committed) == COUNTS["orders"] or not exchange.was_stopped
    with Producer(java, namesrv=exchange.namesrv) as producer:
        (sent,) = producer.send_all("orders", Outgoing(WRITTEN_SINCE), queue=queues[1])
    assert sent.queue_offset == sum(message.queue_id == 1 for message in exchange.written["orders"])
