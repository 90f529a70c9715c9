"""Statistics by name (315), by raw requests to a broker whose clock the test moves."""

import json

import pytest
from raw_calls import Caller

from rocketlet.common.codes import ResponseCode
from rocketlet.remoting.codec.request_codes import RequestCode as Code
from rocketlet.testing.manual_clock import ManualClock

NOTHING = {"avgpt": 0.0, "sum": 0, "tps": 0.0}


async def test_windows_of_a_statistic(caller: Caller, clock: ManualClock) -> None:
    """Each has its sum, what that is per second, and what came each time; the hour has no sample yet."""
    for _ in range(6):
        await caller.send("T")
    await clock.elapse(10_000)
    answer = await caller.ask(Code.VIEW_BROKER_STATS_DATA, {"statsName": "TOPIC_PUT_NUMS", "statsKey": "T"})
    told = json.loads(answer.body)
    minute = told.pop("statsMinute")
    assert (minute["sum"], minute["avgpt"]) == (6, 1.0)
    assert minute["tps"] == pytest.approx(0.6)
    assert told == {"statsHour": NOTHING, "statsDay": NOTHING}


async def test_statistic_that_is_not_there(caller: Caller) -> None:
    """It is answered 1, with both names."""
    answer = await caller.ask(Code.VIEW_BROKER_STATS_DATA, {"statsName": "TOPIC_PUT_NUMS", "statsKey": "nobody"})
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "The stats <TOPIC_PUT_NUMS> <nobody> not exist")
