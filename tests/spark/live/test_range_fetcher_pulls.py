"""What a reading asks brokers, and what it makes of their answers."""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace

import pytest
from scripted_cluster import ScriptedCluster, ScriptedServer, refused

from rocketlet.common.codes import ResponseCode
from rocketlet.common.errors import DataLossError, RemotingError, ResponseError, RocketletError
from rocketlet.common.metadata import TopicConfig
from rocketlet.export.plan.selection import Selection
from rocketlet.export.write.pulled_reader import PulledRecords
from rocketlet.remoting.bodies.body import encode_body
from rocketlet.remoting.codec.command import Command, decode_header
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.headers.pull import PullHeader, PullReply
from rocketlet.spark.cluster.cluster_options import ClusterOptions, QueueChoice
from rocketlet.spark.cluster.offset_bounds import DataLoss, OffsetBound
from rocketlet.spark.cluster.queue_ranges import QueueRange
from rocketlet.spark.live.range_fetcher import RangeFetcher
from rocketlet.spark.options.cluster_access import Access

PULL, TOPIC = RequestCode.PULL_MESSAGE, RequestCode.GET_TOPIC_CONFIG
WARNS = DataLoss(fails=False)
Answer = Callable[[Command], Command]


@pytest.fixture
async def cluster() -> AsyncIterator[ScriptedCluster]:
    """Run a name server and broker-a with a topic T."""
    async with ScriptedCluster() as running:
        await running.add_broker("broker-a")
        running.routes["T"] = {"broker-a": 1}
        yield running


def options_of(cluster: ScriptedCluster, retries: int = 0) -> ClusterOptions:
    """Return the options of a reading that does not pause."""
    access = Access(cluster.nameserver.address, retries=retries, retry_interval_ms=0)
    return ClusterOptions(access, QueueChoice("subscribe", frozenset({"T"})), OffsetBound("s"), OffsetBound("e"))


def range_of(server: ScriptedServer, start: int, stop: int) -> QueueRange:
    """Return a range of queue 0."""
    return QueueRange("broker-a", server.address, "T", 0, start, stop)


def found(next_offset: int, body: bytes = b"", code: int = ResponseCode.SUCCESS) -> Command:
    """Answer a pull."""
    reply = PullReply(suggest_which_broker_id=0, next_begin_offset=next_offset, min_offset=0, max_offset=0)
    return Command.response(code, ext=reply, body=body)


def giving(most: int, first: int = 0, end: int = 1 << 40) -> Answer:
    """Return the answer of a broker that gives so many messages at most, as one byte each, of those that it has."""

    def answer(command: Command) -> Command:
        header = decode_header(PullHeader, command)
        at = header.queue_offset
        if at < first:
            return found(first, code=ResponseCode.PULL_OFFSET_MOVED)
        if at >= end:
            return found(end, code=ResponseCode.PULL_OFFSET_MOVED if at > end else ResponseCode.PULL_NOT_FOUND)
        stop = min(at + min(most, header.max_messages), end)
        return found(stop, bytes(number % 256 for number in range(at, stop)))

    return answer


async def fetch(fetcher: RangeFetcher) -> list[PulledRecords]:
    """Return all answers."""
    all_found: list[PulledRecords] = []
    while (some := await fetcher.collect()) is not None:
        all_found += some
    return all_found


def offsets(pulled: Sequence[PulledRecords]) -> list[tuple[int, int]]:
    """Return what answers cover, and have their bodies be that."""
    for each in pulled:
        assert each.body == bytes(number % 256 for number in range(each.first, each.end))
        assert (each.topic, each.queue_id) == ("T", 0)
    return [(each.first, each.end) for each in pulled]


async def test_range_is_pulled_in_pieces(cluster: ScriptedCluster) -> None:
    """Of the length of the last answers; what a pull did not bring is pulled after it."""
    broker = cluster.brokers["broker-a"]
    broker.answers[PULL] = giving(20)
    options = replace(options_of(cluster), pulls_at_once=1)
    pulled = await fetch(RangeFetcher([range_of(broker, 5, 100)], options))
    assert offsets(pulled) == [(5, 25), (25, 37), (37, 57), (57, 77), (77, 97), (97, 100)]
    asked = [decode_header(PullHeader, request) for request in broker.asked(PULL)]
    assert [(header.queue_offset, header.max_messages) for header in asked] == [
        (5, 32), (25, 12), (37, 20), (57, 20), (77, 20), (97, 3),
    ]  # fmt: skip
    assert {(header.topic, header.queue_id, header.consumer_group) for header in asked} == {("T", 0, "TOOLS_CONSUMER")}
    assert {header.subscription for header in asked} == {"*"}
    assert not broker.asked(TOPIC)


