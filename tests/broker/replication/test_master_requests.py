"""What a slave asks its master: pages of one version, and answers that make no sense."""

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import pytest

from rocketlet.broker.delay.delay_progress import DelayFile
from rocketlet.broker.group.groups import OffsetFile, RequestModes
from rocketlet.broker.replication.kept_tables import TimerCounts
from rocketlet.broker.replication.master_requests import FAST_PORT_STEP, MasterRequests
from rocketlet.common.errors import DecodeError, RemotingError
from rocketlet.common.ids import format_address
from rocketlet.common.metadata import DataVersion
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode as Code
from rocketlet.remoting.transport.client import ConnectionPool
from rocketlet.remoting.transport.connection import Connection, RequestHandlers
from rocketlet.remoting.transport.event_loop import LoopClock
from rocketlet.remoting.transport.server import RemotingServer

Answer = Callable[[Command], Command]
GARBAGE = [
    *(b"", b"null", b"[]", b"7", b'"x"', b"{", b"\xff\xfe", b"{}", b'{"dataVersion":7}', b"[" * 5_000),
    *(b'{"topicConfigTable":{}}', b'{"topicConfigTable":{"T":7}}', b'{"topicConfigTable":{"T":null}}'),
    *(b'{"subscriptionGroupTable":[]}', b'{"subscriptionGroupTable":{"G":{"retryMaxTimes":"many"}}}'),
    *(b'{"offsetTable":{"T@G":{0:"x"}}}', b'{"offsetTable":{"T@G":7}}', b'{"offsetTable":{0:99999999999999999999}}'),
    *(b'{"messageRequestModeMap":7}', b'{"timingCount":{"T":{"count":"x"}}}', bytes(55), b"\xff" * 56),
]


@asynccontextmanager
async def asking(answer: Answer) -> AsyncGenerator[MasterRequests]:
    """Run a server that answers as told, and ask at its port and its fast port, which are the same here."""

    def serve(command: Command, _connection: Connection) -> Command:
        return answer(command)

    clock = LoopClock()
    async with (
        RemotingServer("127.0.0.1", 0, RequestHandlers(fallback=serve), clock) as server,
        ConnectionPool(clock) as pool,
    ):
        host, port = server.address

        class OnePort(MasterRequests):
            def _address(self, *, is_fast: bool) -> str:
                assert super()._address(is_fast=is_fast) == format_address(host, port + is_fast * FAST_PORT_STEP)
                return self.address

        yield OnePort(pool, format_address(host, port))


def ok(body: bytes, **ext: str) -> Command:
    """Return an answer."""
    return Command.response(0, None, ext, body)


def topics(names: list[str], counter: int = 1) -> bytes:
    """Return a page of topics of a version."""
    table = {name: {"topicName": name, "readQueueNums": 1, "writeQueueNums": 1} for name in names}
    version = {"counter": counter, "stateVersion": 0, "timestamp": 5}
    return json.dumps({"dataVersion": version, "topicConfigTable": table}).encode()


async def test_pages_are_put_together() -> None:
    """Each page is asked for behind those that have come, with the version that they are of."""
    asked: list[dict[str, str]] = []

    def answer(command: Command) -> Command:
        asked.append(dict(command.ext))
        first = int(command.ext["topicSeq"])
        return ok(topics([f"T{number}" for number in range(first, min(first + 2, 5))]), totalTopicNum="5")

    async with asking(answer) as master:
        found = await master.topics()
    version = '{"counter":1,"stateVersion":0,"timestamp":5}'
    assert asked == [
        {"topicSeq": "0", "dataVersion": "", "maxTopicNum": "2000"},
        {"topicSeq": "2", "dataVersion": version, "maxTopicNum": "2000"},
        {"topicSeq": "4", "dataVersion": version, "maxTopicNum": "2000"},
    ]
    assert (sorted(found.topic_config_table), found.data_version) == (
        [f"T{number}" for number in range(5)],
        DataVersion(counter=1, timestamp=5),
    )


