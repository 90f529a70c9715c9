"""What a push consumer answers to the requests of a scripted broker."""

import pytest
from inbox import HeldListener, Inbox
from push_bench import PULL, Bench, Feed, pulled, records
from scripted_cluster import offset_of

from rocketlet.client import MessageQueue, PushConsumer, Session, Statistics
from rocketlet.common.codes import ResponseCode
from rocketlet.remoting.bodies.body import decode_body, encode_body
from rocketlet.remoting.bodies.client import (
    ConsumedDirectly,
    ConsumerOffsets,
    DirectResult,
    LockBatchBody,
    LockedQueues,
    OwnedQueue,
    ResetOffsets,
    RunningInfo,
    TopicFigures,
)
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.headers.client import (
    ConsumeDirectlyHeader,
    ConsumerGroupHeader,
    GroupTopicHeader,
    RunningInfoHeader,
)

QUEUE = MessageQueue("T", "broker-a", 0)
LIMIT_MS = 3000


async def ask(bench: Bench, code: RequestCode, header: object, body: bytes = b"") -> Command:
    """Ask the client as its broker does."""
    command = Command.request(code, header, body)  # pyright: ignore[reportArgumentType] # any header
    return await bench.broker.connections[0].request(command, LIMIT_MS)


async def test_running_info_tells_of_the_queues(bench: Bench) -> None:
    """Offsets, what is buffered, the subscriptions and when it began."""
    bench.broker.answers[PULL] = Feed(pulled(3, records(0, 3)))
    held, now_ms = HeldListener(), bench.clock.now_ms()
    async with bench.listening(held):
        await held.begun.wait()
        answer = await ask(bench, RequestCode.GET_CONSUMER_RUNNING_INFO, RunningInfoHeader(consumer_group="cg"))
        info = decode_body(RunningInfo, answer.body)
        header = RunningInfoHeader(consumer_group="cg", with_stacks=True)
        answer = await ask(bench, RequestCode.GET_CONSUMER_RUNNING_INFO, header)
        held.may_end.set()
    assert info.mq_table == {
        QUEUE: OwnedQueue(
            commit_offset=0,
            cached_msg_min_offset=0,
            cached_msg_max_offset=2,
            cached_msg_count=3,
            last_pull_timestamp=now_ms,
            last_consume_timestamp=now_ms,
        )
    }
    assert info.properties == {
        "PROP_NAMESERVER_ADDR": f"{bench.cluster.nameserver.address};",
        "PROP_THREADPOOL_CORE_SIZE": "20",
        "PROP_CONSUMEORDERLY": "false",
        "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
        "PROP_CLIENT_VERSION": "rocketlet",
        "PROP_CONSUMER_START_TIMESTAMP": str(now_ms),
        "consumerGroup": "cg",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "consumeMessageBatchMaxSize": "1",
        "pullBatchSize": "32",
        "maxReconsumeTimes": "-1",
    }
    assert info.status_table == {"T": TopicFigures(), "%RETRY%cg": TopicFigures()}
    assert {each.topic for each in info.subscription_set} == {"T", "%RETRY%cg"}
    assert info.jstack is None
    assert "test_running_info_tells_of_the_queues" in (decode_body(RunningInfo, answer.body).jstack or "")


async def test_running_info_of_an_orderly_consumer_tells_of_its_locks(bench: Bench) -> None:
    """When each was confirmed last, by the clock of the day; and what was consumed, if it counts."""

    def lock(command: Command) -> Command:
        body = LockedQueues(queues=[each for each in decode_body(LockBatchBody, command.body).mq_set if each == QUEUE])
        return Command.response(ResponseCode.SUCCESS, body=encode_body(body))

    bench.broker.answers |= {RequestCode.LOCK_BATCH_MQ: lock, PULL: Feed(pulled(3, records(0, 3)))}
    inbox, locked_at_ms = Inbox(), bench.clock.now_ms()
    async with bench.listening(inbox, is_orderly=True, hooks=(Statistics(bench.clock),), pull_messages=7):
        await inbox.wait_for(3)
        await bench.clock.elapse(700)
        answer = await ask(bench, RequestCode.GET_CONSUMER_RUNNING_INFO, RunningInfoHeader(consumer_group="cg"))
    info = decode_body(RunningInfo, answer.body)
    assert (info.properties["PROP_CONSUMEORDERLY"], info.properties["pullBatchSize"]) == ("true", "7")
    queue = info.mq_table[QUEUE]
    assert (queue.locked, queue.last_lock_timestamp, queue.commit_offset) == (True, locked_at_ms, 3)
    assert (queue.last_pull_timestamp, queue.last_consume_timestamp) == (locked_at_ms, locked_at_ms + 700)
    assert (queue.cached_msg_min_offset, queue.cached_msg_max_offset, queue.cached_msg_count) == (0, 0, 0)
    assert info.status_table["T"].succeeded_per_second == 3 / 60
    assert info.status_table["%RETRY%cg"] == TopicFigures()


async def test_running_info_tells_of_whole_mebibytes(bench: Bench) -> None:
    """Of bodies that are buffered, as in Java."""
    body = bytes(1 << 20)
    bench.broker.answers[PULL] = Feed(pulled(4, records(0, 3, body[:-1]) + records(3, 1, body)))
    held = HeldListener()
    async with bench.listening(held):
        await held.begun.wait()
        answer = await ask(bench, RequestCode.GET_CONSUMER_RUNNING_INFO, RunningInfoHeader(consumer_group="cg"))
        assert decode_body(RunningInfo, answer.body).mq_table[QUEUE].cached_msg_size == 3
        held.may_end.set()