async def test_answers_are_collected_up_to_a_batch(cluster: ScriptedCluster) -> None:
    """By messages or by bytes, and at the end there is nothing."""
    broker = cluster.brokers["broker-a"]
    broker.answers[PULL] = giving(32)
    for limits in ({"batch_messages": 64}, {"batch_bytes": 64}):
        options = replace(options_of(cluster), pulls_at_once=1, **limits)
        fetcher = RangeFetcher([range_of(broker, 0, 160)], options)
        batches = [await fetcher.collect() for _ in range(4)]
        assert [None if batch is None else offsets(batch) for batch in batches] == [
            [(0, 32), (32, 64)], [(64, 96), (96, 128)], [(128, 160)], None,
        ]  # fmt: skip


async def test_offsets_below_the_first_are_lost(cluster: ScriptedCluster) -> None:
    """An error, or a warning, and the reading goes on with the first that is there."""
    broker = cluster.brokers["broker-a"]
    broker.answers[PULL] = giving(32, first=40)
    ranges = [range_of(broker, 0, 60)]
    text = "queue 0 of T on broker-a begins at offset 40: those from 0 on were deleted"
    with pytest.raises(DataLossError, match=text):
        await fetch(RangeFetcher(ranges, options_of(cluster)))
    pulled = await fetch(RangeFetcher(ranges, replace(options_of(cluster), data_loss=WARNS)))
    assert offsets(pulled) == [(40, 60)]


async def test_offsets_behind_the_end_are_lost(cluster: ScriptedCluster) -> None:
    """The queue is not asked again for what lies behind."""
    broker = cluster.brokers["broker-a"]
    broker.answers[PULL] = giving(32, end=20)
    ranges = [range_of(broker, 0, 300)]
    with pytest.raises(DataLossError, match="queue 0 of T on broker-a ends at offset 20, before 300"):
        await fetch(RangeFetcher(ranges, options_of(cluster)))
    before = len(broker.asked(PULL))
    options = replace(options_of(cluster), data_loss=WARNS, pulls_at_once=1)
    assert offsets(await fetch(RangeFetcher(ranges, options))) == [(0, 20)]
    assert len(broker.asked(PULL)) == before + 2


@pytest.mark.parametrize(
    ("config", "expression"),
    [
        (TopicConfig(topic_name="T"), "a||b"),
        (TopicConfig(topic_name="T", attributes={"queue.type": "BatchCQ"}), "*"),
        (None, "*"),
    ],
)
async def test_brokers_filter_where_they_can(
    cluster: ScriptedCluster, config: TopicConfig | None, expression: str
) -> None:
    """Not inner batches, nor a topic whose type they do not tell; they are asked for it once."""
    broker = cluster.brokers["broker-a"]
    broker.answers[PULL] = giving(32)
    if config is None:
        broker.answers[TOPIC] = refused(ResponseCode.SYSTEM_ERROR)
    else:
        broker.answers[TOPIC] = lambda _: Command.response(ResponseCode.SUCCESS, body=encode_body(config))
    selection = Selection(tags=frozenset("ba"), includes_system=True)
    fetcher = RangeFetcher([range_of(broker, 0, 100)], replace(options_of(cluster), selection=selection))
    assert offsets(await fetch(fetcher))[-1][1] == 100
    asked = [decode_header(PullHeader, request) for request in broker.asked(PULL)]
    assert {header.subscription for header in asked} == {expression}
    assert len(broker.asked(TOPIC)) == 1


def filtering(every: int, most: int, size: int) -> Answer:
    """Return the answer of a broker that filters: of each so many messages one, of so many bytes."""

    def answer(command: Command) -> Command:
        header = decode_header(PullHeader, command)
        count = min(most, header.max_messages)
        return found(header.queue_offset + every * count, bytes(size * count))

    return answer


