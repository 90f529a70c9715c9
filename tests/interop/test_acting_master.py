"""A slave that acts as master while its master is gone, with official clients, brokers and name servers.

Ordered consumers need somebody to lock their queues: without acting masters they stand still.
"""

import pathlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial

import pytest
from interop.clients import Admin, Outgoing, Producer, PushConsumer, Queue, Received
from interop.driver import Driver
from interop.parts import Part, start_nameserver
from interop.replica_group import Addressed, GroupQueue, ReplicaGroup, ask_once, committed_at
from interop.servers import BROKER_NAME, JavaBroker, free_port
from interop.toolchain import java_command
from interop.traffic import SMALL_FILES
from interop.versions import every_java, skipped_without
from polling import ask_until

from rocketlet.common.names import BENCHMARK_TOPIC
from rocketlet.remoting.bodies.body import decode_answer
from rocketlet.remoting.bodies.route import TopicRouteData
from rocketlet.remoting.codec.request_codes import RequestCode as Code

NewName = Callable[[], str]
ACTING = {"enableSlaveActingMaster": "true"}
GROUP = {**ACTING, "totalReplicas": "2"}
SHOWS_ACTING = {"supportActingMaster": "true"}
SLAVE = {"brokerRole": "SLAVE", "brokerId": "1"}
MEMBER = {**SMALL_FILES, "brokerName": BROKER_NAME, "brokerClusterName": "DefaultCluster"}
OUR_SLAVE = {**MEMBER, **ACTING, **SLAVE}
OUR_MASTER = {**MEMBER, **GROUP}
BENCHMARK = Queue(BENCHMARK_TOPIC, BROKER_NAME, 0)
LOOK_MS = 60_000
QUICK = {
    "pollNameServerInterval": 200,
    "heartbeatBrokerInterval": 500,
    "persistConsumerOffsetInterval": 500,
    "pullTimeDelayMillsWhenException": 100,
}


@pytest.fixture
def running() -> Iterator[ExitStack]:
    """Return where the processes of a test are started."""
    with ExitStack() as stack:
        yield stack


def numbered(first: int, after: int) -> list[Outgoing]:
    """Return messages whose bodies are their numbers."""
    return [Outgoing(b"%d" % number) for number in range(first, after)]


def ordered(namesrv: str, topic: str) -> dict[str, object]:
    """Return the arguments of an ordered consumer of a topic."""
    about = {"group": f"{topic}-group", "subscriptions": {topic: "*"}, "orderly": True, "settings": QUICK}
    return {"namesrv": namesrv, **about}


def by_queue(messages: Iterable[Received]) -> dict[int, list[int]]:
    """Return the numbers in the messages of each queue, in the order of their delivery."""
    queues: dict[int, list[int]] = defaultdict(list)
    for message in messages:
        queues[message.queue_id].append(int(message.body))
    return dict(queues)


def is_each_once_in_order(messages: Iterable[Received], count: int) -> bool:
    """Tell whether all numbers were delivered once, those of a queue in their order."""
    queues = by_queue(messages).values()
    everything = sorted(number for numbers in queues for number in numbers)
    return everything == [*range(count)] and all(numbers == sorted(numbers) for numbers in queues)


