"""The table of topics."""

import msgspec
import pytest

from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.broker.topic.topics import TopicTable, boot_topics, format_topic, make_topic
from rocketlet.common.java_json import read_json_as
from rocketlet.common.metadata import DataVersion, TopicConfig, TopicConfigTable


def table(**settings: str) -> TopicTable:
    """Return the topics of a fresh broker; its clock stands at 7."""
    return TopicTable(BrokerConfig.from_java({"brokerName": "b", "brokerClusterName": "c", **settings}), lambda: 7)


def test_topics_of_a_fresh_broker() -> None:
    """A fresh broker has Java's topics with Java's queues and permissions."""
    config = BrokerConfig.from_java({"brokerName": "b", "brokerClusterName": "c"})
    assert {topic.topic_name: (topic.read_queue_nums, topic.perm) for topic in boot_topics(config)} == {
        "TBW102": (8, 7),
        "SELF_TEST_TOPIC": (1, 6),
        "BenchmarkTest": (1024, 6),
        "c": (16, 7),
        "b": (1, 7),
        "OFFSET_MOVED_EVENT": (1, 6),
        "SCHEDULE_TOPIC_XXXX": (18, 6),
        "c_REPLY_TOPIC": (1, 6),
        "rmq_sys_REVIVE_LOG_c": (8, 6),
        "rmq_sys_SYNC_BROKER_MEMBER_b": (1, 1),
        "RMQ_SYS_TRANS_HALF_TOPIC": (1, 6),
        "RMQ_SYS_TRANS_OP_HALF_TOPIC": (1, 6),
        "rmq_sys_wheel_timer": (1, 6),
    }


def test_settings_change_the_topics_of_a_fresh_broker() -> None:
    """Templates, cluster, broker and trace topics depend on settings."""
    topics = table(
        autoCreateTopicEnable="false",
        clusterTopicEnable="false",
        brokerTopicEnable="false",
        traceTopicEnable="true",
        timerWheelEnable="false",
    )
    assert topics.get("TBW102") is None
    assert topics.get("rmq_sys_wheel_timer") is None
    assert [topic.perm for name in ("c", "b", "RMQ_SYS_TRACE_TOPIC") if (topic := topics.get(name))] == [1, 1, 6]


@pytest.mark.parametrize(("wished", "queues"), [(4, 4), (20, 8), (-3, 0)])
def test_topic_after_a_template(wished: int, queues: int) -> None:
    """A topic has the wished queues, at most the template's, and its permission without the inherit bit."""
    topic = table().create_from("TBW102", "T", wished)
    assert topic == make_topic("T", queues)


def test_template_that_hands_nothing_down() -> None:
    """A template must exist and carry the inherit bit; TBW102 of an old file does not count with creation off."""
    topics = table(autoCreateTopicEnable="false")
    topics.put(make_topic("TBW102", 8, 7))
    topics.put(make_topic("plain", 8))
    assert [topics.create_from(name, "T", 4) for name in ("TBW102", "plain", "missing")] == [None] * 3
    assert topics.create_from("c", "T", 4) is not None


def test_each_change_moves_the_version() -> None:
    """Putting and deleting count, looking does not."""
    topics = table()
    before = topics.version
    topics.put(make_topic("T", 1))
    assert topics.version == DataVersion(counter=before.counter + 1, timestamp=7)
    topics.get("T")
    assert topics.delete("T")
    assert not topics.delete("T")
    assert (topics.version.counter, topics.change_count) == (before.counter + 2, 2)


def test_file_is_laid_over_the_fresh_topics() -> None:
    """What was saved comes back with its version; topics that the file lacks stay."""
    topics = table()
    topics.put(make_topic("T", 3))
    text = msgspec.json.encode(topics.content())
    other = table()
    other.load(read_json_as(text, TopicConfigTable))
    assert other.content() == topics.content()
    assert len(list(other)) == len(list(topics))


def test_file_of_java_is_read() -> None:
    """A file as 4.9 writes it, with tabs and without attributes, is read."""
    text = """{
\t"dataVersion":{"counter":3,"timestamp":1700000000000},
\t"topicConfigTable":{"T":{"order":true,"perm":4,"readQueueNums":2,"topicFilterType":"SINGLE_TAG","topicName":"T",
\t"topicSysFlag":0,"writeQueueNums":1}}
}"""
    topics = table()
    topics.load(read_json_as(text, TopicConfigTable))
    assert topics.get("T") == TopicConfig(topic_name="T", order=True, perm=4, read_queue_nums=2, write_queue_nums=1)
    assert topics.version.counter == 3


def test_order_list_of_a_name_server() -> None:
    """Exactly the named topics are ordered."""
    topics = table()
    topics.put(make_topic("A", 1))
    topics.put(make_topic("B", 1))
    topics.set_ordered(["A"])
    topics.set_ordered(["B"])
    assert [topic.topic_name for topic in topics if topic.order] == ["B"]


def test_topic_in_a_remark() -> None:
    """The text is Java's."""
    assert format_topic(make_topic("Topic540", 2)) == (
        "TopicConfig [topicName=Topic540, readQueueNums=2, writeQueueNums=2, perm=RW-, topicFilterType=SINGLE_TAG, "
        "topicSysFlag=0, order=false, attributes={}]"
    )
