"""Our broker and the official one 5.4.0 hand one store directory to each other; neither loses or changes a thing."""

import json
import pathlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import pytest
from durability_page import Trial, Trials
from interop.clients import Outgoing, Producer, PullConsumer, PushConsumer, Received, Sent
from interop.driver import Driver
from interop.servers import Server
from interop.traffic import SMALL_FILES, read_topic, write_traffic
from interop.undecided import CHECK_SETTINGS, Undecided
from javastores import STORES, unpack_store
from killing.exchange import ADDED_BY_CLIENT, MESSAGES_PER_TURN, Exchange, Kind, alternate

from rocketlet.store.files.checkpoint import load_checkpoint
from rocketlet.store.files.files import OS_FILES

StartServer = Callable[..., Server]
ENDS = {"ours": "stop kill kill stop kill kill", "java": "kill kill kill stop stop kill"}
MORE_ENDS = (
    "kill kill kill kill kill kill",
    "stop stop stop stop stop stop",
    "kill stop kill stop kill stop",
    "stop kill stop kill stop kill",
)
ADDRESS_KEYS = {"brokerIP1", "brokerIP2", "listenPort", "namesrvAddr", "haListenPort"}
FILTERS_AND_DELAYS = {
    **SMALL_FILES,
    **CHECK_SETTINGS,
    "enablePropertyFilter": "true",
    "messageDelayLevel": "8s 15s",
}
HIDDEN_QUEUES = {"InnerBatch"}  # a batch queue, whose messages a pull does not count one by one


@pytest.mark.durability
@pytest.mark.feature("S26", "H9")
@pytest.mark.parametrize("first", ["ours", "java"])
@pytest.mark.timeout(1800, func_only=True)
def test_directory_goes_to_and_fro(first: Kind, java: Driver, trials: Trials, tmp_path: pathlib.Path) -> None:
    """In three rounds all messages stay where they were, found by offset, id, key and time; so do topics and groups."""
    chains = [ENDS[first], *MORE_ENDS[: trials.rounds(0, len(MORE_ENDS))]]
    exchanges = [Exchange(tmp_path / str(number), java) for number in range(len(chains))]
    for exchange, ends in zip(exchanges, chains, strict=True):
        exchange.run(alternate(first, ends))
    faults = [fault for exchange in exchanges for fault in exchange.faults]
    trials.add(_trial(first, exchanges, faults))
    assert faults == []
    for exchange, ends in zip(exchanges, chains, strict=True):
        assert len(exchange.hand_overs) == len(ends.split())
        assert sum(map(len, exchange.truth.values())) == len(ends.split()) * MESSAGES_PER_TURN


def _trial(first: Kind, exchanges: Sequence[Exchange], faults: Sequence[str]) -> Trial:
    hand_overs = [hand_over for exchange in exchanges for hand_over in exchange.hand_overs]
    kills = sum(hand_over.before.end == "kill" for hand_over in hand_overs)
    return Trial(
        "Other brokers",
        f"beginning with {'the Java broker 5.4.0' if first == 'java' else 'rocketlet'}, {kills} of the turns ended by"
        " SIGKILL under load",
        len(hand_overs),
        "turns",
        sum(len(exchange.ledger.acknowledged) for exchange in exchanges)
        + sum(len(messages) for exchange in exchanges for messages in exchange.truth.values())
        + sum(len(exchange.delayed) for exchange in exchanges),
        sum(len(exchange.ledger.lost) for exchange in exchanges),
        "; ".join(faults[:3]) or "nothing",
    )


