"""Queue locks, by raw requests."""

import pytest
from raw_calls import Caller, lock_body

from rocketlet.common.codes import ResponseCode
from rocketlet.common.message import MessageQueue
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.testing.manual_clock import ManualClock

QUEUES = [MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-a", 1)]
BOTH = (
    b'{"lockOKMQSet":[{"brokerName":"broker-a","queueId":0,"topic":"T"},'
    b'{"brokerName":"broker-a","queueId":1,"topic":"T"}]}'
)
NONE = b'{"lockOKMQSet":[]}'


async def lock(caller: Caller, client_id: str) -> bytes:
    """Ask for both queues and return the body of the answer."""
    return (await caller.ask(RequestCode.LOCK_BATCH_MQ, None, lock_body("g", client_id, QUEUES))).body


@pytest.mark.feature("C10")
async def test_locked_queues_are_the_clients_own(caller: Caller) -> None:
    """The answer lists what the client holds now: all for the first, nothing for the second until the unlock."""
    assert await lock(caller, "one") == BOTH
    assert await lock(caller, "two") == NONE
    answer = await caller.ask(RequestCode.UNLOCK_BATCH_MQ, None, lock_body("g", "one", QUEUES))
    assert answer.code == ResponseCode.SUCCESS
    assert await lock(caller, "two") == BOTH


@pytest.mark.feature("C10")
async def test_lock_of_a_dead_client_ends(caller: Caller, clock: ManualClock) -> None:
    """After 60 s without renewal another client gets the queues."""
    assert await lock(caller, "one") == BOTH
    clock.advance(60_001)
    assert await lock(caller, "two") == BOTH
