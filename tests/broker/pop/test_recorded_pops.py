"""What was recorded from Java's broker: requests that it refuses, or answers although nothing comes of them."""

import json
import re
from typing import Any, Final

import pytest
from javastores import VECTORS
from raw_calls import Caller, topic_header

from rocketlet.common.codes import ResponseCode
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.testing.manual_clock import ManualClock

RECORDED: Final[dict[str, Any]] = json.loads((VECTORS / "pop/pop-errors.json").read_text())
EXCHANGES: Final[list[dict[str, Any]]] = RECORDED["exchanges"]
TOPIC: Final = "QE376422"
GROUP: Final = "QH376422"
FIRST_MS: Final = 1_795_376_440_546
"""What the clock of the recording showed when it began."""
ITS_OWN: Final = ("popTime",)
OUR_WORDS: Final = {
    "missing field topic": "the custom field <topic> is null",
    "ack short extraInfo": "the handle '1 2 3' has 3 words, not 8",
    "ack extraInfo of letters": "startOffset of the handle 'a b c d e f g h' is 'a', which is no number",
    "batch ack r=7": "an acknowledgement has the kind of topic '7', which is none of 0, 1 and 2",
}
"""Where Java shows an exception."""


@pytest.fixture(autouse=True)
async def state(caller: Caller) -> None:
    """Make topics and groups as they were then."""
    for name, perm in ((TOPIC, "6"), (f"{TOPIC}nr", "2")):
        fields = topic_header(name, "SimpleCQ") | {"readQueueNums": "2", "writeQueueNums": "2", "perm": perm}
        answer = await caller.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
    body = json.dumps({"groupName": f"{GROUP}off", "consumeEnable": False}).encode()
    answer = await caller.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    for number in range(2):
        answer = await caller.send(TOPIC, b"m%d" % number, queue_id=0)
        assert answer.code == ResponseCode.SUCCESS, answer.remark


@pytest.mark.feature("O1", "O8")
async def test_refusals_are_those_of_java(caller: Caller, clock: ManualClock) -> None:
    """Code, remark and fields of each answer, in the order of the recording; handles are those that we gave."""
    handles: dict[str, str] = {}
    wrong: dict[str, tuple[object, object]] = {}
    for exchange in EXCHANGES:
        fields: dict[str, str] = dict(exchange["ext"] or {})
        if int(fields.get("bornTime", "0")):
            age_ms = FIRST_MS + round(exchange["t"] * 1_000) - int(fields["bornTime"])
            fields["bornTime"] = str(clock.now_ms() - age_ms)
        if (handle := fields.get("extraInfo")) in handles:
            fields["extraInfo"] = handles[str(handle)]
        answer = await caller.ask(exchange["code"], fields or None, exchange.get("body", "").encode())
        recorded = exchange["answer"]
        if exchange["name"] == "pop one":
            handles[f"0 {recorded['ext']['popTime']} 20000 6 0 broker-a 0 0"] = (
                f"0 {answer.ext['popTime']} 20000 {answer.ext['reviveQid']} 0 broker-a 0 0"
            )
        ours = (answer.code, _plain(answer.remark), _without_time(answer.ext))
        remark = OUR_WORDS.get(exchange["name"], recorded["remark"])
        theirs = (recorded["code"], _plain(remark), _without_time(recorded["ext"] or {}))
        if ours != theirs:
            wrong[exchange["name"]] = (ours, theirs)
    assert wrong == {}


def _plain(remark: str | None) -> str | None:
    return None if remark is None else re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:port", remark)


def _without_time(fields: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in fields.items() if name not in ITS_OWN}
