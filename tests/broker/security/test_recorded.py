"""Requests for users and policies, sent again as they were recorded, and compared with what the 5.4.0 broker answered.

Signatures and rights are not checked here: what was refused for want of a right was never answered by a handler.
"""

import json
import pathlib
import re

import pytest
from guarded import PLAIN_ACL
from raw_calls import Caller, RecordedCall, open_caller, recorded_calls

from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.remoting.codec.request_codes import RequestCode as Code
from rocketlet.testing.manual_clock import ManualClock

JAVA_EXCEPTION = re.compile(r"org\.apache\.[\w.]+Exception: (.*), org\.apache\.[\w.]+\(\w+\.java:\d+\)")
ANSWERED = frozenset(range(Code.AUTH_CREATE_USER, Code.AUTH_LIST_ACL + 1))


@pytest.fixture
def settings(settings: dict[str, str], tmp_path: pathlib.Path) -> dict[str, str]:
    """Return the settings of the recorded broker, without its checks."""
    (tmp_path / "plain_acl.yml").write_text(PLAIN_ACL)
    return {
        **settings,
        "brokerClusterName": "auth-cluster",
        "initAuthenticationUser": '{"username":"admin","password":"admin123"}',
        "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"inner123"}',
        "migrateAuthFromV1Enabled": "true",
        "rocketmq.acl.plain.file": str(tmp_path / "plain_acl.yml"),
        "showUserPasswords": "true",
    }


def calls(vectors: pathlib.Path) -> list[RecordedCall]:
    """Return the recorded requests that handlers answered."""
    found = [call for call in recorded_calls(vectors, "auth-frames", "auth") if call.request.code in ANSWERED]
    return [call for call in found if "no permission to access" not in ((call.answer and call.answer.remark) or "")]


@pytest.mark.feature("A9", "A10", "A11", "A16", "A18")
async def test_every_recorded_request_is_answered_as_by_java(vectors: pathlib.Path, caller: Caller) -> None:
    """Codes, remarks, fields and bodies are those of the official broker, byte by byte."""
    replayed = calls(vectors)
    for request, expected, _ in replayed:
        assert expected is not None
        answer = await caller.ask(request.code, dict(request.ext), request.body, version=request.version)
        exception = JAVA_EXCEPTION.fullmatch(expected.remark or "")  # ours name no class
        remark = exception[1] if exception else expected.remark
        assert (answer.code, answer.remark, answer.body) == (expected.code, remark, expected.body), request.ext
        assert answer.ext == expected.ext
    assert len(replayed) == 47


@pytest.mark.feature("A18")
async def test_import_is_that_of_java(vectors: pathlib.Path, caller: Caller) -> None:
    """Users and policies that a start makes of plain_acl.yml are those that the official broker told."""
    truth = {row["note"]: row for row in json.loads((vectors / "auth" / "truth-auth.json").read_text())}
    users = await caller.ask(Code.AUTH_LIST_USER, {"filter": "ocket"})
    assert users.body.decode() == truth["migrated users"]["bodyText"]
    acl = await caller.ask(Code.AUTH_GET_ACL, {"subject": "User:RocketMQ"})
    assert acl.body.decode() == truth["migrated acl"]["bodyText"]
    assert (await caller.ask(Code.AUTH_GET_ACL, {"subject": "User:rocketmq2"})).body == b""


@pytest.mark.feature("A9", "A18")
async def test_start_makes_users_once(settings: dict[str, str], clock: ManualClock) -> None:
    """What administrators have made of the first users stays so, whatever settings and files say at the next start."""
    config = BrokerConfig.from_java(settings)
    async with Broker(config, clock) as broker, open_caller(broker.address) as caller:
        for name in ("admin", "inner", "RocketMQ"):
            body = b'{"password":"changed","userType":"Normal","userStatus":"disable"}'
            assert (await caller.ask(Code.AUTH_UPDATE_USER, {"username": name}, body)).code == 0
        assert (await caller.ask(Code.AUTH_DELETE_ACL, {"subject": "User:RocketMQ"})).code == 0
        assert (await caller.ask(Code.AUTH_DELETE_USER, {"username": "rocketmq2"})).code == 0
        before = (await caller.ask(Code.AUTH_LIST_USER, {})).body
    async with Broker(config, clock) as broker, open_caller(broker.address) as caller:
        after = json.loads((await caller.ask(Code.AUTH_LIST_USER, {})).body)
        assert [user for user in after if user["username"] != "rocketmq2"] == json.loads(before)
        assert {user["username"] for user in after} == {"admin", "inner", "RocketMQ", "rocketmq2"}
        assert (await caller.ask(Code.AUTH_GET_ACL, {"subject": "User:RocketMQ"})).body == b""
