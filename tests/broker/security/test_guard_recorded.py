"""Every request that was recorded of the protected 5.4.0 broker, sent again with its signature, and what it is told."""

import pathlib

import pytest
from guarded import GUARDED, PLAIN_ACL
from raw_calls import open_caller, recorded_calls

from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.common.codes import ResponseCode
from rocketlet.remoting.codec.request_codes import RequestCode as Code
from rocketlet.testing.manual_clock import ManualClock

DENIED = "User:alice has no permission to access {} from 127.0.0.1, no matched policies."
AT_START = "set it in the settings file or with --set, and start the broker again"
OTHER_ANSWERS = {
    # a token that Go sends and does not sign
    (Code.SEND_MESSAGE_V2, "stsToken", 16): (0, None),
    # no name of a class and a line of Java's
    (Code.AUTH_CREATE_ACL, "", 1): (1, "The body of acl is null"),
    # a batch without body is no null pointer
    (Code.SEND_BATCH_MESSAGE, "", 1): (13, "the message has no body"),
    # settings that are read at the start are not changed with success
    (Code.UPDATE_BROKER_CONFIG, "admin", 0): (
        1,
        f"authenticationEnabled is read at the start only: {AT_START}",
    ),
}
"""By code, what tells the request from others of its kind, and the official code: what is answered otherwise."""


@pytest.fixture
def settings(settings: dict[str, str], tmp_path: pathlib.Path) -> dict[str, str]:
    """Return the settings of the recorded broker."""
    (tmp_path / "plain_acl.yml").write_text(PLAIN_ACL)
    return {
        **settings,
        **GUARDED,
        "brokerClusterName": "auth-cluster",
        "authenticationWhitelist": "907",
        "authorizationWhitelist": "907",
        "migrateAuthFromV1Enabled": "true",
        "rocketmq.acl.plain.file": str(tmp_path / "plain_acl.yml"),
        "showUserPasswords": "true",
        "enablePropertyFilter": "true",
    }


async def differences(config: BrokerConfig, vectors: pathlib.Path, clock: ManualClock) -> list[tuple[object, ...]]:
    """Return how what is answered differs from what was recorded."""
    found: list[tuple[object, ...]] = []
    count = 0
    async with Broker(config, clock) as broker, open_caller(broker.address) as caller:
        for request, expected, _ in recorded_calls(vectors, "auth-frames", "auth"):
            assert expected is not None, "all of them were answered"
            count += 1
            answer = await caller.ask(request.code, dict(request.ext), request.body, version=request.version)
            given, wanted = (answer.code, answer.remark), (expected.code, expected.remark)
            marks = ("", request.ext.get("AccessKey", ""), request.ext.get("SecurityToken", ""))
            known = [
                OTHER_ANSWERS.get((Code(request.code), mark, expected.code)) for mark in marks if request.code != 9999
            ]
            if given != wanted and given not in known:
                found.append((request.code, *given))
            if answer.code == ResponseCode.NO_PERMISSION:
                assert (answer.ext, answer.body) == ({}, b"")
    assert count == 137
    return found


@pytest.mark.feature("A6", "A7", "A12", "A13", "A14", "A15", "A16", "A17")
async def test_every_recorded_request_is_answered_as_by_java(
    settings: dict[str, str], vectors: pathlib.Path, clock: ManualClock
) -> None:
    """Code and remark are those of the official broker, to everybody, once it is no stricter than that."""
    config = BrokerConfig.from_java({**settings, "authorizationStrict": "false"})
    assert await differences(config, vectors, clock) == []


@pytest.mark.feature("A20")
async def test_stricter_broker_refuses_what_java_lets_pass(
    settings: dict[str, str], vectors: pathlib.Path, clock: ManualClock
) -> None:
    """A user without rights gets nothing of settings, other topics and groups, and the broker."""
    cluster, other = DENIED.format("Cluster:auth-cluster"), DENIED.format("Group:Other")
    assert await differences(BrokerConfig.from_java(settings), vectors, clock) == [
        (361, 16, DENIED.format("Topic:T2")),
        (11, 16, other),
        (400, 16, DENIED.format("Topic:T2")),
        (325, 16, DENIED.format("Topic:T9")),
        (33, 16, DENIED.format("Topic:T1")),
        *((code, 16, cluster) for code in (26, 25, 28)),
        (200, 16, DENIED.format("Group:G9")),
        (43, 16, cluster),
        (306, 16, cluster),
    ]