async def test_a_master_that_tells_no_number_has_sent_all() -> None:
    """Those of 5.1 and before know no pages."""
    async with asking(lambda _: ok(topics(["T", "U"]))) as master:
        assert sorted((await master.topics()).topic_config_table) == ["T", "U"]


async def test_a_table_that_changes_on_the_way_is_asked_for_again() -> None:
    """Nothing of the version before is kept; one that changes all the time is given up."""
    counters = iter([1, 2, 2, 2])

    def answer(command: Command) -> Command:
        counter, first = next(counters), int(command.ext["topicSeq"])
        return ok(topics([f"{counter}-{first}", f"{counter}-{first + 1}"], counter), totalTopicNum="4")

    async with asking(answer) as master:
        assert sorted((await master.topics()).topic_config_table) == ["2-0", "2-1", "2-2", "2-3"]
    always = iter(range(1, 1_000))
    async with asking(lambda _: ok(topics(["T"], next(always)), totalTopicNum="4")) as master:
        with pytest.raises(RemotingError, match="has changed 21 times"):
            await master.topics()


async def test_a_page_that_comes_again_is_refused() -> None:
    """A master that does not go on would be asked for ever."""
    async with asking(lambda _: ok(topics(["T", "U"]), totalTopicNum="4")) as master:
        with pytest.raises(DecodeError, match="a page brought nothing new after 2 of 4 entries"):
            await master.topics()


async def test_bare_numbers_are_read() -> None:
    """Java writes the numbers of queues and levels without quotes."""
    bodies = {
        Code.GET_ALL_CONSUMER_OFFSET: b'{"dataVersion":{"counter":3},"offsetTable":{"T@G":{0:5,1:-1}}}',
        Code.GET_ALL_DELAY_OFFSET: b'{"offsetTable":{3:1,\t18 : 7}}',
    }
    async with asking(lambda command: ok(bodies[Code(command.code)])) as master:
        found = await master.offsets()
        assert (found.offset_table, found.data_version.counter) == ({"T@G": {0: 5, 1: -1}}, 3)
        assert (await master.delays()).offset_table == {3: 1, 18: 7}


@pytest.mark.parametrize("body", GARBAGE, ids=range(len(GARBAGE)))
async def test_garbage_is_an_error_or_no_table(body: bytes) -> None:
    """Whatever is answered ends in an error of ours, or in a table of the right kind."""
    async with asking(lambda _: ok(body, totalTopicNum="x", totalGroupNum="-5")) as master:
        for ask, kind in (
            (master.offsets, OffsetFile),
            (master.delays, DelayFile),
            (master.modes, RequestModes),
            (master.timer_counts, TimerCounts),
        ):
            try:
                assert isinstance(await ask(), kind)
            except (DecodeError, RemotingError) as error:
                assert str(error)  # noqa: PT017 # either is right
        for refuse in (master.topics, master.groups, master.timer_check):
            with pytest.raises((DecodeError, RemotingError)):
                await refuse()


async def test_refusals_are_told() -> None:
    """The code and the words of the master stand in the error; an old one that tells no end of its log has none."""
    async with asking(lambda _: Command.response(1, "no such thing")) as master:
        with pytest.raises(RemotingError, match="answered 1: no such thing"):
            await master.offsets()
        with pytest.raises(RemotingError, match="answered 1: no such thing"):
            await master.log_end()
    async with asking(lambda _: Command.response(3, "not supported")) as master:
        assert await master.log_end() is None
    async with asking(lambda _: ok(b'{"master":false,"masterCommitLogMaxOffset":0}')) as master:
        with pytest.raises(RemotingError, match="is no master"):
            await master.log_end()
    async with asking(lambda _: ok(b'{"master":true,"masterCommitLogMaxOffset":77}')) as master:
        assert await master.log_end() == 77