@pytest.mark.feature("L3", "P23", "P28", "T10", "H9")
def test_waiting_messages_and_filters_go_to_and_fro(
    java: Driver, rocketlet_up: StartServer, java_broker: StartServer, tmp_path: pathlib.Path
) -> None:
    """Delayed messages come from the broker that finds them, at their time and once; filters outlive both brokers.

    Open transactions are asked about by the broker that finds them, and delivered once.
    """
    undecided = Undecided(java)
    store, waiting, files = tmp_path / "store", list[Sent](), list[dict[str, Any]]()
    turns = (
        Turn(rocketlet_up, 0, {"first": 1, "gone": 1}, leaves_level=1),
        Turn(java_broker, 8_000, {"first": 1, "second": 2}, leaves_level=2),
        Turn(rocketlet_up, 15_000, {"first": 1, "third": 3}, leaves_level=0),
    )
    for turn in turns:
        server = turn.start(store, **FILTERS_AND_DELAYS)
        undecided.take_turn(server)
        _consume_by_price(java, server, turn.expected)
        _check_delivery(java, server, waiting, turn.waited_ms)
        if turn.leaves_level:
            with Producer(java, namesrv=server.namesrv) as producer:
                late = Outgoing(b"late", tags="t", keys=["k"], delay_level=turn.leaves_level)
                waiting += producer.send_all("late", late)
        server.stop()
        files.append(json.loads((store / "config" / "consumerFilter.json").read_text()))
    ours, theirs, again = (file["filterDataByTopic"]["priced"]["groupFilterData"] for file in files)
    assert sorted(again) == ["first", "gone", "second", "third"]
    assert ours["gone"] == theirs["gone"] == again["gone"]
    assert theirs["second"] == again["second"]
    for name in ("bornTime", "bloomFilterData", "expression", "expressionType", "dead"):
        assert ours["first"][name] == theirs["first"][name] == again["first"][name]


@pytest.mark.feature("H9")
def test_java_keeps_the_keys_behind_a_full_index_file(
    java: Driver, rocketlet_up: StartServer, java_broker: StartServer, tmp_path: pathlib.Path
) -> None:
    """A batch fills an index file and begins the next in one millisecond; after a kill Java finds each of its keys."""
    store, keys = tmp_path / "store", [f"k{number}" for number in range(20)]
    settings = {**SMALL_FILES, "maxHashSlotNum": "100", "maxIndexNum": "32"}
    server = rocketlet_up(store, **settings)
    with Producer(java, namesrv=server.namesrv) as producer:
        producer.send_all("keyed", Outgoing(b"first"))
        producer.send_all("keyed", *[Outgoing(b"x", keys=[key]) for key in keys], mode="batch")
        while not load_checkpoint(OS_FILES, str(store / "checkpoint")).index_at_ms:  # the first file is safe
            producer.queues("keyed")
    server.kill()
    server = java_broker(store, **settings)
    with PullConsumer(java, namesrv=server.namesrv) as reader:
        assert [key for key in keys if not reader.query("keyed", key)] == []  # Java may have one of them twice by now


class Turn(NamedTuple):
    """A broker's turn: how long what it finds has waited, what groups get then, and the level of what it leaves."""

    start: StartServer
    waited_ms: int
    expected: Mapping[str, int]
    leaves_level: int


def _consume_by_price(java: Driver, server: Server, expected: Mapping[str, int]) -> None:
    """Send a cheap and a dear message, and check how many dear ones each group gets that filters."""
    with Producer(java, namesrv=server.namesrv) as producer:
        producer.send_all("priced", *(Outgoing(b"body", properties={"price": price}) for price in ("5", "30")))
    about = {"namesrv": server.namesrv, "subscriptions": {"priced": {"sql": "price > 20"}}}
    for group, count in expected.items():
        with PushConsumer(java, **about, group=group) as consumer:
            assert [message.properties["price"] for message in consumer.received(count)] == ["30"] * count


def _check_delivery(java: Driver, server: Server, waiting: Sequence[Sent], waited_ms: int) -> None:
    """Check that the last of the messages that waited comes now, none of the others again, and what it looks like."""
    if not waiting:
        return
    with PushConsumer(java, namesrv=server.namesrv, group="late", subscriptions={"late": "*"}) as consumer:
        (message,) = consumer.received(1)
    assert (message.msg_id, message.body, message.tags, message.keys) == (waiting[-1].msg_id, b"late", "t", "k")
    assert message.store_timestamp >= message.born_timestamp + waited_ms
    delivered = [one.msg_id for one in read_topic(java, server.namesrv, "late")]
    assert sorted(delivered) == sorted(one.msg_id for one in waiting)


