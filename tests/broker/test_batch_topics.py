"""Topics made with ``queue.type=BatchCQ``, by raw requests: batches are stored as one record."""

import json
import pathlib

import pytest
from raw_calls import Caller, open_caller, send_header, topic_header

from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.common.codes import ResponseCode
from rocketlet.common.record import BatchPart, decode_record, encode_batch, iter_records
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.testing.manual_clock import ManualClock

TOPIC = topic_header("B", "BatchCQ")
BATCH = encode_batch(BatchPart(number, b"part%d" % number, b"TAGS\x01t\x02") for number in range(3))
KEY = "UNIQ_KEY\x01U\x02"
INNER_BATCH = 0x80


async def make_topic(caller: Caller) -> None:
    """Make the topic."""
    answer = await caller.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, TOPIC)
    assert answer.code == ResponseCode.SUCCESS


async def send_batch(caller: Caller, topic: str = "B", properties: str = KEY) -> dict[str, str]:
    """Send the batch and return the fields of the answer."""
    header = send_header(topic, 0, batch=True, properties=properties)
    answer = await caller.ask(RequestCode.SEND_BATCH_MESSAGE, header, BATCH)
    assert answer.code == ResponseCode.SUCCESS
    return answer.ext


async def test_batch_is_one_record(caller: Caller) -> None:
    """One id, the first offset, and the batch's key in the answer; the next message comes three offsets later."""
    await make_topic(caller)
    first = await send_batch(caller)
    assert (first["queueOffset"], first["batchUniqId"], len(first["msgId"])) == ("0", "U", 32)
    assert (await send_batch(caller))["queueOffset"] == "3"
    assert (await caller.send("B")).ext["queueOffset"] == "6"
    answer = await caller.pull("B", 1)
    records = list(iter_records(answer.body))
    assert [(one.queue_offset, one.sys_flag & 0xC0) for one in records] == [(0, 0xC0), (3, 0xC0), (6, 0)]
    assert (answer.ext["nextBeginOffset"], answer.ext["maxOffset"]) == ("7", "7")
    assert bytes(records[0].body) == BATCH
    wanted = {"UNIQ_KEY": "U", "INNER_NUM": "3", "INNER_BASE": "3", "CLUSTER": "cluster-a"}
    assert records[1].properties.items() >= wanted.items()


async def test_queue_without_messages_begins_at_minus_one(caller: Caller) -> None:
    """As the Java broker says of its batch queues, whether there are files of the queue or not."""
    await make_topic(caller)
    queue = {"topic": "B", "queueId": "0"}
    assert (await caller.ask(RequestCode.GET_MIN_OFFSET, queue)).ext["offset"] == "-1"
    assert (await caller.ask(RequestCode.GET_MAX_OFFSET, queue)).ext["offset"] == "0"
    await send_batch(caller)
    assert (await caller.ask(RequestCode.GET_MIN_OFFSET, queue)).ext["offset"] == "0"


async def test_batch_without_a_key_becomes_single_messages(caller: Caller) -> None:
    """As the Java broker does it; the answer names no batch."""
    await make_topic(caller)
    answer = await send_batch(caller, properties="")
    assert "batchUniqId" not in answer
    assert answer["msgId"].count(",") == 2
    records = list(iter_records((await caller.pull("B")).body))
    assert [one.queue_offset for one in records] == [0, 1, 2]


async def test_batch_to_an_ordinary_topic_is_taken_apart(caller: Caller) -> None:
    """The key alone does not keep a batch together."""
    answer = await send_batch(caller, topic="T")
    assert "batchUniqId" not in answer
    assert [one.queue_offset for one in iter_records((await caller.pull("T")).body)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("topic", "properties", "sys_flag"),
    [("T", "INNER_NUM\x013\x02", 0), ("B", "INNER_NUM\x013\x02", 0), ("T", "", INNER_BATCH), ("B", "", INNER_BATCH)],
    ids=["count alone", "count alone on a batch topic", "bit on an ordinary topic", "bit without a batch"],
)
async def test_illegal_single_messages(topic: str, properties: str, sys_flag: int, caller: Caller) -> None:
    """INNER_NUM without the bit, the bit on an ordinary topic, and the bit on what is no batch are answered 13."""
    await make_topic(caller)
    await caller.send("T")
    answer = await caller.send(topic, properties=properties, sys_flag=sys_flag)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL


async def test_illegal_batch(caller: Caller) -> None:
    """INNER_NUM on a batch that is taken apart is answered 13."""
    header = send_header("T", 0, batch=True, properties="INNER_NUM\x013\x02")
    answer = await caller.ask(RequestCode.SEND_BATCH_MESSAGE, header, BATCH)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL


async def test_kind_of_a_topic_with_messages_stays(caller: Caller) -> None:
    """A topic that exists cannot become a batch topic, nor the other way round."""
    await caller.send("B")
    answer = await caller.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, TOPIC)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None
    assert "unchangeable" in answer.remark


async def test_waiting_pull_gets_the_batch(caller: Caller, broker: Broker) -> None:
    """A pull that waits at the end of the queue is answered with the batch that arrives."""
    await make_topic(caller)
    await send_batch(caller)
    async with open_caller(broker.address) as other:
        await send_batch(other)
    answer = await caller.pull("B", 3)
    assert decode_record(answer.body).queue_offset == 3


async def test_restarted_broker_goes_on_counting(settings: dict[str, str], clock: ManualClock) -> None:
    """The attribute is in topics.json, and the next batch follows the last one."""
    async with Broker(BrokerConfig.from_java(settings), clock) as broker, open_caller(broker.address) as caller:
        await make_topic(caller)
        await send_batch(caller)
    topics = json.loads((pathlib.Path(settings["storePathRootDir"]) / "config" / "topics.json").read_text())
    assert topics["topicConfigTable"]["B"]["attributes"] == {"queue.type": "BatchCQ"}
    async with Broker(BrokerConfig.from_java(settings), clock) as broker, open_caller(broker.address) as caller:
        assert (await send_batch(caller))["queueOffset"] == "3"


async def test_topic_that_was_not_saved_is_known_by_its_queues(settings: dict[str, str], clock: ManualClock) -> None:
    """A broker that was killed before it saved the topic finds its batch queues, and lists the topic again."""
    async with Broker(BrokerConfig.from_java(settings), clock) as broker, open_caller(broker.address) as caller:
        await make_topic(caller)
        await send_batch(caller)
    for path in (pathlib.Path(settings["storePathRootDir"]) / "config").glob("topics.json*"):
        path.unlink()
    async with Broker(BrokerConfig.from_java(settings), clock) as broker, open_caller(broker.address) as caller:
        assert (await send_batch(caller))["queueOffset"] == "3"
        topic = await caller.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "B"})
    assert json.loads(topic.body)["attributes"] == {"queue.type": "BatchCQ"}


MULTI = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b", "INNER_MULTI_QUEUE_OFFSET": "7,8"}


async def test_light_queue_properties_are_kept(caller: Caller) -> None:
    """Without light queues their properties are stored as they came."""
    await caller.send("T", properties="".join(f"{name}\x01{value}\x02" for name, value in MULTI.items()))
    assert decode_record((await caller.pull("T")).body).properties.items() >= MULTI.items()
