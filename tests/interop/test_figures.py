"""What a broker tells of itself to Prometheus and by statsName, held against a running official broker.

Both get the same traffic from the official client: plain, delayed, timed, and transactional messages, and one that its
group gives up; then connections that say nothing, that are reset, and that send no frames.
"""

import pathlib
import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Final, NamedTuple

import pytest
from interop.clients import Admin, Outgoing, Producer, PushConsumer, TransactionProducer
from interop.driver import Driver, DriverError
from interop.servers import JavaServer, RocketletServer, Server, free_port
from interop.versions import skipped_without
from metrics_scrape import Scraped, scrape_blocking
from official_metrics import LEFT_OUT, OFFICIAL, OWN, OWN_LABELS, SCOPE, labels_of
from polling import ask_until

from rocketlet.metrics.exporter import EXPORTER

SETTINGS: Final = {
    "messageDelayLevel": "1s 1s 1s 1s 1s",
    "transactionTimeOut": "60000",
    "serverChannelMaxIdleTimeSeconds": "20",
    "metricsExporterType": "PROM",
    "metricsPromExporterHost": "127.0.0.1",
}
SENT: Final = 10
RESET, STRANGE, CLOSED = 3, 2, 40
TYPES: Final = {"plain": "NORMAL", "delayed": "DELAY", "timed": "DELAY", "decided": "TRANSACTION", "poor": "NORMAL"}
CLUSTER: Final = "DefaultCluster"
SUMS: Final = {
    ("TOPIC_PUT_NUMS", "plain"): SENT,
    ("TOPIC_PUT_NUMS", "delayed"): SENT,
    ("QUEUE_PUT_NUMS", "SCHEDULE_TOPIC_XXXX@0"): SENT,
    ("GROUP_GET_NUMS", "plain@readers"): SENT,
    ("GROUP_GET_NUMS", "%RETRY%givers@givers"): 1,
    ("SNDBCK_PUT_NUMS", "poor@givers"): 2,
    ("SNDBCK2DLQ_TIMES", "null@poor@givers@SEND_BACK_TO_DLQ"): 1,
    ("CHANNEL_ACTIVITY", "EXCEPTION"): RESET,
}
"""Statistics by name and key, and what each comes to."""
EQUAL: Final = [("TOPIC_PUT_SIZE", "plain"), ("GROUP_GET_SIZE", "plain@readers")]
"""Those that come to the same, whatever that is."""
OURS_ALONE: Final = [("QUEUE_PUT_NUMS", "plain@1"), ("QUEUE_GET_NUMS", "plain@0@readers")]
"""Of single queues a 5.4.0 broker counts only those that delayed messages wait in."""
MEASURED: Final = [
    ("CONSUMER_REGISTER_TIME", CLUSTER),
    ("PRODUCER_REGISTER_TIME", CLUSTER),
    ("CHANNEL_ACTIVITY", "CONNECT"),
    ("CHANNEL_ACTIVITY", "CLOSE"),
    ("TOPIC_PUT_LATENCY", "1@plain"),
    ("GROUP_GET_LATENCY", "1@plain@readers"),
    *((f"BROKER_{way}_NUMS{which}", CLUSTER) for way in ("PUT", "GET") for which in ("", "_WITHOUT_SYSTEM_TOPIC")),
]
"""Those whose number is of the machine, or of what each broker does for itself."""
ABSENT: Final = [
    ("SNDBCK_PUT_NUMS", "%RETRY%givers@givers"),
    ("SNDBCK2DLQ_TIMES", "poor@givers"),
    ("DLQ_PUT_NUMS", "poor@givers"),
    ("CONSUMER_REGISTER_TIME", "readers"),
    ("CHANNEL_ACTIVITY", "connect"),
]
COUNTED_IN: Final = ("rocketmq_messages_in_total", "rocketmq_throughput_in_total")
IDLE: Final = ("CHANNEL_ACTIVITY", "IDLE")


class Told(NamedTuple):
    """What a broker told: to Prometheus, and by name and key what has grown in a minute."""

    scraped: Scraped
    sums: Mapping[tuple[str, str], float | None]


