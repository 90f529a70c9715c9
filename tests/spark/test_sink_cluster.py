"""What the sink asks the cluster before the first task."""

import pytest
from pyspark.sql.types import StringType, StructField, StructType
from scripted_cluster import ScriptedCluster

from rocketlet.common.errors import ConfigError
from rocketlet.spark.sink.sink_options import parse_sink_options
from rocketlet.spark.sink.sink_writer import WriteResult, check_cluster, plan_stream


@pytest.mark.parametrize("topic", ["T", None], ids=["a topic", "topics in a column"])
async def test_cluster_that_takes_messages_is_fine(topic: str | None) -> None:
    """A topic that is there is found; where rows name their topics, an answer of the name server is enough."""
    async with ScriptedCluster() as cluster:
        cluster.routes["T"] = {"broker-a": 1}
        await cluster.add_broker("broker-a")
        await check_cluster(parse_sink_options(_options(cluster, topic)))


async def test_topic_that_no_broker_has_is_an_error() -> None:
    """Where topics are not made by themselves, a misspelt one shows at once."""
    async with ScriptedCluster() as cluster:
        with pytest.raises(ConfigError, match="topic Tropic takes no messages: no broker has the topic Tropic"):
            await check_cluster(parse_sink_options(_options(cluster, "Tropic")))


def _options(cluster: ScriptedCluster, topic: str | None) -> dict[str, str]:
    options = {"nameserver": cluster.nameserver.address}
    return options if topic is None else options | {"topic": topic}


def test_stream_that_would_replace_what_was_written_is_refused() -> None:
    """Output mode complete writes everything anew with each batch; a cluster cannot forget."""
    schema = StructType([StructField("body", StringType())])
    options = {"nameserver": "127.0.0.1:1", "topic": "T"}
    assert plan_stream(options, schema, overwrites=False).options.topic == "T"
    with pytest.raises(ConfigError, match="the rocketmq sink cannot overwrite; use outputMode"):
        plan_stream(options, schema, overwrites=True)


def test_counts_of_all_tasks_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A write ends with its sum; of a failed one, what stays is said, and tasks that failed have no counts."""
    schema = StructType([StructField("body", StringType())])
    stream = plan_stream({"nameserver": "127.0.0.1:1", "topic": "T"}, schema, overwrites=False)
    with caplog.at_level("INFO"):
        stream.commit([WriteResult(3, 0), WriteResult(4, 1)], 7)
        stream.abort([WriteResult(3, 0), None], 8)
    assert caplog.messages == [
        "batch 7: 7 messages stored by 2 tasks, 1 requests repeated",
        "write failed, its stored messages stay: batch 8: 3 messages stored by 1 tasks, 0 requests repeated",
    ]