def filtered_options(cluster: ScriptedCluster, **limits: int) -> ClusterOptions:
    """Return the options of a reading of one tag."""
    config = TopicConfig(topic_name="T")
    broker = cluster.brokers["broker-a"]
    broker.answers[TOPIC] = lambda _: Command.response(ResponseCode.SUCCESS, body=encode_body(config))
    selection = Selection(tags=frozenset("a"), includes_system=True)
    return replace(options_of(cluster), selection=selection, **limits)


async def test_filtered_pulls_follow_each_other(cluster: ScriptedCluster) -> None:
    """Each begins where the last one ended, so that nothing but what ends a fetch range is sent twice."""
    broker = cluster.brokers["broker-a"]
    broker.answers[PULL] = filtering(4, 32, 1)
    options = filtered_options(cluster, pulls_at_once=1)
    pulled = await fetch(RangeFetcher([range_of(broker, 0, 4096)], options))
    assert [(each.first, each.end) for each in pulled] == [(at, at + 128) for at in range(0, 4096, 128)]
    assert len(broker.asked(PULL)) == 4096 // 128


async def test_filtered_fetch_with_much_goes_on_later(cluster: ScriptedCluster) -> None:
    """It ends after 1 MB; the rest comes in order, with this batch, or with the next one if this one is full."""
    broker = cluster.brokers["broker-a"]
    broker.answers[PULL] = filtering(1, 32, 8192)
    whole = [(at, at + 32) for at in range(0, 1024, 32)]
    for batch_bytes, is_several in ((1 << 20, True), (16 << 20, False)):
        fetcher = RangeFetcher([range_of(broker, 0, 1024)], filtered_options(cluster, batch_bytes=batch_bytes))
        batches: list[list[tuple[int, int]]] = []
        while (some := await fetcher.collect()) is not None:
            batches.append([(each.first, each.end) for each in some])
        assert [place for batch in batches for place in batch] == whole
        assert (len(batches) > 1) is is_several


async def test_failed_pull_is_tried_again(cluster: ScriptedCluster) -> None:
    """As often as options say; then the error names the place."""
    broker = cluster.brokers["broker-a"]
    good, failures = giving(32), [2]

    def answer(command: Command) -> Command:
        if failures[0]:
            failures[0] -= 1
            return Command.response(ResponseCode.SYSTEM_BUSY, "busy")
        return good(command)

    broker.answers[PULL] = answer
    ranges = [range_of(broker, 0, 30)]
    assert offsets(await fetch(RangeFetcher(ranges, options_of(cluster, retries=2)))) == [(0, 30)]
    assert len(broker.asked(PULL)) == 3
    failures[0] = 2
    place = rf"busy \(queue 0 of T on broker-a at {broker.address} cannot be read at offset 0\)"
    with pytest.raises(ResponseError, match=place):
        await fetch(RangeFetcher(ranges, options_of(cluster, retries=1)))
    failures[0] = 1
    with pytest.raises(ResponseError):
        await fetch(RangeFetcher(ranges, options_of(cluster)))


async def test_refusal_is_not_tried_again(cluster: ScriptedCluster) -> None:
    """It would come again."""
    broker = cluster.brokers["broker-a"]
    broker.answers[PULL] = refused(ResponseCode.NO_PERMISSION, "no")
    with pytest.raises(ResponseError, match="no"):
        await fetch(RangeFetcher([range_of(broker, 0, 30)], options_of(cluster, retries=3)))
    assert len(broker.asked(PULL)) == 1


async def test_broker_that_moved_is_found(cluster: ScriptedCluster) -> None:
    """By its name, at the address that the name server tells; all later pulls go there."""
    broker = cluster.brokers["broker-a"]
    broker.answers[PULL] = giving(32)
    gone = replace(range_of(broker, 0, 100), address="127.0.0.1:1")
    fetcher = RangeFetcher([gone], replace(options_of(cluster, retries=1), pulls_at_once=1))
    assert offsets(await fetch(fetcher))[0] == (0, 32)
    del cluster.routes["T"]
    with pytest.raises(RemotingError, match=r"at 127\.0\.0\.1:1 cannot be read at offset 0 after 2 attempts") as caught:
        await fetch(RangeFetcher([gone], options_of(cluster, retries=1)))
    assert isinstance(caught.value, RocketletError)
