"""The table of topics."""

import msgspec
import pytest
from msgspec.structs import replace

from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.broker.settings.live import LiveSettings
from rocketlet.broker.topic.topics import TopicTable, boot_topics, format_topic, make_topic
from rocketlet.common.java_json import read_json_as
from rocketlet.common.metadata import DataVersion, TopicConfig, TopicConfigTable


def table(**settings: str) -> TopicTable:
    """Return the topics of a fresh broker; its clock stands at 7."""
    config = BrokerConfig.from_java({"brokerName": "b", "brokerClusterName": "c", **settings})
    return TopicTable(LiveSettings(config, "127.0.0.1"), lambda: 7)


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
    found = [topics.get(name) for name in ("c", "b", "RMQ_SYS_TRACE_TOPIC")]
    assert [(topic.read_queue_nums, topic.perm) for topic in found if topic] == [(16, 1), (1, 1), (1, 6)]


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


def test_topic_takes_over_what_its_template_has_besides() -> None:
    """The type of its filter and its flags are the template's, and so is its permission but for the inherit bit."""
    topics = table()
    template = TopicConfig(
        topic_name="W", read_queue_nums=2, write_queue_nums=3, perm=3, topic_filter_type="MULTI_TAG", topic_sys_flag=2
    )
    topics.put(template)
    assert topics.create_from("W", "T", 4) == replace(
        template, topic_name="T", read_queue_nums=3, write_queue_nums=3, perm=2
    )


def test_topic_that_is_there_is_not_made_again() -> None:
    """Who needs a topic gets the one that there is, whatever queues it wishes, and hears whether it is new."""
    topics = table()
    made, is_new = topics.ensure("T", 3)
    assert (made, is_new) == (make_topic("T", 3), True)
    assert topics.ensure("T", 9) == (made, False)
    assert (topics.change_count, topics.get("T")) == (1, made)


def test_new_topics_are_noted_until_they_are_saved() -> None:
    """Those that a fresh broker has, and changes of others, are not waited for."""
    topics = table()
    topics.put(make_topic("T", 1))
    assert topics.unsaved == {"T"}
    topics.unsaved.clear()
    topics.put(make_topic("T", 2))
    topics.put(make_topic("TBW102", 2, 7))
    assert topics.unsaved == set()


def test_order_list_changes_what_differs_only() -> None:
    """Each topic that becomes ordered or ceases to be is a change, others are none; the same list changes nothing."""
    topics = table()
    counts = [topics.change_count]
    for ordered in (["TBW102", "c"], ["TBW102", "c"], ["b"], []):
        topics.set_ordered(ordered)
        counts.append(topics.change_count)
    assert counts == [0, 2, 2, 5, 6]


def test_deleted_topic_is_later_than_its_messages() -> None:
    """The version moves by a millisecond beyond the clock, so that no start takes the topic for one not saved."""
    topics = table()
    topics.put(make_topic("T", 1))
    topics.delete("T")
    assert (topics.version.timestamp, topics.get("T")) == (8, None)
    other = table()
    other.load(topics.content())
    assert other.saved_at_ms == 8


def test_topics_that_were_not_saved_are_made_again() -> None:
    """With the queues that hold messages: system topics are none of them, batch topics are what they were."""
    topics = table()
    topics.restore({"T": 3, "RMQ_SYS_TRACE_TOPIC": 1})
    assert (topics.get("T"), topics.get("RMQ_SYS_TRACE_TOPIC")) == (make_topic("T", 3), None)
    topics.adopt_batch_topics({"T": 5, "B": 0, "C": 2})
    assert topics.get("T") == make_topic("T", 3)
    batch = [topic for name in ("B", "C") if (topic := topics.get(name))]
    assert [(topic.write_queue_nums, topic.attributes) for topic in batch] == [
        (1, {"queue.type": "BatchCQ"}),
        (2, {"queue.type": "BatchCQ"}),
    ]


def test_all_of_a_topic_in_a_remark() -> None:
    """Each bit of the permission has its letter, attributes stand behind each other."""
    topic = TopicConfig(
        topic_name="T",
        read_queue_nums=1,
        write_queue_nums=2,
        perm=5,
        topic_sys_flag=3,
        order=True,
        attributes={"queue.type": "SimpleCQ", "message.type": "FIFO"},
    )
    assert format_topic(topic) == (
        "TopicConfig [topicName=T, readQueueNums=1, writeQueueNums=2, perm=R-X, topicFilterType=SINGLE_TAG, "
        "topicSysFlag=3, order=true, attributes={queue.type=SimpleCQ, message.type=FIFO}]"
    )
    assert "perm=-W-" in format_topic(make_topic("T", 1, 2))