async def test_broker_names_group_and_topic_within_the_namespace(bench: Bench) -> None:
    """A consumer in a namespace finds itself in what is asked, by a request or a notice."""
    bench.cluster.routes["ns%T"] = {"broker-a": 1}
    members = RequestCode.GET_CONSUMER_LIST_BY_GROUP
    async with bench.listening(Inbox(), namespace="ns"):
        answer = await ask(bench, RequestCode.GET_CONSUMER_RUNNING_INFO, RunningInfoHeader(consumer_group="ns%cg"))
        assert decode_body(RunningInfo, answer.body).properties["consumerGroup"] == "cg"
        await bench.clock.settle()
        asked = len(bench.broker.asked(members))
        header = ConsumerGroupHeader(consumer_group="ns%cg")
        bench.broker.connections[0].send_oneway(Command.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header))
        await bench.broker.wait_asked(members, asked + 1)


async def test_other_group_of_the_session_answers_itself(bench: Bench) -> None:
    """A group that is not here is answered as a request that nobody knows."""
    async with (
        Session(bench.cluster.nameserver.address, bench.clock) as session,
        PushConsumer("one", session=session) as one,
        PushConsumer("two", session=session) as two,
    ):
        one.subscribe("T", "*", Inbox())
        two.subscribe("T", "*", Inbox())
        await bench.elapse_until(lambda: len(one.queues) == len(two.queues) == 1)
        for group in ("one", "two"):
            answer = await ask(bench, RequestCode.GET_CONSUMER_RUNNING_INFO, RunningInfoHeader(consumer_group=group))
            assert decode_body(RunningInfo, answer.body).properties["consumerGroup"] == group
        for code, header in (
            (RequestCode.GET_CONSUMER_RUNNING_INFO, RunningInfoHeader(consumer_group="three")),
            (RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, GroupTopicHeader(topic="T", group="three")),
            (RequestCode.CONSUME_MESSAGE_DIRECTLY, ConsumeDirectlyHeader(consumer_group="three")),
        ):
            assert (await ask(bench, code, header)).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


async def test_offsets_of_a_topic_are_told(bench: Bench) -> None:
    """Those in memory, which may be ahead of the stored ones."""
    bench.broker.answers[PULL] = Feed(pulled(3, records(0, 3)))
    inbox = Inbox()
    consumer = bench.listening(inbox)
    async with consumer:
        await inbox.wait_for(3)
        header = GroupTopicHeader(topic="T", group="cg")
        answer = await ask(bench, RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, header)
        assert decode_body(ConsumerOffsets, answer.body).message_queue_table == {QUEUE: 3}
        consumer.unsubscribe("T")  # the next owner's offset would seem to be that of before
        await bench.elapse_until(lambda: not consumer.queues)
        answer = await ask(bench, RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, header)
        assert decode_body(ConsumerOffsets, answer.body).message_queue_table == {}


async def test_reset_begins_anew_at_the_offset(bench: Bench) -> None:
    """It is stored first; a listener that still runs does not move it, and other topics are left alone."""
    bench.broker.answers[PULL] = Feed(pulled(6, records(5, 1)))
    bench.broker.answers[RequestCode.QUERY_CONSUMER_OFFSET] = lambda _: offset_of((bench.commits() or [5])[-1])
    held = HeldListener()
    async with bench.listening(held):
        await held.begun.wait()
        offsets = {QUEUE: 2, MessageQueue("U", "broker-a", 0): 1}
        body = encode_body(ResetOffsets(offset_table=offsets))
        header = GroupTopicHeader(topic="T", group="cg")
        answer = await ask(bench, RequestCode.RESET_CONSUMER_CLIENT_OFFSET, header, body)
        assert answer.code == ResponseCode.SUCCESS
        waited_ms = await bench.elapse_until(lambda: bench.pulls()[-1].queue_offset == 2)
        assert waited_ms <= 1_000  # it does not wait for the next rebalance
        held.may_end.set()
    assert set(bench.commits()) == {2}


@pytest.mark.parametrize(
    ("body", "remark"), [(b"", "cannot be read"), (b"x" * 100, "cannot be read")], ids=["empty", "nonsense"]
)
async def test_message_that_cannot_be_read_is_answered_with_an_error(bench: Bench, body: bytes, remark: str) -> None:
    """The administrator learns why."""
    async with bench.listening(Inbox()):
        header = ConsumeDirectlyHeader(consumer_group="cg", broker_name="broker-a")
        answer = await ask(bench, RequestCode.CONSUME_MESSAGE_DIRECTLY, header, body)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert remark in (answer.remark or "")


async def test_message_out_of_turn_needs_a_listener(bench: Bench) -> None:
    """Its offset does not move, and without a listener of its topic that is the answer."""
    inbox = Inbox()
    consumer = bench.listening(inbox)
    async with consumer:
        header = ConsumeDirectlyHeader(consumer_group="cg", broker_name="broker-a")
        answer = await ask(bench, RequestCode.CONSUME_MESSAGE_DIRECTLY, header, records(9, 1))
        assert decode_body(ConsumedDirectly, answer.body).consume_result is DirectResult.CR_SUCCESS
        assert [message.queue_offset for message in inbox.messages] == [9]
        consumer.unsubscribe("T")
        answer = await ask(bench, RequestCode.CONSUME_MESSAGE_DIRECTLY, header, records(9, 1))
        told = decode_body(ConsumedDirectly, answer.body)
        assert told.consume_result is DirectResult.CR_THROW_EXCEPTION
        assert told.remark == "LookupError: no listener for the topic T"
    assert 10 not in bench.commits()
