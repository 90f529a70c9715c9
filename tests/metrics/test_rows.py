"""Each value of a row stands under its metric, with its labels: rows whose numbers all differ, and what is written."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

import pytest

from rocketlet.broker.admin.figures import BrokerFigures, ClientFigures, MemberFigures
from rocketlet.broker.admin.topic_figures import GroupProgress, Membership, ReadFigures, TopicFigures, TopicRun
from rocketlet.metrics.exporter import EXPORTER, exporter_reads, exporter_samples, exporter_topics
from rocketlet.metrics.families import Columns, Exposition, Kept, Sample
from rocketlet.metrics.native import NATIVE, format_release, native_reads, native_samples, native_topics
from rocketlet.store.cleaner import DiskReport, DiskUse

AT_MS = 100_000
WHERE = ("C", "b")
TOPICS = (
    TopicFigures("T", "NORMAL", 10, 11, 12, 1.5, 2.5),
    TopicFigures("idle", "FIFO", 20, 0, 0, 0.0, 0.0),
    TopicFigures("%RETRY%g", "NORMAL", 30, 31, 32, 3.5, 4.5),
    TopicFigures("%DLQ%g", "NORMAL", 40, 41, 42, 5.5, 6.5),
    TopicFigures("SCHEDULE_TOPIC_XXXX", "NORMAL", 50, 51, 52, 7.5, 8.5),
)
READS = (
    ReadFigures("g", "T", Membership(2), GroupProgress(1, 2, 3, 4, 5, AT_MS - 6, AT_MS - 7), 8, 9, 1.5, 2.5, 10, 11),
    ReadFigures("g", "%RETRY%g", Membership(2), GroupProgress(21, 22, 23, 24, 25), 28, 29, 3.5, 4.5, 30, 0),
    ReadFigures("g", "%DLQ%g", Membership(), GroupProgress(31, 32, 33, 34, 35, AT_MS, AT_MS + 1), 0, 0, 0.0, 0.0, 0, 0),
    ReadFigures("all", "T", Membership(3, "BROADCASTING"), GroupProgress(41, 42, 43, 44, 45), 0, 0, 0.0, 0.0, 46, 0),
    ReadFigures("gone", "T", Membership(), None, 51, 52, 5.5, 6.5, 53, 54),
    ReadFigures("CID_RMQ_SYS_x", "T", Membership(), None, 0, 0, 0.0, 0.0, 0, 61),
)


def lines_of(columns: Columns, where: tuple[str, ...], rows: Sequence[object]) -> list[str]:
    """Return what is written of rows, without heads."""
    exposition = Exposition((*NATIVE, *EXPORTER), {}, Kept(), is_open=False, at_ms=AT_MS)
    exposition.add_run(columns, where, 0, rows)
    return [line for line in b"".join(exposition.encode()).decode().splitlines() if not line.startswith("#")]


def test_topics_by_the_names_of_5() -> None:
    """What was put, of those that got something; where messages wait they are all of one kind."""
    expected = [
        'rocketmq_messages_in_total{a="T",is_system="false",message_type="normal"} 11',
        'rocketmq_messages_in_total{a="%RETRY%g",is_system="false",message_type="delay"} 31',
        'rocketmq_messages_in_total{a="%DLQ%g",is_system="false",message_type="normal"} 41',
        'rocketmq_messages_in_total{a="SCHEDULE_TOPIC_XXXX",is_system="true",message_type="delay"} 51',
        'rocketmq_throughput_in_total{a="T",is_system="false",message_type="normal"} 12',
        'rocketmq_throughput_in_total{a="%RETRY%g",is_system="false",message_type="delay"} 32',
        'rocketmq_throughput_in_total{a="%DLQ%g",is_system="false",message_type="normal"} 42',
        'rocketmq_throughput_in_total{a="SCHEDULE_TOPIC_XXXX",is_system="true",message_type="delay"} 52',
    ]
    assert without_node(lines_of(native_topics, ("C", "broker", "b"), TOPICS), "topic") == expected


def without_node(lines: Iterable[str], name: str) -> list[str]:
    """Return lines without the labels that all have, and with a short one for the topic."""
    node = 'cluster="C",', 'node_id="b",', 'node_type="broker",', 'node_type="broker"'
    found: list[str] = []
    for line in lines:
        assert all(label in line for label in node[:2])
        name_of_metric, _, rest = line.partition("{")
        labels, _, value = rest.partition("} ")
        for label in node:
            labels = labels.replace(label, "")
        parts = dict(part.split("=", 1) for part in labels.strip(",").split(","))
        ordered = {"a": parts.pop(name), **parts}
        text = ",".join(f"{key}={value}" for key, value in ordered.items())
        found.append(f"{name_of_metric}{{{text}}} {value}")
    return found


def test_reads_by_the_names_of_5() -> None:
    """Each number of a group in a topic; ages count from the instant of the scrape, and are never below zero."""
    lines = without_node(lines_of(native_reads, ("C", "broker", "b"), READS), "consumer_group")
    plain, retry = 'is_retry="false",is_system="false"', 'is_retry="true",is_system="false"'
    g, again, dead, everyone = (
        f'a="g",{plain},topic="T"',
        f'a="g",{retry},topic="%RETRY%g"',
        f'a="g",{retry},topic="%DLQ%g"',
        f'a="all",{plain},topic="T"',
    )
    gone = f'a="gone",{plain},topic="T"'

    def told(name: str, *values: int) -> list[str]:
        return [f"{name}{{{key}}} {value}" for key, value in zip((g, again, dead, everyone), values, strict=True)]

    assert lines == [
        *(f"rocketmq_messages_out_total{{{key}}} {value}" for key, value in ((g, 8), (again, 28), (gone, 51))),
        *(f"rocketmq_throughput_out_total{{{key}}} {value}" for key, value in ((g, 9), (again, 29), (gone, 52))),
        'rocketmq_send_to_dlq_messages_total{a="g",is_system="false",topic="T"} 11',
        'rocketmq_send_to_dlq_messages_total{a="gone",is_system="false",topic="T"} 54',
        'rocketmq_send_to_dlq_messages_total{a="CID_RMQ_SYS_x",is_system="true",topic="T"} 61',
        *told("rocketmq_consumer_lag_messages", 3, 23, 33, 43),
        *told("rocketmq_consumer_inflight_messages", 4, 24, 34, 44),
        *told("rocketmq_consumer_ready_messages", 5, 25, 35, 45),
        *told("rocketmq_consumer_lag_latency_milliseconds", 6, 0, 0, 0),
        *told("rocketmq_consumer_lag_latency", 6, 0, 0, 0),
        *told("rocketmq_consumer_queueing_latency_milliseconds", 7, 0, 0, 0),
        *told("rocketmq_consumer_queueing_latency", 7, 0, 0, 0),
    ]


def test_topics_by_the_names_of_the_exporter() -> None:
    """Ends by the kind of topic, rates of those that got something and are neither for retries nor for dead letters."""
    assert lines_of(exporter_topics, WHERE, TOPICS) == [
        'rocketmq_producer_offset{broker="b",cluster="C",topic="T"} 10',
        'rocketmq_producer_offset{broker="b",cluster="C",topic="idle"} 20',
        'rocketmq_producer_offset{broker="b",cluster="C",topic="SCHEDULE_TOPIC_XXXX"} 50',
        'rocketmq_topic_retry_offset{broker="b",cluster="C",topic="%RETRY%g"} 30',
        'rocketmq_topic_dlq_offset{broker="b",cluster="C",group="g"} 40',
        'rocketmq_producer_tps{broker="b",cluster="C",topic="T"} 1.5',
        'rocketmq_producer_tps{broker="b",cluster="C",topic="SCHEDULE_TOPIC_XXXX"} 7.5',
        'rocketmq_producer_message_size{broker="b",cluster="C",topic="T"} 2.5',
        'rocketmq_producer_message_size{broker="b",cluster="C",topic="SCHEDULE_TOPIC_XXXX"} 8.5',
    ]


def test_reads_by_the_names_of_the_exporter() -> None:
    """Backlogs of groups whose members share the queues, by the kind of topic; rates of what was read."""

    def labels(topic: str, group: str) -> str:
        return f'{{broker="b",cluster="C",group="{group}",topic="{topic}"}}'

    def diff(topic: str, members: int) -> str:
        return f'{{countOfOnlineConsumers="{members}",group="g",msgModel="1",topic="{topic}"}}'

    g, again, dead, everyone, gone = (
        labels("T", "g"),
        labels("%RETRY%g", "g"),
        labels("%DLQ%g", "g"),
        labels("T", "all"),
        labels("T", "gone"),
    )
    assert lines_of(exporter_reads, WHERE, READS) == [
        f"rocketmq_group_diff{diff('T', 2)} 2",
        f"rocketmq_group_retrydiff{diff('%RETRY%g', 2)} 22",
        f"rocketmq_group_dlqdiff{diff('%DLQ%g', 0)} 32",
        *(f"rocketmq_consumer_offset{key} {n}" for key, n in ((g, 1), (again, 21), (dead, 31), (everyone, 41))),
        f"rocketmq_consumer_tps{g} 1.5",
        f"rocketmq_consumer_tps{gone} 5.5",
        f"rocketmq_consumer_message_size{g} 2.5",
        f"rocketmq_consumer_message_size{gone} 6.5",
        *(f"rocketmq_send_back_nums{key} {n}" for key, n in ((g, 10), (again, 30), (dead, 0), (everyone, 46))),
        *(f"rocketmq_group_get_latency_by_storetime{key} {n}" for key, n in ((g, 6), (again, 0), (dead, 0))),
    ]


LINES = {
    "bootTimestamp": "7",
    "brokerVersion": "493",
    "brokerVersionDesc": "V5_4_0",
    "putMessageDistributeTime": "[<=0ms]:71 [0~10ms]:72 [10s~]:73 ",
    "putTps": "1.5 2.5 3.5",
    "getFoundTps": "4.5",
    "getMissTps": "",
    "getTotalTps": "5.5 6.5",
    "getTransferredTps": "7.5 8.5 9.5",
    "earliestMessageTimeStamp": str(AT_MS - 81),
    "dispatchBehindBytes": "82",
    "timerOffsetBehind": "83",
    "timerReadBehind": "84",
    "timerCongestNum": "85",
}


def figures(**changes: str) -> BrokerFigures:
    """Return figures of a broker whose numbers all differ, but for lines that are not among ``LINES``."""
    clients = [ClientFigures(f"10.0.0.{n}:1", f"c{n}", "JAVA", 493 if n < 3 else 492) for n in range(1, 4)]
    empty = TopicRun(TOPICS[:2], ())
    return BrokerFigures(
        *(AT_MS, "C", "b", "10.0.0.9:10911", 6),
        (empty, empty._replace(topics=TOPICS[2:])),
        (MemberFigures("g", tuple(clients[:2]), "CONSUME_PASSIVELY"), MemberFigures("h", (), "CONSUME_ODD")),
        (MemberFigures("p", tuple(clients)), MemberFigures("q", tuple(clients[:1]))),
        *(91, 9.25, 9.75, 92, 93, 94),
        DiskReport(DiskUse({}, 0, 0), 1_000, 96),
        defaultdict(lambda: "99", {**LINES, **changes}),
    )


def by_name(samples: Iterable[Sample]) -> dict[str, list[tuple[tuple[str, ...], float]]]:
    """Return labels and values of each metric."""
    found: dict[str, list[tuple[tuple[str, ...], float]]] = {}
    for sample in samples:
        found.setdefault(sample.family.name, []).append((sample.labels, sample.value))
    return found


def test_broker_by_the_names_of_5() -> None:
    """Counts of the tables, the disk, what is behind, connections by language and release."""
    told = by_name(native_samples(figures()))
    node, disk = ("C", "broker", "b"), ("C", "broker", "b", "local", "disk")
    assert {labels[3]: value for labels, value in told.pop("rocketmq_processor_watermark") if value} == {"send": 94}
    assert told == {
        "rocketmq_broker_permission": [(node, 6)],
        "rocketmq_topic_number": [(node, 5)],
        "rocketmq_consumer_group_number": [(node, 91)],
        "rocketlet_held_pulls": [(node, 93)],
        "rocketmq_storage_size_bytes": [(disk, 904)],
        "rocketmq_storage_size": [(disk, 904)],
        "rocketmq_storage_flush_behind_bytes": [(disk, 92)],
        "rocketmq_storage_dispatch_behind_bytes": [(disk, 82)],
        "rocketmq_storage_message_reserve_time_milliseconds": [(disk, 81)],
        "rocketmq_storage_message_reserve_time": [(disk, 81)],
        "rocketmq_timer_enqueue_lag": [(disk, 83)],
        "rocketmq_timer_dequeue_latency_milliseconds": [(disk, 84_000)],
        "rocketmq_timer_dequeue_latency": [(disk, 84_000)],
        "rocketlet_timer_messages": [(node, 85)],
        "rocketmq_producer_connections": [
            ((*node, "java", "v5_4_0", "remoting"), 3),
            ((*node, "java", "v5_4_0_snapshot", "remoting"), 1),
        ],
        "rocketmq_consumer_connections": [((*node, "g", "java", "v5_4_0", "push", "remoting", "false"), 2)],
    }


@pytest.mark.parametrize(("stored_at_ms", "expected"), [(-1, None), (0, None), (AT_MS + 5, 0), (1, AT_MS - 1)])
def test_age_of_the_first_message(stored_at_ms: int, expected: int | None) -> None:
    """An empty store has none; a message of a clock that was set back is not of the future."""
    told = by_name(native_samples(figures(earliestMessageTimeStamp=str(stored_at_ms))))
    found = told.get("rocketmq_storage_message_reserve_time", [(None, None)])
    assert [value for _, value in found] == [expected]


def test_broker_by_the_names_of_the_exporter() -> None:
    """Rates, lines of the runtime info, classes and rates that are there, members of groups."""
    told = by_name(exporter_samples(figures()))
    runtime = ("C", "10.0.0.9:10911", "", "V5_4_0", "7", "493")
    values = {name: found[0][1] for name, found in told.items() if found[0][0] == runtime}
    prefix = "rocketmq_brokeruntime_"
    assert {name for name, value in values.items() if value != 99} == {
        prefix + name
        for name in (
            *("dispatch_behind_bytes", "earliest_message_timestamp", "pmdt_0ms", "pmdt_0to10ms", "pmdt_10stomore"),
            *("put_tps10", "put_tps60", "put_tps600", "getfound_tps10", "gettotal_tps10", "gettotal_tps60"),
            *("gettransfered_tps10", "gettransfered_tps60", "gettransfered_tps600"),
            *("commitlogdir_capacity_total", "commitlogdir_capacity_free", "remain_howmanydata_toflush"),
        )
    }
    assert [values[prefix + name] for name in ("pmdt_0ms", "pmdt_0to10ms", "pmdt_10stomore")] == [71, 72, 73]
    assert [values[f"{prefix}put_tps{span}"] for span in (10, 60, 600)] == [1.5, 2.5, 3.5]
    assert [values[f"{prefix}gettotal_tps{span}"] for span in (10, 60)] == [5.5, 6.5]
    assert [values[f"{prefix}commitlogdir_capacity_{name}"] for name in ("total", "free")] == [1_000, 96]
    assert values[f"{prefix}remain_howmanydata_toflush"] == 92
    assert {name: found for name, found in told.items() if not name.startswith(prefix)} == {
        "rocketmq_broker_tps": [(("C", "10.0.0.9:10911", "b"), 9.25)],
        "rocketmq_broker_qps": [(("C", "10.0.0.9:10911", "b"), 9.75)],
        "rocketmq_producer_count": [(("C", "b", "p"), 3), (("C", "b", "q"), 1)],
        "rocketmq_group_count": [(("10.0.0.1:1,10.0.0.2:1", "c1,c2", "g"), 2), (("", "", "h"), 0)],
    }


@pytest.mark.parametrize(
    ("version", "name"),
    [
        *((0, "0"), (211, "211"), (212, "v4_0_0_snapshot"), (213, "v4_0_0"), (411, "v4_9_9")),
        *((412, "v5_0_0_snapshot"), (493, "v5_4_0"), (492, "v5_4_0_snapshot")),
    ],
)
def test_release_of_a_client(version: int, name: str) -> None:
    """Numbers from 4.0.0 on are regular; older ones stay numbers."""
    assert format_release(version) == name