def shown(namesrv: str, topic: str) -> tuple[dict[int, str], int]:
    """Return the addresses that a name server shows for a topic, and what may be done there."""
    answer = ask_once(namesrv, Code.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
    if answer.code:
        return {}, 0
    route = decode_answer(TopicRouteData, answer.body)
    return route.broker_datas[0].broker_addrs, route.queue_datas[0].perm


def end_of(broker: Addressed, queue: Queue) -> str:
    """Return where a queue ends, as a broker says."""
    about = {"topic": queue.topic, "queueId": str(queue.queue_id)}
    return ask_once(broker.address, Code.GET_MAX_OFFSET, about).ext.get("offset", "")


def knows(broker: Addressed, topic: str) -> bool:
    """Tell whether a broker has a topic."""
    return ask_once(broker.address, Code.GET_TOPIC_CONFIG, {"topic": topic}).code == 0


def wait_committed(broker: Addressed, topic: str, counts: Mapping[int, int]) -> None:
    """Return when a broker says that the consumers of a topic are done with so many messages of each queue."""
    for queue_id, count in counts.items():
        asked = GroupQueue(f"{topic}-group", topic, queue_id)
        ask_until(partial(committed_at, broker, asked), count.__eq__)


def set_words(settings: dict[str, str]) -> list[str]:
    """Return the options that set these."""
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


@pytest.mark.feature("R22", "N25")
@every_java
def test_ordered_consumer_goes_on_at_the_acting_slave(
    java: Driver, running: ExitStack, tmp_path: pathlib.Path, new_name: NewName
) -> None:
    """It reads the rest there, in order; what it commits there is at the master when that is back, where it goes on."""
    group, topic = ReplicaGroup(running, tmp_path, **GROUP), new_name()
    with group.tapped() as taps, Producer(java, namesrv=group.namesrv) as producer:
        with Admin(java, namesrv=group.namesrv) as tools:
            tools.create_topic(group.master.address, topic, 2)
        producer.send_all(topic, *numbered(0, 20))
        with PushConsumer(java, **ordered(taps.namesrv, topic)) as consumer:
            consumer.received(20)
            taps.master.refused = frozenset([Code.PULL_MESSAGE])
            producer.send_all(topic, *numbered(20, 60))
            group.wait_copied(topic)
            group.kill_master()
            assert shown(group.namesrv, topic) == ({0: group.slave.address}, 4)
            received = consumer.received(60, LOOK_MS)
            assert is_each_once_in_order(received, 60)
            counts = {queue_id: len(numbers) for queue_id, numbers in by_queue(received).items()}
            wait_committed(group.slave, topic, counts)
        taps.master.refused = frozenset()
        group.restart_master()
        wait_committed(group.master, topic, counts)
        ask_until(partial(shown, group.namesrv, topic), lambda found: found[1] == 6)
        with PushConsumer(java, **ordered(taps.namesrv, topic)) as consumer:
            producer.send_all(topic, *numbered(60, 80))
            again = consumer.received(20, LOOK_MS)
    assert sorted(int(message.body) for message in again) == [*range(60, 80)]


@pytest.mark.feature("R22", "N25")
def test_our_slave_acts_under_an_official_master(
    java: Driver, running: ExitStack, tmp_path: pathlib.Path, new_name: NewName
) -> None:
    """The official name server shows it; a consumer locks and reads there; the master takes back what it commits."""
    topic, port = new_name(), str(free_port(4))
    with skipped_without("the official name server"):
        names = running.enter_context(Driver("java-server", java_command))
    namesrv: str = names.call("namesrv.start", name="n", directory=str(tmp_path), settings=SHOWS_ACTING)["address"]
    settings = {**SMALL_FILES, **ACTING, "listenPort": port}
    with JavaBroker(tmp_path / "master", namesrv, settings) as master:
        our = ["--broker-port", "0", "--namesrv", namesrv, "--store", tmp_path / "slave", *set_words(OUR_SLAVE)]
        slave = running.enter_context(Part("broker", *our))
        with Admin(java, namesrv=namesrv) as tools, Producer(java, namesrv=namesrv) as producer:
            tools.create_topic(master.address, topic, 1)
            producer.send_all(topic, *numbered(0, 20))
        ask_until(partial(knows, slave, topic))
        ask_until(partial(end_of, slave, Queue(topic, BROKER_NAME, 0)), "20".__eq__)
        master.driver.call(
            "broker.stop", name="b"
        )  # a kill may come before it has saved of what version its offsets are
    ask_until(partial(shown, namesrv, topic), ({0: slave.address}, 4).__eq__)
    with PushConsumer(java, **ordered(namesrv, topic)) as consumer:
        assert is_each_once_in_order(consumer.received(20, LOOK_MS), 20)
    wait_committed(slave, topic, {0: 20})
    with JavaBroker(tmp_path / "master", namesrv, {**settings, "totalReplicas": "2"}) as master:
        wait_committed(master, topic, {0: 20})
        ask_until(partial(shown, namesrv, topic), ({0: master.address, 1: slave.address}, 6).__eq__)
        with Producer(java, namesrv=namesrv) as producer:
            producer.send_all(topic, *numbered(20, 30))
        ask_until(partial(end_of, slave, Queue(topic, BROKER_NAME, 0)), "30".__eq__)


@pytest.mark.feature("R22")
def test_official_slave_acts_under_our_master(java: Driver, running: ExitStack, tmp_path: pathlib.Path) -> None:
    """Our master takes back what was committed there, of a topic and a group that each broker has from the start."""
    namesrv = running.enter_context(start_nameserver(tmp_path, **SHOWS_ACTING)).address
    port = str(free_port(4) - 1)
    where = ["--broker-port", port, "--namesrv", namesrv, "--store", tmp_path / "master"]
    ours = [*where, *set_words(OUR_MASTER)]
    with Part("broker", *ours) as master, Producer(java, namesrv=namesrv) as producer:
        producer.send_all(BENCHMARK_TOPIC, *numbered(0, 40), queue=BENCHMARK)
        with skipped_without("the official broker"):
            settings = {**SMALL_FILES, **ACTING, **SLAVE}
            slave = running.enter_context(JavaBroker(tmp_path / "slave", namesrv, settings))
        ask_until(partial(end_of, slave, BENCHMARK), "40".__eq__)
        master.kill()
    ask_until(partial(shown, namesrv, BENCHMARK_TOPIC), ({0: slave.address}, 4).__eq__)
    group = {"consumerGroup": "TOOLS_CONSUMER", "topic": BENCHMARK_TOPIC, "queueId": "0", "commitOffset": "30"}
    assert ask_once(slave.address, Code.UPDATE_CONSUMER_OFFSET, group).code == 0
    with Part("broker", *ours) as master:
        ask_until(partial(committed_at, master, GroupQueue("TOOLS_CONSUMER", BENCHMARK_TOPIC, 0)), (30).__eq__)
        ask_until(partial(shown, namesrv, BENCHMARK_TOPIC), ({0: master.address, 1: slave.address}, 6).__eq__)
