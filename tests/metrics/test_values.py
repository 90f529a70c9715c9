"""What the metrics tell after a load that is known."""

import asyncio
import pathlib
from typing import Any

import pytest
from metrics_scrape import OPENMETRICS, Scrape, scrape_url
from raw_calls import Caller, open_caller, until
from real_broker import running_broker, running_nameserver

from rocketlet.broker.admin import topic_figures
from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.common.codes import ResponseCode
from rocketlet.common.errors import ConfigError
from rocketlet.common.ids import parse_offset_id
from rocketlet.common.message import PULL_SUBSCRIPTION, PULL_SUSPEND
from rocketlet.metrics.server import MetricsConfig, MetricsServer
from rocketlet.remoting.codec.request_codes import RequestCode as Code
from rocketlet.remoting.headers.message import SendBackHeader
from rocketlet.remoting.transport.event_loop import LoopClock

NODE = {"cluster": "DefaultCluster", "node_type": "broker", "node_id": "broker-a"}


async def commit(caller: Caller, group: str, topic: str, queue_offset: int) -> None:
    """Commit an offset of queue 0."""
    fields = {"consumerGroup": group, "topic": topic, "queueId": "0", "commitOffset": str(queue_offset)}
    assert (await caller.ask(Code.UPDATE_CONSUMER_OFFSET, fields)).code == ResponseCode.SUCCESS


async def load(caller: Caller) -> None:
    """Send ten messages; ``g`` is handed out seven of them, commits three, and gives one up."""
    sent = [await caller.send("T", b"x" * 100) for _ in range(10)]
    assert (await caller.heartbeat("c1", "g", {"T": "*"}, version=1)).code == ResponseCode.SUCCESS
    assert (await caller.pull("T", consumer_group="g", max_messages=7)).code == ResponseCode.SUCCESS
    await commit(caller, "g", "T", 3)
    log_offset = parse_offset_id(sent[0].ext["msgId"])[1]
    header = SendBackHeader(log_offset=log_offset, delay_level=-1, group="g", origin_topic="T")
    assert (await caller.ask(Code.CONSUMER_SEND_MSG_BACK, header, version=493)).code == ResponseCode.SUCCESS


async def test_dead_letters_of_ordered_consumers(caller: Caller, scrape: Scrape) -> None:
    """They send these to the retry topic themselves; they count for the group and the topic, as those of others."""
    await load(caller)
    fields: dict[str, Any] = {"reconsume_times": 17, "properties": "RETRY_TOPIC\x01T\x02"}
    assert (await caller.send("%RETRY%g", **fields)).code == ResponseCode.SUCCESS
    assert (await caller.pull("%DLQ%g", max_messages=9)).code == ResponseCode.SUCCESS
    told = await scrape()
    assert told.one("rocketmq_send_to_dlq_messages_total", topic="T", consumer_group="g") == 2


async def test_values_of_a_5_broker(caller: Caller, scrape: Scrape) -> None:
    """Messages in and out, backlog, in flight and dead letters are what was done."""
    await load(caller)
    told = await scrape()
    topic = {**NODE, "topic": "T"}
    group = {**topic, "consumer_group": "g", "is_system": "false"}
    assert told.one("rocketmq_messages_in_total", message_type="normal", is_system="false", **topic) == 10
    assert told.one("rocketmq_throughput_in_total", **topic) > 1000
    assert told.one("rocketmq_messages_out_total", is_retry="false", **group) == 7
    assert told.one("rocketmq_throughput_out_total", **group) > 700
    assert told.one("rocketmq_send_to_dlq_messages_total", **group) == 1
    assert told.one("rocketmq_consumer_lag_messages", **group) == 7
    assert told.one("rocketmq_consumer_inflight_messages", **group) == 4
    assert told.one("rocketmq_consumer_ready_messages", **group) == 3
    assert told.one("rocketmq_consumer_lag_latency", **group) >= told.one(
        "rocketmq_consumer_queueing_latency_milliseconds", **group
    )
    members = told.labels("rocketmq_consumer_connections")
    assert [(one["consumer_group"], one["consume_mode"], one["protocol_type"]) for one in members] == [
        ("g", "push", "remoting")
    ]
    assert told.one("rocketmq_broker_permission", **NODE) == 6
    assert told.one("rocketmq_storage_size_bytes", **NODE) > 0


async def test_type_of_what_waits(caller: Caller, scrape: Scrape) -> None:
    """Where delayed messages and halves of transactions wait, all are of that kind; elsewhere the topic's counts."""
    await caller.send("T", properties="DELAY\x015\x02")
    await caller.send("T", properties="TRAN_MSG\x01true\x02", sys_flag=4)
    await caller.send("T")
    told = await scrape()
    types = {one["topic"]: one["message_type"] for one in told.labels("rocketmq_messages_in_total")}
    assert types == {"SCHEDULE_TOPIC_XXXX": "delay", "RMQ_SYS_TRANS_HALF_TOPIC": "transaction", "T": "normal"}
    assert told.one("rocketmq_storage_size_bytes", storage_type="local", storage_medium="disk") > 0