@pytest.mark.feature("S26")
def test_queue_and_index_files_are_those_that_java_makes(
    java: Driver, rocketlet_up: StartServer, java_broker: StartServer, tmp_path: pathlib.Path
) -> None:
    """The official broker, given our log alone, builds the queue and index files that we wrote, byte for byte."""
    store, twin = tmp_path / "store", tmp_path / "twin"
    with rocketlet_up(store, **SMALL_FILES) as ours:
        write_traffic(java, ours.namesrv)
        ours.stop()
    shutil.copytree(store, twin)
    for name in ("consumequeue", "index"):
        shutil.rmtree(twin / name)
    with java_broker(twin, **SMALL_FILES):
        theirs = _contents(twin)
    ours_made = _contents(store)
    assert sorted(theirs) == sorted(ours_made)
    assert [name for name in theirs if theirs[name] != ours_made[name]] == []
    assert len(theirs) > 12


@pytest.mark.feature("S26", "H9")
@pytest.mark.parametrize("name", STORES)
def test_recorded_store_goes_to_and_fro(
    name: str,
    java: Driver,
    rocketlet_up: StartServer,
    java_broker: StartServer,
    vectors: pathlib.Path,
    tmp_path: pathlib.Path,
) -> None:
    """A directory that Java wrote long ago is served by ours, written to, and served the same by Java again.

    What falls due meanwhile, delayed messages say, either adds behind it.
    """
    truth = json.loads((vectors / "store" / f"{name}.json").read_text())
    settings = {key: _to_text(value) for key, value in truth["settings"].items() if key not in ADDRESS_KEYS}
    topics = [topic["topic"] for topic in truth["topics"] if topic["topic"] not in HIDDEN_QUEUES]
    store = unpack_store(vectors, name, tmp_path)
    with rocketlet_up(store, **settings) as ours:
        with Producer(java, namesrv=ours.namesrv) as producer:
            producer.send_all("Afterwards", *(Outgoing(b"%d" % number, keys=["late"]) for number in range(40)))
        served = _read(java, ours, [*topics, "Afterwards"])
        ours.stop()
    recorded = {
        (topic["topic"], queue["queueId"]): [message["physicOffset"] for message in queue["messages"]]
        for topic in truth["topics"]
        for queue in topic["queues"]
        if topic["topic"] in topics
    }
    places = {queue: [message.log_offset for message in messages] for queue, messages in served.items()}
    assert {queue: places.get(queue, [])[: len(known)] for queue, known in recorded.items()} == recorded
    with java_broker(store, **settings) as official:
        again = _read(java, official, [*topics, "Afterwards"])
    assert {queue: again[queue][: len(messages)] for queue, messages in served.items()} == served


def _to_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _contents(store: pathlib.Path) -> dict[str, bytes]:
    """Return the queue files by path, and the index files, which are named after the time, by number."""
    files = {str(path.relative_to(store)): path for path in (store / "consumequeue").rglob("*") if path.is_file()}
    files |= {f"index {number}": path for number, path in enumerate(sorted((store / "index").iterdir()))}
    return {name: path.read_bytes() for name, path in files.items()}


def _read(java: Driver, server: Server, topics: list[str]) -> dict[tuple[str, int], list[Received]]:
    """Return all messages by queue, without what depends on when they are read."""
    served: dict[tuple[str, int], list[Received]] = {}
    with PullConsumer(java, namesrv=server.namesrv) as reader:
        for topic in topics:
            for message in reader.read_all(topic):
                for name in ADDED_BY_CLIENT:
                    message.properties.pop(name, None)
                served.setdefault((topic, message.queue_id), []).append(message)
    return served