class Watched:
    """A broker and the clients that work with it, until the stack is closed."""

    def __init__(
        self, stack: ExitStack, java: Driver, kind: type[RocketletServer] | type[JavaServer], store: pathlib.Path
    ) -> None:
        self._stack, self._java = stack, java
        port = free_port(1)
        self._url = f"http://127.0.0.1:{port}/metrics"
        with skipped_without("the official broker"):
            settings = SETTINGS | {"metricsPromExporterPort": str(port)}
            self.server: Server = stack.enter_context(kind(store, settings))
        self._admin = stack.enter_context(Admin(java, namesrv=self.server.namesrv))

    def load(self) -> None:
        """Send and consume; the clients stay."""
        for topic, kind in TYPES.items():
            self._admin.create_topic(self.server.broker, topic, 2, attributes={"+message.type": kind})
        about = {"namesrv": self.server.namesrv}
        producer = self._stack.enter_context(Producer(self._java, **about))
        decider = self._stack.enter_context(TransactionProducer(self._java, group="deciders", topic="decided", **about))
        bodies = [Outgoing(b"%d" % number) for number in range(SENT)]
        producer.send_all("plain", *bodies)
        producer.send_all("delayed", *(Outgoing(one.body, delay_level=1) for one in bodies))
        producer.send_all("timed", Outgoing(b"timed", timing={"delayTimeMs": 1_000}))
        producer.send_all("poor", Outgoing(b"poor"))
        decider.send("decided", b"yes", outcome="commit")
        decider.send("decided", b"no", outcome="rollback")
        topics = dict.fromkeys(set(TYPES) - {"poor"}, "*")
        start = {"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET"}
        reader = PushConsumer(self._java, group="readers", subscriptions=topics, settings=start, **about)
        giver = PushConsumer(
            self._java,
            **{"group": "givers", "subscriptions": {"poor": "*"}, "failures": 10, **about},
            settings=start | {"maxReconsumeTimes": 1},
        )
        assert len(self._stack.enter_context(reader).received(2 * SENT + 2)) == 2 * SENT + 2
        assert len(self._stack.enter_context(giver).received(2)) == 2
        ask_until(lambda: self._sum("SNDBCK2DLQ_TIMES", "null@poor@givers@SEND_BACK_TO_DLQ"), lambda it: it is not None)

    def scrape(self) -> Scraped:
        """Return what it tells to Prometheus, once all groups are members and have committed."""
        return ask_until(lambda: scrape_blocking(self._url), _has_settled)

    def connect(self) -> None:
        """Open connections of all kinds; some stay, and say nothing."""
        quiet = [self._open() for _ in range(2)]
        self._stack.callback(lambda: [one.close() for one in quiet])
        for _ in range(CLOSED):
            self._open().close()
        for _ in range(RESET):
            reset = self._open()
            reset.send(bytes(2))
            reset.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            reset.close()
        for _ in range(STRANGE):
            with self._open() as strange:
                strange.send(b"GET / HTTP/1.1\r\n\r\n" * 10)
                assert strange.recv(1) == b""

    def _open(self) -> socket.socket:
        host, _, port = self.server.broker.partition(":")
        return socket.create_connection((host, int(port)), 30)

    def sums(self) -> dict[tuple[str, str], float | None]:
        """Return what has grown in a minute, once all that was done is sampled and quiet connections are closed."""
        ask_until(lambda: self._sum("CHANNEL_ACTIVITY", "CLOSE"), lambda told: (told or 0) >= CLOSED)
        ask_until(lambda: self._sum("CHANNEL_ACTIVITY", "EXCEPTION"), lambda told: (told or 0) >= RESET)
        found = {one: self._sum(*one) for one in (*SUMS, *EQUAL, *OURS_ALONE, *MEASURED, *ABSENT)}
        ask_until(lambda: self._sum(*IDLE), lambda told: told is not None)
        return found

    def _sum(self, name: str, key: str) -> float | None:
        try:
            told = self._admin.call("viewBrokerStatsData", self.server.broker, name, key)
        except DriverError as error:
            if f"The stats <{name}> <{key}> not exist" not in error.failure.message:
                raise
            return None
        return told["statsMinute"]["sum"]


def _has_settled(told: Scraped) -> bool:
    return (
        len(told.labels("rocketmq_consumer_connections")) == 2
        and told.one("rocketmq_consumer_lag_messages", consumer_group="readers", topic="plain") == 0
        and told.one("rocketmq_consumer_lag_messages", consumer_group="givers", topic="poor") == 0
    )


