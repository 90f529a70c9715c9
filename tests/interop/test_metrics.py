"""The metrics of a broker that the official Java client works with."""

from collections.abc import Callable

from interop.clients import Admin, Outgoing, Producer, PushConsumer
from interop.driver import Driver
from interop.servers import Server, free_port
from metrics_scrape import scrape_url

StartServer = Callable[..., Server]


async def test_metrics_of_java_clients(java: Driver, fresh_server: StartServer, new_name: Callable[[], str]) -> None:
    """A property file of a stock broker opens the port; what Java sends and consumes is told, and who is connected."""
    port, topic = free_port(1), new_name()
    server = fresh_server(metricsExporterType="PROM", metricsPromExporterPort=str(port), metricsLabel="Env:test")
    group = f"{topic}-group"
    with Admin(java, namesrv=server.namesrv) as admin:
        admin.create_topic(server.broker, topic, 4)  # else the consumer would hear of it half a minute later
    with (
        Producer(java, namesrv=server.namesrv) as producer,
        PushConsumer(java, namesrv=server.namesrv, group=group, subscriptions={topic: "*"}) as consumer,
    ):
        producer.send_all(topic, *[Outgoing(b"%d" % number) for number in range(30)])
        assert len(consumer.received(30)) == 30
        told = await scrape_url(f"http://127.0.0.1:{port}/metrics")
        language = {"language": "java", "protocol_type": "remoting"}
        assert told.one("rocketmq_messages_in_total", topic=topic, Env="test") == 30
        assert told.one("rocketmq_messages_out_total", topic=topic, consumer_group=group) == 30
        assert told.one("rocketmq_consumer_ready_messages", topic=topic, consumer_group=group) == 0
        assert told.one("rocketmq_producer_offset", topic=topic, Env="test") == 30
        assert told.one("rocketmq_consumer_connections", consumer_group=group, consume_mode="push", **language) == 1
        versions = {one["version"] for one in told.labels("rocketmq_producer_connections")}
        assert {version[:3] for version in versions} <= {"v5_", "v4_"}
    told = await scrape_url(f"http://127.0.0.1:{port}/metrics")  # a consumer that ends commits
    where = {"topic": topic, "group": group}
    assert told.one("rocketmq_consumer_offset", **where) == 30
    assert told.one("rocketmq_consumer_lag_messages", topic=topic, consumer_group=group) == 0
    assert told.one("rocketmq_group_diff", **where) == 0
