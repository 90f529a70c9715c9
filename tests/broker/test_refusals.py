"""Remarks of refusals that depend on the state of the broker, letter by letter as a 5.4.0 broker words them.

Those that depend on the request alone are in ``test_bad_input_recorded``.
"""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

import pytest
from raw_calls import Caller, open_caller, pull_header

from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.common.codes import ResponseCode
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.testing.manual_clock import ManualClock

FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
NO_GROUPS = {"autoCreateSubscriptionGroup": "false"}


class Case(NamedTuple):
    """Settings, what is asked, and the answer."""

    settings: dict[str, str]
    ask: Callable[[Caller], Awaitable[Command]]
    code: int
    remark: str


async def put_topic(caller: Caller, order: str = "false", perm: str = "6") -> None:
    """Make the topic."""
    queues = {"readQueueNums": "4", "writeQueueNums": "4", "topicFilterType": "SINGLE_TAG"}
    header = {"topic": "T", "defaultTopic": "TBW102", "order": order, "perm": perm, **queues}
    assert (await caller.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header)).code == ResponseCode.SUCCESS


async def put_group(caller: Caller, field: str) -> None:
    """Make the group with a permission taken away."""
    body = f'{{"groupName":"consumers","{field}":false}}'.encode()
    assert (await caller.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)).code == ResponseCode.SUCCESS


async def send_ordered(caller: Caller) -> Command:
    """Send to an ordered topic."""
    await put_topic(caller, order="true")
    return await caller.send()


async def send_again(caller: Caller) -> Command:
    """Send to the retry topic of a group."""
    return await caller.send("%RETRY%g")


async def pull_lite(caller: Caller) -> Command:
    """Pull as a lite consumer."""
    return await caller.ask(RequestCode.LITE_PULL_MESSAGE, pull_header("T"))


async def pull_unreadable(caller: Caller) -> Command:
    """Pull from a topic without the permission to read."""
    await put_topic(caller, perm="2")
    return await caller.pull()


async def pull(caller: Caller) -> Command:
    """Pull with the subscription in the request."""
    await put_topic(caller)
    return await caller.pull()


async def pull_disabled(caller: Caller) -> Command:
    """Pull for a group that may not consume."""
    await put_group(caller, "consumeEnable")
    return await pull(caller)


async def pull_as_member(caller: Caller, version: int = 0) -> Command:
    """Pull with the subscription of the group's heartbeat."""
    await put_topic(caller)
    return await caller.pull(sys_flag=0, sub_version=version)


async def pull_other(caller: Caller) -> Command:
    """Pull a topic that the group's heartbeat does not name."""
    await caller.heartbeat("client", "consumers", {"Other": "*"})
    return await pull_as_member(caller)


async def pull_later(caller: Caller) -> Command:
    """Pull with a newer subscription than that of the heartbeat."""
    await caller.heartbeat("client", "consumers", {"T": "*"}, version=5)
    return await pull_as_member(caller, version=6)


async def pull_broadcast(caller: Caller) -> Command:
    """Pull for a broadcasting group that may not broadcast."""
    await put_group(caller, "consumeBroadcastEnable")
    await caller.heartbeat("client", "consumers", {"T": "*"}, messageModel="BROADCASTING")
    return await pull_as_member(caller)


CASES = {
    "send, broker not writable": Case(
        {"brokerPermission": "4"},
        send_ordered,
        ResponseCode.NO_PERMISSION,
        "the broker[127.0.0.1] sending message is forbidden",
    ),
    "send, no such group": Case(
        NO_GROUPS,
        send_again,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        f"subscription group not exist, g {FAQ}",
    ),
    "send, no such topic": Case(
        {"autoCreateTopicEnable": "false"},
        Caller.send,
        ResponseCode.TOPIC_NOT_EXIST,
        f"topic[T] not exist, apply first please!{FAQ}",
    ),
    "pull, broker not readable": Case(
        {"brokerPermission": "2"},
        pull,
        ResponseCode.NO_PERMISSION,
        "the broker[127.0.0.1] pulling message is forbidden",
    ),
    "lite pull not enabled": Case(
        {"litePullMessageEnable": "false"},
        pull_lite,
        ResponseCode.NO_PERMISSION,
        "the broker[127.0.0.1] for lite pull consumer is forbidden",
    ),
    "pull, no such group": Case(
        NO_GROUPS,
        pull,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        f"subscription group [consumers] does not exist, {FAQ}",
    ),
    "pull, group disabled": Case(
        {}, pull_disabled, ResponseCode.NO_PERMISSION, "subscription group no permission, consumers"
    ),
    "pull, topic not readable": Case(
        {}, pull_unreadable, ResponseCode.NO_PERMISSION, "the topic[T] pulling message is forbidden"
    ),
    "pull, group without members": Case(
        {}, pull_as_member, ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's group info not exist{FAQ}"
    ),
    "pull, topic not subscribed": Case(
        {}, pull_other, ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's subscription not exist{FAQ}"
    ),
    "pull, older subscription": Case(
        {}, pull_later, ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest"
    ),
    "pull, no broadcasting": Case(
        {},
        pull_broadcast,
        ResponseCode.NO_PERMISSION,
        "the consumer group[consumers] can not consume by broadcast way",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_refusal_is_worded_as_java_does(case: Case, settings: dict[str, str], clock: ManualClock) -> None:
    """Code and remark, with the address of the broker where Java names it, and its line break before the link."""
    config = BrokerConfig.from_java({**settings, **case.settings})
    async with Broker(config, clock) as broker, open_caller(broker.address) as caller:
        answer = await case.ask(caller)
    assert (answer.code, answer.remark) == (case.code, case.remark)


@pytest.mark.parametrize(("model", "code"), [("CLUSTERING", ResponseCode.SUCCESS), (None, ResponseCode.NO_PERMISSION)])
async def test_group_that_may_not_broadcast_shares_its_queues(model: str | None, code: int, caller: Caller) -> None:
    """``consumeBroadcastEnable`` keeps nobody from consuming as a cluster."""
    await caller.send()
    if model is None:
        answer = await pull_broadcast(caller)
    else:
        await put_group(caller, "consumeBroadcastEnable")
        await caller.heartbeat("client", "consumers", {"T": "*"}, messageModel=model)
        answer = await pull_as_member(caller)
    assert answer.code == code