async def test_values_of_the_exporter(caller: Caller, scrape: Scrape) -> None:
    """The same by the exporter's names: ends, committed offsets, backlog, dead letters, totals of the runtime info."""
    await load(caller)
    told = await scrape()
    where = {"cluster": "DefaultCluster", "broker": "broker-a"}
    assert told.one("rocketmq_producer_offset", topic="T", **where) == 10
    assert told.one("rocketmq_consumer_offset", topic="T", group="g", **where) == 3
    assert told.one("rocketmq_group_diff", topic="T", group="g", countOfOnlineConsumers="1", msgModel="1") == 7
    assert told.one("rocketmq_topic_dlq_offset", group="g", **where) == 1
    assert told.one("rocketmq_topic_retry_offset", topic="%RETRY%g", **where) == 0
    assert told.one("rocketmq_group_get_latency_by_storetime", topic="T", group="g") >= 0
    assert told.one("rocketmq_group_count", group="g", localaddr="c1") == 1
    assert told.one("rocketmq_brokeruntime_msg_put_total_today_now") == 11
    assert told.one("rocketmq_brokeruntime_msg_gettotal_today_now") == 7
    (labels,) = told.labels("rocketmq_brokeruntime_commitlog_maxoffset")
    assert labels.keys() == {"cluster", "brokerIP", "brokerHost", "des", "boottime", "broker_version"}


async def test_held_pulls(caller: Caller, broker: Broker, scrape: Scrape) -> None:
    """A pull that waits is told while it waits."""
    await caller.send("T", b"one")
    asking = caller.pull("T", 1, sys_flag=PULL_SUBSCRIPTION | PULL_SUSPEND)
    async with asyncio.TaskGroup() as tasks:
        pull = tasks.create_task(asking)
        await until(lambda: len(broker.figures.long_polling) == 1)
        assert (await scrape()).one("rocketlet_held_pulls") == 1
        await caller.send("T", b"two")
        assert (await pull).code == ResponseCode.SUCCESS
    assert (await scrape()).one("rocketlet_held_pulls") == 0


async def test_group_without_members(caller: Caller, scrape: Scrape) -> None:
    """Its backlog is told as long as it has offsets; one that has committed nothing is not behind as 5.x counts."""
    for _ in range(5):
        await caller.send("T")
    await caller.heartbeat("c1", "new", {"T": "*"})
    told = await scrape()
    assert told.one("rocketmq_consumer_lag_messages", consumer_group="new", topic="T") == 0
    assert told.one("rocketmq_group_diff", group="new", topic="T") == 5
    async with open_caller(caller.connection.peer) as other:
        await other.heartbeat("c2", "gone", {"T": "*"})
        await commit(other, "gone", "T", 2)
    await caller.ask(Code.UNREGISTER_CLIENT, {"clientID": "c2", "consumerGroup": "gone"})
    told = await scrape()
    assert told.one("rocketmq_consumer_lag_messages", consumer_group="gone", topic="T") == 3


async def test_deleted_topic_is_told_no_more(
    caller: Caller, broker: Broker, scrape: Scrape, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic that goes while it is measured is left out, and the rest is told."""
    await load(caller)
    await caller.send("other")
    monkeypatch.setattr(topic_figures, "ROWS_IN_RUN", 1)
    runs = broker.figures.looks.look()
    seen = [one.name for one in (await anext(runs)).topics]
    broker.figures.tables.topics.delete("T")
    seen += [one.name async for run in runs for one in run.topics]
    assert "T" not in seen and "other" in seen  # noqa: PT018 # one fact
    told = await scrape()
    assert told.all("rocketmq_messages_in_total", topic="T") == []
    assert told.one("rocketmq_messages_in_total", topic="other") == 1


@pytest.mark.parametrize("accept", [OPENMETRICS, "text/plain;version=0.0.4", "*/*", ""])
async def test_formats_tell_the_same(accept: str, caller: Caller, scrape: Scrape) -> None:
    """OpenMetrics and the text format are parsed strictly to the same values; odd names are escaped."""
    await caller.send("%odd|name-1_")
    client = 'c"\\\n1'
    await caller.heartbeat(client, "g", {"%odd|name-1_": "*"})
    told = await scrape(accept)
    assert told.one("rocketmq_messages_in_total", topic="%odd|name-1_") == 1
    assert told.one("rocketmq_group_count", localaddr=client) == 1


async def test_two_brokers_in_one_process(tmp_path: pathlib.Path) -> None:
    """Each has a port of its own and tells of itself; labels of the settings are in all metrics but own ones."""
    labels = {"Env": "test", "topic": "never"}
    async with (
        running_nameserver() as nameserver,
        running_broker(nameserver, tmp_path / "a") as first,
        running_broker(nameserver, tmp_path / "b", "broker-b") as second,
        MetricsServer(first.figures, MetricsConfig(labels=labels), LoopClock()) as of_first,
        MetricsServer(second.figures, MetricsConfig(), LoopClock()) as of_second,
        open_caller(second.address) as caller,
    ):
        await caller.send("T")
        told, other = await scrape_url(of_first.url), await scrape_url(of_second.url)
    assert told.all("rocketmq_messages_in_total", topic="T") == []
    assert other.one("rocketmq_messages_in_total", topic="T", node_id="broker-b") == 1
    assert told.one("rocketmq_broker_permission", Env="test", topic="never", node_id="broker-a") == 6
    assert told.all("rocketmq_producer_offset", topic="never") == []
    assert all("Env" not in one for one in other.labels("rocketmq_broker_permission"))


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"metricsExporterType": "STATSD"}, "metricsExporterType"),
        ({"metricsPromExporterPort": "65536"}, "metricsPromExporterPort"),
        ({"metricsLabel": "a:b,c"}, "metricsLabel"),
        ({"metricsLabel": "9:b"}, "metricsLabel"),
        ({"metricsLabel": "__a:b"}, "metricsLabel"),
    ],
)
def test_settings_that_cannot_be_used(settings: dict[str, Any], key: str) -> None:
    """A value that cannot be used stops the start and names its key."""
    with pytest.raises(ConfigError) as refused:
        BrokerConfig.from_java(settings)
    assert refused.value.key == key