@pytest.fixture(scope="module")
def told(java: Driver, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Told, Told]]:
    """Return what our broker and the official one told after the same traffic."""
    with ExitStack() as stack:
        watched = [
            Watched(stack, java, kind, tmp_path_factory.mktemp("watched") / "store")
            for kind in (RocketletServer, JavaServer)
        ]
        for one in watched:
            one.load()
        scraped = [one.scrape() for one in watched]
        for one in watched:
            one.connect()
        ours, theirs = (Told(each, one.sums()) for each, one in zip(scraped, watched, strict=True))
        yield ours, theirs


def shapes(scraped: Scraped) -> dict[str, list[str]]:
    """Return kind and labels of each metric, as ``official.json`` has them."""
    found: dict[str, list[str]] = {}
    for family in scraped.families:
        labels = {name for sample in family.samples for name in sample.labels} - {SCOPE, "le"}
        if family.samples and family.name.startswith("rocket"):
            name = f"{family.name}_total" if family.type == "counter" else family.name
            found[name] = [family.type, *sorted(labels)]
    return found


def series(scraped: Scraped, name: str) -> dict[frozenset[tuple[str, str]], float]:
    """Return the values of a metric by those labels that both brokers give."""
    dropped = {SCOPE, *OWN_LABELS.get(name, ())}
    return {
        frozenset(pair for pair in labels if pair[0] not in dropped): value
        for (each, labels), value in scraped.values.items()
        if each == name
    }


def is_compared(name: str, labels: Mapping[str, str]) -> bool:
    """Tell whether both brokers count the same there.

    What a broker does for itself is its own affair. Ours tells retry topics and dead letters as topics. A 5.4.0 broker
    does not count what timers and commits bring into a topic.
    """
    topic = labels.get("topic", "")
    is_brought = name in COUNTED_IN and topic in ("timed", "decided")
    return not (labels.get("is_system") == "true" or topic.startswith("%") or is_brought)


def test_metrics_have_the_names_of_a_real_broker(told: tuple[Told, Told]) -> None:
    """Names, kinds and labels of 5.4.0 are those of the list, and ours are the same but for what the list says."""
    ours, theirs = (shapes(one.scraped) for one in told)
    assert theirs == OFFICIAL
    for family in EXPORTER:
        ours.pop(family.name, None)
    assert ours.keys() == (theirs.keys() - LEFT_OUT.keys()) | OWN.keys()
    for name in ours.keys() - OWN.keys():
        assert ours[name] == [theirs[name][0], *sorted(labels_of(name))], name


def test_metrics_tell_what_a_real_broker_tells(told: tuple[Told, Told]) -> None:
    """Each value of a label is spelled as there, and counters are the same."""
    ours, theirs = (one.scraped for one in told)
    for name in OFFICIAL.keys() - LEFT_OUT.keys():
        here, there = (
            {labels: value for labels, value in series(one, name).items() if is_compared(name, dict(labels))}
            for one in (ours, theirs)
        )
        assert here.keys() == there.keys(), name
        if name.endswith("_total"):
            assert here == there, name
    for name in COUNTED_IN:
        assert series(ours, name).keys() >= series(theirs, name).keys(), "system topics and retries"
    assert ours.one("rocketmq_messages_in_total", topic="decided", message_type="transaction") == 1
    assert ours.one("rocketmq_messages_in_total", topic="timed", message_type="delay") == 1


@pytest.mark.feature("D13")
def test_statistics_have_the_keys_of_a_real_broker(told: tuple[Told, Told]) -> None:
    """What exists by name and key exists in both, counts what happened, and what does not exist does not in either."""
    ours, theirs = (one.sums for one in told)
    assert {one: theirs[one] for one in SUMS} == SUMS
    assert {one: ours[one] for one in SUMS} == SUMS
    assert [ours[one] for one in EQUAL] == [theirs[one] for one in EQUAL]
    assert [(ours[one], theirs[one]) for one in OURS_ALONE] == [(SENT / 2, None)] * 2
    for sums in (ours, theirs):
        assert [one for one in (*EQUAL, *MEASURED) if sums[one] is None] == []
        assert [one for one in ABSENT if sums[one] is not None] == []
        assert (sums["CHANNEL_ACTIVITY", "CONNECT"] or 0) >= CLOSED + RESET + STRANGE
        assert (sums["CHANNEL_ACTIVITY", "CLOSE"] or 0) >= CLOSED
