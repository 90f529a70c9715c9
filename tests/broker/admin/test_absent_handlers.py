"""What is answered about features that this broker has not: a 5.4.0 master's words, or the name of the request."""

import json
import pathlib
from collections.abc import Mapping

import pytest
from raw_calls import Caller

from rocketlet.remoting.codec.request_codes import NOT_BUILT
from rocketlet.remoting.codec.request_codes import RequestCode as Code

MOST_COLD_GROUPS = 1_000


@pytest.mark.parametrize(
    ("code", "fields", "answered", "remark"),
    [
        (Code.CHECK_ROCKSDB_CQ_WRITE_PROGRESS, {"topic": "T"}, 0, None),
        (Code.EXPORT_ROCKSDB_CONFIG_TO_JSON, {"configType": "x"}, 1, "Unknown config type: x"),
        (Code.GET_BROKER_EPOCH_CACHE, {}, 1, "this request only for controllerMode "),
        (Code.NOTIFY_BROKER_ROLE_CHANGED, {}, 0, None),
        (Code.RESET_MASTER_FLUSH_OFFSET, {"masterFlushOffset": "5"}, 0, None),
        (Code.SET_COMMITLOG_READ_MODE, {"READ_AHEAD_MODE": "1"}, 0, "set commitlog readahead mode success, mode: 1"),
        (Code.SET_COMMITLOG_READ_MODE, {"READ_AHEAD_MODE": "2"}, 29, "set commitlog readahead mode param value error"),
        (Code.SET_COMMITLOG_READ_MODE, {"READ_AHEAD_MODE": "x"}, 1, "set commitlog readahead mode failed"),
        (Code.SET_COMMITLOG_READ_MODE, {"READ_AHEAD_MODE": "2147483648"}, 1, "set commitlog readahead mode failed"),
        (Code.SWITCH_TIMER_ENGINE, {"E_T": "F"}, 0, None),
        (Code.SWITCH_TIMER_ENGINE, {"E_T": "R"}, 29, "timerUseRocksDB muse be configured true when broker start"),
        (Code.SWITCH_TIMER_ENGINE, {"E_T": "x"}, 29, "param error"),
    ],
)
async def test_words_of_a_stock_master(
    caller: Caller, code: Code, fields: Mapping[str, str], answered: int, remark: str | None
) -> None:
    """Codes and remarks were told by an official broker with stock settings."""
    answer = await caller.ask(code, fields)
    assert (answer.code, answer.remark) == (answered, remark)


def saved_groups(directory: pathlib.Path) -> Mapping[str, object]:
    """Return the groups that stand in the file of a broker."""
    (path,) = directory.rglob("subscriptionGroup.json")
    return json.loads(path.read_text())["subscriptionGroupTable"]


async def test_export_saves_the_tables(caller: Caller, tmp_path: pathlib.Path) -> None:
    """They are JSON anyway; when the answer comes, the files say what the tables say."""
    await caller.send("Exported")
    await caller.ask(Code.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "exported"})
    answer = await caller.ask(Code.EXPORT_ROCKSDB_CONFIG_TO_JSON, {"configType": "topics;subscriptionGroups"})
    assert (answer.code, answer.remark) == (0, "export done.")
    assert "exported" in saved_groups(tmp_path)


async def test_queues_in_rocksdb_are_never_compared(caller: Caller) -> None:
    """Whoever asks whether they are equal is told to ask again: an official broker answers so while it looks."""
    told = json.loads((await caller.ask(Code.CHECK_ROCKSDB_CQ_WRITE_PROGRESS, {"topic": "T"})).body)
    assert told["checkStatus"] == 2


async def test_nobody_copies_the_log(caller: Caller) -> None:
    """A master says where its log ends and that it has no slaves."""
    await caller.send("T")
    told = json.loads((await caller.ask(Code.GET_BROKER_HA_STATUS)).body)
    assert (told["master"], told["haConnectionInfo"], told["inSyncSlaveNums"]) == (True, [], 0)
    assert told["masterCommitLogMaxOffset"] > 100
    assert told["haClientRuntimeInfo"] == dict.fromkeys(
        ("lastReadTimestamp", "lastWriteTimestamp", "masterFlushOffset", "maxOffset", "transferredByteInSecond"), 0
    )


async def test_limits_of_cold_data(caller: Caller) -> None:
    """They are kept by group until they are taken away; what is no number is passed over. There are so many at most."""

    async def limits() -> dict[str, int]:
        return json.loads((await caller.ask(Code.GET_COLD_DATA_FLOW_CTR_INFO)).body)["configTable"]

    await caller.ask(Code.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, {}, b"g=100\nh=many\ni=-5\n")
    assert await limits() == {"g": 100, "i": -5}
    for group in (b"g", b"nobody"):
        assert (await caller.ask(Code.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, {}, group)).code == 0
    assert await limits() == {"i": -5}
    many = b"".join(b"g%d=1\n" % number for number in range(MOST_COLD_GROUPS))
    answer = await caller.ask(Code.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, {}, many)
    assert (answer.code, len(await limits())) == (1, MOST_COLD_GROUPS)


@pytest.mark.parametrize("code", sorted(NOT_BUILT), ids=lambda code: Code(code).name)
async def test_what_is_not_built_is_refused_by_its_name(caller: Caller, code: Code) -> None:
    """Requests of static topics and leases in RocksDB are answered 3, and named."""
    answer = await caller.ask(code, {})
    assert (answer.code, answer.remark) == (3, f" request type {int(code)} not supported ({code.name})")
